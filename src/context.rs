//! What is locked, how, and for how long: validated once, before anything is sent anywhere.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::db::conninfo::Conninfo;
use crate::error::{Error, Kind, Result, Setting};
use crate::rules::cron::Crontab;
use crate::rules::lease::{LeaseTiming, Loss};
use crate::rules::slot;

/// The table when none is named.
pub(crate) const DEFAULT_TABLE: &str = "key_value";
const DEFAULT_TTL: Duration = Duration::from_secs(60);
const DEFAULT_KILL_GRACE: Duration = Duration::from_secs(10);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer times are mistakes, and arithmetic on them would leave the range of a timestamp.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
/// A row's key is indexed, and an index entry has to fit on a third of a page.
const LONGEST_NAME: usize = 1024;
/// PostgreSQL cuts longer identifiers off, silently.
const LONGEST_IDENTIFIER: usize = 63;
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

/// A table's name as it stands in SQL, quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    sql: String,
    plain: String,
}

impl TableName {
    fn parse(name: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Error::setting(
                Setting::Table,
                name,
                format!("{why}; allowed is `table` or `schema.table`"),
            )
        };
        let parts: Vec<&str> = name.split('.').collect();
        if parts.len() > 2 {
            return Err(refuse("has more than two parts"));
        }
        if parts.iter().any(|part| part.trim().is_empty()) {
            return Err(refuse("has an empty part"));
        }
        if name.contains('\0') {
            return Err(refuse("contains a NUL character"));
        }
        if parts.iter().any(|part| part.len() > LONGEST_IDENTIFIER) {
            return Err(refuse("has a part of more than 63 bytes"));
        }
        let quoted: Vec<String> = parts
            .iter()
            .map(|part| format!("\"{}\"", part.replace('"', "\"\"")))
            .collect();
        Ok(Self {
            sql: quoted.join("."),
            plain: name.to_owned(),
        })
    }

    /// Quoted, to be put into a statement.
    pub(crate) fn sql(&self) -> &str {
        &self.sql
    }

    /// The schema, if one was named.
    #[cfg(all(feature = "cli", target_os = "linux"))]
    pub(crate) fn schema(&self) -> Option<&str> {
        self.plain.split_once('.').map(|(schema, _)| schema)
    }

    /// Without the schema.
    #[cfg(all(feature = "cli", target_os = "linux"))]
    pub(crate) fn name(&self) -> &str {
        self.plain
            .split_once('.')
            .map_or(&*self.plain, |(_, name)| name)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain)
    }
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

    /// What a loss means under the policy: an error, or a line in the log.
    pub(crate) fn lease_lost(&self, loss: Loss) -> Result<()> {
        let error = Error::from(Kind::LeaseLost {
            key: self.lease_key(),
            reason: match loss {
                Loss::Expired => "it could not be renewed in time".to_owned(),
                Loss::Rejected => "its row is gone or somebody else's".to_owned(),
            },
        });
        match self.lease_loss_policy() {
            LeaseLossPolicy::Terminate => Err(error),
            LeaseLossPolicy::Continue => {
                log::warn!("{error}");
                Ok(())
            }
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
            .field("table", &s.table.plain)
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

/// Collects the settings of a [`LockContext`]; [`build`](Self::build) validates them all.
///
/// Times may be at most 100 years.
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
    fn new(url: String, lock_key: String) -> Self {
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

    /// When the slot of a schedule lock ends, if the caller knows it. A schedule lock needs either
    /// this or a [`schedule`](Self::schedule).
    pub fn next_run_time(mut self, at: SystemTime) -> Self {
        self.next_run_time = Some(at);
        self
    }

    /// A crontab expression: the slot of a schedule lock ends at its next tick by the database's
    /// clock.
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

    /// Before anything is acquired, a random delay between zero and this one spreads hosts that
    /// start together. Defaults to zero.
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
    /// once, its expiry on time. Which of several that wait gets it is not defined. A slot that is
    /// taken is never waited for: its tick has started. Defaults to zero.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long to keep trying to reach the database before giving up. Defaults to 10 seconds; zero
    /// makes one attempt of up to 10 seconds.
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
                    .map_err(|e| Error::setting_hidden(Setting::Schedule, e.to_string()))?;
                Some(SlotSource::Crontab(crontab))
            }
            (None, None) => None,
        };
        let timezone = self
            .timezone
            .map(|name| {
                slot::named_zone(&name, jiff::tz::db())
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const URL: &str = "postgresql://app:hunter2@db.example/app";

    fn build(builder: LockContextBuilder) -> Result<LockContext> {
        builder.build_with(&|_| None)
    }

    fn refusal(builder: LockContextBuilder) -> String {
        let error = build(builder).unwrap_err();
        assert!(error.is_configuration());
        error.to_string()
    }

    #[test]
    fn public_types_can_go_to_other_threads() {
        fn check<T: Send + Sync>() {}
        check::<LockContext>();
        check::<crate::LockSession>();
        check::<crate::LeaseLock>();
        check::<crate::ScheduleLock>();
        check::<crate::LeaseLost>();
        check::<crate::LockPlan>();
        check::<Error>();
    }

    #[test]
    fn table_names_are_quoted_as_identifiers() {
        let table = [
            ("key_value", r#""key_value""#),
            ("ops.locks", r#""ops"."locks""#),
            (r#"a"b"#, r#""a""b""#),
            ("x; DROP TABLE y", r#""x; DROP TABLE y""#),
        ];
        for (name, sql) in table {
            assert_eq!(TableName::parse(name).unwrap().sql(), sql);
        }
    }

    #[test]
    fn malformed_table_names_are_refused_by_name() {
        let long = "t".repeat(64);
        for name in [
            "", ".", "a..b", ".t", "t.", "a.b.c", " ", "a. ", "nul\0", &long,
        ] {
            let message = refusal(LockContext::builder(URL, "k").table(name));
            assert!(
                message.starts_with(&format!("table name {name:?}: ")),
                "{message}"
            );
        }
    }

    #[test]
    fn lock_keys_and_owners_must_fit_into_a_row() {
        let long = "k".repeat(1025);
        for name in ["", "a\0b", &long] {
            let message = refusal(LockContext::builder(URL, name));
            assert!(message.starts_with("lock key "), "{message}");
            let message = refusal(LockContext::builder(URL, "k").owner(name));
            assert!(message.starts_with("owner "), "{message}");
        }
    }

    #[test]
    fn unsafe_times_are_refused_when_the_context_is_built() {
        let seconds = Duration::from_secs;
        let builder = || LockContext::builder(URL, "k");
        let table = [
            (builder().ttl(Duration::ZERO), "TTL"),
            (builder().ttl(Duration::from_nanos(999)), "TTL"),
            (builder().ttl(Duration::MAX), "TTL"),
            (
                builder().heartbeat_interval(Duration::ZERO),
                "heartbeat interval",
            ),
            (
                builder().heartbeat_interval(seconds(61)),
                "heartbeat interval",
            ),
            (builder().jitter_max(Duration::MAX), "jitter"),
            (builder().kill_grace(Duration::MAX), "kill grace"),
            (builder().slot_tolerance(Duration::MAX), "slot tolerance"),
            (builder().connect_timeout(Duration::MAX), "connect timeout"),
        ];
        for (builder, name) in table {
            let message = refusal(builder);
            assert!(message.starts_with(name), "{message}");
        }
        assert!(build(builder().heartbeat_interval(seconds(60))).is_ok());
        assert!(build(builder().wait(Duration::MAX)).is_ok(), "for ever");
    }

    #[test]
    fn schedules_and_zones_are_checked_before_anything_is_sent() {
        let builder = || LockContext::builder(URL, "k");
        let message = refusal(builder().schedule("61 * * * *"));
        assert!(message.starts_with("schedule: "), "{message}");
        let message = refusal(builder().timezone("Mars/Olympus"));
        assert!(message.contains("Mars/Olympus"), "{message}");
        let both = builder()
            .schedule("@daily")
            .next_run_time(SystemTime::UNIX_EPOCH);
        assert!(refusal(both).starts_with("next run time: "));
        let missing = crate::build_locks(&build(builder()).unwrap(), &[LockStrategy::Schedule]);
        assert!(missing.unwrap_err().is_configuration());
        let none = crate::build_locks(&build(builder()).unwrap(), &[]);
        assert!(none.unwrap_err().is_configuration());
    }

    #[test]
    fn strategies_come_in_one_order_whatever_order_they_are_given_in() {
        let ctx = build(LockContext::builder(URL, "k").schedule("@daily")).unwrap();
        use LockStrategy::{Lease, Schedule};
        for given in [[Lease, Schedule], [Schedule, Lease]] {
            let plan = crate::build_locks(&ctx, &given).unwrap();
            assert_eq!(plan.strategies(), [Schedule, Lease]);
        }
        let plan = crate::build_locks(&ctx, &[Lease, Lease]).unwrap();
        assert_eq!(plan.strategies(), [Lease]);
    }

    #[test]
    fn the_password_is_not_in_any_debug_form() {
        let builder = LockContext::builder(URL, "k");
        let shown = format!("{builder:?} {:?}", build(builder.clone()).unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
        let wrong = LockContext::builder("postgresql://app:hunter2@db:99999/app", "k");
        let error = build(wrong).unwrap_err();
        let shown = format!("{error} {error:?} {error:#}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.starts_with("connection string: "), "{shown}");
    }

    proptest! {
        #[test]
        fn no_input_panics(
            url in ".*", key in ".*", table in ".*", owner in ".*", zone in ".*",
            schedule in ".*", ttl in any::<Duration>(), interval in any::<Duration>(),
            grace in any::<Duration>(), wait in any::<Duration>(),
        ) {
            let builder = LockContext::builder(url, key)
                .table(table)
                .owner(owner)
                .timezone(zone)
                .schedule(schedule)
                .ttl(ttl)
                .heartbeat_interval(interval)
                .kill_grace(grace)
                .wait(wait);
            if let Err(error) = build(builder) {
                prop_assert!(error.is_configuration());
            }
        }
    }
}
