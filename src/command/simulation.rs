//! A deterministic simulation of leases: random schedules of everything that can go wrong, and after
//! every event a look at what must hold (`checks`).
//!
//! # The model
//!
//! Two to four hosts want one lease and run a command under it, again and again. What decides is the
//! product: [`LeaseState`](crate::lease::LeaseState) and the [`rules`](crate::rules) below it, the
//! pauses of `rules/retry.rs`, and the supervisor's [`Course`](super::course::Course). Modelled around
//! them are
//!
//! * the database: one row, its own clock, and the three statements with the moment at which they start
//!   (`NOW()`) and the one at which they take effect (`database`);
//! * what sends the statements, as `db/acquire.rs` and `db/heartbeat.rs` do it (`asking`, `process`);
//! * the guardian, as `command/watch.rs` does it (`tree`);
//! * clocks that begin anywhere and run too fast or too slow (`clocks`, `host`);
//! * the network: delays both ways, lost requests, lost and late answers, statements that stall in the
//!   server, statements that take effect after they were given up (`world`);
//! * faults: a host that is cut off one way or both, refused connections, a database that is down, a
//!   locked row, SIGSTOP of dislock or of its guardian, SIGKILL of either, a machine that stands still
//!   or reboots, an operator who deletes or releases the row (`faults`).
//!
//! # What is assumed
//!
//! Between the kill and the row's expiry lies the *safety*: 250 ms, or a quarter of the margin if that
//! is less. It is all there is for clocks that disagree and for the killing itself. So for a TTL `T`:
//!
//! * each clock runs at most 200 ppm too fast or too slow, and two of them drift apart by no more than 45 %
//!   of the safety within `T`. With 250 ms the 200 ppm are the tighter bound up to a TTL of 280 s;
//! * a killed tree is dead within 35 % of the safety, and a process acts upon an alarm within 10 % of it.
//!
//! Where a setting leaves no margin (no grace, an interval as long as the TTL), all of these are zero.
//!
//! # What is left out
//!
//! * A database whose clock is set, or that forgets a commit (a failover to a replica that lags).
//! * The command of a machine that stands still past its kill deadline: another one may have taken the row
//!   when it goes on. It has to be dead as soon as that happens, and that is checked.
//! * Dislock and its guardian stopped both, with the command going on.
//! * Acquisitions whose row an operator has deleted or released: their command may be alive beside the
//!   next one's, for the kill grace. Everything else is checked for them, too.
//! * Schedules, many leases in one statement, signals, and trees of more than one process.
//!
//! # Running it
//!
//! ```sh
//! # a few seconds, as part of `cargo test`
//! cargo test --lib simulation
//! # a million schedules
//! DISLOCK_SIMULATION_SCHEDULES=1000000 cargo test --release --lib simulation -- --nocapture
//! # others; and one alone, with all that happens in it
//! DISLOCK_SIMULATION_SEED=1000000 DISLOCK_SIMULATION_SCHEDULES=1000000 cargo test …
//! DISLOCK_SIMULATION_SEED=4711 DISLOCK_SIMULATION_SCHEDULES=1 cargo test --lib simulation -- --nocapture
//! ```
//!
//! Schedule *n* is made from the seed *n*, so a failure names the number with which it is repeated. To
//! show that mistakes are found, each of those in `flaw` is built in once (`tests`).

mod asking;
mod checks;
mod clocks;
mod counts;
mod database;
mod dice;
mod faults;
mod flaw;
mod host;
mod lease;
mod process;
mod tests;
mod tree;
mod world;

/// What must not happen has happened.
struct Violation {
    seed: u64,
    what: String,
    /// All that happened, when it was asked for.
    trace: Vec<String>,
}

/// Runs the schedule of that seed.
fn simulate(
    seed: u64,
    flaw: Option<flaw::Flaw>,
    traced: bool,
) -> Result<counts::Counts, Violation> {
    world::World::new(seed, flaw, traced).run()
}
