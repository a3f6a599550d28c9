//! Taking the rows of a lock: attempts, retries, waiting for a busy lease, and giving back.
//!
//! A failure that may pass is retried until the database has been out of
//! reach for the connect timeout; a retry is safe because the value carries a nonce by which the
//! statement recognises a row that an earlier, unanswered attempt has written. A statement whose
//! answer never came leaves the acquisition *in doubt*: it may have written rows, so they are given
//! back before the attempt is reported as failed.
//!
//! Such a statement may still be on its way, on a network that is silent. What gives its rows back is
//! sent after it over the same connection, so that it is done after it whenever they arrive. That cannot
//! be for an attempt that was followed by another one, over a new connection: if the first one arrives
//! when all is over, its row stays until its TTL is.

mod attempt;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};

use self::attempt::{Answer, expires_in};
use super::failure::Failure;
use super::keeper::Keeper;
use super::listeners::Subscription;
use super::shared::SharedConnection;
use super::store::{OwnRow, Touched};
use super::timestamp::RowTime;
use crate::clock::BootInstant;
use crate::context::{LockContext, Plan};
use crate::error::{Busy, Error, Kind, Result};
use crate::random;
use crate::rules::retry::{Backoff, FailureClass, wait_pause};

/// For one attempt to reach the database when no time to keep trying was granted.
const SINGLE_ATTEMPT: Duration = Duration::from_secs(10);
/// For giving rows back that an abandoned statement may have written.
const GIVE_BACK: Duration = Duration::from_secs(2);
/// The part of that for the connection over which it was sent.
const GIVE_BACK_BEHIND: Duration = Duration::from_millis(500);

const ACQUIRING: &str = "cannot acquire the lock";

/// The rows that were taken, and the connection that took them if it is of no use to others.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) connection: Option<SharedConnection>,
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
    plan: Plan,
    value: Arc<str>,
    keeper: &'a Keeper,
    connection: Option<SharedConnection>,
    /// The connection is shared with nobody: then a locked row holds nobody else up.
    own: bool,
    /// The permission to have a connection of one's own because of a locked row.
    detour: Option<OwnedSemaphorePermit>,
    /// The end of the slot that is asked for, once the database's clock has told.
    slot_end: Option<Timestamp>,
    /// In which the schedule is read, once it is known.
    zone: Option<TimeZone>,
    /// Once the slot is ours it stays so, however long the lease keeps us waiting.
    slot_until: Option<RowTime>,
    /// A statement was sent whose answer has not come.
    in_doubt: bool,
    subscription: Option<Subscription>,
}

impl<'a> Acquirer<'a> {
    pub(crate) fn new(
        ctx: &'a LockContext,
        plan: Plan,
        value: Arc<str>,
        keeper: &'a Keeper,
    ) -> Self {
        Self {
            ctx,
            plan,
            value,
            keeper,
            connection: None,
            own: false,
            detour: None,
            slot_end: None,
            zone: ctx.settings().slot_zone(),
            slot_until: None,
            in_doubt: false,
            subscription: None,
        }
    }

    /// Takes the rows, waiting for a busy lease as long as the context says; when it is `alone`, over a
    /// connection of its own. When it fails, what it has or may have taken is given back.
    pub(crate) async fn run(&mut self, alone: bool) -> Result<Acquired> {
        self.own = alone;
        let outcome = self.acquire_or_wait().await;
        self.subscription = None;
        if outcome.is_err() {
            self.give_back().await;
        }
        outcome
    }

    /// Gives back what was taken, or may have been, so far, when `run` was dropped. Bounded.
    pub(crate) async fn abandon(&mut self) {
        self.give_back().await;
        self.close().await;
    }

    /// Says goodbye to a connection of its own.
    pub(crate) async fn close(&mut self) {
        let connection = self.connection.take().filter(|_| self.own);
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    async fn give_back(&mut self) {
        if !self.in_doubt && self.slot_until.is_none() {
            return;
        }
        let row = |key| OwnRow {
            key,
            value: Arc::clone(&self.value),
        };
        let rows = vec![row(self.ctx.schedule_key()), row(self.ctx.lease_key())];
        let mut limit = GIVE_BACK;
        if self.own {
            if self.give_back_behind(&rows).await {
                return;
            }
            limit -= GIVE_BACK_BEHIND;
        }
        // On the shared connection whatever comes later is done later, too.
        let expiry = self.keeper.operations().expire(self.ctx, rows, limit);
        if let Err(error) = expiry.await {
            log::warn!("could not give back what may have been locked: {error:#}");
        }
    }

    /// Gives back over the connection of its own, if there is one; answers whether that is done. If it is
    /// not, the statement stays under way: a cancel request might meet it instead of what it undoes.
    async fn give_back_behind(&mut self, rows: &[OwnRow]) -> bool {
        let Some(connection) = &self.connection else {
            return false;
        };
        let expiry = self.keeper.store().expire(connection.client(), rows, false);
        let answer = connection.answer(GIVE_BACK_BEHIND, expiry).await;
        let done = answer.is_ok_and(|touched| !touched.contains(&Touched::Locked));
        if !done {
            self.connection = None;
        }
        done
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
                        connection: self.connection.take().filter(|_| self.own),
                        slot_until: self.slot_until,
                        lease_until,
                        sent,
                        token,
                    });
                }
                Answer::SlotUnknown => {}
                Answer::SlotBusy(busy) => return Err(Kind::NotAcquired(busy).into()),
                Answer::LeaseBusy(busy, expires_in) => {
                    self.wait(busy, expires_in, wait_until).await?;
                    // A wait that has begun does not end because the database is out of reach.
                    retry_until = wait_until.map(|until| until.max(Instant::now()));
                }
            }
        }
    }

    /// Waits until there is a reason to ask for the lease again.
    async fn wait(
        &mut self,
        mut busy: Busy,
        mut expires_in: Option<Duration>,
        wait_until: Option<Instant>,
    ) -> Result<()> {
        let not_acquired = |busy| Err(Kind::NotAcquired(busy).into());
        if left(wait_until).is_zero() {
            return not_acquired(busy);
        }
        self.share_again().await;
        let mut look_now = self.listen().await;
        loop {
            let Some(pause) = wait_pause(left(wait_until), expires_in, random::fraction()) else {
                return not_acquired(busy);
            };
            if !std::mem::take(&mut look_now) {
                let (key, holder) = (self.ctx.lock_key(), &*busy.holder);
                log::debug!(
                    event = "waiting", key, holder;
                    "{}, waiting", Error::from(Kind::NotAcquired(busy.clone()))
                );
                let announced = Subscription::announced(&mut self.subscription);
                if timeout(pause, announced).await.is_ok() {
                    return Ok(());
                }
            }
            // A look costs the server next to nothing; asking would lock the row for a moment.
            match self.look().await {
                Some((seen, left)) => (busy, expires_in) = (seen, left),
                None => return Ok(()),
            }
        }
    }

    /// Who has the lease, and for how long at least; `None` when asking for it will tell more.
    async fn look(&mut self) -> Option<(Busy, Option<Duration>)> {
        let connection = self.connection.clone()?;
        let key = self.ctx.lease_key();
        let read = self.keeper.store().read(connection.client(), &key);
        let (holder, now) = connection.answer(self.attempt_limit(), read).await.ok()?;
        let holder = holder.filter(|holder| holder.expire_at > RowTime::At(now))?;
        let busy = Busy {
            key,
            until: holder.expire_at.system_time(),
            holder: holder.value,
        };
        let expires_in = expires_in(&busy, now);
        Some((busy, expires_in))
    }

    /// Subscribes to the announcement of the lease's end; answers whether it has just begun to.
    async fn listen(&mut self) -> bool {
        let Some(connection) = self.connection.clone().filter(SharedConnection::is_open) else {
            return false;
        };
        if self
            .subscription
            .as_ref()
            .is_some_and(|subscription| subscription.is_on(&connection))
        {
            return false;
        }
        let key = self.ctx.lease_key();
        match Subscription::open(
            self.keeper.operations(),
            connection,
            &key,
            self.attempt_limit(),
        )
        .await
        {
            Ok(subscription) => {
                self.subscription = subscription;
                self.subscription.is_some()
            }
            // Whatever it is, asking again will show it, or do without.
            Err(_) => false,
        }
    }

    /// For one attempt to get an answer.
    fn attempt_limit(&self) -> Duration {
        match self.ctx.settings().connect_timeout {
            Duration::ZERO => SINGLE_ATTEMPT,
            limit => limit,
        }
    }

    /// Asks until there is an answer; failures that may pass are retried until `retry_until`.
    async fn ask(&mut self, retry_until: Option<Instant>) -> Result<Answer> {
        let limit = self.attempt_limit();
        let mut backoff = Backoff::default();
        loop {
            let failure = match self.attempt(limit).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if failure.is_lock_timeout() && !self.own && self.take_detour(limit).await {
                continue;
            }
            self.drop_connection(&failure).await;
            let pause = match failure.class() {
                FailureClass::Passing => backoff.pause(left(retry_until), random::fraction()),
                FailureClass::Permanent => None,
            };
            let Some(pause) = pause else {
                return Err(failure.into_error(self.ctx, ACQUIRING));
            };
            log::debug!(
                event = "acquire_failed", key = self.ctx.lock_key();
                "retrying in {pause:?}: {:#}",
                failure.into_error(self.ctx, ACQUIRING)
            );
            sleep(pause).await;
        }
    }

    /// From here on over a connection of its own: the row is locked, and others are not to wait for
    /// it. Answers whether there may be one.
    async fn take_detour(&mut self, limit: Duration) -> bool {
        let permit = self
            .keeper
            .operations()
            .detour(Instant::now() + limit)
            .await;
        if permit.is_err() {
            return false;
        }
        self.detour = permit.ok();
        self.own = true;
        self.connection = None;
        true
    }

    /// Ends a detour, if this is one: a wait may be long, and needs no connection of its own.
    async fn share_again(&mut self) {
        if self.detour.is_none() {
            return;
        }
        self.close().await;
        self.own = false;
        self.detour = None;
        let by = Instant::now() + self.attempt_limit();
        let shared = self.keeper.operations().connection(self.ctx, by).await;
        // Where there is none, the next attempt finds out why.
        self.connection = shared.ok();
    }

    /// After a failure: what hangs on the server would be done whenever it comes loose.
    async fn drop_connection(&mut self, failure: &Failure) {
        if failure.is_an_answer() {
            return;
        }
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.own {
            if self.in_doubt {
                connection.give_up();
            }
        } else if matches!(failure, Failure::Silent | Failure::Late(_)) {
            self.keeper.operations().give_up(&connection).await;
        }
    }
}

fn left(until: Option<Instant>) -> Duration {
    until.map_or(Duration::MAX, |until| {
        until.saturating_duration_since(Instant::now())
    })
}
