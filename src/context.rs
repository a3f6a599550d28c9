//! What is locked, how, and for how long: validated once, before anything is sent anywhere.

mod builder;
mod plan;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use self::builder::LockContextBuilder;
pub(crate) use self::plan::Plan;
pub(crate) use self::table::TableName;
#[cfg(all(feature = "cli", target_os = "linux"))]
pub(crate) use self::table::identifier;
use crate::db::conninfo::Conninfo;
use crate::error::{Error, Kind, Result};
use crate::rules::cron::Crontab;
use crate::rules::lease::{LeaseTiming, Loss};

/// The table when none is named.
pub(crate) const DEFAULT_TABLE: &str = "key_value";
/// What the keys of the rows of a slot, of a lease, and of the count of acquisitions begin with.
pub(crate) const SCHEDULE_PREFIX: &str = "cronjob-lock:schedule:";
pub(crate) const LEASE_PREFIX: &str = "cronjob-lock:lease:";
pub(crate) const FENCE_PREFIX: &str = "cronjob-lock:fence:";

/// A way of locking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockStrategy {
    /// One row per slot of a schedule: at most one start per tick.
    Schedule,
    /// One row with a TTL, renewed while the work goes on: no two runs at once.
    Lease,
}

/// What happens to the work when its lease is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseLossPolicy {
    /// A command is stopped before another host can take the lease; a guarded block is reported as
    /// failed.
    #[default]
    Terminate,
    /// The loss is only logged.
    Continue,
}

/// The end of a schedule slot: given by the caller, or computed from a crontab expression.
#[derive(Clone, Debug)]
pub(crate) enum SlotSource {
    /// The caller knows when the slot ends.
    NextRun(SystemTime),
    /// The next tick of this expression by the database's clock.
    Crontab(Crontab),
}

/// Everything that a lock needs to know, validated; cheap to clone.
///
/// Made by [`LockContext::builder`]. Its `Debug` form does not show the database's URL.
///
/// ```
/// use std::time::Duration;
/// use dislock::LockContext;
///
/// let ctx = LockContext::builder("postgresql://app:secret@db/app", "importer")
///     .ttl(Duration::from_secs(120))
///     .wait(Duration::from_secs(30))
///     .build()?;
///
/// assert_eq!(ctx.heartbeat_interval(), Duration::from_secs(10));
/// assert!(!format!("{ctx:?}").contains("secret"));
/// # Ok::<(), dislock::Error>(())
/// ```
#[derive(Clone)]
pub struct LockContext {
    settings: Arc<Settings>,
}

pub(crate) struct Settings {
    pub(crate) conninfo: Conninfo,
    pub(crate) table: TableName,
    pub(crate) lock_key: String,
    pub(crate) owner: String,
    pub(crate) slot: Option<SlotSource>,
    /// In which the crontab expression is read; the database session's when `None`.
    pub(crate) timezone: Option<jiff::tz::TimeZone>,
    pub(crate) slot_tolerance: Duration,
    pub(crate) timing: LeaseTiming,
    pub(crate) jitter_max: Duration,
    pub(crate) policy: LeaseLossPolicy,
    /// `Duration::MAX` waits for ever.
    pub(crate) wait: Duration,
    pub(crate) connect_timeout: Duration,
}

impl LockContext {
    /// Starts a context for the lock `lock_key` in the database at `url`, a connection URL or
    /// `key=value` string as libpq takes it.
    pub fn builder(url: impl Into<String>, lock_key: impl Into<String>) -> LockContextBuilder {
        LockContextBuilder::new(url.into(), lock_key.into())
    }

    /// The name of the lock.
    pub fn lock_key(&self) -> &str {
        &self.settings.lock_key
    }

    /// The readable part of a row's value; `hostname:pid` unless set.
    pub fn owner(&self) -> &str {
        &self.settings.owner
    }

    /// How long the lease's row lives after each renewal.
    pub fn ttl(&self) -> Duration {
        self.settings.timing.ttl
    }

    /// From one renewal of the lease to the next.
    pub fn heartbeat_interval(&self) -> Duration {
        self.settings.timing.interval
    }

    /// What happens when the lease is lost.
    pub fn lease_loss_policy(&self) -> LeaseLossPolicy {
        self.settings.policy
    }

    /// The key of the row that holds a slot of the schedule.
    pub(crate) fn schedule_key(&self) -> String {
        format!("{SCHEDULE_PREFIX}{}", self.settings.lock_key)
    }

    /// The key of the row that holds the lease.
    pub(crate) fn lease_key(&self) -> String {
        format!("{LEASE_PREFIX}{}", self.settings.lock_key)
    }

    /// The key of the row that counts acquisitions.
    pub(crate) fn fence_key(&self) -> String {
        format!("{FENCE_PREFIX}{}", self.settings.lock_key)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a loss means to whoever asks whether the lease is still held: an error, or nothing under the
    /// policy to go on.
    pub(crate) fn check_loss(&self, loss: Option<Loss>) -> Result<()> {
        match (loss, self.lease_loss_policy()) {
            (Some(loss), LeaseLossPolicy::Terminate) => Err(Error::from(Kind::LeaseLost {
                key: self.lease_key(),
                reason: loss.reason().to_owned(),
            })),
            (Some(_), LeaseLossPolicy::Continue) | (None, _) => Ok(()),
        }
    }

    /// Whether the rows of both are in the same table, reached in the same way. What a connection is
    /// called does not matter.
    pub(crate) fn has_same_table(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.settings(), other.settings());
        mine.table == theirs.table && mine.conninfo.is_like(&theirs.conninfo)
    }
}

impl fmt::Debug for LockContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.settings();
        f.debug_struct("LockContext")
            .field("database", &s.conninfo.describe())
            .field("table", &s.table.to_string())
            .field("lock_key", &s.lock_key)
            .field("owner", &s.owner)
            .field("slot", &s.slot)
            .field("slot_tolerance", &s.slot_tolerance)
            .field("timing", &s.timing)
            .field("jitter_max", &s.jitter_max)
            .field("lease_loss_policy", &s.policy)
            .field("wait", &s.wait)
            .field("connect_timeout", &s.connect_timeout)
            .finish_non_exhaustive()
    }
}
