//! Signal masks and dispositions, exactly as the kernel has them.
//!
//! libc's own functions silently leave out the two signals that it uses itself; a mask that is to
//! reach the command unchanged must not go through them.

use std::mem::zeroed;
use std::ptr;

use nix::libc::{self, SIG_DFL, SIG_IGN, c_int, c_ulong};

use super::{SysResult, check};

/// The kernel's signal set: bit n-1 stands for signal n.
pub(in crate::command) type Mask = u64;

const HIGHEST_SIGNAL: c_int = 64;

/// Changes the calling thread's mask and answers what it was.
fn change_mask(how: c_int, mask: Option<Mask>) -> SysResult<Mask> {
    let mut old: Mask = 0;
    let new = mask.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both sets are of the size that is given, and outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            new,
            ptr::from_mut(&mut old),
            size_of::<Mask>(),
        )
    })?;
    Ok(old)
}

/// Blocks every signal in the calling thread; answers the mask to restore.
pub(in crate::command) fn block_all_signals() -> SysResult<Mask> {
    change_mask(libc::SIG_SETMASK, Some(Mask::MAX))
}

/// Sets the calling thread's mask.
pub(in crate::command) fn set_mask(mask: Mask) -> SysResult<()> {
    change_mask(libc::SIG_SETMASK, Some(mask)).map(drop)
}

/// The calling thread's mask.
pub(in crate::command) fn current_mask() -> SysResult<Mask> {
    change_mask(libc::SIG_BLOCK, None)
}

fn disposition(signal: c_int) -> Option<libc::sigaction> {
    // SAFETY: all zeroes is a valid `sigaction`, and with no new one the call only reads.
    unsafe {
        let mut old: libc::sigaction = zeroed();
        (libc::sigaction(signal, ptr::null(), &mut old) == 0).then_some(old)
    }
}

/// Whether this process ignores the signal.
pub(in crate::command) fn is_ignored(signal: c_int) -> bool {
    disposition(signal).is_some_and(|d| d.sa_sigaction == SIG_IGN)
}

/// Gives the signal its default action.
fn reset_to_default(signal: c_int) {
    // SAFETY: all zeroes is SIG_DFL without flags; no handler is installed.
    unsafe {
        let default: libc::sigaction = zeroed();
        libc::sigaction(signal, &default, ptr::null_mut());
    }
}

/// Brings the dispositions into the state in which the command is to get them: what is ignored stays
/// ignored, handlers are dropped (`exec` would do so, but only later), SIGCHLD and SIGPIPE are default.
pub(in crate::command) fn drop_handlers() {
    for signal in 1..=HIGHEST_SIGNAL {
        let Some(now) = disposition(signal) else {
            continue;
        };
        let inherited = matches!(now.sa_sigaction, SIG_DFL | SIG_IGN);
        if !inherited || matches!(signal, libc::SIGCHLD | libc::SIGPIPE) {
            reset_to_default(signal);
        }
    }
}

const _: () = assert!(size_of::<c_ulong>() <= size_of::<Mask>());
