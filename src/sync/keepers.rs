//! The keepers of this process, each on a thread of its own, found by database and table.
//!
//! A keeper's thread is there as long as somebody needs it and for a few seconds more. It never keeps
//! the process alive. A child of a fork starts from nothing: keepers are known by process, too.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::context::LockContext;
use crate::db::keeper::{Body, Keeper, Known};
use crate::error::{Error, Result};

static KEEPERS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Entry {
    known: Known,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

/// The keeper for the database and table of `ctx`, started if there is none.
pub(crate) fn keeper(ctx: &LockContext) -> Result<Keeper> {
    // Entries go out of scope after the lock.
    let _dead: Vec<Entry>;
    let mut entries = entries();
    if let Some(keeper) = entries.iter().find_map(|entry| entry.known.handle(ctx)) {
        return Ok(keeper);
    }
    // Those of another process are left alone for ever: what they consist of did not come along.
    let is_dead = |entry: &Entry| entry.known.is_of_this_process() && entry.known.is_over();
    _dead = take_if(&mut entries, is_dead);
    let failed = |error| Error::system("cannot start a thread for the database", error);
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let (keeper, body) = Keeper::new(ctx, runtime.handle().clone());
    let (alive, ended) = mpsc::sync_channel(0);
    let run = move || {
        let _alive: mpsc::SyncSender<()> = alive;
        runtime.block_on(body.run(retire));
        // Without waiting: a name look-up that hangs must not hang us.
        runtime.shutdown_background();
    };
    thread::Builder::new()
        .name("dislock-heartbeat".to_owned())
        .spawn(run)
        .map_err(failed)?;
    entries.push(Entry {
        known: Known::new(ctx, &keeper),
        ended,
    });
    Ok(keeper)
}

/// Whether the keeper may end: under the lock, so that nobody finds it meanwhile.
fn retire(body: &Body) -> bool {
    let _gone: Vec<Entry>;
    let mut entries = entries();
    if !body.is_unused() {
        return false;
    }
    _gone = take_if(&mut entries, |entry| entry.known.is(body));
    true
}

/// Closes connections that are kept for later, within `limit`: the process is about to end.
pub(crate) fn close_all(limit: Duration) {
    let by = Instant::now() + limit;
    let entries = take_if(&mut entries(), |entry| entry.known.is_of_this_process());
    for entry in &entries {
        entry.known.hurry();
    }
    for entry in entries {
        let left = by.saturating_duration_since(Instant::now());
        // Its end is all there is to be heard from it.
        let _ = entry.ended.recv_timeout(left);
    }
}

fn take_if(entries: &mut Vec<Entry>, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    let (taken, left) = std::mem::take(entries).into_iter().partition(which);
    *entries = left;
    taken
}

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}
