//! The command line: arguments and environment in, an exit code out.

mod args;

use std::process::ExitCode;

use clap::Parser as _;

use crate::rules::outcome;
use args::Args;

/// Runs the program.
pub fn main() -> ExitCode {
    let code = match Args::try_parse() {
        Ok(_) => outcome::FAILURE,
        Err(answer) => {
            // Help and version to stdout, a usage error to stderr; where that is broken, nothing can
            // be said.
            drop(answer.print());
            answer.exit_code()
        }
    };
    ExitCode::from(code.to_le_bytes()[0])
}
