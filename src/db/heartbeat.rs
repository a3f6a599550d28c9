//! Renewing all leases of a keeper until they are given up or lost.
//!
//! All that are due are renewed by one statement, over one connection. Each attempt is bounded: one
//! that hangs (a silent network, a frozen server) is abandoned and cancelled, and the next one goes
//! over a new connection. A lease whose row somebody else has locked is left out and tried again a
//! little later: it does not keep the others waiting. Giving a lease up before its `stop_at` would be
//! no safer, so every failure is retried until then; only the owner guard's "not yours" ends a lease
//! at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::failure::Failure;
use super::holdings::{Batch, Due, Holding};
use super::keeper::Shared;
use super::shared::SharedConnection;
use super::store::{OwnRow, Touched};
use crate::clock::BootInstant;
use crate::random;
use crate::rules::lease::batch_limit;
use crate::rules::retry::Backoff;

/// How often a row may be found locked before that is worth a warning.
const COMMON_LOCKS: u32 = 3;

/// What the renewals of a keeper need from one batch to the next.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    connection: Option<SharedConnection>,
    backoff: Backoff,
    /// No attempt before this instant, because the last one failed.
    rest_until: Option<BootInstant>,
}

impl Heartbeat {
    /// Whether the last failure lies far enough back.
    pub(crate) fn may_try(&self, now: BootInstant) -> bool {
        self.rest_until.is_none_or(|until| until <= now)
    }

    /// When a lease that is due at `at` can be renewed.
    pub(crate) fn earliest(&self, at: BootInstant) -> BootInstant {
        self.rest_until.map_or(at, |until| until.max(at))
    }

    /// Gives the heartbeat a connection, if it has none; else the connection comes back.
    pub(crate) fn adopt(&mut self, connection: SharedConnection) -> Option<SharedConnection> {
        match &self.connection {
            Some(mine) if mine.is_open() => Some(connection),
            _ => {
                self.connection = Some(connection);
                None
            }
        }
    }

    pub(crate) fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    pub(crate) fn take_connection(&mut self) -> Option<SharedConnection> {
        self.connection.take()
    }

    /// Makes one attempt to renew the leases of batch `number`, and puts back what is still held.
    pub(crate) async fn renew(
        &mut self,
        keeper: &Shared,
        number: u64,
        batch: Batch,
        mut abandoned: watch::Receiver<u64>,
    ) {
        for holding in &batch.expired {
            holding.state.announce_loss();
        }
        let due = batch.due;
        if due.is_empty() {
            return;
        }
        let now = BootInstant::now();
        let left = |due: &Due| due.holding.state.deadlines().stop_at.left(now);
        // Those that are not in the batch want their turn, too.
        let others = keeper.holdings().shortest_ttl();
        let limit = batch_limit(due.iter().map(left).chain(others));
        let outcome = tokio::select! {
            outcome = self.attempt(keeper, &due, limit) => outcome,
            _ = abandoned.wait_for(|abandoned| *abandoned >= number) => Err(Failure::Silent),
        };
        match outcome {
            Ok((sent, answers)) => {
                self.backoff = Backoff::default();
                self.rest_until = None;
                for (due, touched) in due.into_iter().zip(answers) {
                    settle(keeper, due, sent, touched);
                }
            }
            Err(failure) => {
                self.report(&due, failure);
                if let Some(connection) = self.connection.take() {
                    // What hangs on the server would renew the rows whenever it comes loose.
                    connection.give_up();
                }
                let now = BootInstant::now();
                let least = due
                    .iter()
                    .map(|due| due.holding.state.deadlines().stop_at.left(now))
                    .filter(|left| !left.is_zero())
                    .min();
                let pause = self
                    .backoff
                    .pause(least.unwrap_or(Duration::MAX), random::fraction());
                self.rest_until = pause.map(|pause| now.after(pause));
                let mut holdings = keeper.holdings();
                for Due { id, backoff, .. } in due {
                    holdings.put_back(id, now, backoff);
                }
            }
        }
    }

    /// Answers the instant just before the statement was sent, too.
    async fn attempt(
        &mut self,
        keeper: &Shared,
        due: &[Due],
        limit: Duration,
    ) -> Result<(BootInstant, Vec<Touched>), Failure> {
        let Some(first) = due.first() else {
            return Ok((BootInstant::now(), Vec::new()));
        };
        let by = Instant::now() + limit;
        // A connection that the server has closed meanwhile is no failure yet.
        self.connection = self.connection.take().filter(SharedConnection::is_open);
        let connection = match &self.connection {
            Some(connection) => connection,
            None => self
                .connection
                .insert(SharedConnection::open(&first.holding.ctx.settings().conninfo, by).await?),
        };
        let rows: Vec<(OwnRow, Duration)> = due.iter().map(|due| row(&due.holding)).collect();
        let limit = by.saturating_duration_since(Instant::now());
        let sent = BootInstant::now();
        let renewal = keeper.store().renew(connection.client(), &rows);
        let answers = connection.answer(limit, renewal).await?;
        Ok((sent, answers))
    }

    fn report(&self, due: &[Due], failure: Failure) {
        let Some(first) = due.first() else {
            return;
        };
        let what = match due.len() {
            1 => "cannot renew the lease".to_owned(),
            many => format!("cannot renew {many} leases, the first of which is"),
        };
        let ctx = &first.holding.ctx;
        let (key, leases) = (ctx.lock_key(), due.len());
        log::warn!(event = "renewal_failed", key, leases; "{:#}", failure.into_error(ctx, &what));
    }
}

fn row(holding: &Holding) -> (OwnRow, Duration) {
    let row = OwnRow {
        key: holding.state.key().to_owned(),
        value: Arc::clone(holding.state.owner()),
    };
    (row, holding.ctx.ttl())
}

/// Does what one lease's answer demands.
fn settle(keeper: &Shared, due: Due, sent: BootInstant, touched: Touched) {
    let Due {
        id,
        holding,
        mut backoff,
    } = due;
    let state = &holding.state;
    let row = state.key();
    let (key, owner) = (holding.ctx.lock_key(), &**state.owner());
    let again = match touched {
        Touched::Until(until) if state.renewed(sent) => {
            log::debug!(
                event = "lease_renewed", key, owner, expires_at:% = until;
                "lease {row} renewed until {until}"
            );
            Some((state.renew_at(), Backoff::default()))
        }
        // Too late.
        Touched::Until(_) => None,
        Touched::Locked => {
            let now = BootInstant::now();
            let pause = backoff.pause(state.deadlines().stop_at.left(now), random::fraction());
            if pause.is_some() && backoff.failures() == COMMON_LOCKS {
                log::warn!(
                    event = "renewal_failed", key, owner;
                    "lease {row} cannot be renewed: another session has locked its row"
                );
            }
            pause.map(|pause| (now.after(pause), backoff))
        }
        Touched::NotOurs => {
            state.rejected();
            None
        }
    };
    match again {
        Some((at, backoff)) => keeper.holdings().put_back(id, at, backoff),
        None => {
            keeper.holdings().forget(id);
            state.announce_loss();
        }
    }
}
