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

impl Loss {
    /// As messages and the log say it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Expired => "it could not be renewed in time",
            Self::Rejected => "its row is gone or somebody else's",
            Self::Inherited => "the process that this one was forked from has it",
        }
    }
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

/// How long one attempt to renew leases may take when `lefts` remain of them, and of those whose turn
/// comes next: a third of the shortest, so that one connection that went silent leaves time for others,
/// within bounds. A lease that is about to end does not leave the others next to nothing.
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
mod tests;
