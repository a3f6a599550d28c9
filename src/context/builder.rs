//! Collecting and validating the settings of a context.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{DEFAULT_TABLE, LeaseLossPolicy, LockContext, Settings, SlotSource, TableName};
use crate::db::conninfo::Conninfo;
use crate::error::{Error, Result, Setting};
use crate::rules::cron::Crontab;
use crate::rules::lease::LeaseTiming;
use crate::rules::slot;
use crate::zones::zones;

const DEFAULT_TTL: Duration = Duration::from_secs(60);
const DEFAULT_KILL_GRACE: Duration = Duration::from_secs(10);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer times are mistakes, and arithmetic on them would leave the range of a timestamp.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
/// A row's key is indexed, and an index entry has to fit on a third of a page.
const LONGEST_NAME: usize = 1024;

/// Collects the settings of a [`LockContext`]; [`build`](Self::build) validates them all.
///
/// Times may be at most 100 years.
///
/// ```
/// use dislock::LockContext;
///
/// let refused = LockContext::builder("dbname=app", "report").schedule("0 25 * * *").build();
///
/// let error = refused.unwrap_err();
/// assert!(error.is_configuration());
/// assert!(error.to_string().contains("hour"), "{error}");
/// ```
#[must_use]
#[derive(Clone)]
pub struct LockContextBuilder {
    url: String,
    lock_key: String,
    table: String,
    owner: Option<String>,
    next_run_time: Option<SystemTime>,
    schedule: Option<String>,
    timezone: Option<String>,
    slot_tolerance: Duration,
    ttl: Duration,
    heartbeat_interval: Option<Duration>,
    jitter_max: Duration,
    policy: LeaseLossPolicy,
    kill_grace: Duration,
    wait: Duration,
    connect_timeout: Duration,
}

impl LockContextBuilder {
    pub(super) fn new(url: String, lock_key: String) -> Self {
        Self {
            url,
            lock_key,
            table: DEFAULT_TABLE.to_owned(),
            owner: None,
            next_run_time: None,
            schedule: None,
            timezone: None,
            slot_tolerance: Duration::ZERO,
            ttl: DEFAULT_TTL,
            heartbeat_interval: None,
            jitter_max: Duration::ZERO,
            policy: LeaseLossPolicy::Terminate,
            kill_grace: DEFAULT_KILL_GRACE,
            wait: Duration::ZERO,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// The lock table, `table` or `schema.table`. Defaults to `key_value`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The readable part of the row's value, for whoever looks into the table. Defaults to
    /// `hostname:pid`.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// When the slot of a schedule lock ends, if the caller knows it. A schedule lock needs this or a
    /// [`schedule`](Self::schedule); both together are rejected.
    pub fn next_run_time(mut self, at: SystemTime) -> Self {
        self.next_run_time = Some(at);
        self
    }

    /// A crontab expression of five fields, or `@daily` and the like: the slot of a schedule lock ends
    /// at its next tick by the database's clock.
    pub fn schedule(mut self, crontab: impl Into<String>) -> Self {
        self.schedule = Some(crontab.into());
        self
    }

    /// The IANA name of the zone in which the schedule is read. Defaults to the zone of the database
    /// session.
    pub fn timezone(mut self, name: impl Into<String>) -> Self {
        self.timezone = Some(name.into());
        self
    }

    /// How far the clocks of the hosts that fire one tick may lie apart and still share one start.
    /// Defaults to zero.
    pub fn slot_tolerance(mut self, tolerance: Duration) -> Self {
        self.slot_tolerance = tolerance;
        self
    }

    /// How long the lease's row lives in the database after each renewal. Defaults to 60 seconds;
    /// zero is rejected.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// From one renewal to the next. Defaults to 0.3 × TTL, between 1 and 10 seconds and at most
    /// half the TTL; zero and more than the TTL are rejected. Near the TTL nothing is left to
    /// stop a command in: a third of it or less is a good choice.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = Some(interval);
        self
    }

    /// A random delay between zero and this one, which spreads hosts that start together:
    /// `acquire_locks`, `with_locks` and `run_with_locks` wait it out before anything is acquired; the
    /// `acquire` of a single lock or of a plan does not. Defaults to zero.
    pub fn jitter_max(mut self, jitter: Duration) -> Self {
        self.jitter_max = jitter;
        self
    }

    /// What happens when the lease is lost. Defaults to [`LeaseLossPolicy::Terminate`].
    pub fn lease_loss_policy(mut self, policy: LeaseLossPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// From SIGTERM to SIGKILL for a command that has to stop. Defaults to 10 seconds. When a lease
    /// runs out the command gets no more than a third of the TTL of it: it has to be dead before
    /// another host can take the row.
    pub fn kill_grace(mut self, grace: Duration) -> Self {
        self.kill_grace = grace;
        self
    }

    /// How long to wait for a busy lease; [`Duration::MAX`] waits for ever. Its release is noticed at
    /// once (through a connection pooler within about a second), its expiry on time. Which of several
    /// that wait gets it is not defined. A slot that is taken is never waited for: its tick has started.
    /// Defaults to zero.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long to keep trying to reach the database before giving up. An attempt that has begun is seen
    /// through: it gets as long to connect, and as long again for the answer. Defaults to 10 seconds;
    /// zero makes one attempt, with 10 seconds for either.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Validates all of it. Nothing is sent to the database yet.
    ///
    /// # Errors
    ///
    /// [`Error::is_configuration`] for anything that is missing, malformed or out of range.
    pub fn build(self) -> Result<LockContext> {
        self.build_with(&|name| std::env::var_os(name))
    }

    /// [`build`](Self::build) with the `PG*` variables from elsewhere than the environment.
    pub(crate) fn build_with(
        self,
        env: &dyn Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<LockContext> {
        check_name(Setting::LockKey, &self.lock_key)?;
        let owner = self.owner.unwrap_or_else(default_owner);
        check_name(Setting::Owner, &owner)?;
        let table = TableName::parse(&self.table)?;
        let timing = LeaseTiming {
            ttl: self.ttl,
            interval: self
                .heartbeat_interval
                .unwrap_or_else(|| LeaseTiming::default_interval(self.ttl)),
            kill_grace: self.kill_grace,
        };
        check_times(
            &timing,
            &[
                (Setting::JitterMax, self.jitter_max),
                (Setting::KillGrace, self.kill_grace),
                (Setting::SlotTolerance, self.slot_tolerance),
                (Setting::ConnectTimeout, self.connect_timeout),
            ],
        )?;
        let slot = match (self.next_run_time, self.schedule) {
            (Some(_), Some(_)) => {
                return Err(Error::setting_hidden(
                    Setting::NextRunTime,
                    "cannot be given together with a schedule",
                ));
            }
            (Some(at), None) => Some(SlotSource::NextRun(at)),
            (None, Some(text)) => {
                let crontab = Crontab::parse(&text)
                    .map_err(|e| Error::setting(Setting::Schedule, &*text, e.to_string()))?;
                Some(SlotSource::Crontab(crontab))
            }
            (None, None) => None,
        };
        let timezone = self
            .timezone
            .map(|name| {
                slot::named_zone(&name, zones())
                    .map_err(|e| Error::setting(Setting::Timezone, &*name, e.to_string()))
            })
            .transpose()?;
        let mut conninfo = Conninfo::resolve(&self.url, env)
            .map_err(|e| Error::setting_hidden(Setting::Url, e.to_string()))?;
        conninfo.set_default_application_name(format!("dislock:{}", self.lock_key));
        Ok(LockContext {
            settings: Arc::new(Settings {
                conninfo,
                table,
                lock_key: self.lock_key,
                owner,
                slot,
                timezone,
                slot_tolerance: self.slot_tolerance,
                timing,
                jitter_max: self.jitter_max,
                policy: self.policy,
                wait: self.wait,
                connect_timeout: self.connect_timeout,
            }),
        })
    }
}

impl fmt::Debug for LockContextBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockContextBuilder")
            .field("url", &"<redacted>")
            .field("lock_key", &self.lock_key)
            .finish_non_exhaustive()
    }
}

/// `hostname:pid`; a host without a readable name is called `localhost`.
fn default_owner() -> String {
    let host = hostname::get().map_or_else(
        |_| "localhost".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    format!("{host}:{}", std::process::id())
}

fn check_name(setting: Setting, name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "must not be empty"
    } else if name.contains('\0') {
        "must not contain a NUL character"
    } else if name.len() > LONGEST_NAME {
        "must not be longer than 1024 bytes"
    } else {
        return Ok(());
    };
    Err(Error::setting(setting, name, why))
}

fn check_times(timing: &LeaseTiming, others: &[(Setting, Duration)]) -> Result<()> {
    let refuse =
        |setting, got: Duration, why: &str| Err(Error::setting(setting, format!("{got:?}"), why));
    // Anything shorter than the resolution of a timestamp in the database is nothing there.
    if timing.ttl < Duration::from_micros(1) {
        return refuse(Setting::Ttl, timing.ttl, "must be greater than zero");
    }
    if timing.interval.is_zero() {
        return refuse(
            Setting::HeartbeatInterval,
            timing.interval,
            "must be greater than zero",
        );
    }
    if timing.interval > timing.ttl {
        return refuse(
            Setting::HeartbeatInterval,
            timing.interval,
            &format!("must be at most the TTL, which is {:?}", timing.ttl),
        );
    }
    let ttl = [(Setting::Ttl, timing.ttl)];
    match ttl.iter().chain(others).find(|(_, d)| *d > LONGEST) {
        Some((setting, got)) => refuse(*setting, *got, "must be at most 100 years"),
        None => Ok(()),
    }
}
