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

/// The zone of a database session: of that name, or, where PostgreSQL takes a name that is no IANA
/// name (`<+03>-03`), what its offset is now, which is right until that offset changes.
///
/// # Errors
///
/// When the offset cannot be one.
pub(crate) fn session_zone(
    name: &str,
    offset_seconds: i32,
    zones: &TimeZoneDatabase,
) -> Result<TimeZone, ZoneError> {
    if let Some(zone) = iana_zone(name, zones) {
        return Ok(zone);
    }
    Offset::from_seconds(offset_seconds)
        .map(TimeZone::fixed)
        .map_err(|_| ZoneError::Offset {
            name: name.to_owned(),
            seconds: offset_seconds,
        })
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
