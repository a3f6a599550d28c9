//! Integration tests: the program and the library against real PostgreSQL servers, on networks that
//! fail. A file per subject; what they share is in `support`.
//!
//! Every test has its own database and so its own locks; all run in parallel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test may panic; that is how it fails"
)]

#[cfg(feature = "aio")]
mod aio;
mod harness;
mod keeper;
mod random_faults;
mod schema;
#[allow(
    dead_code,
    reason = "the tests of the program, which come next, use the rest"
)]
mod support;
mod waiting;
mod with_postgres;
