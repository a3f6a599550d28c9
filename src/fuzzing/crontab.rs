//! Crontab expressions.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::rules::cron::Crontab;

/// A crontab expression.
pub fn crontab(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let crontab = match Crontab::parse(text) {
        Ok(crontab) => crontab,
        Err(error) => {
            let why = error.to_string();
            assert!(!why.is_empty() && !why.contains('\n'), "{text:?}: {why:?}");
            return;
        }
    };
    for other in [
        format!("\t {} ", text.replace([' ', '\t'], " \t ")),
        text.to_ascii_uppercase(),
        text.to_ascii_lowercase(),
    ] {
        let read = Crontab::parse(&other);
        assert_eq!(read.ok().as_ref(), Some(&crontab), "{text:?}, {other:?}");
    }
    let zones = TimeZoneDatabase::bundled();
    for zone in ["UTC", "Europe/Berlin", "Australia/Lord_Howe"] {
        let zone = zones.get(zone).unwrap_or(TimeZone::UTC);
        // The day before Europe's clocks change.
        let mut last = Timestamp::constant(1_774_663_200, 0);
        for _ in 0..4 {
            let Some(tick) = crontab.next_after(last, &zone) else {
                // Where clocks change, that can be an hour which is lost each time.
                assert!(zone != TimeZone::UTC, "{text:?} never fires after {last}");
                break;
            };
            assert!(
                tick > last && tick.subsec_nanosecond() == 0,
                "{text:?}: {tick}"
            );
            let before = tick - jiff::SignedDuration::from_nanos(1);
            let again = crontab.next_after(before, &zone);
            assert_eq!(again, Some(tick), "{text:?}");
            last = tick;
        }
    }
}
