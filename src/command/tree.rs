//! Everything below one process, found in `/proc` and signalled without ever hitting a stranger.
//!
//! A process is in the tree when the chain of its parents leads to the root. The guardian adopts
//! whatever loses its parent, so no `setsid` and no double fork leads out of the tree.
//!
//! A listing of `/proc` is old the moment it is made. So each process is first pinned by a pidfd, then its
//! chain of parents is read once more: if it still leads to the root, the number has not changed
//! hands, and the signal goes through the pidfd.
//!
//! Runs in the guardian too: see the rules at the top of `kernel`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::libc::SIGKILL;
use nix::sys::stat::Mode;
use nix::unistd::{Whence, getpid, lseek, read};

use super::kernel::{MappedVec, pidfd_open, pidfd_signal, read_directory, signal_process};

/// No chain of parents is this long; a longer one is a listing that contradicts itself.
const LONGEST_CHAIN: usize = 10_000;
/// Passes over a tree that forks while it is told to stop; who is missed after that is killed later.
const MOST_PASSES: usize = 8;

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// Ended, and not waited for by its parent yet.
    pub(super) dead: bool,
    /// When it started, in clock ticks since the machine did: with the number it names a process.
    pub(super) started: u64,
}

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

/// Where the tree is.
#[derive(Clone, Copy, Debug)]
enum Scope {
    /// Below this process.
    Below(i32),
    /// In this process group: what is left to go by when the root is dead.
    Group(i32),
}

/// The tree below one process.
pub(super) struct Tree {
    scope: Scope,
    proc: OwnedFd,
    /// Children of the root that do not belong to the tree, with all below them.
    strangers: MappedVec<i32>,
    /// What started before that does not belong to the tree either.
    since: u64,
    /// The last listing, by number.
    listing: MappedVec<Process>,
    /// Who got the signals that are sent just once.
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
        tree.since = since;
        Ok(tree)
    }

    fn new(scope: Scope) -> Result<Self, Errno> {
        Ok(Self {
            scope,
            proc: open_proc()?,
            strangers: MappedVec::new()?,
            since: 0,
            listing: MappedVec::new()?,
            told: MappedVec::new()?,
        })
    }

    /// Leaves these children of the root out of the tree, with all below them, and whatever started
    /// before `since`.
    pub(super) fn leave_out(&mut self, strangers: &[i32], since: u64) {
        for &stranger in strangers {
            // Without memory for it there is none for the listing either, and nobody is signalled.
            let _ = self.strangers.push(stranger);
        }
        self.since = since;
    }

    /// Sends the signals to every process of the tree among those wanted, once to each, also to those
    /// that are forked meanwhile.
    pub(super) fn tell(&mut self, signals: &[i32], among: Among) {
        self.told.clear();
        for _ in 0..MOST_PASSES {
            let already = self.told.as_slice().len();
            if self.tell_once(signals, among).is_err() || self.told.as_slice().len() == already {
                return;
            }
        }
    }

    fn tell_once(&mut self, signals: &[i32], among: Among) -> Result<(), Errno> {
        self.list()?;
        for index in 0..self.listing.as_slice().len() {
            let Some(&process) = self.listing.as_slice().get(index) else {
                break;
            };
            let name = (process.pid, process.started);
            if process.dead
                || !among.includes(process.group)
                || !self.contains(process)
                || self.told.as_slice().contains(&name)
            {
                continue;
            }
            self.told.push(name)?;
            for &signal in signals {
                let _ = self.signal(process.pid, signal);
            }
        }
        Ok(())
    }

    /// The descriptor that this needs.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    /// Kills what is alive in the tree, as far as one listing shows it.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be read.
    pub(super) fn kill(&mut self) -> Result<Round, Errno> {
        self.list()?;
        let mut round = Round::default();
        for &process in self.listing.as_slice() {
            if process.dead || !self.contains(process) {
                continue;
            }
            match self.signal(process.pid, SIGKILL) {
                Ok(()) => round.alive = round.alive.saturating_add(1),
                Err(Errno::EPERM) => {
                    round.alive = round.alive.saturating_add(1);
                    round.denials = round.denials.saturating_add(1);
                    round.denied = Some(process.pid);
                }
                // Gone, or not of the tree.
                Err(_) => {}
            }
        }
        Ok(round)
    }

    /// Signals one process if it is in the tree at this moment.
    fn signal(&self, pid: i32, signal: i32) -> Result<(), Errno> {
        let pinned = pidfd_open(pid);
        if matches!(pinned, Err(Errno::ESRCH)) || !self.contains_now(pid) {
            return Err(Errno::ESRCH);
        }
        match pinned.and_then(|pidfd| pidfd_signal(pidfd.as_fd(), signal)) {
            Err(error @ (Errno::ESRCH | Errno::EPERM)) => Err(error),
            // No pidfd on this kernel, or no descriptor left: by number, checked just now.
            Err(_) => signal_process(pid, signal),
            Ok(()) => Ok(()),
        }
    }

    /// Whether the listing has the process below the root, be it a stranger's or not.
    fn contains(&self, process: Process) -> bool {
        if process.started < self.since {
            return false;
        }
        let root = match self.scope {
            Scope::Below(root) => root,
            Scope::Group(group) => return process.group == group,
        };
        let mut at = process;
        for _ in 0..LONGEST_CHAIN {
            if at.parent == root {
                return true;
            }
            let found = self
                .listing
                .as_slice()
                .binary_search_by_key(&at.parent, |p| p.pid)
                .ok()
                .and_then(|index| self.listing.as_slice().get(index));
            match found {
                Some(&parent) => at = parent,
                None => return false,
            }
        }
        false
    }

    /// Whether the process is below the root at this moment. Each step is believed only when the child
    /// still has the parent after that one was looked at: then the parent's number was its own.
    fn contains_now(&self, pid: i32) -> bool {
        let root = match self.scope {
            Scope::Below(root) => root,
            Scope::Group(group) => {
                return process_in(&self.proc, pid).is_some_and(|p| p.group == group);
            }
        };
        let mut pid = pid;
        let mut parent = self.parent_of(pid);
        for _ in 0..LONGEST_CHAIN {
            let Some(above) = parent else {
                return false;
            };
            if self.strangers.as_slice().contains(&pid) {
                return false;
            }
            if above == root {
                return true;
            }
            let next = self.parent_of(above);
            let again = self.parent_of(pid);
            if again == parent {
                pid = above;
                parent = next;
            } else {
                // It was adopted meanwhile: from its new parent on.
                parent = again;
            }
        }
        false
    }

    fn parent_of(&self, pid: i32) -> Option<i32> {
        process_in(&self.proc, pid)
            .map(|p| p.parent)
            .filter(|&parent| parent > 0)
    }

    fn list(&mut self) -> Result<(), Errno> {
        self.listing.clear();
        rewind(&self.proc)?;
        let proc = &self.proc;
        let listing = &mut self.listing;
        let mut sorted = true;
        let mut last = 0;
        read_directory(proc.as_fd(), |pid| {
            if let Some(process) = process_in(proc, pid) {
                sorted &= last < pid;
                last = pid;
                // Without memory the rest is left for the next round.
                let _ = listing.push(process);
            }
        })?;
        if !sorted {
            listing.as_mut_slice().sort_unstable_by_key(|p| p.pid);
        }
        Ok(())
    }
}

/// Opens `/proc` if it is the one of our own process namespace: numbers from another one would name
/// strangers.
fn open_proc() -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let proc = open(c"/proc", flags, Mode::empty())?;
    let mut stat = [0_u8; 512];
    let own = read_file(&proc, c"self/stat", &mut stat).unwrap_or_default();
    let number = own.split(|&b| b == b' ').next().and_then(parse);
    if number == Some(i64::from(getpid().as_raw())) {
        Ok(proc)
    } else {
        Err(Errno::ENOENT)
    }
}

/// The process with this number, as `/proc` shows it now.
pub(super) fn process(pid: i32) -> Option<Process> {
    process_in(&open_proc().ok()?, pid)
}

/// The children of a process, as they are now; none where that cannot be told.
pub(super) fn children_of(parent: i32) -> Vec<i32> {
    let mut children = Vec::new();
    if let Ok(proc) = open_proc() {
        let _ = read_directory(proc.as_fd(), |pid| {
            if process_in(&proc, pid).is_some_and(|p| p.parent == parent) {
                children.push(pid);
            }
        });
    }
    children
}

fn rewind(directory: &OwnedFd) -> Result<(), Errno> {
    lseek(directory, 0, Whence::SeekSet).map(drop)
}

fn process_in(proc: &OwnedFd, pid: i32) -> Option<Process> {
    let mut path = [0_u8; 24];
    let mut stat = [0_u8; 512];
    let path = stat_path(pid, &mut path)?;
    parse_stat(pid, read_file(proc, path, &mut stat)?)
}

fn read_file<'a>(
    directory: &OwnedFd,
    path: &std::ffi::CStr,
    buffer: &'a mut [u8],
) -> Option<&'a [u8]> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = openat(directory, path, flags, Mode::empty()).ok()?;
    let len = read(&file, buffer).ok()?;
    buffer.get(..len)
}

/// `<pid>/stat`, without the allocator.
fn stat_path(pid: i32, buffer: &mut [u8; 24]) -> Option<&std::ffi::CStr> {
    use std::io::Write as _;
    let mut rest = buffer.as_mut_slice();
    write!(rest, "{pid}/stat\0").ok()?;
    std::ffi::CStr::from_bytes_until_nul(buffer).ok()
}

pub(super) fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    // The name is in parentheses and may contain any byte, parentheses too.
    let after_name = stat.iter().rposition(|&b| b == b')')?;
    // Fields 3, 4, 5, 20 and 22 of proc_pid_stat(5).
    let mut fields = stat
        .get(after_name.checked_add(2)?..)?
        .split(|&b| b == b' ');
    let state = fields.next()?;
    let parent = parse(fields.next()?)?;
    let group = parse(fields.next()?)?;
    let threads = parse(fields.nth(20 - 5 - 1)?)?;
    let started = parse(fields.nth(22 - 20 - 1)?)?;
    // The first thread of a process may end before the others do: that is not the process's end.
    let dead = matches!(state, b"Z" | b"X") && threads <= 1;
    Some(Process {
        pid,
        parent: i32::try_from(parent).ok()?,
        group: i32::try_from(group).ok()?,
        dead,
        started: u64::try_from(started).ok()?,
    })
}

fn parse(field: &[u8]) -> Option<i64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}
