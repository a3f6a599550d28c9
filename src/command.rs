//! Running a command under locks, so that it is dead before another host can take them.
//!
//! ```text
//!   dislock ──── guardian ──── command ──── its children …
//!      '── channel ──'
//! ```
//!
//! * dislock (`supervise`) starts the command through the guardian, forwards signals to it, and has
//!   its whole tree stopped when the lease is lost.
//! * The guardian (`guardian`, `watch`) is the command's parent and adopts every orphan below it, so that
//!   nothing leaves the tree. It kills the tree when dislock is killed, and when dislock is stopped
//!   or hangs and so does not move the deadline.
//! * The kernel kills the command when the guardian is killed; dislock then kills the rest (`sweep`).
//!
//! So killing any one of them ends the command. What cannot be helped: dislock and the guardian killed in
//! the same instant, when only the command itself is killed by the kernel and its descendants live on.

mod alarm;
mod course;
mod frames;
mod guardian;
#[expect(unsafe_code, reason = "system calls without a safe wrapper")]
mod kernel;
mod launch;
mod listing;
mod processes;
mod resolve;
mod run;
mod signals;
mod supervise;
mod sweep;
mod tree;
mod watch;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use run::run_with_locks;

pub(crate) use guardian::Guardian;
pub(crate) use run::{fork_guardian, run};
pub(crate) use signals::Signals;

pub(crate) use resolve::CommandLine;
