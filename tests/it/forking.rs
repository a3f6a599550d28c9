//! Programs that fork while they use the library: a child has a copy of its parent's memory, but
//! neither its leases nor its threads.
//!
//! Each test runs in a process of its own, this test program once more, so that its children do not
//! keep other tests' sockets open.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext, LockStrategy};
use fork::Fork;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, alarm};

use crate::support::database::Database;
use crate::support::proxy::Proxy;
use crate::support::wait::{SOON, eventually, value};

const ALONE: &str = "TEST_FORKING_ALONE";

/// Runs the test `name` of this file in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&format!("forking::{name}"), "--exact", "--nocapture"])
        .env(ALONE, "")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:#?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{stdout}");
}

struct Child(Pid);

/// Runs `child` in a copy of this process.
#[expect(clippy::exit, reason = "the copy must not go on with the tests")]
fn forked(child: impl FnOnce()) -> Child {
    match fork::fork().unwrap() {
        Fork::Parent(pid) => Child(Pid::from_raw(pid)),
        Fork::Child => {
            // One that hangs ends even when its parent has given up on it.
            alarm::set(SOON.as_secs().try_into().unwrap());
            let outcome = catch_unwind(AssertUnwindSafe(child));
            std::process::exit(outcome.is_err().into());
        }
    }
}

impl Child {
    /// Waits for its end, which has to be a good one.
    fn join(self) {
        let status = value("the child ends", SOON, || {
            let status = waitpid(self.0, Some(WaitPidFlag::WNOHANG)).unwrap();
            (status != WaitStatus::StillAlive).then_some(status)
        });
        assert_eq!(status, WaitStatus::Exited(self.0, 0));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if waitpid(self.0, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive) {
            let _ = kill(self.0, Signal::SIGKILL);
            let _ = waitpid(self.0, None);
        }
    }
}

fn context(database: &Database, key: &str) -> LockContext {
    LockContext::builder(database.url(), key)
        .ttl(Duration::from_secs(30))
        .heartbeat_interval(Duration::from_millis(300))
        .build()
        .unwrap()
}

/// The server's processes for connections of the library.
fn backends(database: &Database) -> String {
    database.value(
        "SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name LIKE 'dislock:%'",
    )
}

#[test]
fn a_child_has_not_its_parents_lease_and_does_not_release_it() {
    alone(
        "a_child_has_not_its_parents_lease_and_does_not_release_it",
        || {
            let database = Database::new();
            let ctx = context(&database, "job");
            let mut lease = Some(LeaseLock::acquire(&ctx).unwrap());
            let before = (database.lease().unwrap().value, backends(&database));

            forked(|| {
                let lease = lease.take().unwrap();
                assert!(lease.is_lost());
                assert!(lease.check().unwrap_err().is_lease_lost());
                assert!(lease.lease_lost().unwrap().wait());
                assert!(lease.release().unwrap_err().is_lease_lost());
            })
            .join();
            forked(|| drop(lease.take())).join();
            // At its exit, whatever that drops.
            forked(|| ()).join();

            let renewed = Instant::now() + Duration::from_secs(1);
            eventually("renewals go on", || {
                Instant::now() > renewed && database.lease().unwrap().seconds_left > 29.0
            });
            let after = (database.lease().unwrap().value, backends(&database));
            assert_eq!(before, after, "the same row over the same connection");
            let lease = lease.take().unwrap();
            lease.check().unwrap();
            lease.release().unwrap();
        },
    );
}

#[test]
fn a_child_takes_locks_of_its_own_beside_its_parents() {
    alone("a_child_takes_locks_of_its_own_beside_its_parents", || {
        let database = Database::new();
        let [parents, childs] = ["job", "another"].map(|key| context(&database, key));
        let lease = LeaseLock::acquire(&parents).unwrap();
        let owner = database.lease().unwrap().value;

        forked(|| {
            let busy = LeaseLock::acquire(&parents).unwrap_err();
            assert_eq!(busy.holder(), Some(&*owner));
            let own = LeaseLock::acquire(&childs).unwrap();
            assert!(!own.is_lost());
            own.release().unwrap();
            let code =
                dislock::run_with_locks(["sh", "-c", "exit 7"], &childs, &[LockStrategy::Lease]);
            assert_eq!(code.unwrap(), 7);
            // And so does its own child.
            forked(|| drop(LeaseLock::acquire(&childs).unwrap())).join();
        })
        .join();

        lease.release().unwrap();
    });
}

/// Whatever the other threads were about to do, or had locked.
#[test]
fn children_of_a_busy_program_take_locks() {
    alone("children_of_a_busy_program_take_locks", || {
        let database = Database::new();
        let stop = AtomicBool::new(false);
        let give_up = Instant::now() + SOON;
        let contexts: Vec<_> = (0..4)
            .map(|n| context(&database, &format!("parent-{n}")))
            .collect();
        let childs = context(&database, "child");
        std::thread::scope(|scope| {
            for ctx in &contexts {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) && Instant::now() < give_up {
                        LeaseLock::acquire(ctx).unwrap().release().unwrap();
                    }
                });
            }
            for _ in 0..20 {
                forked(|| LeaseLock::acquire(&childs).unwrap().release().unwrap()).join();
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
}

/// The data of the zones is read once, which takes a moment.
#[test]
fn children_of_a_program_that_is_reading_its_first_zone_read_theirs() {
    alone(
        "children_of_a_program_that_is_reading_its_first_zone_read_theirs",
        || {
            let read = |zone: &str| {
                let ctx = LockContext::builder("postgresql://app@db/app", "job");
                let ctx = ctx.schedule("0 3 * * *").timezone(zone).build();
                ctx.unwrap();
            };
            for micros in (0..2000).step_by(50) {
                // One that has read none.
                forked(|| {
                    let begun = AtomicBool::new(false);
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            begun.store(true, Ordering::Release);
                            read("Europe/Berlin");
                        });
                        while !begun.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                        let begun = Instant::now();
                        while begun.elapsed() < Duration::from_micros(micros) {
                            std::hint::spin_loop();
                        }
                        forked(|| read("Asia/Tokyo")).join();
                    });
                })
                .join();
            }
        },
    );
}

/// Each goes on with a copy of their parent's random numbers.
#[cfg(feature = "aio")]
#[test]
fn children_of_one_parent_are_different_holders() {
    alone("children_of_one_parent_are_different_holders", || {
        let database = Database::new();
        let ctx = context(&database, "job");
        let acquire = || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            let lease = runtime.block_on(dislock::aio::LeaseLock::acquire(&ctx));
            // Not released: its runtime is gone.
            drop(runtime);
            lease.map(drop)
        };
        acquire().unwrap();
        database.sql("DELETE FROM key_value");

        forked(|| acquire().unwrap()).join();
        forked(|| assert!(acquire().unwrap_err().is_not_acquired())).join();
    });
}

/// What the tests of others' faults stand on: every test of the process may be about to start one.
#[test]
fn a_child_with_a_copy_of_a_proxys_sockets_does_not_answer_for_it() {
    alone(
        "a_child_with_a_copy_of_a_proxys_sockets_does_not_answer_for_it",
        || {
            let proxy = Proxy::to("127.0.0.1", 1);
            let connect = || TcpStream::connect(("127.0.0.1", proxy.port()));
            let (mut end, childs_end) = UnixStream::pair().unwrap();
            let child = forked(|| (&childs_end).read_exact(&mut [0]).unwrap());
            connect().unwrap();

            proxy.go_away();

            let refused = connect().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            proxy.heal();
            connect().unwrap();
            end.write_all(b"!").unwrap();
            child.join();
        },
    );
}
