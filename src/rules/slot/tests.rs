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
