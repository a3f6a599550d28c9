//! What must hold for every expression, zone and instant.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::super::Crontab;
use super::written::{Written, written};
use super::{parse, zone};

/// Zones whose clocks change in unusual ways: by half an hour, by two, at midnight, with a
/// "winter time" in summer, around Ramadan, across the date line.
const ZONES: [&str; 20] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "America/Santiago",
    "America/Havana",
    "America/Scoresbysund",
    "America/Caracas",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Pyongyang",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Pacific/Kiritimati",
];

pub(super) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

pub(super) fn any_zone() -> impl Strategy<Value = TimeZone> {
    prop::sample::select(&ZONES[..]).prop_map(zone)
}

/// Any instant that there is, to the nanosecond; half of them in a century where zones change.
fn any_instant() -> impl Strategy<Value = Timestamp> {
    let (min, max) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    let seconds = prop_oneof![min..=max, -2_000_000_000..3_000_000_000_i64];
    (seconds, prop_oneof![Just(0), 1..1_000_000_000_i32])
        .prop_map(|(s, ns)| Timestamp::new(s, ns).unwrap_or(Timestamp::MAX))
}

/// An instant within two days of some change of the zone's clocks since 1973, when all zones had come
/// to be whole minutes from UTC.
pub(super) fn near_a_change(zone: &TimeZone, nth: usize, seconds: i64) -> Timestamp {
    let since: Timestamp = "1973-01-01T00:00:00Z".parse().unwrap();
    let until: Timestamp = "2040-01-01T00:00:00Z".parse().unwrap();
    let changes: Vec<Timestamp> = zone
        .following(since)
        .map(|change| change.timestamp())
        .take_while(|&at| at < until)
        .collect();
    let change = changes.get(nth % changes.len().max(1)).unwrap_or(&since);
    *change + SignedDuration::from_secs(seconds)
}

/// Expressions that fire, and how they were written.
pub(super) fn firing() -> impl Strategy<Value = (Written, Crontab)> {
    written()
        .prop_filter("never fires", Written::ever_fires)
        .prop_map(|written| {
            let crontab = parse(&written.text);
            (written, crontab)
        })
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn an_expression_is_refused_when_no_day_matches_and_read_otherwise(written in written()) {
        prop_assert_eq!(Crontab::parse(&written.text).is_ok(), written.ever_fires());
    }

    #[test]
    fn a_tick_is_later_and_the_next_one_of_everything_before_it(
        (_, crontab) in firing(),
        zone in any_zone(),
        instant in any_instant(),
        share in 0.0..1.0_f64,
    ) {
        let Some(tick) = crontab.next_after(instant, &zone) else {
            // Only the last of the years can be empty; a Monday 29 February comes every 40 years.
            prop_assert!(instant > "9959-01-01T00:00:00Z".parse().unwrap());
            return Ok(());
        };
        prop_assert!(tick > instant);
        let between = instant + tick.duration_since(instant).mul_f64(share);
        if between < tick {
            prop_assert_eq!(crontab.next_after(between, &zone), Some(tick));
        }
        let next = crontab.next_after(tick, &zone);
        prop_assert!(next.is_none_or(|next| next > tick));
    }

    #[test]
    fn a_tick_far_from_a_change_of_clocks_shows_a_matching_minute(
        (written, crontab) in firing(),
        zone in any_zone(),
        instant in -1_000_000_000..4_000_000_000_i64,
    ) {
        let instant = Timestamp::from_second(instant).unwrap();
        let tick = crontab.next_after(instant, &zone).unwrap();
        let two_days = SignedDuration::from_hours(48);
        let change = zone.following(tick - two_days).next();
        if change.is_none_or(|change| change.timestamp() > tick) {
            let wall = zone.to_datetime(tick);
            prop_assert!(written.matches(wall), "{} at {}", written.text, wall);
        }
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn around_a_change_of_clocks_the_ticks_are_the_starts_of_a_daemon_that_watches_the_clock(
        (written, crontab) in firing(),
        zone in any_zone(),
        change in 0..1000_usize,
        seconds in -100_000..50_000_i64,
    ) {
        let after = near_a_change(&zone, change, seconds);
        let until = after + SignedDuration::from_hours(36);
        let ticks: Vec<Timestamp> = crontab
            .ticks_after(after, &zone)
            .take_while(|&tick| tick <= until)
            .collect();
        let starts = written.starts(&zone, after, until);
        prop_assert_eq!(ticks, starts, "{} in {:?} after {}", written.text, zone, after);
    }
}
