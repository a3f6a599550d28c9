//! `timestamptz` as PostgreSQL sends it, infinities included.

use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use tokio_postgres::types::{FromSql, Type};

/// 2000-01-01, from which PostgreSQL counts, in microseconds after 1970-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A point in time in a row, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowTime {
    /// `-infinity`, or before the year -9999.
    Past,
    At(Timestamp),
    /// `infinity`, or after the year 9999: an operator's way to say "until further notice".
    Never,
}

impl RowTime {
    /// For the public API; `None` where there is no such instant.
    pub(crate) fn system_time(self) -> Option<SystemTime> {
        match self {
            Self::At(at) => Some(system_time(at)),
            Self::Past => Some(SystemTime::UNIX_EPOCH),
            Self::Never => None,
        }
    }
}

impl fmt::Display for RowTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Past => f.write_str("-infinity"),
            Self::At(at) => at.fmt(f),
            Self::Never => f.write_str("infinity"),
        }
    }
}

impl<'a> FromSql<'a> for RowTime {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        if *ty != Type::TIMESTAMPTZ {
            return Err(Box::new(OtherType(ty.clone())));
        }
        let micros = i64::from_be_bytes(raw.try_into()?);
        let out_of_range = if micros < 0 { Self::Past } else { Self::Never };
        // The infinities are the ends of the range, which no calendar reaches.
        let at = micros
            .checked_add(EPOCH_MICROS)
            .and_then(|micros| Timestamp::from_microsecond(micros).ok());
        Ok(at.map_or(out_of_range, Self::At))
    }

    /// Any, so that it is us who say what is wrong with it.
    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The table's column is of another type, which PostgreSQL converts when it is written.
#[derive(Debug)]
pub(crate) struct OtherType(Type);

impl fmt::Display for OtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expire_at is {} and should be timestamptz", self.0)
    }
}

impl Error for OtherType {}

/// The same instant for the standard library. Where its range is smaller than the calendar's, which
/// is nowhere that this crate runs, an instant outside it has long passed.
pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    SystemTime::try_from(at).unwrap_or(SystemTime::UNIX_EPOCH)
}
