//! Everything that can go wrong with the database, in one type, with what to do about it.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::types::{WasNull, WrongType};

use super::connect::{ConnectError, Connection, is_connection_loss};
use super::timestamp::OtherType;
use crate::context::{LockContext, TableName};
use crate::error::Error;
use crate::rules::retry::{FailureClass, classify};

/// Why a server that is well may keep a statement waiting.
const LOCKED: &str = "another session holds a lock on the row or the table";

/// What a lock's row cannot be read with.
pub(crate) const NULL: &str = "value or expire_at is NULL";

/// What is said of a table that is none for locks.
pub(crate) fn misshapen(table: &TableName) -> String {
    format!(
        "table {table} has not the shape of a lock table (key text PRIMARY KEY, value text NOT NULL, \
         expire_at timestamptz NOT NULL)"
    )
}

/// Why the database did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No connection could be made.
    Connect(ConnectError),
    /// A statement failed, or the connection under it.
    Statement(tokio_postgres::Error),
    /// We broke the connection off, for this reason.
    BrokenOff(String),
    /// No answer came in time.
    Silent,
    /// An answer came, but so late that a lease of this TTL may not be trusted any more.
    Late(Duration),
    /// This row was not written, although nobody holds it: it came and went meanwhile, or something on
    /// the table is in the way.
    NotWritten(String),
    /// Not the database's fault: the settings turn out not to fit.
    Refused(Error),
}

impl Failure {
    /// What an error means that a statement over `connection` has met.
    pub(crate) fn of_statement(error: tokio_postgres::Error, connection: &Connection) -> Self {
        match connection.refusal() {
            Some(why) if error.is_closed() => Self::BrokenOff(why.to_owned()),
            _ => Self::Statement(error),
        }
    }

    /// Whether the same attempt may succeed later.
    pub(crate) fn class(&self) -> FailureClass {
        if let Some(sqlstate) = self.sqlstate() {
            return classify(sqlstate);
        }
        let passing = match self {
            Self::Connect(error) => error.is_passing(),
            Self::Statement(error) => is_connection_loss(error),
            Self::Silent | Self::Late(_) | Self::NotWritten(_) => true,
            Self::Refused(_) | Self::BrokenOff(_) => false,
        };
        match passing {
            true => FailureClass::Passing,
            false => FailureClass::Permanent,
        }
    }

    /// Whether the server itself said so: then the statement has written nothing.
    pub(crate) fn is_an_answer(&self) -> bool {
        self.sqlstate().is_some()
    }

    /// Whether a lock was waited for longer than the statement was to wait.
    pub(crate) fn is_lock_timeout(&self) -> bool {
        self.sqlstate() == Some("55P03")
    }

    pub(crate) fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Connect(error) => error.sqlstate(),
            Self::Statement(error) => error.code().map(|code| code.code()),
            Self::BrokenOff(_)
            | Self::Silent
            | Self::Late(_)
            | Self::NotWritten(_)
            | Self::Refused(_) => None,
        }
    }

    /// The error for the caller: `what` failed for the context's lock, where, what to do, and why.
    pub(crate) fn into_error(self, ctx: &LockContext, what: &str) -> Error {
        self.explain(ctx, &format!("{what} {}", ctx.lock_key()))
    }

    /// The error for the caller: `what` failed, where, what to do, and why.
    pub(crate) fn explain(self, ctx: &LockContext, what: &str) -> Error {
        let advice = self.advice(ctx);
        self.explain_with(ctx, what, &advice)
    }

    /// What to do about it, where that is known.
    fn advice(&self, ctx: &LockContext) -> String {
        let table = &ctx.settings().table;
        match self.sqlstate() {
            Some("42P01") => format!(
                "table {table} does not exist; create it with dislock --init, or: CREATE TABLE {} (key text PRIMARY KEY, \
                 value text NOT NULL, expire_at timestamptz NOT NULL)",
                table.sql()
            ),
            Some("42501") => format!(
                "the role may not use table {table}; it needs: GRANT SELECT, INSERT, UPDATE ON {} TO the role, and \
                 where the table has row-level security, a policy that lets it see and write every row \
                 whose key begins with cronjob-lock:",
                table.sql()
            ),
            Some("25006") => {
                "the server is read-only and cannot hold a lock; connect to the primary, for \
                 example with target_session_attrs=read-write"
                    .to_owned()
            }
            Some("55P03") => LOCKED.to_owned(),
            // A deferrable key is "not in the prerequisite state"; so is a database, for a login.
            Some("55000") if matches!(self, Self::Statement(_)) => misshapen(table),
            Some("42703" | "42804" | "42883" | "42P10") => misshapen(table),
            _ => match self.unreadable() {
                Some(why) => format!("{}: {why}", misshapen(table)),
                None => String::new(),
            },
        }
    }

    /// What is wrong with the columns of an answer.
    fn unreadable(&self) -> Option<String> {
        let Self::Statement(error) = self else {
            return None;
        };
        let cause = error.source()?;
        if cause.is::<WasNull>() {
            return Some(NULL.to_owned());
        }
        (cause.is::<OtherType>() || cause.is::<WrongType>()).then(|| cause.to_string())
    }

    /// [`explain`](Self::explain) with other advice, or none.
    pub(crate) fn explain_with(self, ctx: &LockContext, what: &str, advice: &str) -> Error {
        let place = ctx.settings().conninfo.describe();
        let colon = if advice.is_empty() { "" } else { ": " };
        let message = format!("{what} at {place}{colon}{advice}");
        if self.unreadable().is_some() && !advice.is_empty() {
            return Error::database(message);
        }
        match self {
            Self::Connect(error) => Error::database_from(message, error),
            // The driver's own words for what the server says are "db error".
            Self::Statement(error) if error.as_db_error().is_some() => match error.into_source() {
                Some(server) => Error::database_from(message, server),
                None => Error::database(message),
            },
            Self::Statement(error) => Error::database_from(message, error),
            Self::BrokenOff(why) => Error::database(format!("{message}: {why}")),
            Self::Silent => Error::database(format!(
                "{message}: no answer in time: the server does not answer, or {LOCKED}"
            )),
            Self::Late(ttl) => Error::database(format!(
                "{message}: the answer comes too late for a lease with a TTL of {ttl:?}"
            )),
            Self::NotWritten(key) => Error::database(format!(
                "{message}: row {key} was not written although nobody holds it; a trigger or a policy \
                 on the table, or a NULL in the row, may prevent it"
            )),
            Self::Refused(error) => error,
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Runs a statement over `connection`, for which the server has until `by` to answer.
pub(crate) async fn answer_by<T>(
    connection: &Connection,
    by: Instant,
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    match timeout_at(by, statement).await {
        Ok(answer) => answer.map_err(|error| Failure::of_statement(error, connection)),
        Err(_) => Err(Failure::Silent),
    }
}
