//! The time zones that there are.

use jiff::tz::TimeZoneDatabase;

use crate::per_process::PerProcess;

static ZONES: PerProcess<TimeZoneDatabase> = PerProcess::new();

/// What the system has, or else the bundled copy. Not jiff's own global, which waits for whoever began to
/// read it: in a child of a fork that may be for ever.
pub(crate) fn zones() -> &'static TimeZoneDatabase {
    ZONES.get_or_init(TimeZoneDatabase::from_env)
}
