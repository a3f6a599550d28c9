//! The background thread that takes the rows of a lock and keeps its lease alive.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::context::LockContext;
use crate::db::acquire::{Acquired, Acquirer, Plan, expire};
use crate::db::heartbeat::{LAST_RENEWAL, beat};
use crate::db::timestamp::RowTime;
use crate::error::{Error, Result};
use crate::lease::LeaseState;
use crate::rules::lease::LeaseTerm;

/// For giving rows back, connection included. Together with [`LAST_RENEWAL`] it stays under the 5
/// seconds within which a command's end has to become ours.
const RELEASE: Duration = Duration::from_millis(1500);
/// What a thread may need beyond the bounds of its I/O to say that it has finished.
const SLACK: Duration = Duration::from_millis(200);

/// An acquisition under way on its own thread.
#[derive(Debug)]
pub(crate) struct Acquisition {
    outcome: Receiver<Result<Taken>>,
    thread: Background,
}

/// The rows that were taken.
#[derive(Debug)]
struct Taken {
    value: String,
    token: i64,
    slot_until: Option<RowTime>,
    lease: Option<Arc<LeaseState>>,
}

/// What an acquisition comes to.
#[derive(Debug)]
pub(crate) struct Held {
    /// What stands in the rows.
    pub(crate) value: String,
    /// The fencing token.
    pub(crate) token: i64,
    pub(crate) slot_until: Option<RowTime>,
    pub(crate) lease: Option<Heartbeat>,
}

/// A lease, and the thread that renews it.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) state: Arc<LeaseState>,
    thread: Background,
}

/// A thread that ends soon after it is asked to.
#[derive(Debug)]
struct Background {
    stop: watch::Sender<bool>,
    /// Disconnected when the thread has ended.
    finished: Mutex<Receiver<()>>,
}

impl Background {
    /// Asks the thread to end and waits for that, but not for longer than `limit`.
    fn stop(&self, limit: Duration) {
        self.stop.send_replace(true);
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = finished.recv_timeout(limit);
    }
}

impl Acquisition {
    /// Starts taking the rows of `plan`, after a delay of up to `jitter_max`. `done` is dropped as
    /// soon as [`wait`](Self::wait) would not block any more, whatever the reason.
    pub(crate) fn start(
        ctx: &LockContext,
        plan: Plan,
        jitter_max: Duration,
        done: impl Send + 'static,
    ) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let (alive, finished) = mpsc::sync_channel(0);
        let (outcome_sender, outcome) = mpsc::sync_channel(1);
        let ctx = ctx.clone();
        let delay = jitter_max.mul_f64(rand::random());
        spawn("dislock-heartbeat", move |runtime| {
            let _alive = alive;
            let value = new_value(&ctx);
            let acquiring = acquire(&ctx, plan, &value, delay, stopped.clone());
            let acquired = match runtime.block_on(acquiring) {
                Some(Ok(acquired)) => acquired,
                Some(Err(error)) => {
                    let _ = outcome_sender.send(Err(error));
                    return;
                }
                None => return,
            };
            let lease = acquired.lease_until.map(|_| {
                let term = LeaseTerm::begin(ctx.settings().timing, acquired.sent);
                Arc::new(LeaseState::new(ctx.lease_key(), term))
            });
            let _ = outcome_sender.send(Ok(Taken {
                value: value.clone(),
                token: acquired.token,
                slot_until: acquired.slot_until,
                lease: lease.clone(),
            }));
            drop(done);
            runtime.block_on(async {
                match (lease, acquired.connection) {
                    (Some(lease), connection) => {
                        beat(&ctx, &lease, &value, connection, stopped).await;
                    }
                    (None, Some(connection)) => connection.close().await,
                    (None, None) => {}
                }
            });
        })?;
        Ok(Self {
            outcome,
            thread: Background {
                stop,
                finished: Mutex::new(finished),
            },
        })
    }

    /// Waits until the rows are taken, or are not.
    pub(crate) fn wait(self) -> Result<Held> {
        let gone = |error| Error::system("the thread that acquires the lock died", error);
        let taken = self.outcome.recv().map_err(gone)??;
        Ok(Held {
            value: taken.value,
            token: taken.token,
            slot_until: taken.slot_until,
            lease: taken.lease.map(|state| Heartbeat {
                state,
                thread: self.thread,
            }),
        })
    }

    /// Gives up at once. Rows that were taken meanwhile, or may have been, are given back.
    pub(crate) fn cancel(self, ctx: &LockContext) {
        self.thread.stop(LAST_RENEWAL);
        if let Ok(Ok(taken)) = self.outcome.try_recv() {
            let keys = vec![ctx.schedule_key(), ctx.lease_key()];
            if let Err(error) = give_back(ctx, keys, taken.value) {
                log::warn!("{error:#}");
            }
        }
    }
}

impl Heartbeat {
    /// Ends the renewals. A renewal that is under way is waited for, with a bound.
    pub(crate) fn stop(&self) {
        self.thread.stop(LAST_RENEWAL + SLACK);
    }
}

/// Waits out the delay and takes the rows; `None` when it is asked to stop meanwhile.
async fn acquire(
    ctx: &LockContext,
    plan: Plan,
    value: &str,
    delay: Duration,
    mut stopped: watch::Receiver<bool>,
) -> Option<Result<Acquired>> {
    let mut acquirer = Acquirer::new(ctx, plan, value);
    let acquiring = async {
        if !delay.is_zero() {
            log::info!("waiting for a jitter of {:.3} s", delay.as_secs_f64());
            tokio::time::sleep(delay).await;
        }
        acquirer.run().await
    };
    let outcome = tokio::select! {
        outcome = acquiring => Some(outcome),
        _ = stopped.wait_for(|stop| *stop) => None,
    };
    if outcome.is_none() {
        acquirer.abandon().await;
    }
    outcome
}

/// Ends the rows among `keys` that carry `value`, within a bound, over a connection of its own.
pub(crate) fn give_back(ctx: &LockContext, keys: Vec<String>, value: String) -> Result<usize> {
    let (sender, outcome) = mpsc::sync_channel(1);
    let context = ctx.clone();
    spawn("dislock-release", move |runtime| {
        let ended = runtime.block_on(expire(&context, &keys, &value, RELEASE));
        let _ = sender.send(ended);
    })?;
    outcome
        .recv_timeout(RELEASE + SLACK)
        .map_err(|error| Error::system("the release of the lock hangs", error))?
}

/// What this acquisition writes into its rows: the owner, readable, and a nonce that nobody else has.
fn new_value(ctx: &LockContext) -> String {
    format!("{}:{:016x}", ctx.owner(), rand::random::<u64>())
}

/// Runs `work` on a thread of its own that has an I/O runtime. When it is over, the runtime is left
/// behind without waiting: a name look-up that hangs must not hang us.
fn spawn(name: &str, work: impl FnOnce(&Runtime) + Send + 'static) -> Result<()> {
    let failed = |error| Error::system("cannot start a thread for the database", error);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let body = move || {
        work(&runtime);
        runtime.shutdown_background();
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(failed)?;
    Ok(())
}
