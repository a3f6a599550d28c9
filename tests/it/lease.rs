//! The lease: one holder at a time, renewed while it works, given up at its end, and noticed when it
//! is taken away.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::run::{Dislock, overlap, work_when_free};
use crate::support::wait::eventually;
use crate::support::worker;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(60);

fn steal(database: &Database) {
    database.put("cronjob-lock:lease:job", "intruder", 3600.0);
}

#[test]
fn a_second_contender_runs_nothing_and_exits_0_in_silence() {
    let database = Database::new();
    let mut first = Dislock::lease(database.url(), 30.0).work(LONG);
    first.wait_for_worker();

    let second = Dislock::lease(database.url(), 30.0).run(["echo", "ran"]);

    assert_eq!(second.code, 0);
    assert_eq!((&*second.stdout, &*second.stderr), ("", ""));
    assert_eq!(first.try_exit_code(), None);
}

#[test]
fn a_second_contender_tells_at_info_who_holds_the_lease_and_until_when() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 3600.0);
    let until = database.value(
        "SELECT to_char(expire_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI') FROM key_value",
    );

    let second = Dislock::lease(database.url(), 30.0)
        .log_level("INFO")
        .run(["true"]);

    let logged = second.only_log_line();
    assert_eq!(logged.level, "INFO");
    for part in ["cronjob-lock:lease:job", "somebody", &until] {
        assert!(logged.message.contains(part), "{part} in {logged:?}");
    }
}

#[test]
fn the_exit_code_of_a_conflict_can_be_chosen() {
    let database = Database::new();
    steal(&database);

    let second = Dislock::lease(database.url(), 30.0)
        .env("LOCK_CONFLICT_EXIT_CODE", "42")
        .run(["true"]);

    assert_eq!(second.code, 42);
}

#[test]
fn a_lease_that_never_expires_is_held() {
    let database = Database::new();
    database.sql("INSERT INTO key_value VALUES ('cronjob-lock:lease:job', 'operator', 'infinity')");

    let second = Dislock::lease(database.url(), 30.0)
        .log_level("INFO")
        .run(["echo", "ran"]);

    assert_eq!((second.code, &*second.stdout), (0, ""));
    assert!(second.stderr.contains("operator"), "{}", second.stderr);
}

#[test]
fn an_expired_lease_is_taken_over_at_once() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", -0.001);

    let run = Dislock::lease(database.url(), 30.0).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"));
}

#[test]
fn a_killed_holder_is_succeeded_after_its_ttl_and_never_overlaps() {
    let database = Database::new();
    let dislock = Dislock::renewed_often(database.url(), 2.0);
    let mut first = dislock.work(LONG);
    first.wait_for_worker();

    first.signal(nix::sys::signal::Signal::SIGKILL);
    let killed = worker::now();
    let second = work_when_free(&dislock, LONG);

    // The TTL, and the start of a contender on a busy machine.
    let waited = second.spans()[0].start - killed;
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    eventually("the first worker is dead", || first.processes().is_empty());
    assert_eq!(overlap([&first, &second]), None);
}

#[test]
fn the_row_is_renewed_while_the_command_works() {
    let database = Database::new();
    let mut run = Dislock::renewed_often(database.url(), 3.0).work(LONG);
    let started = run.wait_for_worker().start;
    let holder = database.lease().unwrap().value;

    // Past the TTL, with the lowest time left on the way.
    let mut lowest = f64::MAX;
    eventually("longer than the TTL", || {
        let row = database.lease().unwrap();
        assert_eq!(row.value, holder);
        assert!(row.seconds_left <= 3.0, "{row:?}");
        lowest = lowest.min(row.seconds_left);
        worker::now() > started + Duration::from_secs(4)
    });

    assert_eq!(run.try_exit_code(), None, "{}", run.stderr());
    // The interval is 0.3 s, so 2.7 s are left when it is renewed.
    assert!((1.0..2.9).contains(&lowest), "{lowest}");
}

#[test]
fn the_row_is_expired_and_kept_when_the_command_ends() {
    let database = Database::new();

    let run = Dislock::lease(database.url(), 30.0).run(["sh", "-c", "echo $DISLOCK_OWNER"]);

    let row = database.lease().unwrap();
    assert!(row.seconds_left <= 0.0, "{row:?}");
    assert_eq!(row.value, run.stdout.trim_end());
}

#[test]
fn every_acquisition_has_a_value_of_its_own() {
    let database = Database::new();
    let dislock = Dislock::lease(database.url(), 30.0).env("LOCK_OWNER", "importer on a");

    let values = [(); 2].map(|()| {
        dislock.run(["true"]);
        database.lease().unwrap().value
    });

    assert!(
        values
            .iter()
            .all(|value| value.starts_with("importer on a:"))
    );
    assert_ne!(values[0], values[1]);
}

#[test]
fn the_default_owner_is_host_and_pid() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 30.0).work(LONG);
    run.wait_for_worker();

    let value = database.lease().unwrap().value;

    let host = host_name();
    let expected = format!("{host}:{}:", run.pid());
    assert!(value.starts_with(&expected), "{value} and {expected}");
    assert!(value.len() > expected.len(), "{value}");
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim_end().to_owned()
}

#[test]
fn a_stolen_lease_stops_the_command_at_the_next_renewal_and_leaves_the_thief_alone() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 6.0)
        .env("LOCK_LEASE_INTERVAL", "1")
        .work(LONG);
    run.wait_for_worker();

    steal(&database);
    let stolen = worker::now();

    assert_eq!(run.exit_code(), 75, "{}", run.stderr());
    let survived = run.spans()[0].end - stolen;
    assert!(survived < Duration::from_secs(3), "{survived:?}");
    let row = database.lease().unwrap();
    assert_eq!(row.value, "intruder");
    assert!(row.seconds_left > 3500.0, "{row:?}");
}

#[test]
fn a_lease_that_is_stolen_unnoticed_is_not_taken_back_at_the_end() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 60.0)
        .env("LOCK_LEASE_INTERVAL", "60") // no renewal that could notice
        .work(Duration::from_secs(1));
    run.wait_for_worker();

    steal(&database);

    run.exit_code();
    assert!(run.spans()[0].done);
    let row = database.lease().unwrap();
    assert_eq!(row.value, "intruder");
    assert!(row.seconds_left > 3500.0, "{row:?}");
}

#[test]
fn a_deleted_row_is_a_lost_lease_and_stays_deleted() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 6.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(LONG);
    run.wait_for_worker();

    database.sql("DELETE FROM key_value WHERE key LIKE '%:lease:%'");

    assert_eq!(run.exit_code(), 75, "{}", run.stderr());
    assert_eq!(database.lease(), None);
}

#[test]
fn a_lost_lease_is_75_whatever_the_command_makes_of_sigterm() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 6.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work_under_shell("trap 'exit 0' TERM; \"$@\" & wait", LONG);
    run.wait_for_worker();

    steal(&database);

    assert_eq!(run.exit_code(), 75, "{}", run.stderr());
    assert!(run.processes().is_empty());
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_after_the_grace() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 20.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .env("LOCK_KILL_GRACE_SECONDS", "1")
        .work_under_shell("trap '' TERM; exec \"$@\"", LONG);
    run.wait_for_worker();

    let before = worker::now();
    steal(&database);

    assert_eq!(run.exit_code(), 75, "{}", run.stderr());
    let survived = run.spans()[0].end - before;
    // Without the grace, an interval at most.
    let expected = Duration::from_millis(900)..Duration::from_secs(8);
    assert!(expected.contains(&survived), "{survived:?}");
}

#[test]
fn under_continue_a_stolen_lease_is_only_logged() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 6.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .env("LOCK_ON_LEASE_LOSS", "continue")
        .work(Duration::from_secs(3));
    run.wait_for_worker();

    steal(&database);

    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    assert!(run.spans()[0].done);
    assert!(
        run.stderr().contains("cronjob-lock:lease:job"),
        "{}",
        run.stderr()
    );
    assert_eq!(database.lease().unwrap().value, "intruder");
}

#[test]
fn locks_of_different_keys_do_not_meet() {
    let database = Database::new();
    let mut first = Dislock::lease(database.url(), 30.0).work(LONG);
    first.wait_for_worker();

    let second = Dislock::lease(database.url(), 30.0)
        .env("LOCK_KEY", "another job")
        .run(["echo", "ran"]);

    assert_eq!(second.stdout, "ran\n");
    assert!(database.row("cronjob-lock:lease:another job").is_some());
}

#[test]
fn a_table_in_a_schema_is_found_by_its_exact_name() {
    let database = Database::new();
    database.sql(
        r#"CREATE SCHEMA "Cron jobs"; CREATE TABLE "Cron jobs"."lock""; DROP" (LIKE key_value INCLUDING ALL)"#,
    );

    let run = Dislock::lease(database.url(), 30.0)
        .env("LOCK_TABLE", r#"Cron jobs.lock"; DROP"#)
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    let there = database
        .value(r#"SELECT count(*) FROM "Cron jobs"."lock""; DROP" WHERE key LIKE '%lease%'"#);
    assert_eq!((&*there, database.rows()), ("1", 0));
}
