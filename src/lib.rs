//! Keep the same job from running twice across machines, with one PostgreSQL table.
//!
//! # What is guaranteed, and what is not
//!
//! A *schedule lock* lets one host start a job per tick of its schedule. A *lease* is held by one
//! process at a time: its row lives for a TTL and is renewed in the background. When renewals fail,
//! the holder knows the lease as lost **before** the row expires in the database, on a clock of its
//! own that counts from before each statement was sent; a command that runs under
//! [`run_with_locks`] is dead by then. A lease that was lost once is never trusted again.
//!
//! A block of Rust code cannot be interrupted: it has to ask [`LockSession::check`] now and then. And
//! a machine that is paused for longer than the TTL does not know so until it wakes. Where that
//! matters, let the resource itself refuse a holder that is out of date, by its
//! [fencing token](LockSession::fencing_token).
//!
//! # Use
//!
//! ```no_run
//! use dislock::{LeaseLock, LockContext};
//!
//! # fn main() -> Result<(), dislock::Error> {
//! let ctx = LockContext::builder("postgresql://app@db/app", "importer").build()?;
//! let lease = LeaseLock::acquire(&ctx)?;
//! for part in 0..100 {
//!     lease.check()?; // fails once the lease is lost
//!     println!("importing part {part}");
//! }
//! lease.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! The database needs one table; its DDL is in `schema.sql`:
//!
//! ```sql
#![doc = include_str!("../schema.sql")]
//! ```
//!
//! # Blocking and async
//!
//! All calls block the calling thread, within bounds that each of them states, and do their I/O on
//! threads of their own. Inside an async runtime they work, and block the thread they are called on.
//! The feature `aio` adds the same calls as async functions, in the module `aio`.
//!
//! # Features
//!
//! * `tls`, on by default: TLS to the database. Without it a connection string that needs TLS is
//!   refused.
//! * `aio`: the async twin, on the caller's Tokio runtime.
//! * `cli`, on by default: the program. A library does without it.

// docs.rs builds with a nightly toolchain, which can say what is there only with a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Dead code shows in the full build; a smaller one lacks the callers of much that it shares.
#![cfg_attr(
    not(all(feature = "cli", target_os = "linux")),
    allow(dead_code, unused_imports, reason = "what only the program needs")
)]

#[cfg(all(feature = "cli", target_os = "linux"))]
mod admin;
#[cfg(feature = "aio")]
pub mod aio;
#[cfg(all(feature = "cli", target_os = "linux"))]
#[doc(hidden)]
pub mod cli;
mod clock;
#[cfg(target_os = "linux")]
mod command;
mod context;
mod db;
mod error;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod forks;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod lease;
mod per_process;
mod random;
mod rules;
mod sync;
mod zones;

#[cfg(target_os = "linux")]
pub use command::run_with_locks;
pub use context::{LeaseLossPolicy, LockContext, LockContextBuilder, LockStrategy};
pub use error::{Error, Result};
pub use rules::outcome::LEASE_LOST_EXIT_CODE;
pub use sync::{
    LeaseLock, LeaseLost, LockPlan, LockSession, ScheduleLock, acquire_locks, build_locks,
    with_locks,
};

// The examples of the documents are compiled, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct Library;
