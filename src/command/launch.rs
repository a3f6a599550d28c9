//! Starting the command, from the guardian's side: what `execve` needs, the fork, and all that
//! happens in the new process until it is the program.
//!
//! See the rules at the top of `kernel`.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc::SIGCHLD;
use nix::poll::{PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::{Pid, getpgrp, getpid, getppid, pipe2, setpgid, write};

use super::frames::Spawn;
use super::kernel::{Image, MappedVec, exit, fork, set_mask};
use crate::clock::BootInstant;

/// A program file that somebody still has open for writing is tried again for this long.
const BUSY_FILE: Duration = Duration::from_secs(1);
const BUSY_FILE_PAUSE_MS: u8 = 5;

/// The command's process.
pub(super) struct Command {
    pub(super) pid: i32,
    pub(super) group: Group,
    /// Says why it could not become the program; closed when it could.
    pub(super) starting: Option<OwnedFd>,
    /// It has ended, and dislock was told.
    pub(super) ended: bool,
    /// It was waited for: its number may be somebody else's.
    pub(super) forgotten: bool,
}

/// The process group that the command is in.
#[derive(Clone, Copy)]
pub(super) enum Group {
    /// Its own.
    Own,
    /// This one, which it shares with dislock.
    Shared(i32),
}

/// Receives the strings that follow the order, and forks the command.
pub(super) fn launch(channel: BorrowedFd<'_>, spawn: Spawn) -> Result<Command, Errno> {
    let strings = receive_all(channel, spawn.strings)?;
    start(Image::new(strings, spawn.args)?, spawn)
}

/// Receives `len` bytes. There is no command yet, so nothing else is to be done meanwhile.
fn receive_all(channel: BorrowedFd<'_>, len: usize) -> Result<MappedVec<u8>, Errno> {
    let mut bytes = MappedVec::zeroed(len)?;
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        match recv(channel.as_raw_fd(), rest, MsgFlags::MSG_WAITALL) {
            Ok(0) => exit(0),
            Ok(got) => rest = rest.get_mut(got..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(_) => exit(0),
        }
    }
    Ok(bytes)
}

/// Forks the command.
fn start(mut image: Image, spawn: Spawn) -> Result<Command, Errno> {
    let (starting, report) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let guardian = getpid();
    let pid = fork(SIGCHLD, || {
        become_program(&mut image, spawn, guardian, &report)
    })?;
    let group = if spawn.own_group {
        // Here and in the child: whoever comes first, the group is there before it is signalled.
        let pid = Pid::from_raw(pid);
        let _ = setpgid(pid, pid);
        Group::Own
    } else {
        Group::Shared(getpgrp().as_raw())
    };
    Ok(Command {
        pid,
        group,
        starting: Some(starting),
        ended: false,
        forgotten: false,
    })
}

/// In the command's process: everything up to `exec`.
fn become_program(image: &mut Image, spawn: Spawn, guardian: Pid, report: &OwnedFd) -> ! {
    let myself = Pid::from_raw(0);
    if spawn.own_group {
        let _ = setpgid(myself, myself);
    }
    let tied = prctl::set_pdeathsig(Signal::SIGKILL);
    // The guardian may have ended before that.
    if getppid() != guardian {
        exit(127);
    }
    let ready = tied.and_then(|()| set_mask(spawn.mask));
    let errno = match ready {
        Ok(()) => exec(image),
        Err(errno) => errno,
    };
    let _ = write(report, &(errno as i32).to_ne_bytes());
    exit(127)
}

fn exec(image: &mut Image) -> Errno {
    let give_up = BootInstant::now().after(BUSY_FILE);
    let mut errno = image.exec();
    while errno == Errno::ETXTBSY && BootInstant::now() < give_up {
        let _ = poll(&mut [], PollTimeout::from(BUSY_FILE_PAUSE_MS));
        errno = image.exec();
    }
    if errno == Errno::ENOEXEC {
        errno = image.exec_by_shell();
    }
    errno
}
