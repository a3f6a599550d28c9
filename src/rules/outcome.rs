//! How a run ended, and the exit code that says so. The only place where exit codes are decided.

use crate::error::{Error, Kind, StartFailure};

/// The exit code of a run whose lease was lost under
/// [`LeaseLossPolicy::Terminate`](crate::LeaseLossPolicy::Terminate): `EX_TEMPFAIL` of sysexits.h.
pub const LEASE_LOST_EXIT_CODE: i32 = 75;

/// Runtime failure.
pub(crate) const FAILURE: i32 = 1;
/// Configuration or usage.
pub(crate) const USAGE: i32 = 2;
/// The command is there but cannot be executed, as shells say it.
const NOT_EXECUTABLE: i32 = 126;
/// There is no such command, as shells say it.
const NOT_FOUND: i32 = 127;
/// What shells add to the number of a signal that ended a process.
const SIGNAL_BASE: i32 = 128;

/// How a command that was started came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It was stopped because its lease was lost; its own code is of no interest then.
    LeaseLost,
}

impl Ended {
    /// As a shell would see it.
    pub(crate) fn exit_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => SIGNAL_BASE + signal,
            Self::LeaseLost => LEASE_LOST_EXIT_CODE,
        }
    }
}

/// The exit code of a run that ended with `error`; `conflict` is the one for a lock that is held
/// elsewhere.
pub(crate) fn exit_code_of(error: &Error, conflict: i32) -> i32 {
    match error.kind() {
        Kind::Configuration(_) => USAGE,
        Kind::NotAcquired(_) => conflict,
        Kind::LeaseLost { .. } => LEASE_LOST_EXIT_CODE,
        Kind::Database { .. } | Kind::System { .. } => FAILURE,
        Kind::Command { failure, .. } => match failure {
            StartFailure::NotFound => NOT_FOUND,
            StartFailure::NotExecutable => NOT_EXECUTABLE,
        },
        Kind::Interrupted(signal) => SIGNAL_BASE + signal,
    }
}
