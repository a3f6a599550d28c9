//! What becomes of locks when a future or a lease is dropped, at whatever point.

use std::time::Duration;

use dislock::aio::{self, LeaseLock};
use dislock::{Error, LockContext, LockStrategy};
use tokio::time::{sleep, timeout};

use super::{
    LEASE, builder, connections, context, current_thread, eventually_meanwhile, is_free,
    multi_thread, outside, sql,
};
use crate::support::database::Database;
use crate::support::server::Server;
use crate::support::wait::eventually;

#[test]
fn dropping_an_acquisition_at_any_point_leaves_nothing_locked() {
    let database = Database::new();
    let ctx = context(&database, 600);
    let proxy = database.proxy();
    proxy.slow_down(Duration::from_millis(5));
    let slow = LockContext::builder(database.url_via(&proxy), "job");
    let slow = slow.ttl(Duration::from_secs(600)).build().unwrap();
    multi_thread().block_on(async {
        for millis in 0..80 {
            let limit = Duration::from_millis(millis);
            drop(timeout(limit, LeaseLock::acquire(&slow)).await);
        }
        eventually("all is given back", || is_free(&database));
        let lease = LeaseLock::acquire(&ctx).await.unwrap();
        lease.release().await.unwrap();
    });
}

#[test]
fn dropping_acquisitions_beside_a_lease_that_is_held_leaves_nothing_locked_and_no_task() {
    let database = Database::new();
    let proxy = database.proxy();
    proxy.slow_down(Duration::from_millis(5));
    let builder = |key: &str| {
        let builder = LockContext::builder(database.url_via(&proxy), key);
        builder.ttl(Duration::from_secs(600)).schedule("0 0 1 1 *")
    };
    let [other, job] = ["other", "job"].map(|key| builder(key).build().unwrap());
    let both = [LockStrategy::Lease, LockStrategy::Schedule];
    let runtime = multi_thread();
    runtime.block_on(async {
        let held = LeaseLock::acquire(&other).await.unwrap();
        for millis in 0..60 {
            let limit = Duration::from_millis(millis);
            if let Ok(taken) = timeout(limit, aio::acquire_locks(&job, &both)).await {
                // Busy as long as the one before is being given back.
                drop(taken);
                sql(
                    &database,
                    "DELETE FROM key_value WHERE key LIKE '%schedule%'",
                );
            }
        }
        let live = "SELECT count(*) FROM key_value \
                    WHERE key LIKE '%:job' AND expire_at > now() AND expire_at < 'infinity'";
        eventually("all is given back", || {
            outside(|| database.value(live)) == "0"
        });
        held.check().unwrap();
        held.release().await.unwrap();
    });
    eventually("no task is left", || {
        runtime.metrics().num_alive_tasks() == 0
    });
}

#[test]
fn dropping_a_guarded_future_releases_its_lease() {
    let database = Database::new();
    let ctx = context(&database, 600);
    multi_thread().block_on(async {
        let guarded = aio::with_locks(&ctx, &LEASE, async |_| {
            std::future::pending::<()>().await;
            Ok::<_, Error>(())
        });
        let mut guarded = Box::pin(guarded);
        while is_free(&database) {
            let step = timeout(Duration::from_millis(10), guarded.as_mut()).await;
            assert!(step.is_err());
        }
        drop(guarded);
        eventually("it is released", || is_free(&database));
    });
}

/// The statement was sent, and its release after it; both arrive long after the release that went over
/// another connection.
#[test]
fn acquisition_that_arrives_late_is_followed_by_its_release() {
    let server = Server::start();
    let database = server.database();
    let proxy = database.proxy();
    proxy.silence_after(1); // connect
    let url = format!(
        "postgresql://postgres@127.0.0.1:{},127.0.0.1:{}/{}?sslmode=disable",
        proxy.port(),
        server.port(),
        database.name()
    );
    let ctx = LockContext::builder(url, "job").ttl(Duration::from_secs(600));
    let ctx = ctx.build().unwrap();
    multi_thread().block_on(async {
        let mut acquiring = Box::pin(LeaseLock::acquire(&ctx));
        let connected = eventually_meanwhile("it is connected", || proxy.round_trips() == 1);
        tokio::select! {
            _ = &mut acquiring => panic!("the network is silent"),
            () = connected => {}
        }
        // The statement is on its way.
        let limit = Duration::from_millis(300);
        assert!(timeout(limit, acquiring).await.is_err());
        eventually("it is given back over another connection", || {
            connections(&database, "AND query LIKE 'WITH due%' AND state = 'idle'") == "1"
        });
        assert_eq!(outside(|| database.rows()), 0);

        proxy.heal();

        eventually("it has arrived", || outside(|| database.rows()) > 0);
        eventually("it is given back", || is_free(&database));
        eventually("no connection is left", || {
            connections(&database, "") == "0"
        });
    });
}

#[test]
fn acquisition_that_was_dropped_while_its_row_was_locked_is_given_back() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", -1.0);
    let ctx = context(&database, 600);
    let mut dba = database.session();
    dba.sql("BEGIN; SELECT 1 FROM key_value FOR UPDATE");
    multi_thread().block_on(async {
        let waiting = || connections(&database, "AND wait_event_type = 'Lock'");
        tokio::select! {
            _ = LeaseLock::acquire(&ctx) => panic!("its row is locked"),
            () = eventually_meanwhile("it waits for the lock", || waiting() == "1") => {}
        }
        // Nobody tries to give it back for longer than 2 s; what was sent behind it is all that is left.
        sleep(Duration::from_secs(3)).await;

        outside(|| drop(dba.sql("COMMIT")));

        eventually("it is done", || waiting() == "0");
        eventually("it is given back", || is_free(&database));
        let somebody = LeaseLock::acquire(&ctx).await.unwrap();
        somebody.release().await.unwrap();
    });
}

#[test]
fn dropping_a_wait_ends_it() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", 600.0);
    let ctx = builder(&database).wait(Duration::MAX).build().unwrap();
    current_thread().block_on(async {
        let waiting = LeaseLock::acquire(&ctx);
        assert!(timeout(Duration::from_secs(1), waiting).await.is_err());
        sql(&database, "DELETE FROM key_value");
        // A wait looks once a second, and keeps its connection.
        eventually_meanwhile("no connection is left", || {
            connections(&database, "") == "0"
        })
        .await;
        assert!(outside(|| database.lease()).is_none());
    });
}

#[test]
fn dropped_lease_is_released_in_the_background() {
    let database = Database::new();
    let ctx = context(&database, 600);
    multi_thread().block_on(async {
        drop(LeaseLock::acquire(&ctx).await.unwrap());
        eventually("it is released", || is_free(&database));
    });
}
