//! Taking a lock from its holder, or from nobody.

use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext};

use super::{FENCE, LEASE, SLOT, assert_refused, assert_told, populated, task};
use crate::support::database::Database;
use crate::support::run::Dislock;
use crate::support::wait;

#[test]
fn a_live_lock_is_not_released_without_force_and_its_holder_goes_on() {
    let database = Database::new();
    let mut holder = Dislock::lease(database.url(), 60.0).work(Duration::from_secs(60));
    holder.wait_for_worker();
    let before = database.lease().unwrap().value;

    let refused = task(&database, &["--release", "job"]);

    assert_refused(&refused, 1, "--force");
    assert!(refused.stderr.contains(&before), "{refused:?}");
    assert_eq!(database.lease().unwrap().value, before);
    assert!(!holder.spans()[0].done);
    holder.end_work();
    assert_eq!(holder.exit_code(), 0);
}

#[test]
fn a_lock_that_is_released_by_force_stops_its_holder_within_an_interval() {
    let database = Database::new();
    let mut holder = Dislock::lease(database.url(), 600.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(Duration::from_secs(60));
    holder.wait_for_worker();
    let before = database.lease().unwrap().value;

    let released = task(&database, &["--release", "job", "--force"]);

    assert_told(&released, 0, "lease job is free now");
    assert!(released.stdout.contains(&before), "{released:?}");
    assert_eq!(holder.exit_code_within(Duration::from_secs(5)), 75);
    assert!(holder.processes().is_empty());
    let row = database.lease().unwrap();
    assert!(
        row.value.ends_with(":released") && row.seconds_left <= 0.0,
        "{row:?}"
    );
    let next = Dislock::lease(database.url(), 60.0).run(["true"]);
    assert_eq!(next.code, 0);
    assert!(database.lease().unwrap().value != row.value);
}

#[test]
fn whoever_waits_for_a_lock_has_it_as_soon_as_it_is_released_by_force() {
    let database = Database::new();
    let context = LockContext::builder(database.url(), "job")
        .wait(Duration::MAX)
        .build()
        .unwrap();
    let mut delays = Vec::new();
    for _ in 0..5 {
        database.put(LEASE, "db1:1:aa", 600.0);
        let context = context.clone();
        let waiter = thread::spawn(move || {
            let lease = LeaseLock::acquire(&context).unwrap();
            (Instant::now(), lease)
        });
        wait::eventually("it waits", || {
            let looked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                          AND query LIKE 'SELECT NOW(), seen%' AND state = 'idle'";
            database.value(looked) == "1"
        });

        let released = task(&database, &["--release", "job", "--force"]);

        let end = Instant::now();
        assert_told(&released, 0, "lease job is free now");
        let (acquired, lease) = waiter.join().unwrap();
        lease.release().unwrap();
        delays.push(acquired.saturating_duration_since(end));
    }
    // It would also find out by looking, but only within a second.
    delays.sort();
    assert!(delays[2] < Duration::from_millis(100), "{delays:?}");
}

#[test]
fn only_the_lease_is_released_where_the_strategy_says_so() {
    let database = populated();
    database.put(SLOT, "db2:2:bb", 60.0);

    let released = task(
        &database,
        &["--release", "job", "--force", "--strategy", "lease"],
    );

    assert_told(&released, 0, "lease job is free now");
    assert!(database.slot().unwrap().seconds_left > 0.0);
    assert!(database.lease().unwrap().seconds_left <= 0.0);
    let token = format!("SELECT value FROM key_value WHERE key = '{FENCE}'");
    assert_eq!(database.value(&token), "17");
}

#[test]
fn an_expired_lock_needs_no_release_and_is_left_as_it_is() {
    let database = Database::new();
    database.put(LEASE, "db1:1:aa", -100.0);

    let released = task(&database, &["--release", "job"]);

    assert_told(
        &released,
        0,
        "lease job is free; it was held by db1:1:aa, expired 1m",
    );
    assert_eq!(database.lease().unwrap().value, "db1:1:aa");
}

#[test]
fn a_lock_that_never_expires_is_released_by_force() {
    let database = Database::new();
    database.sql(&format!(
        "INSERT INTO key_value VALUES ('{LEASE}', 'an operator', 'infinity')"
    ));

    let refused = task(&database, &["--release", "job"]);
    let released = task(&database, &["--release", "job", "--force"]);

    assert_refused(&refused, 1, "held by an operator, for ever; --force");
    assert_told(&released, 0, "held by an operator, for ever");
    assert_eq!(Dislock::lease(database.url(), 60.0).run(["true"]).code, 0);
}

#[test]
fn a_lock_that_does_not_exist_cannot_be_released() {
    let database = populated();

    assert_refused(
        &task(&database, &["--release", "jobs"]),
        1,
        "there is no lock \"jobs\"",
    );
    assert_refused(&task(&database, &["--release", ""]), 2, "must not be empty");
}

fn wait_for_a_release_that_waits(database: &Database) {
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND datname = current_database()";
    wait::eventually("the release waits", || database.value(waiting) != "0");
}

#[test]
fn a_row_that_somebody_else_has_locked_does_not_hold_a_release_up_for_ever() {
    let database = populated();
    let mut session = database.session();
    session.sql("BEGIN");
    session.sql(&format!(
        "SELECT FROM key_value WHERE key = '{LEASE}' FOR UPDATE"
    ));
    let dislock = Dislock::new(database.url());

    let mut run = dislock.start_args(["--release", "job", "--force", "DATABASE_URL"]);
    wait_for_a_release_that_waits(&database);

    let page = include_str!("../../../docs/troubleshooting.md");
    let (_, after) = page.split_once("```sql\n").unwrap();
    let who = after.split("```").next().unwrap();
    let holder = session.sql("SELECT pg_backend_pid()")[0][0].clone();
    let found = database.sql(who);
    let ours = found.iter().find(|row| row[1] == holder);
    let waiting = ours.and_then(|row| row[0].as_deref());
    assert_eq!(waiting, Some("dislock:job"), "{found:?}");

    assert_eq!(run.exit_code_within(Duration::from_secs(20)), 1);
    let reason = "another session holds a lock on the row or the table";
    assert!(run.stderr().contains(reason), "{}", run.stderr());
    // What failed is not done later.
    session.sql("COMMIT");
    wait::eventually("the release is gone", || {
        let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'dislock:%' \
                    AND datname = current_database()";
        database.value(left) == "0"
    });
    assert_eq!(database.lease().unwrap().value, "db1:1:aa");
}

#[test]
fn a_release_that_meets_a_renewal_ends_what_the_renewal_has_made() {
    let database = populated();
    let mut holder = database.session();
    holder.sql("BEGIN");
    holder.sql(&format!(
        "UPDATE key_value SET value = 'renewed', expire_at = now() + interval '90 min' WHERE key = '{LEASE}'"
    ));
    let dislock = Dislock::new(database.url());
    let run = dislock.start_args(["--release", "job", "--force", "DATABASE_URL"]);
    wait_for_a_release_that_waits(&database);

    holder.sql("COMMIT");

    assert_told(&run.finish(), 0, "it was held by renewed, for another 1h");
    let row = database.lease().unwrap();
    assert!(
        row.value.ends_with(":released") && row.seconds_left <= 0.0,
        "{row:?}"
    );
}

#[test]
fn a_release_of_both_and_an_acquisition_of_both_do_not_deadlock() {
    let database = populated();
    database.put(SLOT, "db2:2:bb", 60.0);
    let take = |key| format!("UPDATE key_value SET value = 'taken' WHERE key = '{key}'");
    let mut acquisition = database.session();
    acquisition.sql("BEGIN");
    acquisition.sql(&take(SLOT));
    let dislock = Dislock::new(database.url());
    let run = dislock.start_args(["--release", "job", "--force", "DATABASE_URL"]);
    wait_for_a_release_that_waits(&database);

    acquisition.sql(&take(LEASE));
    acquisition.sql("COMMIT");

    let released = run.finish();
    assert_told(
        &released,
        0,
        "schedule job is free now; it was held by taken",
    );
    assert_told(&released, 0, "lease job is free now; it was held by taken");
}
