//! Who belongs to a tree, by a listing of all processes.

use crate::command::listing::{Bounds, Listed, Scope, members, settle};
use crate::command::processes::Process;

const ROOT: i32 = 10;

/// A process that started at this tick.
fn process(pid: i32, parent: i32, started: u64) -> Process {
    Process {
        pid,
        parent,
        group: pid,
        dead: false,
        started,
    }
}

/// The members among processes that are given as (number, parent) and all started at once.
fn below_root(all: &[(i32, i32)], strangers: &[i32]) -> Vec<i32> {
    let all: Vec<_> = all
        .iter()
        .map(|&(p, parent)| process(p, parent, 5))
        .collect();
    inside(&all, strangers)
}

fn inside(all: &[Process], strangers: &[i32]) -> Vec<i32> {
    let mut all: Vec<Listed> = all.iter().copied().map(Listed::from).collect();
    settle(&mut all, ROOT, strangers);
    members(&all).map(|(p, _)| p.pid).collect()
}

#[test]
fn what_is_below_the_root_is_a_member_and_the_root_is_not() {
    let all = [
        (1, 0),
        (2, 1),
        (9, 30),
        (10, 1),
        (20, 10),
        (21, 2),
        (30, 20),
    ];
    assert_eq!(below_root(&all, &[]), [9, 20, 30]);
}

#[test]
fn a_root_that_is_not_listed_still_has_its_tree() {
    assert_eq!(below_root(&[(11, 10), (12, 11), (13, 1)], &[]), [11, 12]);
}

#[test]
fn a_stranger_is_no_member_nor_is_what_is_below_it() {
    let all = [(10, 1), (20, 10), (21, 20), (22, 21), (30, 10), (31, 30)];
    assert_eq!(below_root(&all, &[20]), [30, 31]);
    assert_eq!(below_root(&all, &[20, 31]), [30]);
}

#[test]
fn a_listing_that_goes_in_circles_ends_and_has_no_members_there() {
    let all = [(5, 5), (6, 7), (7, 8), (8, 6), (9, 6), (10, 1), (11, 10)];
    assert_eq!(below_root(&all, &[]), [11]);
}

#[test]
fn nobody_is_the_child_of_a_process_that_started_later() {
    // The number of 21's dead parent was given to a member before that one was looked at.
    let all = [process(20, ROOT, 7), process(21, 20, 6), process(22, 20, 7)];
    assert_eq!(inside(&all, &[]), [20, 22]);
}

#[test]
fn every_process_of_a_chain_is_a_member_wherever_its_numbers_begin() {
    let up: Vec<_> = (0..30_000)
        .map(|n| (100 + n, if n == 0 { ROOT } else { 99 + n }))
        .collect();
    assert_eq!(below_root(&up, &[]).len(), up.len());
    let last = 100 + 29_999;
    let down: Vec<_> = (100..=last)
        .map(|n| (n, if n == last { ROOT } else { n + 1 }))
        .collect();
    assert_eq!(below_root(&down, &[]).len(), down.len());
    assert_eq!(below_root(&down, &[last]), []);
}

#[test]
fn only_the_same_process_below_the_same_parent_or_the_root_is_signalled() {
    let below = Bounds::new(Scope::Below(ROOT)).unwrap();
    let listed = process(20, 15, 5);
    assert!(below.still_hold(listed, listed));
    assert!(below.still_hold(listed, process(20, ROOT, 5)));
    assert!(!below.still_hold(listed, process(20, 15, 6)));
    assert!(!below.still_hold(listed, process(20, 1, 5)));

    let group = Bounds::new(Scope::Group(20)).unwrap();
    let moved = Process {
        group: 21,
        ..listed
    };
    assert!(group.still_hold(listed, process(20, 1, 5)));
    assert!(!group.still_hold(listed, moved));
}

#[test]
fn a_member_knows_how_many_are_above_it() {
    // In an order in which some are asked for before the one above them, and some after.
    let parents = [(11, 14), (12, 11), (13, 10), (14, 13), (15, 14), (16, 10)];
    let mut all = parents.map(|(pid, parent)| Listed::from(process(pid, parent, 5)));
    settle(&mut all, ROOT, &[]);
    let above: Vec<_> = members(&all).map(|(p, above)| (p.pid, above)).collect();
    assert_eq!(
        above,
        [(11, 2), (12, 3), (13, 0), (14, 1), (15, 2), (16, 0)]
    );
}
