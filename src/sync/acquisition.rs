//! Taking and releasing rows through the keeper, as blocking calls.
//!
//! The work is done on the keeper's thread, and each part of it has a bound. The caller waits on a
//! channel of the standard library, which may be done anywhere, inside an async runtime too.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tokio::sync::oneshot;

use super::keepers;
use crate::context::{LockContext, Plan};
use crate::db::keeper::{Keeper, LAST_RENEWAL, RELEASE};
use crate::db::store::OwnRow;
use crate::db::taken::{HeldLease, Taken};
use crate::error::{Error, Result};
use crate::random;
use crate::rules::lease::Loss;

/// What the keeper's thread may need beyond the bounds of its I/O to say that it has finished.
const SLACK: Duration = Duration::from_millis(200);

/// An acquisition under way.
#[derive(Debug)]
pub(crate) struct Acquisition {
    ctx: LockContext,
    keeper: Keeper,
    /// Disconnected when it was called off and nothing of it is left.
    outcome: Receiver<Result<Taken>>,
    /// Dropping it calls the acquisition off.
    wanted: oneshot::Sender<()>,
}

impl Acquisition {
    /// Starts taking the rows of `plan`, after a delay of up to `jitter_max`. `done` is dropped as
    /// soon as [`wait`](Self::wait) would not block any more, whatever the reason.
    pub(crate) fn start(
        ctx: &LockContext,
        plan: Plan,
        jitter_max: Duration,
        done: impl Send + 'static,
    ) -> Result<Self> {
        let keeper = keepers::keeper(ctx)?;
        let (sender, outcome) = mpsc::sync_channel(1);
        let delay = jitter_max.mul_f64(random::fraction());
        let wanted = keeper.clone().acquire(ctx, plan, delay, move |outcome| {
            let undelivered = sender.send(outcome).err();
            drop(done);
            undelivered.and_then(|undelivered| undelivered.0.ok())
        });
        Ok(Self {
            ctx: ctx.clone(),
            keeper,
            outcome,
            wanted,
        })
    }

    /// Waits until the rows are taken, or are not.
    pub(crate) fn wait(self) -> Result<Taken> {
        let Self {
            outcome, wanted, ..
        } = self;
        let outcome = outcome.recv();
        drop(wanted);
        outcome.map_err(died)?
    }

    /// Gives up at once. Rows that were taken meanwhile, or may have been, are given back.
    pub(crate) fn cancel(self) {
        let Self {
            ctx,
            keeper,
            outcome,
            wanted,
        } = self;
        drop(wanted);
        let Ok(Ok(taken)) = outcome.recv_timeout(LAST_RENEWAL) else {
            return;
        };
        let (sender, finished) = mpsc::sync_channel(1);
        taken.give_back(&ctx, keeper, move |outcome| {
            let _ = sender.send(outcome);
        });
        if let Err(error) = wait_released(&finished) {
            log::warn!("{error:#}");
        }
    }
}

/// Gives a lease up, and `more` rows with it; answers what had become of it before.
pub(crate) fn release(held: HeldLease, more: Vec<OwnRow>) -> Result<Option<Loss>> {
    let (sender, finished) = mpsc::sync_channel(1);
    held.release(more, move |outcome| {
        let _ = sender.send(outcome);
    });
    wait_released(&finished)
}

/// Ends rows that are still ours.
pub(crate) fn expire(ctx: &LockContext, rows: Vec<OwnRow>) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let (sender, finished) = mpsc::sync_channel(1);
    keepers::keeper(ctx)?.expire(ctx, rows, move |outcome| {
        let _ = sender.send(outcome.map(|_| ()));
    });
    wait_released(&finished)
}

fn wait_released<T>(finished: &Receiver<Result<T>>) -> Result<T> {
    finished
        .recv_timeout(LAST_RENEWAL + RELEASE + SLACK)
        .map_err(|error| Error::system("the release of the lock hangs", error))?
}

fn died(error: mpsc::RecvError) -> Error {
    Error::system("the thread that keeps the locks died", error)
}
