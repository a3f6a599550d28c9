//! Comparisons with what else there is, as ratios: each figure beside one from the same loop.
//!
//!     scripts/with-postgres cargo bench                        # all, without the long run
//!     scripts/with-postgres cargo bench -- pairs renewals      # some
//!     scripts/with-postgres cargo bench -- many 10000 600      # leases, seconds
//!
//! `report` explains the lines that it prints. What is not installed is skipped, with a line saying so.
//! `DISLOCK_PYTHON` names the Python original's program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a benchmark is a program for developers"
)]

mod cost;
mod herd;
mod leases;
mod pairs;
mod report;
mod single_runs;
/// What the tests stand on.
#[path = "../../tests/it"]
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod it {
    pub(crate) mod support;
}

use it::support;

fn main() {
    // Cargo adds an option of its own.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if words.first().is_some_and(|word| word == cost::PARENT) {
        return cost::be_parent(&words[1..]);
    }
    if let Some(at) = words.iter().position(|word| word == "many") {
        let number = |n: usize| words.get(at + n).and_then(|word| word.parse().ok());
        let (held, seconds) = (number(1).unwrap_or(10_000), number(2).unwrap_or(600));
        return leases::many(held, seconds);
    }
    let groups: [(&str, fn()); 6] = [
        ("cli", single_runs::on_this_machine),
        ("link", single_runs::over_a_slow_link),
        ("herd", herd::one_tick),
        ("pairs", pairs::pairs_of_statements),
        ("renewals", leases::renewals),
        ("fillfactor", leases::fillfactor),
    ];
    let unknown = |word: &&String| groups.iter().all(|(name, _)| name != word);
    if let Some(word) = words.iter().find(unknown) {
        panic!("no group {word}: see the top of benches/compare/main.rs");
    }
    for (name, measure) in groups {
        if words.is_empty() || words.iter().any(|word| word == name) {
            measure();
        }
    }
}
