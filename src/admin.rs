//! What an operator asks for: make the table, look at locks, take one away, tidy up, check.
//!
//! Each call opens one connection, blocks within bounds, and leaves nothing behind. A failure that
//! may pass is retried while connecting, for as long as the context's connect timeout says; a
//! statement is sent once, so that what is reported is what was done.

mod check;
mod findings;

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::context::{LockContext, LockStrategy, TableName};
use crate::db::admin::{self, Listed, TableFacts};
use crate::db::connect::{Connection, connect};
use crate::db::failure::{Failure, NULL, answer_by, misshapen};
use crate::error::{Error, Result};
use crate::random;
use crate::rules::retry::{Backoff, FailureClass};

pub(crate) use crate::db::admin::LockRow;
pub(crate) use check::{Report, check};
pub(crate) use findings::{Finding, Verdict};

/// For one attempt to connect when no time to keep trying was granted, and for the statements.
const LIMIT: Duration = Duration::from_secs(10);

/// How often the table is tried to be created when somebody else is doing the same without our lock.
const CREATION_ATTEMPTS: usize = 5;

/// What the creation of the table came to.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    /// The table was not there before.
    pub(crate) created: bool,
    /// The schema that it is in.
    pub(crate) schema: String,
}

/// Creates the context's table, and its schema, where they are missing.
pub(crate) fn init(ctx: &LockContext) -> Result<Creation> {
    let table = &ctx.settings().table;
    let what = format!("cannot create table {table}");
    let (created, facts) = with_connection(
        ctx,
        async |connection, by| {
            let client = connection.client();
            let before = answer_by(connection, by, admin::table_facts(client, table)).await?;
            if let Some(facts) = before {
                return Ok((false, Some(facts)));
            }
            let mut attempts = 1..=CREATION_ATTEMPTS;
            loop {
                let attempt = attempts.next();
                match answer_by(connection, by, admin::create(client, table)).await {
                    Err(failure) if attempt.is_some() && is_a_race(&failure) => {}
                    answer => break answer?,
                }
            }
            let after = answer_by(connection, by, admin::table_facts(client, table)).await?;
            Ok((true, after))
        },
        |failure| match failure.sqlstate() {
            Some("42501") => {
                let advice = format!(
                    "the role needs CREATE on {}; let the database's owner do it",
                    table.schema().map_or_else(
                        || "a schema of its search_path".to_owned(),
                        |schema| format!(
                            "schema {schema}, or on the database if there is no such schema"
                        )
                    )
                );
                failure.explain_with(ctx, &what, &advice)
            }
            _ => failure.explain(ctx, &what),
        },
    )?;
    let facts = facts
        .ok_or_else(|| Error::database(format!("{what}: it is gone as soon as it is made")))?;
    refuse_other_shapes(table, &facts)?;
    Ok(Creation {
        created,
        schema: facts.schema,
    })
}

/// Somebody creates the same thing right now. Which code comes of it depends on how far they are.
fn is_a_race(failure: &Failure) -> bool {
    matches!(
        failure.sqlstate(),
        Some("23505" | "42P06" | "42P07" | "42710" | "XX000" | "40P01" | "40001")
    )
}

/// A table that somebody else made for something else is not ready for use.
fn refuse_other_shapes(table: &TableName, facts: &TableFacts) -> Result<()> {
    let faults: Vec<String> = findings::shape(table, facts)
        .into_iter()
        .filter(|finding| finding.verdict == Verdict::Fail)
        .map(|finding| finding.text)
        .collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(Error::database(format!(
        "table {table} exists and cannot hold locks: {}",
        faults.join("; ")
    )))
}

/// Every lock in the context's table that can be read, those that have expired only with `all`; and
/// what is wrong with the others.
pub(crate) fn list(ctx: &LockContext, all: bool) -> Result<(Vec<LockRow>, Option<Error>)> {
    let settings = ctx.settings();
    let table = &settings.table;
    let Listed { locks, broken } = with_connection(
        ctx,
        async |connection, by| {
            answer_by(connection, by, admin::list(connection.client(), table, all)).await
        },
        |failure| failure.explain(ctx, "cannot list the locks"),
    )?;
    let wrong = (!broken.is_empty()).then(|| {
        Error::database(format!(
            "cannot list all the locks at {}: {}: {NULL} in {}",
            settings.conninfo.describe(),
            misshapen(table),
            broken.join(", ")
        ))
    });
    Ok((locks, wrong))
}

/// What stands in the rows of the context's lock, after they have been ended if `by_force`.
pub(crate) fn release(
    ctx: &LockContext,
    kinds: &[LockStrategy],
    by_force: bool,
) -> Result<Vec<LockRow>> {
    let table = &ctx.settings().table;
    let operator = format!("{}:released", ctx.owner());
    let mut keys = Vec::new();
    if kinds.contains(&LockStrategy::Schedule) {
        keys.push(ctx.schedule_key());
    }
    if kinds.contains(&LockStrategy::Lease) {
        keys.push(ctx.lease_key());
    }
    with_connection(
        ctx,
        async |connection, by| {
            let client = connection.client();
            answer_by(
                connection,
                by,
                admin::release(client, table, &keys, &operator, by_force),
            )
            .await
        },
        |failure| failure.into_error(ctx, "cannot release"),
    )
}

/// Deletes the locks that expired longer than `age` ago; answers how many.
pub(crate) fn prune(ctx: &LockContext, age: Duration) -> Result<u64> {
    let table = &ctx.settings().table;
    let what = "cannot delete expired locks";
    with_connection(
        ctx,
        async |connection, by| {
            answer_by(
                connection,
                by,
                admin::prune(connection.client(), table, age),
            )
            .await
        },
        |failure| match failure.sqlstate() {
            Some("42501") => {
                let grant = format!("GRANT DELETE ON {} TO the role", table.sql());
                failure.explain_with(ctx, what, &format!("pruning needs: {grant}"))
            }
            _ => failure.explain(ctx, what),
        },
    )
}

/// Runs `work` over a connection of its own.
fn with_connection<T>(
    ctx: &LockContext,
    work: impl AsyncFnOnce(&Connection, Instant) -> Result<T, Failure>,
    explain: impl FnOnce(Failure) -> Error,
) -> Result<T> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| Error::system("cannot talk to the database", why))?;
    let outcome = runtime.block_on(async {
        let connection = connect_patiently(ctx).await?;
        let outcome = work(&connection, Instant::now() + LIMIT).await;
        if matches!(outcome, Err(Failure::Silent)) {
            // What is reported as not done is not to be done when a lock comes free.
            connection.cancel();
        }
        connection.close().await;
        outcome
    });
    // A name look-up that hangs must not hang us.
    runtime.shutdown_background();
    outcome.map_err(explain)
}

/// Connects, retrying what may pass until the connect timeout is over.
async fn connect_patiently(ctx: &LockContext) -> Result<Connection, Failure> {
    let settings = ctx.settings();
    let give_up = Instant::now() + settings.connect_timeout;
    let attempt = match settings.connect_timeout {
        Duration::ZERO => LIMIT,
        limit => limit,
    };
    let mut backoff = Backoff::default();
    loop {
        let failure = match connect(&settings.conninfo, Instant::now() + attempt).await {
            Ok(connection) => return Ok(connection),
            Err(error) => Failure::from(error),
        };
        let left = give_up.saturating_duration_since(Instant::now());
        let pause = match failure.class() {
            FailureClass::Passing => backoff.pause(left, random::fraction()),
            FailureClass::Permanent => None,
        };
        let Some(pause) = pause else {
            return Err(failure);
        };
        log::debug!(
            "retrying in {pause:?}: {:#}",
            failure.explain(ctx, "cannot connect")
        );
        sleep(pause).await;
    }
}
