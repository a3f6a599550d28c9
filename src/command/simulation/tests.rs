//! The schedules that `cargo test` runs, and proof that mistakes are found in them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::counts::{ALL, Counts, Happened};
use super::flaw::Flaw;
use super::{Violation, simulate};

const FEW: u64 = 1_000;
/// Of how much of an event a run of so many schedules has to have at least one.
const PER_OCCURRENCE: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("the variable has to be a number"))
}

/// All that happened until the violation, for whoever has to find its cause.
fn explain(violation: &Violation) -> String {
    let Violation { seed, what, .. } = violation;
    let trace = match simulate(*seed, None, true) {
        Err(traced) => traced.trace,
        Ok(_) => Vec::new(),
    };
    let from = trace.len().saturating_sub(80);
    format!(
        "schedule {seed}: {what}\n{}\nRepeat it with DISLOCK_SIMULATION_SEED={seed} \
         DISLOCK_SIMULATION_SCHEDULES=1",
        trace[from..].join("\n")
    )
}

/// Schedules `from..from + many`, on all processors.
fn run(from: u64, many: u64) -> Result<Counts, Violation> {
    const SHARE: u64 = 500;
    let next = AtomicU64::new(from);
    let work = || {
        let mut counts = Counts::default();
        loop {
            let first = next.fetch_add(SHARE, Ordering::Relaxed);
            if first >= from + many {
                return Ok(counts);
            }
            for seed in first..(first + SHARE).min(from + many) {
                counts.add(&simulate(seed, None, false)?);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    let mut sum = Counts::default();
    for outcome in outcomes {
        sum.add(&outcome?);
    }
    Ok(sum)
}

#[test]
fn no_schedule_lets_two_holders_trust_their_leases_or_two_commands_live() {
    let schedules = number("DISLOCK_SIMULATION_SCHEDULES").unwrap_or(FEW);
    let seed = number("DISLOCK_SIMULATION_SEED").unwrap_or(0);
    if schedules == 1 {
        match simulate(seed, None, true) {
            Ok(counts) => println!("{counts}"),
            Err(violation) => panic!("{}", violation.trace.join("\n")),
        }
        return;
    }
    let counts = match run(seed, schedules) {
        Ok(counts) => counts,
        Err(violation) => panic!("{}", explain(&violation)),
    };
    println!("{counts}");
    if schedules >= FEW {
        for what in ALL {
            let least = schedules / PER_OCCURRENCE;
            let seen = counts.of(what);
            assert!(
                seen >= least,
                "{what:?}: {seen} times in {schedules} schedules"
            );
        }
        // Most of what happens has to be what dislock is for.
        for what in [
            Happened::Acquired,
            Happened::Renewed,
            Happened::CommandStarted,
        ] {
            assert!(
                counts.of(what) >= schedules,
                "{what:?}: {}",
                counts.of(what)
            );
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_schedule() {
    for seed in 0..20 {
        let counts = || simulate(seed, None, false).map_or(String::new(), |c| c.to_string());
        assert_eq!(counts(), counts());
    }
}

/// Asserts that the schedules show this mistake.
#[track_caller]
fn assert_found(flaw: Flaw) {
    const SCHEDULES: u64 = 2_000;
    let found = (0..SCHEDULES).find_map(|seed| simulate(seed, Some(flaw), false).err());
    match found {
        Some(violation) => println!("{flaw:?}: schedule {}: {}", violation.seed, violation.what),
        None => panic!("{flaw:?} was not found in {SCHEDULES} schedules"),
    }
}

#[test]
fn a_deadline_that_counts_from_the_answer_is_found() {
    assert_found(Flaw::DeadlineCountsFromTheAnswer);
}

#[test]
fn a_clock_that_is_read_after_the_send_is_found() {
    assert_found(Flaw::RenewalCountsFromTheClockAfterwards);
}

#[test]
fn a_late_answer_that_counts_is_found() {
    assert_found(Flaw::LateAnswerCounts);
}

#[test]
fn a_rejection_that_is_retried_is_found() {
    assert_found(Flaw::RejectionIsRetried);
}

#[test]
fn a_kill_after_the_expiry_is_found() {
    assert_found(Flaw::KillComesAfterTheExpiry);
}

#[test]
fn a_loss_that_is_noticed_late_is_found() {
    assert_found(Flaw::LossIsNoticedLate);
}

#[test]
fn a_renewal_without_the_owner_guard_is_found() {
    assert_found(Flaw::RenewalHasNoOwnerGuard);
}

#[test]
fn a_release_without_the_owner_guard_is_found() {
    assert_found(Flaw::ReleaseHasNoOwnerGuard);
}

#[test]
fn an_acquisition_that_ignores_the_expiry_is_found() {
    assert_found(Flaw::AcquisitionIgnoresExpiry);
}

#[test]
fn a_guardian_that_knows_no_deadline_is_found() {
    assert_found(Flaw::GuardianKnowsNoDeadline);
}

#[test]
fn a_command_that_outlives_dislock_is_found() {
    assert_found(Flaw::GuardianDoesNotNoticeTheEndOfDislock);
}

#[test]
fn clocks_that_drift_further_than_the_safety_covers_are_found() {
    assert_found(Flaw::ClocksDriftTooFar);
}
