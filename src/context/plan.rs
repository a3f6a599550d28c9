//! Which locks an acquisition takes, and when a slot that it asks for ends.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{LockContext, LockStrategy, Settings, SlotSource};
use crate::error::{Error, Result, Setting};
use crate::rules::slot::{self, Candidates};

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
    /// In which zone the schedule is read, if that is known; the time of the next run is in none.
    pub(crate) fn slot_zone(&self) -> Option<TimeZone> {
        match self.slot {
            Some(SlotSource::NextRun(_)) => Some(TimeZone::UTC),
            Some(SlotSource::Crontab(_)) | None => self.timezone.clone(),
        }
    }

    /// The ends of the slots that contain the present moment, if the database's clock is near ours,
    /// which says `about_now`.
    pub(crate) fn slot_candidates(
        &self,
        zone: &TimeZone,
        about_now: Timestamp,
    ) -> Result<Candidates> {
        match &self.slot {
            Some(SlotSource::Crontab(crontab)) => {
                slot::candidates(crontab, zone, about_now, self.slot_tolerance).ok_or_else(no_tick)
            }
            Some(SlotSource::NextRun(at)) => Ok(Candidates::only(timestamp(*at))),
            None => Err(no_schedule()),
        }
    }

    /// When the slot ends that contains the database time `now`, tolerance included.
    pub(crate) fn slot_end(&self, zone: &TimeZone, now: Timestamp) -> Result<Timestamp> {
        let tolerance = self.slot_tolerance;
        match &self.slot {
            Some(SlotSource::Crontab(crontab)) => {
                slot::slot_end(crontab, zone, now, tolerance).ok_or_else(no_tick)
            }
            Some(SlotSource::NextRun(at)) => {
                let end = timestamp(*at);
                if slot::is_over(end, now, tolerance) {
                    let why = format!("has passed: the database's clock says {now}");
                    return Err(Error::setting(Setting::NextRunTime, end.to_string(), why));
                }
                Ok(end)
            }
            None => Err(no_schedule()),
        }
    }
}

fn timestamp(next_run: SystemTime) -> Timestamp {
    Timestamp::try_from(next_run).unwrap_or(Timestamp::MAX)
}

fn no_tick() -> Error {
    Error::setting_hidden(Setting::Schedule, "has no further tick")
}

fn no_schedule() -> Error {
    Error::setting_hidden(Setting::Schedule, "is needed for a schedule lock")
}
