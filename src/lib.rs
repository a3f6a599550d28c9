//! Keep the same job from running twice across machines, with one PostgreSQL table.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod clock;
mod error;
mod lease;
mod rules;

pub use error::{Error, Result};
