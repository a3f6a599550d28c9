//! The keepers of the blocking calls, each on a thread of its own.
//!
//! A keeper's thread is there as long as somebody needs it and for a few seconds more. It never keeps
//! the process alive.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::context::LockContext;
use crate::db::keeper::{Directory, Keeper};
use crate::error::{Error, Result};

static KEEPERS: Directory = Directory::new();

/// The keeper for the database and table of `ctx`, started if there is none.
pub(crate) fn keeper(ctx: &LockContext) -> Result<Keeper> {
    KEEPERS.find_or_start(ctx, |_| true, || start(ctx))
}

fn start(ctx: &LockContext) -> Result<(Keeper, Option<mpsc::Receiver<()>>)> {
    let failed = |error| Error::system("cannot start a thread for the database", error);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let (keeper, body) = Keeper::new(ctx, runtime.handle().clone());
    let (alive, ended) = mpsc::sync_channel::<()>(0);
    let run = move || {
        let _alive = alive;
        runtime.block_on(body.run(|body| KEEPERS.retire(body)));
        // Without waiting: a name look-up that hangs must not hang us.
        runtime.shutdown_background();
    };
    thread::Builder::new()
        .name("dislock-heartbeat".to_owned())
        .spawn(run)
        .map_err(failed)?;
    Ok((keeper, Some(ended)))
}

/// Closes connections that are kept for later, within `limit`: the process is about to end.
pub(crate) fn close_all(limit: Duration) {
    let by = Instant::now() + limit;
    let keepers = KEEPERS.take_all();
    for keeper in &keepers {
        keeper.hurry();
    }
    for keeper in keepers {
        keeper.wait(by.saturating_duration_since(Instant::now()));
    }
}
