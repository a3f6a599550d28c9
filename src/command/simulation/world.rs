//! Everything there is in a schedule, and how time passes in it: one event after the other.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Violation;
use super::clocks::{Clock, Nanos, nanos};
use super::counts::{Counts, Happened};
use super::database::{Answer, Database, Statement, Value};
use super::dice::Dice;
use super::faults::Fault;
use super::flaw::{Flaw, Invariant};
use super::host::Host;
use super::process::{Message, Wake};
use super::tree::Tree;
use crate::clock::BootInstant;

/// More events than any schedule has that does not go round in circles.
const MOST_EVENTS: u64 = 20_000;
/// Nothing crosses a network in less.
const SHORTEST_DELAY: Nanos = 20_000;

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// It is time for the job on this host.
    Start(usize),
    /// Something reaches a process, if it still is there.
    Wake {
        host: usize,
        process: u64,
        wake: Wake,
    },
    /// A statement reaches the database, and starts.
    Arrival(Message),
    /// It takes effect; it started when `NOW()` was that.
    Effect(Message, Nanos),
    /// The guardian is told to start the command.
    Spawn(usize),
    /// The guardian looks at its deadlines.
    Look(usize),
    /// The command ends by itself.
    Ending(usize),
    /// What was killed is dead.
    Death(usize),
    Fault(Fault),
    /// What was stopped or frozen by this fault goes on.
    End(Fault),
}

struct Entry {
    at: Nanos,
    /// What happens at the same instant happens in any order.
    tie: Nanos,
    number: u64,
    event: Event,
}

impl Entry {
    fn key(&self) -> (Nanos, Nanos, u64) {
        (self.at, self.tie, self.number)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) now: Nanos,
    pub(super) end: Nanos,
    pub(super) dice: Dice,
    pub(super) database: Database,
    pub(super) hosts: Vec<Host>,
    /// One for every acquisition.
    pub(super) trees: Vec<Tree>,
    /// Whose rows an operator has deleted or released: for them nothing is promised.
    pub(super) excused: Vec<Value>,
    pub(super) flaw: Option<Flaw>,
    pub(super) counts: Counts,
    pub(super) network: Network,
    queue: BinaryHeap<Entry>,
    numbers: u64,
    pub(super) violation: Option<String>,
    trace: Option<Vec<String>>,
}

/// How bad the network and the database are in this schedule.
pub(super) struct Network {
    pub(super) loss: f64,
    pub(super) slow: f64,
    pub(super) stall: f64,
    pub(super) error: f64,
    /// What "slow" is measured by.
    pub(super) ttl: Nanos,
}

impl World {
    pub(super) fn new(seed: u64, flaw: Option<Flaw>, traced: bool) -> Self {
        let mut world = Self {
            seed,
            now: 0,
            end: 0,
            dice: Dice::new(seed),
            database: Database {
                clock: Clock::new(0, 0),
                row: None,
                locked_until: 0,
                down_until: 0,
                flaw,
            },
            hosts: Vec::new(),
            trees: Vec::new(),
            excused: Vec::new(),
            flaw,
            counts: Counts::default(),
            network: Network {
                loss: 0.0,
                slow: 0.0,
                stall: 0.0,
                error: 0.0,
                ttl: 0,
            },
            queue: BinaryHeap::new(),
            numbers: 0,
            violation: None,
            trace: traced.then(Vec::new),
        };
        world.furnish();
        world
    }

    /// Lets everything happen that happens before the end.
    pub(super) fn run(mut self) -> Result<Counts, Violation> {
        while let Some(entry) = self.queue.pop().filter(|entry| entry.at <= self.end) {
            self.now = entry.at;
            self.counts.events += 1;
            // What held until now must have held until this very instant.
            self.check();
            self.happen(entry.event);
            self.check();
            if self.counts.events > MOST_EVENTS {
                self.violation = Some("the schedule does not come to an end".to_owned());
            }
            if let Some(what) = self.violation {
                return Err(Violation {
                    seed: self.seed,
                    what,
                    trace: self.trace.unwrap_or_default(),
                });
            }
        }
        self.counts.schedules = 1;
        Ok(self.counts)
    }

    fn happen(&mut self, event: Event) {
        if let Some(until) = self.held_up_until(event) {
            return self.at(until, event);
        }
        self.note(|| format!("{event:?}"));
        match event {
            Event::Start(host) => self.start(host),
            Event::Wake {
                host,
                process,
                wake,
            } => {
                let there = self.hosts[host].process.as_ref();
                if there.is_some_and(|there| there.number == process) {
                    self.wake(host, wake);
                }
            }
            Event::Arrival(message) => self.arrive(message),
            Event::Effect(message, started) => self.take_effect(message, started),
            Event::Spawn(tree) => self.spawn(tree),
            Event::Look(tree) => self.look(tree),
            Event::Ending(tree) => self.ending(tree),
            Event::Death(tree) => self.death(tree),
            Event::Fault(fault) => self.begin(fault),
            Event::End(fault) => self.finish(fault),
        }
    }

    /// Until when nothing of the kind happens, because the machine is frozen or a process stopped.
    fn held_up_until(&self, event: Event) -> Option<Nanos> {
        let held_up = match event {
            Event::Start(host) => self.hosts[host].frozen_until,
            Event::Wake { host, .. } => {
                let host = &self.hosts[host];
                host.frozen_until.max(host.dislock_stopped_until)
            }
            Event::Spawn(tree) | Event::Look(tree) => {
                let host = &self.hosts[self.trees[tree].host];
                host.frozen_until.max(host.guardian_stopped_until)
            }
            Event::Ending(tree) | Event::Death(tree) => {
                self.hosts[self.trees[tree].host].frozen_until
            }
            Event::Arrival(_) | Event::Effect(..) | Event::Fault(_) | Event::End(_) => 0,
        };
        (held_up > self.now).then_some(held_up)
    }

    pub(super) fn at(&mut self, at: Nanos, event: Event) {
        // The end of a fault comes before all that waits for it.
        let tie = if matches!(event, Event::End(_)) {
            0
        } else {
            1 + self.dice.up_to(1000)
        };
        self.numbers += 1;
        self.queue.push(Entry {
            at: at.max(self.now),
            tie,
            number: self.numbers,
            event,
        });
    }

    pub(super) fn after(&mut self, delay: Nanos, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    pub(super) fn new_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// What the host's clock shows.
    pub(super) fn local(&self, host: usize) -> BootInstant {
        self.hosts[host].clock.boot(self.now)
    }

    pub(super) fn violate(&mut self, invariant: Invariant, what: &str) {
        let looked_for = self.flaw.is_none_or(|flaw| flaw.violates() == invariant);
        if self.violation.is_none() && looked_for {
            self.note(|| format!("VIOLATION: {what}"));
            self.violation = Some(what.to_owned());
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let at = Duration::from_nanos(self.now).as_secs_f64();
            trace.push(format!("{at:>14.6} {}", what()));
        }
    }

    // --- the network, and the database behind it

    /// A message leaves a process: it arrives later, or never.
    pub(super) fn send(&mut self, message: Message) {
        let host = &self.hosts[message.host];
        if host.refused_until > self.now {
            let delay = self.delay();
            return self.reply(message, Answer::Error("08006"), delay);
        }
        if host.requests_cut_until > self.now || self.dice.chance(self.network.loss) {
            return self.counts.count(Happened::RequestLost);
        }
        let delay = self.delay();
        self.after(delay, Event::Arrival(message));
    }

    fn arrive(&mut self, message: Message) {
        if self.database.down_until > self.now {
            let code = self.dice.pick(&["57P03", "57P01", "08006"]);
            return self.answer(message, Answer::Error(code));
        }
        if self.dice.chance(self.network.error) {
            let code = self
                .dice
                .pick(&["40001", "40P01", "53300", "57014", "25006"]);
            return self.answer(message, Answer::Error(code));
        }
        let started = self.database.now(self.now);
        let locked = self.database.locked_until > self.now;
        let mut stall = 0;
        if self.dice.chance(self.network.stall) {
            self.counts.count(Happened::StatementStalled);
            stall = self.delay() + self.dice.up_to(self.network.ttl);
        }
        if locked {
            match message.statement {
                // It skips rows that are locked.
                Statement::Renew { .. } => return self.answer(message, Answer::Locked),
                Statement::Acquire { .. } | Statement::Expire { .. } => {
                    stall = stall.max(self.database.locked_until - self.now);
                }
            }
        }
        self.after(stall, Event::Effect(message, started));
    }

    fn take_effect(&mut self, message: Message, started: Nanos) {
        let before = self.database.row;
        let answer = self.database.execute(message.statement, started);
        if let (Answer::Taken { again }, Statement::Acquire { value, .. }) =
            (answer, message.statement)
        {
            let gave_up = |value| !self.trees.iter().any(|t| t.value == value && t.released);
            match before {
                _ if again => self.counts.count(Happened::Recognised),
                Some(row) if row.value != value && gave_up(row.value) => {
                    self.counts.count(Happened::TakenOver);
                }
                _ => {}
            }
        }
        self.answer(message, answer);
    }

    fn answer(&mut self, message: Message, answer: Answer) {
        if self.hosts[message.host].answers_cut_until > self.now
            || self.dice.chance(self.network.loss)
        {
            return self.counts.count(Happened::AnswerLost);
        }
        let delay = self.delay();
        if delay > self.network.ttl / 4 {
            self.counts.count(Happened::AnswerLate);
        }
        self.reply(message, answer, delay);
    }

    fn reply(&mut self, message: Message, answer: Answer, delay: Nanos) {
        let Message {
            host,
            process,
            attempt,
            ..
        } = message;
        let wake = Wake::Answered { attempt, answer };
        let event = Event::Wake {
            host,
            process,
            wake,
        };
        self.after(delay, event);
    }

    fn delay(&mut self) -> Nanos {
        let most = if self.dice.chance(self.network.slow) {
            // Late, or so late that it is of no use to anybody.
            let times = self.dice.pick(&[0.3, 1.0, 2.5]);
            nanos(Duration::from_nanos(self.network.ttl).mul_f64(times))
        } else {
            (self.network.ttl / 100).min(5_000_000)
        };
        SHORTEST_DELAY + self.dice.up_to(most)
    }
}
