//! The command line: arguments and environment in, an exit code out.
//!
//! Standard output belongs to the command. What dislock has to say goes to stderr, and a stderr that
//! is closed or broken changes neither what is done nor the exit code.

mod admin;
mod admin_args;
mod args;
mod events;
mod impatient;
mod input;
mod json;
mod listing;
mod logging;
mod manual;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod report;
mod settings;
mod terminal;
mod values;

use std::panic::catch_unwind;
use std::process::ExitCode;

use jiff::Timestamp;

use crate::command::{Signals, fork_guardian, run};
use crate::error::{Error, Kind};
use crate::rules::outcome;
use args::Args;
use input::Env;
use settings::Settings;

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
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(answer) => return tell(&answer),
    };
    let env = |name: &str| std::env::var_os(name);
    if let Some(task) = args.task() {
        start_logging(&args, &env);
        return admin::perform(&task, &args, &env);
    }
    // Both have to come before the first thread: the signals, because a thread that does not block
    // them dies of them, and the guardian, so that it shares as little as possible with us.
    let supervision = Signals::block().and_then(|signals| Ok((signals, fork_guardian()?)));
    start_logging(&args, &env);
    let settings = match settings::resolve(&args, &env) {
        Ok(settings) => settings,
        Err(bad) => {
            log::error!(event = "configuration_error", exit_code = outcome::USAGE; "{bad}");
            return outcome::USAGE;
        }
    };
    logging::about(settings.context.lock_key());
    supervision
        .and_then(|(signals, guardian)| {
            let Settings {
                context,
                strategies,
                command,
                ..
            } = &settings;
            run(
                command.clone(),
                context,
                strategies,
                guardian,
                Some(&signals),
            )
        })
        .unwrap_or_else(|error| failed(&error, settings.conflict_exit_code))
}

/// Prints help and version to stdout, a usage error to stderr; the exit code.
fn tell(answer: &clap::Error) -> i32 {
    match answer.print() {
        Err(error) if !answer.use_stderr() => {
            logging::init(log::LevelFilter::Error, logging::Format::Text);
            log::error!("{}", admin::not_written(&error));
            outcome::FAILURE
        }
        // Where stderr is broken, nothing can be said.
        _ => answer.exit_code(),
    }
}

fn start_logging(args: &Args, env: Env<'_>) {
    let (level, format, unknown) = settings::logging(args, env);
    logging::init(level, format);
    for bad in unknown {
        log::warn!(event = "configuration_error"; "{bad}");
    }
}

/// Logs how a run failed; its exit code.
fn failed(error: &Error, conflict_exit_code: i32) -> i32 {
    let exit_code = outcome::exit_code_of(error, conflict_exit_code);
    // The first two are expected: a tick that another host has, a standby that is shut down.
    if error.is_not_acquired() {
        let until = error
            .held_until()
            .and_then(|at| Timestamp::try_from(at).ok());
        log::info!(
            event = "lock_busy",
            holder = error.holder(),
            until = until.map(|at| at.to_string()),
            exit_code;
            "{error:#}"
        );
    } else if matches!(error.kind(), Kind::Interrupted(_)) {
        log::info!(event = "interrupted", exit_code; "{error:#}");
    } else {
        log::error!(event = "run_failed", exit_code; "{error:#}");
    }
    exit_code
}
