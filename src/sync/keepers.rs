//! The keepers of the blocking calls, each on a thread of its own.
//!
//! A keeper's thread is there as long as somebody needs it and for a few seconds more. It never keeps
//! the process alive.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::context::LockContext;
use crate::db::keeper::{Directory, Keeper};
use crate::error::{Error, Result};

static KEEPERS: Directory = Directory::new();

/// The keeper for the database and table of `ctx`, started if there is none.
pub(crate) fn keeper(ctx: &LockContext) -> Result<Keeper> {
    KEEPERS.find_or_start(ctx, |_| true, || start(ctx))
}

/// A runtime whose end nobody waits for. Otherwise it could not be dropped on a thread of another runtime,
/// where its start may have failed.
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn start(ctx: &LockContext) -> Result<(Keeper, Option<mpsc::Receiver<()>>)> {
    let failed = |error| Error::system("cannot start a thread for the database", error);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let (keeper, body) = Keeper::new(ctx, runtime.handle().clone());
    let (alive, ended) = mpsc::sync_channel::<()>(0);
    let runtime = Background(Some(runtime));
    let run = move || {
        // The runtime ends first.
        let (_alive, runtime) = (alive, runtime);
        if let Some(runtime) = &runtime.0 {
            runtime.block_on(body.run(|body| KEEPERS.retire(body)));
        }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::forks::{allow_no_threads, in_child};

    #[test]
    fn without_a_thread_for_it_there_is_an_error_inside_a_runtime_too() {
        let ctx = LockContext::builder("postgresql://app@127.0.0.1/app", "job");
        let ctx = ctx.build_with(&|_| None).unwrap();

        let started = in_child(|| {
            let runtime = Builder::new_current_thread().build().unwrap();
            allow_no_threads();
            runtime.block_on(async { keeper(&ctx).is_ok() }).into()
        });

        assert_eq!(started, 0);
    }
}
