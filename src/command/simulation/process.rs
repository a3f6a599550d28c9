//! A dislock process on a host: the attempts that it makes, its renewals, and its release.
//!
//! What `db/heartbeat.rs` does around its statement, in the same order, with the product's own rules for
//! when and how long.

use std::time::Duration;

use super::clocks::Nanos;
use super::counts::Happened;
use super::database::{Answer, Statement, Value};
use super::flaw::Flaw;
use super::lease::Lease;
use super::world::{Event, World};
use crate::clock::BootInstant;
use crate::command::course::Course;
use crate::command::kernel::Status;
use crate::db::keeper::RELEASE;
use crate::rules::lease::{Loss, batch_limit};
use crate::rules::retry::Backoff;

/// A statement under way, or its answer's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) host: usize,
    pub(super) process: u64,
    pub(super) attempt: u64,
    pub(super) statement: Statement,
}

/// What reaches a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    /// It comes to send the statement that it has prepared.
    Send {
        attempt: u64,
        statement: Statement,
    },
    Answered {
        attempt: u64,
        answer: Answer,
    },
    TimedOut {
        attempt: u64,
    },
    /// The pause before asking again is over.
    Ask,
    /// A renewal is due, unless there was another since.
    Renew {
        turn: u64,
    },
    /// The supervisor's alarm, or something to hear.
    Supervise,
    Heard(Notice),
}

/// What the guardian says, by its silence at last.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notice {
    Ended(Status),
    TreeGone,
    GuardianGone,
}

pub(super) struct Process {
    pub(super) number: u64,
    pub(super) value: Value,
    /// The attempt that is waited for; zero for none.
    pub(super) attempt: u64,
    /// Just before its statement was sent.
    pub(super) sent: BootInstant,
    pub(super) backoff: Backoff,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    Asking {
        wait_until: BootInstant,
        retry_until: BootInstant,
        in_doubt: bool,
    },
    Holding(Box<Holding>),
    Releasing,
}

pub(super) struct Holding {
    pub(super) lease: Lease,
    pub(super) course: Course,
    pub(super) tree: usize,
    /// Which renewal is next.
    pub(super) turn: u64,
    /// For when the supervisor's alarm is set.
    pub(super) alarm: Nanos,
    /// What was seen of a loss before.
    pub(super) lost: Option<Loss>,
}

impl World {
    pub(super) fn start(&mut self, host: usize) {
        if self.hosts[host].process.is_some() {
            return;
        }
        let ttl = self.network.ttl;
        let now = self.local(host);
        let wait = match self.dice.pick(&[0, 1, 2]) {
            0 => Duration::ZERO,
            1 => Duration::from_nanos(self.dice.up_to(3 * ttl)),
            _ => Duration::MAX,
        };
        let retry = Duration::from_nanos(self.dice.up_to(ttl));
        let number = self.new_number();
        self.hosts[host].process = Some(Process {
            number,
            value: number,
            attempt: 0,
            sent: now,
            backoff: Backoff::default(),
            stage: Stage::Asking {
                wait_until: now.after(wait),
                retry_until: now.after(retry),
                in_doubt: false,
            },
        });
        self.ask(host);
    }

    pub(super) fn wake(&mut self, host: usize, wake: Wake) {
        match wake {
            Wake::Send { attempt, statement } => self.send_prepared(host, attempt, statement),
            Wake::Ask => self.ask(host),
            Wake::Renew { turn } => {
                if self
                    .holding(host)
                    .is_some_and(|holding| holding.turn == turn)
                {
                    self.renew(host);
                }
            }
            Wake::Answered { attempt, answer } => {
                if self.forget_attempt(host, attempt) {
                    self.answered(host, Some(answer));
                }
            }
            Wake::TimedOut { attempt } => {
                if self.forget_attempt(host, attempt) {
                    self.answered(host, None);
                }
            }
            Wake::Supervise => self.supervise(host),
            Wake::Heard(notice) => self.hear(host, notice),
        }
    }

    pub(super) fn process(&mut self, host: usize) -> Option<&mut Process> {
        self.hosts[host].process.as_mut()
    }

    pub(super) fn holding(&mut self, host: usize) -> Option<&mut Holding> {
        match &mut self.process(host)?.stage {
            Stage::Holding(holding) => Some(holding),
            Stage::Asking { .. } | Stage::Releasing => None,
        }
    }

    pub(super) fn wake_after(&mut self, host: usize, pause: Duration, wake: Wake) {
        let at = self.hosts[host].clock.when(self.local(host).after(pause));
        self.wake_at(host, at, wake);
    }

    pub(super) fn wake_at(&mut self, host: usize, at: Nanos, wake: Wake) {
        if let Some(process) = self.process(host).map(|process| process.number) {
            self.at(
                at,
                Event::Wake {
                    host,
                    process,
                    wake,
                },
            );
        }
    }

    /// Reads the clock, then sends; what lies between the two can take its time.
    pub(super) fn prepare(&mut self, host: usize, statement: Statement, limit: Duration) {
        let attempt = self.new_number();
        let gap = match self.dice.chance(0.05) {
            true => Duration::from_nanos(self.dice.up_to(self.network.ttl / 2)),
            false => Duration::from_nanos(self.dice.up_to(100_000)),
        };
        let now = self.local(host);
        let (sent, gap) = match self.flaw {
            Some(Flaw::RenewalCountsFromTheClockAfterwards) => (now.after(gap), Duration::ZERO),
            _ => (now, gap),
        };
        if let Some(process) = self.process(host) {
            process.attempt = attempt;
            process.sent = sent;
        }
        self.wake_after(host, gap, Wake::Send { attempt, statement });
        self.wake_after(host, limit, Wake::TimedOut { attempt });
    }

    fn send_prepared(&mut self, host: usize, attempt: u64, statement: Statement) {
        let Some(process) = self.process(host) else {
            return;
        };
        if process.attempt == attempt {
            let process = process.number;
            self.send(Message {
                host,
                process,
                attempt,
                statement,
            });
        }
    }

    /// Whether the attempt is still waited for; from here on it is not.
    fn forget_attempt(&mut self, host: usize, attempt: u64) -> bool {
        self.process(host).is_some_and(|process| {
            let waited_for = process.attempt == attempt;
            if waited_for {
                process.attempt = 0;
            }
            waited_for
        })
    }

    /// What an attempt came to; `None` when it was given up.
    fn answered(&mut self, host: usize, answer: Option<Answer>) {
        match self.process(host).map(|process| &process.stage) {
            Some(Stage::Asking { .. }) => self.asked(host, answer),
            Some(Stage::Holding(_)) => self.tried_to_renew(host, answer),
            Some(Stage::Releasing) => self.exit(host),
            None => {}
        }
    }

    // --- renewing it

    fn renew(&mut self, host: usize) {
        let now = self.local(host);
        let ttl = self.hosts[host].timing.ttl;
        let Some(process) = self.process(host) else {
            return;
        };
        let value = process.value;
        let Stage::Holding(holding) = &mut process.stage else {
            return;
        };
        if holding.lease.loss(now) == Some(Loss::Expired) {
            return self.counts.count(Happened::LostByTime);
        }
        let left = holding.lease.deadlines().stop_at.left(now);
        let limit = batch_limit([left].into_iter());
        self.prepare(host, Statement::Renew { value, ttl }, limit);
    }

    fn tried_to_renew(&mut self, host: usize, answer: Option<Answer>) {
        let now = self.local(host);
        let sample = self.dice.share();
        let turn = self.new_number();
        let Some(process) = self.process(host) else {
            return;
        };
        let (sent, mut backoff) = (process.sent, process.backoff);
        let Stage::Holding(holding) = &mut process.stage else {
            return;
        };
        holding.turn = turn;
        let tree = holding.tree;
        let left = holding.lease.deadlines().stop_at.left(now);
        let next = match answer {
            Some(Answer::Done) => {
                let counted = holding.lease.renewed(sent, now);
                backoff = Backoff::default();
                let at = holding.lease.renew_at();
                self.judge_renewal(tree, sent, now, counted);
                self.counts.count(match counted {
                    true => Happened::Renewed,
                    false => Happened::RenewedTooLate,
                });
                counted.then_some(at)
            }
            Some(Answer::NotOurs) => {
                holding.lease.rejected(now);
                self.judge_rejection(tree, now);
                self.counts.count(Happened::LostByRejection);
                match self.flaw {
                    Some(Flaw::RejectionIsRetried) => Some(now.after(Duration::from_millis(100))),
                    _ => None,
                }
            }
            Some(Answer::Locked) => {
                self.counts.count(Happened::FoundLocked);
                backoff.pause(left, sample).map(|pause| now.after(pause))
            }
            _ => {
                self.counts.count(Happened::RenewalFailed);
                let pause = backoff.pause(left, sample).unwrap_or(Duration::ZERO);
                Some(now.after(pause))
            }
        };
        if let Some(process) = self.process(host) {
            process.backoff = backoff;
        }
        if let Some(at) = next {
            let due = self.hosts[host].clock.when(at);
            self.wake_at(host, due, Wake::Renew { turn });
        }
        // Every change wakes the supervisor.
        let told = self.dice.up_to(self.hosts[host].waking);
        self.wake_at(host, self.now + told, Wake::Supervise);
    }

    // --- letting it go

    pub(super) fn release(&mut self, host: usize) {
        let now = self.local(host);
        let heedless = self.flaw == Some(Flaw::ReleaseHasNoOwnerGuard);
        let Some(process) = self.process(host) else {
            return;
        };
        let value = process.value;
        let Stage::Holding(holding) = &mut process.stage else {
            return;
        };
        let loss = holding.lease.end(now);
        let tree = holding.tree;
        if loss.is_some() && !heedless {
            return self.exit(host);
        }
        process.stage = Stage::Releasing;
        self.trees[tree].released = true;
        self.counts.count(Happened::Released);
        self.prepare(host, Statement::Expire { value }, RELEASE);
    }

    pub(super) fn exit(&mut self, host: usize) {
        self.hosts[host].process = None;
        let again = self.dice.up_to(self.network.ttl);
        self.after(again, Event::Start(host));
    }
}
