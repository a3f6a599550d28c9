//! Comparisons with what else there is, as ratios: each figure beside one from the same loop.
//!
//!     scripts/with-postgres cargo bench                        # all, without the long run
//!     scripts/with-postgres cargo bench -- pairs renewals      # some
//!     scripts/with-postgres cargo bench -- many 10000 600      # leases, seconds
//!
//! Lines are tab-separated: group, subject, measure, value, and the ratio to the group's first subject.
//! What is not installed is left out. `DISLOCK_PYTHON` names the Python original's program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a benchmark is a program for developers"
)]

#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod library;
#[cfg(target_os = "linux")]
#[path = "../../tests/it/support/proxy.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod proxy;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
#[path = "../../tests/it/support/wait.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod wait;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|w| w != "--bench")
        .collect();
    if words.first().is_some_and(|word| word == "--children") {
        return commands::run_children(&words[1..]);
    }
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL; use scripts/with-postgres");
    let wants = |name: &str| words.is_empty() || words.iter().any(|word| word == name);
    if wants("cli") {
        commands::compare(&url);
    }
    if wants("round-trips") {
        commands::round_trips(&url);
    }
    if wants("herd") {
        commands::herd(&url);
    }
    if wants("pairs") {
        library::pairs(&url);
    }
    if wants("renewals") {
        for leases in [1, 100, 10_000] {
            library::keep("renewals", &url, leases, 25);
        }
    }
    if let Some(at) = words.iter().position(|word| word == "many") {
        let number = |n: usize| words.get(at + n).and_then(|word| word.parse::<u32>().ok());
        let (leases, seconds) = (number(1).unwrap_or(10_000), number(2).unwrap_or(600));
        library::keep("many", &url, leases, seconds);
    }
}
