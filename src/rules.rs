//! Decisions, and nothing else: no I/O, no clock, no environment, no threads, no randomness.
//!
//! Everything here takes the instant and the facts it needs as arguments and returns a decision;
//! the modules that do things obey.

pub(crate) mod cron;
pub(crate) mod lease;
pub(crate) mod outcome;
pub(crate) mod retry;
pub(crate) mod slot;
