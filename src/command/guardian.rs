//! The guardian as dislock sees it: a child process and a channel to it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process;

use nix::errno::Errno;
use nix::libc::{SIGCONT, SIGKILL};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::close;

use super::frames::{Inbox, Notice, Order, Received, nanos, send_some};
use super::kernel::{
    SharedNanos, block_all_signals, fork, pidfd_open, set_mask, signal_process, wait_for_guardian,
};
use super::watch::watch;
use crate::clock::BootInstant;

/// The process that is going to be the command's parent.
///
/// It ends when this is dropped; a command that still runs then is killed by the kernel, what that one
/// left behind is left alone.
///
/// It has no exit signal: a program's own SIGCHLD handler and `wait` never see it.
pub(crate) struct Guardian {
    pid: i32,
    channel: OwnedFd,
    inbox: Inbox,
    /// Orders that the channel had no room for yet.
    unsent: Vec<u8>,
    deadline: SharedNanos,
    waited_for: bool,
}

impl Guardian {
    /// Forks it. Works from any thread of a program with many.
    ///
    /// # Errors
    ///
    /// When there are too many processes or descriptors, or no memory.
    pub(crate) fn fork() -> io::Result<Self> {
        let stream = SockType::Stream;
        let (ours, theirs) = socketpair(AddressFamily::Unix, stream, None, SockFlag::SOCK_CLOEXEC)?;
        let deadline = SharedNanos::new(nanos(BootInstant::NEVER))?;
        let own_pid = i32::try_from(process::id()).map_err(io::Error::other)?;
        // Kernels before 5.3 have none; then only the channel tells that we are gone.
        let mut supervisor = pidfd_open(own_pid).ok();
        let mut theirs = Some(theirs);
        let mask = block_all_signals()?;
        let forked = fork(0, || {
            let _ = close(ours.as_raw_fd());
            match theirs.take() {
                Some(theirs) => watch(theirs, supervisor.take(), &deadline),
                None => super::kernel::exit(1),
            }
        });
        set_mask(mask)?;
        Ok(Self {
            pid: forked?,
            channel: ours,
            inbox: Inbox::default(),
            unsent: Vec::new(),
            deadline,
            waited_for: false,
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// From this instant on the guardian kills the tree, unless the deadline is moved before.
    pub(super) fn set_deadline(&self, kill_at: BootInstant) {
        self.deadline.set(nanos(kill_at));
    }

    /// Gives an order, which goes out as soon as the channel takes it.
    pub(super) fn order(&mut self, order: Order, attachment: &[u8]) {
        self.unsent.extend_from_slice(&order.encode());
        self.unsent.extend_from_slice(attachment);
        self.send();
        self.wake();
    }

    /// Whether orders wait for room in the channel.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what the channel takes.
    pub(super) fn send(&mut self) {
        while !self.unsent.is_empty() {
            match send_some(self.channel.as_fd(), &self.unsent) {
                Ok(0) => return,
                Ok(sent) => drop(self.unsent.drain(..sent)),
                // It is gone, which `receive` reports.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// The next notice: `None` for none yet.
    ///
    /// # Errors
    ///
    /// When the guardian is gone.
    pub(super) fn receive(&mut self) -> Result<Option<Notice>, Errno> {
        match self.inbox.receive(self.channel.as_fd()) {
            Received::Frame(frame) => Notice::decode(frame).map(Some).ok_or(Errno::EPROTO),
            Received::Nothing => Ok(None),
            Received::Closed => Err(Errno::EPIPE),
        }
    }

    /// Makes it go on if somebody has stopped it: there is something for it to do.
    pub(super) fn wake(&self) {
        // It is our child and not waited for: the number is its own.
        if !self.waited_for {
            let _ = signal_process(self.pid, SIGCONT);
        }
    }

    /// Ends it.
    pub(super) fn end(&mut self) {
        if !self.waited_for {
            let _ = signal_process(self.pid, SIGKILL);
            wait_for_guardian(self.pid);
            self.waited_for = true;
        }
    }
}

impl AsFd for Guardian {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Guardian {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guardian")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}
