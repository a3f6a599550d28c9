//! Trees of many processes, each in a session of its own, that ignore SIGTERM: all dead in time.

use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, pause, setsid};

use super::*;
use crate::clock::BootInstant;
use crate::command::kernel::fork;

/// Be a crowd of this shape.
const SHAPE: &str = "TEST_CROWD";
/// Of so many processes.
const SIZE: &str = "TEST_CROWD_SIZE";
/// What a busy machine may be late by; less than what lies between the kill and the row's expiry.
const SLACK: Duration = Duration::from_millis(200);

/// What the command of these tests runs, this test binary once more.
pub(super) fn be_a_crowd() {
    let Some(shape) = std::env::var_os(SHAPE) else {
        return;
    };
    let size: u32 = number_of(SIZE).unwrap();
    if shape == "chain" {
        chain(size);
    } else {
        for _ in 1..size {
            fork(nix::libc::SIGCHLD, || stay(|| {})).unwrap();
        }
        stay(|| fs::write("ready", "").unwrap());
    }
}

/// Each the child of the one before.
fn chain(size: u32) {
    stay(|| {
        if size > 1 {
            fork(nix::libc::SIGCHLD, || chain(size - 1)).unwrap();
        } else {
            fs::write("ready", "").unwrap();
        }
    });
}

fn stay(first: impl FnOnce()) {
    // It fails for who was started as the leader of a group already.
    let _ = setsid();
    first();
    loop {
        pause();
    }
}

/// How long after the instant by which it has to be dead the last of a crowd dies.
fn dies_late_by(shape: &str, size: u32) -> Duration {
    // Everyone in the crowd holds the pipe's writing end.
    let script = "trap '' TERM; cd $D; unset TEST_ARGS; exec 3> alive; exec $SELF";
    let setup = Setup::sh(script)
        .env(SHAPE, shape)
        .env(SIZE, size.to_string())
        .env("SELF", std::env::current_exe().unwrap())
        .kill_grace(Duration::from_secs(1))
        .lease_until_rejected();
    let pipe = setup.directory.path().join("alive");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let pipe = fs::File::options()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(pipe)
        .unwrap();
    let mut run = setup.start();
    run.wait_for_file("ready");

    run.reject();
    let mut last_end = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    let patience = PollTimeout::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut last_end, patience), Ok(1));
    let dead_at = BootInstant::now();
    assert_eq!(run.wait(), 75);

    let kill_at: u64 = fs::read_to_string(run.path(KILL_AT))
        .unwrap()
        .parse()
        .unwrap();
    dead_at.left(BootInstant::from_boot(Duration::from_nanos(kill_at)))
}

#[test]
fn a_long_chain_of_sessions_is_dead_in_time() {
    let late = dies_late_by("chain", 300);
    assert!(late < SLACK, "{late:?}");
}

#[test]
fn two_thousand_sessions_are_dead_in_time() {
    let late = dies_late_by("flat", 2000);
    assert!(late < SLACK, "{late:?}");
}
