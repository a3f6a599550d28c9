//! A connection that several may use at a time, and when to call it dead.
//!
//! Statements on one connection are answered in the order in which they were sent. So somebody behind
//! many others has to wait for longer than one statement takes, and that is no sign of trouble; but
//! when nobody at all gets an answer, it is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;

use super::connect::{Connection, connect};
use super::conninfo::Conninfo;
use super::failure::Failure;

/// A connection; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedConnection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    /// When the last answer came.
    answered: Mutex<Instant>,
}

impl SharedConnection {
    pub(crate) async fn open(target: &Conninfo, by: Instant) -> Result<Self, Failure> {
        let connection = connect(target, by).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                connection,
                answered: Mutex::new(Instant::now()),
            }),
        })
    }

    pub(crate) fn client(&self) -> &Client {
        self.inner.connection.client()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.client().is_closed()
    }

    /// Runs a statement; the server is given up when it has not answered anything for `limit`.
    pub(crate) async fn answer<T>(
        &self,
        limit: Duration,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let mut statement = std::pin::pin!(statement);
        let mut since = Instant::now();
        loop {
            let by = since + limit;
            if let Ok(answer) = timeout_at(by, &mut statement).await {
                *self.answered() = Instant::now();
                return answer
                    .map_err(|error| Failure::of_statement(error, &self.inner.connection));
            }
            let answered = *self.answered();
            if answered <= since {
                return Err(Failure::Silent);
            }
            since = answered;
        }
    }

    /// Ends it for everybody, and has the server stop what it is doing for it: what hangs there would
    /// be done whenever it comes loose.
    pub(crate) fn give_up(&self) {
        self.inner.connection.cancel();
        self.inner.connection.kill();
    }

    /// Says goodbye, if nobody else uses it.
    pub(crate) async fn close(self) {
        if let Some(inner) = Arc::into_inner(self.inner) {
            inner.connection.close().await;
        }
    }

    fn answered(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.inner
            .answered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
