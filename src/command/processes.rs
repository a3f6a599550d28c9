//! What `/proc` says about processes.
//!
//! Runs in the guardian too: see the rules at the top of `kernel`.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Whence, getpid, lseek, read};

use super::kernel::read_directory;

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

/// The `/proc` of our own process namespace.
pub(super) struct Proc(OwnedFd);

impl Proc {
    /// # Errors
    ///
    /// When there is none: numbers from another namespace would name strangers.
    pub(super) fn open() -> Result<Self, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = Self(open(c"/proc", flags, Mode::empty())?);
        let mut stat = [0_u8; 512];
        let own = proc.read_file(c"self/stat", &mut stat).unwrap_or_default();
        let number = own.split(|&b| b == b' ').next().and_then(parse);
        if number == Some(i64::from(getpid().as_raw())) {
            Ok(proc)
        } else {
            Err(Errno::ENOENT)
        }
    }

    /// The process with this number, as it is now.
    pub(super) fn process(&self, pid: i32) -> Option<Process> {
        let mut path = [0_u8; 24];
        let mut stat = [0_u8; 512];
        let path = stat_path(pid, &mut path)?;
        parse_stat(pid, self.read_file(path, &mut stat)?)
    }

    /// Calls `each` with the processes there are, mostly in the order of their numbers.
    pub(super) fn for_each(&self, mut each: impl FnMut(Process)) -> Result<(), Errno> {
        lseek(&self.0, 0, Whence::SeekSet)?;
        read_directory(self.as_fd(), |pid| {
            if let Some(process) = self.process(pid) {
                each(process);
            }
        })
    }

    fn read_file<'a>(&self, path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(&self.0, path, flags, Mode::empty()).ok()?;
        let len = read(&file, buffer).ok()?;
        buffer.get(..len)
    }
}

impl AsFd for Proc {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process with this number, as `/proc` shows it now.
pub(super) fn process(pid: i32) -> Option<Process> {
    Proc::open().ok()?.process(pid)
}

/// The children of a process, as they are now; none where that cannot be told.
pub(super) fn children_of(parent: i32) -> Vec<i32> {
    let mut children = Vec::new();
    if let Ok(proc) = Proc::open() {
        let _ = proc.for_each(|process| {
            if process.parent == parent {
                children.push(process.pid);
            }
        });
    }
    children
}

/// `<pid>/stat`, without the allocator.
fn stat_path(pid: i32, buffer: &mut [u8; 24]) -> Option<&CStr> {
    use std::io::Write as _;
    let mut rest = buffer.as_mut_slice();
    write!(rest, "{pid}/stat\0").ok()?;
    CStr::from_bytes_until_nul(buffer).ok()
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
