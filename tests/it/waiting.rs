//! Waiting for a lease that somebody else has.

use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext};

use crate::support::database::Database;
use crate::support::pooler::Pooler;
use crate::support::server::{Server, Stop};
use crate::support::wait::eventually;

/// A waiter looks once a second, and a busy machine takes its time.
const SOON_LOOKED: Duration = Duration::from_secs(5);

fn context(url: String, wait: Duration) -> LockContext {
    LockContext::builder(url, "job").wait(wait).build().unwrap()
}

/// Waits for the lease on a thread; answers when it was acquired.
fn waiter(url: String, wait: Duration) -> thread::JoinHandle<(LeaseLock, Instant)> {
    thread::spawn(move || {
        let lease = LeaseLock::acquire(&context(url, wait)).unwrap();
        (lease, Instant::now())
    })
}

fn eventually_waits(database: &Database) {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND query LIKE 'SELECT NOW(), seen%' AND state = 'idle'";
    eventually("somebody waits", || database.value(query) == "1");
}

#[test]
fn release_wakes_a_waiter_at_once() {
    let database = Database::new();
    // Another user is another keeper, as in another process.
    let role = database.role("LOGIN SUPERUSER PASSWORD 'x'");
    let holder = LeaseLock::acquire(&context(database.url(), Duration::ZERO)).unwrap();
    let mut delays = Vec::new();
    let mut holder = Some(holder);
    for n in 0..5 {
        let url = match n % 2 {
            0 => database.url_as(&role, "x"),
            _ => database.url(),
        };
        let waiter = waiter(url, Duration::MAX);
        eventually_waits(&database);
        thread::sleep(Duration::from_millis(20 * n));
        let released = Instant::now();
        holder.take().unwrap().release().unwrap();
        let (lease, acquired) = waiter.join().unwrap();
        delays.push(acquired.duration_since(released));
        holder = Some(lease);
    }
    delays.sort();
    // The waiter has just looked, and would look again after half a second at the earliest.
    assert!(delays[2] < Duration::from_millis(300), "{delays:?}");
}

#[test]
fn waiter_gets_the_lease_when_a_dead_holders_row_expires() {
    let database = Database::new();
    let mut lateness = Vec::new();
    for _ in 0..5 {
        // Before the waiter would look again without knowing: after half a second at the earliest.
        database.put("cronjob-lock:lease:job", "dead", 0.3);
        let expires = Instant::now() + Duration::from_millis(300);
        let (lease, acquired) = waiter(database.url(), Duration::MAX).join().unwrap();
        lateness.push(acquired.saturating_duration_since(expires));
        lease.release().unwrap();
    }
    // A busy machine is late now and then.
    lateness.sort();
    assert!(lateness[0] < Duration::from_millis(150), "{lateness:?}");
}

#[test]
fn row_that_is_freed_without_an_announcement_is_found_by_looking() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);
    let waiter = waiter(database.url(), Duration::MAX);
    eventually_waits(&database);

    let freed = Instant::now();
    database.sql("DELETE FROM key_value WHERE key = 'cronjob-lock:lease:job'");

    let (_lease, acquired) = waiter.join().unwrap();
    let late = acquired.duration_since(freed);
    assert!(late < SOON_LOOKED, "{late:?}");
}

/// And subscribes to nothing: that would be left to whoever gets the pooler's connection next.
#[test]
fn release_is_found_by_looking_through_a_pooler() {
    let server = Server::start();
    let database = server.database();
    let pooler = Pooler::start(&server);
    let holder = LeaseLock::acquire(&context(database.url(), Duration::ZERO)).unwrap();
    let waiter = waiter(pooler.url(&database), Duration::MAX);
    eventually_waits(&database);
    let channels = || {
        pooler
            .sql(&database, "SELECT pg_listening_channels()")
            .len()
    };
    assert_eq!(channels(), 0);

    let released = Instant::now();
    holder.release().unwrap();

    let (lease, acquired) = waiter.join().unwrap();
    let late = acquired.duration_since(released);
    assert!(late < SOON_LOOKED, "{late:?}");
    lease.release().unwrap();
    assert_eq!(channels(), 0);
    let log = server.log();
    assert!(
        !log.contains("ERROR:") && !log.contains("WARNING:"),
        "{log}"
    );
}

#[test]
fn wait_that_is_over_says_who_has_the_lease() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);

    let started = Instant::now();
    let busy = LeaseLock::acquire(&context(database.url(), Duration::from_millis(1200)));

    let busy = busy.unwrap_err();
    assert!(busy.is_not_acquired());
    assert_eq!(busy.holder(), Some("somebody"));
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(1200) && waited < Duration::from_secs(8));
}

#[test]
fn database_restart_does_not_end_the_wait() {
    let server = Server::start();
    let database = server.database();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);
    let waiter = waiter(database.url(), Duration::MAX);
    eventually_waits(&database);

    server.restart(Stop::Immediate);
    assert!(!waiter.is_finished());
    database.sql("DELETE FROM key_value");

    let _ = waiter.join().unwrap();
}

#[test]
fn wait_ends_when_the_table_is_gone() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);
    let ctx = context(database.url(), Duration::MAX);
    let waiter = thread::spawn(move || LeaseLock::acquire(&ctx).map(drop));
    eventually_waits(&database);

    database.sql("DROP TABLE key_value");

    let error = waiter.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[test]
fn many_waiters_of_one_process_share_a_connection() {
    let database = Database::new();
    let proxy = database.proxy();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|_| {
                let ctx = context(database.url_via(&proxy), Duration::from_secs(2));
                scope.spawn(move || LeaseLock::acquire(&ctx).unwrap_err().is_not_acquired())
            })
            .collect();
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
    });
    assert!(proxy.connections() <= 2, "{}", proxy.connections());
}

#[test]
fn waiters_whose_row_was_locked_share_a_connection_again() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);
    // Whoever is alone has a connection of its own.
    let other = LockContext::builder(database.url(), "other").build();
    let _other = LeaseLock::acquire(&other.unwrap()).unwrap();
    let mut dba = database.session();
    dba.sql("BEGIN");
    dba.sql("SELECT FROM key_value WHERE key = 'cronjob-lock:lease:job' FOR UPDATE");
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let ctx = context(database.url(), Duration::MAX);
            thread::spawn(move || LeaseLock::acquire(&ctx).unwrap().release())
        })
        .collect();
    let count = |which: &str| -> usize {
        let ours = "datname = current_database() AND application_name LIKE 'dislock:%'";
        let query = format!("SELECT count(*) FROM pg_stat_activity WHERE {ours} AND {which}");
        database.value(&query).parse().unwrap()
    };
    eventually("some are held up", || {
        count("wait_event_type = 'Lock'") >= 4
    });

    dba.sql("ROLLBACK");

    eventually("all wait over one connection", || count("true") == 2);
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    database.sql("DELETE FROM key_value WHERE key = 'cronjob-lock:lease:job'");
    for waiter in waiters {
        waiter.join().unwrap().unwrap();
    }
}
