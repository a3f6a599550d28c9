//! Hearing of the end of a lease that somebody waits for.
//!
//! Whoever ends a row announces it (`NOTIFY`), on a channel per key. Announcements are only hints: they
//! do not come through a connection pooler, and never when a holder dies, so whoever waits looks at
//! the row now and then, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::failure::Failure;
use super::operations::Operations;
use super::shared::SharedConnection;
use super::store::channel;

/// For unsubscribing, which nobody waits for.
const UNLISTEN: Duration = Duration::from_secs(2);

/// A subscription to one channel, over a connection that others may use, too.
#[derive(Debug)]
pub(crate) struct Subscription {
    operations: Arc<Operations>,
    connection: SharedConnection,
    channel: String,
    announcements: Receiver<String>,
}

/// How many listen to each channel, so that the last one unsubscribes.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<HashMap<String, usize>>);

impl Listeners {
    fn add(&self, channel: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(channel.to_owned()).or_default() += 1;
    }

    /// Answers whether that was the last one.
    fn remove(&self, channel: &str) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(channel) else {
            return true;
        };
        *count -= 1;
        let last = *count == 0;
        if last {
            counts.remove(channel);
        }
        last
    }
}

impl Subscription {
    /// Listens for the end of the row `key`; `None` where a pooler stands between: its connections to
    /// the server are passed from client to client, and so would be what we subscribe to.
    pub(crate) async fn open(
        operations: &Arc<Operations>,
        connection: SharedConnection,
        key: &str,
        limit: Duration,
    ) -> Result<Option<Self>, Failure> {
        let backend = operations.store().backend(connection.client());
        let backend = connection.answer(limit, backend).await?;
        if !connection.connection().is_with(backend) {
            return Ok(None);
        }
        let channel = channel(key);
        let subscription = Self {
            announcements: connection.connection().announcements(),
            operations: Arc::clone(operations),
            connection,
            channel,
        };
        subscription
            .operations
            .listeners()
            .add(&subscription.channel);
        let listen = subscription
            .operations
            .store()
            .listen(subscription.connection.client(), &subscription.channel);
        let outcome = subscription.connection.answer(limit, listen).await;
        outcome.map(|()| Some(subscription))
    }

    pub(crate) fn is_on(&self, connection: &SharedConnection) -> bool {
        self.connection.is(connection)
    }

    /// Waits until there is a reason to look; for ever without a subscription.
    pub(crate) async fn announced(subscription: &mut Option<Self>) {
        let Some(Self {
            channel,
            announcements,
            ..
        }) = subscription
        else {
            return std::future::pending().await;
        };
        loop {
            match announcements.recv().await {
                Ok(heard) if heard != *channel => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => {
                    // The connection is gone; the next look finds out what that means.
                    *subscription = None;
                    return;
                }
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if !self.operations.listeners().remove(&self.channel) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (operations, connection) = (Arc::clone(&self.operations), self.connection.clone());
        let channel = std::mem::take(&mut self.channel);
        runtime.spawn(async move {
            let unlisten = operations.store().unlisten(connection.client(), &channel);
            // Without it, a few useless announcements arrive until the connection is closed.
            let _ = connection.answer(UNLISTEN, unlisten).await;
        });
    }
}
