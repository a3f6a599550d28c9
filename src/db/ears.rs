//! Hearing of the end of a lease that somebody waits for.
//!
//! Whoever ends a row announces it (`NOTIFY`), on a channel per key. Announcements are only hints: they
//! do not come through every connection pooler, and never when a holder dies, so whoever waits looks
//! at the row now and then, too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::errands::Errands;
use super::failure::Failure;
use super::line::Line;
use super::store::channel;

/// For unsubscribing, which nobody waits for.
const UNLISTEN: Duration = Duration::from_secs(2);

/// A subscription to one channel, over a connection that others may use, too.
#[derive(Debug)]
pub(crate) struct Ears {
    errands: Arc<Errands>,
    line: Line,
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

impl Ears {
    /// Listens for the end of the row `key`.
    pub(crate) async fn open(
        errands: &Arc<Errands>,
        line: Line,
        key: &str,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let channel = channel(key);
        let ears = Self {
            announcements: line.connection().announcements(),
            errands: Arc::clone(errands),
            line,
            channel,
        };
        ears.errands.listeners().add(&ears.channel);
        let listen = ears
            .errands
            .store()
            .listen(ears.line.client(), &ears.channel);
        let outcome = ears.line.answer(limit, listen).await;
        outcome.map(|()| ears)
    }

    pub(crate) fn are_on(&self, line: &Line) -> bool {
        self.line.is(line)
    }

    /// Waits until there is a reason to look; for ever when there are no ears.
    pub(crate) async fn announced(ears: &mut Option<Self>) {
        let Some(Self {
            channel,
            announcements,
            ..
        }) = ears
        else {
            return std::future::pending().await;
        };
        loop {
            match announcements.recv().await {
                Ok(heard) if heard != *channel => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                Err(RecvError::Closed) => {
                    // The connection is gone; the next look finds out what that means.
                    *ears = None;
                    return;
                }
            }
        }
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        if !self.errands.listeners().remove(&self.channel) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (errands, line) = (Arc::clone(&self.errands), self.line.clone());
        let channel = std::mem::take(&mut self.channel);
        runtime.spawn(async move {
            let unlisten = errands.store().unlisten(line.client(), &channel);
            // Without it, a few useless announcements arrive until the connection is closed.
            let _ = line.answer(UNLISTEN, unlisten).await;
        });
    }
}
