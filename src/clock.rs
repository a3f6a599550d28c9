//! The clock that deadlines are measured on.
//!
//! A lease must end by its deadline even when the machine slept in between, so the clock has to run
//! during a suspend: `CLOCK_BOOTTIME` on Linux. macOS's `CLOCK_MONOTONIC` does so by itself. Wall-clock
//! time never decides anything here: it can be set.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// An instant on the boot-time clock: how long ago the machine started, suspends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BootInstant(Duration);

impl BootInstant {
    /// Later than every deadline.
    pub(crate) const NEVER: Self = Self(Duration::MAX);

    /// Reads the clock.
    ///
    /// The clock exists on every kernel that Rust supports; were it missing, the answer is
    /// [`BootInstant::NEVER`], on which every deadline has passed: nothing is trusted.
    pub(crate) fn now() -> Self {
        #[cfg(test)]
        if let Some(pretended) = PRETENDED.get() {
            return pretended;
        }
        clock_gettime(BOOT_CLOCK).map_or(Self::NEVER, |t| Self(t.into()))
    }

    /// The instant `since_boot` after the machine started.
    pub(crate) const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// How long after the machine's start.
    pub(crate) const fn since_boot(self) -> Duration {
        self.0
    }

    /// `self + d`, or [`BootInstant::NEVER`] where that cannot be told.
    pub(crate) const fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d))
    }

    /// `self - d`, or the machine's start.
    pub(crate) const fn before(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d))
    }

    /// How long from `now` until `self`; zero when it has passed.
    pub(crate) const fn left(self, now: Self) -> Duration {
        self.0.saturating_sub(now.0)
    }
}

#[cfg(test)]
thread_local! {
    static PRETENDED: std::cell::Cell<Option<BootInstant>> = const { std::cell::Cell::new(None) };
}

/// Runs `f` on this thread with a clock that stands at `now`: for tests of what reads the clock itself.
#[cfg(test)]
pub(crate) fn standing_at<T>(now: BootInstant, f: impl FnOnce() -> T) -> T {
    let before = PRETENDED.replace(Some(now));
    let answer = f();
    PRETENDED.set(before);
    answer
}
