//! How long a lease may be trusted.
//!
//! The database gives a row `TTL` to live from the moment the statement runs there. The holder cannot
//! know that moment, only that it lies after the instant just *before* the statement was sent. So every
//! deadline counts from that instant, `sent`, and is never later than the row's expiry:
//!
//! ```text
//!   sent                                   stop_at      kill_at   sent + TTL
//!    |---- held and renewed -----------------|-- stopping --|---------|
//!                                            SIGTERM        SIGKILL   the row may be taken
//!                                            '------ margin ----------'
//! ```
//!
//! * Before `stop_at` the lease is trusted, whatever happens to single renewals.
//! * From `stop_at` on it is lost for good: no later answer brings it back, not even a success, because
//!   the decision to stop has already been acted upon.
//! * At `kill_at` whatever is left of the command is killed, a little before the row's own expiry.
//! * When the database itself says that the row is no longer ours (the owner guard rejects a renewal),
//!   the lease is lost that instant; waiting out the margin could protect nobody any more, so the
//!   command gets its full kill grace.
//!
//! A successful renewal moves `sent` forward, to the instant before *that* renewal was sent.

use std::time::Duration;

use crate::clock::BootInstant;

/// The most that is kept between the kill and the row's expiry, for the kill itself to happen.
const MAX_SAFETY: Duration = Duration::from_millis(250);
/// A heartbeat more often than this is a burden, more seldom than [`MAX_INTERVAL`] is of no use.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// An attempt to renew gets at least this long, if the lease has so long: a server that is merely
/// slow, or a new connection over a slow network, would otherwise be given up again and again.
const MIN_ATTEMPT: Duration = Duration::from_secs(5);
/// No attempt gets longer: a connection that is silent for so long is dead.
const MAX_ATTEMPT: Duration = Duration::from_secs(10);
/// What is left to the others of a batch when one of its leases is about to end.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(500);
/// The most that a renewal comes early for the sake of others.
const MAX_EARLY: Duration = Duration::from_millis(2500);

/// The settings that a lease's deadlines follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTiming {
    /// How long a row lives in the database after each renewal.
    pub(crate) ttl: Duration,
    /// From one renewal to the next; at most the TTL.
    pub(crate) interval: Duration,
    /// What a command would like to have between SIGTERM and SIGKILL.
    pub(crate) kill_grace: Duration,
}

impl LeaseTiming {
    /// The interval for a TTL when none is given: 0.3 × TTL, between 1 and 10 seconds, and at most
    /// half the TTL so that a single failed renewal never costs the lease.
    pub(crate) fn default_interval(ttl: Duration) -> Duration {
        (ttl.saturating_mul(3) / 10)
            .clamp(MIN_INTERVAL, MAX_INTERVAL)
            .min(ttl / 2)
    }

    /// What is kept of the TTL for stopping the command: the kill grace, unless that would leave too
    /// little time for renewals.
    pub(crate) fn margin(&self) -> Duration {
        self.kill_grace
            .min(self.ttl / 3)
            .min(self.ttl.saturating_sub(self.interval) / 2)
    }

    fn safety(&self) -> Duration {
        MAX_SAFETY.min(self.margin() / 4)
    }
}

/// When to stop and when to kill; both [`BootInstant::NEVER`] where nothing limits a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// From here on the lease is lost: SIGTERM.
    pub(crate) stop_at: BootInstant,
    /// By now everything is dead: SIGKILL.
    pub(crate) kill_at: BootInstant,
}

impl Deadlines {
    /// Of a run that nothing limits.
    pub(crate) const NONE: Self = Self {
        stop_at: BootInstant::NEVER,
        kill_at: BootInstant::NEVER,
    };
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No renewal succeeded in time.
    Expired,
    /// The row is gone, or carries somebody else's value.
    Rejected,
    /// This process was forked from the one that has the lease, and has only a memory of it.
    Inherited,
}

/// One acquisition until its release or loss.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTerm {
    timing: LeaseTiming,
    /// Just before the acquisition, or the last renewal that counted, was sent.
    sent: BootInstant,
    /// When the owner guard rejected a renewal, if it did so before `stop_at`.
    rejected_at: Option<BootInstant>,
}

impl LeaseTerm {
    /// A term that began with an acquisition sent at `sent`.
    pub(crate) fn begin(timing: LeaseTiming, sent: BootInstant) -> Self {
        Self {
            timing,
            sent,
            rejected_at: None,
        }
    }

    /// The deadlines as they stand now; only a renewal moves them.
    pub(crate) fn deadlines(&self) -> Deadlines {
        match self.rejected_at {
            Some(at) => Deadlines {
                stop_at: at,
                kill_at: at.after(self.timing.kill_grace),
            },
            None => {
                let expiry = self.sent.after(self.timing.ttl);
                Deadlines {
                    stop_at: expiry.before(self.timing.margin()),
                    kill_at: expiry.before(self.timing.safety()),
                }
            }
        }
    }

    /// Whether, and why, the lease is lost at `now`.
    pub(crate) fn loss(&self, now: BootInstant) -> Option<Loss> {
        match self.rejected_at {
            Some(_) => Some(Loss::Rejected),
            None => (now >= self.deadlines().stop_at).then_some(Loss::Expired),
        }
    }

    /// A renewal that was sent at `sent` succeeded, and its answer is here at `now`. Answers whether
    /// it counts: after the loss it does not.
    pub(crate) fn renewed(&mut self, sent: BootInstant, now: BootInstant) -> bool {
        if self.loss(now).is_some() {
            return false;
        }
        self.sent = self.sent.max(sent);
        true
    }

    /// The owner guard rejected a renewal at `now`. Of no effect once the lease is lost.
    pub(crate) fn rejected(&mut self, now: BootInstant) {
        if self.loss(now).is_none() {
            self.rejected_at = Some(now);
        }
    }

    /// When the next renewal is due: after the interval, but a tenth of the TTL before `stop_at` at
    /// the latest. An interval near the TTL would otherwise lose the lease of a healthy database.
    pub(crate) fn renew_at(&self) -> BootInstant {
        let latest = self.deadlines().stop_at.before(self.timing.ttl / 10);
        self.sent.after(self.timing.interval).min(latest)
    }
}

/// How long one attempt to renew leases may take when `lefts` remain of them: a third of the shortest,
/// so that one connection that went silent leaves time for others, within bounds. A lease that is about
/// to end does not leave the others next to nothing.
pub(crate) fn batch_limit(lefts: impl Iterator<Item = Duration>) -> Duration {
    lefts
        .map(|left| (left / 3).max(MIN_ATTEMPT).min(left.max(SHORTEST_ATTEMPT)))
        .fold(MAX_ATTEMPT, Duration::min)
}

/// How much too early a lease may be renewed when others are renewed at that time.
pub(crate) fn early_by(interval: Duration) -> Duration {
    (interval / 4).min(MAX_EARLY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timing(ttl: f64, interval: f64, kill_grace: f64) -> LeaseTiming {
        LeaseTiming {
            ttl: Duration::from_secs_f64(ttl),
            interval: Duration::from_secs_f64(interval),
            kill_grace: Duration::from_secs_f64(kill_grace),
        }
    }

    fn at(seconds: f64) -> BootInstant {
        BootInstant::from_boot(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn deadlines_follow_from_the_instant_before_the_send() {
        // (ttl, interval, grace) -> seconds after `sent`: stop_at, kill_at
        let table = [
            ((60.0, 10.0, 10.0), (50.0, 59.75)), // margin = grace
            ((6.0, 1.0, 10.0), (4.0, 5.75)),     // margin = TTL / 3
            ((6.0, 1.0, 1.0), (5.0, 5.75)),      // a short grace leaves more time to renew
            ((10.0, 8.0, 10.0), (9.0, 9.75)),    // margin = (TTL - interval) / 2
            ((3.0, 1.0, 0.4), (2.6, 2.9)),       // safety = margin / 4
            ((60.0, 10.0, 0.0), (60.0, 60.0)),   // no grace: killed at the expiry
            ((5.0, 5.0, 10.0), (5.0, 5.0)),      // interval = TTL: allowed, and nothing is left
        ];
        for ((ttl, interval, grace), (stop, kill)) in table {
            let sent = 1000.0;
            let term = LeaseTerm::begin(timing(ttl, interval, grace), at(sent));
            let expected = Deadlines {
                stop_at: at(sent + stop),
                kill_at: at(sent + kill),
            };
            let got = term.deadlines();
            let close = |a: BootInstant, b: BootInstant| {
                a.left(b).max(b.left(a)) < Duration::from_micros(1)
            };
            assert!(
                close(got.stop_at, expected.stop_at) && close(got.kill_at, expected.kill_at),
                "ttl {ttl}, interval {interval}, grace {grace}: {got:?}, expected {expected:?}"
            );
        }
    }

    #[test]
    fn the_table_of_the_guarantees_is_what_the_rules_give() {
        let page = include_str!("../../docs/GUARANTEES.md");
        let (_, table) = page.split_once("\n| TTL | interval |").unwrap();
        let rows: Vec<Vec<f64>> = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| {
                let cells = line.trim_matches('|').split('|');
                cells.map(|cell| cell.trim().parse().unwrap()).collect()
            })
            .collect();
        assert!(rows.len() > 4);
        for row in rows {
            let [ttl, interval, grace, stop, kill, outage] = row[..] else {
                panic!("{row:?}");
            };
            let timing = timing(ttl, interval, grace);
            let deadlines = LeaseTerm::begin(timing, at(0.0)).deadlines();
            assert_eq!(LeaseTiming::default_interval(timing.ttl), timing.interval);
            assert_eq!(deadlines.stop_at, at(stop), "{row:?}");
            assert_eq!(deadlines.kill_at, at(kill), "{row:?}");
            assert_eq!(
                at(stop),
                at(interval).after(Duration::from_secs_f64(outage))
            );
        }
    }

    #[test]
    fn default_interval_is_a_third_within_bounds_and_at_most_half_the_ttl() {
        let table = [
            (60.0, 10.0),
            (20.0, 6.0),
            (3.0, 1.0),
            (1.5, 0.75),
            (0.1, 0.05),
            (1e6, 10.0),
        ];
        for (ttl, interval) in table {
            let got = LeaseTiming::default_interval(Duration::from_secs_f64(ttl));
            assert_eq!(got, Duration::from_secs_f64(interval), "ttl {ttl}");
        }
    }

    #[test]
    fn renewal_extends_from_its_own_send_not_from_its_answer() {
        let mut term = LeaseTerm::begin(timing(6.0, 1.0, 1.0), at(100.0));
        assert!(term.renewed(at(101.0), at(104.9)));
        assert_eq!(term.deadlines().stop_at, at(106.0));
        assert_eq!(term.renew_at(), at(102.0));
    }

    #[test]
    fn a_renewal_is_due_before_the_stop_deadline_even_with_an_interval_as_long_as_the_ttl() {
        for (interval, due) in [(2.0, 1.8), (1.9, 1.75), (1.0, 1.0)] {
            let term = LeaseTerm::begin(timing(2.0, interval, 10.0), at(100.0));
            let got = term.renew_at().since_boot().as_secs_f64();
            assert!(
                (got - 100.0 - due).abs() < 1e-6,
                "interval {interval}: {got}"
            );
        }
    }

    #[test]
    fn slow_success_after_the_stop_deadline_does_not_undo_the_loss() {
        let mut term = LeaseTerm::begin(timing(6.0, 1.0, 1.0), at(100.0));
        assert!(!term.renewed(at(104.0), at(105.0)));
        assert_eq!(term.loss(at(105.0)), Some(Loss::Expired));
        assert_eq!(term.deadlines().stop_at, at(105.0));
    }

    #[test]
    fn rejection_is_loss_at_once_and_gives_the_full_grace() {
        let mut term = LeaseTerm::begin(timing(6.0, 1.0, 10.0), at(100.0));
        term.rejected(at(101.5));
        assert_eq!(term.loss(at(101.5)), Some(Loss::Rejected));
        let deadlines = term.deadlines();
        assert_eq!(
            (deadlines.stop_at, deadlines.kill_at),
            (at(101.5), at(111.5))
        );
        assert!(
            !term.renewed(at(101.6), at(101.7)),
            "nothing brings it back"
        );
    }

    #[test]
    fn rejection_after_the_stop_deadline_does_not_postpone_the_kill() {
        let mut term = LeaseTerm::begin(timing(6.0, 1.0, 1.0), at(100.0));
        let before = term.deadlines();
        term.rejected(at(105.5));
        assert_eq!(term.deadlines(), before);
        assert_eq!(term.loss(at(105.5)), Some(Loss::Expired));
    }

    #[test]
    fn answers_that_overtake_each_other_do_not_shorten_the_lease() {
        let mut term = LeaseTerm::begin(timing(60.0, 10.0, 10.0), at(100.0));
        assert!(term.renewed(at(120.0), at(121.0)));
        assert!(term.renewed(at(110.0), at(122.0)));
        assert_eq!(term.renew_at(), at(130.0));
    }

    #[test]
    fn batch_gets_what_its_most_urgent_lease_would_get_but_never_next_to_nothing() {
        let table: [(&[f64], f64); 6] = [
            (&[], 10.0),
            (&[60.0, 24.0], 8.0),
            (&[60.0, 9.0], 5.0),
            (&[60.0, 3.0], 3.0),
            (&[60.0, 0.0], 0.5),
            (&[600.0], 10.0),
        ];
        for (lefts, limit) in table {
            let got = batch_limit(lefts.iter().map(|left| Duration::from_secs_f64(*left)));
            assert_eq!(got, Duration::from_secs_f64(limit), "{lefts:?}");
        }
    }

    proptest! {
        #[test]
        fn everything_is_over_before_the_row_can_be_taken(
            ttl in 0.001..1e6_f64,
            interval_share in 0.0..=1.0_f64,
            grace in 0.0..1e6_f64,
            steps in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, any::<bool>()), 0..20),
        ) {
            let timing = timing(ttl, (ttl * interval_share).max(1e-6).min(ttl), grace);
            let mut now = at(1000.0);
            let mut sent = now;
            let mut term = LeaseTerm::begin(timing, sent);
            for (pause, round_trip, answered) in steps {
                let before = term.loss(now);
                now = now.after(timing.ttl.mul_f64(pause));
                let this = now;
                now = now.after(timing.ttl.mul_f64(round_trip));
                if answered && term.renewed(this, now) {
                    sent = this;
                }
                let Deadlines { stop_at, kill_at } = term.deadlines();
                prop_assert!(stop_at <= kill_at);
                // The row expires at the database no earlier than this.
                prop_assert!(kill_at <= sent.after(timing.ttl));
                prop_assert!(stop_at >= sent);
                prop_assert!(before.is_none() || term.loss(now) == before, "a loss is for good");
                prop_assert_eq!(term.loss(now).is_some(), now >= stop_at);
            }
        }

        #[test]
        fn no_time_is_too_long_or_too_short_to_compute_with(
            ttl in any::<Duration>(), interval in any::<Duration>(), grace in any::<Duration>(),
            sent in any::<Duration>(), now in any::<Duration>(),
        ) {
            let timing = LeaseTiming { ttl, interval, kill_grace: grace };
            let mut term = LeaseTerm::begin(timing, BootInstant::from_boot(sent));
            let now = BootInstant::from_boot(now);
            term.rejected(now);
            let _ = (term.deadlines(), term.renew_at(), term.loss(now), batch_limit([ttl].into_iter()));
            let _ = early_by(ttl);
            let _ = LeaseTiming::default_interval(ttl);
        }
    }
}
