//! What is known about a lease that this process holds, shared by everybody who has to know.
//!
//! The thread that talks to the database writes it; the session, the supervisor and whoever waits for
//! a loss read it. Readers compare the deadline with the clock themselves, so a loss is seen on time
//! even when the writer hangs. To look at the state is never to log: a logger may block. Each loss is
//! announced in the log once, by the first who acts on it: the supervisor, the thread that renews, or the
//! one that releases.
//!
//! A child of a fork has a copy of all that, but no thread that writes to it, and the copied mutex may be
//! locked for ever. To it the lease counts as lost, which it finds out without touching the copy.

use std::fmt;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::context::LEASE_PREFIX;
use crate::rules::lease::{Deadlines, LeaseTerm, Loss};

/// The longest nap of a thread that waits for a loss. Condition variables stand still while the
/// machine sleeps, deadlines do not: after a resume the deadline is looked at within this time.
const LONGEST_NAP: Duration = Duration::from_secs(1);

type Observer = Arc<dyn Fn() + Send + Sync>;

/// The state of one lease: a mutex, and a condition variable that is notified after every change.
pub(crate) struct LeaseState {
    lock_key: String,
    /// What stands in the row.
    owner: Arc<str>,
    /// The key of the row.
    key: String,
    /// The process that has the lease.
    process: u32,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// The same for tasks.
    #[cfg(feature = "aio")]
    changed_for_tasks: tokio::sync::Notify,
}

struct Inner {
    term: LeaseTerm,
    /// Set once, when the holder gives the lease up: what had become of it until then.
    ended: Option<Option<Loss>>,
    /// The loss is in the log.
    announced: bool,
    /// Of the command that runs under this lease, if one does.
    supervisor: Option<Observer>,
}

impl Inner {
    fn loss(&self, now: BootInstant) -> Option<Loss> {
        self.ended.unwrap_or_else(|| self.term.loss(now))
    }
}

impl LeaseState {
    pub(crate) fn new(lock_key: &str, owner: Arc<str>, term: LeaseTerm) -> Self {
        Self {
            lock_key: lock_key.to_owned(),
            owner,
            key: format!("{LEASE_PREFIX}{lock_key}"),
            process: std::process::id(),
            inner: Mutex::new(Inner {
                term,
                ended: None,
                announced: false,
                supervisor: None,
            }),
            changed: Condvar::new(),
            #[cfg(feature = "aio")]
            changed_for_tasks: tokio::sync::Notify::new(),
        }
    }

    /// What stands in the row.
    pub(crate) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// The key of the row.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Whether this process was forked from the one that has the lease.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Whether, and why, the lease is lost by now.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if self.is_inherited() {
            return Some(Loss::Inherited);
        }
        self.lock().loss(BootInstant::now())
    }

    /// The deadlines as they stand now.
    pub(crate) fn deadlines(&self) -> Deadlines {
        self.lock().term.deadlines()
    }

    /// When the next renewal is due.
    pub(crate) fn renew_at(&self) -> BootInstant {
        self.lock().term.renew_at()
    }

    /// A command is to be stopped when the lease is lost. Calls its supervisor's `observer` after every
    /// renewal and loss, from the thread that noticed it.
    pub(crate) fn supervise(&self, observer: impl Fn() + Send + Sync + 'static) {
        self.lock().supervisor = Some(Arc::new(observer));
    }

    /// Logs that the lease is lost, if it is and nobody has logged it.
    pub(crate) fn announce_loss(&self) {
        if self.is_inherited() {
            return;
        }
        let mut inner = self.lock();
        let Some(loss) = inner.loss(BootInstant::now()) else {
            return;
        };
        let announced = mem::replace(&mut inner.announced, true);
        let follows = inner.supervisor.as_ref().map(|_| "; stopping the command");
        drop(inner);
        if !announced {
            let (key, owner, reason) = (&*self.lock_key, &*self.owner, loss.reason());
            log::error!(
                event = "lease_lost", key, owner, reason;
                "lease {} is lost: {reason}{}", self.key, follows.unwrap_or_default()
            );
        }
    }

    /// A renewal that was sent at `sent` was answered just now; see [`LeaseTerm::renewed`].
    pub(crate) fn renewed(&self, sent: BootInstant) -> bool {
        self.change(|inner| inner.term.renewed(sent, BootInstant::now()))
    }

    /// The owner guard rejected a renewal just now.
    pub(crate) fn rejected(&self) {
        self.change(|inner| inner.term.rejected(BootInstant::now()));
    }

    /// The holder gives the lease up: from here on nothing changes. Answers what had become of it.
    pub(crate) fn end(&self) -> Option<Loss> {
        self.change(|inner| {
            inner.supervisor = None;
            let loss = inner.loss(BootInstant::now());
            *inner.ended.get_or_insert(loss)
        })
    }

    /// Waits until the lease is lost (`true`) or given up, or `timeout` is over (`false`).
    pub(crate) fn wait_lost(&self, timeout: Duration) -> bool {
        if self.is_inherited() {
            return true;
        }
        let give_up = BootInstant::now().after(timeout);
        let mut inner = self.lock();
        loop {
            let now = BootInstant::now();
            if inner.loss(now).is_some() {
                return true;
            }
            if inner.ended.is_some() || now >= give_up {
                return false;
            }
            let until = inner.term.deadlines().stop_at.min(give_up);
            let nap = until.left(now).min(LONGEST_NAP);
            inner = self
                .changed
                .wait_timeout(inner, nap)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits like [`wait_lost`](Self::wait_lost) as a task, without a limit.
    #[cfg(feature = "aio")]
    pub(crate) async fn lost(&self) -> bool {
        if self.is_inherited() {
            return true;
        }
        loop {
            // Before the state is looked at, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed_for_tasks.notified());
            changed.as_mut().enable();
            let now = BootInstant::now();
            let nap = {
                let inner = self.lock();
                if inner.loss(now).is_some() {
                    return true;
                }
                if inner.ended.is_some() {
                    return false;
                }
                inner.term.deadlines().stop_at.left(now).min(LONGEST_NAP)
            };
            // Woken or not: the state tells.
            let _ = tokio::time::timeout(nap, changed).await;
        }
    }

    /// Changes the state, then tells everybody, outside the mutex.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let answer = change(&mut inner);
        let supervisor = inner.supervisor.clone();
        drop(inner);
        self.changed.notify_all();
        #[cfg(feature = "aio")]
        self.changed_for_tasks.notify_waiters();
        if let Some(observer) = supervisor {
            observer();
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock; if it did, the deadlines would still be true.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseState")
            .field("key", &self.key)
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}
