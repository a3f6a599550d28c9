//! Clocks that run at different rates, and the true time that nobody in the model can read.

use std::time::Duration;

use crate::clock::BootInstant;

/// Nanoseconds: since the beginning of a schedule where it is an instant.
pub(super) type Nanos = u64;

const BILLION: i128 = 1_000_000_000;

pub(super) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// A clock that shows `offset` at the beginning and runs `drift` billionths too fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset: i128,
    drift: i128,
}

impl Clock {
    pub(super) fn new(offset: Nanos, drift: i64) -> Self {
        Self {
            offset: i128::from(offset),
            drift: i128::from(drift),
        }
    }

    /// The same crystal after a reboot: it begins again from zero.
    pub(super) fn reboot(&mut self, at: Nanos) {
        self.offset = 0;
        self.offset = -self.shows(at);
    }

    fn shows(&self, at: Nanos) -> i128 {
        let at = i128::from(at);
        self.offset + at + (at * self.drift).div_euclid(BILLION)
    }

    /// What it shows.
    pub(super) fn read(&self, at: Nanos) -> Nanos {
        Nanos::try_from(self.shows(at)).unwrap_or(0)
    }

    /// The same as the boot-time clock of a host.
    pub(super) fn boot(&self, at: Nanos) -> BootInstant {
        BootInstant::from_boot(Duration::from_nanos(self.read(at)))
    }

    /// The first instant at which it shows `shown`, or more.
    pub(super) fn when(&self, shown: BootInstant) -> Nanos {
        let shown = i128::from(nanos(shown.since_boot()));
        let since = (shown - self.offset).max(0);
        let guess = (since * BILLION).div_euclid(BILLION + self.drift);
        let mut at = Nanos::try_from(guess).unwrap_or(Nanos::MAX);
        while self.shows(at) < shown && at < Nanos::MAX {
            at += 1;
        }
        at
    }
}

#[test]
fn an_alarm_goes_off_when_the_clock_shows_its_time_and_not_before() {
    for drift in [-200_000, -1, 0, 1, 200_000] {
        let mut clock = Clock::new(7_000_000_000, drift);
        for _ in 0..2 {
            for shown in [7_000_000_001, 7_000_123_456, 99_999_999_999] {
                let at = clock.when(BootInstant::from_boot(Duration::from_nanos(shown)));
                assert!(clock.read(at) >= shown && clock.read(at - 1) < shown);
            }
            clock.reboot(3_000_000_000);
        }
    }
}
