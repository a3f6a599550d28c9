//! Hosts with the Python package `dislock` 0.1.0 on the same table: rows as it writes them, and its
//! statements, which know nothing of nonces and fences.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::run::Dislock;

const LEASE: &str = "cronjob-lock:lease:job";
const SLOT: &str = "cronjob-lock:schedule:job";
/// Its value: host and pid, and no more.
const PYTHON: &str = "python-host:4711";
const LONG: Duration = Duration::from_secs(60);
const YEARLY: &str = "0 0 1 1 *";

/// What the Python package does to take a lock.
fn python_acquisition(key: &str) -> String {
    format!(
        "INSERT INTO key_value (key, value, expire_at) \
         VALUES ('{key}', '{PYTHON}', NOW() + (60 * INTERVAL '1 second')) \
         ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, expire_at = EXCLUDED.expire_at \
         WHERE key_value.expire_at <= NOW() RETURNING key, expire_at"
    )
}

/// Whether the Python package gets the lock.
fn python_acquires(database: &Database, key: &str) -> bool {
    !database.sql(&python_acquisition(key)).is_empty()
}

/// What it does to renew (`60`) or expire (`0`) a lock; whether the row was its own.
fn python_sets_expiry(database: &Database, key: &str, seconds: u32) -> bool {
    let rows = database.sql(&format!(
        "UPDATE key_value SET expire_at = NOW() + ({seconds} * INTERVAL '1 second') \
         WHERE key = '{key}' AND value = '{PYTHON}' RETURNING expire_at"
    ));
    !rows.is_empty()
}

fn dislock(database: &Database, strategy: &str) -> Dislock {
    Dislock::lease(database.url(), 30.0)
        .env("LOCK_STRATEGY", strategy)
        .env("CRON_SCHEDULE", YEARLY)
}

#[test]
fn its_live_rows_keep_us_away_and_are_named() {
    for (strategy, key) in [("lease", LEASE), ("schedule", SLOT)] {
        let database = Database::new();
        assert!(python_acquires(&database, key));

        let run = dislock(&database, strategy)
            .log_level("INFO")
            .run(["echo", "ran"]);

        assert_eq!((run.code, &*run.stdout), (0, ""), "{strategy}");
        let logged = run.only_log_line();
        assert_eq!(logged.level, "INFO");
        assert!(logged.message.contains(PYTHON), "{logged:?}");
        assert!(python_sets_expiry(&database, key, 60), "its row is its own");
    }
}

#[test]
fn its_expired_rows_are_taken_over() {
    for (strategy, key) in [("lease", LEASE), ("schedule", SLOT)] {
        let database = Database::new();
        assert!(python_acquires(&database, key));
        assert!(python_sets_expiry(&database, key, 0));

        let run = dislock(&database, strategy).run(["echo", "ran"]);

        assert_eq!(run.stdout, "ran\n", "{strategy}: {}", run.stderr);
    }
}

#[test]
fn it_stays_away_while_we_hold_a_lease_and_takes_it_afterwards() {
    let database = Database::new();
    let mut run = dislock(&database, "lease").work(LONG);
    run.wait_for_worker();

    assert!(!python_acquires(&database, LEASE));
    assert!(!python_sets_expiry(&database, LEASE, 60));

    run.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(run.exit_code(), 143);
    assert!(python_acquires(&database, LEASE));
}

#[test]
fn it_stays_away_from_a_slot_that_we_have_started() {
    let database = Database::new();
    dislock(&database, "schedule").run(["true"]);

    assert!(!python_acquires(&database, SLOT));
}

#[test]
fn a_lease_that_it_takes_from_us_is_lost() {
    let database = Database::new();
    let mut run = dislock(&database, "lease")
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(LONG);
    run.wait_for_worker();

    // In one transaction, so that no renewal comes in between.
    database.sql(&format!(
        "UPDATE key_value SET expire_at = NOW() WHERE key = '{LEASE}'; {}",
        python_acquisition(LEASE)
    ));

    assert_eq!(run.exit_code(), 75, "{}", run.stderr());
    assert_eq!(database.row(LEASE).unwrap().value, PYTHON);
}
