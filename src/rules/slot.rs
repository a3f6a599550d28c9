//! Which slot of a schedule a start belongs to, and in which zone the schedule is read.
//!
//! Ticks cut time into *slots*: each begins with a tick and ends just before the next one. At most one
//! start per slot is granted; its row expires at the slot's end, which is a tick exactly. Times are the
//! database's, never a host's.
//!
//! Hosts that run the same crontab fire one tick at slightly different times, because their clocks
//! differ. With a tolerance *t* two rules, which only work together, make one start of them:
//!
//! - A start at *T* belongs to the slot that contains *T + t* ([`slot_end`]).
//! - A row counts as expired when `expire_at <= NOW() + t` (the acquiring statement).
//!
//! Take a tick *B* and the next one *E*. A host that fires anywhere from *B − t* to *B + t* reckons
//! with an instant from *B* to *B + 2t*, which the slot from *B* to *E* contains: all of them want a
//! row that expires at *E*. The first gets it. The others find it live, since *E > T + t*. And the
//! first gets it however early all of them are: the row of the slot before expires at *B*, and *B <=
//! T + t*. So the tick is neither started twice nor missed.
//!
//! This needs *2t* to be less than the distance of two ticks. Otherwise a late host reckons with the
//! next slot already, and takes the start of a tick that is still to come.
//!
//! A tolerance of zero is the plain rule: a start belongs to the slot that it falls into, and a host
//! that fires a moment early takes part in the tick before, whose start is taken.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};

use super::cron::Crontab;

/// When the slot ends that a start at `database_now` belongs to; `None` only when no tick follows
/// before the year 9999 ends.
pub(crate) fn slot_end(
    crontab: &Crontab,
    zone: &TimeZone,
    database_now: Timestamp,
    tolerance: Duration,
) -> Option<Timestamp> {
    crontab.next_after(database_now.checked_add(tolerance).ok()?, zone)
}

/// How far the database's clock and ours may be apart for the slot to be among the [`candidates`]. No more
/// than hosts with a time service need: a statement that a network has held up for longer, past a tick, must
/// find no later one to take for a run that has long been given up.
const CLOCKS_APART: Duration = Duration::from_secs(5);

/// Ticks from which the database picks the end of a slot by its own clock: the first one after *T + t*,
/// which is what [`slot_end`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// An earlier *T + t* is out of their range, for there may be ticks before them.
    pub(crate) from: Option<Timestamp>,
    /// All ticks after `from` without a gap, up to some point. There may be ticks after the last one, so
    /// a *T + t* from that one on is out of range, too.
    pub(crate) ticks: Vec<Timestamp>,
}

impl Candidates {
    /// The only one, when it is known.
    pub(crate) fn only(end: Timestamp) -> Self {
        Self {
            from: None,
            ticks: vec![end],
        }
    }
}

/// The ends of the slots that a start may belong to when our own clock says `about_now`. Which one it
/// is, and whether it is any of them, the database says.
pub(crate) fn candidates(
    crontab: &Crontab,
    zone: &TimeZone,
    about_now: Timestamp,
    tolerance: Duration,
) -> Option<Candidates> {
    let middle = about_now.checked_add(tolerance).ok()?;
    let from = middle.checked_sub(CLOCKS_APART).ok()?;
    let to = middle.checked_add(CLOCKS_APART).ok()?;
    let mut ticks = Vec::new();
    for tick in crontab.ticks_after(from, zone) {
        ticks.push(tick);
        if tick > to {
            break;
        }
    }
    Some(Candidates {
        from: Some(from),
        ticks,
    })
}

/// Whether a slot that ends at `end` is over at the database time `now`, so that a row for it would
/// exclude nobody.
pub(crate) fn is_over(end: Timestamp, now: Timestamp, tolerance: Duration) -> bool {
    now.checked_add(tolerance).map_or(true, |now| end <= now)
}

/// A schedule's zone cannot be told: one line that says why.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ZoneError {
    /// Somebody asked for it, so guessing another one would be wrong.
    #[error(
        "is not in the time zone database; allowed are IANA names such as Europe/Berlin or UTC"
    )]
    Unknown,
    #[error("time zone {name:?} of the database session is {seconds} s from UTC, which no zone is")]
    Offset { name: String, seconds: i32 },
}

/// The zone with the IANA name `name`.
///
/// # Errors
///
/// When there is none, or its meaning differs from host to host.
pub(crate) fn named_zone(name: &str, zones: &TimeZoneDatabase) -> Result<TimeZone, ZoneError> {
    iana_zone(name, zones).ok_or(ZoneError::Unknown)
}

/// The zone of a database session: the IANA zone of that name; else what the name says, where it is a
/// rule as POSIX writes them (`<+03>-03`, `CET-1CEST,M3.5.0,M10.5.0/3`); else what its offset is now, a
/// [guess](is_guessed) that is right until that offset changes.
///
/// # Errors
///
/// When the offset cannot be one.
pub(crate) fn session_zone(
    name: &str,
    offset_seconds: i32,
    now: Timestamp,
    zones: &TimeZoneDatabase,
) -> Result<TimeZone, ZoneError> {
    if let Some(zone) = iana_zone(without_posix(name), zones) {
        return Ok(zone);
    }
    // PostgreSQL takes more for a rule than POSIX does: one that means another time there is not used.
    let rule = TimeZone::posix(name)
        .ok()
        .filter(|zone| zone.to_offset(now).seconds() == offset_seconds);
    if let Some(zone) = rule {
        return Ok(zone);
    }
    Offset::from_seconds(offset_seconds)
        .map(TimeZone::fixed)
        .map_err(|_| ZoneError::Offset {
            name: name.to_owned(),
            seconds: offset_seconds,
        })
}

/// Whether a session's zone is only what its offset is now, for want of a name that tells more.
pub(crate) fn is_guessed(zone: &TimeZone) -> bool {
    zone.iana_name().is_none() && zone.to_fixed_offset().is_ok()
}

/// The name without the directory in which systems keep another copy of the same zones.
fn without_posix(name: &str) -> &str {
    match name.split_at_checked("posix/".len()) {
        Some((directory, name)) if directory.eq_ignore_ascii_case("posix/") => name,
        _ => name,
    }
}

/// The zone of that name, if it means the same on every host.
fn iana_zone(name: &str, zones: &TimeZoneDatabase) -> Option<TimeZone> {
    // Files beside the zones: what this host is set to, and zones whose seconds are not UTC's.
    let folded = name.to_ascii_lowercase();
    if ["localtime", "posixrules"].contains(&&*folded) || folded.starts_with("right/") {
        return None;
    }
    zones.get(name).ok().filter(|zone| !zone.is_unknown())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn zone(name: &str) -> TimeZone {
        named_zone(name, &TimeZoneDatabase::bundled()).unwrap()
    }

    fn hourly_slot_end(database_now: &str, tolerance: Duration) -> Timestamp {
        let crontab = Crontab::parse("@hourly").unwrap();
        slot_end(&crontab, &TimeZone::UTC, at(database_now), tolerance).unwrap()
    }

    #[test]
    fn hosts_that_fire_a_tick_early_and_late_share_its_slot() {
        let tolerance = Duration::from_secs(5);
        for fired in [
            "2026-01-01T11:59:55Z",
            "2026-01-01T11:59:59.999999Z",
            "2026-01-01T12:00:00Z",
            "2026-01-01T12:00:05Z",
            "2026-01-01T12:59:54.999999Z",
        ] {
            assert_eq!(
                hourly_slot_end(fired, tolerance),
                at("2026-01-01T13:00:00Z"),
                "{fired}"
            );
        }
        let too_early = "2026-01-01T11:59:54.999999Z";
        assert_eq!(
            hourly_slot_end(too_early, tolerance),
            at("2026-01-01T12:00:00Z")
        );
    }

    #[test]
    fn without_tolerance_a_start_belongs_to_the_slot_it_falls_into() {
        for (fired, end) in [
            ("2026-01-01T11:59:59.999999999Z", "2026-01-01T12:00:00Z"),
            ("2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"),
            ("2026-01-01T12:00:00.000000001Z", "2026-01-01T13:00:00Z"),
        ] {
            assert_eq!(hourly_slot_end(fired, Duration::ZERO), at(end), "{fired}");
        }
    }

    #[test]
    fn a_slot_ends_by_the_clock_of_the_schedules_zone() {
        let crontab = Crontab::parse("30 2 * * *").unwrap();
        let zone = zone("Europe/Berlin");
        let end = |now| slot_end(&crontab, &zone, at(now), Duration::from_secs(1));
        // The hour from 2:00 to 3:00 is lost on 29 March.
        assert_eq!(
            end("2026-03-28T01:29:59Z"),
            Some(at("2026-03-29T01:00:00Z"))
        );
        assert_eq!(
            end("2026-03-29T00:59:59Z"),
            Some(at("2026-03-30T00:30:00Z"))
        );
    }

    #[test]
    fn a_tolerance_beyond_all_time_has_no_slot() {
        let crontab = Crontab::parse("@hourly").unwrap();
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(slot_end(&crontab, &TimeZone::UTC, now, Duration::MAX), None);
        assert_eq!(
            slot_end(&crontab, &TimeZone::UTC, Timestamp::MAX, Duration::ZERO),
            None
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_tick_is_started_exactly_once_by_hosts_whose_clocks_differ(
            expression in prop::sample::select(&["* * * * *", "*/7 1-4 * * *", "30 2 * * *", "@weekly"][..]),
            start in 1_700_000_000..2_000_000_000_i64,
            tolerance in 0..30_000_u64,
            skews in prop::collection::vec(-1.0..=1.0_f64, 2..6),
        ) {
            let crontab = Crontab::parse(expression).unwrap();
            let zone = zone("Europe/Berlin");
            let tolerance = Duration::from_millis(tolerance);
            // The row as the first tick's predecessor left it.
            let start = Timestamp::from_second(start).unwrap();
            let mut ticks = crontab.ticks_after(start, &zone);
            let mut expires = ticks.next().unwrap();
            let mut tick = expires;
            for next in ticks.take(5) {
                let mut fired: Vec<Timestamp> = skews
                    .iter()
                    .map(|skew| tick + jiff::SignedDuration::from_secs_f64(skew * tolerance.as_secs_f64()))
                    .collect();
                fired.sort();
                let mut starts = 0;
                for now in fired {
                    let now_and_more = now + tolerance;
                    if expires <= now_and_more {
                        expires = slot_end(&crontab, &zone, now, tolerance).unwrap();
                        starts += 1;
                    }
                }
                prop_assert_eq!(starts, 1, "for the tick at {}", tick);
                prop_assert_eq!(expires, next);
                tick = next;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_first_candidate_after_an_instant_in_their_range_is_the_end_of_its_slot(
            expression in prop::sample::select(
                &["* * * * *", "*/7 1-4 * * *", "30 2 * * *", "59,0,1 * * * *", "@weekly"][..]
            ),
            zone_name in prop::sample::select(&["UTC", "Europe/Berlin", "Asia/Kathmandu"][..]),
            // Around the changes of the clock, too.
            ours in prop_oneof![1_700_000_000..2_000_000_000_i64, 1_774_744_000..1_774_750_000_i64],
            apart in -10_000_000..10_000_000_i64,
            tolerance in 0..100_000_u64,
        ) {
            let crontab = Crontab::parse(expression).unwrap();
            let zone = zone(zone_name);
            let tolerance = Duration::from_millis(tolerance);
            let ours = Timestamp::from_second(ours).unwrap();
            let candidates = candidates(&crontab, &zone, ours, tolerance).unwrap();
            prop_assert!(candidates.ticks.len() <= 4);

            let theirs = ours + jiff::SignedDuration::from_micros(apart);
            // What the statement does.
            let reckoned = theirs + tolerance;
            let picked = candidates.ticks.into_iter().find(|&tick| tick > reckoned);
            let picked = picked.filter(|_| candidates.from.is_none_or(|from| from <= reckoned));

            let right = slot_end(&crontab, &zone, theirs, tolerance);
            if apart.abs() <= 5_000_000 {
                prop_assert_eq!(picked, right);
            } else {
                prop_assert!(picked.is_none() || picked == right);
            }
        }
    }

    #[test]
    fn a_statement_that_is_held_up_past_a_tick_takes_no_later_one() {
        let crontab = Crontab::parse("* * * * *").unwrap();
        let tolerance = Duration::from_secs(1);
        for fired in ["2026-03-01T12:00:00.05Z", "2026-03-01T12:00:30Z"] {
            let fired: Timestamp = fired.parse().unwrap();
            let candidates = candidates(&crontab, &TimeZone::UTC, fired, tolerance).unwrap();
            let tick: Timestamp = "2026-03-01T12:01:00Z".parse().unwrap();
            assert_eq!(candidates.ticks.last(), Some(&tick));
        }
    }

    #[test]
    fn an_unknown_zone_asked_for_is_an_error() {
        for name in [
            "Europe/Berln",
            "",
            "+02:00",
            "UTC+3",
            "CEST",
            "localtime",
            "right/UTC",
            "Etc/Unknown",
            "../../etc/localtime",
            "Europe/Berlin\n",
        ] {
            for zones in [TimeZoneDatabase::bundled(), jiff::tz::db().clone()] {
                assert!(named_zone(name, &zones).is_err(), "{name:?}");
            }
        }
        let zone = zone("america/new_york");
        assert_eq!(zone.iana_name(), Some("America/New_York"));
    }

    #[test]
    fn a_sessions_zone_is_iana_or_a_rule_or_else_what_its_offset_is_now() {
        let zones = TimeZoneDatabase::bundled();
        let (winter, summer) = (at("2026-03-28T12:00:00Z"), at("2026-03-29T12:00:00Z"));
        let offset_then = |name, seconds| {
            let zone = session_zone(name, seconds, winter, &zones).unwrap();
            (zone.to_offset(summer).seconds(), is_guessed(&zone))
        };
        for (name, now, then, guessed) in [
            ("Europe/Berlin", 0, 7200, false), // the name wins
            ("UTC", 0, 0, false),
            ("posix/Europe/Berlin", 3600, 7200, false),
            ("POSIX/europe/berlin", 3600, 7200, false),
            ("CET-1CEST,M3.5.0,M10.5.0/3", 3600, 7200, false),
            ("<+03>-03", 10_800, 10_800, false),
            // By the rule it would be another time now.
            ("CET-1CEST,M3.5.0,M10.5.0/3", -9000, -9000, true),
            ("CET-1CEST", 3600, 3600, true),
            ("localtime", 3600, 3600, true),
            ("posix/localtime", 3600, 3600, true),
            ("posix/", 3600, 3600, true),
            ("", -9000, -9000, true),
        ] {
            assert_eq!(offset_then(name, now), (then, guessed), "{name}");
        }
        let error = session_zone("odd", 400_000, winter, &zones)
            .unwrap_err()
            .to_string();
        assert!(error.contains("odd") && error.contains("400000"), "{error}");
    }

    #[test]
    fn a_slot_is_over_when_a_start_now_would_belong_to_the_next_one() {
        let end = at("2026-01-01T12:00:00Z");
        let tolerance = Duration::from_secs(1);
        for (now, over) in [
            ("2026-01-01T11:59:58.999999Z", false),
            ("2026-01-01T11:59:59Z", true),
            ("2026-01-01T12:00:00Z", true),
        ] {
            assert_eq!(is_over(end, at(now), tolerance), over, "{now}");
        }
        assert!(is_over(end, Timestamp::MAX, tolerance));
    }
}
