//! The blocking frontend.
//!
//! The caller's thread never touches a socket. A background thread per acquisition, with a runtime of
//! its own, connects, takes the rows and, if a lease is among them, goes on to renew it over the same
//! connection; giving rows back happens on a short-lived thread over a second connection. The caller
//! waits for either with a bound. That is why none of this blocks for longer than it says, and why it
//! may be called from inside an async runtime, where it blocks the calling thread like any blocking
//! call.

pub(crate) mod acquisition;
mod locks;
mod session;

pub use locks::{LeaseLock, LeaseLost, ScheduleLock};
pub use session::{LockPlan, LockSession, acquire_locks, build_locks, with_locks};
