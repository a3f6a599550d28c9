//! The `croner` crate as a second opinion.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BTreeMap;

use ::croner::Cron;
use ::croner::errors::CronError;
use ::croner::parser::CronParser;
use ::croner::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::super::Crontab;
use super::properties::{any_zone, config, firing, near_a_change};
use super::written::Written;
use super::{parse, zone};

/// Lets croner work on this jiff's time zones, so that only the readings differ, not the zone data.
#[derive(Clone)]
struct Moment {
    instant: Timestamp,
    zone: TimeZone,
}

impl Moment {
    fn wall(&self) -> DateTime {
        self.zone.to_datetime(self.instant)
    }

    fn at(&self, offset: Offset, wall: DateTime) -> Result<Self, CronError> {
        let instant = offset
            .to_timestamp(wall)
            .map_err(|_| CronError::InvalidTime)?;
        Ok(Self {
            instant,
            zone: self.zone.clone(),
        })
    }
}

impl CronDateTime for Moment {
    fn to_civil(&self) -> CivilDateTime {
        let part = |n: i8| u32::from(n.unsigned_abs());
        let wall = self.wall();
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(
                wall.year().into(),
                part(wall.month()),
                part(wall.day()),
            ),
            CivilTime::from_parts_unchecked(
                part(wall.hour()),
                part(wall.minute()),
                part(wall.second()),
            ),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        let days = self.wall().weekday().to_sunday_zero_offset();
        Weekday::from_days_from_sunday(days.unsigned_abs().into())
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |n: u32| i8::try_from(n).map_err(|_| CronError::InvalidTime);
        let wall = DateTime::new(
            i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?,
            part(civil.month())?,
            part(civil.day())?,
            part(civil.hour())?,
            part(civil.minute())?,
            part(civil.second())?,
            0,
        )
        .map_err(|_| CronError::InvalidDate)?;
        Ok(match self.zone.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } => Resolution::Single(self.at(offset, wall)?),
            AmbiguousOffset::Fold { before, after } => {
                Resolution::Ambiguous(self.at(before, wall)?, self.at(after, wall)?)
            }
            AmbiguousOffset::Gap { .. } => Resolution::Gap,
        })
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        let instant = self.instant + SignedDuration::from_secs(seconds);
        Some(Self {
            instant,
            zone: self.zone.clone(),
        })
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.instant.cmp(&other.instant)
    }
}

fn croner(text: &str) -> Result<Cron, CronError> {
    CronParser::builder()
        .sloppy_ranges(true)
        .build()
        .parse(text)
}

fn croner_next(cron: &Cron, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let start = Moment {
        instant: after,
        zone: zone.clone(),
    };
    let next = cron.find_next_occurrence(&start, false).ok()?;
    Some(next.instant)
}

/// The expression as croner writes it: the last Friday is `5L`.
fn for_croner(text: &str) -> String {
    let (time, weekdays) = text.rsplit_once(' ').unwrap();
    let weekdays: Vec<String> = weekdays
        .split(',')
        .map(|item| match item.strip_prefix('L') {
            Some(day) => format!("{day}L"),
            None => item.to_owned(),
        })
        .collect();
    format!("{time} {}", weekdays.join(","))
}

/// Whether a change of clocks within a day of the time from `after` to `tick` is one of those that
/// croner knows less well; `DIFFERENCES` shows them.
fn clocks_change_oddly(
    written: &Written,
    zone: &TimeZone,
    after: Timestamp,
    tick: Timestamp,
) -> bool {
    if written.follows_wall_clock() {
        return false;
    }
    let day = SignedDuration::from_hours(24);
    zone.following(after - day)
        .take_while(|change| change.timestamp() < tick + day)
        .any(|change| {
            let before = zone.to_datetime(change.timestamp() - SignedDuration::from_nanos(1));
            let opens = zone.to_datetime(change.timestamp());
            let ends_on_another_day = before.date() < opens.date();
            let lost = opens.duration_since(before);
            !written.is_one_time_of_day() || ends_on_another_day || lost.as_hours() >= 2
        })
}

#[test]
fn croner_agrees_apart_from_the_known_differences() {
    let compared = Cell::new(0);
    let left_out = RefCell::new(BTreeMap::new());
    let leave_out = |why: String| *left_out.borrow_mut().entry(why).or_insert(0) += 1;
    let cases = (firing(), any_zone(), 0..1000_usize, -100_000..50_000_i64);
    let result = TestRunner::new(config(6000)).run(&cases, |case| {
        let ((written, crontab), zone, change, seconds) = case;
        for known in &written.traits {
            leave_out(format!("{known:?}"));
        }
        if !written.traits.is_empty() {
            return Ok(());
        }
        let cron = croner(&for_croner(&written.text)).unwrap();
        let after = near_a_change(&zone, change, seconds);
        let tick = crontab.next_after(after, &zone).unwrap();
        if clocks_change_oddly(&written, &zone, after, tick) {
            leave_out("change of clocks".to_owned());
            return Ok(());
        }
        compared.set(compared.get() + 1);
        prop_assert_eq!(
            croner_next(&cron, after, &zone),
            Some(tick),
            "{} in {:?} after {}",
            written.text,
            zone,
            after
        );
        Ok(())
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    let left_out = left_out.into_inner();
    println!("{} compared, left out: {left_out:?}", compared.get());
    assert!(compared.get() > 1000);
}

/// Where croner reads an expression in another way, or not at all: the reason, the expression, the
/// zone, an instant, and the next tick here and there.
const DIFFERENCES: [[&str; 6]; 10] = [
    [
        "a range that wraps",
        "0 0 * * fri-mon",
        "UTC",
        "2026-03-03T00:00:00Z",
        "2026-03-06T00:00:00Z",
        "refused",
    ],
    [
        "* beside other items",
        "0 0 *,10 * 2",
        "UTC",
        "2026-01-01T00:00:00Z",
        "2026-01-06T00:00:00Z",
        "refused",
    ],
    [
        "the last Friday is written 5L",
        "0 0 * * L5",
        "UTC",
        "2026-03-03T00:00:00Z",
        "2026-03-27T00:00:00Z",
        "refused",
    ],
    [
        "a week from N to the end includes the next Sunday",
        "0 0 * * 3/2",
        "UTC",
        "2026-03-06T00:00:00Z",
        "2026-03-11T00:00:00Z",
        "2026-03-08T00:00:00Z",
    ],
    [
        "Sunday to Sunday is the whole week",
        "0 0 * * sun-sun",
        "UTC",
        "2026-03-03T00:00:00Z",
        "2026-03-08T00:00:00Z",
        "2026-03-04T00:00:00Z",
    ],
    [
        "a job with several times of day runs in both passes of a repeated hour",
        "0,30 2 * * *",
        "Europe/Berlin",
        "2026-10-25T00:30:00Z",
        "2026-10-26T01:00:00Z",
        "2026-10-25T01:00:00Z",
    ],
    [
        "a job with several times of day does not run for a lost hour",
        "0,30 2 * * *",
        "Europe/Berlin",
        "2026-03-29T00:30:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:00:00Z",
    ],
    [
        "a step makes a job one with several times of day",
        "0-0/2 2 * * *",
        "Europe/Berlin",
        "2026-03-29T00:30:00Z",
        "2026-03-29T01:00:00Z",
        "2026-03-30T00:00:00Z",
    ],
    [
        "the end of a lost hour must be a matching day itself",
        "30 23 * * 6",
        "America/Scoresbysund",
        "2026-03-28T12:00:00Z",
        "2026-03-29T01:00:00Z",
        "2026-04-05T00:30:00Z",
    ],
    [
        "a lost time ends within two hours",
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-30T00:00:00Z",
        "2011-12-30T10:00:00Z",
        "no tick",
    ],
];

#[test]
fn the_known_differences_from_croner_are_still_there() {
    for [reason, text, tz, after, here, there] in DIFFERENCES {
        let (zone, after) = (zone(tz), after.parse().unwrap());
        let ours = parse(text).next_after(after, &zone);
        assert_eq!(ours, here.parse().ok(), "{reason}: {text}");
        let theirs = match croner(text) {
            Err(_) => "refused".to_owned(),
            Ok(cron) => croner_next(&cron, after, &zone)
                .map_or_else(|| "no tick".to_owned(), |tick| tick.to_string()),
        };
        assert_eq!(theirs, there, "{reason}: {text}");
    }
}

#[test]
fn what_croner_takes_but_a_crontab_does_not_mean_is_refused() {
    for text in [
        "0 0 12 * * 1",
        "0 0 12 * * 1 2027",
        "0 0 ? * 1",
        "0 0 15W * *",
        "0 0 LW * *",
        "0 0 1 * +1",
        "0 0 * * 5L",
        "0 0 * * 1-5#2",
        "0 0 * * 5,6#3",
        "0 0 30 2 *",
        ",1 * * * *",
        "/5 * * * *",
        "0\u{2003}0 * * *",
        "0 0 * * *\n",
    ] {
        assert!(croner(text).is_ok(), "croner refuses {text:?} too");
        assert!(Crontab::parse(text).is_err(), "{text:?}");
    }
}
