//! What breaks in a schedule.

use super::clocks::Nanos;
use super::counts::Happened;
use super::database::Row;
use super::dice::Dice;
use super::world::{Event, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What a host sends is lost, or what it is sent, or both; it cannot tell.
    RequestsCut,
    AnswersCut,
    AllCut,
    /// Connections are refused, or broken at once.
    Refused,
    DatabaseDown,
    RowLocked,
    /// SIGSTOP, or a process that hangs; the others of its host go on.
    DislockStopped,
    GuardianStopped,
    /// The whole machine stands still, as a suspended laptop or a virtual machine that is moved.
    MachineFrozen,
    DislockKilled,
    GuardianKilled,
    MachineRebooted,
    RowDeleted,
    RowReleased,
}

const KINDS: [Kind; 14] = [
    Kind::RequestsCut,
    Kind::AnswersCut,
    Kind::AllCut,
    Kind::Refused,
    Kind::DatabaseDown,
    Kind::RowLocked,
    Kind::DislockStopped,
    Kind::GuardianStopped,
    Kind::MachineFrozen,
    Kind::DislockKilled,
    Kind::GuardianKilled,
    Kind::MachineRebooted,
    Kind::RowDeleted,
    Kind::RowReleased,
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    kind: Kind,
    host: usize,
    /// In TTLs.
    length: f64,
}

impl Fault {
    /// The faults of one schedule. They are of a few kinds only: what goes wrong again and again shows
    /// more than a little of everything.
    pub(super) fn some(dice: &mut Dice, hosts: usize) -> Vec<Self> {
        let kinds: Vec<Kind> = (0..3).map(|_| dice.pick(&KINDS)).collect();
        let hosts: Vec<usize> = (0..hosts).collect();
        let many = dice.up_to(8);
        let fault = |_| Self {
            kind: dice.pick(&kinds),
            host: dice.pick(&hosts),
            // Half of them are over before a lease ends.
            length: match dice.chance(0.5) {
                true => dice.between(0.02, 0.5),
                false => dice.between(0.02, 2.5),
            },
        };
        (0..many).map(fault).collect()
    }
}

/// What lasts until then lasts no shorter for another fault of its kind.
fn lengthen(lasts_until: &mut Nanos, until: Nanos) {
    *lasts_until = until.max(*lasts_until);
}

impl World {
    pub(super) fn begin(&mut self, fault: Fault) {
        let index = fault.host;
        let until = self.now + self.length(fault);
        let now = self.now;
        let host = &mut self.hosts[index];
        let happened = match fault.kind {
            Kind::RequestsCut => {
                lengthen(&mut host.requests_cut_until, until);
                Happened::NetworkCut
            }
            Kind::AnswersCut => {
                lengthen(&mut host.answers_cut_until, until);
                Happened::NetworkCut
            }
            Kind::AllCut => {
                lengthen(&mut host.requests_cut_until, until);
                lengthen(&mut host.answers_cut_until, until);
                Happened::NetworkCut
            }
            Kind::Refused => {
                lengthen(&mut host.refused_until, until);
                Happened::NetworkCut
            }
            Kind::DatabaseDown => {
                lengthen(&mut self.database.down_until, until);
                Happened::DatabaseDown
            }
            Kind::RowLocked => {
                lengthen(&mut self.database.locked_until, until);
                Happened::RowLocked
            }
            // Both at once, while the command goes on, is more than is promised.
            Kind::DislockStopped if host.guardian_stopped_until > now => return,
            Kind::GuardianStopped if host.dislock_stopped_until > now => return,
            Kind::DislockStopped => {
                lengthen(&mut host.dislock_stopped_until, until);
                Happened::DislockStopped
            }
            Kind::GuardianStopped => {
                lengthen(&mut host.guardian_stopped_until, until);
                Happened::GuardianStopped
            }
            Kind::MachineFrozen if host.frozen => return,
            Kind::MachineFrozen => {
                host.frozen = true;
                lengthen(&mut host.frozen_until, until);
                self.at(until, Event::End(fault));
                Happened::MachineFrozen
            }
            Kind::DislockKilled | Kind::GuardianKilled | Kind::MachineRebooted if host.frozen => {
                return;
            }
            Kind::DislockKilled => return self.kill_dislock(index),
            Kind::GuardianKilled => {
                for tree in self.trees_of(index) {
                    self.kill_guardian(tree);
                    self.counts.count(Happened::GuardianKilled);
                }
                return;
            }
            Kind::MachineRebooted => return self.reboot(index),
            Kind::RowDeleted | Kind::RowReleased => {
                let Some(row) = self.database.row else { return };
                self.excused.push(row.value);
                let released = Row {
                    expire_at: self.database.now(now).min(row.expire_at),
                    ..row
                };
                self.database.row = (fault.kind == Kind::RowReleased).then_some(released);
                Happened::OperatorInterfered
            }
        };
        self.counts.count(happened);
    }

    pub(super) fn finish(&mut self, fault: Fault) {
        let host = &mut self.hosts[fault.host];
        host.frozen = false;
        host.woken_at = self.now;
        let now = self.local(fault.host);
        for tree in self.trees_of(fault.host) {
            let (_, kill_at) = self.trees[tree].promised(&self.hosts[fault.host]);
            let tree = &mut self.trees[tree];
            tree.overslept |= now >= kill_at;
            if tree.overslept {
                self.counts.count(Happened::MachineOverslept);
            }
        }
    }

    /// Those of a host that are alive.
    fn trees_of(&self, host: usize) -> Vec<usize> {
        let alive = |tree: &usize| self.trees[*tree].alive && self.trees[*tree].host == host;
        (0..self.trees.len()).filter(alive).collect()
    }

    fn length(&self, fault: Fault) -> Nanos {
        let ttl = std::time::Duration::from_nanos(self.network.ttl);
        super::clocks::nanos(ttl.mul_f64(fault.length))
    }

    fn kill_dislock(&mut self, host: usize) {
        let Some(process) = self.hosts[host].process.as_ref() else {
            return;
        };
        let value = process.value;
        self.counts.count(Happened::DislockKilled);
        for index in 0..self.trees.len() {
            let tree = &mut self.trees[index];
            if tree.value == value {
                tree.orphaned_at.get_or_insert(self.now);
                self.at(self.now, Event::Look(index));
            }
        }
        // The kernel makes a guardian that somebody has stopped go on.
        self.wake_guardian(host);
        self.hosts[host].dislock_stopped_until = self.now;
        self.exit(host);
    }

    fn reboot(&mut self, host: usize) {
        self.counts.count(Happened::MachineRebooted);
        for tree in self.trees.iter_mut().filter(|tree| tree.host == host) {
            tree.fall();
        }
        let machine = &mut self.hosts[host];
        machine.clock.reboot(self.now);
        machine.dislock_stopped_until = self.now;
        machine.guardian_stopped_until = self.now;
        self.exit(host);
    }
}
