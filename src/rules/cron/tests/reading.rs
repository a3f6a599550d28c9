//! Which minutes an expression means, and how a refusal is worded.

use jiff::civil::date;

use super::{parse, refusal, ticks};

/// The days of a month on which a job runs at midnight.
fn days(text: &str, year: i16, month: i8) -> Vec<i8> {
    let first = date(year, month, 1);
    let after = format!("{}T23:59:59Z", first.yesterday().unwrap());
    ticks(&format!("0 0 {text}"), "UTC", &after, 40)
        .iter()
        .filter_map(|tick| {
            let day: jiff::civil::Date = tick[..10].parse().unwrap();
            (day.first_of_month() == first).then_some(day.day())
        })
        .collect()
}

/// The minutes of an hour, or the hours of a day, that a field means.
fn times(text: &str, n: usize) -> Vec<i8> {
    let (from, to) = if text.ends_with('*') {
        (14, 16)
    } else {
        (11, 13)
    };
    ticks(&format!("{text} * * *"), "UTC", "2025-12-31T23:59:59Z", n)
        .iter()
        .map(|tick| tick[from..to].parse().unwrap())
        .collect()
}

#[test]
fn lists_ranges_and_steps_mean_the_union_of_their_items() {
    assert_eq!(times("*/25 *", 4), [0, 25, 50, 0]);
    assert_eq!(times("5,3,3,50-52 *", 6), [3, 5, 50, 51, 52, 3]);
    assert_eq!(times("10-30/10,07 *", 5), [7, 10, 20, 30, 7]);
    assert_eq!(times("20/15 *", 4), [20, 35, 50, 20]);
    assert_eq!(times("59/1 *", 2), [59, 59]);
    assert_eq!(times("0 */23", 3), [0, 23, 0]);
    assert_eq!(times("0 20/2", 3), [20, 22, 20]);
    assert_eq!(times("0 */100", 2), [0, 0]);
}

#[test]
fn a_range_that_wraps_goes_over_the_end_of_its_field() {
    assert_eq!(times("0 22-1", 5), [0, 1, 22, 23, 0]);
    assert_eq!(times("58-1 *", 5), [0, 1, 58, 59, 0]);
    assert_eq!(days("30-2 * *", 2026, 1), [1, 2, 30, 31]);
    assert_eq!(days("1 nov-Feb *", 2026, 2), [1]);
    assert!(days("1 nov-Feb *", 2026, 3).is_empty());
}

#[test]
fn sunday_is_0_and_7_and_begins_and_ends_a_range() {
    let sundays = [1, 8, 15, 22, 29];
    for text in [
        "0", "7", "07", "sun", "SUN", "0-0", "7-7", "sun-sun", "7-0", "0,7", "*/7", "0-7/7",
    ] {
        assert_eq!(days(&format!("* * {text}"), 2026, 3), sundays, "{text}");
    }
    let first_days = |text| days(&format!("* * {text}"), 2026, 3)[..4].to_vec();
    assert_eq!(first_days("fri-mon"), [1, 2, 6, 7]);
    assert_eq!(first_days("sun-tue"), [1, 2, 3, 8]);
    assert_eq!(first_days("7-2"), [1, 2, 3, 8]);
    assert_eq!(first_days("6-7"), [1, 7, 8, 14]);
    assert_eq!(first_days("mon-7"), [1, 2, 3, 4]);
    assert_eq!(first_days("5-0"), [1, 6, 7, 8]);
    assert_eq!(first_days("1-7/2"), [1, 2, 4, 6]);
    // The week that N/step goes to the end of ends with Saturday.
    assert_eq!(first_days("3/2"), [4, 6, 11, 13]);
    assert_eq!(first_days("7/3"), [1, 4, 7, 8]);
}

#[test]
fn both_day_fields_are_joined_by_or_only_when_both_are_restricted() {
    let tuesdays = [6, 13, 20, 27];
    let all: Vec<i8> = (1..=31).collect();
    assert_eq!(days("* * 2", 2026, 1), tuesdays);
    assert_eq!(days("*,10 * 2", 2026, 1), tuesdays);
    assert_eq!(days("10,* * 2", 2026, 1), all);
    assert_eq!(days("*/1 * 2", 2026, 1), all);
    assert_eq!(days("1-31 * 2", 2026, 1), all);
    assert_eq!(days("10 * *", 2026, 1), [10]);
    assert_eq!(days("10 * *,2", 2026, 1), [10]);
    assert_eq!(days("10 * 2,*", 2026, 1), all);
    assert_eq!(days("10 * 0-7", 2026, 1), all);
    assert_eq!(days("10 * 2", 2026, 1), [6, 10, 13, 20, 27]);
    assert_eq!(
        days("*/10 * */3", 2026, 1),
        [1, 3, 4, 7, 10, 11, 14, 17, 18, 21, 24, 25, 28, 31]
    );
}

#[test]
fn l_is_the_last_day_of_each_month() {
    assert_eq!(days("L * *", 2026, 2), [28]);
    assert_eq!(days("L * *", 2028, 2), [29]);
    assert_eq!(days("l * *", 2026, 4), [30]);
    assert_eq!(days("1,15,L * *", 2026, 5), [1, 15, 31]);
    assert_eq!(days("L,31 * *", 2026, 4), [30]);
    assert_eq!(days("L * 1", 2026, 2), [2, 9, 16, 23, 28]);
    assert_eq!(days("*,L * 1", 2026, 2), [2, 9, 16, 23]);
    assert_eq!(days("L 2 *", 2026, 2), [28]);
}

#[test]
fn one_weekday_of_a_month_is_counted_from_its_start_or_its_end() {
    assert_eq!(days("* * 5#2", 2026, 5), [8]);
    assert_eq!(days("* * fri#5", 2026, 5), [29]);
    assert!(days("* * fri#5", 2026, 6).is_empty());
    assert_eq!(days("* * 7#01", 2026, 5), [3]);
    assert_eq!(days("* * L5", 2026, 6), [26]);
    assert_eq!(days("* * l7,L0,LSun", 2026, 5), [31]);
    assert_eq!(days("* * 1#1,1#3,L6", 2026, 5), [4, 18, 30]);
    assert_eq!(days("13 * 5#2", 2026, 5), [8, 13]);
    assert_eq!(days("* 2 1#5", 2044, 2), [29]);
}

#[test]
fn blanks_and_tabs_around_and_between_do_not_matter() {
    let plain = parse("0 3 * * mon");
    assert_eq!(parse(" \t0\t 3  * *\t\tMON \t"), plain);
    assert_eq!(parse("\t@weekly "), parse("0 0 * * 0"));
}

#[test]
fn what_never_comes_is_refused() {
    for text in [
        "0 0 30 2 *",
        "0 0 31 4 *",
        "0 0 31 6 *",
        "0 0 31 9 *",
        "0 0 31 11 *",
        "0 0 31 2,4,6 *",
        "0 0 30-31 feb *",
        "0 0 31 4-6/2,9 *",
        "* * 30 2 *,1",
    ] {
        let message = refusal(text);
        assert!(
            message.starts_with("never fires: month"),
            "{text}: {message}"
        );
    }
    for text in [
        "0 0 29 2 *",
        "0 0 31 1,2 *",
        "0 0 30,L 2 *",
        "0 0 30 2 1",
        "0 0 30 2 */1",
        "0 0 29-31 2 *",
        "0 0 * 2 1#5",
    ] {
        parse(text);
    }
}

#[test]
fn a_refusal_names_the_field_and_the_item_and_says_why_and_what_is_allowed() {
    for (text, parts) in [
        ("60 * * * *", ["minute \"60\"", "out of range", "0-59"]),
        ("0 5,24 * * *", ["hour \"24\"", "out of range", "0-23"]),
        ("0 0 0 * *", ["day-of-month \"0\"", "out of range", "1-31"]),
        (
            "0 0 1 1-13 *",
            ["month \"1-13\"", "13 is out of range", "1-12, jan-dec"],
        ),
        ("0 0 * * 8", ["day-of-week \"8\"", "out of range", "0-7"]),
        (
            "99999999999999999999999 * * * *",
            ["minute", "too large", "0-59"],
        ),
        (
            "0 0 * * jan",
            [
                "day-of-week \"jan\"",
                "a name of the month field",
                "sun-sat",
            ],
        ),
        (
            "0 MON * * *",
            ["hour \"MON\"", "a name of the day-of-week field", "0-23"],
        ),
        (
            "0 0 1 sept *",
            ["month \"sept\"", "three letters", "jan-dec"],
        ),
        (
            "0 0 1 foo *",
            ["month \"foo\"", "neither a number nor a name", "jan-dec"],
        ),
        (
            "0 0 1 1mar *",
            ["month \"1mar\"", "not a number", "jan-dec"],
        ),
        ("x * * * *", ["minute \"x\"", "not a number", "0-59"]),
        ("1,,2 * * * *", ["minute \"1,,2\"", "missing", "0-59"]),
        ("*/0 * * * *", ["minute \"*/0\"", "at least 1", "steps"]),
        ("*/ * * * *", ["minute \"*/\"", "missing", "steps"]),
        (
            "0 22-4/2 * * *",
            ["hour \"22-4/2\"", "runs backward takes no step", "ranges"],
        ),
        ("0 -1 * * *", ["hour \"-1\"", "negative", "0-23"]),
        ("? * * * *", ["minute \"?\"", "Quartz", "*"]),
        ("0 0 ? * 1", ["day-of-month \"?\"", "Quartz", "write *"]),
        (
            "0 0 15W * *",
            ["day-of-month \"15W\"", "nearest weekday", "1-31"],
        ),
        (
            "0 0 lw * *",
            ["day-of-month \"lw\"", "Quartz", "L (the last day)"],
        ),
        (
            "0 0 L-3 * *",
            ["day-of-month \"L-3\"", "L stands alone", "L (the last day)"],
        ),
        (
            "0 0 1-L * *",
            ["day-of-month \"1-L\"", "L stands alone", "L (the last day)"],
        ),
        ("H * * * *", ["minute \"H\"", "Jenkins", "0-59"]),
        ("H/15 * * * *", ["minute \"H/15\"", "Jenkins", "0-59"]),
        ("0~30 * * * *", ["minute \"0~30\"", "random", "0-59"]),
        ("0 0 * * 5L", ["day-of-week \"5L\"", "written L5", "L5"]),
        ("0 0 * * L", ["day-of-week \"L\"", "written L5", "L5"]),
        ("0 0 * * 1#6", ["day-of-week \"1#6\"", "1 to 5", "5#2"]),
        (
            "0 0 * * mon-wed#2",
            ["day-of-week \"mon-wed#2\"", "one day of the week", "5#2"],
        ),
        (
            "0 0 * * 5,6#3",
            ["day-of-week \"5,6#3\"", "do not mix", "5#2"],
        ),
        ("0 0 * * *,L5", ["day-of-week \"*,L5\"", "do not mix", "L5"]),
        ("'0 3 * * *'", ["minute \"'0\"", "quotes", "0-59"]),
        ("@reboot", ["allowed are", "names no time", "@daily"]),
        ("@every 5m", ["allowed are", "*/5", "@daily"]),
        (
            "@fortnightly",
            ["allowed are", "no such nickname", "@weekly"],
        ),
        (
            "@daily * * * *",
            ["allowed are", "no such nickname", "@daily"],
        ),
        ("", ["allowed are", "missing", "exactly five"]),
        ("* * * *", ["allowed are", "4 fields", "exactly five"]),
        (
            "0 0 12 * * 1",
            ["allowed are", "6 fields", "without seconds, a year"],
        ),
        (
            "0 0 12 * * 1 2027",
            ["allowed are", "7 fields", "without seconds, a year"],
        ),
        (
            "0 3 * * * root",
            ["allowed are", "6 fields", "or a command"],
        ),
        (
            "CRON_TZ=UTC 0 3 * * *",
            ["allowed are", "time zone", "exactly five"],
        ),
        (
            "0 3 * * *\n",
            ["contains the character", "U+000A", "only blanks and tabs"],
        ),
        (
            "0\u{2003}3 * * *",
            ["contains the character", "U+2003", "only blanks and tabs"],
        ),
        (
            "0 3 * * \u{202e}5",
            ["day-of-week \"\\u{202e}5\"", "neither", "0-7"],
        ),
    ] {
        let message = refusal(text);
        for part in parts {
            assert!(
                message.contains(part),
                "{text:?}: no {part:?} in {message:?}"
            );
        }
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}

#[test]
fn a_text_that_is_too_long_is_refused_and_not_repeated() {
    let longest = format!("{}00 * * * *", "0,".repeat(495));
    assert_eq!(longest.len(), 1000);
    assert_eq!(parse(&longest), parse("0 * * * *"));
    let message = refusal(&format!("{longest} "));
    assert!(message.contains("1001 bytes"), "{message}");
    for part in ["0,", "9", " * ", "🦀", "\u{301}", "\0"] {
        let message = refusal(&part.repeat(1_000_000));
        assert!(
            message.ends_with("bytes; allowed are up to 1000"),
            "{message}"
        );
        assert!(message.len() < 100, "{message}");
    }
}

#[test]
fn a_refusal_of_a_long_item_shows_its_beginning() {
    let message = refusal(&format!("0 0 * * {}", "x".repeat(900)));
    assert!(message.contains("xxx…\""), "{message}");
    assert!(message.len() < 400, "{message}");
}
