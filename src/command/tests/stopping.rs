//! Stopping: the whole tree, in time, whatever it does about it.

use super::*;

const SHORT: Duration = Duration::from_millis(500);

#[test]
fn a_lost_lease_stops_the_command_and_the_run_reports_the_loss() {
    let mut run = Setup::sh("echo $$ > $D/pid; exec sleep 100")
        .lease(8 * SHORT, 0)
        .start();
    run.number_in("pid");
    assert_eq!(run.wait(), 75);
    run.nothing_is_left();
}

#[test]
fn a_command_that_ends_well_while_it_is_stopped_still_lost_its_lease() {
    let script = "trap 'exit 0' TERM; echo $$ > $D/pid; while :; do sleep 0.01; done";
    let mut run = Setup::sh(script).lease(8 * SHORT, 0).start();
    run.number_in("pid");
    assert_eq!(run.wait(), 75);
}

#[test]
fn a_renewed_lease_lets_the_command_run_past_its_first_deadline() {
    let run = Setup::sh("sleep 5; exit 3").lease(Duration::from_secs(2), u32::MAX);
    assert_eq!(run.run(), 3);
}

#[test]
fn a_rejected_lease_stops_the_command_long_before_the_deadline() {
    let mut run = Setup::sh("echo $$ > $D/pid; exec sleep 100")
        .lease_until_rejected()
        .start();
    run.number_in("pid");
    run.reject();
    let took = time_until("the command is dead", || run.command_processes().is_empty());
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(run.wait(), 75);
}

#[test]
fn what_ignores_sigterm_is_killed_after_the_grace() {
    let script = "trap '' TERM; echo $$ > $D/pid; while :; do sleep 0.01; done";
    let mut run = Setup::sh(script)
        .kill_grace(SHORT)
        .lease_until_rejected()
        .start();
    let pid = run.number_in("pid");
    let start = Instant::now();
    run.reject();
    eventually("the command is dead", || !is_alive(pid));
    let took = start.elapsed();
    assert!(took >= SHORT && took < AT_ONCE, "{took:?}");
    assert_eq!(run.wait(), 75);
    run.nothing_is_left();
}

#[test]
fn what_is_stopped_gets_sigterm_and_can_act_on_it() {
    let job = "trap 'echo done > $D/cleaned; exit' TERM; echo $$ > $D/pid
        while :; do sleep 0.01; done";
    let escaped = "setsid sh -c \"$JOB\" & wait";
    for script in [job, escaped] {
        let mut run = Setup::sh(script)
            .env("JOB", job)
            .lease_until_rejected()
            .start();
        let pid = run.number_in("pid");
        signal_process(pid, nix::libc::SIGSTOP).unwrap();
        run.reject();
        assert_eq!(run.wait(), 75);
        assert!(run.path("cleaned").exists());
    }
}

/// A tree with every way out of a process group: a child, a session of its own, and a daemon that
/// was forked twice; all ignore SIGTERM when `$IGNORE` says so.
const TREE: &str = "trap \"$IGNORE\" TERM
    stay() { echo started > $D/$1; while :; do sleep 0.02; done; }
    stay child &
    (stay daemon &)
    setsid sh -c 'trap \"$IGNORE\" TERM; echo started > $D/session; while :; do sleep 0.02; done' &
    (setsid sh -c 'trap \"$IGNORE\" TERM; echo started > $D/both; while :; do sleep 0.02; done' &)
    echo $$ > $D/pid
    wait; wait; wait; sleep 100";

pub(super) fn tree(ignore: bool) -> Setup {
    // An empty action ignores the signal, `-` is its default.
    Setup::sh(TREE).env("IGNORE", if ignore { "" } else { "-" })
}

pub(super) fn wait_for_tree(run: &Supervisor) {
    for file in ["child", "daemon", "session", "both", "pid"] {
        run.wait_for_file(file);
    }
}

#[test]
fn a_stop_reaches_sessions_and_daemons_below_the_command() {
    let mut run = tree(false).lease_until_rejected().start();
    wait_for_tree(&run);
    run.reject();
    let took = time_until("the tree is gone", || run.command_processes().is_empty());
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(run.wait(), 75);
}

#[test]
fn a_tree_that_ignores_sigterm_is_gone_when_dislock_ends() {
    let mut run = tree(true).kill_grace(SHORT).lease_until_rejected().start();
    wait_for_tree(&run);
    run.reject();
    assert_eq!(run.wait(), 75);
    assert_eq!(run.command_processes(), []);
}

#[test]
fn a_library_stops_the_tree_just_the_same() {
    let mut run = tree(true)
        .in_a_library()
        .kill_grace(SHORT)
        .lease_until_rejected()
        .start();
    wait_for_tree(&run);
    run.reject();
    assert_eq!(run.wait(), 75);
    assert_eq!(run.command_processes(), []);
}

#[test]
fn a_forwarded_sigterm_gives_the_commands_own_status() {
    for (signal, name, code) in [
        (Signal::SIGTERM, "TERM", 143),
        (Signal::SIGINT, "INT", 130),
        (Signal::SIGHUP, "HUP", 129),
        (Signal::SIGQUIT, "QUIT", 131),
        (Signal::SIGUSR1, "USR1", 138),
        (Signal::SIGUSR2, "USR2", 140),
    ] {
        // A core dump of SIGQUIT would be litter.
        let script = format!("ulimit -c 0; trap - {name}; echo $$ > $D/pid; exec sleep 100");
        let mut run = Setup::sh(&script).start();
        run.number_in("pid");
        run.signal(signal);
        assert_eq!(run.wait(), code, "{name}");
        run.nothing_is_left();
    }
}

#[test]
fn a_signal_is_forwarded_every_time_it_comes() {
    let script = "n=0; trap 'n=$((n+1)); echo $n > $D/count' USR1; trap 'exit $n' TERM
        echo $$ > $D/pid; while :; do sleep 0.01; done";
    let mut run = Setup::sh(script).start();
    run.number_in("pid");
    for n in 1..=5 {
        run.signal(Signal::SIGUSR1);
        eventually("it is counted", || {
            fs::read_to_string(run.path("count")).is_ok_and(|c| c == format!("{n}\n"))
        });
    }
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait(), 5);
}

#[test]
fn the_lease_is_kept_while_the_command_takes_its_time_to_end() {
    // Asked to end at once, it needs more than twice the TTL for it.
    let script = "trap 'sleep 5; exit 9' TERM; echo $$ > $D/pid; while :; do sleep 0.01; done";
    let ttl = Duration::from_secs(2);
    let mut run = Setup::sh(script).lease(ttl, u32::MAX).start();
    run.number_in("pid");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait(), 9);
}

#[test]
fn what_a_command_leaves_behind_when_asked_to_end_is_swept() {
    let script = "(trap '' TERM; echo $$ > $D/left; while :; do sleep 0.02; done) &
        trap 'exit 4' TERM; echo $$ > $D/pid; while :; do sleep 0.01; done";
    let mut run = Setup::sh(script).kill_grace(SHORT).start();
    run.wait_for_file("left");
    run.number_in("pid");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait(), 4);
    assert_eq!(run.command_processes(), []);
}

#[test]
fn a_daemon_that_a_command_leaves_behind_on_success_lives_on() {
    let script = "(setsid sh -c 'echo $$ > $D/daemon; exec sleep 100' &)
        while ! [ -s $D/daemon ]; do sleep 0.01; done";
    let mut run = Setup::sh(script).start();
    let daemon = run.number_in("daemon");
    assert_eq!(run.wait(), 0);
    // The guardian went with dislock, so nobody is left to kill it.
    assert!(is_alive(daemon));
    assert_eq!(run.command_processes(), [daemon]);
}

#[test]
fn an_orphan_in_the_tree_does_not_delay_the_commands_end() {
    let took = {
        let start = Instant::now();
        assert_eq!(Setup::sh("sleep 100 & exit 6").run(), 6);
        start.elapsed()
    };
    assert!(took < AT_ONCE, "{took:?}");
}
