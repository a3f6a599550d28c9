//! Expressions that a test writes itself and so understands without parsing them, and a cron daemon
//! that looks at the clock every minute to run them.

use std::collections::BTreeSet;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

const MONTHS: &[&str] = &[
    "jan", "Feb", "MAR", "apr", "May", "JUN", "jul", "Aug", "SEP", "oct", "Nov", "DEC",
];
const WEEKDAYS: &[&str] = &["sun", "Mon", "TUE", "wed", "Thu", "FRI", "sat"];

/// Which weeks of the month a day of the week is meant in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weeks {
    Every,
    Nth(i8),
    Last,
}

/// What an expression contains that other crons read in a way of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trait {
    /// `fri-mon`
    WrappingRange,
    /// A `*` without a step beside other items.
    StarInList,
    /// `3/2` in day-of-week.
    WeekdayToTheEnd,
    /// `sun-sun`
    SundayToSunday,
}

/// One field as written, and what it means.
#[derive(Clone, Debug)]
struct List {
    text: String,
    values: BTreeSet<i8>,
    traits: BTreeSet<Trait>,
}

#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) traits: BTreeSet<Trait>,
    minutes: List,
    hours: List,
    days: List,
    last_day: bool,
    months: List,
    weekdays: BTreeSet<(i8, Weeks)>,
    days_restricted: bool,
    weekdays_restricted: bool,
}

impl Written {
    pub(super) fn follows_wall_clock(&self) -> bool {
        self.minutes.text.starts_with('*') || self.hours.text.starts_with('*')
    }

    /// One minute of one hour, without a step.
    pub(super) fn is_one_time_of_day(&self) -> bool {
        [&self.minutes, &self.hours]
            .iter()
            .all(|list| list.values.len() == 1 && !list.text.contains('/'))
    }

    /// Whether there is any day for it.
    pub(super) fn ever_fires(&self) -> bool {
        // Only a day of the month can be one that never comes, and a leap year has all that come.
        let mut days = Date::constant(2024, 1, 1).series(jiff::Span::new().days(1));
        self.weekdays_restricted || days.by_ref().take(366).any(|day| self.includes(day))
    }

    fn includes(&self, date: Date) -> bool {
        let length = date.days_in_month();
        let weekday = date.weekday().to_sunday_zero_offset();
        let by_date =
            self.days.values.contains(&date.day()) || (self.last_day && date.day() == length);
        let by_weekday = self.weekdays.contains(&(weekday, Weeks::Every))
            || self
                .weekdays
                .contains(&(weekday, Weeks::Nth((date.day() - 1) / 7 + 1)))
            || (length - date.day() < 7 && self.weekdays.contains(&(weekday, Weeks::Last)));
        let either = self.days_restricted && self.weekdays_restricted;
        self.months.values.contains(&date.month())
            && if either {
                by_date || by_weekday
            } else {
                by_date && by_weekday
            }
    }

    /// Whether a wall clock that shows `time` is at the start of a matching minute.
    pub(super) fn matches(&self, time: DateTime) -> bool {
        time.second() == 0
            && time.subsec_nanosecond() == 0
            && self.minutes.values.contains(&time.minute())
            && self.hours.values.contains(&time.hour())
            && self.includes(time.date())
    }

    /// When a daemon starts the job later than `after` and not later than `until`: it wakes up every
    /// minute, looks at the wall clock, and remembers the latest time that it has seen there.
    pub(super) fn starts(
        &self,
        zone: &TimeZone,
        after: Timestamp,
        until: Timestamp,
    ) -> Vec<Timestamp> {
        // A day and more before, so that what it remembers does not matter.
        let mut now = on_the_minute(after) - SignedDuration::from_hours(30);
        let mut seen = zone.to_datetime(now);
        let mut starts = Vec::new();
        while now <= until {
            let wall = zone.to_datetime(now);
            let mut start = self.follows_wall_clock() && self.matches(wall);
            while seen < wall {
                seen += MINUTE;
                start |= !self.follows_wall_clock() && now > after && self.matches(seen);
            }
            if start && now > after {
                starts.push(now);
            }
            now += MINUTE;
        }
        starts
    }
}

fn on_the_minute(t: Timestamp) -> Timestamp {
    Timestamp::from_second(t.as_second().div_euclid(60) * 60).unwrap()
}

/// Any expression that is read, and some that are refused since they never fire.
pub(super) fn written() -> impl Strategy<Value = Written> {
    // Often a single time of day, which is what most jobs have.
    let minutes = prop_oneof![2 => value(0, 59), 3 => list(0, 59, &[])];
    let hours = prop_oneof![2 => value(0, 23), 3 => Just(any_value(0, 23)), 3 => list(0, 23, &[])];
    let months = prop_oneof![3 => Just(any_value(1, 12)), 2 => list(1, 12, MONTHS)];
    (minutes, hours, days(), months, weekdays()).prop_map(
        |(minutes, hours, (days, last_day), months, (weekday_list, weekdays))| {
            let fields = [&minutes, &hours, &days, &months, &weekday_list];
            let texts: Vec<&str> = fields.iter().map(|field| &*field.text).collect();
            let is_restricted = |list: &List| list.text != "*" && !list.text.starts_with("*,");
            Written {
                text: texts.join(" "),
                traits: fields.iter().flat_map(|f| &f.traits).copied().collect(),
                days_restricted: is_restricted(&days),
                weekdays_restricted: is_restricted(&weekday_list),
                minutes,
                hours,
                days,
                last_day,
                months,
                weekdays,
            }
        },
    )
}

fn any_value(low: i8, high: i8) -> List {
    List {
        text: "*".to_owned(),
        values: (low..=high).collect(),
        traits: BTreeSet::new(),
    }
}

fn value(low: i8, high: i8) -> impl Strategy<Value = List> {
    (low..=high).prop_map(|n| List {
        text: n.to_string(),
        values: BTreeSet::from([n]),
        traits: BTreeSet::new(),
    })
}

/// Days of the month, and whether the last one is among them.
fn days() -> impl Strategy<Value = (List, bool)> {
    let with_last = list(1, 31, &[]).prop_map(|mut list| {
        if list.text.split(',').any(|item| item == "*") {
            list.traits.insert(Trait::StarInList);
        }
        list.text.push_str(",l");
        (list, true)
    });
    let only_last = List {
        text: "L".to_owned(),
        values: BTreeSet::new(),
        traits: BTreeSet::new(),
    };
    prop_oneof![
        4 => Just((any_value(1, 31), false)),
        4 => list(1, 31, &[]).prop_map(|list| (list, false)),
        1 => with_last,
        1 => Just((only_last, true)),
    ]
}

fn weekdays() -> impl Strategy<Value = (List, BTreeSet<(i8, Weeks)>)> {
    let weekly = |list: List| {
        let days = list.values.iter().map(|&day| (day % 7, Weeks::Every));
        (list.clone(), days.collect())
    };
    prop_oneof![
        4 => Just(weekly(any_value(0, 6))),
        4 => list(0, 6, WEEKDAYS).prop_map(weekly),
        2 => prop::collection::vec(single_weekday(), 1..4).prop_map(|items| {
            let texts: Vec<&str> = items.iter().map(|(text, ..)| &**text).collect();
            let list = List {
                text: texts.join(","),
                values: BTreeSet::new(),
                traits: BTreeSet::new(),
            };
            let days = items.iter().map(|&(_, day, weeks)| (day % 7, weeks));
            (list, days.collect())
        }),
    ]
}

/// `5#2` or `L5`.
fn single_weekday() -> impl Strategy<Value = (String, i8, Weeks)> {
    let nth = (0..=7_i8, 1..=5_i8, any::<bool>()).prop_map(|(day, nth, named)| {
        let text = match WEEKDAYS.get(usize::from(day.unsigned_abs())) {
            Some(name) if named => format!("{name}#{nth}"),
            _ => format!("{day}#{nth}"),
        };
        (text, day, Weeks::Nth(nth))
    });
    let last = (0..=7_i8).prop_map(|day| (format!("L{day}"), day, Weeks::Last));
    prop_oneof![2 => nth, 1 => last]
}

/// One to three items of a field with these values.
fn list(low: i8, high: i8, names: &'static [&'static str]) -> impl Strategy<Value = List> {
    prop::collection::vec(item(low, high, names), 1..4).prop_map(|items| {
        let texts: Vec<&str> = items.iter().map(|item| &*item.text).collect();
        let mut traits: BTreeSet<Trait> = items.iter().flat_map(|i| &i.traits).copied().collect();
        if texts.len() > 1 && texts.contains(&"*") {
            traits.insert(Trait::StarInList);
        }
        List {
            text: texts.join(","),
            values: items
                .iter()
                .flat_map(|item| &item.values)
                .copied()
                .collect(),
            traits,
        }
    })
}

fn item(low: i8, high: i8, names: &'static [&'static str]) -> impl Strategy<Value = List> {
    // Sunday is 7 as well.
    let max = if names.len() == 7 { 7 } else { high };
    let step = prop_oneof![4 => 1..8_usize, 1 => 8..200_usize];
    (0..12_u8, low..=max, low..=max, step, 0..3_u8).prop_map(move |(kind, a, b, step, style)| {
        let write = |n: i8| match usize::try_from(n - low).ok().and_then(|i| names.get(i)) {
            Some(name) if style == 0 => (*name).to_owned(),
            _ if style == 1 => format!("{n:02}"),
            _ => n.to_string(),
        };
        let (first, last) = (a.min(b), a.max(b));
        let every = |range: std::ops::RangeInclusive<i8>| range.step_by(step).collect();
        let forward = format!("{}-{}", write(first), write(last));
        let mut traits = BTreeSet::new();
        if forward == "sun-sun" && (3..=6).contains(&kind) {
            traits.insert(Trait::SundayToSunday);
        }
        let (text, values): (String, BTreeSet<i8>) = match kind {
            0 => ("*".to_owned(), (low..=high).collect()),
            1 | 2 => (format!("*/{step}"), every(low..=high)),
            3 | 4 => (forward, (first..=last).collect()),
            5 | 6 => (format!("{forward}/{step}"), every(first..=last)),
            7 => {
                if max > high {
                    traits.insert(Trait::WeekdayToTheEnd);
                }
                let start = if a > high { low } else { a };
                (format!("{}/{step}", write(a)), every(start..=high))
            }
            8 if first < last => {
                traits.insert(Trait::WrappingRange);
                let text = format!("{}-{}", write(last), write(first));
                (text, (low..=first).chain(last..=max).collect())
            }
            _ => (write(a), BTreeSet::from([a])),
        };
        List {
            text,
            values,
            traits,
        }
    })
}
