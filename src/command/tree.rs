//! Everything below one process, found in `/proc` and signalled without ever hitting a stranger.
//!
//! A process is in the tree when the chain of its parents leads to the root. The guardian adopts
//! whatever loses its parent, so no `setsid` and no double fork leads out of the tree.
//!
//! A listing of `/proc` is old the moment it is made. So each process is first pinned by a pidfd, then
//! looked at once more: if it started when the listed one did, the number has not changed hands, and
//! the signal goes through the pidfd. What was in the tree still is, for nothing leaves it.
//!
//! The time that each round takes is in proportion to the number of processes there are, however deep
//! the tree is.
//!
//! Runs in the guardian too: see the rules at the top of `kernel`.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::SIGKILL;

use super::kernel::{MappedVec, pidfd_open, pidfd_signal, signal_process};
use super::listing::{Bounds, Listing, Scope};
use super::processes::{Proc, Process};
use crate::clock::BootInstant;

/// Passes over a tree that forks while it is told to stop; who is missed after that is killed later.
const MOST_PASSES: usize = 8;
/// What a round of killing takes, in listings: one to begin with, and more than one for the rest.
const LISTINGS_TO_KILL: u32 = 4;
/// What the kernel takes to end a process; measured, and generous.
const TIME_TO_DIE: Duration = Duration::from_micros(50);
/// And for each process above it, for it still shares memory with them if it was forked only.
const TIME_PER_ANCESTOR: Duration = Duration::from_micros(2);

/// What one round of killing met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Processes that were alive.
    pub(super) alive: usize,
    /// One that may not be signalled by us.
    pub(super) denied: Option<i32>,
    /// How many of those there are.
    pub(super) denials: usize,
}

impl Round {
    /// All that is left is out of our reach: other users' processes.
    pub(super) fn out_of_reach(&self) -> Option<i32> {
        self.denied.filter(|_| self.denials == self.alive)
    }
}

/// Which processes a signal is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Among {
    /// All of the tree.
    All,
    /// Those outside this process group, which was signalled as a whole.
    OutsideGroup(i32),
    /// Those in this process group, which is not the command's alone.
    InGroup(i32),
}

impl Among {
    fn includes(self, group: i32) -> bool {
        match self {
            Self::All => true,
            Self::OutsideGroup(excepted) => group != excepted,
            Self::InGroup(wanted) => group == wanted,
        }
    }
}

/// The tree below one process.
pub(super) struct Tree {
    proc: Proc,
    bounds: Bounds,
    listing: Listing,
    /// Who got the signals that are sent just once; sorted between two passes.
    told: MappedVec<(i32, u64)>,
}

impl Tree {
    /// # Errors
    ///
    /// When there is no memory, or no `/proc` of our own process namespace.
    pub(super) fn below(root: i32) -> Result<Self, Errno> {
        Self::new(Scope::Below(root))
    }

    /// What started at `since` or later in a process group.
    ///
    /// # Errors
    ///
    /// As [`Tree::below`].
    pub(super) fn of_group(group: i32, since: u64) -> Result<Self, Errno> {
        let mut tree = Self::new(Scope::Group(group))?;
        tree.bounds.since = since;
        Ok(tree)
    }

    fn new(scope: Scope) -> Result<Self, Errno> {
        Ok(Self {
            proc: Proc::open()?,
            bounds: Bounds::new(scope)?,
            listing: Listing::new()?,
            told: MappedVec::new()?,
        })
    }

    /// Leaves these children of the root out of the tree, with all below them, and whatever started
    /// before `since`.
    pub(super) fn leave_out(&mut self, strangers: &[i32], since: u64) {
        self.bounds.leave_out(strangers);
        self.bounds.since = since;
    }

    /// The descriptor that this needs.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    /// Sends the signals to every process of the tree among those wanted, once to each, also to those
    /// that are forked meanwhile. At `until` it leaves the rest untold.
    pub(super) fn tell(&mut self, signals: &[i32], among: Among, until: BootInstant) {
        self.told.clear();
        for _ in 0..MOST_PASSES {
            match self.tell_once(signals, among, until) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// One pass; answers how many were told.
    fn tell_once(
        &mut self,
        signals: &[i32],
        among: Among,
        until: BootInstant,
    ) -> Result<usize, Errno> {
        self.listing.take(&self.proc, &self.bounds)?;
        let already = self.told.as_slice().len();
        for (process, _) in self.listing.members() {
            if !among.includes(process.group) {
                continue;
            }
            let name = (process.pid, process.started);
            let before = self.told.as_slice().get(..already).unwrap_or_default();
            if before.binary_search(&name).is_ok() {
                continue;
            }
            if BootInstant::now() >= until {
                return Err(Errno::ETIME);
            }
            if self.signal(process, signals) != Err(Errno::ESRCH) {
                self.told.push(name)?;
            }
        }
        self.told.as_mut_slice().sort_unstable();
        Ok(self.told.as_slice().len().saturating_sub(already))
    }

    /// How long it takes to kill the tree, by what there is of it now.
    pub(super) fn time_to_kill(&mut self) -> Duration {
        let start = BootInstant::now();
        if self.listing.take(&self.proc, &self.bounds).is_err() {
            return Duration::ZERO;
        }
        let listed = BootInstant::now().left(start);
        self.listing
            .members()
            .map(|(_, above)| TIME_TO_DIE.saturating_add(TIME_PER_ANCESTOR.saturating_mul(above)))
            .fold(
                listed.saturating_mul(LISTINGS_TO_KILL),
                Duration::saturating_add,
            )
    }

    /// Kills what is alive in the tree, as far as one listing shows it.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub(super) fn kill(&mut self) -> Result<Round, Errno> {
        self.listing.take(&self.proc, &self.bounds)?;
        let mut round = Round::default();
        for (process, _) in self.listing.members() {
            match self.signal(process, &[SIGKILL]) {
                Ok(()) => round.alive = round.alive.saturating_add(1),
                Err(Errno::EPERM) => {
                    round.alive = round.alive.saturating_add(1);
                    round.denials = round.denials.saturating_add(1);
                    round.denied = Some(process.pid);
                }
                // Gone, or for the next listing to tell.
                Err(_) => {}
            }
        }
        Ok(round)
    }

    /// Signals a member of the listing if it still is the one that has this number.
    fn signal(&self, listed: Process, signals: &[i32]) -> Result<(), Errno> {
        let pinned = pidfd_open(listed.pid);
        if matches!(pinned, Err(Errno::ESRCH)) || !self.is_still(listed) {
            return Err(Errno::ESRCH);
        }
        let mut outcome = Ok(());
        for &signal in signals {
            let through_pidfd = pinned
                .as_ref()
                .map_err(|&errno| errno)
                .and_then(|pidfd| pidfd_signal(pidfd.as_fd(), signal));
            outcome = match through_pidfd {
                Err(error @ (Errno::ESRCH | Errno::EPERM)) => Err(error),
                // No pidfd on this kernel, or no descriptor left: by number, checked just now.
                Err(_) => signal_process(listed.pid, signal),
                Ok(()) => Ok(()),
            };
        }
        outcome
    }

    fn is_still(&self, listed: Process) -> bool {
        self.proc
            .process(listed.pid)
            .is_some_and(|now| self.bounds.still_hold(listed, now))
    }
}
