//! Processes: fork, wait, signal, and what `/proc` lists.

use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc::{self, c_int, c_long, c_uint, pid_t};
use nix::sys::stat::Mode;

use super::{SysResult, check, check_int, interrupted};
use crate::rules::outcome::Ended;

/// Forks; the child runs `child`, which should not return, and ends.
///
/// `exit_signal` is what the parent is sent when the child ends. With 0 it is sent nothing, and no
/// `wait` finds the child but one that asks for it with `__WALL`: a program's own handling of its
/// children is left alone.
///
/// This is the bare system call: no handlers of `pthread_atfork` run. The child must keep to the rules
/// at the top of this module.
pub(in crate::command) fn fork(exit_signal: c_int, child: impl FnOnce()) -> SysResult<pid_t> {
    let flags = c_long::from(exit_signal);
    let none: c_long = 0;
    // SAFETY: without CLONE_VM and with no stack given this is fork(2). The child shares no memory
    // with the parent and leaves this function only by ending its process.
    #[cfg(not(target_arch = "s390x"))]
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
    // SAFETY: as above; this architecture takes the stack first.
    #[cfg(target_arch = "s390x")]
    let pid = unsafe { libc::syscall(libc::SYS_clone, none, flags, none, none, none) };
    match check(pid)? {
        0 => {
            child();
            exit(1)
        }
        pid => pid_t::try_from(pid).map_err(|_| Errno::EOVERFLOW),
    }
}

/// Ends this process at once: no destructors, no buffers.
pub(in crate::command) fn exit(code: c_int) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Status {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

impl From<Status> for Ended {
    fn from(status: Status) -> Self {
        match status {
            Status::Exited(code) => Self::Exited(code),
            Status::Signaled(signal) => Self::Signaled(signal),
        }
    }
}

/// What became of the children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::command) enum Waited {
    /// None has ended that was not waited for yet.
    Running,
    /// This one has.
    Ended(pid_t, Status),
    /// There are no children.
    NoChildren,
}

fn wait(which: libc::idtype_t, pid: pid_t, options: c_int) -> Waited {
    loop {
        // SAFETY: all zeroes is a valid `siginfo_t`, and it outlives the call.
        let (answer, info) = unsafe {
            let mut info: libc::siginfo_t = zeroed();
            let id = libc::id_t::try_from(pid).unwrap_or(0);
            let answer = libc::waitid(which, id, &mut info, options | libc::WEXITED);
            (check_int(answer), info)
        };
        if interrupted(&answer) {
            continue;
        }
        if answer.is_err() {
            return Waited::NoChildren;
        }
        // SAFETY: after waitid(2) these are the fields that are set; zero when nobody has ended.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        return match pid {
            0 => Waited::Running,
            _ if info.si_code == libc::CLD_EXITED => Waited::Ended(pid, Status::Exited(status)),
            _ => Waited::Ended(pid, Status::Signaled(status)),
        };
    }
}

/// Looks for a child that has ended, without waiting, and leaves it a zombie.
///
/// Finds the children that tell this process of their end by SIGCHLD, as all do that were adopted.
pub(in crate::command) fn wait_for_any() -> Waited {
    wait(libc::P_ALL, 0, libc::WNOHANG | libc::WNOWAIT)
}

/// Lets go of a child that has ended.
pub(in crate::command) fn wait_for(pid: pid_t) {
    wait(libc::P_PID, pid, libc::WNOHANG);
}

/// Waits for the end of a child that was forked without an exit signal.
pub(in crate::command) fn wait_for_guardian(pid: pid_t) {
    wait(libc::P_PID, pid, libc::__WALL);
}

/// A descriptor that stands for the process, whatever becomes of its number.
pub(in crate::command) fn pidfd_open(pid: pid_t) -> SysResult<OwnedFd> {
    // SAFETY: takes two numbers; the descriptor is new, close-on-exec, and nobody else's.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0 as c_uint))?;
        let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Signals the process that `pidfd` stands for.
pub(in crate::command) fn pidfd_signal(pidfd: BorrowedFd<'_>, signal: c_int) -> SysResult<()> {
    // SAFETY: takes numbers, and no details of the signal.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0 as c_uint,
        )
    })
    .map(drop)
}

/// Signals the process with this number. The caller knows that the number is not reused.
pub(in crate::command) fn signal_process(pid: pid_t, signal: c_int) -> SysResult<()> {
    if pid <= 0 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: takes two numbers.
    check_int(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Signals a process group. The caller knows that the number is not reused.
pub(in crate::command) fn signal_group(group: pid_t, signal: c_int) -> SysResult<()> {
    if group <= 1 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: takes two numbers.
    check_int(unsafe { libc::kill(-group, signal) }).map(drop)
}

/// Calls `each` with the numbers among the names in a directory of `/proc`.
pub(in crate::command) fn read_directory(
    directory: BorrowedFd<'_>,
    mut each: impl FnMut(i32),
) -> SysResult<()> {
    #[repr(align(8))]
    struct Buffer([u8; 4096]);
    let mut buffer = Buffer([0; 4096]);
    loop {
        // SAFETY: the kernel writes at most as many bytes as the buffer has.
        let len = check(unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                directory.as_raw_fd(),
                buffer.0.as_mut_ptr(),
                buffer.0.len(),
            )
        })?;
        let len = usize::try_from(len).unwrap_or(0);
        if len == 0 {
            return Ok(());
        }
        let mut rest = buffer.0.get(..len).unwrap_or_default();
        // Each entry: inode (8 bytes), offset (8), its own length (2), type (1), name, NUL.
        while let Some(&[low, high]) = rest.get(16..18) {
            let size = usize::from(u16::from_ne_bytes([low, high]));
            let name = rest.get(19..size).unwrap_or_default();
            let name = name.split(|&b| b == 0).next().unwrap_or_default();
            if let Some(number) = std::str::from_utf8(name).ok().and_then(|n| n.parse().ok()) {
                each(number);
            }
            rest = rest.get(size.max(1)..).unwrap_or_default();
        }
    }
}

/// Closes every descriptor but those in `keep`, which is sorted on the way.
pub(in crate::command) fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut first: RawFd = 0;
    for &fd in keep.iter() {
        close_range(first, fd.saturating_sub(1));
        first = fd.saturating_add(1);
    }
    close_range(first, RawFd::MAX);
}

/// Closes every descriptor that no program would inherit, but those in `keep`. Does nothing where `/proc`
/// does not list them.
pub(in crate::command) fn close_on_exec_all_but(keep: &[RawFd]) {
    for_each_descriptor(|fd| {
        if !keep.contains(&fd) && is_close_on_exec(fd) {
            // SAFETY: closes a descriptor that the caller says nobody uses any more.
            unsafe { libc::close(fd) };
        }
    });
}

fn is_close_on_exec(fd: RawFd) -> bool {
    // SAFETY: takes two numbers.
    check_int(unsafe { libc::fcntl(fd, libc::F_GETFD) })
        .is_ok_and(|flags| flags & libc::FD_CLOEXEC != 0)
}

/// Calls `each` with the open descriptors, as `/proc` lists them.
fn for_each_descriptor(mut each: impl FnMut(RawFd)) {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(listing) = open(c"/proc/self/fd", flags, Mode::empty()) else {
        return;
    };
    let own = listing.as_raw_fd();
    let _ = read_directory(listing.as_fd(), |fd| {
        if fd != own {
            each(fd);
        }
    });
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: closes descriptors that the caller says nobody uses any more.
    let closed = check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as c_uint) });
    if closed.is_ok() {
        return;
    }
    // Before Linux 5.9: one by one.
    for_each_descriptor(|fd| {
        if (first..=last).contains(&fd) {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    });
}
