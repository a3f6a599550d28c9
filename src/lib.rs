//! Keep the same job from running twice across machines, with one PostgreSQL table.

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod clock;
#[cfg(target_os = "linux")]
#[allow(
    dead_code,
    unused_imports,
    reason = "called by the command line and `run_with_locks`, which come next"
)]
mod command;
mod error;
mod lease;
mod rules;

pub use error::{Error, Result};
