//! Which locks an acquisition takes, and when a slot that it asks for ends.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{LockContext, LockStrategy, Settings, SlotSource};
use crate::error::{Error, Result, Setting};
use crate::rules::slot;

/// Which locks are wanted, in the one order there is: schedule, then lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) schedule: bool,
    pub(crate) lease: bool,
}

impl Plan {
    /// Normalises `strategies` and checks that the context has what each of them needs.
    pub(crate) fn new(ctx: &LockContext, strategies: &[LockStrategy]) -> Result<Self> {
        let plan = Self {
            schedule: strategies.contains(&LockStrategy::Schedule),
            lease: strategies.contains(&LockStrategy::Lease),
        };
        if !plan.schedule && !plan.lease {
            return Err(Error::setting_hidden(
                Setting::Strategies,
                "at least one is needed: schedule, lease or both",
            ));
        }
        if plan.schedule && ctx.settings().slot.is_none() {
            return Err(Error::setting_hidden(
                Setting::Schedule,
                "is needed for a schedule lock (or the time of the next run)",
            ));
        }
        Ok(plan)
    }

    pub(crate) fn strategies(self) -> Vec<LockStrategy> {
        [
            self.schedule.then_some(LockStrategy::Schedule),
            self.lease.then_some(LockStrategy::Lease),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Settings {
    /// When the slot ends that contains the database time `now`, tolerance included.
    pub(crate) fn slot_end(&self, zone: &TimeZone, now: Timestamp) -> Result<Timestamp> {
        let tolerance = self.slot_tolerance;
        match &self.slot {
            Some(SlotSource::Crontab(crontab)) => slot::slot_end(crontab, zone, now, tolerance)
                .ok_or_else(|| Error::setting_hidden(Setting::Schedule, "has no further tick")),
            Some(SlotSource::NextRun(at)) => {
                let end = Timestamp::try_from(*at).unwrap_or(Timestamp::MAX);
                if slot::is_over(end, now, tolerance) {
                    let why = format!("has passed: the database's clock says {now}");
                    return Err(Error::setting(Setting::NextRunTime, end.to_string(), why));
                }
                Ok(end)
            }
            None => Err(Error::setting_hidden(
                Setting::Schedule,
                "is needed for a schedule lock",
            )),
        }
    }
}
