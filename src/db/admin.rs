//! The statements of the operator's commands and the decoding of their rows; with
//! [`store`](super::store) all SQL that there is.
//!
//! As there, each operation is one statement and no explicit transaction, so that a connection pooler
//! in transaction mode does no harm. Rows of other programs in the same table are never touched.

use std::time::Duration;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::store::channel;
use super::timestamp::RowTime;
use crate::context::{
    DEFAULT_TABLE, FENCE_PREFIX, LEASE_PREFIX, LockStrategy, SCHEDULE_PREFIX, TableName, identifier,
};

type SqlResult<T> = Result<T, tokio_postgres::Error>;

/// The statement that creates the default table.
const SCHEMA: &str = include_str!("../../schema.sql");

/// What hosts that create the table at the same time agree on; any number would do.
const CREATION_LOCK: i64 = 0x6469_736c_6f63_6b00;

/// A lock's row as it stood when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockRow {
    pub(crate) lock_key: String,
    pub(crate) kind: LockStrategy,
    pub(crate) holder: String,
    pub(crate) expire_at: RowTime,
    /// The database's clock when the row was read.
    pub(crate) now: RowTime,
    /// The last fencing token that was drawn for the lock key, if any was.
    pub(crate) token: Option<String>,
}

impl LockRow {
    pub(crate) fn is_live(&self) -> bool {
        self.expire_at > self.now
    }

    /// Reads `key, value, expire_at, NOW(), token`; `None` for a row that is no lock.
    fn read(row: &Row) -> SqlResult<Option<Self>> {
        let key: &str = row.try_get(0)?;
        let kinds = [
            (SCHEDULE_PREFIX, LockStrategy::Schedule),
            (LEASE_PREFIX, LockStrategy::Lease),
        ];
        let found = kinds
            .into_iter()
            .find_map(|(prefix, kind)| Some((key.strip_prefix(prefix)?, kind)));
        let Some((lock_key, kind)) = found else {
            return Ok(None);
        };
        Ok(Some(Self {
            lock_key: lock_key.to_owned(),
            kind,
            holder: row.try_get(1)?,
            expire_at: row.try_get(2)?,
            now: row.try_get(3)?,
            token: row.try_get(4)?,
        }))
    }
}

/// The condition that a row is a lock.
fn is_lock(alias: &str) -> String {
    format!("({alias}.key LIKE '{SCHEDULE_PREFIX}%' OR {alias}.key LIKE '{LEASE_PREFIX}%')")
}

/// The key of the row that counts a lock's acquisitions.
fn fence_key(alias: &str) -> String {
    format!(
        "CASE WHEN {alias}.key LIKE '{LEASE_PREFIX}%'
         THEN '{FENCE_PREFIX}' || substr({alias}.key, {})
         ELSE '{FENCE_PREFIX}' || substr({alias}.key, {}) END",
        LEASE_PREFIX.len() + 1,
        SCHEDULE_PREFIX.len() + 1,
    )
}

/// The locks of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    /// In the order of keys.
    pub(crate) locks: Vec<LockRow>,
    /// The keys of rows that nobody can take, because something in them is NULL.
    pub(crate) broken: Vec<String>,
}

/// Every lock; those that have expired only with `all`.
pub(crate) async fn list(client: &Client, table: &TableName, all: bool) -> SqlResult<Listed> {
    let sql = format!(
        "SELECT held.key, held.value, held.expire_at, NOW(), fence.value
         FROM {table} AS held LEFT JOIN {table} AS fence ON fence.key = {fence}
         WHERE {lock} AND ($1 OR COALESCE(held.expire_at > NOW(), true))",
        table = table.sql(),
        fence = fence_key("held"),
        lock = is_lock("held"),
    );
    let rows = client.query_typed(&sql, &[(&all, Type::BOOL)]).await?;
    let mut listed = Listed::default();
    for row in &rows {
        let holder: Option<&str> = row.try_get(1)?;
        let expire_at: Option<RowTime> = row.try_get(2)?;
        if holder.is_none() || expire_at.is_none() {
            listed.broken.push(row.try_get(0)?);
        } else {
            listed.locks.extend(LockRow::read(row)?);
        }
    }
    // Not by the database's collation, which differs from one to the other.
    let locks = &mut listed.locks;
    locks.sort_by(|a, b| (&a.lock_key, a.kind).cmp(&(&b.lock_key, b.kind)));
    listed.broken.sort();
    Ok(listed)
}

/// Ends the live rows among `keys`, if they are to be taken away `by_force`, and answers all of them
/// as they were, exactly: nothing can come between looking and ending.
///
/// The row stays, with `operator` as its value: the owner guard of whoever had it then rejects the
/// next renewal, and no right to delete is needed. Those who wait for the row are told. A row that
/// cannot be read is left alone: what fails has done nothing.
///
/// The slot is locked before the lease, as by an acquisition of both: so the two never wait for each other.
pub(crate) async fn release(
    client: &Client,
    table: &TableName,
    keys: &[String],
    operator: &str,
    by_force: bool,
) -> SqlResult<Vec<LockRow>> {
    let sql = format!(
        "WITH seen AS (
             SELECT key, value, expire_at FROM {table} WHERE key = ANY($1)
             ORDER BY key DESC FOR UPDATE
         ), released AS (
             UPDATE {table} AS held SET value = $2, expire_at = NOW() FROM seen
             WHERE $3 AND held.key = seen.key AND seen.expire_at > NOW() AND seen.value IS NOT NULL
               AND pg_typeof(seen.expire_at) = 'timestamptz'::regtype
             RETURNING held.key
         ), announced AS (
             SELECT pg_notify(due.channel, '') FROM unnest($1, $4) AS due(key, channel)
             JOIN released ON released.key = due.key
         )
         SELECT seen.key, seen.value, seen.expire_at, NOW(), fence.value,
                (SELECT count(*) FROM announced)
         FROM seen LEFT JOIN {table} AS fence ON fence.key = {fence}",
        table = table.sql(),
        fence = fence_key("seen"),
    );
    let channels: Vec<String> = keys.iter().map(|key| channel(key)).collect();
    let params: &[(&(dyn ToSql + Sync), Type)] = &[
        (&keys, Type::TEXT_ARRAY),
        (&operator, Type::TEXT),
        (&by_force, Type::BOOL),
        (&channels, Type::TEXT_ARRAY),
    ];
    let rows = client.query_typed(&sql, params).await?;
    let found = rows.iter().filter_map(|row| LockRow::read(row).transpose());
    let mut locks = found.collect::<SqlResult<Vec<LockRow>>>()?;
    locks.sort_by_key(|lock| lock.kind);
    Ok(locks)
}

/// Deletes the locks that expired longer than `age` ago; answers how many. The rows that count
/// acquisitions stay, so that no fencing token is ever given out twice.
pub(crate) async fn prune(client: &Client, table: &TableName, age: Duration) -> SqlResult<u64> {
    let sql = format!(
        "DELETE FROM {} AS held WHERE {} AND held.expire_at < NOW() - $1 * INTERVAL '1 second'",
        table.sql(),
        is_lock("held"),
    );
    let age = age.as_secs_f64();
    client.execute_typed(&sql, &[(&age, Type::FLOAT8)]).await
}

/// Creates the table, and its schema, unless they exist.
///
/// Several statements in one message are one transaction; the lock makes those wait for each other
/// that do this at the same time, because `IF NOT EXISTS` alone fails for the second one. A schema that
/// exists is not asked for: that would need the right to create schemas.
pub(crate) async fn create(client: &Client, table: &TableName) -> SqlResult<()> {
    let schema = match table.schema() {
        Some(schema) if !schema_exists(client, schema).await? => {
            format!("CREATE SCHEMA IF NOT EXISTS {};", identifier(schema))
        }
        Some(_) | None => String::new(),
    };
    let table = SCHEMA.replacen(DEFAULT_TABLE, table.sql(), 1);
    let sql = format!("SELECT pg_advisory_xact_lock({CREATION_LOCK}); {schema} {table}");
    client.batch_execute(&sql).await
}

async fn schema_exists(client: &Client, schema: &str) -> SqlResult<bool> {
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";
    let row = client
        .query_typed_one(sql, &[(&schema, Type::TEXT)])
        .await?;
    row.try_get(0)
}

/// What a session says of itself and of the server.
#[derive(Clone, Debug)]
pub(crate) struct SessionFacts {
    pub(crate) version: String,
    pub(crate) database: String,
    pub(crate) user: String,
    pub(crate) in_recovery: bool,
    pub(crate) read_only: bool,
    pub(crate) isolation: String,
    pub(crate) backend: i32,
}

pub(crate) async fn session_facts(client: &Client) -> SqlResult<SessionFacts> {
    let sql = "SELECT current_setting('server_version'), current_database()::text, \
               current_user::text, pg_is_in_recovery(), \
               current_setting('transaction_read_only') = 'on', \
               current_setting('transaction_isolation'), pg_backend_pid()";
    let row = client.query_typed_one(sql, &[]).await?;
    Ok(SessionFacts {
        version: row.try_get(0)?,
        database: row.try_get(1)?,
        user: row.try_get(2)?,
        in_recovery: row.try_get(3)?,
        read_only: row.try_get(4)?,
        isolation: row.try_get(5)?,
        backend: row.try_get(6)?,
    })
}

/// The database's clock at this very moment.
pub(crate) async fn clock(client: &Client) -> SqlResult<RowTime> {
    let sql = "SELECT clock_timestamp()";
    client.query_typed_one(sql, &[]).await?.try_get(0)
}

/// The table as the catalogue describes it.
#[derive(Clone, Debug)]
pub(crate) struct TableFacts {
    pub(crate) schema: String,
    /// `r` for an ordinary table, `p` for a partitioned one, `v` for a view, …
    pub(crate) kind: String,
    pub(crate) unlogged: bool,
    /// Policies hide rows from this role, or may.
    pub(crate) row_security: bool,
    /// `ON CONFLICT (key)` has an index to infer.
    pub(crate) unique_key: bool,
    pub(crate) columns: Vec<Column>,
    /// What the role may do there.
    pub(crate) rights: Rights,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) sql_type: String,
    pub(crate) not_null: bool,
    pub(crate) has_default: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) usage: bool,
    pub(crate) select: bool,
    pub(crate) insert: bool,
    pub(crate) update: bool,
}

/// The table, if it is where unquoted SQL would find it. Needs no right on it.
pub(crate) async fn table_facts(
    client: &Client,
    table: &TableName,
) -> SqlResult<Option<TableFacts>> {
    let sql = "
        SELECT c.oid, n.nspname::text, c.relkind::text, c.relpersistence = 'u',
               row_security_active(c.oid),
               EXISTS (
                   SELECT FROM pg_catalog.pg_index AS i
                   JOIN pg_catalog.pg_attribute AS a
                     ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = 'key'
                   WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
                     AND i.indpred IS NULL AND i.indnkeyatts = 1
               ),
               has_schema_privilege(n.oid, 'USAGE'),
               has_table_privilege(c.oid, 'SELECT'),
               has_table_privilege(c.oid, 'INSERT'),
               has_table_privilege(c.oid, 'UPDATE')
        FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
          AND CASE WHEN $2::text IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = $2 END";
    let params: &[(&(dyn ToSql + Sync), Type)] =
        &[(&table.name(), Type::TEXT), (&table.schema(), Type::TEXT)];
    let Some(row) = client.query_typed_opt(sql, params).await? else {
        return Ok(None);
    };
    Ok(Some(TableFacts {
        schema: row.try_get(1)?,
        kind: row.try_get(2)?,
        unlogged: row.try_get(3)?,
        row_security: row.try_get(4)?,
        unique_key: row.try_get(5)?,
        columns: columns(client, row.try_get(0)?).await?,
        rights: Rights {
            usage: row.try_get(6)?,
            select: row.try_get(7)?,
            insert: row.try_get(8)?,
            update: row.try_get(9)?,
        },
    }))
}

async fn columns(client: &Client, table: u32) -> SqlResult<Vec<Column>> {
    let sql = "
        SELECT attname::text, format_type(atttypid, atttypmod), attnotnull,
               atthasdef OR attidentity <> ''
        FROM pg_catalog.pg_attribute
        WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let rows = client.query_typed(sql, &[(&table, Type::OID)]).await?;
    rows.iter()
        .map(|row| {
            Ok(Column {
                name: row.try_get(0)?,
                sql_type: row.try_get(1)?,
                not_null: row.try_get(2)?,
                has_default: row.try_get(3)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_its_table_where_another_name_is_put() {
        let named = SCHEMA.replacen(DEFAULT_TABLE, "\"other\"", 1);
        assert!(
            named.contains("CREATE TABLE IF NOT EXISTS \"other\" ("),
            "{named}"
        );
        assert!(!named.contains(DEFAULT_TABLE), "{named}");
    }
}
