//! The last resort: killing the tree without the guardian's help, because it was stopped or killed.

use std::thread;
use std::time::Duration;

use nix::unistd::getpid;

use super::guardian::Guardian;
use super::processes::process;
use super::signals::{Signals, reap_orphans};
use super::tree::Tree;
use crate::clock::BootInstant;

/// What is not dead by then is in a system call that cannot be interrupted, and dies with its end.
const PATIENCE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Kills what is below the guardian, then the guardian; then what became an orphan by that, in the
/// program among dislock's own children, in a library as far as the command's process group goes.
/// Answers whether all of that is dead.
pub(super) fn kill_tree(
    guardian: &mut Guardian,
    group: Option<i32>,
    signals: Option<&Signals>,
) -> bool {
    // An ended guardian stays a zombie until it is waited for: its number still is its own.
    let started = process(guardian.pid()).map_or(0, |p| p.started);
    let give_up = BootInstant::now().after(PATIENCE);
    if let Ok(mut tree) = Tree::below(guardian.pid()) {
        kill_until(give_up, || tree.kill().map_or(0, |round| round.alive));
    }
    guardian.end();
    let orphans = match (signals, group) {
        (Some(signals), _) => Tree::below(getpid().as_raw()).map(|mut tree| {
            tree.leave_out(signals.strangers(), started);
            tree
        }),
        (None, Some(group)) => Tree::of_group(group, started),
        (None, None) => return true,
    };
    let Ok(mut orphans) = orphans else {
        return false;
    };
    kill_until(give_up, || {
        let alive = orphans.kill().map_or(0, |round| round.alive);
        if signals.is_some() {
            reap_orphans();
        }
        alive
    })
}

/// Rounds until two in a row meet nobody alive: a single one can miss the child of a process that
/// forked and ended while it was being looked for. Answers whether it came to that.
fn kill_until(give_up: BootInstant, mut round: impl FnMut() -> usize) -> bool {
    let mut pause = FIRST_PAUSE;
    let mut empty = 0;
    while empty < 2 {
        if round() == 0 {
            empty += 1;
        } else if BootInstant::now() < give_up {
            empty = 0;
            thread::sleep(pause);
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        } else {
            return false;
        }
    }
    true
}
