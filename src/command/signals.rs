//! The signals that are meant for the command but are sent to dislock. The program's alone: a library
//! leaves its host's signals as they are.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc::{
    self, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getpid;

use super::kernel::{Mask, Waited, current_mask, is_ignored, set_mask, wait_for, wait_for_any};
use super::processes::children_of;
use crate::error::{Error, Kind, Result};

const FORWARDED: [i32; 8] = [
    SIGTERM, SIGHUP, SIGQUIT, SIGINT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT,
];

/// Whether the signal asks for an end.
pub(super) const fn ends(signal: i32) -> bool {
    matches!(signal, SIGTERM | SIGHUP | SIGQUIT | SIGINT)
}

/// A signal that dislock got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Incoming {
    pub(super) signal: i32,
    /// It comes from the kernel, for the terminal, and not from a process.
    pub(super) from_terminal: bool,
}

/// Receives dislock's signals through a descriptor instead of handlers.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    original_mask: Mask,
    /// Children that were there before anything was started: dislock replaced the program whose
    /// children they are.
    strangers: Vec<i32>,
}

impl Signals {
    /// Takes the signals over. To be called in `main`, before there is a second thread: a thread that
    /// does not block them would die of them.
    ///
    /// Signals that are ignored stay ignored, for dislock and for the command; with SIGCHLD it is the
    /// kernel that lets go of orphans, and the command gets it with its default. dislock also becomes
    /// the parent of the orphans below it, so that they can be found if the guardian is killed.
    ///
    /// # Errors
    ///
    /// When there are too many descriptors.
    pub(crate) fn block() -> Result<Self> {
        let failed = |why: Errno| Error::system("cannot receive signals", why);
        let original_mask = current_mask().map_err(failed)?;
        let mut set = SigSet::empty();
        let mut mask = original_mask;
        let received = FORWARDED.into_iter().filter(|&s| !is_ignored(s));
        for signal in received.chain([SIGCHLD]) {
            set.add(Signal::try_from(signal).map_err(failed)?);
            mask |= 1 << (signal - 1);
        }
        set_mask(mask).map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let fd = SignalFd::with_flags(&set, flags).map_err(failed)?;
        prctl::set_child_subreaper(true).map_err(failed)?;
        Ok(Self {
            fd,
            original_mask,
            strangers: match wait_for_any() {
                Waited::NoChildren => Vec::new(),
                Waited::Running | Waited::Ended(..) => children_of(getpid().as_raw()),
            },
        })
    }

    /// Waits until `ready` can be read, or dislock is told to end.
    ///
    /// # Errors
    ///
    /// [`Kind::Interrupted`] when a signal asked for the end first.
    pub(crate) fn wait_for(&self, ready: BorrowedFd<'_>) -> Result<()> {
        loop {
            let mut fds = [
                PollFd::new(self.fd.as_fd(), PollFlags::POLLIN),
                PollFd::new(ready, PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(why) => return Err(Error::system("cannot wait for signals", why)),
            }
            let [_, ready] = fds;
            self.check()?;
            if ready.any().unwrap_or(true) {
                return Ok(());
            }
        }
    }

    /// Whether a signal has asked for the end by now. Others are of no interest before the command
    /// runs.
    ///
    /// # Errors
    ///
    /// [`Kind::Interrupted`] when one has.
    pub(crate) fn check(&self) -> Result<()> {
        while let Some(incoming) = self.next() {
            if ends(incoming.signal) {
                return Err(Kind::Interrupted(incoming.signal).into());
            }
        }
        Ok(())
    }

    /// The next signal that is not about children; those are let go of on the way.
    pub(super) fn next(&self) -> Option<Incoming> {
        loop {
            let info = self.fd.read_signal().ok()??;
            let signal = i32::try_from(info.ssi_signo).ok()?;
            if signal == SIGCHLD {
                reap_orphans();
                continue;
            }
            return Some(Incoming {
                signal,
                from_terminal: info.ssi_code == libc::SI_KERNEL,
            });
        }
    }

    /// The mask that dislock was started with.
    pub(super) fn original_mask(&self) -> Mask {
        self.original_mask
    }

    pub(super) fn strangers(&self) -> &[i32] {
        &self.strangers
    }
}

/// Lets go of the children that have ended: as process 1 or a subreaper, dislock is given other
/// processes' orphans. The guardian is not among them, it has no exit signal.
pub(super) fn reap_orphans() {
    while let Waited::Ended(pid, _) = wait_for_any() {
        wait_for(pid);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
