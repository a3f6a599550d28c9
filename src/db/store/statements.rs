//! The SQL of taking, keeping and releasing locks.

use crate::context::TableName;

/// Limits how long the statement waits for other sessions' locks, if `$2` says so: the setting ends with
/// the transaction, and it is made before the first row is touched.
const PATIENCE: &str =
    "set_config('lock_timeout', COALESCE($2, current_setting('lock_timeout')), true) IS NOT NULL";
/// Has the commit reach the disk even where the session would not wait for that: a server that crashes
/// must not forget who holds a lock, nor until when.
const DURABLE: &str = "set_config('synchronous_commit', CASE current_setting('synchronous_commit')
     WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END, true) IS NOT NULL";
/// In which zone the session reads the time: its name, and its offset from UTC now, in seconds.
pub(super) const ZONE: &str = "current_setting('TimeZone'), EXTRACT(TIMEZONE FROM NOW())::integer";
/// The end of the slot that this moment belongs to, if it is among the candidates `$4`: the first of them
/// after `NOW()` and the tolerance, if that is not before `$6`, in one of the time zones `$7`.
const SLOT_END: &str = "SELECT min(tick) AS tick FROM unnest($4) AS tick
     WHERE tick > NOW() + $5 * INTERVAL '1 second'
       AND COALESCE($6 <= NOW() + $5 * INTERVAL '1 second', true)
       AND COALESCE(current_setting('TimeZone') = ANY ($7), true)";
/// What became of a row that is due.
const TOUCHED: &str = "touched.expire_at, seen.key IS NOT NULL";
/// Wakes those who wait for a row that has been given up.
const NOTIFY: &str = "CASE WHEN touched.key IS NOT NULL THEN pg_notify(due.channel, '')::text END";

/// The statements for one table.
#[derive(Clone, Debug)]
pub(super) struct Statements {
    pub(super) acquire_slot: String,
    pub(super) acquire_lease: String,
    pub(super) acquire_both: String,
    pub(super) renew: String,
    pub(super) expire: String,
    pub(super) expire_waiting: String,
    pub(super) read: String,
}

impl Statements {
    pub(super) fn new(table: &TableName) -> Self {
        let table = table.sql();
        // A retried acquisition whose first answer was lost finds its own value, and has the row.
        // The row of a slot that is over by now is not written, as it would exclude nobody: its end is
        // no candidate any more.
        let slot = format!(
            "INSERT INTO {table} AS held (key, value, expire_at)
             SELECT $3, $1, tick FROM slot_end WHERE tick IS NOT NULL AND {PATIENCE} AND {DURABLE}
             ON CONFLICT (key) DO UPDATE
             SET value = EXCLUDED.value, expire_at = EXCLUDED.expire_at
             WHERE held.expire_at <= NOW() + $5 * INTERVAL '1 second'
                OR held.value = EXCLUDED.value
             RETURNING expire_at"
        );
        // A statement that hung somewhere may come after its own successor, with an older NOW(): neither
        // an acquisition nor a renewal may take back time that was promised since.
        let lease = |key: &str, ttl: &str, from: &str| {
            format!(
                "INSERT INTO {table} AS held (key, value, expire_at)
                 SELECT {key}, $1, NOW() + {ttl} * INTERVAL '1 second' {from}
                 WHERE {PATIENCE} AND {DURABLE}
                 ON CONFLICT (key) DO UPDATE
                 SET value = EXCLUDED.value,
                     expire_at = GREATEST(held.expire_at, EXCLUDED.expire_at)
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
        let slot_answer = format!("{answer}, (SELECT tick IS NOT NULL FROM slot_end), {ZONE}");
        // Rows of ours are locked before they are changed, and one that somebody else has locked is
        // left out: it must not keep the others waiting.
        let free = |more: &str| {
            format!(
                "SELECT held.key, held.value, {more} FROM {table} AS held
                 JOIN due ON held.key = due.key AND held.value = due.value
                 FOR NO KEY UPDATE OF held SKIP LOCKED"
            )
        };
        let update = |expire_at: &str, rows: &str| {
            format!(
                "UPDATE {table} AS held SET expire_at = {expire_at} FROM {rows} AS row
                 WHERE held.key = row.key AND held.value = row.value
                 RETURNING held.key, held.value, held.expire_at"
            )
        };
        // A row that was left out, although it was ours when the statement started, is locked.
        let outcome = format!(
            "LEFT JOIN touched ON touched.key = due.key AND touched.value = due.value
             LEFT JOIN {table} AS seen ON seen.key = due.key AND seen.value = due.value"
        );
        let ended =
            "SELECT * FROM unnest($1, $2, $3) WITH ORDINALITY AS due(key, value, channel, n)";
        Self {
            acquire_slot: format!(
                "WITH slot_end AS ({SLOT_END}), slot AS ({slot}), fence AS ({})
                 {slot_answer}, {} FROM (SELECT 1) AS one {}",
                fence("$8", "slot"),
                columns("slot", "seen"),
                seen("seen", "$3"),
            ),
            acquire_lease: format!(
                "WITH lease AS ({}), fence AS ({}) {answer}, {} FROM (SELECT 1) AS one {}",
                lease("$3", "$4", ""),
                fence("$5", "lease"),
                columns("lease", "seen"),
                seen("seen", "$3"),
            ),
            // The lease is tried only when the slot was taken: its source is the slot's row.
            acquire_both: format!(
                "WITH slot_end AS ({SLOT_END}), slot AS ({slot}), lease AS ({}), fence AS ({})
                 {slot_answer}, {}, {} FROM (SELECT 1) AS one {} {}",
                lease("$8", "$9", "FROM slot"),
                fence("$10", "lease"),
                columns("slot", "seen_slot"),
                columns("lease", "seen_lease"),
                seen("seen_slot", "$3"),
                seen("seen_lease", "$8"),
            ),
            renew: format!(
                "WITH due AS (
                     SELECT * FROM unnest($1, $2, $3) WITH ORDINALITY AS due(key, value, ttl, n)
                     WHERE (SELECT {DURABLE})
                 ), free AS ({}), touched AS ({}) SELECT {TOUCHED} FROM due {} ORDER BY due.n",
                free("due.ttl"),
                update(
                    "GREATEST(held.expire_at, NOW() + row.ttl * INTERVAL '1 second')",
                    "free"
                ),
                outcome,
            ),
            expire: format!(
                "WITH due AS ({ended}), free AS ({}), touched AS ({})
                 SELECT {TOUCHED}, {NOTIFY} FROM due {outcome} ORDER BY due.n",
                free("due.channel"),
                update("NOW()", "free"),
            ),
            expire_waiting: format!(
                "WITH due AS ({ended}), touched AS ({})
                 SELECT {TOUCHED}, {NOTIFY} FROM due {outcome} ORDER BY due.n",
                update("NOW()", "due"),
            ),
            read: format!(
                "SELECT NOW(), seen.value, seen.expire_at FROM (SELECT 1) AS one {}",
                seen("seen", "$1")
            ),
        }
    }
}
