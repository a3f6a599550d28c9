//! The blocking frontend.
//!
//! The caller's thread never touches a socket. One background thread per database and table, the
//! [keeper](crate::db::keeper)'s, takes rows, renews all leases that the process holds there, and gives
//! them back. The caller waits with a bound. That is why none of this blocks for longer than it says,
//! and why it may be called from inside an async runtime, where it blocks the calling thread like any
//! blocking call.

mod acquisition;
mod keepers;
mod locks;
mod session;

pub use locks::{LeaseLock, LeaseLost, ScheduleLock};
pub use session::{LockPlan, LockSession, acquire_locks, build_locks, with_locks};

pub(crate) use keepers::close_all;
