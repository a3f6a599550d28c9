//! Both locks together, in the one order there is.

use std::sync::Arc;
use std::time::Duration;

use super::acquisition::{Acquisition, expire};
use super::locks::{LeaseLock, LeaseLost, ScheduleLock};
use crate::context::{LeaseLossPolicy, LockContext, LockStrategy, Plan};
use crate::db::store::OwnRow;
use crate::error::{Error, Result};
use crate::lease::LeaseState;

/// The locks that an acquisition will take, checked and in order; nothing is taken yet.
#[derive(Clone, Debug)]
#[must_use = "a plan takes no lock by itself"]
pub struct LockPlan {
    ctx: LockContext,
    plan: Plan,
}

impl LockPlan {
    /// The strategies in the order in which they are taken; released in the opposite one.
    pub fn strategies(&self) -> Vec<LockStrategy> {
        self.plan.strategies()
    }

    /// Takes the locks: all of them, or none.
    ///
    /// # Errors
    ///
    /// As [`acquire_locks`].
    pub fn acquire(&self) -> Result<LockSession> {
        self.start(Duration::ZERO, ())?.wait()
    }

    /// Starts taking the locks in the background; `done` is dropped when they are, or are not.
    pub(crate) fn start(
        &self,
        jitter_max: Duration,
        done: impl Send + 'static,
    ) -> Result<PendingSession> {
        Ok(PendingSession {
            ctx: self.ctx.clone(),
            acquisition: Acquisition::start(&self.ctx, self.plan, jitter_max, done)?,
        })
    }
}

/// A session whose locks are being taken in the background.
#[derive(Debug)]
pub(crate) struct PendingSession {
    ctx: LockContext,
    acquisition: Acquisition,
}

impl PendingSession {
    /// Waits until the locks are taken, or are not.
    pub(crate) fn wait(self) -> Result<LockSession> {
        let mut taken = self.acquisition.wait()?;
        Ok(LockSession {
            slot: ScheduleLock::from_taken(&self.ctx, &taken),
            lease: LeaseLock::from_taken(&self.ctx, &mut taken),
            ctx: self.ctx,
            value: taken.value,
            token: taken.token,
        })
    }

    /// Gives up; nothing stays locked.
    pub(crate) fn cancel(self) {
        self.acquisition.cancel();
    }
}

/// The locks that are held together.
///
/// Dropping it releases the lease as [`LeaseLock`] does; a slot of a schedule stays taken, as
/// [`ScheduleLock`] explains.
///
/// ```no_run
/// use dislock::{LockContext, LockStrategy, acquire_locks};
///
/// # fn main() -> Result<(), dislock::Error> {
/// let ctx = LockContext::builder("postgresql://app@db/app", "report")
///     .schedule("0 3 * * *")
///     .build()?;
/// let session = acquire_locks(&ctx, &[LockStrategy::Schedule, LockStrategy::Lease])?;
/// println!("token {}", session.fencing_token());
/// session.release()?; // the lease; the slot stays taken until the next tick
/// # Ok(())
/// # }
/// ```
#[must_use = "the lease is released when this is dropped"]
#[derive(Debug)]
pub struct LockSession {
    ctx: LockContext,
    value: Arc<str>,
    token: i64,
    slot: Option<ScheduleLock>,
    lease: Option<LeaseLock>,
}

impl LockSession {
    /// What stands in the rows: the owner and a nonce.
    pub fn owner(&self) -> &str {
        &self.value
    }

    /// A number that is larger than that of every earlier acquisition of this lock. A resource that
    /// refuses smaller numbers than it has seen is safe from a holder that does not know its end.
    pub fn fencing_token(&self) -> i64 {
        self.token
    }

    /// The slot, if the session has one.
    pub fn slot(&self) -> Option<&ScheduleLock> {
        self.slot.as_ref()
    }

    /// Whether the lease is lost by now; a session without one never loses it.
    pub fn is_lost(&self) -> bool {
        self.lease.as_ref().is_some_and(LeaseLock::is_lost)
    }

    /// Fails once the lease is lost: to be called at points where the work can stop.
    ///
    /// # Errors
    ///
    /// [`Error::is_lease_lost`]; never under [`LeaseLossPolicy::Continue`] or without a lease.
    pub fn check(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), LeaseLock::check)
    }

    /// A handle to the loss of the lease; `None` without a lease or under
    /// [`LeaseLossPolicy::Continue`].
    pub fn lease_lost(&self) -> Option<LeaseLost> {
        self.lease.as_ref()?.lease_lost()
    }

    /// Releases what is released at the end: the lease. A slot stays taken.
    ///
    /// # Errors
    ///
    /// As [`LeaseLock::release`].
    pub fn release(self) -> Result<()> {
        self.lease.map_or(Ok(()), LeaseLock::release)
    }

    /// Gives everything back, the slot too, because nothing could be started.
    pub(crate) fn give_back(self) -> Result<()> {
        let slot = self.slot.as_ref().map(ScheduleLock::row);
        let rows: Vec<OwnRow> = slot.into_iter().collect();
        match self.lease {
            Some(lease) => lease.release_with(rows),
            None => expire(&self.ctx, rows),
        }
    }

    /// Whether there is something to release at the end: a slot is not.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// What limits a command that runs under this session: nothing without a lease, or when its loss
    /// is of no consequence.
    pub(crate) fn limit(&self) -> Option<Arc<LeaseState>> {
        match self.ctx.lease_loss_policy() {
            LeaseLossPolicy::Terminate => self.lease.as_ref()?.state().cloned(),
            LeaseLossPolicy::Continue => None,
        }
    }
}

/// Checks that the context has what each of `strategies` needs, and puts them in order.
///
/// # Errors
///
/// [`Error::is_configuration`] when something is missing or there are no strategies.
pub fn build_locks(ctx: &LockContext, strategies: &[LockStrategy]) -> Result<LockPlan> {
    Ok(LockPlan {
        ctx: ctx.clone(),
        plan: Plan::new(ctx, strategies)?,
    })
}

/// Waits out the context's jitter and takes the locks, all or none.
///
/// # Errors
///
/// [`Error::is_not_acquired`] when one of them is held by somebody else,
/// [`Error::is_configuration`] when something is missing for them or the time of the next run has
/// passed, and others when the database cannot be used.
pub fn acquire_locks(ctx: &LockContext, strategies: &[LockStrategy]) -> Result<LockSession> {
    let jitter_max = ctx.settings().jitter_max;
    build_locks(ctx, strategies)?.start(jitter_max, ())?.wait()
}

/// Runs `block` while the locks are held, and releases them.
///
/// A block cannot be interrupted from outside: a long one asks [`LockSession::check`] now and then.
/// When the lease was lost by the end of a block that succeeded, the loss is reported instead of the
/// success. An error or panic of the block itself is never masked. A release that fails is only
/// logged: the row then ends by its TTL.
///
/// ```no_run
/// use dislock::{LockContext, LockStrategy, with_locks};
///
/// # fn main() -> Result<(), dislock::Error> {
/// let ctx = LockContext::builder("postgresql://app@db/app", "importer").build()?;
/// let rows = with_locks(&ctx, &[LockStrategy::Lease], |session| {
///     for part in 0..100 {
///         session.check()?;
///         println!("part {part}");
///     }
///     Ok::<_, dislock::Error>(100)
/// })?;
/// # assert_eq!(rows, 100);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The block's own, those of [`acquire_locks`], and [`Error::is_lease_lost`].
pub fn with_locks<T, E: From<Error>>(
    ctx: &LockContext,
    strategies: &[LockStrategy],
    block: impl FnOnce(&LockSession) -> Result<T, E>,
) -> Result<T, E> {
    let session = acquire_locks(ctx, strategies)?;
    let value = block(&session)?;
    match session.release() {
        Err(error) if error.is_lease_lost() => Err(error.into()),
        Err(error) => {
            log::warn!("{error:#}");
            Ok(value)
        }
        Ok(()) => Ok(value),
    }
}
