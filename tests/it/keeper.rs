//! Many leases of one process: one heartbeat, one standing connection, and nobody's trouble becomes
//! somebody else's.

mod locked_rows;

use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext, LockContextBuilder, LockStrategy, ScheduleLock};

use crate::support::database::Database;
use crate::support::proxy::Proxy;
use crate::support::server::Server;
use crate::support::wait::{self, eventually};

fn builder(database: &Database, key: &str) -> LockContextBuilder {
    LockContext::builder(database.url(), key)
}

fn lease(database: &Database, key: &str, ttl: f64) -> LeaseLock {
    let ctx = builder(database, key)
        .ttl(Duration::from_secs_f64(ttl))
        .build()
        .unwrap();
    LeaseLock::acquire(&ctx).unwrap()
}

/// A lease of 3 s that outlives nearly as long a delay of its renewals, as a busy machine may cause it.
fn renewed_often(database: &Database, key: &str) -> LeaseLock {
    let ctx = builder(database, key)
        .ttl(Duration::from_secs(3))
        .heartbeat_interval(Duration::from_millis(300))
        .kill_grace(Duration::from_millis(100));
    LeaseLock::acquire(&ctx.build().unwrap()).unwrap()
}

/// Through a proxy that counts, without the question whether the server knows TLS.
fn counted(database: &Database, proxy: &Proxy) -> LockContextBuilder {
    let url = format!("{}?sslmode=disable", database.url_via(proxy));
    LockContext::builder(url, "a")
}

/// Waits until a lease has been renewed so many times more.
fn wait_for_renewals(database: &Database, key: &str, count: usize) {
    let expiry = format!("SELECT expire_at FROM key_value WHERE key = 'cronjob-lock:lease:{key}'");
    for _ in 0..count {
        let before = database.value(&expiry);
        eventually("it is renewed", || database.value(&expiry) != before);
    }
}

/// How many connections the library has to the database.
fn connections(database: &Database) -> usize {
    let query = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name LIKE 'dislock:%'";
    database.value(query).parse().unwrap()
}

#[test]
fn thousands_of_leases_are_kept_over_one_connection() {
    const LEASES: usize = 2000;
    let database = Database::new();
    let leases: Vec<LeaseLock> = (0..LEASES)
        .map(|n| lease(&database, &format!("job-{n}"), 10.0))
        .collect();

    eventually("the second connection is closed when idle", || {
        connections(&database) == 1
    });
    let leases_of = "FROM key_value WHERE key LIKE 'cronjob-lock:lease:%'";
    let newest = database.value(&format!("SELECT max(expire_at) {leases_of}"));
    // More than a TTL later.
    let kept =
        format!("SELECT min(expire_at) > '{newest}'::timestamptz + interval '12 s' {leases_of}");
    eventually("every lease is renewed, and renewed again", || {
        database.value(&kept) == "t"
    });

    assert_eq!(leases.iter().filter(|lease| lease.is_lost()).count(), 0);
    let live = format!("SELECT count(*) {leases_of} AND expire_at > now() + interval '1 s'");
    assert_eq!(database.value(&live), LEASES.to_string());
}

#[test]
fn every_renewal_of_a_batch_is_a_hot_update() {
    // No row version can be reused while a transaction is open that began before it was replaced: not
    // that of a vacuum, nor any other on the same server, even in another database.
    let server = Server::with_settings("autovacuum = off");
    let database = server.database();
    let _leases: Vec<LeaseLock> = (0..300)
        .map(|n| lease(&database, &format!("job-{n}"), 6.0))
        .collect();

    let updates = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables \
                   WHERE relname = 'key_value' AND n_tup_upd >= 1500";
    let counts = wait::value("renewals are counted", wait::SOON, || {
        database.sql(updates).pop()
    });

    assert_eq!(counts[0], counts[1]);
}

#[test]
fn losing_one_lease_touches_no_other() {
    let database = Database::new();
    let [a, b, c] = ["a", "b", "c"].map(|key| renewed_often(&database, key));

    database.sql("DELETE FROM key_value WHERE key = 'cronjob-lock:lease:b'");

    eventually("the loss is noticed", || b.is_lost());
    database
        .wait_until_they_outlive_their_expiry(&["cronjob-lock:lease:a", "cronjob-lock:lease:c"]);
    assert!(!a.is_lost() && !c.is_lost());
    assert!(b.release().unwrap_err().is_lease_lost());
    a.release().unwrap();
    c.release().unwrap();
}

/// With the network so slow that there nearly always is one.
#[test]
fn leases_come_and_go_while_renewals_are_under_way() {
    let database = Database::new();
    let proxy = database.proxy();
    let acquire = |key: &str| {
        let ctx = LockContext::builder(database.url_via(&proxy), key)
            .ttl(Duration::from_secs(4))
            .heartbeat_interval(Duration::from_millis(300));
        LeaseLock::acquire(&ctx.build().unwrap()).unwrap()
    };
    let stays = acquire("stays");
    proxy.slow_down(Duration::from_millis(100));
    let end = Instant::now() + Duration::from_secs(8);
    thread::scope(|scope| {
        for n in 0..6 {
            let (database, acquire) = (&database, &acquire);
            scope.spawn(move || {
                let key = format!("goes-{n}");
                let row = || database.row(&format!("cronjob-lock:lease:{key}")).unwrap();
                for round in 0.. {
                    let lease = acquire(&key);
                    // Some live through many renewals, some see none.
                    wait_for_renewals(database, "stays", round * n % 4);
                    lease.check().unwrap();
                    lease.release().unwrap();
                    let released = row();
                    assert!(released.seconds_left <= 0.0, "{released:?}");
                    // One that was under way goes over the same connection, and arrives before them.
                    wait_for_renewals(database, "stays", 2);
                    assert!(row().seconds_left < released.seconds_left);
                    if Instant::now() > end {
                        return;
                    }
                }
            });
        }
    });
    stays.check().unwrap();
    let live = "SELECT string_agg(key, ' ') FROM key_value \
                WHERE key LIKE 'cronjob-lock:lease:%' AND expire_at > now()";
    assert_eq!(database.value(live), "cronjob-lock:lease:stays");
    stays.release().unwrap();
}

/// Which is on its way when the network is fast again, and would arrive after the release.
#[test]
fn renewal_under_way_does_not_bring_back_a_lease_that_is_released() {
    let database = Database::new();
    let proxy = database.proxy();
    let acquire = |key: &str| {
        let ctx = LockContext::builder(database.url_via(&proxy), key)
            .ttl(Duration::from_secs(30))
            .heartbeat_interval(Duration::from_millis(300));
        LeaseLock::acquire(&ctx.build().unwrap()).unwrap()
    };
    let lease = acquire("a");
    proxy.slow_down(Duration::from_secs(1));
    let held_up = proxy.bytes();
    eventually("a renewal is on its way", || proxy.bytes() > held_up);
    proxy.slow_down(Duration::ZERO);

    lease.release().unwrap();

    // They go over the same connection: by then it has arrived.
    let _other = acquire("b");
    wait_for_renewals(&database, "b", 2);
    let row = database.row("cronjob-lock:lease:a").unwrap();
    assert!(row.seconds_left < 0.0, "{row:?}");
}

/// Otherwise the connection would be given up after 10 s, and the lease would be lost by then.
#[test]
fn batch_that_hangs_leaves_time_for_a_shorter_lease_that_is_not_in_it() {
    let server = Server::start();
    let database = server.database();
    let acquire = |key: &str, ttl: u64, interval: u64| {
        let ctx = LockContext::builder(database.url() + "?application_name=holder", key)
            .ttl(Duration::from_secs(ttl))
            .heartbeat_interval(Duration::from_millis(interval))
            .kill_grace(Duration::from_millis(100));
        LeaseLock::acquire(&ctx.build().unwrap()).unwrap()
    };
    let long = acquire("long", 120, 300);
    let short = acquire("short", 9, 4000);
    wait_for_renewals(&database, "short", 1);

    let _frozen = server.freeze("holder");

    wait_for_renewals(&database, "short", 1);
    short.check().unwrap();
    long.check().unwrap();
}

#[test]
fn release_is_bounded_while_the_network_is_silent() {
    let database = Database::new();
    let proxy = database.proxy();
    let ctx = LockContext::builder(database.url_via(&proxy), "a")
        .ttl(Duration::from_secs(30))
        .heartbeat_interval(Duration::from_secs(1))
        .build()
        .unwrap();
    let lease = LeaseLock::acquire(&ctx).unwrap();
    proxy.silence();
    eventually("a renewal is overdue", || {
        database.row("cronjob-lock:lease:a").unwrap().seconds_left < 28.5
    });

    let started = Instant::now();
    let outcome = lease.release();

    // 3 s for the renewal that is under way, and 1.5 s; what nobody bounds lasts 10 s and more.
    assert!(outcome.is_err() && started.elapsed() < Duration::from_secs(8));
}

#[test]
fn one_lease_run_makes_two_connections_and_four_round_trips() {
    let database = Database::new();
    let proxy = database.proxy();
    let ctx = counted(&database, &proxy).build().unwrap();

    let lease = LeaseLock::acquire(&ctx).unwrap();
    assert_eq!(proxy.connections(), 1);
    assert_eq!(connections(&database), 1);
    lease.release().unwrap();

    assert_eq!(proxy.connections(), 2);
    assert_eq!(proxy.round_trips(), 4);
    eventually("both are closed when idle", || connections(&database) == 0);
}

#[test]
fn schedule_lock_leaves_no_connection_behind() {
    let database = Database::new();
    let proxy = database.proxy();
    let ctx = counted(&database, &proxy)
        .schedule("0 0 1 1 *")
        .build()
        .unwrap();

    let _slot = ScheduleLock::acquire(&ctx).unwrap();

    // Not only when it would be closed for want of use, after 3 s.
    wait::value("it is closed", Duration::from_millis(2500), || {
        (connections(&database) == 0).then_some(())
    });
    assert_eq!(proxy.round_trips(), 2);
}

#[test]
fn both_locks_are_taken_over_one_connection_in_four_round_trips_with_the_release() {
    let database = Database::new();
    let proxy = database.proxy();
    let ctx = counted(&database, &proxy)
        .schedule("0 0 1 1 *")
        .build()
        .unwrap();
    let both = [LockStrategy::Schedule, LockStrategy::Lease];

    dislock::with_locks(&ctx, &both, |_| {
        assert_eq!(connections(&database), 1);
        Ok::<_, dislock::Error>(())
    })
    .unwrap();

    assert_eq!(proxy.round_trips(), 4);
}

#[test]
fn acquisitions_while_leases_are_held_share_a_second_connection() {
    let database = Database::new();
    let proxy = database.proxy();
    let url = database.url_via(&proxy);
    let acquire = |key: String| {
        let ctx = LockContext::builder(&url, key).build().unwrap();
        LeaseLock::acquire(&ctx).unwrap()
    };
    let first = acquire("first".to_owned());

    let more: Vec<LeaseLock> = thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|n| scope.spawn(move || acquire(format!("more-{n}"))))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });

    assert_eq!(proxy.connections(), 2);
    drop((first, more));
    assert_eq!(proxy.connections(), 2);
    let live = "SELECT count(*) FROM key_value \
                WHERE key LIKE 'cronjob-lock:lease:%' AND expire_at > now()";
    assert_eq!(database.value(live), "0");
}

#[test]
fn blocking_calls_work_inside_async_runtimes() {
    let database = Database::new();
    let runtimes = [
        tokio::runtime::Builder::new_current_thread(),
        tokio::runtime::Builder::new_multi_thread(),
    ];
    for mut builder in runtimes {
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            let lease = lease(&database, "a", 30.0);
            assert!(!lease.is_lost());
            lease.release().unwrap();
            drop(self::lease(&database, "b", 30.0));
        });
    }
}
