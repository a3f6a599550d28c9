//! A hot standby: `dislock --wait forever DATABASE_URL daemon` on several hosts.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::database::Database;
use crate::support::processes::signal_all;
use crate::support::run::{Dislock, Run, overlap};
use crate::support::wait::eventually;

const LONG: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(2);
/// What a busy machine may add to any time.
const SLACK: Duration = Duration::from_secs(5);

fn host(database: &Database) -> Dislock {
    Dislock::renewed_often(database.url(), TTL.as_secs_f64()).options(&["--wait", "forever"])
}

fn standby(database: &Database) -> Run {
    let run = host(database).work(LONG);
    eventually("the standby is there", || {
        let connections = "SELECT count(*) FROM pg_stat_activity \
                           WHERE datname = current_database() AND application_name = 'dislock:job'";
        database.value(connections) == "2"
    });
    run
}

#[test]
fn a_standby_takes_over_when_the_first_host_dies_and_not_before() {
    let database = Database::new();
    let mut first = host(&database).work(LONG);
    let worker = first.wait_for_worker();
    let mut second = standby(&database);

    first.signal(Signal::SIGKILL);
    signal_all(&[worker.pid], Signal::SIGKILL);

    let successor = second.wait_for_worker();
    let died = first.spans()[0].end;
    let gap = successor.start.saturating_sub(died);
    assert!(gap < TTL + Duration::from_secs(1) + SLACK, "{gap:?}");
    assert_eq!(overlap([&first, &second]), None);
}

#[test]
fn a_standby_takes_over_at_once_when_the_first_host_stops_cleanly() {
    let database = Database::new();
    let mut first = host(&database)
        .env("RUN_LOCK_TTL_SECONDS", "600")
        .work(LONG);
    first.wait_for_worker();
    let mut second = standby(&database);

    first.signal(Signal::SIGTERM);

    let successor = second.wait_for_worker();
    assert_eq!(first.exit_code(), 143);
    let gap = successor.start.saturating_sub(first.spans()[0].end);
    println!("taken over {gap:?} after the end of the first worker");
    assert!(gap < SLACK, "{gap:?}");
    assert_eq!(overlap([&first, &second]), None);
}

#[test]
fn a_standby_that_is_told_to_stop_ends_at_once_and_holds_nothing() {
    let database = Database::new();
    let mut first = host(&database).work(LONG);
    first.wait_for_worker();
    let holder = database.lease().unwrap().value;
    let mut second = standby(&database);

    second.signal(Signal::SIGTERM);

    assert_eq!(second.exit_code_within(SLACK), 143);
    assert_eq!(second.stderr(), "");
    assert!(second.spans().is_empty());
    assert_eq!(database.lease().unwrap().value, holder);
}
