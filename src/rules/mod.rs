//! Decisions, and nothing else: no I/O, no clock, no environment, no threads, no randomness.
//!
//! Everything here takes the instant and the facts it needs as arguments and returns a decision;
//! the modules that do things obey.

#[allow(dead_code, unused_imports, reason = "wired up by the next change")]
mod cron;
#[allow(dead_code, reason = "wired up by the next change")]
mod slot;
