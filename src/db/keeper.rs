//! One keeper per process and database: it keeps all leases that the process holds there.
//!
//! ```text
//!   standing connection   renewals; all that are due in one statement
//!   second connection     acquisitions and releases; opened on demand (`operations`)
//! ```
//!
//! * An acquisition when nothing else is held or asked for goes over a connection of its own, which
//!   becomes the standing one when a lease was taken with it, and is closed when none was. So one run
//!   under a lease connects twice, and one under a schedule once.
//! * Either connection is closed when it was of no use for [`LINGER`]; after that, with nobody left who
//!   has anything to do with the keeper, the keeper ends.
//! * Nobody waits for the keeper to know about a lease: deadlines are compared by whoever asks
//!   ([`LeaseState`]).
//!
//! A keeper runs on the runtime that it was started on: a thread of its own, or the caller's. Its
//! methods may be called from anywhere; what they start runs there.

mod directory;
mod run;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::acquire::{Acquired, Acquirer};
use super::holdings::{Holding, Holdings};
use super::operations::Operations;
use super::shared::SharedConnection;
use super::store::{OwnRow, Store};
use super::taken::{HeldLease, Taken};
use crate::context::{LockContext, Plan};
use crate::error::Result;
use crate::lease::LeaseState;
use crate::random;
use crate::rules::lease::LeaseTerm;

pub(crate) use self::directory::Directory;
pub(crate) use self::run::Body;

/// How long a connection that is of no use is kept, and the keeper after it.
const LINGER: Duration = Duration::from_secs(3);

/// How long a renewal that is under way when its lease is given up may still take. It is waited for
/// because a renewal that reaches the row after its release would bring the row back to life.
pub(crate) const LAST_RENEWAL: Duration = Duration::from_secs(3);

/// For giving rows back, connection included. Together with [`LAST_RENEWAL`] it stays under the 5
/// seconds within which a command's end has to become ours.
pub(crate) const RELEASE: Duration = Duration::from_millis(1500);

/// A handle to a keeper, which does not end while there is one.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    process: u32,
    runtime: Handle,
    store: Store,
    operations: Arc<Operations>,
    holdings: Mutex<Holdings>,
    census: Mutex<Census>,
    /// A connection that somebody leaves for the renewals.
    spare: Mutex<Option<SharedConnection>>,
    /// Notified whenever the keeper may have something to do.
    changed: Arc<Notify>,
    /// The number of the last batch that is over.
    finished: watch::Sender<u64>,
    /// The number of the last batch that is to be abandoned.
    abandoned: watch::Sender<u64>,
    /// Set when nothing is to be kept for later.
    hurried: AtomicBool,
    over: AtomicBool,
}

/// Who has to do with the keeper.
#[derive(Debug, Default)]
struct Census {
    /// Handles, each of a lease or an operation.
    handles: usize,
    /// Those that use the second connection, or may.
    operations: usize,
}

impl Clone for Keeper {
    fn clone(&self) -> Self {
        self.shared.census().handles += 1;
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // In a child of a fork there is no keeper to be told, and its mutex may be locked for ever.
        if self.shared.process != std::process::id() {
            return;
        }
        let last = {
            let mut census = self.shared.census();
            census.handles -= 1;
            census.handles == 0
        };
        if last {
            self.shared.changed.notify_one();
        }
    }
}

/// Somebody who uses the second connection.
#[derive(Debug)]
pub(super) struct Operation(Keeper);

impl Operation {
    pub(super) fn new(keeper: &Keeper) -> Self {
        let keeper = keeper.clone();
        keeper.shared.census().operations += 1;
        Self(keeper)
    }

    pub(super) fn keeper(&self) -> &Keeper {
        &self.0
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        let last = {
            let mut census = shared.census();
            census.operations -= 1;
            census.operations == 0
        };
        if last {
            shared.changed.notify_one();
        }
    }
}

impl Keeper {
    /// A keeper for the database and table of `ctx`, and the body that has to be run on `runtime`.
    pub(crate) fn new(ctx: &LockContext, runtime: Handle) -> (Self, Body) {
        let store = Store::new(&ctx.settings().table);
        let changed = Arc::new(Notify::new());
        let shared = Arc::new(Shared {
            process: std::process::id(),
            runtime,
            operations: Arc::new(Operations::new(store.clone(), Arc::clone(&changed))),
            store,
            holdings: Mutex::default(),
            census: Mutex::new(Census {
                handles: 1,
                operations: 0,
            }),
            spare: Mutex::default(),
            changed,
            finished: watch::Sender::new(0),
            abandoned: watch::Sender::new(0),
            hurried: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let keeper = Self {
            shared: Arc::clone(&shared),
        };
        (keeper, Body::new(shared))
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn operations(&self) -> &Arc<Operations> {
        &self.shared.operations
    }

    /// Whether nobody else has anything to do with the database.
    fn is_alone(&self) -> bool {
        let others = self.shared.census().operations > 1;
        !others && self.shared.holdings().is_empty() && !self.operations().is_open()
    }

    /// Starts taking the rows of `plan` after `delay`. `reply` is called with the outcome, or dropped
    /// when the acquisition is called off and nothing of it is left. What it hands back, because nobody
    /// wants it any more, is given back.
    ///
    /// Dropping what is returned calls it off; after the outcome it has no effect.
    pub(crate) fn acquire(
        self,
        ctx: &LockContext,
        plan: Plan,
        delay: Duration,
        reply: impl FnOnce(Result<Taken>) -> Option<Taken> + Send + 'static,
    ) -> oneshot::Sender<()> {
        let (wanted, unwanted) = oneshot::channel();
        let ctx = ctx.clone();
        let operation = Operation::new(&self);
        self.runtime().spawn(async move {
            let keeper = operation.keeper();
            let value = new_value(&ctx);
            let mut acquirer = Acquirer::new(&ctx, plan, Arc::clone(&value), keeper);
            let acquiring = async {
                if !delay.is_zero() {
                    let delay_seconds = delay.as_secs_f64();
                    log::info!(
                        event = "jitter", key = ctx.lock_key(), delay_seconds;
                        "waiting for a jitter of {delay_seconds:.3} s"
                    );
                    sleep(delay).await;
                }
                acquirer.run(keeper.is_alone()).await
            };
            let outcome = tokio::select! {
                outcome = acquiring => Some(outcome),
                _ = unwanted => None,
            };
            match outcome {
                Some(Ok(acquired)) => {
                    let (taken, connection) = keeper.take_over(&ctx, value, acquired);
                    if let Some(taken) = reply(Ok(taken)) {
                        taken.give_back(&ctx, keeper.clone(), |outcome| {
                            if let Err(error) = outcome {
                                log::warn!("{error:#}");
                            }
                        });
                    }
                    if let Some(connection) = connection {
                        connection.close().await;
                    }
                }
                Some(Err(error)) => {
                    reply(Err(error));
                    acquirer.close().await;
                }
                None => {
                    acquirer.abandon().await;
                    drop(reply);
                }
            }
        });
        wanted
    }

    /// Answers with the connection that the acquisition has left, unless it is of use.
    fn take_over(
        &self,
        ctx: &LockContext,
        value: Arc<str>,
        acquired: Acquired,
    ) -> (Taken, Option<SharedConnection>) {
        let lease = acquired.lease_until.map(|_| {
            let term = LeaseTerm::begin(ctx.settings().timing, acquired.sent);
            let owner = Arc::clone(&value);
            let state = Arc::new(LeaseState::new(ctx.lock_key(), owner, term));
            let holding = Holding {
                ctx: ctx.clone(),
                state,
            };
            let id = self.shared.holdings().add(holding.clone());
            HeldLease::new(self.clone(), id, holding)
        });
        let left = match (&lease, acquired.connection) {
            (Some(_), Some(connection)) => self.shared.spare().replace(connection),
            (_, connection) => connection,
        };
        self.shared.changed.notify_one();
        let taken = Taken {
            value,
            token: acquired.token,
            slot_until: acquired.slot_until,
            lease,
        };
        (taken, left)
    }

    /// Ends rows that are still ours, within a bound; `reply` gets how many that were.
    pub(crate) fn expire(
        self,
        ctx: &LockContext,
        rows: Vec<OwnRow>,
        reply: impl FnOnce(Result<usize>) + Send + 'static,
    ) {
        let operation = Operation::new(&self);
        let ctx = ctx.clone();
        self.runtime().spawn(async move {
            reply(
                operation
                    .keeper()
                    .operations()
                    .expire(&ctx, rows, RELEASE)
                    .await,
            );
        });
    }

    /// Ends the renewals of a lease, and waits, with a bound, for the one that is under way.
    pub(super) async fn stop_renewing(&self, id: u64) {
        let batch = self.shared.holdings().remove(id);
        self.shared.changed.notify_one();
        let Some(number) = batch else {
            return;
        };
        let mut finished = self.shared.finished.subscribe();
        let over = finished.wait_for(|finished| *finished >= number);
        if timeout(LAST_RENEWAL, over).await.is_err() {
            self.shared.abandoned.send_replace(number);
        }
    }
}

/// What an acquisition writes into its rows: the owner, readable, and a nonce that nobody else has.
fn new_value(ctx: &LockContext) -> Arc<str> {
    format!("{}:{:016x}", ctx.owner(), random::number()).into()
}

impl Shared {
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn census(&self) -> MutexGuard<'_, Census> {
        self.census.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self) -> MutexGuard<'_, Option<SharedConnection>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
