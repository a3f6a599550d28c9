//! The command line: arguments and environment in, an exit code out.
//!
//! Standard output belongs to the command. What dislock has to say goes to stderr, and a stderr that
//! is closed or broken changes neither what is done nor the exit code.

mod args;
mod input;
mod logging;

use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser as _;

use crate::rules::outcome;
use args::Args;

/// Runs the program. A panic is a runtime failure like any other, and has its exit code (1) rather
/// than Rust's 101, which is in nobody's list.
pub fn main() -> ExitCode {
    logging::report_panics();
    let code = catch_unwind(program).unwrap_or(outcome::FAILURE);
    // The system keeps the low byte, as `exit(3)` says.
    ExitCode::from(code.to_le_bytes()[0])
}

/// From the arguments to the exit code.
fn program() -> i32 {
    match Args::try_parse() {
        Ok(_) => outcome::FAILURE,
        Err(answer) => {
            // Help and version to stdout, a usage error to stderr; where that is broken, nothing can
            // be said.
            drop(answer.print());
            answer.exit_code()
        }
    }
}
