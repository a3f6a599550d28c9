//! Locks as a table for people, and as JSON for programs.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::json::Object;
use super::terminal::{Paint, Tone, printable};
use crate::admin::LockRow;
use crate::context::LockStrategy;
use crate::db::timestamp::RowTime;

const HEADINGS: [&str; 6] = ["KEY", "KIND", "HOLDER", "UNTIL", "LEFT", "TOKEN"];

/// One line per lock, in columns as wide as they have to be.
pub(crate) fn table(locks: &[LockRow], zone: &TimeZone, paint: Paint) -> String {
    let rows: Vec<[String; 6]> = locks.iter().map(|lock| cells(lock, zone)).collect();
    let widths: [usize; 6] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(HEADINGS[column].len())
    });
    let mut lines = vec![line(
        &HEADINGS.map(String::from),
        &widths,
        |_| Tone::Heading,
        paint,
    )];
    for (lock, row) in locks.iter().zip(&rows) {
        let live = lock.is_live();
        let tone = |column| match (live, column) {
            (false, _) => Tone::Faint,
            (true, 0) => Tone::Heading,
            (true, 4) => Tone::Good,
            (true, _) => Tone::Plain,
        };
        lines.push(line(row, &widths, tone, paint));
    }
    lines.concat()
}

fn line(
    cells: &[String; 6],
    widths: &[usize; 6],
    tone: impl Fn(usize) -> Tone,
    paint: Paint,
) -> String {
    let mut line = String::new();
    for (column, cell) in cells.iter().enumerate() {
        // Nothing stands to the right of the last column; colours are not to count as width.
        let padding = match column == cells.len() - 1 {
            true => 0,
            false => widths[column] + 2 - cell.chars().count(),
        };
        line.push_str(&paint.apply(tone(column), cell));
        line.push_str(&" ".repeat(padding));
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

fn cells(lock: &LockRow, zone: &TimeZone) -> [String; 6] {
    [
        printable(&lock.lock_key),
        kind(lock.kind).to_owned(),
        printable(&lock.holder),
        until(lock.expire_at, zone),
        left(lock),
        lock.token.as_deref().map_or("-".to_owned(), printable),
    ]
}

/// As `--strategy` calls it.
pub(crate) fn kind(kind: LockStrategy) -> &'static str {
    match kind {
        LockStrategy::Schedule => "schedule",
        LockStrategy::Lease => "lease",
    }
}

fn until(at: RowTime, zone: &TimeZone) -> String {
    match at {
        RowTime::At(at) => {
            let at = at.to_zoned_datetime(zone.clone());
            at.strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
        }
        RowTime::Past | RowTime::Never => at.to_string(),
    }
}

/// How much longer a lock is held, or how long ago it expired.
pub(crate) fn left(lock: &LockRow) -> String {
    match (lock.expire_at, seconds_left(lock)) {
        (RowTime::Never, _) => "for ever".to_owned(),
        (RowTime::Past | RowTime::At(_), None) => "expired".to_owned(),
        (RowTime::Past | RowTime::At(_), Some(s)) if s > 0.0 => duration(s),
        (RowTime::Past | RowTime::At(_), Some(s)) => format!("expired {} ago", duration(-s)),
    }
}

fn seconds_left(lock: &LockRow) -> Option<f64> {
    match (lock.expire_at, lock.now) {
        (RowTime::At(end), RowTime::At(now)) => Some(end.duration_since(now).as_secs_f64()),
        _ => None,
    }
}

/// The two largest units are enough for people. Rounded up: what is not over has time left.
fn duration(seconds: f64) -> String {
    let total = Duration::try_from_secs_f64(seconds.ceil()).unwrap_or(Duration::MAX);
    let seconds = total.as_secs();
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {seconds}s"),
        (0, _, _) => format!("{hours}h {minutes}m"),
        (_, _, _) => format!("{days}d {hours}h"),
    }
}

/// An array with one object per lock and line.
pub(crate) fn json(locks: &[LockRow]) -> String {
    let objects: Vec<String> = locks.iter().map(json_object).collect();
    match objects.is_empty() {
        true => "[]\n".to_owned(),
        false => format!("[\n{}\n]\n", objects.join(",\n")),
    }
}

fn json_object(lock: &LockRow) -> String {
    let mut object = Object::new()
        .text("key", &lock.lock_key)
        .text("kind", kind(lock.kind))
        .text("holder", &lock.holder)
        .plain("live", lock.is_live());
    object = match lock.expire_at {
        RowTime::At(at) => object.text("expires_at", &at.to_string()),
        RowTime::Past | RowTime::Never => object.null("expires_at"),
    };
    object = match seconds_left(lock) {
        Some(seconds) => object.plain("seconds_left", seconds),
        None => object.null("seconds_left"),
    };
    object = match lock.token.as_deref().map(str::parse::<i64>) {
        Some(Ok(token)) => object.plain("token", token),
        Some(Err(_)) | None => object.null("token"),
    };
    object.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(key: &str, kind: LockStrategy, expire_at: RowTime) -> LockRow {
        LockRow {
            lock_key: key.to_owned(),
            kind,
            holder: "db1:412:9f".to_owned(),
            expire_at,
            now: at("2026-01-31T02:00:00Z"),
            token: Some("17".to_owned()),
        }
    }

    fn at(text: &str) -> RowTime {
        RowTime::At(text.parse().unwrap())
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_blanks_at_their_end() {
        let mut orphan = lock("b\n", LockStrategy::Schedule, RowTime::Never);
        orphan.token = None;
        let locks = [
            lock(
                "a-long-key",
                LockStrategy::Lease,
                at("2026-01-31T02:00:43Z"),
            ),
            orphan,
            lock("c", LockStrategy::Lease, at("2026-01-31T01:00:00Z")),
        ];
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            table(&locks, &berlin, Paint::coloured(false)),
            "\
KEY         KIND      HOLDER      UNTIL                       LEFT               TOKEN
a-long-key  lease     db1:412:9f  2026-01-31 03:00:43 +01:00  43s                17
b\\n         schedule  db1:412:9f  infinity                    for ever           -
c           lease     db1:412:9f  2026-01-31 02:00:00 +01:00  expired 1h 0m ago  17
"
        );
    }

    #[test]
    fn colours_do_not_disturb_the_columns() {
        let locks = [lock("a", LockStrategy::Lease, at("2026-01-31T02:00:43Z"))];
        let coloured = table(&locks, &TimeZone::UTC, Paint::coloured(true));
        let mut plain = coloured.clone();
        for code in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m"] {
            plain = plain.replace(code, "");
        }
        assert_ne!(coloured, plain);
        assert_eq!(plain, table(&locks, &TimeZone::UTC, Paint::coloured(false)));
    }

    #[test]
    fn durations_show_their_two_largest_units() {
        let cases = [
            (0.2, "1s"),
            (59.0, "59s"),
            (60.0, "1m 0s"),
            (3_599.5, "1h 0m"),
            (90_000.0, "1d 1h"),
            (1e300, "213503982334601d 7h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn json_is_an_array_with_an_object_per_line() {
        let mut never = lock("b", LockStrategy::Schedule, RowTime::Never);
        never.token = Some("not ours".to_owned());
        let locks = [
            lock("a", LockStrategy::Lease, at("2026-01-31T02:00:43.5Z")),
            never,
        ];
        assert_eq!(
            json(&locks),
            r#"[
{"key":"a","kind":"lease","holder":"db1:412:9f","live":true,"expires_at":"2026-01-31T02:00:43.5Z","seconds_left":43.5,"token":17},
{"key":"b","kind":"schedule","holder":"db1:412:9f","live":true,"expires_at":null,"seconds_left":null,"token":null}
]
"#
        );
        assert_eq!(json(&[]), "[]\n");
    }
}
