//! Every SQL statement of the crate, and the decoding of its rows; nothing else does SQL.
//!
//! Each operation is one statement in one round trip, typed by us (no prepare) and outside any
//! explicit transaction, so it goes through a connection pooler in transaction mode unharmed. All
//! times in rows come from the database's clock.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::timestamp::{RowTime, system_time};
use crate::context::TableName;

type SqlResult<T> = Result<T, tokio_postgres::Error>;

/// The statements for one table.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    acquire_slot: String,
    acquire_lease: String,
    acquire_both: String,
    renew: String,
    expire: String,
    read: String,
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
    /// When the slot ends.
    pub(crate) end: Timestamp,
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

/// Under which value rows are taken, and the row that counts how often that happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'a> {
    pub(crate) value: &'a str,
    pub(crate) fence_key: &'a str,
}

/// The answer to an acquisition of a slot, a lease or both.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    /// The database's clock when the statement started.
    pub(crate) now: Timestamp,
    pub(crate) slot: Option<Claim>,
    /// Not asked for, or not reached because the slot was refused, when `None`.
    pub(crate) lease: Option<Claim>,
    /// The fencing token, when all that was asked for was taken.
    pub(crate) token: Option<i64>,
}

impl Store {
    pub(crate) fn new(table: &TableName) -> Self {
        let table = table.sql();
        // A retried acquisition whose first answer was lost finds its own value, and has the row.
        // The row of a slot that is over by now must not be written: it would exclude nobody.
        let slot = format!(
            "INSERT INTO {table} AS held (key, value, expire_at)
             SELECT $2, $1, $3 WHERE $3 > NOW() + $4 * INTERVAL '1 second'
             ON CONFLICT (key) DO UPDATE
             SET value = EXCLUDED.value, expire_at = EXCLUDED.expire_at
             WHERE held.expire_at <= NOW() + $4 * INTERVAL '1 second'
                OR held.value = EXCLUDED.value
             RETURNING expire_at"
        );
        let lease = |key: &str, ttl: &str, from: &str| {
            format!(
                "INSERT INTO {table} AS held (key, value, expire_at)
                 SELECT {key}, $1, NOW() + {ttl} * INTERVAL '1 second' {from}
                 ON CONFLICT (key) DO UPDATE
                 SET value = EXCLUDED.value, expire_at = EXCLUDED.expire_at
                 WHERE held.expire_at <= NOW() OR held.value = EXCLUDED.value
                 RETURNING expire_at"
            )
        };
        // Whoever takes all that it asked for draws the next number. The row never expires.
        let fence = |key: &str, from: &str| {
            format!(
                "INSERT INTO {table} AS held (key, value, expire_at)
                 SELECT {key}, '1', 'infinity' FROM {from}
                 ON CONFLICT (key) DO UPDATE
                 SET value = (held.value::bigint + 1)::text, expire_at = 'infinity'
                 RETURNING value::bigint AS token"
            )
        };
        // What stands in the row before the statement tells a loser who has it, in the same round trip.
        let columns = |claim: &str, seen: &str| {
            format!("(SELECT expire_at FROM {claim}), {seen}.value, {seen}.expire_at")
        };
        let seen =
            |alias: &str, key: &str| format!("LEFT JOIN {table} AS {alias} ON {alias}.key = {key}");
        let answer = "SELECT NOW(), (SELECT token FROM fence)";
        Self {
            acquire_slot: format!(
                "WITH slot AS ({slot}), fence AS ({}) {answer}, {} FROM (SELECT 1) AS one {}",
                fence("$5", "slot"),
                columns("slot", "seen"),
                seen("seen", "$2"),
            ),
            acquire_lease: format!(
                "WITH lease AS ({}), fence AS ({}) {answer}, {} FROM (SELECT 1) AS one {}",
                lease("$2", "$3", ""),
                fence("$4", "lease"),
                columns("lease", "seen"),
                seen("seen", "$2"),
            ),
            // The lease is tried only when the slot was taken: its source is the slot's row.
            acquire_both: format!(
                "WITH slot AS ({slot}), lease AS ({}), fence AS ({})
                 {answer}, {}, {} FROM (SELECT 1) AS one {} {}",
                lease("$5", "$6", "FROM slot"),
                fence("$7", "lease"),
                columns("slot", "seen_slot"),
                columns("lease", "seen_lease"),
                seen("seen_slot", "$2"),
                seen("seen_lease", "$5"),
            ),
            renew: format!(
                "UPDATE {table} SET expire_at = NOW() + $3 * INTERVAL '1 second'
                 WHERE key = $1 AND value = $2 RETURNING expire_at"
            ),
            expire: format!(
                "UPDATE {table} SET expire_at = NOW()
                 WHERE key = ANY($1) AND value = $2 RETURNING key"
            ),
            read: format!("SELECT value, expire_at FROM {table} WHERE key = $1"),
        }
    }

    /// The database's time and zone.
    pub(crate) async fn clock(&self, client: &Client) -> SqlResult<DatabaseClock> {
        let sql = "SELECT NOW(), current_setting('TimeZone'), \
                   EXTRACT(TIMEZONE FROM NOW())::integer";
        let row = client.query_typed_one(sql, &[]).await?;
        Ok(DatabaseClock {
            now: now(&row)?,
            zone: row.try_get(1)?,
            utc_offset: row.try_get(2)?,
        })
    }

    /// Takes the rows asked for, or learns who has them. A lease is tried only if the slot, when one
    /// is asked for too, was taken.
    pub(crate) async fn acquire(
        &self,
        client: &Client,
        claimant: Claimant<'_>,
        slot: Option<&SlotRow>,
        lease: Option<&LeaseRow>,
    ) -> SqlResult<Acquisition> {
        let end = slot.map(|slot| system_time(slot.end));
        let tolerance = slot.map_or(0.0, |slot| slot.tolerance.as_secs_f64());
        let ttl = lease.map_or(0.0, |lease| lease.ttl.as_secs_f64());
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![(&claimant.value, Type::TEXT)];
        if let (Some(slot), Some(end)) = (slot, &end) {
            params.push((&slot.key, Type::TEXT));
            params.push((end, Type::TIMESTAMPTZ));
            params.push((&tolerance, Type::FLOAT8));
        }
        if let Some(lease) = lease {
            params.push((&lease.key, Type::TEXT));
            params.push((&ttl, Type::FLOAT8));
        }
        params.push((&claimant.fence_key, Type::TEXT));
        let sql = match (slot, lease) {
            (Some(_), Some(_)) => &self.acquire_both,
            (Some(_), None) => &self.acquire_slot,
            (None, _) => &self.acquire_lease,
        };
        let row = client.query_typed_one(sql, &params).await?;
        let now = now(&row)?;
        let slot = match slot {
            Some(slot) => Some(claim(&row, FIRST_CLAIM, expired_by(now, slot.tolerance))?),
            None => None,
        };
        let lease = match (&slot, lease) {
            (_, None) | (Some(Claim::Refused(_)), _) => None,
            (None, Some(_)) => Some(claim(&row, FIRST_CLAIM, now)?),
            (Some(Claim::Taken(_)), Some(_)) => Some(claim(&row, SECOND_CLAIM, now)?),
        };
        let token = row.try_get(1)?;
        Ok(Acquisition {
            now,
            slot,
            lease,
            token,
        })
    }

    /// Extends a row by `ttl` from now, if it is still ours; `None` when it is not.
    pub(crate) async fn renew(
        &self,
        client: &Client,
        key: &str,
        value: &str,
        ttl: Duration,
    ) -> SqlResult<Option<RowTime>> {
        let ttl = ttl.as_secs_f64();
        let params: &[(&(dyn ToSql + Sync), Type)] = &[
            (&key, Type::TEXT),
            (&value, Type::TEXT),
            (&ttl, Type::FLOAT8),
        ];
        let row = client.query_typed_opt(&self.renew, params).await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    /// Ends the rows among `keys` that are still ours; answers how many were.
    pub(crate) async fn expire(
        &self,
        client: &Client,
        keys: &[String],
        value: &str,
    ) -> SqlResult<usize> {
        let params: &[(&(dyn ToSql + Sync), Type)] =
            &[(&keys, Type::TEXT_ARRAY), (&value, Type::TEXT)];
        Ok(client.query_typed(&self.expire, params).await?.len())
    }

    /// Who has a row, if anybody.
    pub(crate) async fn read(&self, client: &Client, key: &str) -> SqlResult<Option<Holder>> {
        let row = client
            .query_typed_opt(&self.read, &[(&key, Type::TEXT)])
            .await?;
        row.map(|row| holder(&row, 0))
            .transpose()
            .map(Option::flatten)
    }
}

/// Where the first claim of an acquisition's row begins, after `NOW()` and the token.
const FIRST_CLAIM: usize = 2;
/// Where the second one begins.
const SECOND_CLAIM: usize = 5;

fn now(row: &Row) -> SqlResult<Timestamp> {
    // Far from the ends of the calendar: a clock that says otherwise gets an instant that is over.
    Ok(match row.try_get(0)? {
        RowTime::At(now) => now,
        RowTime::Past => Timestamp::MIN,
        RowTime::Never => Timestamp::MAX,
    })
}

/// Rows that expire at or before this instant count as expired.
fn expired_by(now: Timestamp, tolerance: Duration) -> Timestamp {
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

/// Reads `(value, expiry)` from column `at` on.
fn holder(row: &Row, at: usize) -> SqlResult<Option<Holder>> {
    let Some(value) = row.try_get(at)? else {
        return Ok(None);
    };
    Ok(Some(Holder {
        value,
        expire_at: row.try_get(at + 1)?,
    }))
}
