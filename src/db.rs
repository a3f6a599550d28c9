//! The only code that knows PostgreSQL: connections, statements, rows. Asynchronous, shared by the
//! blocking and the asynchronous frontend.

pub(crate) mod acquire;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) mod admin;
pub(crate) mod connect;
pub(crate) mod conninfo;
pub(crate) mod failure;
mod heartbeat;
mod holdings;
pub(crate) mod keeper;
mod listeners;
mod operations;
mod shared;
pub(crate) mod store;
pub(crate) mod taken;
pub(crate) mod timestamp;
#[cfg(feature = "tls")]
mod tls;
