//! Asking for the lease, until it is held or there is no reason to go on: what `db/acquire.rs` does.

use std::time::Duration;

use super::counts::Happened;
use super::database::{Answer, Statement, Value};
use super::lease::Lease;
use super::process::{Holding, Stage, Wake};
use super::tree::Tree;
use super::world::{Event, World};
use crate::clock::BootInstant;
use crate::command::course::{Course, Terminal};
use crate::db::keeper::RELEASE;
use crate::rules::retry::{Backoff, FailureClass, classify, wait_pause};

impl World {
    pub(super) fn ask(&mut self, host: usize) {
        let ttl = self.hosts[host].timing.ttl;
        let limit = Duration::from_nanos(self.dice.up_to(self.network.ttl) + 10_000_000);
        let Some(process) = self.process(host) else {
            return;
        };
        if matches!(process.stage, Stage::Asking { .. }) {
            let value = process.value;
            self.prepare(host, Statement::Acquire { value, ttl }, limit);
        }
    }

    pub(super) fn asked(&mut self, host: usize, answer: Option<Answer>) {
        let now = self.local(host);
        let sample = self.dice.share();
        let (timing, flaw) = (self.hosts[host].timing, self.flaw);
        let Some(process) = self.process(host) else {
            return;
        };
        let (value, sent) = (process.value, process.sent);
        let Stage::Asking {
            wait_until,
            retry_until,
            in_doubt,
        } = &mut process.stage
        else {
            return;
        };
        *in_doubt = match answer {
            None => true,
            // It says nothing of an earlier attempt.
            Some(Answer::Error(_)) => *in_doubt,
            Some(_) => false,
        };
        match answer {
            Some(Answer::Taken { .. }) => {
                let lease = Lease::begin(timing, sent, now, flaw);
                if lease.loss(now).is_none() {
                    return self.hold(host, value, lease, sent);
                }
                // Once more: the row is ours, and its value says so.
                *in_doubt = true;
                self.counts.count(Happened::AcquiredTooLate);
            }
            Some(Answer::Busy { expires_in }) => {
                *retry_until = (*wait_until).max(now);
                let pause = wait_pause(wait_until.left(now), Some(expires_in), sample);
                self.counts.count(Happened::FoundBusy);
                return match pause {
                    Some(pause) => self.wake_after(host, pause, Wake::Ask),
                    None => self.give_up(host),
                };
            }
            _ => {}
        }
        let Some(process) = self.process(host) else {
            return;
        };
        let Stage::Asking { retry_until, .. } = process.stage else {
            return;
        };
        let class = match answer {
            Some(Answer::Error(sqlstate)) => classify(sqlstate),
            _ => FailureClass::Passing,
        };
        let pause = match class {
            FailureClass::Passing => process.backoff.pause(retry_until.left(now), sample),
            FailureClass::Permanent => None,
        };
        match pause {
            Some(pause) => self.wake_after(host, pause, Wake::Ask),
            None => self.give_up(host),
        }
    }

    /// Ends without a lease; what may have been taken is given back.
    fn give_up(&mut self, host: usize) {
        self.counts.count(Happened::GaveUp);
        let Some(process) = self.process(host) else {
            return;
        };
        let value = process.value;
        match process.stage {
            Stage::Asking { in_doubt: true, .. } => {
                process.stage = Stage::Releasing;
                self.prepare(host, Statement::Expire { value }, RELEASE);
            }
            Stage::Asking { .. } | Stage::Holding(_) | Stage::Releasing => self.exit(host),
        }
    }

    fn hold(&mut self, host: usize, value: Value, lease: Lease, sent: BootInstant) {
        self.counts.count(Happened::Acquired);
        let Some(process) = self.hosts[host].process.as_ref() else {
            return;
        };
        let tree = Tree::new(host, process.number, value, lease.deadlines().kill_at, sent);
        let grace = self.hosts[host].timing.kill_grace;
        let turn = self.new_number();
        let (renew_at, index) = (lease.renew_at(), self.trees.len());
        self.trees.push(tree);
        if let Some(process) = self.process(host) {
            process.backoff = Backoff::default();
            process.stage = Stage::Holding(Box::new(Holding {
                lease,
                course: Course::new(grace, Terminal::None),
                tree: index,
                turn,
                alarm: 0,
                lost: None,
            }));
        }
        let due = self.hosts[host].clock.when(renew_at);
        self.wake_at(host, due, Wake::Renew { turn });
        let longest = match self.dice.chance(0.1) {
            true => 2 * self.network.ttl,
            false => 5_000_000,
        };
        let spawning = self.dice.up_to(longest);
        self.after(spawning, Event::Spawn(index));
        self.supervise(host);
    }
}
