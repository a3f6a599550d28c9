//! The machines of a schedule, and what they are like.

use std::time::Duration;

use super::clocks::{Clock, Nanos, nanos};
use super::faults::Fault;
use super::flaw::Flaw;
use super::process::Process;
use super::world::{Event, World};
use crate::rules::lease::LeaseTiming;

/// No clock is worse, in billionths: NTP corrects more than that, and a crystal without it is better.
const MOST_DRIFT: f64 = 200_000.0;
/// What the safety between the kill and the row's expiry is spent on.
const FOR_DRIFT: f64 = 0.45;
const FOR_KILLING: f64 = 0.35;
const FOR_WAKING: f64 = 0.1;

pub(super) struct Host {
    pub(super) clock: Clock,
    pub(super) timing: LeaseTiming,
    pub(super) process: Option<Process>,
    /// How long a process takes at most to act on an alarm, and a tree to be dead once it is killed.
    pub(super) waking: Nanos,
    pub(super) killing: Nanos,
    /// Whether its commands end when they are told to.
    pub(super) obedient: f64,
    /// The whole machine stands still: dislock, the guardian and the command; its clock runs on.
    pub(super) frozen: bool,
    pub(super) frozen_until: Nanos,
    /// When it last went on.
    pub(super) woken_at: Nanos,
    pub(super) dislock_stopped_until: Nanos,
    pub(super) guardian_stopped_until: Nanos,
    pub(super) requests_cut_until: Nanos,
    pub(super) answers_cut_until: Nanos,
    /// Connections are refused, or broken at once.
    pub(super) refused_until: Nanos,
}

/// What is kept of the TTL for stopping; said here once more, since the product's word is in question.
pub(super) fn margin(timing: &LeaseTiming) -> Duration {
    let share = timing.ttl.saturating_sub(timing.interval) / 2;
    timing.kill_grace.min(timing.ttl / 3).min(share)
}

/// What is kept between the kill and the row's expiry.
pub(super) fn safety(timing: &LeaseTiming) -> Duration {
    Duration::from_millis(250).min(margin(timing) / 4)
}

impl World {
    /// Makes the hosts, their clocks and the faults of this schedule.
    pub(super) fn furnish(&mut self) {
        let ttl = Duration::from_secs_f64(0.2 * 600_f64.powf(self.dice.share()));
        let timings: Vec<LeaseTiming> = (0..self.dice.pick(&[2, 2, 3, 4]))
            .map(|_| self.timing(ttl))
            .collect();
        let drifts = timings.iter().map(|timing| {
            let covered = safety(timing).as_secs_f64() / timing.ttl.as_secs_f64() * 1e9;
            // Between two clocks, each of which may go either way.
            match self.flaw {
                Some(Flaw::ClocksDriftTooFar) => covered * 2.0,
                _ => (covered * FOR_DRIFT / 2.0).min(MOST_DRIFT),
            }
        });
        let drift = drifts.fold(f64::MAX, f64::min);
        self.network.ttl = nanos(ttl);
        self.end = self.network.ttl * 8;
        self.database.clock = self.clock(drift);
        for timing in timings {
            let clock = self.clock(drift);
            let part = |share| nanos(safety(&timing).mul_f64(share));
            let host = Host {
                clock,
                timing,
                process: None,
                waking: part(FOR_WAKING).min(1_000_000),
                killing: part(FOR_KILLING),
                obedient: self.dice.pick(&[0.0, 0.5, 1.0]),
                frozen: false,
                frozen_until: 0,
                woken_at: 0,
                dislock_stopped_until: 0,
                guardian_stopped_until: 0,
                requests_cut_until: 0,
                answers_cut_until: 0,
                refused_until: 0,
            };
            let first = self.dice.up_to(self.network.ttl);
            self.at(first, Event::Start(self.hosts.len()));
            self.hosts.push(host);
        }
        self.network.loss = self.dice.pick(&[0.0, 0.0, 0.02, 0.2]);
        self.network.slow = self.dice.pick(&[0.0, 0.02, 0.2, 0.5]);
        self.network.stall = self.dice.pick(&[0.0, 0.0, 0.02, 0.2]);
        self.network.error = self.dice.pick(&[0.0, 0.0, 0.02, 0.2]);
        for fault in Fault::some(&mut self.dice, self.hosts.len()) {
            let at = self.dice.up_to(self.end);
            self.at(at, Event::Fault(fault));
        }
    }

    fn timing(&mut self, ttl: Duration) -> LeaseTiming {
        // Hosts need not agree.
        let ttl = match self.dice.chance(0.2) {
            true => ttl.mul_f64(self.dice.between(0.5, 2.0)),
            false => ttl,
        };
        let interval = match self.dice.pick(&[0, 0, 0, 1, 1, 2]) {
            0 => LeaseTiming::default_interval(ttl).max(ttl / 20),
            1 => ttl.mul_f64(self.dice.between(0.05, 1.0)),
            _ => ttl,
        };
        let kill_grace = match self.dice.pick(&[0, 0, 0, 1, 1, 2]) {
            0 => Duration::from_secs(10),
            1 => ttl.mul_f64(self.dice.between(0.01, 1.0)),
            _ => Duration::ZERO,
        };
        LeaseTiming {
            ttl,
            interval,
            kill_grace,
        }
    }

    fn clock(&mut self, drift: f64) -> Clock {
        let share = self.dice.pick(&[-1.0, 0.0, 1.0, 2.0]);
        let share = if share > 1.0 {
            self.dice.between(-1.0, 1.0)
        } else {
            share
        };
        #[expect(clippy::cast_possible_truncation, reason = "a drift is a small number")]
        let drift = (drift * share) as i64;
        Clock::new(self.dice.up_to(1_000_000_000_000), drift)
    }
}
