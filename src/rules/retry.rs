//! What to do after a failure: try again, and when, or give up.

use std::time::Duration;

/// The first pause; every further one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Whether a failure may pass by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureClass {
    /// The network, a restart, a failover, a crowd: the same attempt may succeed later.
    Passing,
    /// It will fail the same way until somebody changes something.
    Permanent,
}

/// Classifies a server's answer by its SQLSTATE (PostgreSQL documentation, appendix A). The one
/// table of its kind.
pub(crate) fn classify(sqlstate: &str) -> FailureClass {
    const PASSING_CLASSES: [&str; 2] = [
        "08", // connection exception
        "53", // insufficient resources, 53300 too_many_connections above all
    ];
    const PASSING_CODES: [&str; 8] = [
        "40001", // serialization_failure: contention under serializable isolation
        "40P01", // deadlock_detected
        "55P03", // lock_not_available
        "57014", // query_canceled: a statement_timeout, or an administrator
        "57P01", // admin_shutdown
        "57P02", // crash_shutdown
        "57P03", // cannot_connect_now: starting up or shutting down
        "57P05", // idle_session_timeout
    ];
    let class = sqlstate.get(..2).unwrap_or_default();
    if PASSING_CLASSES.contains(&class) || PASSING_CODES.contains(&sqlstate) {
        FailureClass::Passing
    } else {
        FailureClass::Permanent
    }
}

/// The pauses between attempts: exponential, capped, and with jitter, so that many hosts which failed
/// together do not come back together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure, when `left` remains until giving up; `None` when that is
    /// over. `sample` is uniform in [0, 1) and takes up to half of the pause away.
    pub(crate) fn pause(&mut self, left: Duration, sample: f64) -> Option<Duration> {
        if left.is_zero() {
            return None;
        }
        let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        let pause = doubled.min(LONGEST_PAUSE).mul_f64(1.0 - sample / 2.0);
        Some(pause.min(left))
    }
}
