//! Crontab expressions: text in, ticks out.
//!
//! The reading is a crontab's, not Quartz's: five fields, Sunday is 0 and 7, and a job runs when
//! day-of-month OR day-of-week matches once both are restricted. A field is unrestricted only when
//! its first item is a bare `*`: `*,10` is, `10,*` and `*/2` are not. Beyond what cron knows there
//! is `N/step` (from N to the end), ranges that wrap (`fri-mon`), `L` for a month's last day,
//! `5#2` for its second Friday and `L5` for its last one. Anything that another cron dialect reads
//! differently is refused by [`parse`] rather than guessed at; so is what never comes.
//!
//! [`search`] says what happens when a zone changes its clocks.

mod parse;
mod search;
#[cfg(test)]
mod tests;

/// Instead of a number of days or occurrences: the last one of the month. Neither has a number 0.
const LAST: i8 = 0;

/// A crontab expression that fires again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crontab {
    minutes: Set,
    hours: Set,
    /// Days of the month, and [`LAST`].
    days: Set,
    months: Set,
    /// For each day of the week, from Sunday: its first, …, fifth and [`LAST`] occurrence in the
    /// month.
    weekdays: [Set; 7],
    /// Both day fields are restricted: a day needs to match only one of them. Otherwise an
    /// unrestricted one matches every day, and a day needs to match both.
    either_day: bool,
    /// The minute or hour field starts with `*`.
    follows_wall_clock: bool,
}

/// A set of the numbers 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Set(u64);

impl Set {
    fn of(numbers: impl IntoIterator<Item = i8>) -> Self {
        let mut set = Self::default();
        for n in numbers {
            set.insert(n);
        }
        set
    }

    /// The numbers from `first` to `last`; none when `last` is less.
    const fn between(first: i8, last: i8) -> Self {
        Self((u64::MAX << first) & (u64::MAX >> (63 - last)))
    }

    const fn insert(&mut self, n: i8) {
        self.0 |= 1 << n;
    }

    const fn contains(self, n: i8) -> bool {
        self.0 & (1 << n) != 0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The smallest member that is not less than `n`.
    fn first_from(self, n: i8) -> Option<i8> {
        let rest = self.0 & (u64::MAX << n);
        i8::try_from(rest.trailing_zeros()).ok().filter(|&m| m < 64)
    }

    fn iter(self) -> impl Iterator<Item = i8> {
        (0..64).filter(move |&n| self.contains(n))
    }
}
