//! With a controlling terminal, which the command shares with dislock.

use std::io::Write;
use std::os::unix::process::CommandExt;

use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::killpg;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{getpgrp, mkfifo, tcgetpgrp, tcsetpgrp};

use super::stopping::{tree, wait_for_tree};
use super::*;

const INTERRUPT: u8 = 3;
const SUSPEND: u8 = 26;
/// The shell is to run something else in the job's process group.
const NEIGHBOUR: &str = "TEST_NEIGHBOUR";

/// A terminal, and the process that leads its session.
struct Session {
    keyboard: PtyMaster,
    run: Supervisor,
}

impl Session {
    fn start(mut setup: Setup) -> Self {
        // Not inherited by anything: its closing is the hangup.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let keyboard = posix_openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        setup.command.env(TTY, ptsname_r(&keyboard).unwrap());
        Self {
            run: setup.start(),
            keyboard,
        }
    }

    /// With dislock as a job of a shell, not as the leader of the session.
    fn start_in_shell(setup: Setup) -> Self {
        Self::start(setup.env(SHELL, "1"))
    }

    fn press(&mut self, key: u8) {
        self.keyboard.write_all(&[key]).unwrap();
    }
}

/// What a shell does with a job in the foreground: says in a file when it was stopped, and lets it go
/// on when another file is there. Answers the job's exit code.
pub(super) fn job_control_shell(terminal: &fs::File) -> i32 {
    let directory = PathBuf::from(std::env::var_os("D").unwrap());
    let ours = getpgrp();
    // Or giving the terminal back would stop the shell.
    let mut block = nix::sys::signal::SigSet::empty();
    block.add(Signal::SIGTTOU);
    block.thread_block().unwrap();
    let mut job = Command::new(std::env::current_exe().unwrap());
    job.process_group(0).env_remove(SHELL).env_remove(TTY);
    // Waited for below, where it may also just stop.
    #[expect(clippy::zombie_processes, reason = "by waitpid")]
    let job = job.env(JOB, "1").spawn().unwrap();
    let job = Pid::from_raw(i32::try_from(job.id()).unwrap());
    tcsetpgrp(terminal, job).unwrap();
    let neighbour = std::env::var_os(NEIGHBOUR).map(|_| {
        let mut sleep = Command::new("sleep");
        sleep
            .arg("100")
            .process_group(job.as_raw())
            .spawn()
            .unwrap()
    });
    fs::write(directory.join("job"), format!("{job}\n")).unwrap();
    loop {
        let status = waitpid(job, Some(WaitPidFlag::WUNTRACED)).unwrap();
        if let WaitStatus::Stopped(..) = status {
            tcsetpgrp(terminal, ours).unwrap();
            fs::write(directory.join("stopped"), "").unwrap();
            eventually("the job is wanted", || directory.join("fg").exists());
            tcsetpgrp(terminal, job).unwrap();
            killpg(job, Signal::SIGCONT).unwrap();
            continue;
        }
        let ended = |mut other: Child| other.try_wait().unwrap().is_some();
        if neighbour.is_some_and(ended) {
            return 99;
        }
        let WaitStatus::Exited(_, code) = status else {
            panic!("{status:?}");
        };
        return code;
    }
}

/// A shell's child does so before it becomes the job's program.
pub(super) fn wait_for_the_foreground() {
    let terminal = fs::File::open("/dev/tty").unwrap();
    eventually("the job is in the foreground", || {
        tcgetpgrp(&terminal) == Ok(getpgrp())
    });
}

fn sessions(setup: impl Fn() -> Setup) -> [Session; 2] {
    [Session::start(setup()), Session::start_in_shell(setup())]
}

#[test]
fn the_command_reads_the_terminal() {
    let setup = || Setup::sh("read line < /dev/tty; echo \"$line\" > $D/line");
    for mut session in sessions(setup) {
        session.keyboard.write_all(b"hello\n").unwrap();
        assert_eq!(session.run.wait(), 0);
        assert_eq!(fs::read(session.run.path("line")).unwrap(), b"hello\n");
    }
}

#[test]
fn an_interrupt_reaches_the_command_once() {
    let script = "n=0; trap 'n=$((n+1)); echo $n > $D/count' INT
        echo $$ > $D/pid; while ! [ -e $D/go ]; do sleep 0.01; done; exit $n";
    for mut session in sessions(|| Setup::sh(script)) {
        session.run.number_in("pid");
        for n in 1..=2 {
            session.press(INTERRUPT);
            eventually("it is counted", || {
                fs::read_to_string(session.run.path("count")).is_ok_and(|c| c >= format!("{n}\n"))
            });
        }
        fs::write(session.run.path("go"), "").unwrap();
        assert_eq!(session.run.wait(), 2);
    }
}

#[test]
fn an_interrupt_ends_a_command_as_it_would_without_dislock() {
    for mut session in sessions(|| Setup::sh("echo $$ > $D/pid; exec sleep 100")) {
        session.run.number_in("pid");
        session.press(INTERRUPT);
        assert_eq!(session.run.wait(), 130);
        session.run.nothing_is_left();
    }
}

#[test]
fn sigterm_to_dislock_reaches_the_command_once() {
    let script = "n=0; trap 'n=$((n+1)); echo $n > $D/count' TERM
        echo $$ > $D/pid; while ! [ -e $D/go ]; do sleep 0.01; done; exit $n";
    let mut session = Session::start(Setup::sh(script));
    session.run.number_in("pid");
    session.run.signal(Signal::SIGTERM);
    session.run.wait_for_file("count");
    fs::write(session.run.path("go"), "").unwrap();
    assert_eq!(session.run.wait(), 1);
}

#[test]
fn a_hangup_reaches_the_command() {
    let script = "trap 'echo > $D/hangup; exit' HUP; echo $$ > $D/pid
        while :; do sleep 0.01; done";
    let session = Session::start(Setup::sh(script));
    session.run.number_in("pid");
    drop(session.keyboard);
    session.run.wait_for_file("hangup");
}

#[test]
fn suspending_stops_dislock_with_the_command_and_both_go_on() {
    let setup = Setup::sh("echo $$ > $D/pid; read word < $D/fifo; exit $word");
    let fifo = setup.directory.path().join("fifo");
    mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut session = Session::start_in_shell(setup);
    let command = session.run.number_in("pid");
    let dislock = session.run.number_in("job");
    session.press(SUSPEND);
    session.run.wait_for_file("stopped");
    eventually("the command is stopped too", || {
        [command, dislock]
            .iter()
            .all(|&pid| process_info(pid).is_some_and(|p| p.state == 'T'))
    });
    fs::write(session.run.path("fg"), "").unwrap();
    fs::write(fifo, "9\n").unwrap();
    assert_eq!(session.run.wait(), 9);
}

#[test]
fn a_job_that_stays_suspended_is_dead_by_the_deadline_and_lost_its_lease() {
    let setup =
        Setup::sh("echo $$ > $D/pid; exec sleep 100").lease(Duration::from_secs(3), u32::MAX);
    let mut session = Session::start_in_shell(setup);
    let command = session.run.number_in("pid");
    session.press(SUSPEND);
    session.run.wait_for_file("stopped");
    let took = time_until("the command is dead", || !is_alive(command));
    assert!(took < AT_ONCE, "{took:?}");
    fs::write(session.run.path("fg"), "").unwrap();
    assert_eq!(session.run.wait(), 75);
}

#[test]
fn a_stop_spares_what_shares_the_group_but_is_not_the_commands() {
    // As in `dislock … | pager`: the shell's other process in the same group.
    let setup = tree(true)
        .kill_grace(Duration::from_millis(300))
        .lease_until_rejected()
        .env(NEIGHBOUR, "1");
    let mut session = Session::start_in_shell(setup);
    wait_for_tree(&session.run);
    session.run.reject();
    // The shell says 99 when its other process has ended too.
    assert_eq!(session.run.wait(), 75);
}

#[test]
fn kill_9_of_a_supervisor_with_a_terminal_takes_the_tree() {
    let session = Session::start(tree(true));
    wait_for_tree(&session.run);
    session.run.signal(Signal::SIGKILL);
    session.run.nothing_is_left();
}
