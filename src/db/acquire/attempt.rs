//! One attempt to take the rows: connect, insert, and what the answer means.
//!
//! Which slot it is, the database's clock says. So as not to ask for the time first, the statement
//! carries the ends of the slots around the time by our own clock, read in the zone that the schedule
//! has or most servers have, and picks by itself. Where none of them fits, nothing was written, the answer
//! tells time and zone, and the next attempt carries the one that is right.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::{ACQUIRING, Acquirer};
use crate::clock::BootInstant;
use crate::db::failure::Failure;
use crate::db::operations::PATIENCE;
use crate::db::shared::SharedConnection;
use crate::db::store::{
    Acquisition, Claim, Claimant, DatabaseClock, Holder, LeaseRow, SlotAnswer, SlotRow, Store,
    expired_by,
};
use crate::db::timestamp::{RowTime, system_time};
use crate::error::{Busy, Error};
use crate::rules::lease::LeaseTerm;
use crate::rules::slot::{self, Candidates};
use crate::zones::zones;

/// What servers call the zone that most of them are in.
const UTC_NAMES: &[&str] = &["UTC", "Etc/UTC", "GMT"];

/// What the database said.
pub(super) enum Answer {
    Acquired {
        lease_until: Option<RowTime>,
        sent: BootInstant,
        token: i64,
    },
    /// It was not among the slots that were asked for; from here on it is known.
    SlotUnknown,
    SlotBusy(Busy),
    /// With the time left until the row expires, by the database's clock.
    LeaseBusy(Busy, Option<Duration>),
}

impl Acquirer<'_> {
    /// One attempt, over the connection there is or a new one. It may be dropped at any point:
    /// `in_doubt` then says whether a statement was on its way.
    pub(super) async fn attempt(&mut self, limit: Duration) -> Result<Answer, Failure> {
        let settings = self.ctx.settings();
        let store = self.keeper.store();
        let by = Instant::now() + limit;
        let connection = match self.connection.take().filter(SharedConnection::is_open) {
            Some(connection) => connection,
            None if self.own => SharedConnection::open(&settings.conninfo, by).await?,
            None => self.keeper.operations().connection(self.ctx, by).await?,
        };
        let connection = self.connection.insert(connection).clone();
        let client = connection.client();
        let slot = self.slot_row()?;
        let lease = self.plan.lease.then(|| LeaseRow {
            key: self.ctx.lease_key(),
            ttl: settings.timing.ttl,
        });
        let fence_key = self.ctx.fence_key();
        let claimant = Claimant {
            value: &self.value,
            fence_key: &fence_key,
        };
        let patience = (!self.own).then_some(PATIENCE);
        // Read the clock, then act: the row's expiry is never earlier than this instant plus the TTL.
        let sent = BootInstant::now();
        let in_doubt_before = std::mem::replace(&mut self.in_doubt, true);
        let statement = store.acquire(client, claimant, slot.as_ref(), lease.as_ref(), patience);
        let answer = connection.answer(limit, statement).await;
        // Of an earlier attempt whose answer was lost, an error says nothing, nor does a refusal that did
        // not get as far as the lease: a slot that it took with the lease may be over by now.
        self.in_doubt = match &answer {
            Ok(acquisition) => in_doubt_before && acquisition.lease.is_none(),
            Err(failure) => in_doubt_before || !failure.is_an_answer(),
        };
        let Acquisition {
            now,
            slot: slot_claim,
            lease: lease_claim,
            token,
        } = answer?;
        match (slot, slot_claim) {
            (Some(_), Some(SlotAnswer::Unknown(clock))) => {
                self.learn_slot(&clock)?;
                return Ok(Answer::SlotUnknown);
            }
            (Some(row), Some(SlotAnswer::Known(Claim::Refused(holder)))) => {
                let busy = busy(store, &connection, limit, row.key, holder, row.tolerance).await?;
                return Ok(Answer::SlotBusy(busy));
            }
            (_, Some(SlotAnswer::Known(Claim::Taken(until)))) => self.slot_until = Some(until),
            (None, _) | (Some(_), None) => {}
        }
        let lease_until = match (lease, lease_claim) {
            (Some(row), Some(Claim::Refused(holder))) => {
                let busy = busy(store, &connection, limit, row.key, holder, Duration::ZERO).await?;
                let expires_in = expires_in(&busy, now);
                return Ok(Answer::LeaseBusy(busy, expires_in));
            }
            (_, Some(Claim::Taken(until))) => Some(until),
            (None, _) | (Some(_), None) => None,
        };
        if lease_until.is_some() {
            let term = LeaseTerm::begin(settings.timing, sent);
            if term.loss(BootInstant::now()).is_some() {
                // The answer took so long that nothing may be started with it. Once more: the row is
                // ours, and its value says so.
                self.in_doubt = true;
                return Err(Failure::Late(settings.timing.ttl));
            }
        }
        let Some(token) = token else {
            // What was taken is of no use without it, and is given back.
            self.in_doubt = true;
            let error = Failure::NotWritten(fence_key).into_error(self.ctx, ACQUIRING);
            return Err(error.into());
        };
        Ok(Answer::Acquired {
            lease_until,
            sent,
            token,
        })
    }

    /// The slot to ask for; `None` when none is wanted, or it is ours already.
    fn slot_row(&self) -> Result<Option<SlotRow>, Error> {
        if !self.plan.schedule || self.slot_until.is_some() {
            return Ok(None);
        }
        let settings = self.ctx.settings();
        let ends = match self.slot_end {
            Some(end) => Candidates::only(end),
            None => {
                let zone = self.zone.clone().unwrap_or(TimeZone::UTC);
                settings.slot_candidates(&zone, Timestamp::now())?
            }
        };
        Ok(Some(SlotRow {
            key: self.ctx.schedule_key(),
            ends,
            zones: self.zone.is_none().then_some(UTC_NAMES),
            tolerance: settings.slot_tolerance,
        }))
    }

    /// Computes the end of the slot from what the database says of its time and zone.
    fn learn_slot(&mut self, clock: &DatabaseClock) -> Result<(), Error> {
        let zone = match self.zone.take() {
            Some(zone) => zone,
            None => slot::session_zone(&clock.zone, clock.utc_offset, clock.now, zones())
                .map_err(|e| Error::database(e.to_string()))?,
        };
        let end = self
            .ctx
            .settings()
            .slot_end(self.zone.insert(zone), clock.now)?;
        self.slot_end = Some(end);
        Ok(())
    }
}

/// How long the busy row lives, if nobody renews it, when the database's clock says `now`.
pub(super) fn expires_in(busy: &Busy, now: Timestamp) -> Option<Duration> {
    busy.until?.duration_since(system_time(now)).ok()
}

/// Who has the row `key`, looked up when the statement that was refused could not see it.
async fn busy(
    store: &Store,
    connection: &SharedConnection,
    limit: Duration,
    key: String,
    holder: Option<Holder>,
    tolerance: Duration,
) -> Result<Busy, Failure> {
    let live = match holder {
        Some(holder) => Some(holder),
        None => {
            let (holder, now) = connection
                .answer(limit, store.read(connection.client(), &key))
                .await?;
            holder.filter(|h| h.expire_at > RowTime::At(expired_by(now, tolerance)))
        }
    };
    // "Held" needs a holder: a row that came and went meanwhile is there to be taken.
    let Some(holder) = live else {
        return Err(Failure::NotWritten(key));
    };
    Ok(Busy {
        key,
        until: holder.expire_at.system_time(),
        holder: holder.value,
    })
}
