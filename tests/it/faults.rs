//! What happens to a running command when the network, the server or the supervisor fails: while
//! the lease can be kept it goes on, and otherwise it is dead before another host can have the lease.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::database::{Database, Row};
use crate::support::processes;
use crate::support::run::{Dislock, Run, overlap, work_when_free};
use crate::support::server::{Server, Stop};
use crate::support::wait::eventually;
use crate::support::worker;

const LONG: Duration = Duration::from_secs(60);

/// A lease of 3 s, renewed every half second, with one second from SIGTERM to SIGKILL.
fn short_lease(url: String) -> Dislock {
    Dislock::lease(url, 3.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .env("LOCK_KILL_GRACE_SECONDS", "1")
}

/// Waits until the lease was renewed once more.
#[track_caller]
fn wait_for_renewal(database: &Database) {
    let left = |row: Option<Row>| row.expect("a lease row").seconds_left;
    let before = left(database.lease());
    let since = worker::now();
    eventually("a renewal", || {
        // What is left of the same expiry falls as time goes by.
        let passed = (worker::now() - since).as_secs_f64();
        left(database.lease()) > before - passed + 0.2
    });
}

/// The holder lost the lease: its successor starts only after it is dead, and it exits with 75.
#[track_caller]
fn assert_succeeded(mut holder: Run, database: &Database) {
    let successor = work_when_free(&short_lease(database.url()), Duration::from_secs(15));

    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
    assert_eq!(overlap([&holder, &successor]), None);
    assert!(holder.processes().is_empty());
    // The loser has not touched what is its successor's by now.
    let live = database.lease().unwrap();
    assert!(live.seconds_left > 0.0, "{live:?}");
}

#[test]
fn on_a_silent_network_the_command_is_dead_before_its_successor_starts() {
    let database = Database::new();
    let proxy = database.proxy();
    let mut holder = short_lease(database.url_via(&proxy)).work(LONG);
    holder.wait_for_worker();
    wait_for_renewal(&database);

    proxy.silence();

    assert_succeeded(holder, &database);
}

#[test]
fn on_a_reset_network_the_command_is_dead_before_its_successor_starts() {
    let database = Database::new();
    let proxy = database.proxy();
    let mut holder = short_lease(database.url_via(&proxy)).work(LONG);
    holder.wait_for_worker();
    wait_for_renewal(&database);

    proxy.go_away();

    assert_succeeded(holder, &database);
}

#[test]
fn with_frozen_backends_the_command_is_dead_before_its_successor_starts() {
    let server = Server::start();
    let database = server.database();
    let mut holder = short_lease(database.url() + "?application_name=victim").work(LONG);
    holder.wait_for_worker();
    wait_for_renewal(&database);

    let frozen = server.freeze("victim");

    assert_succeeded(holder, &database);
    drop(frozen);
}

#[test]
fn a_command_that_ignores_sigterm_is_dead_before_its_successor_starts() {
    let database = Database::new();
    let proxy = database.proxy();
    let mut holder =
        short_lease(database.url_via(&proxy)).work_under_shell("trap '' TERM; exec \"$@\"", LONG);
    holder.wait_for_worker();

    proxy.silence();

    assert_succeeded(holder, &database);
}

#[test]
fn all_that_the_command_started_is_dead_before_its_successor_starts() {
    let database = Database::new();
    let proxy = database.proxy();
    let mut holder = short_lease(database.url_via(&proxy))
        .work_under_shell("\"$@\" & setsid \"$@\" & (setsid \"$@\" &); wait", LONG);
    holder.wait_for_worker();
    eventually("three workers", || holder.spans().len() == 3);

    proxy.silence();

    let successor = work_when_free(&short_lease(database.url()), Duration::from_secs(15));
    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
    let start = successor.spans()[0].start;
    assert!(holder.spans().iter().all(|span| span.end < start));
}

#[test]
fn a_row_locked_by_somebody_elses_transaction_does_not_hold_the_command_up() {
    let database = Database::new();
    let mut holder = short_lease(database.url()).work(LONG);
    holder.wait_for_worker();
    wait_for_renewal(&database);

    let mut operator = database.session();
    operator.sql("BEGIN");
    operator.sql("SELECT * FROM key_value WHERE key LIKE '%:lease:%' FOR UPDATE");
    let locked = worker::now();

    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
    // The last renewal was before, so the TTL is over no later than this.
    let survived = holder.spans()[0].end - locked;
    assert!(survived < Duration::from_secs(3), "{survived:?}");
}

#[test]
fn a_renewal_that_succeeds_too_late_does_not_undo_the_loss() {
    let server = Server::start();
    let database = server.database();
    let mut holder = short_lease(database.url() + "?application_name=victim")
        .work_under_shell("trap '' TERM; exec \"$@\"", LONG);
    holder.wait_for_worker();
    wait_for_renewal(&database);
    let frozen = server.freeze("victim");
    eventually("the lease is given up", || {
        holder.stderr().contains("cronjob-lock:lease:job")
    });

    drop(frozen);

    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
}

/// A lease that outlives a restart: 10 s.
fn long_lease(url: String) -> Dislock {
    Dislock::lease(url, 10.0).env("LOCK_LEASE_INTERVAL", "0.5")
}

/// The command came to its end, and the lease was given up.
#[track_caller]
fn assert_survived(mut run: Run, database: &Database) {
    run.end_work();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    assert!(run.spans()[0].done);
    let row = database.lease().unwrap();
    assert!(row.seconds_left <= 0.0, "{row:?}");
}

#[test]
fn a_restarted_server_finds_the_lease_renewed_and_the_command_working() {
    for how in [Stop::Fast, Stop::Immediate] {
        let server = Server::start();
        let database = server.database();
        let mut run = long_lease(database.url()).work(LONG);
        run.wait_for_worker();

        server.restart(how);

        wait_for_renewal(&database);
        assert_survived(run, &database);
    }
}

#[test]
fn a_terminated_connection_is_made_again() {
    let server = Server::start();
    let database = server.database();
    let mut run = long_lease(database.url() + "?application_name=victim").work(LONG);
    run.wait_for_worker();

    server.terminate("victim");

    wait_for_renewal(&database);
    assert_survived(run, &database);
}

#[test]
fn a_network_that_is_back_in_time_costs_nothing() {
    let database = Database::new();
    let proxy = database.proxy();
    let mut run = long_lease(database.url_via(&proxy)).work(LONG);
    run.wait_for_worker();

    proxy.go_away();
    let without = worker::now() + Duration::from_secs(1);
    eventually("a second without a network", || worker::now() > without);
    proxy.heal();

    wait_for_renewal(&database);
    assert_survived(run, &database);
}

#[test]
fn a_slow_network_is_enough() {
    let database = Database::new();
    let proxy = database.proxy();
    proxy.slow_down(Duration::from_millis(150));

    let run = long_lease(database.url_via(&proxy)).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout, &*run.stderr), (0, "ran\n", ""));
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn a_server_that_became_a_standby_is_no_lock_any_more() {
    let server = Server::start();
    let database = server.database();
    let mut holder = short_lease(database.url()).work(LONG);
    holder.wait_for_worker();
    wait_for_renewal(&database);

    server.become_standby();

    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
}

#[test]
fn at_the_commands_end_an_unreachable_database_holds_the_exit_up_for_5_seconds_at_most() {
    let database = Database::new();
    let proxy = database.proxy();
    let mut run =
        Dislock::lease(database.url_via(&proxy), 60.0).work_under_shell("\"$@\"; exit 7", LONG);
    run.wait_for_worker();

    proxy.silence();
    run.end_work();

    assert_eq!(run.exit_code(), 7, "{}", run.stderr());
    let waited = worker::now() - run.spans()[0].end;
    assert!(waited < Duration::from_millis(5500), "{waited:?}");
    assert!(run.stderr().contains("[WARNING]"), "{}", run.stderr());
    assert!(database.lease().unwrap().seconds_left > 0.0);
}

#[test]
fn a_supervisor_that_is_killed_takes_the_whole_tree_with_it() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 60.0)
        .work_under_shell("\"$@\" & (setsid \"$@\" &); wait", LONG);
    run.wait_for_worker();
    eventually("two workers", || run.spans().len() == 2);

    run.signal(Signal::SIGKILL);
    let killed = worker::now();

    assert_eq!(run.exit_code(), 137);
    eventually("all is dead", || run.processes().is_empty());
    let survived = run.spans().iter().map(|span| span.end).max().unwrap();
    assert!(
        survived < killed + Duration::from_secs(1),
        "{:?}",
        survived - killed
    );
}

#[test]
fn a_supervisor_that_stands_still_does_not_keep_the_command_alive() {
    let database = Database::new();
    let mut holder = short_lease(database.url()).work(LONG);
    holder.wait_for_worker();

    holder.signal(Signal::SIGSTOP);
    let successor = work_when_free(&short_lease(database.url()), Duration::from_secs(15));
    let value = database.lease().unwrap().value;
    holder.signal(Signal::SIGCONT);

    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
    assert_eq!(overlap([&holder, &successor]), None);
    let row = database.lease().unwrap();
    assert_eq!(row.value, value);
    assert!(row.seconds_left > 0.0, "{row:?}");
}

#[test]
fn a_machine_that_was_paused_past_the_ttl_stops_the_command_at_once() {
    let database = Database::new();
    let mut holder = short_lease(database.url()).work(LONG);
    holder.wait_for_worker();
    let everybody = holder.processes();

    processes::signal_all(&everybody, Signal::SIGSTOP);
    let successor = work_when_free(&short_lease(database.url()), Duration::from_secs(15));
    let woken = worker::now();
    processes::signal_all(&everybody, Signal::SIGCONT);

    assert_eq!(holder.exit_code(), 75, "{}", holder.stderr());
    let survived = holder.spans()[0].end.saturating_sub(woken);
    // As late as a busy machine may be.
    assert!(survived < Duration::from_secs(2), "{survived:?}");
    assert_eq!(successor.spans().len(), 1);
    assert!(database.lease().unwrap().seconds_left > 0.0);
}

#[test]
fn a_signal_ends_the_command_and_gives_the_lease_up() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 60.0).work(LONG);
    run.wait_for_worker();

    run.signal(Signal::SIGTERM);

    assert_eq!(run.exit_code(), 143);
    assert!(run.processes().is_empty());
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}
