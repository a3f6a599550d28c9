//! How the tree is brought to its end: SIGTERM, the time that is left, and rounds of SIGKILL.

use std::time::Duration;

use nix::libc::{SIGCONT, SIGKILL, SIGTERM};

use super::Watch;
use crate::clock::BootInstant;
use crate::command::frames::{Notice, instant};
use crate::command::kernel::{exit, signal_group, signal_process};
use crate::command::launch::Group;
use crate::command::tree::{Among, Tree};

/// How long before it has to be dead the tree is looked at, to begin with the killing in time; also the
/// most that the killing begins too early.
const LOOK_AHEAD: Duration = Duration::from_secs(1);
/// Between two rounds of killing: more often at first, when a fork may just have been missed.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Who is not dead after so many rounds is in a system call that cannot be interrupted.
const BRISK_ROUNDS: u32 = 100;
const PATIENT_PAUSE: Duration = Duration::from_secs(1);
/// Rounds without a readable `/proc` before giving up on what is outside the command's group.
const BLIND_ROUNDS: u32 = 20;

#[derive(Clone, Copy)]
pub(super) enum Phase {
    Watching,
    Stopping(Stop),
    Killing(Rounds),
}

#[derive(Clone, Copy)]
pub(super) struct Stop {
    /// When all has to be dead.
    kill_at: BootInstant,
    /// Whoever was told to end has until then for that, however many they are.
    earliest: BootInstant,
    /// How long the killing takes, once the tree was looked at for that.
    takes: Option<Duration>,
}

impl Stop {
    /// When the killing begins, or the tree is looked at to know that.
    fn kill_from(&self) -> BootInstant {
        let takes = self.takes.unwrap_or(LOOK_AHEAD).min(LOOK_AHEAD);
        let from = self.kill_at.before(takes);
        from.max(self.earliest).min(self.kill_at)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Rounds {
    next: BootInstant,
    pause: Duration,
    done: u32,
}

impl Watch<'_> {
    /// The next instant at which something has to be done without being asked.
    pub(super) fn next(&self) -> BootInstant {
        if self.command.is_none() {
            return BootInstant::NEVER;
        }
        let deadline = instant(self.deadline.get());
        match self.phase {
            Phase::Watching => deadline,
            Phase::Stopping(stop) => stop.kill_from().min(deadline),
            Phase::Killing(_) if self.childless || self.reported => BootInstant::NEVER,
            Phase::Killing(rounds) => rounds.next,
        }
    }

    pub(super) fn stop(&mut self, kill_at: BootInstant) {
        let now = BootInstant::now();
        let halfway = now.after(kill_at.left(now) / 2);
        self.phase = match self.phase {
            Phase::Watching => {
                self.terminate(halfway.min(instant(self.deadline.get())));
                Phase::Stopping(Stop {
                    kill_at,
                    earliest: halfway,
                    takes: None,
                })
            }
            Phase::Stopping(before) => Phase::Stopping(Stop {
                kill_at: kill_at.min(before.kill_at),
                earliest: halfway.min(before.earliest),
                takes: before.takes,
            }),
            Phase::Killing(_) => return,
        };
    }

    /// SIGTERM to everything that can be told until then; SIGCONT so that what is stopped gets it.
    fn terminate(&mut self, until: BootInstant) {
        let own_group = self
            .command
            .as_ref()
            .filter(|c| !c.forgotten && matches!(c.group, Group::Own))
            .map(|c| c.pid);
        if let Some(group) = own_group {
            let _ = signal_group(group, SIGTERM);
            let _ = signal_group(group, SIGCONT);
        }
        if let Some(tree) = &mut self.tree {
            let among = own_group.map_or(Among::All, Among::OutsideGroup);
            tree.tell(&[SIGTERM, SIGCONT], among, until);
        }
    }

    pub(super) fn act(&mut self, now: BootInstant) {
        if self.alone && (self.command.is_none() || self.reported) {
            exit(0);
        }
        let killing = matches!(self.phase, Phase::Killing(_));
        if !killing && (self.alone || self.is_time_to_kill(now)) {
            self.phase = Phase::Killing(Rounds {
                next: now,
                pause: FIRST_PAUSE,
                done: 0,
            });
        }
        match self.phase {
            Phase::Killing(rounds) if !self.childless && !self.reported && now >= rounds.next => {
                self.kill(rounds);
            }
            Phase::Watching | Phase::Stopping(_) | Phase::Killing(_) => {}
        }
        if self.childless && !matches!(self.phase, Phase::Watching) {
            self.conclude(Notice::TreeGone);
        }
    }

    /// Whether the killing has to begin for all to be dead in time. To know that, the tree is looked at
    /// once in a stop; it is not while dislock may still move the deadline.
    fn is_time_to_kill(&mut self, now: BootInstant) -> bool {
        if now < self.next() {
            return false;
        }
        let last_moment = instant(self.deadline.get());
        match self.phase {
            Phase::Stopping(stop)
                if stop.takes.is_none() && now < stop.kill_at.min(last_moment) =>
            {
                let takes = self.tree.as_mut().map(Tree::time_to_kill);
                self.phase = Phase::Stopping(Stop {
                    takes: Some(takes.unwrap_or_default()),
                    ..stop
                });
                BootInstant::now() >= self.next()
            }
            Phase::Watching | Phase::Stopping(_) | Phase::Killing(_) => true,
        }
    }

    /// One round: the group at one blow, then everything that `/proc` shows.
    fn kill(&mut self, rounds: Rounds) {
        if let Some(command) = self.command.as_ref().filter(|c| !c.forgotten) {
            let _ = match command.group {
                Group::Own => signal_group(command.pid, SIGKILL),
                Group::Shared(_) => signal_process(command.pid, SIGKILL),
            };
        }
        let round = self.tree.as_mut().and_then(|tree| tree.kill().ok());
        self.reap();
        let out_of_reach = match round {
            _ if self.childless => None,
            Some(round) => round.out_of_reach(),
            None => (rounds.done >= BLIND_ROUNDS).then_some(0),
        };
        if let Some(pid) = out_of_reach {
            self.conclude(Notice::OutOfReach(pid));
        }
        let longest = if rounds.done < BRISK_ROUNDS {
            LONGEST_PAUSE
        } else {
            PATIENT_PAUSE
        };
        self.phase = Phase::Killing(Rounds {
            next: BootInstant::now().after(rounds.pause),
            pause: rounds.pause.saturating_mul(2).min(longest),
            done: rounds.done.saturating_add(1),
        });
    }

    fn conclude(&mut self, outcome: Notice) {
        if self.alone {
            exit(0);
        }
        if !self.reported {
            self.reported = true;
            self.report(outcome);
        }
    }
}
