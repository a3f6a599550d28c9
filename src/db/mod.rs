//! The only code that knows PostgreSQL: connections, statements, rows. Asynchronous, shared by the
//! blocking and the asynchronous frontend.

pub(crate) mod acquire;
pub(crate) mod connect;
pub(crate) mod conninfo;
mod failure;
pub(crate) mod heartbeat;
mod store;
pub(crate) mod timestamp;
#[cfg(feature = "tls")]
mod tls;
