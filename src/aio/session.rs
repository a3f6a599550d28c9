//! Both locks together, in the one order there is.

use std::sync::Arc;
use std::time::Duration;

use super::acquisition::acquire;
use super::locks::{LeaseLock, LeaseLost, ScheduleLock};
use crate::context::{LockContext, LockStrategy, Plan};
use crate::error::{Error, Result};

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
    pub async fn acquire(&self) -> Result<LockSession> {
        self.acquire_within(Duration::ZERO).await
    }

    async fn acquire_within(&self, jitter_max: Duration) -> Result<LockSession> {
        let mut taken = acquire(&self.ctx, self.plan, jitter_max).await?;
        Ok(LockSession {
            slot: ScheduleLock::from_taken(&self.ctx, &taken),
            lease: LeaseLock::from_taken(&self.ctx, &mut taken),
            value: taken.value,
            token: taken.token,
        })
    }
}

/// The locks that are held together.
///
/// Dropping it releases the lease as [`LeaseLock`] does; a slot of a schedule stays taken.
#[must_use = "the lease is released when this is dropped"]
#[derive(Debug)]
pub struct LockSession {
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

    /// As [`crate::LockSession::fencing_token`].
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
    /// As [`crate::LockSession::check`].
    pub fn check(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), LeaseLock::check)
    }

    /// A handle to the loss of the lease, which can be awaited; `None` without a lease or under
    /// [`LeaseLossPolicy::Continue`](crate::LeaseLossPolicy::Continue).
    pub fn lease_lost(&self) -> Option<LeaseLost> {
        self.lease.as_ref()?.lease_lost()
    }

    /// Releases what is released at the end: the lease. A slot stays taken.
    ///
    /// # Errors
    ///
    /// As [`LeaseLock::release`].
    pub async fn release(self) -> Result<()> {
        match self.lease {
            Some(lease) => lease.release().await,
            None => Ok(()),
        }
    }
}

/// Checks that the context has what each of `strategies` needs, and puts them in order.
///
/// # Errors
///
/// As [`crate::build_locks`].
pub fn build_locks(ctx: &LockContext, strategies: &[LockStrategy]) -> Result<LockPlan> {
    Ok(LockPlan {
        ctx: ctx.clone(),
        plan: Plan::new(ctx, strategies)?,
    })
}

/// Waits out the context's jitter and takes the locks, all or none. Dropping the future calls that off.
///
/// # Errors
///
/// As [`crate::acquire_locks`]; and when there is no Tokio runtime.
pub async fn acquire_locks(ctx: &LockContext, strategies: &[LockStrategy]) -> Result<LockSession> {
    let jitter_max = ctx.settings().jitter_max;
    build_locks(ctx, strategies)?
        .acquire_within(jitter_max)
        .await
}

/// Runs `block` while the locks are held, and releases them.
///
/// When the lease is lost, `block` is cancelled: its future is dropped at the point where it waits, and
/// the loss is the outcome; under [`LeaseLossPolicy::Continue`](crate::LeaseLossPolicy::Continue) it
/// goes on. Whatever `block` itself comes to is never masked by a loss that was not noticed before,
/// except for success. A release that fails is only logged: the row then ends by its TTL.
///
/// ```no_run
/// use dislock::{Error, LockContext, LockStrategy, aio};
///
/// # async fn example() -> Result<(), Error> {
/// let ctx = LockContext::builder("postgresql://app@db/app", "importer").build()?;
/// let token = aio::with_locks(&ctx, &[LockStrategy::Lease], async |session| {
///     tokio::task::yield_now().await; // … the work …
///     Ok::<_, Error>(session.fencing_token())
/// })
/// .await?;
/// # let _ = token;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The block's own, those of [`acquire_locks`], and [`Error::is_lease_lost`].
pub async fn with_locks<T, E: From<Error>>(
    ctx: &LockContext,
    strategies: &[LockStrategy],
    block: impl AsyncFnOnce(&LockSession) -> Result<T, E>,
) -> Result<T, E> {
    let session = acquire_locks(ctx, strategies).await?;
    let lost = session.lease_lost();
    let lost = async {
        match lost {
            Some(lost) if lost.wait().await => {}
            _ => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        biased;
        () = lost => None,
        outcome = block(&session) => Some(outcome),
    };
    let released = session.release().await;
    match (outcome, released) {
        (Some(Err(error)), _) => Err(error),
        (_, Err(error)) if error.is_lease_lost() => Err(error.into()),
        (Some(Ok(value)), Ok(())) => Ok(value),
        (Some(Ok(value)), Err(error)) => {
            log::warn!("{error:#}");
            Ok(value)
        }
        (None, released) => Err(released
            .err()
            .unwrap_or_else(|| Error::database("the lease was lost"))
            .into()),
    }
}
