//! What happened in the schedules: a simulation in which nothing happens proves nothing.

use std::fmt;

/// Something worth counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Happened {
    Acquired,
    /// The row of a holder that had let it expire was taken by another.
    TakenOver,
    /// An acquisition found its own row, written by an attempt whose answer was lost.
    Recognised,
    FoundBusy,
    GaveUp,
    /// The answer to an acquisition came so late that nothing was started with it.
    AcquiredTooLate,
    Renewed,
    RenewalFailed,
    RenewedTooLate,
    FoundLocked,
    LostByTime,
    LostByRejection,
    CommandStarted,
    CommandEnded,
    CommandObeyed,
    /// By the guardian at the deadline that dislock gave or had to move.
    CommandKilled,
    /// By the guardian because dislock was gone.
    CommandKilledWithDislock,
    CommandNotStarted,
    Released,
    RequestLost,
    AnswerLost,
    AnswerLate,
    StatementStalled,
    DislockKilled,
    DislockStopped,
    GuardianKilled,
    GuardianStopped,
    GuardianWoken,
    MachineFrozen,
    /// A machine stood still past the kill deadline of its command.
    MachineOverslept,
    MachineRebooted,
    NetworkCut,
    DatabaseDown,
    RowLocked,
    OperatorInterfered,
}

use Happened::*;

pub(super) const ALL: [Happened; 35] = [
    Acquired,
    TakenOver,
    Recognised,
    FoundBusy,
    GaveUp,
    AcquiredTooLate,
    Renewed,
    RenewalFailed,
    RenewedTooLate,
    FoundLocked,
    LostByTime,
    LostByRejection,
    CommandStarted,
    CommandEnded,
    CommandObeyed,
    CommandKilled,
    CommandKilledWithDislock,
    CommandNotStarted,
    Released,
    RequestLost,
    AnswerLost,
    AnswerLate,
    StatementStalled,
    DislockKilled,
    DislockStopped,
    GuardianKilled,
    GuardianStopped,
    GuardianWoken,
    MachineFrozen,
    MachineOverslept,
    MachineRebooted,
    NetworkCut,
    DatabaseDown,
    RowLocked,
    OperatorInterfered,
];

pub(super) struct Counts {
    pub(super) schedules: u64,
    pub(super) events: u64,
    of: [u64; ALL.len()],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            schedules: 0,
            events: 0,
            of: [0; ALL.len()],
        }
    }
}

impl Counts {
    pub(super) fn of(&self, what: Happened) -> u64 {
        self.of[what as usize]
    }

    pub(super) fn count(&mut self, what: Happened) {
        self.of[what as usize] += 1;
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.schedules += more.schedules;
        self.events += more.events;
        for (sum, more) in self.of.iter_mut().zip(more.of) {
            *sum += more;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} schedules, {} events", self.schedules, self.events)?;
        for what in ALL {
            writeln!(f, "{:>12}  {what:?}", self.of(what))?;
        }
        Ok(())
    }
}
