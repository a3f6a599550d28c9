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
    /// How many failures there were.
    pub(crate) fn failures(self) -> u32 {
        self.failures
    }

    /// Whether nothing has failed so far.
    pub(crate) fn is_fresh(self) -> bool {
        self.failures == 0
    }

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

/// How often a busy lease is looked at while it is waited for.
const POLL: Duration = Duration::from_secs(1);
/// A row that expires "now" by a clock that is a little ahead is not asked for in a tight loop.
const SHORTEST_POLL: Duration = Duration::from_millis(10);

/// The pause before a busy lease is asked for again, when `left` remains of the wait and the row
/// expires in `expires_in` unless it is renewed; `None` when the wait is over. `sample` is uniform in
/// [0, 1) and spreads those who wait together.
pub(crate) fn wait_pause(
    left: Duration,
    expires_in: Option<Duration>,
    sample: f64,
) -> Option<Duration> {
    if left.is_zero() {
        return None;
    }
    let poll = POLL.mul_f64(1.0 - sample / 2.0);
    let pause = expires_in
        .unwrap_or(Duration::MAX)
        .clamp(SHORTEST_POLL, poll);
    Some(pause.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sqlstates_are_classified() {
        use FailureClass::{Passing, Permanent};
        let table = [
            ("08000", Passing),
            ("08006", Passing),
            ("08P01", Passing),
            ("40001", Passing),
            ("40P01", Passing),
            ("53200", Passing),
            ("53300", Passing),
            ("55P03", Passing),
            ("57014", Passing),
            ("57P01", Passing),
            ("57P02", Passing),
            ("57P03", Passing),
            ("25006", Permanent), // read-only server
            ("28000", Permanent), // no such role, or refused by pg_hba.conf
            ("28P01", Permanent), // wrong password
            ("3D000", Permanent), // no such database
            ("42501", Permanent), // no privilege
            ("42P01", Permanent), // no such table
            ("57P04", Permanent), // the database was dropped
            ("", Permanent),
            ("é", Permanent),
        ];
        for (sqlstate, class) in table {
            assert_eq!(classify(sqlstate), class, "{sqlstate}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_cap() {
        let mut backoff = Backoff::default();
        let long = Duration::from_secs(3600);
        let pauses: Vec<u128> = (0..8)
            .filter_map(|_| backoff.pause(long, 0.0))
            .map(|pause| pause.as_millis())
            .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    }

    #[test]
    fn nothing_is_tried_when_no_time_is_left() {
        assert_eq!(Backoff::default().pause(Duration::ZERO, 0.5), None);
        assert_eq!(wait_pause(Duration::ZERO, None, 0.5), None);
    }

    #[test]
    fn busy_lease_is_asked_for_at_its_expiry_or_every_second_or_so() {
        let long = Duration::from_secs(3600);
        let millis = Duration::from_millis;
        let table = [
            (long, None, 0.0, 1000),
            (long, None, 0.999_999_999, 500),
            (long, Some(millis(300)), 0.0, 300),
            (long, Some(millis(30_000)), 0.0, 1000),
            (long, Some(Duration::ZERO), 0.0, 10),
            (millis(50), Some(millis(300)), 0.0, 50),
        ];
        for (left, expires_in, sample, expected) in table {
            let pause = wait_pause(left, expires_in, sample).unwrap();
            assert_eq!(
                pause.as_millis(),
                expected,
                "{left:?} {expires_in:?} {sample}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_pause_never_exceeds_the_time_left(
            left in any::<Duration>(), sample in 0.0..1.0_f64, failures in any::<u32>(),
        ) {
            let mut backoff = Backoff { failures };
            if let Some(pause) = backoff.pause(left, sample) {
                prop_assert!(pause <= left && pause <= LONGEST_PAUSE);
            }
            if let Some(pause) = wait_pause(left, Some(left), sample) {
                prop_assert!(pause <= left);
            }
        }
    }
}
