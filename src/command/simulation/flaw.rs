//! What the simulation has to find: mistakes that can be built into the rule, the database or the
//! guardian of a simulated world.

/// What a violation is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invariant {
    /// Whoever trusts its lease, or runs a command under it, has the row, alone.
    Exclusion,
    /// Losses are seen, and commands dead, when they have to be.
    Deadlines,
}

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A lease counts from its answer, not from before its statement was sent.
    DeadlineCountsFromTheAnswer,
    /// The clock is read when the statement leaves, after a pause perhaps; not before.
    RenewalCountsFromTheClockAfterwards,
    /// A renewal that is answered after the loss brings the lease back.
    LateAnswerCounts,
    /// The owner guard's "not yours" is taken for a failure that may pass.
    RejectionIsRetried,
    /// The tree is killed a moment after the row's expiry instead of before.
    KillComesAfterTheExpiry,
    /// The loss is seen only a tenth of the TTL after `stop_at`.
    LossIsNoticedLate,
    RenewalHasNoOwnerGuard,
    ReleaseHasNoOwnerGuard,
    AcquisitionIgnoresExpiry,
    /// A dislock that is stopped leaves its command alone with nobody who knows the deadline.
    GuardianKnowsNoDeadline,
    /// The command outlives a dislock that was killed.
    GuardianDoesNotNoticeTheEndOfDislock,
    /// The hosts' clocks drift further than the safety before the expiry covers.
    ClocksDriftTooFar,
}

impl Flaw {
    /// What it has to violate. That a wrong deadline differs from the right one is no news; that it lets
    /// two holders in is.
    pub(super) fn violates(self) -> Invariant {
        match self {
            // Those who make these mistakes know their deadlines nevertheless.
            Self::LateAnswerCounts | Self::RejectionIsRetried => Invariant::Deadlines,
            Self::DeadlineCountsFromTheAnswer
            | Self::RenewalCountsFromTheClockAfterwards
            | Self::KillComesAfterTheExpiry
            | Self::LossIsNoticedLate
            | Self::RenewalHasNoOwnerGuard
            | Self::ReleaseHasNoOwnerGuard
            | Self::AcquisitionIgnoresExpiry
            | Self::GuardianKnowsNoDeadline
            | Self::GuardianDoesNotNoticeTheEndOfDislock
            | Self::ClocksDriftTooFar => Invariant::Exclusion,
        }
    }
}
