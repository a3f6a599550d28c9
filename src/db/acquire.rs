//! Taking the rows of a lock: connect, ask for the slot's end, insert, and what to do about every
//! answer.
//!
//! A failure that may pass is retried, over a new connection, until the database has been out of
//! reach for the connect timeout; a retry is safe because the value carries a nonce by which the
//! statement recognises a row that an earlier, unanswered attempt has written. A statement whose
//! answer never came leaves the acquisition *in doubt*: it may have written rows, so they are given
//! back before the attempt is reported as failed.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::{Instant, sleep};

use super::connect::{Connection, connect};
use super::failure::{Failure, answer_by};
use super::store::{Acquisition, Claim, Claimant, Holder, LeaseRow, SlotRow, Store};
use super::timestamp::{RowTime, system_time};
use crate::clock::BootInstant;
use crate::context::{LockContext, LockStrategy, Settings, SlotSource};
use crate::error::{Busy, Error, Kind, Result, Setting};
use crate::rules::retry::{Backoff, FailureClass, wait_pause};
use crate::rules::slot;

/// For one attempt to reach the database when no time to keep trying was granted.
const SINGLE_ATTEMPT: Duration = Duration::from_secs(10);
/// For giving rows back that an abandoned statement may have written.
const GIVE_BACK: Duration = Duration::from_secs(2);

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

/// The rows that were taken, and the connection that took them.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) connection: Option<Connection>,
    /// When the slot ends, if one was asked for.
    pub(crate) slot_until: Option<RowTime>,
    /// When the lease's row expires, if one was asked for.
    pub(crate) lease_until: Option<RowTime>,
    /// The instant just before the statement that took the lease was sent.
    pub(crate) sent: BootInstant,
    /// Larger than that of every earlier acquisition of this lock.
    pub(crate) token: i64,
}

/// One acquisition of the planned rows, under one value.
#[derive(Debug)]
pub(crate) struct Acquirer<'a> {
    ctx: &'a LockContext,
    store: Store,
    plan: Plan,
    value: &'a str,
    connection: Option<Connection>,
    /// The end of the slot that is asked for, once it is known.
    slot_end: Option<Timestamp>,
    /// In which the schedule is read, once it is known.
    zone: Option<TimeZone>,
    /// Once the slot is ours it stays so, however long the lease keeps us waiting.
    slot_until: Option<RowTime>,
    /// A statement was sent whose answer has not come.
    in_doubt: bool,
}

/// What the database said.
enum Answer {
    Acquired {
        lease_until: Option<RowTime>,
        sent: BootInstant,
        token: i64,
    },
    /// The slot ended before its row could be written.
    SlotOver,
    SlotBusy(Busy),
    /// With the time left until the row expires, by the database's clock.
    LeaseBusy(Busy, Option<Duration>),
}

impl<'a> Acquirer<'a> {
    pub(crate) fn new(ctx: &'a LockContext, plan: Plan, value: &'a str) -> Self {
        let settings = ctx.settings();
        Self {
            ctx,
            store: Store::new(&settings.table),
            plan,
            value,
            connection: None,
            slot_end: None,
            zone: settings.timezone.clone(),
            slot_until: None,
            in_doubt: false,
        }
    }

    /// Takes the rows, waiting for a busy lease as long as the context says. When it fails, what it
    /// has or may have taken is given back.
    pub(crate) async fn run(&mut self) -> Result<Acquired> {
        let outcome = self.acquire_or_wait().await;
        if outcome.is_err() {
            self.abandon().await;
        }
        outcome
    }

    /// Gives back what was taken, or may have been, so far. Bounded.
    pub(crate) async fn abandon(&mut self) {
        let connection = self.connection.take();
        if !self.in_doubt && self.slot_until.is_none() {
            return;
        }
        if let Some(connection) = connection.filter(|_| self.in_doubt) {
            connection.cancel();
        }
        let keys = [self.ctx.schedule_key(), self.ctx.lease_key()];
        if let Err(error) = expire(self.ctx, &keys, self.value, GIVE_BACK).await {
            log::warn!("could not give back what may have been locked: {error:#}");
        }
    }

    async fn acquire_or_wait(&mut self) -> Result<Acquired> {
        let settings = self.ctx.settings();
        let started = Instant::now();
        let wait_until = started.checked_add(settings.wait);
        let mut retry_until = Some(started + settings.connect_timeout);
        loop {
            match self.ask(retry_until).await? {
                Answer::Acquired {
                    lease_until,
                    sent,
                    token,
                } => {
                    return Ok(Acquired {
                        connection: self.connection.take(),
                        slot_until: self.slot_until,
                        lease_until,
                        sent,
                        token,
                    });
                }
                Answer::SlotOver => {}
                Answer::SlotBusy(busy) => return Err(Kind::NotAcquired(busy).into()),
                Answer::LeaseBusy(busy, expires_in) => {
                    let left = left(wait_until);
                    let Some(pause) = wait_pause(left, expires_in, rand::random()) else {
                        return Err(Kind::NotAcquired(busy).into());
                    };
                    log::debug!("{}, waiting", Error::from(Kind::NotAcquired(busy)));
                    sleep(pause).await;
                    // A wait that has begun does not end because the database is out of reach.
                    retry_until = wait_until.map(|until| until.max(Instant::now()));
                }
            }
        }
    }

    /// Asks until there is an answer; failures that may pass are retried until `retry_until`.
    async fn ask(&mut self, retry_until: Option<Instant>) -> Result<Answer> {
        let settings = self.ctx.settings();
        let attempt_limit = match settings.connect_timeout {
            Duration::ZERO => SINGLE_ATTEMPT,
            limit => limit,
        };
        let mut backoff = Backoff::default();
        loop {
            let by = Instant::now() + attempt_limit;
            let failure = match self.attempt(by).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if self.in_doubt {
                if let Some(connection) = &self.connection {
                    connection.cancel();
                }
            }
            self.connection = None;
            let pause = match failure.class() {
                FailureClass::Passing => backoff.pause(left(retry_until), rand::random()),
                FailureClass::Permanent => None,
            };
            let Some(pause) = pause else {
                return Err(failure.into_error(self.ctx, "cannot acquire the lock"));
            };
            log::debug!(
                "retrying in {pause:?}: {:#}",
                failure.into_error(self.ctx, "cannot acquire the lock")
            );
            sleep(pause).await;
        }
    }

    /// One attempt, over the connection there is or a new one. It may be dropped at any point:
    /// `in_doubt` then says whether a statement was on its way.
    async fn attempt(&mut self, by: Instant) -> Result<Answer, Failure> {
        let settings = self.ctx.settings();
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&settings.conninfo, by).await?),
        };
        let client = connection.client();
        let slot = if self.plan.schedule && self.slot_until.is_none() {
            let end = match self.slot_end {
                Some(end) => end,
                None => {
                    let clock = answer_by(by, self.store.clock(client)).await?;
                    let zone = match self.zone.take() {
                        Some(zone) => zone,
                        None => slot::session_zone(&clock.zone, clock.utc_offset, jiff::tz::db())
                            .map_err(|e| Error::database(e.to_string()))?,
                    };
                    let end = slot_end(settings, self.zone.insert(zone), clock.now)?;
                    *self.slot_end.insert(end)
                }
            };
            Some(SlotRow {
                key: self.ctx.schedule_key(),
                end,
                tolerance: settings.slot_tolerance,
            })
        } else {
            None
        };
        let lease = self.plan.lease.then(|| LeaseRow {
            key: self.ctx.lease_key(),
            ttl: settings.timing.ttl,
        });
        let fence_key = self.ctx.fence_key();
        let claimant = Claimant {
            value: self.value,
            fence_key: &fence_key,
        };
        // Read the clock, then act: the row's expiry is never earlier than this instant plus the TTL.
        let sent = BootInstant::now();
        self.in_doubt = true;
        let statement = self
            .store
            .acquire(client, claimant, slot.as_ref(), lease.as_ref());
        let answer = answer_by(by, statement).await;
        self.in_doubt = answer
            .as_ref()
            .is_err_and(|failure| !failure.is_an_answer());
        let Acquisition {
            now,
            slot: slot_claim,
            lease: lease_claim,
            token,
        } = answer?;
        match (slot, slot_claim) {
            (Some(row), Some(Claim::Refused(_))) if slot::is_over(row.end, now, row.tolerance) => {
                // The statement's own clock says which slot it is now.
                let zone = self.zone.clone().unwrap_or(TimeZone::UTC);
                self.slot_end = Some(slot_end(settings, &zone, now)?);
                return Ok(Answer::SlotOver);
            }
            (Some(row), Some(Claim::Refused(holder))) => {
                return Ok(Answer::SlotBusy(
                    busy(&self.store, client, by, row.key, holder).await?,
                ));
            }
            (_, Some(Claim::Taken(until))) => self.slot_until = Some(until),
            (None, _) | (Some(_), None) => {}
        }
        let lease_until = match (lease, lease_claim) {
            (Some(row), Some(Claim::Refused(holder))) => {
                let busy = busy(&self.store, client, by, row.key, holder).await?;
                let expires_in = busy
                    .until
                    .and_then(|until| until.duration_since(system_time(now)).ok());
                return Ok(Answer::LeaseBusy(busy, expires_in));
            }
            (_, Some(Claim::Taken(until))) => Some(until),
            (None, _) | (Some(_), None) => None,
        };
        Ok(Answer::Acquired {
            lease_until,
            sent,
            token: token.ok_or_else(|| Error::database("the database gave no fencing token"))?,
        })
    }
}

/// When the slot ends that contains the database time `now`, tolerance included.
fn slot_end(settings: &Settings, zone: &TimeZone, now: Timestamp) -> Result<Timestamp, Failure> {
    let tolerance = settings.slot_tolerance;
    match &settings.slot {
        Some(SlotSource::Crontab(crontab)) => slot::slot_end(crontab, zone, now, tolerance)
            .ok_or_else(|| Error::setting_hidden(Setting::Schedule, "has no further tick").into()),
        Some(SlotSource::NextRun(at)) => {
            let end = Timestamp::try_from(*at).unwrap_or(Timestamp::MAX);
            if slot::is_over(end, now, tolerance) {
                let why = format!("has passed: the database's clock says {now}");
                return Err(Error::setting(Setting::NextRunTime, end.to_string(), why).into());
            }
            Ok(end)
        }
        None => {
            Err(Error::setting_hidden(Setting::Schedule, "is needed for a schedule lock").into())
        }
    }
}

/// Who has the row `key`, looked up when the statement that was refused could not see it.
async fn busy(
    store: &Store,
    client: &tokio_postgres::Client,
    by: Instant,
    key: String,
    holder: Option<Holder>,
) -> Result<Busy, Failure> {
    let holder = match holder {
        Some(holder) => Some(holder),
        None => answer_by(by, store.read(client, &key)).await?,
    };
    Ok(Busy {
        key,
        until: holder.as_ref().and_then(|h| h.expire_at.system_time()),
        holder: holder.map(|h| h.value),
    })
}

/// Ends those rows among `keys` that carry `value`, over a connection of its own, so that whatever
/// became of another connection cannot spoil it. Answers how many rows were ended.
pub(crate) async fn expire(
    ctx: &LockContext,
    keys: &[String],
    value: &str,
    limit: Duration,
) -> Result<usize> {
    let by = Instant::now() + limit;
    let settings = ctx.settings();
    let store = Store::new(&settings.table);
    let expiry = async {
        let connection = connect(&settings.conninfo, by).await?;
        let ended = answer_by(by, store.expire(connection.client(), keys, value)).await?;
        connection.close().await;
        Ok(ended)
    };
    expiry
        .await
        .map_err(|failure: Failure| failure.into_error(ctx, "cannot release the lock"))
}

fn left(until: Option<Instant>) -> Duration {
    until.map_or(Duration::MAX, |until| {
        until.saturating_duration_since(Instant::now())
    })
}
