//! The schedule lock: one start per tick, in the schedule's own time zone.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::database::Database;
use crate::support::run::{Dislock, Run};
use crate::support::wait::{self, eventually};

/// A tick that is far away, unless it is New Year in the schedule's zone.
const YEARLY: &str = "0 0 1 1 *";

#[test]
fn a_slot_is_started_once_and_stays_taken_after_the_command() {
    let database = Database::new();
    let dislock = Dislock::schedule(database.url(), YEARLY);

    let first = dislock.run(["sh", "-c", "echo $DISLOCK_OWNER"]);
    let second = dislock.run(["echo", "ran"]);

    let row = database.slot().unwrap();
    assert_eq!((first.code, first.stdout.trim_end()), (0, &*row.value));
    assert!(row.seconds_left > 0.0, "{row:?}");
    assert_eq!((second.code, &*second.stdout, &*second.stderr), (0, "", ""));
}

#[test]
fn a_taken_slot_tells_at_info_who_has_it() {
    let database = Database::new();
    database.put("cronjob-lock:schedule:job", "somebody", 3600.0);

    let run = Dislock::schedule(database.url(), YEARLY)
        .log_level("INFO")
        .run(["true"]);

    let logged = run.only_log_line();
    assert_eq!((run.code, &*logged.level), (0, "INFO"));
    assert!(logged.message.contains("somebody"), "{logged:?}");
}

#[test]
fn a_slot_that_is_over_is_taken_over() {
    let database = Database::new();
    database.put("cronjob-lock:schedule:job", "somebody", -0.001);

    let run = Dislock::schedule(database.url(), YEARLY).run(["echo", "ran"]);

    assert_eq!(run.stdout, "ran\n");
}

/// A database whose sessions are in this time zone.
fn database_in(zone: &str) -> Database {
    let database = Database::new();
    let name = database.name();
    database.sql(&format!("ALTER DATABASE {name} SET timezone = '{zone}'"));
    database
}

/// The end of the slot that was taken, as a clock on the wall in `zone` shows it.
fn slot_end_in(database: &Database, zone: &str) -> String {
    database.value(&format!(
        "SELECT to_char(expire_at AT TIME ZONE '{zone}', 'MM-DD HH24:MI:SS.US') FROM key_value \
         WHERE key = 'cronjob-lock:schedule:job'"
    ))
}

const NEW_YEAR: &str = "01-01 00:00:00.000000";

#[test]
fn the_slot_ends_exactly_at_the_boundary_in_the_sessions_zone() {
    let database = database_in("Asia/Kathmandu");

    Dislock::schedule(database.url(), YEARLY).run(["true"]);

    assert_eq!(slot_end_in(&database, "Asia/Kathmandu"), NEW_YEAR);
}

#[test]
fn the_schedules_zone_is_the_option_else_lock_timezone_else_cron_tz() {
    let cron_tz = |dislock: Dislock| dislock.env("CRON_TZ", "Asia/Tokyo");
    let lock_timezone = |dislock: Dislock| cron_tz(dislock).env("LOCK_TIMEZONE", "Africa/Lagos");
    let option = |dislock| lock_timezone(dislock).options(&["--timezone", "America/Lima"]);

    assert_zone(cron_tz, "Asia/Tokyo");
    assert_zone(lock_timezone, "Africa/Lagos");
    assert_zone(option, "America/Lima");
}

#[track_caller]
fn assert_zone(configure: impl Fn(Dislock) -> Dislock, zone: &str) {
    let database = Database::new();

    let run = configure(Dislock::schedule(database.url(), YEARLY)).run(["true"]);

    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(slot_end_in(&database, zone), NEW_YEAR);
}

#[test]
fn pgtz_sets_the_sessions_zone() {
    let database = Database::new();

    let run = Dislock::schedule(database.url(), YEARLY)
        .env("PGTZ", "Asia/Tokyo")
        .run(["true"]);

    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(slot_end_in(&database, "Asia/Tokyo"), NEW_YEAR);
}

#[test]
fn a_zone_of_the_session_that_is_no_iana_name_counts_by_its_offset() {
    let database = database_in("<+0545>-05:45");

    let run = Dislock::schedule(database.url(), YEARLY).run(["true"]);

    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(slot_end_in(&database, "Asia/Kathmandu"), NEW_YEAR);
}

#[test]
fn a_rule_for_the_sessions_zone_is_followed_over_changes_of_the_clocks() {
    let noon = |day: &str| format!("{day} 12:00:00.000000");
    for (schedule, day) in [("0 12 1 1 *", "01-01"), ("0 12 1 7 *", "07-01")] {
        let database = database_in("CET-1CEST,M3.5.0,M10.5.0/3");

        let run = Dislock::schedule(database.url(), schedule).run(["true"]);

        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(slot_end_in(&database, "Europe/Berlin"), noon(day));
    }
}

#[test]
fn a_slot_that_ends_within_the_tolerance_counts_as_over() {
    for (tolerance, expected) in [("60", "ran\n"), ("0", "")] {
        let database = Database::new();
        database.put("cronjob-lock:schedule:job", "somebody", 30.0);

        let run = Dislock::schedule(database.url(), YEARLY)
            .env("LOCK_SLOT_TOLERANCE_SECONDS", tolerance)
            .run(["echo", "ran"]);

        assert_eq!((run.code, &*run.stdout), (0, expected), "{}", run.stderr);
    }
}

#[test]
fn a_start_within_the_tolerance_before_a_tick_belongs_to_that_tick() {
    let database = Database::new();
    // Every minute, and an hour early is on time: the slot of an hour from now.
    let run = Dislock::schedule(database.url(), "* * * * *")
        .env("LOCK_SLOT_TOLERANCE_SECONDS", "3600")
        .run(["true"]);

    assert_eq!(run.code, 0, "{}", run.stderr);
    let row = database.slot().unwrap();
    assert!((3580.0..=3660.0).contains(&row.seconds_left), "{row:?}");
    assert!(slot_end_in(&database, "UTC").ends_with(":00.000000"));
}

/// Gives the database a time zone in which a minute ends in `seconds`, and waits until then.
///
/// A zone may be some seconds off, but not on the first day of the year 2000: hence the summer time.
/// On the days without it, this takes up to a minute.
fn wait_for_the_last_seconds_of_a_minute(database: &Database, seconds: f64) {
    let left = "60 - extract(second FROM clock_timestamp())";
    let ahead = format!("ceil(extract(second FROM now()) + {seconds})::int");
    let offset: u8 = database
        .value(&format!("SELECT (60 - {ahead} % 60) % 60"))
        .parse()
        .unwrap();
    let name = database.name();
    database.sql(&format!(
        "ALTER DATABASE {name} SET timezone = '<w>0<s>-00:00:{offset:02},J2/0,J365/0'"
    ));
    let query = format!("SELECT {left} <= {seconds}");
    wait::value("the end of a minute", Duration::from_secs(90), || {
        (database.value(&query) == "t").then_some(())
    });
}

#[test]
fn around_a_boundary_each_of_the_two_ticks_is_started_once() {
    let database = Database::new();
    let dislock = Dislock::schedule(database.url(), "* * * * *");
    wait_for_the_last_seconds_of_a_minute(&database, 5.0);
    let end = Instant::now() + Duration::from_secs(7);

    // Every 50 ms, from well before the tolerance of one second until well after the boundary.
    let mut runs = Vec::new();
    eventually("hosts have fired on both sides", || {
        runs.push(dislock.start(["echo", "ran"]));
        std::thread::sleep(Duration::from_millis(50));
        Instant::now() > end
    });
    let runs: Vec<_> = runs.into_iter().map(Run::finish).collect();

    assert!(runs.iter().all(|run| run.code == 0));
    let starts: String = runs.into_iter().map(|run| run.stdout).collect();
    assert_eq!(starts, "ran\nran\n");
}

#[test]
fn a_slot_that_ends_between_the_clock_and_the_row_is_computed_again() {
    let database = Database::new();
    let proxy = database.proxy();
    proxy.slow_down(Duration::from_millis(500));
    wait_for_the_last_seconds_of_a_minute(&database, 2.2);

    // The server tells the time after 1.5 s, and is to write the row after 2.5.
    let run = Dislock::schedule(database.url_via(&proxy) + "?sslmode=disable", "* * * * *")
        .env("LOCK_SLOT_TOLERANCE_SECONDS", "0")
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    let row = database.slot().unwrap();
    assert!(row.seconds_left > 30.0, "{row:?}");
}

#[test]
fn a_dislock_that_is_stopped_during_the_jitter_has_taken_nothing() {
    let database = Database::new();
    let mut run = Dislock::schedule(database.url(), YEARLY)
        .env("LOCK_JITTER_SECONDS", "100000")
        .start(["echo", "ran"]);
    // Before that, it would die of the signal as any program does.
    let status = format!("/proc/{}/status", run.pid());
    eventually("signals are looked after", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let mask = status
            .lines()
            .find_map(|l| l.strip_prefix("SigBlk:"))
            .unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        mask & (1 << (Signal::SIGTERM as i32 - 1)) != 0
    });

    run.signal(Signal::SIGTERM);

    assert_eq!(run.exit_code(), 143, "{}", run.stderr());
    assert_eq!((&*run.stdout(), database.rows()), ("", 0));
}

#[test]
fn a_short_jitter_delays_the_start_and_no_more() {
    let database = Database::new();

    let run = Dislock::schedule(database.url(), YEARLY)
        .env("LOCK_JITTER_SECONDS", "0.2")
        .run(["echo", "ran"]);

    assert_eq!(run.stdout, "ran\n");
    assert!(run.took < Duration::from_secs(10), "{:?}", run.took);
}
