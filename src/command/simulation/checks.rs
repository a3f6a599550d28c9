//! What must hold at every instant of a schedule.
//!
//! The deadlines are reckoned here once more, from what is promised and not from the product's rules:
//! from the instant before the last statement whose answer came in time was sent.
//!
//! 1. Whoever trusts its lease has the row, and the row has not expired. So does the holder behind every
//!    command that is alive. (A machine that stands still is excused until it goes on; an acquisition
//!    whose row an operator has deleted or released is excused for good.)
//! 2. So no two holders trust their leases at once, and no two commands are alive at once.
//! 3. A loss is seen at its deadline, not before it, and for good; the supervisor has acted upon it.
//! 4. A command is dead when its deadline says so, and soon after whoever guards it is gone.

use std::time::Duration;

use super::flaw::Invariant::{Deadlines, Exclusion};
use super::host::{Host, margin, safety};
use super::process::Stage;
use super::tree::Tree;
use super::world::World;
use crate::clock::BootInstant;

/// What rounding may cost.
const ROUNDING: Duration = Duration::from_micros(1);

impl Tree {
    /// From when on its lease is lost, and when the command has to be dead.
    pub(super) fn promised(&self, host: &Host) -> (BootInstant, BootInstant) {
        let expiry = self.sent.after(host.timing.ttl);
        match self.rejected_at {
            Some(at) => (at, at.after(host.timing.kill_grace)),
            None => (
                expiry.before(margin(&host.timing)),
                expiry.before(safety(&host.timing)),
            ),
        }
    }
}

impl World {
    pub(super) fn check(&mut self) {
        let mut trusted = 0;
        for host in 0..self.hosts.len() {
            trusted += u32::from(self.check_lease(host));
        }
        let mut alive = 0;
        for tree in 0..self.trees.len() {
            alive += u32::from(self.check_tree(tree));
        }
        if trusted > 1 {
            self.violate(Exclusion, "two holders trust their leases");
        }
        if alive > 1 {
            self.violate(Exclusion, "two commands are alive");
        }
    }

    /// Answers whether the host's lease is trusted.
    fn check_lease(&mut self, index: usize) -> bool {
        let now = self.local(index);
        let at = self.now;
        let host = &mut self.hosts[index];
        let Some(process) = host.process.as_mut() else {
            return false;
        };
        let value = process.value;
        let Stage::Holding(holding) = &mut process.stage else {
            return false;
        };
        let loss = holding.lease.loss(now);
        let before = std::mem::replace(&mut holding.lost, loss);
        let supervised = holding.course.is_lost();
        let tree = &self.trees[holding.tree];
        let host = &self.hosts[index];
        let (stop_at, _) = tree.promised(host);
        let asleep = host.frozen || host.dislock_stopped_until >= at || host.woken_at == at;
        let waking = Duration::from_nanos(host.waking) + ROUNDING;
        let woken_at = host.woken_at.max(host.dislock_stopped_until);
        let overdue = now > stop_at.after(waking) && at > woken_at + host.waking;
        let excused = self.excused.contains(&value);
        if before.is_some() && before != loss {
            self.violate(Deadlines, "a loss was taken back");
        }
        if loss.is_none() && now >= stop_at {
            self.violate(Deadlines, "a loss was not noticed by its deadline");
        }
        if loss.is_some() && now < stop_at {
            self.violate(Deadlines, "a lease was given up before its deadline");
        }
        if overdue && !asleep && !supervised && self.trees_alive_of(value) {
            self.violate(Deadlines, "the supervisor has not acted upon a loss");
        }
        let trusted = loss.is_none();
        if trusted && !excused && !self.database.is_live(value, at) {
            self.violate(
                Exclusion,
                "a holder trusts a lease whose row is not its own any more",
            );
        }
        trusted && !excused
    }

    fn trees_alive_of(&self, value: u64) -> bool {
        self.trees
            .iter()
            .any(|tree| tree.alive && tree.value == value)
    }

    /// Answers whether a command is alive that must be the only one.
    fn check_tree(&mut self, index: usize) -> bool {
        let tree = &self.trees[index];
        let host = &self.hosts[tree.host];
        if !tree.alive || host.frozen {
            return false;
        }
        let now = host.clock.boot(self.now);
        let (_, kill_at) = tree.promised(host);
        let takes = host.killing + host.waking;
        let latest = kill_at.after(Duration::from_nanos(takes) + ROUNDING);
        let too_late = now > latest && self.now > host.woken_at + takes;
        let orphan = tree
            .orphaned_at
            .map(|at| at.max(host.woken_at) + host.killing);
        let excused = tree.overslept || self.excused.contains(&tree.value);
        let live = self.database.is_live(tree.value, self.now);
        if too_late {
            self.violate(Deadlines, "a command outlives its kill deadline");
        }
        if orphan.is_some_and(|until| self.now > until) {
            self.violate(
                Deadlines,
                "a command outlives the end of dislock or its guardian",
            );
        }
        if !live && !excused {
            self.violate(
                Exclusion,
                "a command is alive although its row has expired or is another's",
            );
        }
        !excused
    }

    /// A renewal was answered at `now`; `counted` is what the rule made of it.
    pub(super) fn judge_renewal(
        &mut self,
        index: usize,
        sent: BootInstant,
        now: BootInstant,
        counted: bool,
    ) {
        let tree = &self.trees[index];
        let in_time = now < tree.promised(&self.hosts[tree.host]).0;
        if in_time {
            let tree = &mut self.trees[index];
            tree.sent = tree.sent.max(sent);
        }
        if counted && !in_time {
            self.violate(Deadlines, "an answer counted that came after the loss");
        }
        if !counted && in_time {
            self.violate(Deadlines, "an answer that came in time did not count");
        }
    }

    /// The owner guard's rejection reached the holder at `now`.
    pub(super) fn judge_rejection(&mut self, index: usize, now: BootInstant) {
        let tree = &self.trees[index];
        if now < tree.promised(&self.hosts[tree.host]).0 {
            self.trees[index].rejected_at = Some(now);
        }
    }
}
