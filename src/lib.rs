//! Keep the same job from running twice across machines, with one PostgreSQL table.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod clock;
#[allow(dead_code, reason = "wired up by the next change")]
mod db;
mod error;
mod lease;
mod rules;

pub use error::{Error, Result};
