//! The database of the model: one row, and the three statements that touch it.
//!
//! What they do is what the SQL in `db/store.rs` does under READ COMMITTED: `NOW()` is read when a
//! statement *starts*; its conditions are judged, with that same `NOW()`, by the row as it is when the
//! statement *takes effect*, which may be long after.

use std::time::Duration;

use super::clocks::{Clock, Nanos, nanos};
use super::flaw::Flaw;

/// What stands for `<owner>:<nonce>`: new for every acquisition.
pub(super) type Value = u64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) value: Value,
    /// On the database's clock.
    pub(super) expire_at: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Acquire { value: Value, ttl: Duration },
    Renew { value: Value, ttl: Duration },
    Expire { value: Value },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The row is ours; `again` when it already was, by an attempt whose answer was lost.
    Taken { again: bool },
    /// It is somebody else's for at least so long.
    Busy { expires_in: Duration },
    /// Renewed, or expired.
    Done,
    /// Another session has locked it: nothing was changed.
    Locked,
    /// The owner guard rejects it.
    NotOurs,
    /// An error, by its SQLSTATE.
    Error(&'static str),
}

pub(super) struct Database {
    pub(super) clock: Clock,
    pub(super) row: Option<Row>,
    /// Somebody's open transaction has the row locked until then.
    pub(super) locked_until: Nanos,
    /// It refuses everybody until then.
    pub(super) down_until: Nanos,
    pub(super) flaw: Option<Flaw>,
}

impl Database {
    /// `NOW()`, in whole microseconds as PostgreSQL has it.
    pub(super) fn now(&self, at: Nanos) -> Nanos {
        self.clock.read(at) / 1000 * 1000
    }

    /// Whether the row is that one's and has not expired.
    pub(super) fn is_live(&self, value: Value, at: Nanos) -> bool {
        let now = self.clock.read(at);
        self.row
            .is_some_and(|row| row.value == value && row.expire_at > now)
    }

    /// Carries out a statement that started when `NOW()` was `started`.
    pub(super) fn execute(&mut self, statement: Statement, started: Nanos) -> Answer {
        let until = |ttl| started.saturating_add(nanos(ttl));
        match statement {
            Statement::Acquire { value, ttl } => self.acquire(value, until(ttl), started),
            Statement::Renew { value, ttl } => {
                let unguarded = self.flaw == Some(Flaw::RenewalHasNoOwnerGuard);
                match &mut self.row {
                    Some(row) if row.value == value || unguarded => {
                        row.value = value;
                        row.expire_at = row.expire_at.max(until(ttl));
                        Answer::Done
                    }
                    _ => Answer::NotOurs,
                }
            }
            Statement::Expire { value } => {
                let unguarded = self.flaw == Some(Flaw::ReleaseHasNoOwnerGuard);
                match &mut self.row {
                    Some(row) if row.value == value || unguarded => {
                        row.expire_at = started;
                        Answer::Done
                    }
                    _ => Answer::NotOurs,
                }
            }
        }
    }

    fn acquire(&mut self, value: Value, until: Nanos, started: Nanos) -> Answer {
        let forced = self.flaw == Some(Flaw::AcquisitionIgnoresExpiry);
        match self.row {
            Some(row) if row.value != value && row.expire_at > started && !forced => {
                let expires_in = Duration::from_nanos(row.expire_at - started);
                Answer::Busy { expires_in }
            }
            before => {
                let again = before.is_some_and(|row| row.value == value);
                let expire_at = before.map_or(until, |row| until.max(row.expire_at));
                self.row = Some(Row { value, expire_at });
                Answer::Taken { again }
            }
        }
    }
}
