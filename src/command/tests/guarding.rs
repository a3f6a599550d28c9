//! dislock or the guardian is killed or stopped: the tree is dead in time nevertheless.

use nix::fcntl::OFlag;

use super::stopping::{tree, wait_for_tree};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn stop(pid: i32) {
    eventually("it is stopped", || {
        // More than once: a guardian is woken as long as dislock waits for its first word.
        let _ = signal_process(pid, nix::libc::SIGSTOP);
        process_info(pid).is_none_or(|p| p.state == 'T')
    });
}

fn go_on(pid: i32) {
    let _ = signal_process(pid, nix::libc::SIGCONT);
}

#[test]
fn kill_9_of_the_supervisor_takes_the_whole_tree() {
    for library in [false, true] {
        let setup = tree(true);
        let setup = if library { setup.in_a_library() } else { setup };
        let mut run = setup.start();
        wait_for_tree(&run);
        let guardian = run.guardian();
        run.signal(Signal::SIGKILL);
        let took = time_until("the tree is gone", || run.command_processes().is_empty());
        assert!(took < AT_ONCE, "{took:?}");
        assert_eq!(run.wait(), 137);
        eventually("the guardian is gone", || !is_alive(guardian));
    }
}

#[test]
fn kill_9_of_the_supervisor_takes_a_stopped_command() {
    let mut run = Setup::sh("echo $$ > $D/pid; exec sleep 100").start();
    let pid = run.number_in("pid");
    stop(pid);
    run.signal(Signal::SIGKILL);
    assert_eq!(run.wait(), 137);
    run.nothing_is_left();
}

#[test]
fn a_stopped_supervisor_cannot_keep_the_tree_alive_past_the_deadline() {
    let ttl = 3 * SECOND;
    let mut run = tree(true).lease(ttl, u32::MAX).start();
    wait_for_tree(&run);
    stop(run.pid());
    let took = time_until("the tree is gone", || run.command_processes().is_empty());
    assert!(took < ttl + AT_ONCE, "{took:?}");
    go_on(run.pid());
    assert_eq!(run.wait(), 75);
}

#[test]
fn a_supervisor_that_is_stopped_for_a_moment_keeps_its_lease() {
    let mut run = Setup::sh("echo $$ > $D/pid; sleep 2; exit 5")
        .lease(5 * SECOND, u32::MAX)
        .start();
    run.number_in("pid");
    stop(run.pid());
    thread::sleep(SECOND / 4);
    go_on(run.pid());
    assert_eq!(run.wait(), 5);
}

#[test]
fn a_pause_of_everything_ends_with_the_commands_first_instruction() {
    let script = "trap '' TERM; echo $$ > $D/pid; while :; do date +%s%N > $D/alive; done";
    for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0]] {
        let ttl = 2 * SECOND;
        let mut run = Setup::sh(script).lease(ttl, u32::MAX).start();
        let all = [run.pid(), run.guardian(), run.number_in("pid")];
        for pid in all {
            stop(pid);
        }
        thread::sleep(ttl);
        let start = Instant::now();
        for index in order {
            go_on(all[index]);
        }
        eventually("the command is dead", || !is_alive(all[2]));
        // It ignores SIGTERM, and the grace is 10 seconds.
        assert!(start.elapsed() < AT_ONCE);
        assert_eq!(run.wait(), 75);
        run.nothing_is_left();
    }
}

#[test]
fn a_stopped_guardian_does_not_delay_a_stop() {
    let mut run = tree(true)
        .kill_grace(SECOND / 2)
        .lease_until_rejected()
        .start();
    wait_for_tree(&run);
    stop(run.guardian());
    run.reject();
    let took = time_until("the tree is gone", || run.command_processes().is_empty());
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(run.wait(), 75);
}

#[test]
fn a_guardian_that_is_stopped_again_and_again_is_done_without() {
    let mut run = tree(true)
        .kill_grace(SECOND / 2)
        .lease_until_rejected()
        .start();
    wait_for_tree(&run);
    let guardian = run.guardian();
    run.reject();
    let took = time_until("the tree is gone", || {
        let _ = signal_process(guardian, nix::libc::SIGSTOP);
        run.command_processes().is_empty()
    });
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(run.wait(), 75);
}

#[test]
fn a_stopped_guardian_does_not_hide_the_commands_end() {
    let script = "echo $$ > $D/pid; while ! [ -e $D/go ]; do sleep 0.01; done; exit 8";
    let mut run = Setup::sh(script).start();
    run.number_in("pid");
    stop(run.guardian());
    fs::write(run.path("go"), "").unwrap();
    assert_eq!(run.wait(), 8);
}

#[test]
fn kill_9_of_the_supervisor_wakes_a_stopped_guardian() {
    let mut run = tree(true).start();
    wait_for_tree(&run);
    stop(run.guardian());
    run.signal(Signal::SIGKILL);
    let took = time_until("the tree is gone", || run.command_processes().is_empty());
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(run.wait(), 137);
}

#[test]
fn a_killed_guardian_takes_the_command_and_fails_the_run() {
    for (library, code) in [(false, 1), (true, 1)] {
        let script = "(trap '' TERM; echo $$ > $D/child; while :; do sleep 0.02; done) &
            echo $$ > $D/pid; wait";
        let setup = Setup::sh(script);
        let setup = if library { setup.in_a_library() } else { setup };
        let mut run = setup.start();
        run.wait_for_file("child");
        run.number_in("pid");
        signal_process(run.guardian(), nix::libc::SIGKILL).unwrap();
        assert_eq!(run.wait(), code);
        assert_eq!(run.command_processes(), []);
    }
}

#[test]
fn a_killed_guardian_leaves_no_escaped_descendant_behind() {
    let mut run = tree(true).start();
    wait_for_tree(&run);
    signal_process(run.guardian(), nix::libc::SIGKILL).unwrap();
    assert_eq!(run.wait(), 1);
    assert_eq!(run.command_processes(), []);
}

#[test]
fn no_guardian_and_nothing_else_is_left_of_a_run() {
    let mut run = Setup::sh("echo $$ > $D/pid; while ! [ -e $D/go ]; do sleep 0.01; done").start();
    run.number_in("pid");
    let guardian = run.guardian();
    fs::write(run.path("go"), "").unwrap();
    assert_eq!(run.wait(), 0);
    // Waited for as well: not even a zombie.
    assert!(process_info(guardian).is_none_or(|p| p.name != GUARDIAN));
}

#[test]
fn the_guardian_holds_no_terminal_no_pipe_and_no_secret() {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let mut setup = Setup::sh("echo $$ > $D/pid; exec sleep 100 > /dev/null 2>&1")
        .env("DATABASE_URL", "postgres://u:hunter2@h/d");
    setup.command.stdout(writer);
    let run = setup.start();
    run.number_in("pid");
    let guardian = run.guardian();
    eventually("it has let go of what it inherited", || {
        fs::read_dir(format!("/proc/{guardian}/fd"))
            .unwrap()
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .all(|target| {
                let target = target.to_string_lossy();
                !target.starts_with("pipe:") || target.is_empty()
            })
    });
    let environ = fs::read(format!("/proc/{guardian}/environ")).unwrap();
    assert!(environ.iter().all(|&b| b == 0));
    let stat = fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    let session: i32 = stat
        .rsplit(") ")
        .next()
        .unwrap()
        .split(' ')
        .nth(3)
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(session, guardian);
    drop(reader);
}

#[test]
fn the_guardian_does_not_keep_a_copy_of_a_large_programs_memory() {
    let ballast = 64 << 20;
    let run = Setup::sh("echo $$ > $D/pid; exec sleep 100")
        .in_a_library()
        .env(BALLAST, ballast.to_string())
        .start();
    run.number_in("pid");
    let anonymous = |pid: i32| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
        let line = rollup.lines().find_map(|l| l.strip_prefix("Anonymous:"));
        let kilobytes: usize = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kilobytes << 10
    };
    assert!(anonymous(run.pid()) > ballast);
    let kept = anonymous(run.guardian());
    assert!(kept < ballast / 20, "{kept}");
}

#[test]
fn children_that_dislock_was_given_at_its_start_are_nobodys_to_kill() {
    // As in a container's `sidecar & exec dislock …`.
    let script = "sleep 100 & echo $! > $D/sidecar; exec \"$0\"";
    for guardian_dies in [false, true] {
        let mut run = tree(true)
            .kill_grace(SECOND / 4)
            .lease_until_rejected()
            .through(&["sh", "-c", script])
            .start();
        wait_for_tree(&run);
        let sidecar = run.number_in("sidecar");
        if guardian_dies {
            signal_process(run.guardian(), nix::libc::SIGKILL).unwrap();
            assert_eq!(run.wait(), 1);
        } else {
            run.reject();
            assert_eq!(run.wait(), 75);
        }
        assert_eq!(run.command_processes(), [sidecar]);
    }
}
