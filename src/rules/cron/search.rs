//! When a crontab fires next.
//!
//! Between two changes of a zone's offset, its *span*, wall time and real time run side by side, and
//! a tick is simply the first matching minute. Where two spans meet, cron knows two kinds of jobs:
//!
//! - A job that *follows the wall clock* (its minute or hour field starts with `*`) fires whenever
//!   the wall clock shows a matching minute: in both passes of a repeated hour, never in a lost one.
//! - Every other job reads a clock that never goes back: the latest wall time shown so far. So it
//!   fires in the first pass of a repeated hour only, and what a lost hour held comes at the first
//!   instant after it, once, however much that was.
//!
//! Cron daemons stop treating a change so when it exceeds three hours, since somebody may have set the
//! clock. Here only a zone's rules move the wall clock, so a country that skips a whole day is
//! treated like any other gap.

use std::iter;

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{Crontab, LAST, Set};

/// No two offsets from UTC are further apart, so wall times shown before that have been reached
/// again by now.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(52);

/// A stretch of time in which a zone's offset stays the same; `end` is not part of it.
struct Span {
    start: Timestamp,
    end: Option<Timestamp>,
    offset: Offset,
}

impl Crontab {
    /// The first tick that is later than `after`; `None` only when none is left before the year 9999
    /// ends.
    pub(crate) fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let begin = after.checked_sub(LOOK_BACK).unwrap_or(Timestamp::MIN);
        // Every minute before this one has been shown by the wall clock, or skipped.
        let mut reached = zone.to_datetime(begin);
        for span in spans(zone, begin) {
            let opens = span.offset.to_datetime(span.start);
            let closes = span
                .end
                .map_or(DateTime::MAX, |end| span.offset.to_datetime(end));
            if span.end.is_none_or(|end| end > after) {
                let mut from = if self.follows_wall_clock {
                    opens
                } else {
                    reached
                };
                if span.start <= after {
                    let past = span.offset.to_datetime(after);
                    from = from.max(past.checked_add(SignedDuration::from_nanos(1)).ok()?);
                }
                let minute = self.first_minute(from)?;
                if minute < closes {
                    // A minute before the span opens was lost: now is the time for it.
                    return span.offset.to_timestamp(minute.max(opens)).ok();
                }
            }
            reached = reached.max(closes);
        }
        None
    }

    /// All ticks later than `after`, in order.
    pub(crate) fn ticks_after<'a>(
        &'a self,
        after: Timestamp,
        zone: &'a TimeZone,
    ) -> impl Iterator<Item = Timestamp> + 'a {
        iter::successors(self.next_after(after, zone), |&tick| {
            self.next_after(tick, zone)
        })
    }

    /// The first matching minute of the wall clock that does not start before `from`.
    fn first_minute(&self, from: DateTime) -> Option<DateTime> {
        // Into the minute that the seconds belong to, unless there are none.
        let from = from
            .checked_add(SignedDuration::new(59, 999_999_999))
            .ok()?;
        let mut date = self.first_date(from.date())?;
        if date == from.date() {
            if let Some((hour, minute)) = self.first_time(from.hour(), from.minute()) {
                return Some(date.at(hour, minute, 0, 0));
            }
            date = self.first_date(date.tomorrow().ok()?)?;
        }
        let (hour, minute) = self.first_time(0, 0)?;
        Some(date.at(hour, minute, 0, 0))
    }

    /// The first matching time of a day that is not before `hour`:`minute`.
    fn first_time(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        let within_hour = self.minutes.first_from(minute);
        if let Some(minute) = within_hour.filter(|_| self.hours.contains(hour)) {
            return Some((hour, minute));
        }
        Some((
            self.hours.first_from(hour + 1)?,
            self.minutes.first_from(0)?,
        ))
    }

    /// The first matching date that is not before `from`, a month at a time.
    fn first_date(&self, from: Date) -> Option<Date> {
        let (mut year, mut month, mut day) = (from.year(), from.month(), from.day());
        loop {
            if self.months.contains(month) {
                let first = Date::new(year, month, 1).ok()?;
                if let Some(day) = self.days_of_month(first).first_from(day) {
                    return Date::new(year, month, day).ok();
                }
            }
            day = 1;
            (year, month) = if month < 12 {
                (year, month + 1)
            } else {
                (year + 1, 1)
            };
        }
    }

    /// The days on which the job runs in the month that starts with `first`, if it runs in that month.
    fn days_of_month(&self, first: Date) -> Set {
        let length = first.days_in_month();
        let mut by_date = self.days.and(Set::between(1, length));
        if self.days.contains(LAST) {
            by_date.insert(length);
        }
        let first_weekday = first.weekday().to_sunday_zero_offset();
        let by_weekday = Set::of((1..=length).filter(|day| {
            let weekday = (first_weekday + day - 1) % 7;
            let runs = self.weekdays[usize::from(weekday.unsigned_abs())];
            runs.contains((day + 6) / 7) || (runs.contains(LAST) && day + 7 > length)
        }));
        if self.either_day {
            by_date.or(by_weekday)
        } else {
            by_date.and(by_weekday)
        }
    }
}

/// The zone's spans from `begin` on.
fn spans(zone: &TimeZone, begin: Timestamp) -> impl Iterator<Item = Span> {
    let changes = zone.following(begin).map(|t| (t.timestamp(), t.offset()));
    let mut starts = iter::once((begin, zone.to_offset(begin)))
        .chain(changes)
        .peekable();
    iter::from_fn(move || {
        let (start, offset) = starts.next()?;
        // A zone file without a rule for the time after its last change: jiff repeats that change.
        let end = starts
            .peek()
            .map(|&(end, _)| end)
            .filter(|&end| end > start);
        Some(Span { start, end, offset })
    })
}
