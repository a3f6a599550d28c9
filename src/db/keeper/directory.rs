//! Finding the keeper for a database and table again.
//!
//! A child of a fork has the memory of its parent's keepers, but not the keepers: it starts a list of its
//! own.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Body, Keeper, Shared};
use crate::context::LockContext;
use crate::error::Result;
use crate::per_process::PerProcess;

/// The keepers of one kind.
#[derive(Debug)]
pub(crate) struct Directory(PerProcess<Mutex<Vec<Known>>>);

/// A keeper that can be found.
#[derive(Debug)]
pub(crate) struct Known {
    ctx: LockContext,
    shared: Arc<Shared>,
    /// Disconnected when the keeper's thread has ended, if it has a thread.
    ended: Option<Receiver<()>>,
}

impl Directory {
    pub(crate) const fn new() -> Self {
        Self(PerProcess::new())
    }

    /// The keeper for the database and table of `ctx` that is `suitable`; started if there is none.
    pub(crate) fn find_or_start(
        &self,
        ctx: &LockContext,
        suitable: impl Fn(&Known) -> bool,
        start: impl FnOnce() -> Result<(Keeper, Option<Receiver<()>>)>,
    ) -> Result<Keeper> {
        // What is taken out goes out of scope after the lock.
        let _over: Vec<Known>;
        let mut entries = self.entries();
        let found = entries
            .iter()
            .filter(|known| known.is_for(ctx) && suitable(known))
            .map(Known::handle)
            .next();
        if let Some(keeper) = found {
            return Ok(keeper);
        }
        _over = take_if(&mut entries, Known::is_over);
        let (keeper, ended) = start()?;
        entries.push(Known {
            ctx: ctx.clone(),
            shared: Arc::clone(&keeper.shared),
            ended,
        });
        Ok(keeper)
    }

    /// Whether the keeper may end: nobody has a handle, and nobody will find it from now on.
    pub(crate) fn retire(&self, body: &Body) -> bool {
        let _gone: Vec<Known>;
        let mut entries = self.entries();
        if !body.is_unused() {
            return false;
        }
        _gone = take_if(&mut entries, |known| body.is_of(&known.shared));
        true
    }

    /// All keepers, which nobody will find from now on.
    pub(crate) fn take_all(&self) -> Vec<Known> {
        take_if(&mut self.entries(), |_| true)
    }

    /// The keepers of this process.
    fn entries(&self) -> MutexGuard<'_, Vec<Known>> {
        let entries = self.0.get_or_init(Mutex::default);
        entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_if(entries: &mut Vec<Known>, which: impl Fn(&Known) -> bool) -> Vec<Known> {
    let (taken, left) = std::mem::take(entries).into_iter().partition(which);
    *entries = left;
    taken
}

impl Known {
    fn is_for(&self, ctx: &LockContext) -> bool {
        !self.is_over() && self.ctx.has_same_table(ctx)
    }

    fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Acquire)
    }

    fn handle(&self) -> Keeper {
        self.shared.census().handles += 1;
        Keeper {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Whether it runs on this runtime.
    #[cfg(feature = "aio")]
    pub(crate) fn runs_on(&self, runtime: &tokio::runtime::Handle) -> bool {
        self.shared.runtime.id() == runtime.id()
    }

    /// Has it end as soon as nobody needs it, without keeping connections for later.
    pub(crate) fn hurry(&self) {
        self.shared.hurried.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }

    /// Waits until its thread has ended, but not for longer than `limit`.
    pub(crate) fn wait(&self, limit: Duration) {
        if let Some(ended) = &self.ended {
            // Its end is all there is to be heard from it.
            let _ = ended.recv_timeout(limit);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::forks::in_child;

    #[test]
    fn child_of_a_fork_has_a_list_of_its_own_though_its_parents_is_locked() {
        let directory = Directory::new();
        let _locked = directory.entries();

        let known = in_child(|| directory.entries().len().try_into().unwrap());

        assert_eq!(known, 0);
    }
}
