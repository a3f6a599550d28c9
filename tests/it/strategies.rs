//! Both strategies at once, and which of them a run uses.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::run::Dislock;

const YEARLY: &str = "0 0 1 1 *";

fn both(database: &Database) -> Dislock {
    Dislock::lease(database.url(), 30.0)
        .env("LOCK_STRATEGY", "schedule,lease")
        .env("CRON_SCHEDULE", YEARLY)
}

#[test]
fn schedule_is_the_default() {
    let database = Database::new();

    Dislock::schedule(database.url(), YEARLY).run(["true"]);

    assert!(database.slot().is_some() && database.lease().is_none());
}

#[test]
fn with_both_the_slot_stays_taken_and_the_lease_is_given_up() {
    let database = Database::new();

    let run = both(&database).run(["echo", "ran"]);

    assert_eq!(run.stdout, "ran\n", "{}", run.stderr);
    assert!(database.slot().unwrap().seconds_left > 0.0);
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn with_both_a_taken_slot_is_enough_to_stay_away() {
    let database = Database::new();
    database.put("cronjob-lock:schedule:job", "somebody", 3600.0);

    let run = both(&database).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, ""));
    assert_eq!(database.lease(), None);
}

#[test]
fn with_both_a_busy_lease_is_enough_to_stay_away() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 3600.0);

    let run = both(&database).log_level("INFO").run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, ""));
    assert!(run.stderr.contains("somebody"), "{}", run.stderr);
    // Nothing was started in this slot: another host may, once the lease is free.
    assert!(database.slot().unwrap().seconds_left <= 0.0);
}

#[test]
fn with_both_a_lost_lease_stops_the_command() {
    let database = Database::new();
    let mut run = both(&database)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(Duration::from_secs(60));
    run.wait_for_worker();

    database.put("cronjob-lock:lease:job", "intruder", 3600.0);

    assert_eq!(run.exit_code(), 75, "{}", run.stderr());
    assert_eq!(database.lease().unwrap().value, "intruder");
}

#[test]
fn case_order_and_blanks_of_the_strategy_do_not_matter() {
    let spellings = [
        "lease,schedule",
        " Schedule , LEASE ",
        "schedule,lease,schedule",
    ];
    for spelling in spellings {
        let database = Database::new();

        let run = both(&database)
            .env("LOCK_STRATEGY", spelling)
            .run(["echo", "ran"]);

        assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
        assert!(
            database.slot().is_some() && database.lease().is_some(),
            "{spelling:?}"
        );
    }
}

#[test]
fn what_a_strategy_does_not_need_is_not_read() {
    let lease = [
        ("CRON_SCHEDULE", "nonsense"),
        ("LOCK_TIMEZONE", "nowhere"),
        ("LOCK_SLOT_TOLERANCE_SECONDS", "-1"),
    ];
    let schedule = [
        ("RUN_LOCK_TTL_SECONDS", "nonsense"),
        ("LOCK_LEASE_INTERVAL", "-1"),
        ("LOCK_ON_LEASE_LOSS", "nonsense"),
    ];
    let database = Database::new();
    let with = |dislock: Dislock, variables: &[(&str, &str)]| {
        variables
            .iter()
            .fold(dislock, |dislock, (name, value)| dislock.env(name, value))
            .run(["echo", "ran"])
    };

    let runs = [
        with(Dislock::lease(database.url(), 30.0), &lease),
        with(Dislock::schedule(database.url(), YEARLY), &schedule),
    ];

    for run in runs {
        assert_eq!((run.code, &*run.stdout, &*run.stderr), (0, "ran\n", ""));
    }
}

#[test]
fn an_option_wins_over_its_variable() {
    let database = Database::new();

    let run = Dislock::schedule(database.url(), "nonsense")
        .env("LOCK_STRATEGY", "nonsense")
        .env("LOCK_KEY", "other")
        .options(&[
            "--strategy",
            "schedule,lease",
            "--key=job",
            "--cron",
            YEARLY,
            "--ttl",
            "7",
        ])
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    assert!(database.slot().is_some() && database.lease().is_some());
}
