//! The command of an acquisition, its guardian, and the supervisor that gives the orders.
//!
//! The supervisor's decisions are those of `command/course.rs`. The guardian is modelled after
//! `command/watch.rs`: it kills the tree at the deadline in the shared page, at the `kill_at` of a stop
//! it was ordered to make, or when dislock is gone, whichever comes first.

use super::clocks::Nanos;
use super::counts::Happened;
use super::database::Value;
use super::flaw::Flaw;
use super::process::{Notice, Stage, Wake};
use super::world::{Event, World};
use crate::clock::BootInstant;
use crate::command::course::Step;
use crate::command::kernel::Status;

const TERMINATED: Status = Status::Signaled(15);
const KILLED: Status = Status::Signaled(9);

pub(super) struct Tree {
    pub(super) host: usize,
    process: u64,
    pub(super) value: Value,
    pub(super) alive: bool,
    /// The guardian has obeyed the order to start it.
    ordered: bool,
    /// The lease behind it was given back.
    pub(super) released: bool,
    /// Its machine stood still past its kill deadline.
    pub(super) overslept: bool,
    /// Since when dislock, or the guardian, is gone.
    pub(super) orphaned_at: Option<Nanos>,
    /// In the page that dislock shares with the guardian.
    deadline: BootInstant,
    stop: Option<BootInstant>,
    /// For when the guardian's alarm is set.
    alarm: Nanos,
    guardian_gone: bool,
    /// How it ends, once that is certain.
    ends: Option<Status>,
    // What the row promises, as the answers that counted have it; see `checks`.
    pub(super) sent: BootInstant,
    pub(super) rejected_at: Option<BootInstant>,
}

impl Tree {
    pub(super) fn new(
        host: usize,
        process: u64,
        value: Value,
        kill_at: BootInstant,
        sent: BootInstant,
    ) -> Self {
        Self {
            host,
            process,
            value,
            alive: false,
            ordered: false,
            released: false,
            overslept: false,
            orphaned_at: None,
            deadline: kill_at,
            stop: None,
            alarm: 0,
            guardian_gone: false,
            ends: None,
            sent,
            rejected_at: None,
        }
    }

    /// The machine loses its power.
    pub(super) fn fall(&mut self) {
        self.alive = false;
        self.guardian_gone = true;
    }
}

impl World {
    /// The guardian starts the command, unless its deadline has passed meanwhile.
    pub(super) fn spawn(&mut self, index: usize) {
        let now = self.local(self.trees[index].host);
        let tree = &mut self.trees[index];
        if tree.guardian_gone {
            return;
        }
        tree.ordered = true;
        if tree.orphaned_at.is_some() {
            tree.orphaned_at = Some(self.now);
        }
        if now >= tree.deadline {
            self.counts.count(Happened::CommandNotStarted);
            return self.tell(index, Notice::TreeGone);
        }
        tree.alive = true;
        self.counts.count(Happened::CommandStarted);
        if self.dice.chance(0.7) {
            let most = 4 * self.network.ttl;
            let length = self.dice.up_to(most);
            self.after(length, Event::Ending(index));
        }
        self.look(index);
    }

    /// The guardian looks at its deadlines, and sets its alarm.
    pub(super) fn look(&mut self, index: usize) {
        let tree = &self.trees[index];
        if !tree.alive || tree.guardian_gone || tree.ends == Some(KILLED) {
            return;
        }
        let deadline = match self.flaw {
            Some(Flaw::GuardianKnowsNoDeadline) => BootInstant::NEVER,
            _ => tree.deadline,
        };
        let due = deadline.min(tree.stop.unwrap_or(BootInstant::NEVER));
        let gone = tree.orphaned_at.is_some()
            && self.flaw != Some(Flaw::GuardianDoesNotNoticeTheEndOfDislock);
        if gone || self.local(tree.host) >= due {
            self.counts.count(match gone {
                true => Happened::CommandKilledWithDislock,
                false => Happened::CommandKilled,
            });
            return self.kill(index);
        }
        if due != BootInstant::NEVER {
            let at = self.hosts[tree.host].clock.when(due);
            if self.trees[index].alarm != at {
                self.trees[index].alarm = at;
                self.at(at, Event::Look(index));
            }
        }
    }

    pub(super) fn kill(&mut self, index: usize) {
        let tree = &mut self.trees[index];
        tree.ends = Some(KILLED);
        let most = self.hosts[tree.host].killing;
        let takes = self.dice.up_to(most);
        self.after(takes, Event::Death(index));
    }

    /// The command ends, by itself or because it was told to.
    pub(super) fn ending(&mut self, index: usize) {
        let tree = &mut self.trees[index];
        if tree.alive {
            let how = *tree.ends.get_or_insert(Status::Exited(0));
            self.counts.count(match how {
                Status::Exited(_) => Happened::CommandEnded,
                Status::Signaled(_) => Happened::CommandObeyed,
            });
            self.death(index);
        }
    }

    pub(super) fn death(&mut self, index: usize) {
        let tree = &mut self.trees[index];
        if !tree.alive {
            return;
        }
        tree.alive = false;
        let how = tree.ends.unwrap_or(KILLED);
        let stopped = tree.stop.is_some() || how == KILLED;
        self.tell(index, Notice::Ended(how));
        if stopped {
            self.tell(index, Notice::TreeGone);
        }
    }

    /// A notice of the guardian.
    fn tell(&mut self, index: usize, notice: Notice) {
        let Tree { host, process, .. } = self.trees[index];
        let told = self.dice.up_to(self.hosts[host].waking);
        let event = Event::Wake {
            host,
            process,
            wake: Wake::Heard(notice),
        };
        self.after(told, event);
    }

    /// Somebody has killed the guardian, and the kernel the command with it.
    pub(super) fn kill_guardian(&mut self, index: usize) {
        let tree = &mut self.trees[index];
        tree.guardian_gone = true;
        tree.orphaned_at.get_or_insert(self.now);
        self.kill(index);
        self.tell(index, Notice::GuardianGone);
    }

    // --- the supervisor

    pub(super) fn hear(&mut self, host: usize, notice: Notice) {
        let Some(holding) = self.holding(host) else {
            return;
        };
        let tree = holding.tree;
        match notice {
            Notice::Ended(how) => holding.course.ended(how),
            Notice::TreeGone => holding.course.tree_gone(),
            Notice::GuardianGone => {
                // It kills what is left of the tree, and waits for its end.
                return match self.trees[tree].alive {
                    true => self.tell(tree, Notice::GuardianGone),
                    false => self.release(host),
                };
            }
        }
        self.supervise(host);
    }

    /// Does what the course says until it says to wait.
    pub(super) fn supervise(&mut self, host: usize) {
        loop {
            let now = self.local(host);
            let Some(process) = self.hosts[host].process.as_mut() else {
                return;
            };
            let Stage::Holding(holding) = &mut process.stage else {
                return;
            };
            let tree = holding.tree;
            let deadlines = holding.lease.deadlines();
            let step = holding.course.next(now, deadlines);
            if holding.lease.take_change() {
                self.trees[tree].deadline = deadlines.kill_at;
                // Whoever sleeps until a deadline that was moved looks at it then.
                self.at(self.now, Event::Look(tree));
            }
            match step {
                Step::Wait(until) => {
                    if until != BootInstant::NEVER {
                        let at = self.hosts[host].clock.when(until);
                        let woken = self.dice.up_to(self.hosts[host].waking);
                        let set = self
                            .holding(host)
                            .map(|h| std::mem::replace(&mut h.alarm, at));
                        if set != Some(at) {
                            self.wake_at(host, at.saturating_add(woken), Wake::Supervise);
                        }
                    }
                    return;
                }
                Step::Stop { kill_at } => self.stop(tree, kill_at),
                Step::KillTree => {
                    self.trees[tree].guardian_gone = true;
                    if self.trees[tree].alive {
                        self.kill(tree);
                        let killed = self.hosts[host].killing;
                        return self.wake_at(host, self.now + killed, Wake::Supervise);
                    }
                    if let Some(holding) = self.holding(host) {
                        holding.course.tree_gone();
                    }
                    return self.release(host);
                }
                Step::Return(_) => return self.release(host),
            }
        }
    }

    /// An order to stop the tree; it wakes a guardian that somebody has stopped.
    fn stop(&mut self, index: usize, kill_at: BootInstant) {
        self.wake_guardian(self.trees[index].host);
        let tree = &mut self.trees[index];
        let first = tree.stop.is_none();
        tree.stop = Some(tree.stop.map_or(kill_at, |before| before.min(kill_at)));
        if !tree.alive {
            if tree.ordered {
                self.tell(index, Notice::TreeGone);
            }
            return;
        }
        let obedient = self.hosts[self.trees[index].host].obedient;
        if first && self.dice.chance(obedient) {
            self.trees[index].ends.get_or_insert(TERMINATED);
            let most = self.network.ttl / 2;
            let takes = self.dice.up_to(most);
            self.after(takes, Event::Ending(index));
        }
        self.look(index);
    }

    pub(super) fn wake_guardian(&mut self, host: usize) {
        if self.hosts[host].guardian_stopped_until > self.now {
            self.hosts[host].guardian_stopped_until = self.now;
            self.counts.count(Happened::GuardianWoken);
            for index in 0..self.trees.len() {
                if self.trees[index].host == host && self.trees[index].alive {
                    self.at(self.now, Event::Look(index));
                }
            }
        }
    }
}
