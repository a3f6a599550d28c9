//! A dry run: everything that a run would need is looked at, nothing is started or written.

use std::time::{Duration, Instant as Stopwatch};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::findings::{self, Finding};
use super::with_connection;
use crate::context::{LockContext, LockStrategy, SlotSource};
use crate::db::admin;
use crate::db::connect::Connection;
use crate::db::conninfo::{Name, Place};
use crate::db::failure::{Failure, answer_by};
use crate::db::store::{Holder, Store};
use crate::db::timestamp::RowTime;
use crate::error::Error;
use crate::rules::slot;
use crate::zones::zones;

/// What a check found, in the order in which it was looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// The next ticks of the schedule, if there is one.
    pub(crate) ticks: Vec<String>,
}

/// Checks whether a run of `strategies` could work; none of them when they could not be told.
pub(crate) fn check(ctx: &LockContext, strategies: &[LockStrategy]) -> Report {
    let mut report = Report::default();
    let started = Stopwatch::now();
    let looked = with_connection(
        ctx,
        async |connection, by| {
            let took = started.elapsed();
            look(ctx, strategies, connection, took, by, &mut report).await
        },
        |failure| failure.explain(ctx, "cannot look at the database"),
    );
    if let Err(error) = looked {
        report.findings.push(Finding::fail(
            "connection",
            format!("{error:#}"),
            "psql -w with the same URL should say the same; else see the database's log",
        ));
    }
    if strategies.contains(&LockStrategy::Lease) {
        report
            .findings
            .push(findings::lease(&ctx.settings().timing));
    }
    report
}

async fn look(
    ctx: &LockContext,
    strategies: &[LockStrategy],
    connection: &Connection,
    took: Duration,
    by: Instant,
    report: &mut Report,
) -> Result<(), Failure> {
    let settings = ctx.settings();
    let table = &settings.table;
    let client = connection.client();
    let Report { findings, ticks } = report;

    let session = answer_by(connection, by, admin::session_facts(client)).await?;
    let user = Name::user(&session.user);
    let is_tcp = matches!(connection.host().place, Place::Tcp { .. });
    findings.push(Finding::ok(
        "connection",
        format!(
            "{} as {} to database {}, PostgreSQL {}, {}, in {took:.0?}",
            connection.host(),
            user,
            Name::database(&session.database),
            // Without the packager's name for it.
            session.version.split(' ').next().unwrap_or_default(),
            match (is_tcp, connection.is_encrypted()) {
                (_, true) => "with TLS",
                (true, false) => "without TLS",
                (false, false) => "over a Unix socket",
            }
        ),
    ));
    findings.extend(findings::session(&session));

    let before = Timestamp::now();
    let database_now = answer_by(connection, by, admin::clock(client)).await?;
    let after = Timestamp::now();
    findings.push(findings::pooler(connection.is_with(session.backend)));

    match answer_by(connection, by, admin::table_facts(client, table)).await? {
        None => findings.push(Finding::fail(
            "table",
            format!("{table} does not exist"),
            "create it with --init, or name another one with --table",
        )),
        Some(facts) => {
            findings.extend(findings::shape(table, &facts));
            findings.push(findings::privileges(table, &facts, &user.to_string()));
            if facts.rights.select && facts.rights.usage {
                let store = Store::new(table);
                for strategy in strategies {
                    let key = match strategy {
                        LockStrategy::Schedule => ctx.schedule_key(),
                        LockStrategy::Lease => ctx.lease_key(),
                    };
                    let (row, now) = answer_by(connection, by, store.read(client, &key)).await?;
                    findings.push(lock(&key, row, RowTime::At(now)));
                }
            }
        }
    }

    let schedule = strategies.contains(&LockStrategy::Schedule);
    if let RowTime::At(database_now) = database_now {
        let half_way = after.duration_since(before) / 2;
        let difference = before.duration_since(database_now) + half_way;
        let tolerance = schedule.then_some(settings.slot_tolerance);
        findings.push(findings::clocks(rounded(difference), tolerance));
    }

    if let (true, Some(SlotSource::Crontab(crontab))) = (schedule, &settings.slot) {
        let clock = answer_by(connection, by, Store::new(table).clock(client)).await?;
        let zone = match &settings.timezone {
            Some(zone) => zone.clone(),
            None => slot::session_zone(&clock.zone, clock.utc_offset, clock.now, zones())
                .map_err(|e| Error::database(e.to_string()))?,
        };
        let (found, next) = findings::schedule(
            crontab,
            &zone,
            settings.timezone.is_some(),
            &TimeZone::system(),
            clock.now,
            settings.slot_tolerance,
        );
        findings.extend(found);
        *ticks = next;
    }
    Ok(())
}

/// Whether the row is free right now.
fn lock(key: &str, row: Option<Holder>, now: RowTime) -> Finding {
    let text = match row.filter(|row| row.expire_at > now) {
        Some(holder) => format!(
            "{key} is held by {} until {}",
            holder.value, holder.expire_at
        ),
        None => format!("{key} is free"),
    };
    Finding::ok("lock", text)
}

/// To the millisecond: more is noise of the network.
fn rounded(difference: SignedDuration) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(difference.as_millis()).unwrap_or(i64::MAX))
}
