//! The system calls that no safe wrapper covers; the only unsafe code of the crate.
//!
//! Everything here is safe to call between `fork` and `exec` in a process that had many threads:
//! no allocation, no lock, no thread-local but `errno`, no panic. Memory comes from `mmap`.

mod exec;
mod forget;
mod memory;
mod process;
mod signals;

pub(super) use exec::Image;
pub(super) use forget::{forget_environment, forget_memory};
pub(super) use memory::{MappedVec, SharedNanos};
pub(super) use process::{
    Status, Waited, close_all_but, close_on_exec_all_but, exit, fork, pidfd_open, pidfd_signal,
    read_directory, signal_group, signal_process, wait_for, wait_for_any, wait_for_guardian,
};
pub(super) use signals::{
    Mask, block_all_signals, current_mask, drop_handlers, is_ignored, set_mask,
};

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long};

/// The answer of a raw system call.
fn check(answer: c_long) -> Result<c_long, Errno> {
    if answer == -1 {
        Err(Errno::last())
    } else {
        Ok(answer)
    }
}

/// The answer of a libc function.
fn check_int(answer: c_int) -> Result<c_int, Errno> {
    if answer == -1 {
        Err(Errno::last())
    } else {
        Ok(answer)
    }
}

type SysResult<T> = Result<T, Errno>;

const PAGE: usize = 4096;

/// The value of errno for which a call is simply made again.
fn interrupted<T>(result: &SysResult<T>) -> bool {
    matches!(result, Err(Errno::EINTR))
}

const _: () = assert!(size_of::<libc::c_ulong>() == size_of::<usize>());
