//! Integration tests: the program and the library against real PostgreSQL servers, on networks that
//! fail. A file per subject; what they share is in `support`.
//!
//! Every test has its own database and so its own locks; all run in parallel.

#![cfg(target_os = "linux")] // as the program
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may panic; that is how it fails"
)]

mod administration;
#[cfg(feature = "aio")]
mod aio;
mod api;
mod cannot_lock;
mod check;
mod command;
mod configuration;
mod conflict;
mod connecting;
mod documents;
mod events;
mod faults;
mod fencing;
mod forking;
mod harness;
mod help;
mod herd;
mod hostile_server;
mod inheritance;
mod keeper;
mod lease;
mod library;
mod library_run;
mod lost_answers;
mod mixed_fleet;
mod random_faults;
mod recipes;
mod round_trips;
mod schema;
mod secrets;
mod signals;
mod slot;
mod slot_choice;
mod standby;
mod strategies;
mod support;
mod surroundings;
mod terminal;
mod waiting;
mod with_postgres;
