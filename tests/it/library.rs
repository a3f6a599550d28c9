//! The library's locks and sessions against a real server.

mod blocks;
mod commands;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use dislock::{
    Error, LeaseLock, LeaseLossPolicy, LockContext, LockContextBuilder, LockSession, LockStrategy,
    ScheduleLock, acquire_locks, build_locks,
};

use crate::support::database::Database;
use crate::support::wait::{SOON, eventually};

const LEASE: &[LockStrategy] = &[LockStrategy::Lease];
const BOTH: &[LockStrategy] = &[LockStrategy::Schedule, LockStrategy::Lease];

/// A lease of 30 s and the slot that ends in an hour.
fn builder(database: &Database) -> LockContextBuilder {
    LockContext::builder(database.url(), "job")
        .ttl(Duration::from_secs(30))
        .heartbeat_interval(Duration::from_millis(300))
        .next_run_time(SystemTime::now() + Duration::from_secs(3600))
}

fn context(database: &Database) -> LockContext {
    builder(database).build().unwrap()
}

fn steal(database: &Database) {
    database.put("cronjob-lock:lease:job", "intruder", 3600.0);
}

#[track_caller]
fn assert_released(database: &Database) {
    let row = database.lease().unwrap();
    assert!(row.seconds_left <= 0.0, "{row:?}");
}

/// Takes the lease away and waits until the session knows.
fn lose(database: &Database, session: &LockSession) {
    steal(database);
    assert!(session.lease_lost().unwrap().wait_timeout(SOON));
}

#[test]
fn a_lease_is_released_by_release_and_by_drop() {
    let database = Database::new();
    let ctx = context(&database);

    let lease = LeaseLock::acquire(&ctx).unwrap();
    assert!(database.lease().unwrap().seconds_left > 0.0);
    lease.release().unwrap();
    assert_released(&database);

    drop(LeaseLock::acquire(&ctx).unwrap());
    assert_released(&database);
}

#[test]
fn a_busy_lease_says_who_has_it_and_until_when() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);

    let error = LeaseLock::acquire(&context(&database)).unwrap_err();

    assert!(error.is_not_acquired(), "{error:#}");
    assert_eq!(error.holder(), Some("somebody"));
    let left = error
        .held_until()
        .unwrap()
        .duration_since(SystemTime::now())
        .unwrap();
    assert!((500..=600).contains(&left.as_secs()), "{left:?}");
}

#[test]
fn a_slot_is_taken_until_the_next_run_time_and_survives_its_guard() {
    let database = Database::new();
    let end = SystemTime::now() + Duration::from_secs(600);
    let ctx = LockContext::builder(database.url(), "job")
        .next_run_time(end)
        .build()
        .unwrap();

    let slot = ScheduleLock::acquire(&ctx).unwrap();
    // PostgreSQL keeps microseconds.
    let difference = slot.until().unwrap().duration_since(end);
    let difference = difference.unwrap_or_else(|earlier| earlier.duration());
    assert!(difference < Duration::from_micros(2), "{difference:?}");
    drop(slot);

    assert!(database.slot().unwrap().seconds_left > 0.0);
    assert!(ScheduleLock::acquire(&ctx).unwrap_err().is_not_acquired());
}

#[test]
fn a_slot_that_was_not_used_can_be_given_back() {
    let database = Database::new();
    let ctx = context(&database);

    ScheduleLock::acquire(&ctx).unwrap().give_back().unwrap();

    let _slot = ScheduleLock::acquire(&ctx).unwrap();
}

#[test]
fn a_next_run_time_that_has_passed_is_an_error_and_takes_nothing() {
    let database = Database::new();
    let past = SystemTime::now() - Duration::from_secs(60);
    let ctx = LockContext::builder(database.url(), "job")
        .next_run_time(past)
        .build()
        .unwrap();

    let error = ScheduleLock::acquire(&ctx).unwrap_err();

    assert!(!error.is_not_acquired(), "{error:#}");
    assert_eq!(database.rows(), 0);
}

#[test]
fn what_a_lock_needs_is_checked_before_any_connection() {
    // Nobody listens there.
    let ctx = LockContext::builder("postgresql://me@127.0.0.1:1/db", "job")
        .build()
        .unwrap();

    let start = Instant::now();
    let errors = [
        build_locks(&ctx, BOTH).unwrap_err(),
        build_locks(&ctx, &[]).unwrap_err(),
        acquire_locks(&ctx, BOTH).unwrap_err(),
        ScheduleLock::acquire(&ctx).unwrap_err(),
    ];

    assert!(errors.iter().all(Error::is_configuration), "{errors:?}");
    // It would try to connect for 10 s.
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn strategies_are_taken_in_one_order_whatever_order_is_given() {
    let ctx = context(&Database::new());
    let given = [
        LockStrategy::Lease,
        LockStrategy::Schedule,
        LockStrategy::Lease,
    ];

    assert_eq!(build_locks(&ctx, &given).unwrap().strategies(), BOTH);
}

#[test]
fn two_threads_of_one_process_never_hold_the_same_lease() {
    let database = Database::new();
    let ctx = context(&database);
    let inside = AtomicUsize::new(0);
    let acquired = AtomicUsize::new(0);

    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let Ok(lease) = LeaseLock::acquire(&ctx) else {
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    acquired.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.release().unwrap();
                }
            });
        }
    });

    assert!(acquired.into_inner() > 0);
}

#[test]
fn a_session_shows_what_stands_in_the_rows() {
    let database = Database::new();

    let session = acquire_locks(&context(&database), BOTH).unwrap();

    let values = [database.lease(), database.slot()].map(|row| row.unwrap().value);
    assert_eq!(values, [session.owner(), session.owner()]);
    session.check().unwrap();
    assert!(!session.is_lost());
    session.release().unwrap();
    assert_released(&database);
    assert!(database.slot().unwrap().seconds_left > 0.0);
}

#[test]
fn a_lost_lease_is_known_to_the_session_its_handles_and_its_release() {
    let database = Database::new();
    let session = acquire_locks(&context(&database), LEASE).unwrap();
    let handle = session.lease_lost().unwrap();
    let waiter = std::thread::spawn(move || handle.wait());

    lose(&database, &session);

    assert!(waiter.join().unwrap());
    assert!(session.is_lost());
    assert!(session.check().unwrap_err().is_lease_lost());
    assert!(session.release().unwrap_err().is_lease_lost());
    assert_eq!(database.lease().unwrap().value, "intruder");
}

#[test]
fn whoever_waits_for_a_loss_wakes_when_the_lease_is_released() {
    let database = Database::new();
    let session = acquire_locks(&context(&database), LEASE).unwrap();
    let handle = session.lease_lost().unwrap();
    let waiter = std::thread::spawn(move || handle.wait());

    session.release().unwrap();

    assert!(!waiter.join().unwrap());
}

#[test]
fn a_loss_is_known_by_its_deadline_though_the_network_is_silent() {
    let database = Database::new();
    let proxy = database.proxy();
    let ctx = LockContext::builder(database.url_via(&proxy), "job")
        .ttl(Duration::from_secs(2))
        .heartbeat_interval(Duration::from_millis(300));
    let session = acquire_locks(&ctx.build().unwrap(), LEASE).unwrap();

    proxy.silence();
    let silent = Instant::now();

    eventually("the lease is lost", || session.is_lost());
    assert!(
        silent.elapsed() < Duration::from_secs(2),
        "{:?}",
        silent.elapsed()
    );
    let start = Instant::now();
    assert!(session.release().unwrap_err().is_lease_lost());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn under_continue_there_is_no_loss_to_report() {
    let database = Database::new();
    let ctx = builder(&database).lease_loss_policy(LeaseLossPolicy::Continue);
    let session = acquire_locks(&ctx.build().unwrap(), LEASE).unwrap();
    assert!(session.lease_lost().is_none());

    steal(&database);

    eventually("the loss is known", || session.is_lost());
    session.check().unwrap();
    session.release().unwrap();
    assert_eq!(database.lease().unwrap().value, "intruder");
}

/// Keeps what is logged about the lock of one test: others log at the same time.
struct About(&'static str);

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl log::Log for About {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if line.contains(self.0) {
            LINES.lock().unwrap().push(line);
        }
    }

    fn flush(&self) {}
}

#[test]
fn a_loss_is_logged_once_however_often_it_is_asked_for() {
    log::set_logger(&About("watched")).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let policies = [LeaseLossPolicy::Terminate, LeaseLossPolicy::Continue];
    for (policy, released) in policies.into_iter().flat_map(|p| [(p, true), (p, false)]) {
        let database = Database::new();
        let ctx = LockContext::builder(database.url(), "watched")
            .heartbeat_interval(Duration::from_millis(300))
            .lease_loss_policy(policy);
        let lease = LeaseLock::acquire(&ctx.build().unwrap()).unwrap();
        database.put("cronjob-lock:lease:watched", "intruder", 3600.0);
        eventually("the loss is known", || lease.is_lost());

        for _ in 0..100 {
            assert_eq!(lease.check().is_err(), policy == LeaseLossPolicy::Terminate);
        }
        match released {
            true => drop(lease.release()),
            false => drop(lease),
        }

        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        let line = "lease cronjob-lock:lease:watched is lost: its row is gone or somebody else's";
        assert_eq!(lines, [line], "{policy:?}, released: {released}");
    }
}

#[test]
fn a_slot_has_no_loss() {
    let session = acquire_locks(&context(&Database::new()), &[LockStrategy::Schedule]).unwrap();

    assert!(session.lease_lost().is_none() && !session.is_lost());
    session.check().unwrap();
}

#[test]
fn tokens_grow_with_every_acquisition() {
    let database = Database::new();
    let ctx = context(&database);

    let lease = LeaseLock::acquire(&ctx).unwrap();
    let first = lease.fencing_token();
    lease.release().unwrap();
    let slot = ScheduleLock::acquire(&ctx).unwrap();
    let lease = LeaseLock::acquire(&ctx).unwrap();

    assert!(first < slot.fencing_token());
    assert!(slot.fencing_token() < lease.fencing_token());
}

#[test]
fn nothing_of_the_url_is_shown_when_a_context_is_printed() {
    let ctx = LockContext::builder("postgresql://me:s3cret@127.0.0.1:1/db", "job")
        .connect_timeout(Duration::from_millis(100));
    let built = ctx.clone().build().unwrap();
    let error = LeaseLock::acquire(&built).unwrap_err();

    let printed = format!("{ctx:?} {built:?} {error:?} {error:#}");
    assert!(!printed.contains("s3cret"), "{printed}");
}
