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
mod tests;
