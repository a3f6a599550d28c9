//! Signals to dislock: before the command runs they end it with nothing held, afterwards they are the
//! command's, and the locks are kept until it has ended.

use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::database::Database;
use crate::support::processes;
use crate::support::run::{Dislock, Run};
use crate::support::wait::{SOON, eventually, value};

/// Waits for what the command writes.
#[track_caller]
fn wait_for_output(run: &Run, text: &str) {
    value(text, SOON, || run.stdout().contains(text).then_some(()));
}

fn lease(database: &Database) -> Dislock {
    Dislock::lease(database.url(), 60.0).env("LOCK_KILL_GRACE_SECONDS", "1")
}

/// Ends at once, with nothing held, and without having started anything.
#[track_caller]
fn assert_stopped_before(mut run: Run, signal: Signal, database: &Database) {
    run.signal(signal);

    // It would go on for 10 s at least.
    let code = run.exit_code_within(Duration::from_secs(5));
    assert_eq!(code, 128 + signal as i32, "{}", run.stderr());
    assert_eq!(run.stdout(), "");
    let held = database.lease().is_some_and(|row| row.seconds_left > 0.0);
    assert!(!held || database.lease().unwrap().value.starts_with("other"));
    eventually("nothing is left", || run.processes().is_empty());
}

const ENDS: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

#[test]
fn a_signal_during_the_jitter_ends_dislock_at_once() {
    for signal in ENDS {
        let database = Database::new();
        let run = lease(&database)
            .env("LOCK_JITTER_SECONDS", "100000")
            .start(["echo", "ran"]);
        wait_until_signals_are_taken(&run);

        assert_stopped_before(run, signal, &database);
    }
}

#[test]
fn a_signal_while_connecting_ends_dislock_at_once() {
    for signal in ENDS {
        let database = Database::new();
        let proxy = database.proxy();
        proxy.silence();
        let run = Dislock::lease(database.url_via(&proxy), 60.0).start(["echo", "ran"]);
        eventually("a connection", || proxy.connections() > 0);

        assert_stopped_before(run, signal, &database);
    }
}

#[test]
fn a_signal_while_waiting_for_a_busy_lease_ends_dislock_at_once() {
    for signal in ENDS {
        let database = Database::new();
        database.put("cronjob-lock:lease:job", "other:1", 600.0);
        let run = lease(&database)
            .env("LOCK_WAIT_SECONDS", "forever")
            .log_level("info")
            .start(["echo", "ran"]);
        wait_until_signals_are_taken(&run);

        assert_stopped_before(run, signal, &database);
    }
}

/// Before that they have their default action, which ends dislock with the same code.
fn wait_until_signals_are_taken(run: &Run) {
    eventually("dislock takes its signals", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.pid()));
        let blocked =
            |line: &str| line.starts_with("SigBlk:") && !line.ends_with("0000000000000000");
        status.is_ok_and(|status| status.lines().any(blocked))
    });
}

#[test]
fn other_signals_before_the_command_runs_do_not_end_the_wait() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "other:1", 2.0);
    let mut run = lease(&database)
        .env("LOCK_WAIT_SECONDS", "forever")
        .start(["echo", "ran"]);
    wait_until_signals_are_taken(&run);

    for signal in [
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
        Signal::SIGCONT,
    ] {
        run.signal(signal);
    }

    assert_eq!((run.exit_code(), &*run.stdout()), (0, "ran\n"));
}

#[test]
fn every_signal_is_forwarded_as_often_as_it_comes() {
    let database = Database::new();
    let script = "for s in HUP QUIT INT USR1 USR2 WINCH CONT; do trap \"echo $s\" $s; done
        trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = lease(&database).start(["sh", "-c", script]);
    wait_for_output(&run, "ready");

    // CONT first: it also follows each signal that asks for an end.
    for (signal, name) in [
        (Signal::SIGCONT, "CONT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
    ] {
        for times in 1..=3 {
            run.signal(signal);
            eventually(name, || {
                run.stdout().lines().filter(|line| *line == name).count() == times
            });
        }
    }
    run.signal(Signal::SIGTERM);

    assert_eq!(run.exit_code(), 3, "{}", run.stderr());
}

#[test]
fn a_command_that_is_stopped_ends_by_the_signal_all_the_same() {
    let database = Database::new();
    for signal in ENDS {
        // A core dump of SIGQUIT would be litter.
        let script = "ulimit -c 0; echo $$; kill -STOP $$; echo went on; exec sleep 60";
        let mut run = lease(&database).start(["sh", "-c", script]);
        wait_until_stopped(&run);

        run.signal(signal);

        assert_eq!(run.exit_code(), 128 + signal as i32, "{}", run.stderr());
        assert_eq!(run.stdout().lines().count(), 1, "{}", run.stdout());
    }
}

/// Waits until the command, whose first line is its number, has stopped.
#[track_caller]
fn wait_until_stopped(run: &Run) {
    eventually("the command is stopped", || {
        let stdout = run.stdout();
        let number = stdout.lines().next().and_then(|line| line.parse().ok());
        number.is_some_and(|pid| processes::state(Pid::from_raw(pid)) == Some('T'))
    });
}

#[test]
fn while_the_command_handles_the_signal_the_lease_is_renewed() {
    let database = Database::new();
    // It takes twice the TTL to end.
    let script = "trap 'sleep 4; exit 9' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = Dislock::renewed_often(database.url(), 2.0).start(["sh", "-c", script]);
    wait_for_output(&run, "ready");

    run.signal(Signal::SIGTERM);
    eventually("the command ends", || {
        // Read in this order, a row that is not live was given up by a dislock that was about to end.
        let ended = run.try_exit_code().is_some();
        let live = database.lease().unwrap().seconds_left > 0.0;
        assert!(ended || live || run.exit_code() == 9);
        ended
    });

    assert_eq!(run.exit_code(), 9, "{}", run.stderr());
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn what_the_command_leaves_behind_is_swept_before_the_lease_is_given_up() {
    let database = Database::new();
    let script = "(trap '' TERM HUP INT QUIT; setsid sleep 60) & sleep 0.2; echo ready; wait";
    for signal in ENDS {
        let mut run = lease(&database).start(["sh", "-c", script]);
        wait_for_output(&run, "ready");

        run.signal(signal);
        let mut left_when_released = None;
        eventually("the lease is given up", || {
            let live = database.lease().unwrap().seconds_left > 0.0;
            left_when_released = Some(
                run.processes()
                    .into_iter()
                    .filter(|&p| p != run.pid())
                    .count(),
            );
            !live
        });

        assert_eq!(left_when_released, Some(0));
        assert_eq!(run.exit_code(), 128 + signal as i32);
    }
}

#[test]
fn a_slot_alone_has_the_same_supervisor() {
    let database = Database::new();
    let mut run = Dislock::schedule(database.url(), "0 0 1 1 *")
        .env("LOCK_KILL_GRACE_SECONDS", "0.5")
        .start([
            "sh",
            "-c",
            "(trap '' TERM; sleep 60) & sleep 0.2; echo ready; wait",
        ]);
    wait_for_output(&run, "ready");

    run.signal(Signal::SIGTERM);

    assert_eq!(run.exit_code(), 143);
    assert_eq!(run.processes(), []);
    // The tick has started: its slot stays taken.
    assert!(database.slot().unwrap().seconds_left > 0.0);
}

#[test]
fn under_continue_kill_9_still_takes_the_tree() {
    let database = Database::new();
    let mut run = lease(&database)
        .env("LOCK_ON_LEASE_LOSS", "continue")
        .start([
            "sh",
            "-c",
            "(setsid sleep 60 &); sleep 60 & echo ready; wait",
        ]);
    wait_for_output(&run, "ready");

    run.signal(Signal::SIGKILL);

    assert_eq!(run.exit_code(), 137);
    eventually("the tree is gone", || run.processes().is_empty());
}

#[test]
fn a_daemon_that_is_left_behind_on_success_lives_on_and_is_not_waited_for() {
    let database = Database::new();
    let mut run = lease(&database).start(["sh", "-c", "(setsid sleep 60 &); echo ready"]);

    assert_eq!(run.exit_code_within(Duration::from_secs(10)), 0);

    // It may still be on its way from the shell to its program.
    eventually("only the daemon is left", || {
        let left = run.processes();
        let [daemon] = left[..] else {
            assert!(!left.is_empty());
            return false;
        };
        processes::name(daemon).as_deref() == Some("sleep")
    });
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn killing_every_process_called_dislock_leaves_nothing_of_the_command() {
    let database = Database::new();
    let mut run = lease(&database).start([
        "sh",
        "-c",
        "(setsid sleep 60 &); echo ready; wait; sleep 60",
    ]);
    wait_for_output(&run, "ready");

    // As `pkill -9 dislock` would.
    for pid in processes::children(run.pid())
        .into_iter()
        .chain([run.pid()])
    {
        if processes::name(pid).is_some_and(|name| name.contains("dislock")) {
            processes::signal_all(&[pid], Signal::SIGKILL);
        }
    }

    assert_eq!(run.exit_code(), 137);
    eventually("the tree is gone", || run.processes().is_empty());
}
