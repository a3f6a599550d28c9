//! Taking and releasing rows through the keeper, as futures that may be dropped at any point.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, Receiver};

use crate::context::{LockContext, Plan};
use crate::db::keeper::{Directory, Keeper};
use crate::db::store::OwnRow;
use crate::db::taken::{HeldLease, Taken};
use crate::error::{Error, Result};
use crate::random;
use crate::rules::lease::Loss;

/// The keepers of the async calls, each a task on a runtime of the caller's.
static KEEPERS: Directory = Directory::new();

/// The keeper for the database and table of `ctx` on this runtime, started if there is none.
fn keeper(ctx: &LockContext) -> Result<Keeper> {
    let runtime = Handle::try_current()
        .map_err(|error| Error::system("locks need a Tokio runtime", error))?;
    let start = || {
        let (keeper, body) = Keeper::new(ctx, runtime.clone());
        runtime.spawn(body.run(|body| KEEPERS.retire(body)));
        Ok((keeper, None))
    };
    KEEPERS.find_or_start(ctx, |known| known.runs_on(&runtime), start)
}

/// An acquisition under way. Dropped before the outcome was taken from it, nothing stays locked.
struct Pending {
    ctx: LockContext,
    keeper: Keeper,
    outcome: Receiver<Result<Taken>>,
    /// Dropping it calls the acquisition off.
    _wanted: oneshot::Sender<()>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        // From here on the keeper gets back what it sends.
        self.outcome.close();
        if let Ok(Ok(taken)) = self.outcome.try_recv() {
            taken.give_back(&self.ctx, self.keeper.clone(), |outcome| {
                if let Err(error) = outcome {
                    log::warn!("{error:#}");
                }
            });
        }
    }
}

/// Takes the rows of `plan`, after a delay of up to `jitter_max`.
pub(super) async fn acquire(ctx: &LockContext, plan: Plan, jitter_max: Duration) -> Result<Taken> {
    let keeper = keeper(ctx)?;
    let (sender, outcome) = oneshot::channel();
    let delay = jitter_max.mul_f64(random::fraction());
    let wanted = keeper.clone().acquire(ctx, plan, delay, |outcome| {
        let undelivered = sender.send(outcome).err();
        undelivered.and_then(Result::ok)
    });
    let mut pending = Pending {
        ctx: ctx.clone(),
        keeper,
        outcome,
        _wanted: wanted,
    };
    (&mut pending.outcome).await.map_err(died)?
}

/// Gives a lease up, and `more` rows with it; answers what had become of it before. Once it has begun,
/// it goes on in the background, whether anybody waits for it or not.
pub(super) fn release(
    held: HeldLease,
    more: Vec<OwnRow>,
) -> impl Future<Output = Result<Option<Loss>>> + Send {
    let (sender, outcome) = oneshot::channel();
    held.release(more, |released| {
        let _ = sender.send(released);
    });
    async { outcome.await.map_err(died)? }
}

/// Ends rows that are still ours.
pub(super) async fn expire(ctx: &LockContext, rows: Vec<OwnRow>) -> Result<()> {
    let (sender, outcome) = oneshot::channel();
    keeper(ctx)?.expire(ctx, rows, |ended| {
        let _ = sender.send(ended.map(|_| ()));
    });
    outcome.await.map_err(died)?
}

fn died(error: oneshot::error::RecvError) -> Error {
    Error::system("the runtime that keeps the locks was shut down", error)
}
