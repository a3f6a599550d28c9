//! Log lines on stderr: `2026-01-31 03:00:00 [WARNING] message`, in local time, or JSON.
//!
//! Only this crate's records are written. What the driver and the TLS library log at DEBUG is made for
//! their authors, and nobody promises that it holds no secret. `RUST_LOG` is ignored for the same
//! reason.
//!
//! A stderr that is closed, broken or full loses the line and changes nothing else.

use std::any::Any;
use std::io::{self, Write as _};
use std::panic::Location;
use std::sync::OnceLock;

use env_logger::Target;
use jiff::{Timestamp, tz::TimeZone};
use log::{Level, LevelFilter};

use super::events;
use super::impatient::Impatient;
use super::terminal::printable;

/// Records of this crate; also what its targets start with.
const OURS: &str = env!("CARGO_PKG_NAME");

/// The level of this name, in any case. CRITICAL silences every record: what is critical is not
/// logged but written by [`report_panics`].
pub(crate) fn level(name: &str) -> Option<LevelFilter> {
    match name.to_ascii_uppercase().as_str() {
        "DEBUG" => Some(LevelFilter::Debug),
        "INFO" => Some(LevelFilter::Info),
        "WARNING" => Some(LevelFilter::Warn),
        "ERROR" => Some(LevelFilter::Error),
        "CRITICAL" => Some(LevelFilter::Off),
        _ => None,
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// What everything that is logged has in common, as soon as it is known; it is set once.
static FORMAT: OnceLock<Format> = OnceLock::new();
static LOCK_KEY: OnceLock<String> = OnceLock::new();

/// Names the lock that this process is about, for records that do not.
pub(crate) fn about(lock_key: &str) {
    // There is one run in a process, and so one lock.
    let _ = LOCK_KEY.set(lock_key.to_owned());
}

/// Sends this crate's records from `level` upwards to stderr. The first call in a process counts.
pub(crate) fn init(level: LevelFilter, format: Format) {
    let _ = FORMAT.set(format);
    let zone = TimeZone::system();
    let installed = env_logger::Builder::new()
        .filter_level(LevelFilter::Off)
        .filter_module(OURS, level)
        .target(Target::Pipe(Box::new(Impatient(io::stderr()))))
        .format(move |out, record| {
            let (now, level) = (Timestamp::now(), name(record.level()));
            let line = match format {
                Format::Text => line(now, &zone, level, &record.args().to_string()),
                Format::Json => {
                    events::line(now, level, record, LOCK_KEY.get().map(String::as_str))
                }
            };
            out.write_all(line.as_bytes())
        })
        .try_init();
    // A second logger is refused, and the first one goes on: nothing to do about it, or to say.
    drop(installed);
}

/// Has a panic, in whatever thread, write one line in the manner of a log line, at every level.
///
/// Its message is shown only where it is part of the program's text: one that was put together at run
/// time may contain anything, the database's URL included.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let message = panic_message(panic.payload(), panic.location());
        let (now, level) = (Timestamp::now(), "CRITICAL");
        let line = match FORMAT.get() {
            Some(Format::Json) => events::bare_line(now, level, "panic", &message),
            Some(Format::Text) | None => line(now, &TimeZone::system(), level, &message),
        };
        // Where stderr is broken there is nowhere else to say it.
        drop(Impatient(io::stderr()).write_all(line.as_bytes()));
    }));
}

fn panic_message(payload: &dyn Any, place: Option<&Location<'_>>) -> String {
    let mut message = "internal error".to_owned();
    if let Some(place) = place {
        message.push_str(&format!(" at {}:{}", place.file(), place.line()));
    }
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        message.push_str(": ");
        message.push_str(text);
    }
    message
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "ERROR",
        Level::Warn => "WARNING",
        Level::Info => "INFO",
        Level::Debug | Level::Trace => "DEBUG",
    }
}

/// One record as one line, whatever is in it.
fn line(at: Timestamp, zone: &TimeZone, level: &str, message: &str) -> String {
    let at = zone.to_datetime(at);
    let at = at.strftime("%Y-%m-%d %H:%M:%S");
    format!("{at} [{level}] {}\n", printable(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_line_has_local_time_level_and_message() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            line(at("2026-01-31T02:00:00.9Z"), &berlin, "WARNING", "held"),
            "2026-01-31 03:00:00 [WARNING] held\n"
        );
        assert_eq!(
            line(at("2026-07-01T00:00:00Z"), &TimeZone::UTC, "INFO", "é"),
            "2026-07-01 00:00:00 [INFO] é\n"
        );
    }

    #[test]
    fn a_message_of_many_lines_stays_on_one() {
        let line = line(
            at("2026-01-31T02:00:00Z"),
            &TimeZone::UTC,
            "ERROR",
            "a\nb\r\tc\x1b[31m\0\u{9b}",
        );
        assert!(
            line.ends_with("[ERROR] a\\nb\\r\\tc\\u{1b}[31m\\u{0}\\u{9b}\n"),
            "{line:?}"
        );
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn levels_are_taken_in_any_case_and_nothing_else_is() {
        let cases = [
            ("DEBUG", Some(LevelFilter::Debug)),
            ("info", Some(LevelFilter::Info)),
            ("Warning", Some(LevelFilter::Warn)),
            ("eRRoR", Some(LevelFilter::Error)),
            ("critical", Some(LevelFilter::Off)),
            ("WARN", None),
            ("TRACE", None),
            ("OFF", None),
            ("10", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(level(text), expected, "{text:?}");
        }
    }

    #[test]
    fn every_level_is_written_as_one_of_the_names_that_can_be_asked_for() {
        for l in Level::iter() {
            assert!(level(name(l)).is_some(), "{l}");
        }
    }

    #[test]
    fn a_panic_shows_its_message_only_where_that_is_part_of_the_program() {
        let url = "postgres://u:hunter2@h/d";
        let made = std::panic::catch_unwind(|| panic!("cannot parse {}", String::from(url)));
        let made = panic_message(&*made.unwrap_err(), Some(Location::caller()));
        assert!(
            made.starts_with("internal error at src/cli/logging.rs:"),
            "{made}"
        );
        assert!(!made.contains("hunter2"), "{made}");

        let fixed = std::panic::catch_unwind(|| panic!("no rows"));
        let fixed = panic_message(&*fixed.unwrap_err(), None);
        assert_eq!(fixed, "internal error: no rows");
    }

    #[test]
    fn this_module_s_records_are_ours() {
        assert!(module_path!().starts_with(OURS));
    }
}
