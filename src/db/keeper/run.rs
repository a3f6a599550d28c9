//! What a keeper does of its own accord: renewals when they are due, and closing what nobody needs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::{LINGER, Shared};
use crate::clock::BootInstant;
use crate::db::heartbeat::Heartbeat;
use crate::db::shared::SharedConnection;

/// What runs a keeper; see [`Keeper::new`](super::Keeper::new).
#[derive(Debug)]
pub(crate) struct Body {
    shared: Arc<Shared>,
}

/// Marks the keeper as over, however it ends.
impl Drop for Body {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
    }
}

/// Since when something has been of no use.
#[derive(Debug, Default)]
struct Idle {
    since: Option<BootInstant>,
}

impl Idle {
    /// How long it may stay; `None` while it is of use.
    fn left(&mut self, idle: bool, now: BootInstant, linger: Duration) -> Option<Duration> {
        if !idle {
            self.since = None;
            return None;
        }
        Some(self.since.get_or_insert(now).after(linger).left(now))
    }
}

#[derive(Debug, Default)]
struct Housekeeping {
    standing: Idle,
    second: Idle,
    keeper: Idle,
}

impl Body {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Whether nobody has a handle. That nobody can get one meanwhile is up to whoever asks.
    pub(crate) fn is_unused(&self) -> bool {
        self.shared.census().handles == 0
    }

    /// Keeps the leases until `retire` agrees that nobody needs the keeper any more; it is asked when
    /// nobody has had a handle for a while.
    pub(crate) async fn run(self, retire: impl Fn(&Self) -> bool) {
        let mut heartbeat = Heartbeat::default();
        let mut idle = Housekeeping::default();
        loop {
            self.adopt_spare(&mut heartbeat);
            let now = BootInstant::now();
            if heartbeat.may_try(now) && self.beat(&mut heartbeat, now).await {
                continue;
            }
            let (due, no_leases) = {
                let holdings = self.shared.holdings();
                (holdings.next_due(), holdings.is_empty())
            };
            let (unused, no_operations) = {
                let census = self.shared.census();
                (census.handles == 0, census.operations == 0)
            };
            let crowded = self.shared.operations.is_crowded();
            let linger = match self.shared.hurried.load(Ordering::Acquire) || crowded {
                true => Duration::ZERO,
                false => LINGER,
            };
            // Asked first: what closes connections in the background ends with the keeper.
            let keeper = idle.keeper.left(unused, now, linger);
            if keeper == Some(Duration::ZERO) && retire(&self) {
                self.shut_down(heartbeat).await;
                return;
            }
            let standing = idle.standing.left(no_leases, now, linger);
            if standing == Some(Duration::ZERO) {
                close_soon(heartbeat.take_connection());
            }
            let second = idle.second.left(no_operations, now, linger);
            if second == Some(Duration::ZERO) {
                close_soon(self.shared.operations.take_connection());
            }
            let due = due.map(|at| heartbeat.earliest(at).left(now));
            let standing = standing.filter(|_| heartbeat.has_connection());
            let second = second.filter(|_| self.shared.operations.is_open());
            let pauses = [due, standing, second, keeper];
            let pause = pauses.into_iter().flatten().min().unwrap_or(Duration::MAX);
            tokio::select! {
                () = sleep(pause) => {}
                () = self.shared.changed.notified() => {}
            }
        }
    }

    /// Renews what is due; answers whether anything was.
    async fn beat(&self, heartbeat: &mut Heartbeat, now: BootInstant) -> bool {
        let (number, batch) = self.shared.holdings().take_due(now);
        if batch.is_empty() {
            return false;
        }
        let abandoned = self.shared.abandoned.subscribe();
        heartbeat
            .renew(&self.shared, number, batch, abandoned)
            .await;
        self.shared.finished.send_replace(number);
        true
    }

    fn adopt_spare(&self, heartbeat: &mut Heartbeat) {
        let spare = self.shared.spare().take();
        close_soon(spare.and_then(|connection| heartbeat.adopt(connection)));
    }

    async fn shut_down(self, mut heartbeat: Heartbeat) {
        let lines = [
            heartbeat.take_connection(),
            self.shared.operations.take_connection(),
        ];
        for connection in lines.into_iter().flatten() {
            connection.close().await;
        }
    }
}

/// Says goodbye without waiting for it here: a renewal may be due.
fn close_soon(connection: Option<SharedConnection>) {
    if let Some(connection) = connection {
        tokio::spawn(connection.close());
    }
}
