//! `--check`: what a run would need is looked at, and nothing is started or written.

use crate::support::database::Database;
use crate::support::pooler::Pooler;
use crate::support::run::{Dislock, Finished};
use crate::support::server::Server;

const NO_COMMAND: [&str; 0] = [];

/// Checks a run of both strategies.
fn dislock(url: String) -> Dislock {
    Dislock::schedule(url, "*/5 * * * *")
        .env("LOCK_STRATEGY", "schedule,lease")
        .options(&["--check"])
}

/// The line about a subject, and the advice below it.
fn finding(finished: &Finished, subject: &str) -> String {
    let mut lines = finished
        .stdout
        .lines()
        .skip_while(|line| line.split_whitespace().nth(1) != Some(subject));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("no {subject}: {finished:?}"));
    let advice = lines.next().filter(|line| line.trim().starts_with("->"));
    format!("{line}{}", advice.unwrap_or_default())
}

#[track_caller]
fn assert_finding(finished: &Finished, code: i32, subject: &str, verdict: &str, text: &str) {
    let found = finding(finished, subject);
    assert!(
        found.starts_with(verdict) && found.contains(text),
        "{finished:?}"
    );
    assert_eq!(finished.code, code, "{finished:?}");
}

#[test]
fn a_run_that_would_work_is_said_to_and_leaves_no_trace() {
    let database = Database::new();

    let checked = dislock(database.url()).run(["sh", "-c", "echo started"]);

    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(!checked.stdout.contains("started"), "{checked:?}");
    assert!(
        checked.stdout.ends_with("a run would work\n"),
        "{checked:?}"
    );
    assert!(!checked.stdout.contains("warn"), "{checked:?}");
    assert_eq!(database.rows(), 0);
    assert_eq!(checked.stderr, "");
}

#[test]
fn the_next_five_ticks_are_shown_in_their_zone() {
    let database = Database::new();

    let checked = Dislock::schedule(database.url(), "30 3 1 1 *")
        .options(&["--timezone", "Asia/Kathmandu", "--check"])
        .run(NO_COMMAND);

    let ticks = checked.stdout.matches("-01-01 03:30:00 +05:45").count();
    assert_eq!(ticks, 5, "{checked:?}");
}

#[test]
fn a_zone_that_differs_from_crons_is_worth_a_warning() {
    let database = Database::new();
    let checked = |zone: &str| {
        Dislock::schedule(database.url(), "30 3 * * *")
            .env("TZ", zone)
            .env("PGTZ", "UTC")
            .options(&["--check"])
            .run(NO_COMMAND)
    };

    assert_finding(
        &checked("Asia/Kathmandu"),
        0,
        "schedule",
        "warn",
        "Asia/Kathmandu",
    );
    assert_finding(&checked("UTC"), 0, "schedule", "ok", "read in UTC");
}

#[test]
fn a_wrong_configuration_is_2_and_the_rest_is_looked_at() {
    let database = Database::new();

    let checked = Dislock::schedule(database.url(), "61 * * * *")
        .options(&["--check"])
        .run(NO_COMMAND);

    assert_finding(&checked, 2, "configuration", "fail", "CRON_SCHEDULE");
    assert_finding(&checked, 2, "table", "ok", "key_value");
}

#[test]
fn a_database_out_of_reach_is_1() {
    let checked = dislock("postgresql://nobody@127.0.0.1:1/nothing".into())
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "0.2")
        .run(NO_COMMAND);

    assert_finding(&checked, 1, "connection", "fail", "127.0.0.1:1");
}

#[test]
fn a_missing_table_is_reported_with_what_creates_it() {
    let checked = dislock(Database::empty().url()).run(NO_COMMAND);

    assert_finding(&checked, 1, "table", "fail", "--init");
}

#[test]
fn faults_of_the_table_are_named_one_by_one() {
    let database = Database::empty();
    let faults = [
        (
            "key text, value text, expire_at timestamptz",
            "no primary key",
        ),
        (
            "key text PRIMARY KEY, expire_at timestamptz",
            "no column value",
        ),
        (
            "key text PRIMARY KEY, value text, expire_at timestamp",
            "timestamp with time zone",
        ),
        (
            "key text PRIMARY KEY, value text, expire_at timestamptz, more int NOT NULL",
            "more",
        ),
        (
            "key int PRIMARY KEY, value text, expire_at timestamptz",
            "is integer",
        ),
        (
            "key text, value text, expire_at timestamptz, PRIMARY KEY (key, value)",
            "no primary key",
        ),
    ];
    for (columns, fault) in faults {
        database.sql("DROP TABLE IF EXISTS key_value");
        database.sql(&format!("CREATE TABLE key_value ({columns})"));

        let checked = dislock(database.url()).run(NO_COMMAND);
        let run = Dislock::lease(database.url(), 60.0).run(["true"]);

        assert_finding(&checked, 1, "table", "fail", fault);
        assert_eq!(run.code, 1, "the check is wrong about {columns}: {run:?}");
    }
}

#[test]
fn a_table_that_works_all_the_same_is_no_failure() {
    let database = Database::empty();
    let tables = [
        (
            "UNLOGGED TABLE",
            "key text PRIMARY KEY, value text, expire_at timestamptz",
            "unlogged",
        ),
        (
            "TABLE",
            "key varchar(99) UNIQUE, value text, expire_at timestamptz",
            "character varying",
        ),
    ];
    for (kind, columns, doubt) in tables {
        database.sql("DROP TABLE IF EXISTS key_value");
        database.sql(&format!("CREATE {kind} key_value ({columns})"));

        let checked = dislock(database.url()).run(NO_COMMAND);
        let run = Dislock::lease(database.url(), 60.0).run(["true"]);

        assert_finding(&checked, 0, "table", "warn", doubt);
        assert_eq!(run.code, 0, "{run:?}");
    }
}

#[test]
fn missing_privileges_are_named_with_the_grants_that_mend_them() {
    let database = Database::new();
    let role = database.role("LOGIN PASSWORD 'x'");
    let check = dislock(database.url_as(&role, "x"));

    let before = check.run(NO_COMMAND);
    let advice = finding(&before, "privileges");
    let (_, grant) = advice.split_once("-> ").unwrap();
    database.sql(grant);
    let after = check.run(NO_COMMAND);

    assert_finding(
        &before,
        1,
        "privileges",
        "fail",
        "lacks SELECT, INSERT, UPDATE",
    );
    assert_finding(&after, 0, "privileges", "ok", &role);
}

#[test]
fn a_standby_cannot_hold_locks() {
    let server = Server::start();
    let database = server.database();
    server.become_standby();

    let checked = dislock(database.url()).run(NO_COMMAND);

    assert_finding(&checked, 1, "read-write", "fail", "standby");
}

#[test]
fn a_strict_isolation_is_worth_a_warning() {
    let database = Database::new();
    database.sql(&format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'",
        database.name()
    ));

    let checked = dislock(database.url()).run(NO_COMMAND);

    assert_finding(&checked, 0, "isolation", "warn", "serializable");
}

#[test]
fn a_pooler_is_seen_and_a_forwarded_port_is_none() {
    let server = Server::start();
    let database = server.database();
    let proxy = database.proxy();
    let pooler = Pooler::start(&server);

    let forwarded = dislock(database.url_via(&proxy)).run(NO_COMMAND);
    let pooled = dislock(pooler.url(&database)).run(NO_COMMAND);

    assert_finding(&forwarded, 0, "pooler", "ok", "none is seen");
    assert_finding(&pooled, 0, "pooler", "ok", "stands between");
}

#[test]
fn a_lease_with_no_time_to_stop_in_is_worth_a_warning() {
    let database = Database::new();
    let cases = [
        (2.0, "1", "10", "warn", "very little"),
        (60.0, "40", "10", "warn", "one renewal that fails"),
        (60.0, "10", "0", "warn", "milliseconds apart"),
        (60.0, "10", "10", "ok", "10s"),
    ];

    for (ttl, interval, grace, verdict, text) in cases {
        let checked = Dislock::lease(database.url(), ttl)
            .env("LOCK_LEASE_INTERVAL", interval)
            .env("LOCK_KILL_GRACE_SECONDS", grace)
            .options(&["--check"])
            .run(NO_COMMAND);
        assert_finding(&checked, 0, "lease", verdict, text);
    }
}

#[test]
fn a_command_that_is_not_found_fails() {
    let checked = dislock(Database::new().url()).run(["no-such-command"]);

    assert_finding(&checked, 1, "command", "fail", "no-such-command");
}

#[test]
fn who_holds_the_lock_now_is_told() {
    let database = Database::new();
    database.put("cronjob-lock:schedule:job", "db1:1:aa", 60.0);

    let checked = dislock(database.url()).run(NO_COMMAND);

    assert_finding(&checked, 0, "lock", "ok", "held by db1:1:aa until");
}
