//! Renewing a lease until it is given up or lost.
//!
//! Each renewal is one statement, and each attempt is bounded: one that hangs (a silent network, a
//! frozen server, somebody's lock on the row) is abandoned and cancelled, and the next one goes over
//! a new connection, until `stop_at` has passed. Giving up before that would be no safer, so every
//! failure is retried until then; only the owner guard's "not yours" ends the lease at once.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connect::{Connection, connect};
use super::failure::{Failure, answer_by};
use super::store::Store;
use super::timestamp::RowTime;
use crate::clock::BootInstant;
use crate::context::LockContext;
use crate::lease::LeaseState;
use crate::rules::lease::attempt_limit;
use crate::rules::retry::Backoff;

/// How long a renewal that is under way when the lease is given up may still take. It is waited for
/// because a renewal that reaches the row after its release would bring the row back to life.
pub(crate) const LAST_RENEWAL: Duration = Duration::from_secs(3);

/// Renews the lease whenever it is due, until `stop` turns true (or its sender is gone) or the lease
/// is lost.
pub(crate) async fn beat(
    ctx: &LockContext,
    state: &LeaseState,
    value: &str,
    connection: Option<Connection>,
    mut stop: watch::Receiver<bool>,
) {
    let mut heart = Heart {
        ctx,
        state,
        value,
        store: Store::new(&ctx.settings().table),
        connection,
    };
    let stopped = async {
        // An error means that the sender is gone: nobody wants the lease any more.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(stopped);
    loop {
        let pause = state.renew_at().left(BootInstant::now());
        tokio::select! {
            () = sleep(pause) => {}
            () = &mut stopped => break,
        }
        let renewal = heart.renew();
        tokio::pin!(renewal);
        let held = tokio::select! {
            held = &mut renewal => held,
            () = &mut stopped => {
                let _ = timeout(LAST_RENEWAL, renewal).await;
                break;
            }
        };
        if !held {
            break;
        }
    }
    heart.close().await;
}

struct Heart<'a> {
    ctx: &'a LockContext,
    state: &'a LeaseState,
    value: &'a str,
    store: Store,
    connection: Option<Connection>,
}

impl Heart<'_> {
    /// Renews once, however many attempts that takes; `false` when the lease is lost instead.
    async fn renew(&mut self) -> bool {
        let mut backoff = Backoff::default();
        loop {
            let left = self.state.deadlines().stop_at.left(BootInstant::now());
            if left.is_zero() {
                log::error!(
                    "lease {} was not renewed in time: it is lost",
                    self.state.key()
                );
                return false;
            }
            let by = Instant::now() + attempt_limit(left);
            let failure = match self.attempt(by).await {
                Ok(Some((sent, until))) if self.state.renewed(sent) => {
                    log::debug!("lease {} renewed until {until}", self.state.key());
                    return true;
                }
                Ok(Some(_)) => {
                    log::error!(
                        "lease {} was renewed too late: it is lost",
                        self.state.key()
                    );
                    return false;
                }
                Ok(None) => {
                    self.state.rejected();
                    log::error!(
                        "lease {} is lost: its row is gone or somebody else's",
                        self.state.key()
                    );
                    return false;
                }
                Err(failure) => failure,
            };
            log::warn!(
                "{:#}",
                failure.into_error(self.ctx, "cannot renew the lease")
            );
            self.abandon_connection();
            let left = self.state.deadlines().stop_at.left(BootInstant::now());
            if let Some(pause) = backoff.pause(left, rand::random()) {
                sleep(pause).await;
            }
        }
    }

    /// One attempt; answers the instant just before the statement was sent, and the row's expiry.
    async fn attempt(&mut self, by: Instant) -> Result<Option<(BootInstant, RowTime)>, Failure> {
        let settings = self.ctx.settings();
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&settings.conninfo, by).await?),
        };
        let ttl = settings.timing.ttl;
        let key = self.state.key();
        let sent = BootInstant::now();
        let renewal = self.store.renew(connection.client(), key, self.value, ttl);
        let renewed = answer_by(by, renewal).await?;
        Ok(renewed.map(|until| (sent, until)))
    }

    /// What hangs on the server would renew the row whenever it comes loose.
    fn abandon_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.cancel();
        }
    }

    async fn close(self) {
        if let Some(connection) = self.connection {
            connection.close().await;
        }
    }
}
