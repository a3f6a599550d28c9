//! The async twin of the crate's blocking calls, on the caller's Tokio runtime.
//!
//! The names, options and guarantees are the same; what differs:
//!
//! * Renewals run as a task on the runtime on which the first lease was taken, one task and one
//!   connection however many leases. The runtime needs its I/O and time drivers, and has to keep
//!   running: when it is shut down, or blocked for longer than a lease lives, the leases are lost.
//!   Whoever asks ([`LeaseLock::is_lost`]) learns so in time, because the deadline is compared there.
//! * Dropping a future that acquires calls the acquisition off. What it has taken, or may have, is given
//!   back in the background; if even that fails, the rows end by their TTL.
//! * Dropping a lease releases it in the background. Where the runtime ends before that is done, or has
//!   ended, the row is left to its TTL: call [`LeaseLock::release`] and await it.
//! * Many leases are best taken together, by futures that run at the same time (`tokio::task::JoinSet`):
//!   their statements follow each other over one connection without waiting for the answers. Over a link
//!   of 20 ms each way, a thousand took 0.6 s so and would have taken 44 s one by one. Releases that come
//!   together are one statement.
//! * Where the runtime's clock is paused (`tokio::time::pause`, `start_paused`) no server answers in time:
//!   the clock jumps to the end of every wait, since sockets do not count as something to do. Taking a lock
//!   fails at once, and leases that are held get lost. In a test of that kind call `tokio::time::resume`
//!   first, or use the blocking calls: their clock is their own.
//! * A guarded future can be cancelled, and is, when the lease is lost: see [`with_locks`].
//!
//! ```no_run
//! use dislock::LockContext;
//! use dislock::aio::LeaseLock;
//!
//! # async fn example() -> Result<(), dislock::Error> {
//! let ctx = LockContext::builder("postgresql://app@db/app", "importer").build()?;
//! let lease = LeaseLock::acquire(&ctx).await?;
//! // … work …
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```

mod acquisition;
#[cfg(target_os = "linux")]
mod command;
mod locks;
mod session;

#[cfg(target_os = "linux")]
pub use command::run_with_locks;
pub use locks::{LeaseLock, LeaseLost, ScheduleLock};
pub use session::{LockPlan, LockSession, acquire_locks, build_locks, with_locks};
