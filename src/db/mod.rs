//! Everything that knows PostgreSQL.

pub(crate) mod connect;
pub(crate) mod conninfo;
#[cfg(feature = "tls")]
mod tls;
