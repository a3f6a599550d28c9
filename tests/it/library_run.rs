//! `run_with_locks` in a program with threads, children and signals of its own.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use dislock::{LeaseLock, LockContext, LockStrategy, run_with_locks};
use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::support::database::Database;
use crate::support::wait::{SOON, eventually, value};
use crate::support::{home, processes};

fn context(database: &Database) -> LockContext {
    LockContext::builder(database.url(), "job")
        .ttl(Duration::from_secs(3))
        .heartbeat_interval(Duration::from_millis(300))
        .kill_grace(Duration::from_millis(500))
        .build()
        .unwrap()
}

const LEASE: &[LockStrategy] = &[LockStrategy::Lease];

/// What the kernel knows of this thread's signals.
fn signals() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let lines = status.lines().filter(|line| line.starts_with("Sig"));
    // But for the number of signals that all of the user's processes have queued.
    lines.filter(|line| !line.starts_with("SigQ")).collect()
}

#[test]
fn many_threads_run_commands_and_the_programs_signals_are_as_before() {
    let threads: Vec<_> = (1..=8)
        .map(|code| {
            thread::spawn(move || {
                let database = Database::new();
                let before = signals();
                let script = format!("sleep 0.2; exit {code}");
                let exit = run_with_locks(["sh", "-c", &script], &context(&database), LEASE);
                assert_eq!(exit.unwrap(), code);
                assert_eq!(signals(), before);
                assert!(database.lease().unwrap().seconds_left <= 0.0);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_lost_lease_stops_the_tree() {
    let database = Database::new();
    let dir = home::new_dir("library run");
    let script = format!(
        "trap '' TERM; cd '{}'; (setsid sh -c 'trap \"\" TERM; echo $$ > daemon; sleep 60; sleep 60' &)
        sleep 60 & echo $$ > pid; wait; sleep 60",
        dir.display()
    );
    let url = database.url();
    let run = thread::spawn(move || {
        let context = LockContext::builder(url, "job")
            .ttl(Duration::from_secs(3))
            .heartbeat_interval(Duration::from_millis(300))
            .kill_grace(Duration::from_millis(500))
            .build()
            .unwrap();
        run_with_locks(["sh", "-c", &script], &context, LEASE)
    });
    let pid = |file: &str| -> Option<Pid> {
        let text = std::fs::read_to_string(dir.join(file)).ok()?;
        Some(Pid::from_raw(text.trim_end().parse().ok()?))
    };
    eventually("the tree is there", || {
        pid("pid").is_some() && pid("daemon").is_some()
    });

    database.sql("DELETE FROM key_value");

    assert_eq!(run.join().unwrap().unwrap(), dislock::LEASE_LOST_EXIT_CODE);
    assert!(!processes::is_alive(pid("pid").unwrap()));
    assert!(!processes::is_alive(pid("daemon").unwrap()));
}

#[test]
fn the_programs_own_children_stay_its_own() {
    let database = Database::new();
    let mut child = Command::new("sh").args(["-c", "exit 5"]).spawn().unwrap();

    let code = run_with_locks(["sh", "-c", "sleep 0.3"], &context(&database), LEASE);

    assert_eq!(code.unwrap(), 0);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_command_that_cannot_run_is_an_error_and_takes_no_lock() {
    let database = Database::new();

    let error = run_with_locks(["no-such-command"], &context(&database), LEASE).unwrap_err();

    assert!(error.to_string().contains("no-such-command"), "{error}");
    assert!(database.lease().is_none());
}

/// One that this process has forked.
fn guardian() -> Option<Pid> {
    processes::children(Pid::this())
        .into_iter()
        .find(|&pid| processes::name(pid).as_deref() == Some("lock-guardian"))
}

/// Of which the guardian has a copy.
#[test]
fn what_the_program_closes_while_it_waits_for_its_locks_is_closed() {
    let database = Database::new();
    let holder = LeaseLock::acquire(&context(&database)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let (served, _) = listener.accept().unwrap();
    let waiter = LockContext::builder(database.url(), "job").wait(Duration::MAX);
    let waiter = waiter.build().unwrap();
    let run = thread::spawn(move || run_with_locks(["true"], &waiter, LEASE));
    eventually("a guardian", || guardian().is_some());

    drop(served);

    assert_eq!(client.read(&mut [0]).unwrap(), 0, "its end is seen");
    holder.release().unwrap();
    assert_eq!(run.join().unwrap().unwrap(), 0);
}

/// A program that waits for any child must not meet one that is not its own.
#[test]
fn the_guardian_is_not_found_by_a_wait_for_any_child() {
    let database = Database::new();
    let gate = home::new_dir("gate").join("open");
    let script = "while ! [ -e \"$0\" ]; do sleep 0.02; done";
    let command = ["sh", "-c", script, gate.to_str().unwrap()].map(String::from);
    let run = thread::spawn(move || run_with_locks(command, &context(&database), LEASE));
    let guardian = value("a guardian", SOON, guardian);

    let waited = waitpid(guardian, Some(WaitPidFlag::WNOHANG));

    assert_eq!(waited, Err(Errno::ECHILD));
    std::fs::write(gate, "").unwrap();
    assert_eq!(run.join().unwrap().unwrap(), 0);
}
