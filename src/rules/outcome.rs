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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Busy, Setting};

    #[test]
    fn a_command_that_ran_decides_the_exit_code() {
        let table = [
            (Ended::Exited(0), 0),
            (Ended::Exited(7), 7),
            (Ended::Exited(255), 255),
            (Ended::Signaled(9), 137),
            (Ended::Signaled(11), 139),
            (Ended::LeaseLost, 75),
        ];
        for (ended, code) in table {
            assert_eq!(ended.exit_code(), code, "{ended:?}");
        }
    }

    #[test]
    fn cannot_lock_is_never_confused_with_already_locked() {
        let busy = || {
            Error::from(Kind::NotAcquired(Busy {
                key: "k".to_owned(),
                holder: "h".to_owned(),
                until: None,
            }))
        };
        let lost = Kind::LeaseLost {
            key: "k".to_owned(),
            reason: "r".to_owned(),
        };
        let command = |failure| Kind::Command {
            message: "m".to_owned(),
            failure,
            source: None,
        };
        let table = [
            (busy(), 0, 0),
            (busy(), 99, 99),
            (Error::database("refused"), 0, 1),
            (Error::system("fork", "no memory"), 0, 1),
            (Error::setting_hidden(Setting::LockKey, "is missing"), 0, 2),
            (lost.into(), 0, 75),
            (command(StartFailure::NotExecutable).into(), 0, 126),
            (command(StartFailure::NotFound).into(), 0, 127),
            (Kind::Interrupted(15).into(), 0, 143),
        ];
        for (error, conflict, code) in table {
            assert_eq!(exit_code_of(&error, conflict), code, "{error}");
        }
    }
}
