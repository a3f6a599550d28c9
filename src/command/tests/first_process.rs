//! dislock as process 1, as in a container.

use super::stopping::{tree, wait_for_tree};
use super::*;

const OWN_PROC: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc"];
/// With a `/proc` that shows another namespace's numbers.
const OTHER_PROC: &[&str] = &["unshare", "--pid", "--fork"];

/// A new process namespace is for root only; without one there is nothing to test.
fn permitted() -> bool {
    let permitted = Command::new(OWN_PROC[0])
        .args(&OWN_PROC[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !permitted {
        eprintln!("skipped: no new process namespace without privileges");
    }
    permitted
}

/// The process that is number 1 in its namespace.
fn first_process(run: &Supervisor) -> i32 {
    let mut found = None;
    eventually("process 1 is there", || {
        found = processes().find(|p| p.parent == run.pid()).map(|p| p.pid);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_signal_that_a_container_is_stopped_with_reaches_the_command() {
    if !permitted() {
        return;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let script = "trap 'exit 6' TERM INT; echo $$ > $D/pid; while :; do sleep 0.01; done";
        let mut run = Setup::sh(script).through(OWN_PROC).start();
        run.number_in("pid");
        kill(Pid::from_raw(first_process(&run)), signal).unwrap();
        assert_eq!(run.wait(), 6);
    }
}

#[test]
fn orphans_are_let_go_of_and_the_commands_status_is_not_among_them() {
    if !permitted() {
        return;
    }
    let script = "echo $$ > $D/pid; while ! [ -e $D/go ]; do sleep 0.01; done; exit 7";
    let mut run = Setup::sh(script).through(OWN_PROC).start();
    run.number_in("pid");
    let first = first_process(&run);
    // As `docker exec` does: processes that come from outside of the tree.
    for _ in 0..5 {
        let status = Command::new("nsenter")
            .args(["--target", &first.to_string(), "--pid", "--mount"])
            .args(["sh", "-c", "(sleep 0.05 &)"])
            .status();
        assert!(status.unwrap().success());
    }
    let children = || processes().filter(move |p| p.parent == first);
    eventually("an orphan is adopted or was let go of", || {
        children().all(|p| p.state != 'Z')
    });
    eventually("only the guardian is left", || children().count() == 1);
    fs::write(run.path("go"), "").unwrap();
    assert_eq!(run.wait(), 7);
}

#[test]
fn a_lost_lease_stops_the_tree_whatever_proc_shows() {
    if !permitted() {
        return;
    }
    for namespace in [OWN_PROC, OTHER_PROC] {
        let mut run = tree(true)
            .kill_grace(Duration::from_millis(300))
            .lease_until_rejected()
            .through(namespace)
            .start();
        wait_for_tree(&run);
        run.reject();
        assert_eq!(run.wait(), 75);
        assert_eq!(run.command_processes(), []);
    }
}
