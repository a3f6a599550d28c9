//! The two locks, one at a time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::acquisition::{Acquisition, expire, release};
use crate::context::{LeaseLossPolicy, LockContext, LockStrategy, Plan};
use crate::db::store::OwnRow;
use crate::db::taken::{HeldLease, Taken};
use crate::db::timestamp::RowTime;
use crate::error::{Error, Result};
use crate::lease::LeaseState;

/// A slot of a schedule: whoever has it is the one that starts at this tick.
///
/// The slot is not given back at the end. Its row lives until the slot does, so that a short run on
/// one host does not make room for a second start of the same tick on another. Dropping the value
/// does nothing; [`give_back`](Self::give_back) is for a start that did not come about.
///
/// ```no_run
/// use dislock::{LockContext, ScheduleLock};
///
/// # fn main() -> Result<(), dislock::Error> {
/// let ctx = LockContext::builder("postgresql://app@db/app", "report")
///     .schedule("0 3 * * *")
///     .timezone("Europe/Berlin")
///     .build()?;
/// let slot = ScheduleLock::acquire(&ctx)?;
/// println!("ours until {:?}", slot.until());
/// # Ok(())
/// # }
/// ```
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
    /// [`Error::is_not_acquired`] when somebody else has it, [`Error::is_configuration`] when the
    /// context has no schedule or next run time, or that time has passed, and others when the database
    /// cannot be used.
    pub fn acquire(ctx: &LockContext) -> Result<Self> {
        let plan = Plan::new(ctx, &[LockStrategy::Schedule])?;
        let taken = Acquisition::start(ctx, plan, Duration::ZERO, ())?.wait()?;
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

    pub(super) fn row(&self) -> OwnRow {
        OwnRow {
            key: self.ctx.schedule_key(),
            value: Arc::clone(&self.value),
        }
    }

    /// A number that is larger than that of every earlier acquisition of this lock. A resource that
    /// refuses smaller numbers than it has seen is safe from a holder that does not know its end.
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
    pub fn give_back(self) -> Result<()> {
        expire(&self.ctx, vec![self.row()])
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

/// A lease: while it is held, nobody else has it. A background thread renews it.
///
/// Dropping the value releases the lease, quietly and within 5 seconds; [`release`](Self::release)
/// does the same and reports what went wrong. Neither runs when the process is killed or leaves
/// through [`std::process::exit`]: the row then ends by its TTL.
///
/// A child of a fork does not have its parent's lease: there it counts as lost from the start, and
/// dropping it does nothing, while the parent's goes on. The child may take locks of its own.
///
/// ```no_run
/// use dislock::{LeaseLock, LockContext};
///
/// # fn main() -> Result<(), dislock::Error> {
/// let ctx = LockContext::builder("postgresql://app@db/app", "importer").build()?;
/// let lease = LeaseLock::acquire(&ctx)?;
/// while !lease.is_lost() {
///     // … one piece of work …
/// #   break;
/// }
/// lease.release()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lease is released when this is dropped"]
pub struct LeaseLock {
    ctx: LockContext,
    token: i64,
    held: Option<HeldLease>,
}

impl LeaseLock {
    /// Takes the lease, waiting for it as long as the context says.
    ///
    /// # Errors
    ///
    /// [`Error::is_not_acquired`] when somebody else has it, and others when the database cannot be
    /// used.
    pub fn acquire(ctx: &LockContext) -> Result<Self> {
        let plan = Plan::new(ctx, &[LockStrategy::Lease])?;
        let mut taken = Acquisition::start(ctx, plan, Duration::ZERO, ())?.wait()?;
        Self::from_taken(ctx, &mut taken)
            .ok_or_else(|| Error::database("the database answered without a lease"))
    }

    /// The lease among what was taken, if there is one.
    pub(super) fn from_taken(ctx: &LockContext, taken: &mut Taken) -> Option<Self> {
        Some(Self {
            ctx: ctx.clone(),
            token: taken.token,
            held: Some(taken.lease.take()?),
        })
    }

    /// A number that is larger than that of every earlier acquisition of this lock. A resource that
    /// refuses smaller numbers than it has seen is safe from a holder that does not know its end.
    pub fn fencing_token(&self) -> i64 {
        self.token
    }

    /// Whether the lease is lost by now. Compares the deadline with the clock itself, so the answer
    /// is right even while the database does not answer.
    pub fn is_lost(&self) -> bool {
        self.state().is_some_and(|state| state.loss().is_some())
    }

    /// Fails once the lease is lost; under [`LeaseLossPolicy::Continue`] never.
    ///
    /// # Errors
    ///
    /// [`Error::is_lease_lost`].
    pub fn check(&self) -> Result<()> {
        self.ctx
            .check_loss(self.state().and_then(|state| state.loss()))
    }

    /// A handle to the loss, to be given to whoever has to know; `None` under
    /// [`LeaseLossPolicy::Continue`].
    pub fn lease_lost(&self) -> Option<LeaseLost> {
        match self.ctx.lease_loss_policy() {
            LeaseLossPolicy::Terminate => Some(LeaseLost {
                state: Arc::clone(self.state()?),
            }),
            LeaseLossPolicy::Continue => None,
        }
    }

    /// Releases the lease, within 5 seconds.
    ///
    /// # Errors
    ///
    /// [`Error::is_lease_lost`] when it was lost before, unless the policy is
    /// [`LeaseLossPolicy::Continue`]; another error when the row could not be expired in time: it
    /// then ends by its TTL.
    pub fn release(mut self) -> Result<()> {
        self.end(Vec::new())
    }

    pub(super) fn state(&self) -> Option<&Arc<LeaseState>> {
        self.held.as_ref().map(HeldLease::state)
    }

    /// Releases the lease and `more` rows with it.
    pub(super) fn release_with(mut self, more: Vec<OwnRow>) -> Result<()> {
        self.end(more)
    }

    fn end(&mut self, more: Vec<OwnRow>) -> Result<()> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        self.ctx.check_loss(release(held, more)?)
    }
}

impl Drop for LeaseLock {
    fn drop(&mut self) {
        if self.state().is_some_and(|state| state.is_inherited()) {
            return;
        }
        match self.end(Vec::new()) {
            // In the log already.
            Err(error) if error.is_lease_lost() => {}
            Err(error) => log::warn!("{error:#}"),
            Ok(()) => {}
        }
    }
}

impl fmt::Debug for LeaseLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLock")
            .field("key", &self.ctx.lease_key())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A handle to the loss of a lease; clones share it.
///
/// ```no_run
/// # fn main() -> Result<(), dislock::Error> {
/// # let ctx = dislock::LockContext::builder("dbname=app", "importer").build()?;
/// let lease = dislock::LeaseLock::acquire(&ctx)?;
/// if let Some(lost) = lease.lease_lost() {
///     // Work that cannot be asked to stop is ended with the process.
///     std::thread::spawn(move || {
///         if lost.wait() {
///             std::process::exit(dislock::LEASE_LOST_EXIT_CODE);
///         }
///     });
/// }
/// # Ok(())
/// # }
/// ```
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
    pub fn wait(&self) -> bool {
        self.state.wait_lost(Duration::MAX)
    }

    /// Waits like [`wait`](Self::wait), for at most `timeout`; `false` when that is over first.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.state.wait_lost(timeout)
    }
}
