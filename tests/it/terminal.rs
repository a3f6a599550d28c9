//! dislock in a terminal: reading it, and what its keys send.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::database::Database;
use crate::support::processes;
use crate::support::run::Run;
use crate::support::wait::{SOON, eventually, value};

const INTERRUPT: u8 = 3;

/// Runs a shell script in a terminal of its own, whose session's leader is the shell; `$DISLOCK` in it
/// is dislock with all that comes before the command.
fn in_terminal(database: &Database, script: &str) -> (PtyMaster, Run) {
    let keyboard = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
    grantpt(&keyboard).unwrap();
    unlockpt(&keyboard).unwrap();
    let screen = File::options()
        .read(true)
        .write(true)
        .open(ptsname_r(&keyboard).unwrap())
        .unwrap();
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "sh", "-c", script]);
    command.stdin(screen);
    command
        .env(
            "DISLOCK",
            format!("{} DATABASE_URL", env!("CARGO_BIN_EXE_dislock")),
        )
        .env("DATABASE_URL", database.url())
        .env("LOCK_KEY", "job")
        .env("LOCK_STRATEGY", "lease")
        .env("LOCK_KILL_GRACE_SECONDS", "1");
    (keyboard, Run::start(command))
}

#[track_caller]
fn wait_for_output(run: &Run, text: &str) {
    value(text, SOON, || run.stdout().contains(text).then_some(()));
}

#[test]
fn the_command_can_read_from_the_keyboard() {
    let database = Database::new();
    let script = "$DISLOCK sh -c 'read line < /dev/tty; echo \"got $line\"'; echo code $?";
    let (mut keyboard, mut run) = in_terminal(&database, script);

    keyboard.write_all(b"hello\n").unwrap();

    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    assert_eq!(run.stdout(), "got hello\ncode 0\n");
}

#[test]
fn an_interrupt_ends_the_command_and_gives_the_lease_up() {
    let database = Database::new();
    let script = "trap : INT; $DISLOCK sh -c 'echo ready; exec sleep 60'; echo code $?";
    let (mut keyboard, mut run) = in_terminal(&database, script);
    wait_for_output(&run, "ready");

    keyboard.write_all(&[INTERRUPT]).unwrap();

    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    assert_eq!(run.stdout(), "ready\ncode 130\n");
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn sigterm_to_dislock_ends_a_command_that_is_stopped() {
    let database = Database::new();
    let script = "$DISLOCK sh -c 'echo $$; kill -STOP $$; echo went on; exec sleep 60' &
        wait $!; echo code $?";
    let (_keyboard, mut run) = in_terminal(&database, script);
    eventually("the command is stopped", || {
        let stdout = run.stdout();
        let number = stdout.lines().next().and_then(|line| line.parse().ok());
        number.is_some_and(|pid| processes::state(Pid::from_raw(pid)) == Some('T'))
    });
    let named = |pid: &Pid| processes::name(*pid).as_deref() == Some("dislock");
    let dislock: Vec<Pid> = run.processes().into_iter().filter(named).collect();

    processes::signal_all(&dislock, Signal::SIGTERM);

    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    let stdout = run.stdout();
    assert_eq!(stdout.lines().skip(1).collect::<Vec<_>>(), ["code 143"]);
}

#[test]
fn in_a_pipeline_a_lost_lease_spares_the_other_side() {
    let database = Database::new();
    let script = "($DISLOCK sh -c 'echo ready; sleep 60'; echo code $?) |
        { while read line; do echo \"$line\"; done; echo end; }";
    let (_keyboard, mut run) = in_terminal(&database, script);
    wait_for_output(&run, "ready");

    database.sql("DELETE FROM key_value");

    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    assert_eq!(run.stdout(), "ready\ncode 75\nend\n");
}

#[test]
fn a_terminal_that_goes_away_takes_the_command_along() {
    let database = Database::new();
    let (keyboard, mut run) = in_terminal(&database, "exec $DISLOCK sh -c 'echo ready; sleep 60'");
    wait_for_output(&run, "ready");

    drop(keyboard);

    assert_eq!(run.exit_code_within(Duration::from_secs(10)), 129);
    eventually("nothing is left", || run.processes().is_empty());
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}
