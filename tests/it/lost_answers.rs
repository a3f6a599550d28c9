//! A statement whose answer is lost has been executed, and is sent again: none of it twice.

use std::time::{Duration, SystemTime};

use dislock::{LockContext, LockStrategy, acquire_locks};

use crate::support::observed::Observed;
use crate::support::run::Dislock;
use crate::support::wait::eventually;

#[test]
fn an_acquisition_recognises_the_lease_that_it_already_has() {
    let link = Observed::new();
    link.proxy.lose_answer(2); // connect, acquire

    let run = Dislock::lease(link.url(), 30.0).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    // Connect, acquire, again both; connect, expire.
    assert_eq!(link.proxy.round_trips(), 6);
    assert!(link.database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn an_acquisition_recognises_the_slot_that_it_already_has() {
    let link = Observed::new();
    link.proxy.lose_answer(2); // connect, acquire

    let run = Dislock::schedule(link.url(), "0 0 1 1 *").run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    assert!(link.proxy.round_trips() > 2);
    assert!(link.database.slot().unwrap().seconds_left > 0.0);
}

#[test]
fn an_acquisition_recognises_both_locks_that_it_already_has() {
    let link = Observed::new();
    link.proxy.lose_answer(2); // connect, acquire

    let run = Dislock::schedule(link.url(), "0 0 1 1 *")
        .env("LOCK_STRATEGY", "schedule,lease")
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    assert!(link.proxy.round_trips() > 2);
    assert!(link.database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn what_a_lost_answer_hid_is_given_back_when_the_next_attempt_fails() {
    let link = Observed::new();
    link.proxy.lose_answer(2); // connect, acquire
    link.database.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '42501'; END$$;
         CREATE TRIGGER refuse BEFORE UPDATE ON key_value FOR EACH ROW
             WHEN (NEW.expire_at > OLD.expire_at) EXECUTE FUNCTION refuse()",
    );

    let run = Dislock::lease(link.url(), 30.0).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("not today"), "{}", run.stderr);
    assert!(link.database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn a_lease_that_a_lost_answer_hid_is_given_back_when_its_slot_is_over_at_the_next_attempt() {
    let link = Observed::new();
    link.proxy.lose_answer(2); // connect, acquire
    link.database.sql(
        "CREATE FUNCTION outlast() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM pg_sleep_until(NEW.expire_at); RETURN NEW; END$$;
         CREATE TRIGGER outlast BEFORE INSERT ON key_value FOR EACH ROW
             WHEN (NEW.key LIKE '%:schedule:%') EXECUTE FUNCTION outlast()",
    );
    let ctx = LockContext::builder(link.url(), "job")
        .next_run_time(SystemTime::now() + Duration::from_secs(2))
        .build()
        .unwrap();

    let error = acquire_locks(&ctx, &[LockStrategy::Schedule, LockStrategy::Lease]).unwrap_err();

    assert!(error.to_string().contains("has passed"), "{error:#}");
    assert!(link.database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn a_renewal_without_an_answer_is_repeated() {
    let link = Observed::new();
    link.proxy.lose_answer(3); // connect, acquire, renew
    let mut run = Dislock::lease(link.url(), 10.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(Duration::from_secs(60));
    run.wait_for_worker();

    // The lost one, a new connection, and two that are answered.
    eventually("renewals go on", || link.proxy.round_trips() >= 6);

    assert_eq!(run.try_exit_code(), None, "{}", run.stderr());
    assert!(link.database.lease().unwrap().seconds_left > 8.0);
}

#[test]
fn a_release_without_an_answer_does_not_change_the_exit_code() {
    let link = Observed::new();
    link.proxy.lose_answer(4); // connect, acquire; connect, expire

    let run = Dislock::lease(link.url(), 30.0).run(["sh", "-c", "exit 7"]);

    assert_eq!(run.code, 7, "{}", run.stderr);
    assert!(link.database.lease().unwrap().seconds_left <= 0.0);
}
