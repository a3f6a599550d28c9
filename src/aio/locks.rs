//! The two locks, one at a time.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::acquisition::{acquire, expire, release};
use crate::context::{LeaseLossPolicy, LockContext, LockStrategy, Plan};
use crate::db::store::OwnRow;
use crate::db::taken::{HeldLease, Taken};
use crate::db::timestamp::RowTime;
use crate::error::{Error, Result};
use crate::lease::LeaseState;

/// A slot of a schedule, as [`crate::ScheduleLock`].
#[must_use = "a slot is taken to start something"]
pub struct ScheduleLock {
    ctx: LockContext,
    value: Arc<str>,
    token: i64,
    until: RowTime,
}

impl ScheduleLock {
    /// Takes the slot that contains the present moment by the database's clock.
    ///
    /// # Errors
    ///
    /// As [`crate::ScheduleLock::acquire`]; and when there is no Tokio runtime.
    pub async fn acquire(ctx: &LockContext) -> Result<Self> {
        let plan = Plan::new(ctx, &[LockStrategy::Schedule])?;
        let taken = acquire(ctx, plan, Duration::ZERO).await?;
        Self::from_taken(ctx, &taken)
            .ok_or_else(|| Error::database("the database answered without a slot"))
    }

    /// The slot among what was taken, if there is one.
    pub(super) fn from_taken(ctx: &LockContext, taken: &Taken) -> Option<Self> {
        Some(Self {
            ctx: ctx.clone(),
            value: Arc::clone(&taken.value),
            token: taken.token,
            until: taken.slot_until?,
        })
    }

    /// As [`crate::ScheduleLock::fencing_token`].
    pub fn fencing_token(&self) -> i64 {
        self.token
    }

    /// When the slot ends.
    pub fn until(&self) -> Option<SystemTime> {
        self.until.system_time()
    }

    /// Gives the slot back because nothing was started in it, so that another host may. Takes 5 seconds
    /// at most.
    ///
    /// # Errors
    ///
    /// When the database cannot be used in that time; the slot then stays taken until it ends.
    pub async fn give_back(self) -> Result<()> {
        let row = OwnRow {
            key: self.ctx.schedule_key(),
            value: self.value,
        };
        expire(&self.ctx, vec![row]).await
    }
}

impl fmt::Debug for ScheduleLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleLock")
            .field("key", &self.ctx.schedule_key())
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// A lease: while it is held, nobody else has it. A task renews it.
///
/// Dropping the value releases the lease in the background; [`release`](Self::release) does the same
/// and reports what went wrong. When the runtime ends before, the row ends by its TTL.
///
/// No runtime survives a fork. A child may take locks on a new one; to it, its parent's lease counts as
/// lost, and dropping that does nothing.
#[must_use = "the lease is released when this is dropped"]
pub struct LeaseLock {
    ctx: LockContext,
    token: i64,
    held: HeldLease,
}

impl LeaseLock {
    /// Takes the lease, waiting for it as long as the context says.
    ///
    /// Dropping the future calls the acquisition off, whatever it is doing; nothing stays locked.
    ///
    /// # Errors
    ///
    /// As [`crate::LeaseLock::acquire`]; and when there is no Tokio runtime.
    pub async fn acquire(ctx: &LockContext) -> Result<Self> {
        let plan = Plan::new(ctx, &[LockStrategy::Lease])?;
        let mut taken = acquire(ctx, plan, Duration::ZERO).await?;
        Self::from_taken(ctx, &mut taken)
            .ok_or_else(|| Error::database("the database answered without a lease"))
    }

    /// The lease among what was taken, if there is one.
    pub(super) fn from_taken(ctx: &LockContext, taken: &mut Taken) -> Option<Self> {
        Some(Self {
            ctx: ctx.clone(),
            token: taken.token,
            held: taken.lease.take()?,
        })
    }

    /// As [`crate::LeaseLock::fencing_token`].
    pub fn fencing_token(&self) -> i64 {
        self.token
    }

    /// Whether the lease is lost by now. Compares the deadline with the clock itself, so the answer
    /// is right even after the runtime was blocked.
    pub fn is_lost(&self) -> bool {
        self.held.state().loss().is_some()
    }

    /// Fails once the lease is lost; under [`LeaseLossPolicy::Continue`] never.
    ///
    /// # Errors
    ///
    /// [`Error::is_lease_lost`].
    pub fn check(&self) -> Result<()> {
        self.ctx.check_loss(self.held.state().loss())
    }

    /// A handle to the loss, which can be awaited; `None` under [`LeaseLossPolicy::Continue`].
    pub fn lease_lost(&self) -> Option<LeaseLost> {
        match self.ctx.lease_loss_policy() {
            LeaseLossPolicy::Terminate => Some(LeaseLost {
                state: Arc::clone(self.held.state()),
            }),
            LeaseLossPolicy::Continue => None,
        }
    }

    /// Releases the lease, within 5 seconds. Once begun it goes on in the background, even if the
    /// future is dropped.
    ///
    /// # Errors
    ///
    /// As [`crate::LeaseLock::release`].
    pub async fn release(self) -> Result<()> {
        self.ctx.check_loss(release(self.held, Vec::new()).await?)
    }
}

impl fmt::Debug for LeaseLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLock")
            .field("key", &self.ctx.lease_key())
            .field("state", self.held.state())
            .finish_non_exhaustive()
    }
}

/// A handle to the loss of a lease; clones share it. Awaiting it is [`wait`](Self::wait).
#[derive(Clone, Debug)]
pub struct LeaseLost {
    state: Arc<LeaseState>,
}

impl LeaseLost {
    /// Whether the lease is lost by now.
    pub fn is_lost(&self) -> bool {
        self.state.loss().is_some()
    }

    /// Waits until the lease is lost (`true`) or released (`false`).
    pub async fn wait(&self) -> bool {
        self.state.lost().await
    }

    /// Waits like [`wait`](Self::wait), for at most `timeout`; `false` when that is over first.
    pub async fn wait_timeout(&self, timeout: Duration) -> bool {
        let waited = tokio::time::timeout(timeout, self.state.lost()).await;
        waited.unwrap_or_else(|_| self.is_lost())
    }
}

impl IntoFuture for LeaseLost {
    type Output = bool;
    type IntoFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}
