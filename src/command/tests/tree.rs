//! Reading `/proc`, and telling what is below a process from what is not.

use super::*;
use crate::clock::BootInstant;
use crate::command::processes::{parse_stat, process};
use crate::command::tree::{Among, Tree};

#[test]
fn a_processs_name_may_contain_anything() {
    let rest = "S 12 34 56 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 1000 2 184";
    for name in ["sh", "", "a b", ") R 1 1 (", "x) Z", "((("] {
        let stat = format!("77 ({name}) {rest}");
        let parsed = parse_stat(77, stat.as_bytes()).unwrap();
        assert_eq!((parsed.parent, parsed.group), (12, 34), "{name}");
        assert_eq!((parsed.dead, parsed.started), (false, 99), "{name}");
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_is_not_dead() {
    for (threads, dead) in [(1, true), (2, false)] {
        let stat = format!("77 (x) Z 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 0");
        assert_eq!(parse_stat(77, stat.as_bytes()).unwrap().dead, dead);
    }
}

#[test]
fn what_is_cut_off_or_no_number_is_no_process() {
    for stat in [
        "",
        "77",
        "77 (x",
        "77 (x)",
        "77 (x) S 1 2 3",
        "77 (x) S one 2 3 4",
    ] {
        assert_eq!(parse_stat(77, stat.as_bytes()), None, "{stat}");
    }
}

#[test]
fn this_process_is_found_with_its_parent_and_group() {
    let own = i32::try_from(std::process::id()).unwrap();
    let found = process(own).unwrap();
    assert_eq!(found.parent, nix::unistd::getppid().as_raw());
    assert_eq!(found.group, nix::unistd::getpgrp().as_raw());
}

#[test]
fn only_what_is_below_the_root_is_killed() {
    let mut inside = Command::new("sh")
        .args(["-c", "sleep 100 & setsid sleep 100 & wait"])
        .spawn()
        .unwrap();
    let mut outside = Command::new("sleep").arg("100").spawn().unwrap();
    let root = i32::try_from(inside.id()).unwrap();
    eventually("both children are there", || {
        processes()
            .filter(|p| p.parent == root && p.name == "sleep")
            .count()
            == 2
    });

    let mut tree = Tree::below(root).unwrap();
    eventually("nobody is alive below it", || {
        tree.kill().unwrap().alive == 0
    });

    // The shell had nothing but them to wait for; it was not killed itself.
    assert!(inside.wait().unwrap().success());
    assert!(outside.try_wait().unwrap().is_none());
    outside.kill().unwrap();
    outside.wait().unwrap();
}

#[test]
fn everyone_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'echo told >> log' USR1; echo > ready
        while ! [ -e go ]; do sleep 0.01; done";
    let mut parent = Command::new("sh")
        .args(["-c", &format!("({script}) & wait; wait; wait")])
        .current_dir(&directory)
        .spawn()
        .unwrap();
    let file = |name: &str| directory.path().join(name);
    eventually("it is ready", || file("ready").exists());
    let root = i32::try_from(parent.id()).unwrap();
    let in_group = Among::InGroup(nix::unistd::getpgrp().as_raw());

    Tree::below(root)
        .unwrap()
        .tell(&[nix::libc::SIGUSR1], in_group, BootInstant::NEVER);
    eventually("it was told", || file("log").exists());
    fs::write(file("go"), "").unwrap();

    parent.wait().unwrap();
    assert_eq!(fs::read(file("log")).unwrap(), b"told\n");
}
