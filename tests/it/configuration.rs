//! Every configuration error: exit code 2, one line that names the variable, and nothing written.

use crate::support::database::Database;
use crate::support::run::{Dislock, Finished};

const YEARLY: &str = "0 0 1 1 *";

fn dislock(database: &Database) -> Dislock {
    Dislock::lease(database.url(), 30.0)
        .env("LOCK_STRATEGY", "schedule,lease")
        .env("CRON_SCHEDULE", YEARLY)
}

#[track_caller]
fn assert_refused(run: &Finished, name: &str, what: &str) {
    assert_eq!((run.code, &*run.stdout), (2, ""), "{what}: {}", run.stderr);
    let logged = run.only_log_line();
    assert_eq!(logged.level, "ERROR", "{what}");
    assert!(logged.message.contains(name), "{what}: {logged:?}");
}

/// One variable with one bad value at a time, in an otherwise good configuration.
#[track_caller]
fn assert_each_refused(cases: &[(&str, &[&str])]) {
    let database = Database::new();
    for (variable, values) in cases {
        for value in *values {
            let run = dislock(&database)
                .env(*variable, *value)
                .run(["echo", "ran"]);

            let what = format!("{variable}={value:?}");
            assert_refused(&run, variable, &what);
            let shown = value.trim();
            assert!(run.stderr.contains(shown), "{what}: {}", run.stderr);
        }
    }
    assert_eq!(database.rows(), 0);
}

#[test]
fn a_good_configuration_is_taken() {
    let database = Database::new();

    let run = dislock(&database).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout, &*run.stderr), (0, "ran\n", ""));
}

#[test]
fn a_key_must_be_there() {
    let database = Database::new();

    let missing = dislock(&database).without("LOCK_KEY").run(["true"]);
    let empty = dislock(&database).env("LOCK_KEY", "").run(["true"]);
    let blank = dislock(&database).env("LOCK_KEY", " ").run(["true"]);

    for run in [missing, empty, blank] {
        assert_refused(&run, "LOCK_KEY", "no key");
    }
    assert_eq!(database.rows(), 0);
}

#[test]
fn a_schedule_must_be_there_for_a_slot() {
    let database = Database::new();

    let missing = dislock(&database).without("CRON_SCHEDULE").run(["true"]);
    let empty = dislock(&database).env("CRON_SCHEDULE", "").run(["true"]);

    for run in [missing, empty] {
        assert_refused(&run, "CRON_SCHEDULE", "no schedule");
    }
    assert_eq!(database.rows(), 0);
}

#[test]
fn numbers_must_be_finite_and_in_range() {
    let no_number = ["nan", "inf", "-inf", "1e999", "abc", "1s", "1,5", "-1"];
    let positive = [
        "nan", "inf", "-inf", "1e999", "abc", "1s", "1,5", "-1", "0", "0.0",
    ];
    assert_each_refused(&[
        ("RUN_LOCK_TTL_SECONDS", &positive),
        ("LOCK_LEASE_INTERVAL", &positive),
        ("LOCK_LEASE_INTERVAL", &["30.001", "1e6"]), // more than the TTL
        ("LOCK_JITTER_SECONDS", &no_number),
        ("LOCK_KILL_GRACE_SECONDS", &no_number),
        ("LOCK_SLOT_TOLERANCE_SECONDS", &no_number),
        ("LOCK_CONNECT_TIMEOUT_SECONDS", &no_number),
        ("LOCK_WAIT_SECONDS", &no_number),
        ("LOCK_CONFLICT_EXIT_CODE", &["-1", "256", "1.5", "x"]),
    ]);
}

#[test]
fn words_must_be_known() {
    assert_each_refused(&[
        (
            "LOCK_STRATEGY",
            &[
                "mutex",
                "schedule,",
                ",",
                "lease;schedule",
                "schedule lease",
            ],
        ),
        ("LOCK_ON_LEASE_LOSS", &["ignore", "terminate,continue"]),
        (
            "LOCK_TIMEZONE",
            &["Mars/Olympus", "UTC+25", "../etc/passwd", "/etc/localtime"],
        ),
        ("CRON_TZ", &["Mars/Olympus"]),
    ]);
}

#[test]
fn tables_are_one_name_or_two() {
    assert_each_refused(&[("LOCK_TABLE", &["a..b", ".t", "t.", "a.b.c", "."])]);
}

#[test]
fn schedules_are_what_a_crontab_takes() {
    assert_each_refused(&[(
        "CRON_SCHEDULE",
        &[
            "nonsense",
            "* * * *",
            "* * * * * *",
            "0 0 1 1 * 2030",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1/2 * * * *",
            "1,,2 * * * *",
            "? * * * *",
            "* * 15W * *",
            "H * * * *",
            "* * * mon *",
            "0 0 30 2 *",
            "@reboot",
            "@every 5m",
            "99999999999999999999 * * * *",
        ],
    )]);
}

#[test]
fn the_schedules_field_is_named() {
    let database = Database::new();
    let fields = [
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 32 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day-of-week"),
    ];
    for (schedule, field) in fields {
        let run = dislock(&database)
            .env("CRON_SCHEDULE", schedule)
            .run(["true"]);

        assert!(run.stderr.contains(field), "{schedule}: {}", run.stderr);
    }
}

#[test]
fn options_are_named_as_they_were_given() {
    let database = Database::new();
    let options = [
        "--key",
        "--cron",
        "--strategy",
        "--table",
        "--ttl",
        "--lease-interval",
        "--jitter",
        "--on-lease-loss",
        "--kill-grace",
        "--slot-tolerance",
        "--timezone",
        "--wait",
        "--conflict-exit-code",
        "--connect-timeout",
    ];
    for option in options {
        let value = match option {
            "--key" => "",
            "--table" => "a.b.c",
            _ => "-1",
        };
        let word = format!("{option}={value}");

        let run = dislock(&database).options(&[&word]).run(["echo", "ran"]);

        assert_refused(&run, option, &word);
    }
    assert_eq!(database.rows(), 0);
}

#[test]
fn the_urls_variable_must_be_named_and_set() {
    let database = Database::new();

    let unset = dislock(&database)
        .url_name("NO_SUCH_VARIABLE")
        .run(["true"]);
    let empty = dislock(&database)
        .env("EMPTY", "")
        .url_name("EMPTY")
        .run(["true"]);

    assert_refused(&unset, "NO_SUCH_VARIABLE", "unset");
    assert_refused(&empty, "EMPTY", "empty");
    assert_eq!(database.rows(), 0);
}

#[test]
fn a_malformed_url_is_named_by_its_variable_and_not_shown() {
    let urls = [
        "secret",
        "mysql://me:secret@localhost/db",
        "postgresql://me:secret@localhost:port/db",
        "postgresql://me:secret@localhost:99999/db",
        "postgresql://me:secret@localhost/db?secret=1",
        "postgresql://me:secret@[::1/db",
        "postgresql://me:secret%zz@localhost/db",
        "host=localhost password='secret",
        "secret=1",
    ];
    for url in urls {
        let run = Dislock::lease(url, 30.0).run(["echo", "ran"]);

        assert_refused(&run, "DATABASE_URL", url);
        if !url.contains("secret=1") {
            assert!(!run.stderr.contains("secret"), "{url}: {}", run.stderr);
        }
    }
}

#[test]
fn usage_errors_are_2_and_point_to_the_help() {
    let database = Database::new();
    let usages: [&[&str]; 4] = [
        &[],
        &["DATABASE_URL"],
        &["--no-such-option", "DATABASE_URL", "true"],
        &["--ttl"],
    ];
    for words in usages {
        let run = Dislock::new(database.url()).run_args(words);

        assert_eq!((run.code, &*run.stdout), (2, ""), "{words:?}");
        assert!(run.stderr.contains("--help"), "{words:?}: {}", run.stderr);
    }
    assert_eq!(database.rows(), 0);
}

#[test]
fn an_unknown_log_level_is_a_warning_and_no_more() {
    let database = Database::new();

    let run = dislock(&database).log_level("LOUD").run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"));
    let logged = run.only_log_line();
    assert_eq!(logged.level, "WARNING");
    assert!(
        logged.message.contains("CRONJOB_LOCK_LOG_LEVEL"),
        "{logged:?}"
    );
}

#[test]
fn log_levels_are_read_in_any_case() {
    let database = Database::new();
    database.put("cronjob-lock:schedule:job", "somebody", 3600.0);

    for (level, lines) in [("info", 1), ("Warning", 0), ("ERROR", 0), ("critical", 0)] {
        let run = dislock(&database).log_level(level).run(["true"]);

        assert_eq!(run.stderr.lines().count(), lines, "{level}: {}", run.stderr);
    }
}
