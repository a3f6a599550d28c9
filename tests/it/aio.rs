//! The async twin: runtimes that are blocked or end, waits, guarded futures.

mod dropping;

use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use dislock::aio::{self, LeaseLock, ScheduleLock};
use dislock::{Error, LeaseLossPolicy, LockContext, LockContextBuilder, LockStrategy};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::support::database::Database;
use crate::support::pooler::Pooler;
use crate::support::server::Server;
use crate::support::wait::{SOON, eventually};

const LEASE: [LockStrategy; 1] = [LockStrategy::Lease];

fn builder(database: &Database) -> LockContextBuilder {
    LockContext::builder(database.url(), "job")
}

fn context(database: &Database, ttl: u64) -> LockContext {
    let builder = builder(database).ttl(Duration::from_secs(ttl));
    builder.build().unwrap()
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().enable_all().build().unwrap()
}

/// Looks from outside: the tests' own sessions cannot block inside a runtime.
fn outside<T: Send>(look: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(look).join().unwrap())
}

fn sql(database: &Database, statements: &str) {
    outside(|| drop(database.sql(statements)));
}

/// As [`eventually`], where one thread has to do the rest, too.
async fn eventually_meanwhile(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < end, "not within {SOON:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// How many connections the library has to the database, of which this holds, too.
fn connections(database: &Database, and: &str) -> String {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name LIKE 'dislock:%'";
    outside(|| database.value(&format!("{query} {and}")))
}

fn is_free(database: &Database) -> bool {
    outside(|| database.lease().is_none_or(|row| row.seconds_left <= 0.0))
}

#[test]
fn lease_is_taken_renewed_and_released_on_either_kind_of_runtime() {
    for runtime in [current_thread(), multi_thread()] {
        let database = Database::new();
        let ctx = context(&database, 3);
        runtime.block_on(async {
            let lease = LeaseLock::acquire(&ctx).await.unwrap();
            let busy = LeaseLock::acquire(&ctx).await.unwrap_err();
            assert!(busy.is_not_acquired());
            let row = "SELECT expire_at FROM key_value WHERE key = 'cronjob-lock:lease:job'";
            let over = outside(|| format!("SELECT now() > '{}'", database.value(row)));
            eventually_meanwhile("its time is over", || {
                outside(|| database.value(&over)) == "t"
            })
            .await;
            assert!(!is_free(&database));
            lease.check().unwrap();
            let started = Instant::now();
            lease.release().await.unwrap();
            // No renewal is under way that it would wait for.
            assert!(started.elapsed() < Duration::from_millis(2500));
            assert!(is_free(&database));
        });
    }
}

#[test]
fn a_thousand_leases_share_one_task_and_one_standing_connection() {
    let database = Database::new();
    multi_thread().block_on(async {
        let acquiring = (0..1000).map(|n| {
            let ctx = LockContext::builder(database.url(), format!("job-{n}"));
            let ctx = ctx.ttl(Duration::from_secs(6)).build().unwrap();
            tokio::spawn(async move { LeaseLock::acquire(&ctx).await.unwrap() })
        });
        let tasks: Vec<_> = acquiring.collect();
        let mut leases = Vec::new();
        for task in tasks {
            leases.push(task.await.unwrap());
        }
        let keys = ["cronjob-lock:lease:job-0", "cronjob-lock:lease:job-999"];
        outside(|| database.wait_until_they_outlive_their_expiry(&keys));
        assert!(leases.iter().all(|lease| !lease.is_lost()));
        eventually("the connection that acquired is closed", || {
            connections(&database, "") == "1"
        });
        let releasing: Vec<_> = leases
            .into_iter()
            .map(|lease| tokio::spawn(lease.release()))
            .collect();
        for release in releasing {
            release.await.unwrap().unwrap();
        }
        let live =
            "SELECT count(*) FROM key_value WHERE expire_at > now() AND expire_at < 'infinity'";
        assert_eq!(outside(|| database.value(live)), "0");
    });
}

#[test]
fn release_is_found_by_looking_through_a_pooler() {
    let server = Server::start();
    let database = server.database();
    let pooler = Pooler::start(&server);
    let holder = context(&database, 30);
    let waiter = LockContext::builder(pooler.url(&database), "job");
    let waiter = waiter.wait(Duration::MAX).build().unwrap();
    current_thread().block_on(async {
        let holder = LeaseLock::acquire(&holder).await.unwrap();
        let mut waiting = pin!(LeaseLock::acquire(&waiter));
        let begun = timeout(Duration::from_secs(2), waiting.as_mut()).await;
        assert!(begun.is_err());
        let listening = || {
            pooler
                .sql(&database, "SELECT pg_listening_channels()")
                .len()
        };
        assert_eq!(outside(listening), 0);
        let released = Instant::now();
        holder.release().await.unwrap();
        let lease = waiting.await.unwrap();
        let late = released.elapsed();
        // It looks once a second.
        assert!(late < Duration::from_secs(5), "{late:?}");
        lease.release().await.unwrap();
    });
}

#[test]
fn lease_whose_runtime_is_gone_is_left_to_its_ttl() {
    let database = Database::new();
    let ctx = context(&database, 2);
    let runtime = current_thread();
    let lease = runtime.block_on(LeaseLock::acquire(&ctx)).unwrap();
    drop(runtime);
    assert!(!lease.is_lost());
    eventually("it is lost", || lease.is_lost());
    drop(lease);
    // A new runtime has a new keeper.
    eventually("the row expires", || is_free(&database));
    let runtime = current_thread();
    drop(runtime.block_on(LeaseLock::acquire(&ctx)).unwrap());
}

#[test]
fn blocked_runtime_is_noticed() {
    let database = Database::new();
    let ctx = context(&database, 2);
    current_thread().block_on(async {
        let lease = LeaseLock::acquire(&ctx).await.unwrap();
        thread::sleep(Duration::from_secs(3));
        assert!(lease.is_lost());
        assert!(lease.check().unwrap_err().is_lease_lost());
        assert!(lease.release().await.unwrap_err().is_lease_lost());
    });
}

#[test]
fn loss_can_be_awaited() {
    let database = Database::new();
    let ctx = context(&database, 3);
    multi_thread().block_on(async {
        let lease = LeaseLock::acquire(&ctx).await.unwrap();
        let lost = lease.lease_lost().unwrap();
        assert!(!lost.wait_timeout(Duration::from_millis(100)).await);
        sql(&database, "DELETE FROM key_value");
        assert!(timeout(SOON, lost.clone()).await.unwrap());
        drop(lease);

        let lease = LeaseLock::acquire(&ctx).await.unwrap();
        let lost = lease.lease_lost().unwrap();
        lease.release().await.unwrap();
        assert!(!lost.await, "released, not lost");
    });
}

#[test]
fn guarded_future_is_cancelled_when_its_lease_is_lost() {
    let database = Database::new();
    let ctx = context(&database, 3);
    multi_thread().block_on(async {
        let started = Instant::now();
        let outcome = aio::with_locks(&ctx, &LEASE, async |_| {
            sql(&database, "DELETE FROM key_value");
            sleep(Duration::from_secs(60)).await;
            Ok::<_, Error>(())
        });
        assert!(outcome.await.unwrap_err().is_lease_lost());
        assert!(started.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn guarded_future_goes_on_under_continue() {
    let database = Database::new();
    let ctx = builder(&database)
        .ttl(Duration::from_secs(2))
        .lease_loss_policy(LeaseLossPolicy::Continue)
        .build()
        .unwrap();
    multi_thread().block_on(async {
        let outcome = aio::with_locks(&ctx, &LEASE, async |session| {
            assert!(session.lease_lost().is_none());
            sql(&database, "DELETE FROM key_value");
            eventually("the loss is known", || session.is_lost());
            Ok::<_, Error>(7)
        });
        assert_eq!(outcome.await.unwrap(), 7);
    });
}

#[test]
fn guarded_work_may_be_spawned_and_its_own_error_is_not_masked() {
    let database = Database::new();
    let ctx = builder(&database).schedule("0 0 1 1 *").build().unwrap();
    multi_thread().block_on(async {
        let task = tokio::spawn(async move {
            let both = [LockStrategy::Lease, LockStrategy::Schedule];
            aio::with_locks(&ctx, &both, async |session| {
                assert!(session.slot().is_some() && session.fencing_token() == 1);
                Err::<(), Box<dyn std::error::Error + Send + Sync>>("own error".into())
            })
            .await
        });
        let error = task.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "own error");
        assert!(is_free(&database) && outside(|| database.slot()).is_some());
    });
}

#[test]
fn slot_is_taken_once_and_can_be_given_back() {
    let database = Database::new();
    let ctx = builder(&database).schedule("0 0 1 1 *").build().unwrap();
    current_thread().block_on(async {
        let slot = ScheduleLock::acquire(&ctx).await.unwrap();
        assert!(
            ScheduleLock::acquire(&ctx)
                .await
                .unwrap_err()
                .is_not_acquired()
        );
        slot.give_back().await.unwrap();
        let _slot = ScheduleLock::acquire(&ctx).await.unwrap();
    });
}

#[test]
fn command_runs_under_a_lease() {
    let database = Database::new();
    let ctx = context(&database, 30);
    current_thread().block_on(async {
        let code = aio::run_with_locks(["sh", "-c", "exit 7"], &ctx, &LEASE).await;
        assert_eq!(code.unwrap(), 7);
        assert!(is_free(&database));
    });
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let database = Database::new();
    let ctx = context(&database, 30);
    let mut acquiring = pin!(LeaseLock::acquire(&ctx));
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let outcome = acquiring.as_mut().poll(&mut task);
    let std::task::Poll::Ready(Err(error)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(error.to_string().contains("runtime"), "{error}");
}
