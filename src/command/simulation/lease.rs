//! The lease of a simulated holder: the product's own `LeaseState`, read by the host's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::flaw::Flaw;
use crate::clock::{BootInstant, standing_at};
use crate::lease::LeaseState;
use crate::rules::lease::{Deadlines, LeaseTerm, LeaseTiming, Loss};

/// Without a flaw every method does what its namesake in `LeaseState` does, and nothing else.
pub(super) struct Lease {
    state: LeaseState,
    changed: Arc<AtomicBool>,
    timing: LeaseTiming,
    flaw: Option<Flaw>,
}

impl Lease {
    pub(super) fn begin(
        timing: LeaseTiming,
        sent: BootInstant,
        now: BootInstant,
        flaw: Option<Flaw>,
    ) -> Self {
        let from = match flaw {
            Some(Flaw::DeadlineCountsFromTheAnswer) => now,
            _ => sent,
        };
        let changed = Arc::new(AtomicBool::new(true));
        Self {
            state: state(timing, from, &changed),
            changed,
            timing,
            flaw,
        }
    }

    pub(super) fn renewed(&mut self, sent: BootInstant, now: BootInstant) -> bool {
        match self.flaw {
            Some(Flaw::DeadlineCountsFromTheAnswer) => self.renewed_at(now, now),
            Some(Flaw::LateAnswerCounts) if self.loss(now).is_some() => {
                self.state = state(self.timing, sent, &self.changed);
                true
            }
            _ => self.renewed_at(sent, now),
        }
    }

    fn renewed_at(&self, sent: BootInstant, now: BootInstant) -> bool {
        standing_at(now, || self.state.renewed(sent))
    }

    pub(super) fn rejected(&self, now: BootInstant) {
        if self.flaw != Some(Flaw::RejectionIsRetried) {
            standing_at(now, || self.state.rejected());
        }
    }

    pub(super) fn loss(&self, now: BootInstant) -> Option<Loss> {
        let now = match self.flaw {
            Some(Flaw::LossIsNoticedLate) => now.before(self.tenth()),
            _ => now,
        };
        standing_at(now, || self.state.loss())
    }

    pub(super) fn deadlines(&self) -> Deadlines {
        let deadlines = self.state.deadlines();
        match self.flaw {
            Some(Flaw::KillComesAfterTheExpiry) => Deadlines {
                kill_at: deadlines.kill_at.after(self.tenth()),
                ..deadlines
            },
            Some(Flaw::LossIsNoticedLate) => Deadlines {
                stop_at: deadlines.stop_at.after(self.tenth()),
                ..deadlines
            },
            _ => deadlines,
        }
    }

    pub(super) fn renew_at(&self) -> BootInstant {
        self.state.renew_at()
    }

    pub(super) fn end(&self, now: BootInstant) -> Option<Loss> {
        standing_at(now, || self.state.end())
    }

    /// Whether its supervisor was told anything since the last call.
    pub(super) fn take_change(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    fn tenth(&self) -> Duration {
        self.timing.ttl / 10
    }
}

fn state(timing: LeaseTiming, sent: BootInstant, changed: &Arc<AtomicBool>) -> LeaseState {
    let state = LeaseState::new("job", "owner".into(), LeaseTerm::begin(timing, sent));
    let changed = Arc::clone(changed);
    state.supervise(move || changed.store(true, Ordering::Relaxed));
    state
}
