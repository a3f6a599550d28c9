//! What a run comes to: decides, from what has happened and the time, what is to be done next.
//!
//! ```text
//!   command runs ──ended──> nobody asked for an end? return its status
//!        │                  else stop what it left behind, then return its status
//!        └──lease lost───> stop the tree, then return the loss, whatever the status
//! ```
//!
//! A stop is an order to the guardian: SIGTERM now, SIGKILL at `kill_at`. At `kill_at` it is given once
//! more, since an order makes a guardian go on that somebody has stopped meanwhile. The stop is over when
//! the guardian says that the tree is gone; if it does not say so soon after `kill_at`, dislock kills the
//! tree itself.
//!
//! Pure: the loop in `supervise` tells it what happened and does what it says.

use std::time::Duration;

use nix::libc::SIGHUP;

use super::kernel::Status;
use super::signals::{Incoming, ends};
use crate::clock::BootInstant;
use crate::rules::lease::Deadlines;
use crate::rules::outcome::Ended;

/// What the guardian has for its kill before dislock does it itself.
const GUARDIAN_SLACK: Duration = Duration::from_millis(50);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait for something to happen, at most until this instant.
    Wait(BootInstant),
    /// Have the tree stopped: SIGTERM now, SIGKILL at `kill_at`.
    Stop { kill_at: BootInstant },
    /// The guardian does not do its work: kill the tree without it.
    KillTree,
    /// The run is over.
    Return(Ended),
}

/// Whose terminal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminal {
    /// There is none: the command has a process group of its own.
    None,
    /// The command is in dislock's process group, to which the terminal sends its signals.
    Shared,
    /// As `Shared`; but dislock leads the session, and is alone to be told when the terminal goes.
    SharedByLeader,
}

/// The state of a run.
#[derive(Clone, Debug)]
pub(super) struct Course {
    kill_grace: Duration,
    terminal: Terminal,
    /// A signal that asks for an end was received.
    asked_to_end: bool,
    /// The lease was lost.
    lost: bool,
    /// The stop that was ordered.
    kill_at: Option<BootInstant>,
    /// The order was given at `kill_at`, or later.
    reminded: bool,
    ended: Option<Status>,
    tree_gone: bool,
}

impl Course {
    pub(super) fn new(kill_grace: Duration, terminal: Terminal) -> Self {
        Self {
            kill_grace,
            terminal,
            asked_to_end: false,
            lost: false,
            kill_at: None,
            reminded: false,
            ended: None,
            tree_gone: false,
        }
    }

    /// A signal came; answers whether the command is to get it from us.
    pub(super) fn signal(&mut self, incoming: Incoming) -> bool {
        self.asked_to_end |= ends(incoming.signal);
        let command_has_it = match self.terminal {
            Terminal::None => false,
            Terminal::Shared => incoming.from_terminal,
            Terminal::SharedByLeader => incoming.from_terminal && incoming.signal != SIGHUP,
        };
        self.ended.is_none() && !command_has_it
    }

    /// The command itself has ended.
    pub(super) fn ended(&mut self, how: Status) {
        self.ended = Some(how);
    }

    /// Nothing is left of the tree, or nothing that could be killed.
    pub(super) fn tree_gone(&mut self) {
        self.tree_gone = true;
    }

    /// Whether the lease was lost, as far as it was looked at.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// How the command itself ended, if that is known.
    pub(super) fn status(&self) -> Option<Status> {
        self.ended
    }

    /// What the run came to, once nothing of it is left.
    pub(super) fn outcome(&self) -> Option<Ended> {
        if self.lost {
            Some(Ended::LeaseLost)
        } else {
            self.ended.map(Ended::from)
        }
    }

    /// What to do at `now`, when these are the deadlines.
    pub(super) fn next(&mut self, now: BootInstant, deadlines: Deadlines) -> Step {
        self.lost |= now >= deadlines.stop_at;
        if self.tree_gone {
            // Only the guardian's own deadline kills a tree that nobody asked it to stop: then we
            // were too late to move it.
            self.lost |= self.kill_at.is_none();
            if let Some(outcome) = self.outcome() {
                return Step::Return(outcome);
            }
        }
        if self.lost {
            let before = self.kill_at.unwrap_or(BootInstant::NEVER);
            if self.kill_at.is_none() || deadlines.kill_at < before {
                return self.stop(now, deadlines.kill_at.min(before));
            }
        } else if let (Some(how), None) = (self.ended, self.kill_at) {
            if !self.asked_to_end {
                return Step::Return(how.into());
            }
            return self.stop(now, now.after(self.kill_grace));
        }
        let Some(kill_at) = self.kill_at else {
            return Step::Wait(deadlines.stop_at);
        };
        let give_up = kill_at.after(GUARDIAN_SLACK);
        if now >= give_up {
            return Step::KillTree;
        }
        if now >= kill_at && !self.reminded {
            return self.stop(now, kill_at);
        }
        let until = if self.reminded { give_up } else { kill_at };
        match self.lost {
            true => Step::Wait(until),
            false => Step::Wait(until.min(deadlines.stop_at)),
        }
    }

    fn stop(&mut self, now: BootInstant, kill_at: BootInstant) -> Step {
        self.kill_at = Some(kill_at);
        self.reminded = now >= kill_at;
        Step::Stop { kill_at }
    }
}
