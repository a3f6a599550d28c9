//! Jobs in the hours that a zone repeats, loses, or never had.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{parse, ticks, zone};

#[test]
fn a_job_of_a_lost_hour_runs_right_after_it_and_the_next_day_as_usual() {
    for (text, next) in [
        ("30 2 * * *", "2026-03-30T00:30:00Z"),
        ("0 2 * * 0", "2026-04-05T00:00:00Z"),
        ("15 2 29 3 *", "2027-03-29T00:15:00Z"),
    ] {
        let found = ticks(text, "Europe/Berlin", "2026-03-29T00:59:59Z", 2);
        assert_eq!(found, ["2026-03-29T01:00:00Z", next], "{text}");
    }
}

#[test]
fn all_the_runs_of_a_lost_hour_are_one_tick() {
    let found = ticks(
        "0,10,20,59 2,3 * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        3,
    );
    let expected = [
        "2026-03-29T01:00:00Z",
        "2026-03-29T01:10:00Z",
        "2026-03-29T01:20:00Z",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_job_that_follows_the_wall_clock_does_not_run_for_a_lost_hour() {
    for (text, next) in [
        ("*/20 2 * * *", "2026-03-30T00:00:00Z"),
        ("30 */2 * * *", "2026-03-29T02:30:00Z"),
        ("*,5 2 * * *", "2026-03-30T00:00:00Z"),
    ] {
        let found = ticks(text, "Europe/Berlin", "2026-03-29T00:30:00Z", 1);
        assert_eq!(found, [next], "{text}");
    }
}

#[test]
fn a_job_of_a_repeated_hour_runs_in_the_first_pass_only() {
    for (text, next) in [
        ("30 2 * * *", "2026-10-26T01:30:00Z"),
        ("0,30 2-3 * * *", "2026-10-25T02:00:00Z"),
        ("30 0-23/2 * * *", "2026-10-25T03:30:00Z"),
    ] {
        let found = ticks(text, "Europe/Berlin", "2026-10-25T00:29:59Z", 2);
        assert_eq!(found, ["2026-10-25T00:30:00Z", next], "{text}");
        // Nor when the search starts within the second pass.
        let found = ticks(text, "Europe/Berlin", "2026-10-25T01:10:00Z", 1);
        assert_eq!(found, [next], "{text}");
    }
}

#[test]
fn a_job_that_follows_the_wall_clock_runs_in_both_passes_of_a_repeated_hour() {
    let found = ticks("*/30 2 * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 4);
    let expected = [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-26T01:00:00Z",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_nickname_keeps_to_the_rule_of_what_it_stands_for() {
    let hourly = ticks("@hourly", "Europe/Berlin", "2026-10-24T23:00:00Z", 3);
    let expected = [
        "2026-10-25T00:00:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T02:00:00Z",
    ];
    assert_eq!(hourly, expected);
    // Midnight comes twice in Havana, and not at all in spring.
    let daily = ticks("@DAILY", "America/Havana", "2025-11-01T12:00:00Z", 2);
    assert_eq!(daily, ["2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"]);
    let daily = ticks("@Midnight", "America/Havana", "2025-03-08T12:00:00Z", 2);
    assert_eq!(daily, ["2025-03-09T05:00:00Z", "2025-03-10T04:00:00Z"]);
}

#[test]
fn half_an_hour_and_two_hours_are_repeated_and_lost_like_one() {
    // Lord Howe goes back from 2:00 to 1:30, and forward from 2:00 to 2:30.
    let found = ticks(
        "40 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:00:00Z",
        2,
    );
    assert_eq!(found, ["2026-04-04T14:40:00Z", "2026-04-05T15:10:00Z"]);
    let found = ticks(
        "10,40 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T15:00:00Z",
        2,
    );
    assert_eq!(found, ["2026-10-03T15:30:00Z", "2026-10-03T15:40:00Z"]);
    // Troll goes forward from 1:00 to 3:00, and back from 3:00 to 1:00.
    let found = ticks(
        "30 1,2 * * *",
        "Antarctica/Troll",
        "2025-03-29T12:00:00Z",
        2,
    );
    assert_eq!(found, ["2025-03-30T01:00:00Z", "2025-03-30T23:30:00Z"]);
    let found = ticks(
        "30 1,2 * * *",
        "Antarctica/Troll",
        "2025-10-25T23:00:00Z",
        3,
    );
    let expected = [
        "2025-10-25T23:30:00Z",
        "2025-10-26T00:30:00Z",
        "2025-10-27T01:30:00Z",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_lost_hour_before_midnight_is_made_up_on_the_next_day() {
    // Scoresbysund goes from Saturday 23:00 to Sunday 0:00.
    let found = ticks(
        "30 23 28 3 *",
        "America/Scoresbysund",
        "2026-03-28T12:00:00Z",
        2,
    );
    assert_eq!(found, ["2026-03-29T01:00:00Z", "2027-03-29T00:30:00Z"]);
}

#[test]
fn a_lost_day_is_one_lost_time() {
    // Samoa had no 30 December 2011.
    let found = ticks("0 6,18 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", 3);
    let expected = [
        "2011-12-30T04:00:00Z",
        "2011-12-30T10:00:00Z",
        "2011-12-30T16:00:00Z",
    ];
    assert_eq!(found, expected);
    let found = ticks("0 12 30 * *", "Pacific/Apia", "2011-12-01T00:00:00Z", 2);
    assert_eq!(found, ["2011-12-30T10:00:00Z", "2012-01-29T22:00:00Z"]);
    let found = ticks("0 */6 30 * *", "Pacific/Apia", "2011-12-02T00:00:00Z", 1);
    assert_eq!(found, ["2012-01-29T10:00:00Z"]);
}

#[test]
fn a_repeated_day_is_one_repeated_time() {
    // Kwajalein had 30 September 1969 twice, from 11 hours east to 12 hours west.
    let found = ticks("0 12 * * *", "Pacific/Kwajalein", "1969-09-29T12:00:00Z", 2);
    assert_eq!(found, ["1969-09-30T01:00:00Z", "1969-10-02T00:00:00Z"]);
    let found = ticks(
        "0 */12 30 * *",
        "Pacific/Kwajalein",
        "1969-09-29T12:00:00Z",
        4,
    );
    let expected = [
        "1969-09-29T13:00:00Z",
        "1969-09-30T01:00:00Z",
        "1969-10-01T00:00:00Z",
        "1969-10-30T12:00:00Z",
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_offset_with_seconds_puts_the_ticks_between_the_minutes_of_utc() {
    // Liberia was 44 minutes and 30 seconds behind until the midnight of 7 January 1972.
    let found = ticks("0 12 * * *", "Africa/Monrovia", "1972-01-05T00:00:00Z", 3);
    let expected = [
        "1972-01-05T12:44:30Z",
        "1972-01-06T12:44:30Z",
        "1972-01-07T12:00:00Z",
    ];
    assert_eq!(found, expected);
    // Its clocks went from 0:00:00 to 0:44:30, so that the minute 0:44 lost its beginning.
    let found = ticks(
        "30,44,45 0 * * *",
        "Africa/Monrovia",
        "1972-01-06T12:00:00Z",
        2,
    );
    assert_eq!(found, ["1972-01-07T00:44:30Z", "1972-01-07T00:45:00Z"]);
    let found = ticks(
        "44-46 * * * *",
        "Africa/Monrovia",
        "1972-01-07T00:44:29.5Z",
        1,
    );
    assert_eq!(found, ["1972-01-07T00:45:00Z"]);
    let found = ticks("*/22 * * * *", "Africa/Monrovia", "1972-01-07T00:10:00Z", 2);
    assert_eq!(found, ["1972-01-07T00:28:30Z", "1972-01-07T01:00:00Z"]);
}

#[test]
fn a_zone_file_without_a_rule_for_the_future_keeps_its_last_offset() {
    let zone = two_changes();
    let after = "2024-01-01T00:00:00Z".parse().unwrap();
    let tick = parse("0 0 29 2 *").next_after(after, &zone).unwrap();
    assert_eq!(tick.to_string(), "2024-02-28T23:00:00Z");
}

#[test]
fn clocks_that_change_twice_within_an_hour_run_a_job_once() {
    // A made-up zone: back by an hour at 10:00 UTC, and forward again at 10:30.
    let zone = two_changes();
    let job = parse("15,45 10 * * *");
    let after: Timestamp = "2000-01-01T09:00:00Z".parse().unwrap();
    let found: Vec<String> = job
        .ticks_after(after, &zone)
        .take(3)
        .map(|tick| tick.to_string())
        .collect();
    let expected = [
        "2000-01-01T09:15:00Z",
        "2000-01-01T09:45:00Z",
        "2000-01-02T09:15:00Z",
    ];
    assert_eq!(found, expected);
    // The same when the search starts between the two.
    let after = "2000-01-01T10:10:00Z".parse().unwrap();
    let found = job.next_after(after, &zone).unwrap();
    assert_eq!(found.to_string(), expected[2]);
}

/// A TZif file, version 1, with an offset of an hour that is zero from 10:00 to 10:30 of 1 January 2000.
fn two_changes() -> TimeZone {
    let mut file = b"TZif\0".to_vec();
    file.extend([0; 15]);
    // Counts of: UTC flags, standard flags, leap seconds, changes, types, characters.
    for count in [0_u32, 0, 0, 2, 2, 8] {
        file.extend(count.to_be_bytes());
    }
    for change in [946_720_800_i32, 946_722_600] {
        file.extend(change.to_be_bytes());
    }
    file.extend([1, 0]);
    for (offset, name) in [(3600_i32, 0), (0, 4)] {
        file.extend(offset.to_be_bytes());
        file.extend([0, name]);
    }
    file.extend(b"ONE\0NIL\0");
    TimeZone::tzif("Test/Two_Changes", &file).unwrap()
}

#[test]
fn summer_time_that_counts_as_standard_time_changes_nothing() {
    let found = ticks("30 1 * * *", "Europe/Dublin", "2025-03-29T12:00:00Z", 2);
    assert_eq!(found, ["2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z"]);
    let found = ticks("30 1 * * *", "Europe/Dublin", "2025-10-25T12:00:00Z", 2);
    assert_eq!(found, ["2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"]);
}

#[test]
fn the_first_and_the_last_instants_that_there_are_can_be_searched_from() {
    for tz in ["UTC", "Pacific/Kiritimati", "Pacific/Niue", "Europe/Berlin"] {
        let zone = zone(tz);
        for text in ["* * * * *", "0 0 29 2 *", "0 0 * 2 1#5", "59 23 31 12 *"] {
            let job = parse(text);
            let first = job.next_after(Timestamp::MIN, &zone);
            assert!(
                first.is_some_and(|tick| tick > Timestamp::MIN),
                "{text} in {tz}"
            );
            assert_eq!(
                job.next_after(Timestamp::MAX, &zone),
                None,
                "{text} in {tz}"
            );
        }
    }
    let last = "9999-12-30T21:59:00Z".parse().unwrap();
    let tick = parse("* * * * *").next_after(last, &TimeZone::UTC);
    assert_eq!(tick, "9999-12-30T22:00:00Z".parse().ok());
}
