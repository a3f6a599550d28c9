mod clock_changes;
mod croner;
mod noise;
mod properties;
mod reading;
mod written;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::Crontab;

/// Lines of expression, zone, instant, next tick or `ERROR`, and where the line comes from; what is
/// hard to see in an expression is escaped as in a Rust or Python string.
const TABLE: &str = include_str!("../../../tests/data/cron_cases.tsv");

fn parse(text: &str) -> Crontab {
    Crontab::parse(text).unwrap_or_else(|e| panic!("{text:?} was refused: {e}"))
}

fn refusal(text: &str) -> String {
    match Crontab::parse(text) {
        Ok(crontab) => panic!("{text:?} was read as {crontab:?}"),
        Err(e) => e.to_string(),
    }
}

/// A zone as the bundled data has it: what this machine has may be old.
fn zone(name: &str) -> TimeZone {
    let zones = TimeZoneDatabase::bundled();
    zones.get(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('\\') => out.push('\\'),
            Some('u') => {
                let hex: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&hex, 16).unwrap();
                out.push(char::from_u32(code).unwrap());
            }
            other => panic!("unknown escape {other:?} in {text:?}"),
        }
    }
    out
}

/// The next ticks after an instant, as text.
fn ticks(text: &str, tz: &str, after: &str, n: usize) -> Vec<String> {
    let (after, zone) = (after.parse().unwrap(), zone(tz));
    parse(text)
        .ticks_after(after, &zone)
        .take(n)
        .map(|tick| tick.to_string())
        .collect()
}

#[test]
fn every_line_of_the_verified_table_holds() {
    let mut lines = 0;
    for line in TABLE.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let &[expression, tz, base, expected, ..] = columns.as_slice() else {
            panic!("{line:?}");
        };
        let text = unescape(expression);
        if expected == "ERROR" {
            refusal(&text);
        } else {
            let base: Timestamp = base.parse().unwrap();
            let next = parse(&text).next_after(base, &zone(tz));
            assert_eq!(next, expected.parse().ok(), "{line}");
        }
        lines += 1;
    }
    assert_eq!(lines, 921);
}
