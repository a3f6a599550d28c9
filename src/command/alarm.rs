//! A descriptor that can be read from an instant of the boot-time clock on: also one that passed
//! while the machine slept.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::BootInstant;

/// Centuries: more than the kernel takes would be an error.
const LONGEST: Duration = Duration::from_secs(1 << 33);

#[derive(Debug)]
pub(super) struct Alarm(TimerFd);

impl Alarm {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(ClockId::CLOCK_BOOTTIME, flags).map(Self)
    }

    /// Sets it, in place of any instant before; it can be read no longer until then.
    pub(super) fn set(&self, at: BootInstant) -> Result<(), Errno> {
        if at == BootInstant::NEVER {
            return self.0.unset();
        }
        // An all-zero time would switch it off.
        let at = at.since_boot().clamp(Duration::from_nanos(1), LONGEST);
        let at = Expiration::OneShot(TimeSpec::from_duration(at));
        self.0.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
