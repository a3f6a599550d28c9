//! The last resort: killing the tree without the guardian's help, because it was stopped or killed.

use std::thread;
use std::time::Duration;

use nix::unistd::getpid;

use super::guardian::Guardian;
use super::signals::{Signals, reap_orphans};
use super::tree::{Tree, process};
use crate::clock::BootInstant;

/// What is not dead by then is in a system call that cannot be interrupted, and dies with its end.
const PATIENCE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Kills what is below the guardian, then the guardian; then what became an orphan by that, in the
/// program among dislock's own children, in a library as far as the command's process group goes.
pub(super) fn kill_tree(guardian: &mut Guardian, group: Option<i32>, signals: Option<&Signals>) {
    // An ended guardian stays a zombie until it is dropped: its number still is its own.
    let started = process(guardian.pid()).map_or(0, |p| p.started);
    let give_up = BootInstant::now().after(PATIENCE);
    if let Ok(mut tree) = Tree::below(guardian.pid()) {
        kill_until(give_up, || tree.kill().map_or(0, |round| round.alive));
    }
    guardian.end();
    match (signals, group) {
        (Some(signals), _) => {
            if let Ok(mut tree) = Tree::below(getpid().as_raw()) {
                tree.leave_out(signals.strangers(), started);
                kill_until(give_up, || {
                    let alive = tree.kill().map_or(0, |round| round.alive);
                    reap_orphans();
                    alive
                });
            }
        }
        (None, Some(group)) => {
            if let Ok(mut tree) = Tree::of_group(group, started) {
                kill_until(give_up, || tree.kill().map_or(0, |round| round.alive));
            }
        }
        (None, None) => {}
    }
}

/// Rounds until two in a row meet nobody alive: a single one can miss the child of a process that
/// forked and ended while it was being looked for.
fn kill_until(give_up: BootInstant, mut round: impl FnMut() -> usize) {
    let mut pause = FIRST_PAUSE;
    let mut empty = 0;
    while empty < 2 && BootInstant::now() < give_up {
        if round() == 0 {
            empty += 1;
        } else {
            empty = 0;
            thread::sleep(pause);
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }
}
