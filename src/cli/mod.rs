//! The command line: arguments and environment in, an exit code out.

use std::process::ExitCode;

/// Runs the program.
pub fn main() -> ExitCode {
    ExitCode::from(2)
}
