//! A row that another session has locked is the trouble of its own lease alone.

use super::*;

#[test]
fn row_that_somebody_has_locked_costs_only_its_own_lease() {
    let database = Database::new();
    let [a, b, c] = ["a", "b", "c"].map(|key| renewed_often(&database, key));
    let mut dba = database.session();
    dba.sql("BEGIN");
    dba.sql("SELECT 1 FROM key_value WHERE key = 'cronjob-lock:lease:b' FOR UPDATE");

    eventually("the locked lease runs out", || b.is_lost());
    database
        .wait_until_they_outlive_their_expiry(&["cronjob-lock:lease:a", "cronjob-lock:lease:c"]);
    dba.sql("ROLLBACK");

    assert!(!a.is_lost() && !c.is_lost());
}

#[test]
fn lease_survives_a_lock_on_its_row_that_is_gone_in_time() {
    let database = Database::new();
    let lease = lease(&database, "a", 6.0);
    let mut dba = database.session();
    dba.sql("BEGIN");
    dba.sql("SELECT 1 FROM key_value FOR UPDATE");
    eventually("a renewal is overdue", || {
        database.row("cronjob-lock:lease:a").unwrap().seconds_left < 4.0
    });
    dba.sql("ROLLBACK");

    database.wait_until_they_outlive_their_expiry(&["cronjob-lock:lease:a"]);
    assert!(!lease.is_lost());
    lease.release().unwrap();
}

#[test]
fn locked_row_holds_up_neither_other_acquisitions_nor_releases() {
    let database = Database::new();
    let first = lease(&database, "first", 30.0);
    database.put("cronjob-lock:lease:locked", "somebody", -1.0);
    let mut dba = database.session();
    dba.sql("BEGIN");
    dba.sql("SELECT 1 FROM key_value WHERE key = 'cronjob-lock:lease:locked' FOR UPDATE");
    let stuck = builder(&database, "locked")
        .connect_timeout(Duration::from_secs(3))
        .build()
        .unwrap();

    let started = Instant::now();
    thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let outcome = LeaseLock::acquire(&stuck);
            (outcome, started.elapsed())
        });
        for n in 0..20 {
            let database = &database;
            let ctx = builder(database, &format!("free-{n}")).build().unwrap();
            scope.spawn(move || {
                LeaseLock::acquire(&ctx).unwrap().release().unwrap();
                assert!(started.elapsed() < Duration::from_secs(2));
            });
        }
        let (outcome, took) = stuck.join().unwrap();
        assert!(outcome.is_err());
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
    first.release().unwrap();
}

#[test]
fn release_of_a_locked_row_is_bounded_and_done_when_the_lock_is_gone() {
    let database = Database::new();
    let lease = lease(&database, "a", 60.0);
    let mut dba = database.session();
    dba.sql("BEGIN");
    dba.sql("SELECT 1 FROM key_value FOR UPDATE");

    let started = Instant::now();
    let outcome = lease.release();
    assert!(outcome.is_err() && started.elapsed() < Duration::from_secs(5));
    dba.sql("ROLLBACK");

    eventually("the row is expired", || {
        database.row("cronjob-lock:lease:a").unwrap().seconds_left <= 0.0
    });
}
