//! Taking, keeping and releasing locks: what goes into each [statement](statements), and the decoding of
//! its rows. Beside these two only `admin` has SQL, for operators, and `connect`, which asks a server
//! what it is.
//!
//! Each operation is one statement in one round trip, typed by us (no prepare) and outside any
//! explicit transaction, so it goes through a connection pooler in transaction mode unharmed. All
//! times in rows come from the database's clock.

mod statements;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use self::statements::{Statements, ZONE};
use super::timestamp::{RowTime, system_time};
use crate::context::TableName;
use crate::rules::slot::Candidates;

type SqlResult<T> = Result<T, tokio_postgres::Error>;

/// What can be done with the rows of one table.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    statements: Statements,
}

/// What the database's clock says, and in which zone its sessions read it.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseClock {
    pub(crate) now: Timestamp,
    /// The session's `TimeZone`; need not be an IANA name.
    pub(crate) zone: String,
    /// The offset from UTC in that zone, now, in seconds.
    pub(crate) utc_offset: i32,
}

/// The row of a slot that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct SlotRow {
    pub(crate) key: String,
    /// When the slot may end; the database picks by its clock.
    pub(crate) ends: Candidates,
    /// The candidates are right in a session with one of these time zones only; in any when `None`.
    pub(crate) zones: Option<&'static [&'static str]>,
    pub(crate) tolerance: Duration,
}

/// The row of a lease that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
    pub(crate) key: String,
    pub(crate) ttl: Duration,
}

/// A row that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) value: String,
    pub(crate) expire_at: RowTime,
}

/// What became of one row that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is ours until then.
    Taken(RowTime),
    /// Somebody else has it. The holder is known unless the row came and went during the statement.
    Refused(Option<Holder>),
}

/// A row of ours, as the owner guard knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnRow {
    pub(crate) key: String,
    pub(crate) value: Arc<str>,
}

/// What became of a row of ours that was to be renewed or expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Done; it expires then.
    Until(RowTime),
    /// Some other session has it locked for the moment. Nothing was changed.
    Locked,
    /// It is gone, or somebody else's.
    NotOurs,
}

/// Under which value rows are taken, and the row that counts how often that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) value: &'a str,
    pub(crate) fence_key: &'a str,
}

/// What became of a slot that was asked for.
#[derive(Clone, Debug)]
pub(crate) enum SlotAnswer {
    /// It was among the candidates.
    Known(Claim),
    /// It was not, so nothing was asked for; the clock tells which one it is.
    Unknown(DatabaseClock),
}

/// The answer to an acquisition of a slot, a lease or both.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    /// The database's clock when the statement started.
    pub(crate) now: Timestamp,
    pub(crate) slot: Option<SlotAnswer>,
    /// Not asked for, or not reached because the slot was refused, when `None`.
    pub(crate) lease: Option<Claim>,
    /// The fencing token, when all that was asked for was taken.
    pub(crate) token: Option<i64>,
}

impl Store {
    pub(crate) fn new(table: &TableName) -> Self {
        Self {
            statements: Statements::new(table),
        }
    }

    /// The database's time and zone.
    pub(crate) async fn clock(&self, client: &Client) -> SqlResult<DatabaseClock> {
        let sql = format!("SELECT NOW(), {ZONE}");
        let row = client.query_typed_one(&sql, &[]).await?;
        clock(&row, now(&row)?, 1)
    }

    /// Takes the rows asked for, or learns who has them. A lease is tried only if the slot, when one
    /// is asked for too, was taken. With `patience`, waiting for another session's lock longer than
    /// that is an error.
    pub(crate) async fn acquire(
        &self,
        client: &Client,
        claimant: Claimant<'_>,
        slot: Option<&SlotRow>,
        lease: Option<&LeaseRow>,
        patience: Option<Duration>,
    ) -> SqlResult<Acquisition> {
        let patience = patience.map(|limit| format!("{}ms", limit.as_millis()));
        let ends = slot.map(|slot| &slot.ends);
        let ticks: Vec<SystemTime> = ends
            .into_iter()
            .flat_map(|ends| ends.ticks.iter().copied().map(system_time))
            .collect();
        let from = ends.and_then(|ends| ends.from).map(system_time);
        let zones = slot.and_then(|slot| slot.zones);
        let tolerance = slot.map_or(0.0, |slot| slot.tolerance.as_secs_f64());
        let ttl = lease.map_or(0.0, |lease| lease.ttl.as_secs_f64());
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&claimant.value, Type::TEXT), (&patience, Type::TEXT)];
        if let Some(slot) = slot {
            params.push((&slot.key, Type::TEXT));
            params.push((&ticks, Type::TIMESTAMPTZ_ARRAY));
            params.push((&tolerance, Type::FLOAT8));
            params.push((&from, Type::TIMESTAMPTZ));
            params.push((&zones, Type::TEXT_ARRAY));
        }
        if let Some(lease) = lease {
            params.push((&lease.key, Type::TEXT));
            params.push((&ttl, Type::FLOAT8));
        }
        params.push((&claimant.fence_key, Type::TEXT));
        let sql = match (slot, lease) {
            (Some(_), Some(_)) => &self.statements.acquire_both,
            (Some(_), None) => &self.statements.acquire_slot,
            (None, _) => &self.statements.acquire_lease,
        };
        let row = client.query_typed_one(sql, &params).await?;
        let now = now(&row)?;
        let slot = match slot {
            Some(_) if !row.try_get::<_, bool>(SLOT_IS_KNOWN)? => {
                Some(SlotAnswer::Unknown(clock(&row, now, SLOT_IS_KNOWN + 1)?))
            }
            Some(slot) => {
                let expired_by = expired_by(now, slot.tolerance);
                Some(SlotAnswer::Known(claim(&row, SLOT_CLAIM, expired_by)?))
            }
            None => None,
        };
        let lease = match (&slot, lease) {
            (None, Some(_)) => Some(claim(&row, ONLY_LEASE_CLAIM, now)?),
            (Some(SlotAnswer::Known(Claim::Taken(_))), Some(_)) => {
                Some(claim(&row, LEASE_CLAIM, now)?)
            }
            (Some(_), Some(_)) | (_, None) => None,
        };
        let token = row.try_get(1)?;
        Ok(Acquisition {
            now,
            slot,
            lease,
            token,
        })
    }

    /// Extends rows, each by its TTL from now, if they are still ours. Answers in the same order. No
    /// other session's lock is waited for.
    pub(crate) async fn renew(
        &self,
        client: &Client,
        rows: &[(OwnRow, Duration)],
    ) -> SqlResult<Vec<Touched>> {
        let (keys, values) = columns(rows.iter().map(|(row, _)| row));
        let ttls: Vec<f64> = rows.iter().map(|(_, ttl)| ttl.as_secs_f64()).collect();
        let params: &[(&(dyn ToSql + Sync), Type)] = &[
            (&keys, Type::TEXT_ARRAY),
            (&values, Type::TEXT_ARRAY),
            (&ttls, Type::FLOAT8_ARRAY),
        ];
        let answers = client.query_typed(&self.statements.renew, params).await?;
        answers.iter().map(touched).collect()
    }

    /// Ends rows that are still ours, and wakes those who wait for them. Answers in the same order.
    /// Rows that are locked are left alone, unless `waiting`.
    pub(crate) async fn expire(
        &self,
        client: &Client,
        rows: &[OwnRow],
        waiting: bool,
    ) -> SqlResult<Vec<Touched>> {
        let (keys, values) = columns(rows.iter());
        let channels: Vec<String> = rows.iter().map(|row| channel(&row.key)).collect();
        let params: &[(&(dyn ToSql + Sync), Type)] = &[
            (&keys, Type::TEXT_ARRAY),
            (&values, Type::TEXT_ARRAY),
            (&channels, Type::TEXT_ARRAY),
        ];
        let sql = match waiting {
            true => &self.statements.expire_waiting,
            false => &self.statements.expire,
        };
        let answers = client.query_typed(sql, params).await?;
        answers.iter().map(touched).collect()
    }

    /// Who has a row, if anybody, and what the database's clock says.
    pub(crate) async fn read(
        &self,
        client: &Client,
        key: &str,
    ) -> SqlResult<(Option<Holder>, Timestamp)> {
        let params: &[(&(dyn ToSql + Sync), Type)] = &[(&key, Type::TEXT)];
        let row = client
            .query_typed_one(&self.statements.read, params)
            .await?;
        Ok((holder(&row, 1)?, now(&row)?))
    }

    /// The process of the server that this statement has met.
    pub(crate) async fn backend(&self, client: &Client) -> SqlResult<i32> {
        let sql = "SELECT pg_backend_pid()";
        client.query_typed_one(sql, &[]).await?.try_get(0)
    }

    /// Subscribes to announcements, see [`channel`]. Not through a pooler: the subscription would be
    /// that of a session that others use.
    pub(crate) async fn listen(&self, client: &Client, channel: &str) -> SqlResult<()> {
        client
            .execute_typed(&format!("LISTEN \"{channel}\""), &[])
            .await?;
        Ok(())
    }

    /// Ends a subscription.
    pub(crate) async fn unlisten(&self, client: &Client, channel: &str) -> SqlResult<()> {
        client
            .execute_typed(&format!("UNLISTEN \"{channel}\""), &[])
            .await?;
        Ok(())
    }
}

/// The channel on which the end of the row `key` is announced. Two keys may share one: what is
/// announced is only a reason to look.
pub(crate) fn channel(key: &str) -> String {
    // FNV-1a, which is the same in every version of this crate.
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("dislock:{hash:016x}")
}

fn columns<'a>(rows: impl Iterator<Item = &'a OwnRow>) -> (Vec<&'a str>, Vec<&'a str>) {
    rows.map(|row| (&*row.key, &*row.value)).unzip()
}

/// Reads the columns of `TOUCHED` in [`statements`].
fn touched(row: &Row) -> SqlResult<Touched> {
    Ok(match row.try_get::<_, Option<RowTime>>(0)? {
        Some(expire_at) => Touched::Until(expire_at),
        None if row.try_get(1)? => Touched::Locked,
        None => Touched::NotOurs,
    })
}

/// Columns of an acquisition's row, after `NOW()` and the token. With a slot: whether it is known, the
/// two of [`ZONE`], the three of its claim, and of the lease's; without one, the lease's only.
const SLOT_IS_KNOWN: usize = 2;
const SLOT_CLAIM: usize = 5;
const LEASE_CLAIM: usize = 8;
const ONLY_LEASE_CLAIM: usize = 2;

fn now(row: &Row) -> SqlResult<Timestamp> {
    // Far from the ends of the calendar: a clock that says otherwise gets an instant that is over.
    Ok(match row.try_get(0)? {
        RowTime::At(now) => now,
        RowTime::Past => Timestamp::MIN,
        RowTime::Never => Timestamp::MAX,
    })
}

/// Reads the columns of [`ZONE`] from column `at` on.
fn clock(row: &Row, now: Timestamp, at: usize) -> SqlResult<DatabaseClock> {
    Ok(DatabaseClock {
        now,
        zone: row.try_get(at)?,
        utc_offset: row.try_get(at + 1)?,
    })
}

/// Rows that expire at or before this instant count as expired.
pub(crate) fn expired_by(now: Timestamp, tolerance: Duration) -> Timestamp {
    now.saturating_add(
        jiff::SignedDuration::try_from(tolerance).unwrap_or(jiff::SignedDuration::MAX),
    )
    .unwrap_or(Timestamp::MAX)
}

/// Reads `(expiry if taken, value before, expiry before)` from column `at` on. What stood in the row
/// before is the holder only if it was live; otherwise somebody else was quicker than this statement
/// and is not to be seen in its snapshot.
fn claim(row: &Row, at: usize, expired_by: Timestamp) -> SqlResult<Claim> {
    if let Some(expire_at) = row.try_get::<_, Option<RowTime>>(at)? {
        return Ok(Claim::Taken(expire_at));
    }
    let before = holder(row, at + 1)?;
    Ok(Claim::Refused(
        before.filter(|h| h.expire_at > RowTime::At(expired_by)),
    ))
}

/// Reads `(value, expiry)` from column `at` on. One of them alone is an error.
fn holder(row: &Row, at: usize) -> SqlResult<Option<Holder>> {
    let value: Option<&str> = row.try_get(at)?;
    let expire_at: Option<RowTime> = row.try_get(at + 1)?;
    if (value, expire_at) == (None, None) {
        return Ok(None);
    }
    Ok(Some(Holder {
        value: row.try_get(at)?,
        expire_at: row.try_get(at + 1)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::LockContext;

    #[test]
    fn benchmark_has_others_send_the_statements_that_are_sent_here() {
        let words = |sql: &str| -> Vec<String> {
            let spaced = sql.replace('"', "").replace('(', " ( ").replace(')', " ) ");
            spaced.split_whitespace().map(str::to_owned).collect()
        };
        let ctx = LockContext::builder("postgresql://app@db/app", "k")
            .build_with(&|_| None)
            .unwrap();
        let store = Store::new(&ctx.settings().table);
        let acquire = include_str!("../../benches/compare/acquire.sql");
        assert_eq!(words(acquire), words(&store.statements.acquire_lease));
        let release = include_str!("../../benches/compare/release.sql");
        assert_eq!(words(release), words(&store.statements.expire));
    }
}
