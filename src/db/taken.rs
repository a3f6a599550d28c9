//! What an acquisition has taken, and how it is given up.
//!
//! A lease that nobody releases is released when its handle is dropped, in the background: where the
//! keeper's runtime is gone by then, the row ends by its TTL.

use std::sync::Arc;

use super::holdings::Holding;
use super::keeper::{Keeper, Operation, RELEASE};
use super::store::OwnRow;
use super::timestamp::RowTime;
use crate::context::LockContext;
use crate::error::Result;
use crate::lease::LeaseState;
use crate::rules::lease::Loss;

/// The rows that were taken.
#[derive(Debug)]
pub(crate) struct Taken {
    /// What stands in them.
    pub(crate) value: Arc<str>,
    /// The fencing token.
    pub(crate) token: i64,
    pub(crate) slot_until: Option<RowTime>,
    pub(crate) lease: Option<HeldLease>,
}

/// A lease that is held. In a child of a fork it counts as lost, and nothing happens to the parent's.
#[derive(Debug)]
pub(crate) struct HeldLease {
    keeper: Keeper,
    id: u64,
    holding: Holding,
    /// Its release has begun.
    ending: bool,
}

impl HeldLease {
    pub(super) fn new(keeper: Keeper, id: u64, holding: Holding) -> Self {
        Self {
            keeper,
            id,
            holding,
            ending: false,
        }
    }

    pub(crate) fn state(&self) -> &Arc<LeaseState> {
        &self.holding.state
    }

    /// Starts to give the lease up, and `more` rows with it, all within a bound. `reply` gets what had
    /// become of the lease before.
    pub(crate) fn release(
        mut self,
        more: Vec<OwnRow>,
        reply: impl FnOnce(Result<Option<Loss>>) + Send + 'static,
    ) {
        self.end(more, reply);
    }

    fn end(
        &mut self,
        more: Vec<OwnRow>,
        reply: impl FnOnce(Result<Option<Loss>>) + Send + 'static,
    ) {
        self.ending = true;
        if self.holding.state.is_inherited() {
            reply(Ok(Some(Loss::Inherited)));
            return;
        }
        let operation = Operation::new(&self.keeper);
        let (id, holding) = (self.id, self.holding.clone());
        self.keeper.runtime().spawn(async move {
            reply(end(&operation, id, holding, more).await);
        });
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if !self.ending {
            self.end(Vec::new(), |outcome| {
                if let Err(error) = outcome {
                    log::warn!("{error:#}");
                }
            });
        }
    }
}

async fn end(
    operation: &Operation,
    id: u64,
    holding: Holding,
    more: Vec<OwnRow>,
) -> Result<Option<Loss>> {
    let keeper = operation.keeper();
    keeper.stop_renewing(id).await;
    let loss = holding.state.end();
    holding.state.announce_loss();
    let mut rows = more;
    if loss.is_none() {
        rows.push(OwnRow {
            key: holding.state.key().to_owned(),
            value: Arc::clone(holding.state.owner()),
        });
    }
    // Otherwise the row may be somebody else's by now.
    if rows.is_empty() {
        return Ok(loss);
    }
    let ended = keeper
        .operations()
        .expire(&holding.ctx, rows, RELEASE)
        .await?;
    if loss.is_none() && ended == 0 {
        log::warn!(
            "lease {} was not ours any more at its release",
            holding.state.key()
        );
    }
    Ok(loss)
}

impl Taken {
    /// Gives everything back because it was not wanted after all; `reply` gets the outcome.
    pub(crate) fn give_back(
        self,
        ctx: &LockContext,
        keeper: Keeper,
        reply: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let slot = self.slot_until.map(|_| OwnRow {
            key: ctx.schedule_key(),
            value: self.value,
        });
        let rows: Vec<OwnRow> = slot.into_iter().collect();
        match self.lease {
            Some(lease) => lease.release(rows, |outcome| reply(outcome.map(|_| ()))),
            None if rows.is_empty() => reply(Ok(())),
            None => keeper.expire(ctx, rows, |outcome| reply(outcome.map(|_| ()))),
        }
    }
}
