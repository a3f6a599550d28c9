//! What a check makes of the facts: fine, worth a thought, or in the way.
//!
//! Pure: facts and settings in, findings out.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::context::{TableName, identifier};
use crate::db::admin::{Column, SessionFacts, TableFacts};
use crate::rules::cron::Crontab;
use crate::rules::lease::LeaseTiming;
use crate::rules::slot;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Ok,
    /// It works, but not as well as it should, or not always.
    Warn,
    /// A run would fail.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    pub(crate) subject: &'static str,
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) advice: Option<String>,
}

impl Finding {
    pub(crate) fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Ok,
            subject,
            text: text.into(),
            advice: None,
        }
    }

    pub(crate) fn warn(
        subject: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Warn,
            advice: Some(advice.into()),
            ..Self::ok(subject, text)
        }
    }

    pub(crate) fn fail(
        subject: &'static str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Fail,
            ..Self::warn(subject, text, advice)
        }
    }
}

/// What the server is, whether it can be written to, and how it isolates transactions.
pub(crate) fn session(facts: &SessionFacts) -> Vec<Finding> {
    let writable = if facts.in_recovery || facts.read_only {
        let why = match facts.in_recovery {
            true => "the server is a standby",
            false => "transactions are read-only here",
        };
        Finding::fail(
            "read-write",
            why,
            "connect to the primary, for example with target_session_attrs=read-write",
        )
    } else {
        Finding::ok("read-write", "the server takes writes")
    };
    let isolation = match &*facts.isolation {
        level @ ("read committed" | "read uncommitted") => Finding::ok("isolation", level),
        level => Finding::warn(
            "isolation",
            format!("{level}: when hosts meet, some are refused and have to try again"),
            "ALTER ROLE … SET default_transaction_isolation = 'read committed'",
        ),
    };
    vec![writable, isolation]
}

/// Whether a pooler stands between us and the server: then we are not with the process that answers.
pub(crate) fn pooler(with_the_server: bool) -> Finding {
    let text = match with_the_server {
        true => "none is seen",
        false => "one stands between: it works, and a wait looks once a second",
    };
    Finding::ok("pooler", text)
}

/// The table's columns, types and index.
pub(crate) fn shape(table: &TableName, facts: &TableFacts) -> Vec<Finding> {
    const SUBJECT: &str = "table";
    let mut findings = Vec::new();
    if !matches!(&*facts.kind, "r" | "p") {
        findings.push(Finding::fail(
            SUBJECT,
            format!("{table} is a view or a foreign table, not a table"),
            "name another one with --table and create it with --init",
        ));
        return findings;
    }
    for (name, wanted) in [
        ("key", "text"),
        ("value", "text"),
        ("expire_at", "timestamp with time zone"),
    ] {
        let column = facts.columns.iter().find(|column| column.name == name);
        findings.extend(column_finding(table, name, wanted, column));
    }
    let ours = ["key", "value", "expire_at"];
    for other in &facts.columns {
        if !ours.contains(&&*other.name) && other.not_null && !other.has_default {
            findings.push(Finding::fail(
                SUBJECT,
                format!(
                    "{table} has a column {} that must be given a value",
                    other.name
                ),
                format!(
                    "ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL",
                    table.sql(),
                    identifier(&other.name)
                ),
            ));
        }
    }
    if !facts.unique_key {
        findings.push(Finding::fail(
            SUBJECT,
            format!("{table} has no primary key or unique index on key alone"),
            format!("ALTER TABLE {} ADD PRIMARY KEY (key)", table.sql()),
        ));
    }
    if facts.unlogged {
        findings.push(Finding::warn(
            SUBJECT,
            format!(
                "{table} is unlogged: after a crash of the server it is empty, and every lock free"
            ),
            format!("ALTER TABLE {} SET LOGGED", table.sql()),
        ));
    }
    if facts.row_security {
        findings.push(Finding::warn(
            SUBJECT,
            format!("{table} has row-level security: rows that are hidden cannot be locked"),
            "a policy that lets this role see and change every row whose key begins with cronjob-lock:",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            SUBJECT,
            format!(
                "{table} in schema {}: columns and key as they should be",
                facts.schema
            ),
        ));
    }
    findings
}

fn column_finding(
    table: &TableName,
    name: &str,
    wanted: &str,
    column: Option<&Column>,
) -> Option<Finding> {
    let alter = |what: &str| format!("ALTER TABLE {} {what}", table.sql());
    let Some(column) = column else {
        return Some(Finding::fail(
            "table",
            format!("{table} has no column {name}"),
            alter(&format!("ADD COLUMN {name} {wanted} NOT NULL")),
        ));
    };
    let found = &*column.sql_type;
    if found == wanted {
        return None;
    }
    let text = format!("column {name} of {table} is {found} and should be {wanted}");
    let advice = alter(&format!("ALTER COLUMN {name} TYPE {wanted}"));
    // Works as long as nothing longer is written to it.
    match found.starts_with("character varying") {
        true => Some(Finding::warn("table", text, advice)),
        false => Some(Finding::fail("table", text, advice)),
    }
}

/// What the role may do with the table.
pub(crate) fn privileges(table: &TableName, facts: &TableFacts, user: &str) -> Finding {
    let rights = facts.rights;
    let wanted = [
        (rights.select, "SELECT"),
        (rights.insert, "INSERT"),
        (rights.update, "UPDATE"),
    ];
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(has, _)| !has)
        .map(|(_, right)| *right)
        .collect();
    let mut grants = Vec::new();
    if !rights.usage {
        grants.push(format!(
            "GRANT USAGE ON SCHEMA {} TO {}",
            identifier(&facts.schema),
            identifier(user)
        ));
    }
    if !missing.is_empty() {
        grants.push(format!(
            "GRANT {} ON {} TO {}",
            missing.join(", "),
            table.sql(),
            identifier(user)
        ));
    }
    if grants.is_empty() {
        return Finding::ok(
            "privileges",
            format!("{user} may SELECT, INSERT and UPDATE"),
        );
    }
    let lacking = match rights.usage {
        true => format!("{} on {table}", missing.join(", ")),
        false => format!("the use of schema {}", facts.schema),
    };
    Finding::fail(
        "privileges",
        format!("{user} lacks {lacking}"),
        grants.join("; "),
    )
}

/// How far this host's clock is from the database's. Only slots are taken by cron's clock, so only
/// they care; `tolerance` is `None` without a schedule.
pub(crate) fn clocks(difference: SignedDuration, tolerance: Option<Duration>) -> Finding {
    let seconds = difference.as_secs_f64();
    let text = match seconds {
        s if s.abs() < 0.05 => "this host and the database agree".to_owned(),
        s if s > 0.0 => format!("this host is {s:.2} s ahead of the database"),
        s => format!("this host is {:.2} s behind the database", -s),
    };
    match tolerance {
        Some(t) if difference.unsigned_abs() > t => Finding::warn(
            "clock",
            format!(
                "{text}, more than the slot tolerance of {t:?}: a tick can be missed or start twice"
            ),
            "set the clocks by NTP, or raise --slot-tolerance",
        ),
        Some(_) => Finding::ok("clock", text),
        None => Finding::ok("clock", format!("{text}; a lease does not depend on it")),
    }
}

/// Whether the lease leaves time to stop in, and to fail in.
pub(crate) fn lease(timing: &LeaseTiming) -> Finding {
    let LeaseTiming { ttl, interval, .. } = *timing;
    let margin =
        Duration::from_millis(u64::try_from(timing.margin().as_millis()).unwrap_or(u64::MAX));
    let left = match margin {
        Duration::ZERO => "no time".to_owned(),
        some => format!("{some:?}"),
    };
    let text = format!(
        "TTL {ttl:?}, renewed every {interval:?}; {left} to stop the command in when renewals fail"
    );
    if timing.kill_grace.is_zero() {
        return Finding::warn(
            "lease",
            format!("{text}: the kill and the row's expiry are milliseconds apart"),
            "raise --kill-grace",
        );
    }
    if margin < Duration::from_secs(1) && margin < timing.kill_grace {
        return Finding::warn(
            "lease",
            format!("{text}: that is very little"),
            "raise --ttl, or lower --lease-interval to a third of it",
        );
    }
    if ttl.saturating_sub(margin) < interval.saturating_mul(2) {
        return Finding::warn(
            "lease",
            format!("{text}: one renewal that fails costs the lease"),
            "lower --lease-interval to a third of the TTL",
        );
    }
    Finding::ok("lease", text)
}

/// How many ticks are shown.
const TICKS: usize = 5;

/// The next ticks of the schedule in its zone, and what may be odd about them. `here` is the zone in
/// which a cron daemon on this host most likely reads the same line.
pub(crate) fn schedule(
    crontab: &Crontab,
    zone: &TimeZone,
    zone_was_given: bool,
    here: &TimeZone,
    now: Timestamp,
    tolerance: Duration,
) -> (Vec<Finding>, Vec<String>) {
    let next_ticks = |zone| crontab.ticks_after(now, zone).take(TICKS).collect();
    let name = zone_name(zone, "a zone given by its rule");
    let ticks: Vec<Timestamp> = next_ticks(zone);
    let mut findings = Vec::new();
    if !zone_was_given && next_ticks(here) != ticks {
        findings.push(Finding::warn(
            "schedule",
            format!(
                "read in {name}, the database session's zone; cron on this host would read it in {}",
                zone_name(here, "the local time zone")
            ),
            "set --timezone to the zone in which cron reads the crontab",
        ));
    }
    if !zone_was_given && slot::is_guessed(zone) {
        findings.push(Finding::warn(
            "schedule",
            format!(
                "read in {name}, as the database session has it now: its zone has no IANA name, and a \
                 change of the clocks will not be followed"
            ),
            "set --timezone to the IANA name of the zone",
        ));
    }
    let closest = ticks
        .windows(2)
        .map(|pair| pair[1].duration_since(pair[0]).unsigned_abs())
        .min();
    // Then a late start reckons with the tick that is still to come.
    if let Some(closest) = closest.filter(|closest| *closest <= tolerance.saturating_mul(2)) {
        findings.push(Finding::warn(
            "schedule",
            format!(
                "ticks are {closest:?} apart, at most twice the slot tolerance of {tolerance:?}"
            ),
            "lower --slot-tolerance",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("schedule", format!("read in {name}")));
    }
    let shown = ticks
        .iter()
        .map(|tick| {
            let tick = tick.to_zoned_datetime(zone.clone());
            format!("{}", tick.strftime("%a %Y-%m-%d %H:%M:%S %:z"))
        })
        .collect();
    (findings, shown)
}

fn zone_name(zone: &TimeZone, unnamed: &str) -> String {
    match (zone.iana_name(), zone.to_fixed_offset()) {
        (Some(name), _) => name.to_owned(),
        (None, Ok(offset)) => format!("UTC{offset}"),
        (None, Err(_)) => unnamed.to_owned(),
    }
}

#[cfg(test)]
mod tests;
