//! The decisions, by table: what happened, and what is to be done.

use nix::libc::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGWINCH};

use super::*;
use crate::clock::BootInstant;
use crate::command::course::{Course, Step, Terminal};
use crate::command::kernel::Status;
use crate::command::signals::Incoming;
use crate::rules::lease::Deadlines;
use crate::rules::outcome::Ended;

const GRACE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_boot(Duration::from_secs(seconds))
}

fn until(stop: u64, kill: u64) -> Deadlines {
    Deadlines {
        stop_at: at(stop),
        kill_at: at(kill),
    }
}

fn sent(signal: i32) -> Incoming {
    Incoming {
        signal,
        from_terminal: false,
    }
}

fn typed(signal: i32) -> Incoming {
    Incoming {
        signal,
        from_terminal: true,
    }
}

fn course() -> Course {
    Course::new(GRACE, Terminal::None)
}

const LONG_AFTER: Duration = Duration::from_secs(1);

#[test]
fn nothing_happens_until_the_stop_deadline() {
    assert_eq!(
        course().next(at(0), Deadlines::NONE),
        Step::Wait(BootInstant::NEVER)
    );
    assert_eq!(course().next(at(19), until(20, 30)), Step::Wait(at(20)));
}

#[test]
fn the_stop_deadline_stops_once_and_the_tree_has_until_the_kill_deadline() {
    let mut course = course();
    assert_eq!(
        course.next(at(20), until(20, 30)),
        Step::Stop { kill_at: at(30) }
    );
    assert_eq!(course.next(at(20), until(20, 30)), Step::Wait(at(30)));
    course.tree_gone();
    assert_eq!(
        course.next(at(21), until(20, 30)),
        Step::Return(Ended::LeaseLost)
    );
}

#[test]
fn a_guardian_that_was_stopped_since_the_order_is_woken_for_the_kill() {
    let mut course = course();
    course.next(at(20), until(20, 30));
    assert_eq!(
        course.next(at(30), until(20, 30)),
        Step::Stop { kill_at: at(30) }
    );
    let Step::Wait(give_up) = course.next(at(30), until(20, 30)) else {
        panic!("it was woken already");
    };
    assert!(give_up > at(30) && give_up < at(31));
}

#[test]
fn a_guardian_that_does_not_report_is_done_without() {
    let mut course = course();
    course.next(at(20), until(20, 30));
    assert_eq!(
        course.next(at(30).after(LONG_AFTER), until(20, 30)),
        Step::KillTree
    );
}

#[test]
fn a_loss_counts_whatever_the_command_came_to() {
    for late in [false, true] {
        let mut course = course();
        course.ended(Status::Exited(0));
        let now = at(if late { 20 } else { 19 });
        let step = course.next(now, until(20, 30));
        if late {
            assert_eq!(step, Step::Stop { kill_at: at(30) });
            course.tree_gone();
            assert_eq!(
                course.next(now, until(20, 30)),
                Step::Return(Ended::LeaseLost)
            );
        } else {
            assert_eq!(step, Step::Return(Ended::Exited(0)));
        }
    }
}

#[test]
fn after_a_pause_past_both_deadlines_the_kill_is_due_at_once() {
    let mut course = course();
    let now = at(100);
    assert_eq!(
        course.next(now, until(20, 30)),
        Step::Stop { kill_at: at(30) }
    );
    assert_eq!(course.next(now, until(20, 30)), Step::KillTree);
}

#[test]
fn a_run_that_was_asked_to_end_is_swept_before_it_returns() {
    let mut course = course();
    assert!(course.signal(sent(SIGTERM)));
    assert_eq!(course.next(at(1), until(20, 30)), Step::Wait(at(20)));
    course.ended(Status::Signaled(SIGTERM));
    assert_eq!(
        course.next(at(2), until(20, 30)),
        Step::Stop { kill_at: at(12) }
    );
    assert!(matches!(course.next(at(2), until(20, 30)), Step::Wait(_)));
    course.tree_gone();
    assert_eq!(
        course.next(at(3), until(20, 30)),
        Step::Return(Ended::Signaled(SIGTERM))
    );
}

#[test]
fn a_loss_during_the_sweep_moves_the_kill_forward_only() {
    let mut swept = course();
    swept.signal(sent(SIGTERM));
    swept.ended(Status::Exited(0));
    assert_eq!(
        swept.next(at(10), until(15, 16)),
        Step::Stop { kill_at: at(20) }
    );
    assert_eq!(
        swept.next(at(15), until(15, 16)),
        Step::Stop { kill_at: at(16) }
    );

    let mut swept = course();
    swept.signal(sent(SIGTERM));
    swept.ended(Status::Exited(0));
    assert_eq!(
        swept.next(at(10), until(15, 25)),
        Step::Stop { kill_at: at(20) }
    );
    assert!(matches!(swept.next(at(15), until(15, 25)), Step::Wait(_)));
    swept.tree_gone();
    assert_eq!(
        swept.next(at(15), until(15, 25)),
        Step::Return(Ended::LeaseLost)
    );
}

#[test]
fn a_signal_that_is_no_end_leaves_what_the_command_left_behind_alone() {
    let mut course = course();
    assert!(course.signal(sent(SIGUSR1)));
    course.ended(Status::Exited(3));
    assert_eq!(
        course.next(at(1), Deadlines::NONE),
        Step::Return(Ended::Exited(3))
    );
}

#[test]
fn a_tree_that_the_guardian_killed_unasked_was_lost() {
    let mut course = course();
    course.ended(Status::Signaled(9));
    course.tree_gone();
    assert_eq!(
        course.next(at(10), until(20, 30)),
        Step::Return(Ended::LeaseLost)
    );
}

#[test]
fn what_the_terminal_sent_is_not_sent_again() {
    let mut alone = course();
    let mut shared = Course::new(GRACE, Terminal::Shared);
    let mut leader = Course::new(GRACE, Terminal::SharedByLeader);
    for signal in [SIGINT, SIGWINCH, SIGHUP, SIGTERM] {
        assert!(alone.signal(typed(signal)));
        assert!(shared.signal(sent(signal)));
        assert!(leader.signal(sent(signal)));
        assert!(!shared.signal(typed(signal)));
    }
    assert!(!leader.signal(typed(SIGINT)));
    // The kernel tells the leader alone.
    assert!(leader.signal(typed(SIGHUP)));
}

#[test]
fn nothing_is_sent_to_a_command_that_has_ended() {
    let mut course = course();
    course.ended(Status::Exited(0));
    assert!(!course.signal(sent(SIGTERM)));
}
