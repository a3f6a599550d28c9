//! Tests with real processes. The supervisor runs in a process of its own, this test binary started
//! once more (see `supervisor_process`), so that it can be killed, stopped and given a terminal.

mod course;
mod crowds;
mod first_process;
mod guarding;
mod inheriting;
mod membership;
mod starting;
mod stopping;
mod supervisor_process;
mod terminal;
mod tree;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::CommandLine;
use super::kernel::signal_process;
use crate::error::Error;

/// Longer than anything takes that is going to happen at all.
const PATIENCE: Duration = Duration::from_secs(60);
/// At once, on a machine that has much else to do: what this is told apart from takes 10 seconds (the
/// grace), a minute, or for ever.
const AT_ONCE: Duration = Duration::from_secs(5);
const GUARDIAN: &str = "lock-guardian";
/// In the environment of the command and all below it, so that none is overlooked.
const MARK: &str = "DISLOCK_TEST_RUN";
/// The instructions for `supervisor_process`.
const ARGS: &str = "TEST_ARGS";
const TTL: &str = "TEST_TTL_MS";
const RENEWALS: &str = "TEST_RENEWALS";
const REJECT: &str = "TEST_REJECT_FILE";
/// The file for the instant by which the command is to be dead after that.
const KILL_AT: &str = "kill_at";
const GRACE: &str = "TEST_GRACE_MS";
const LIBRARY: &str = "TEST_AS_LIBRARY";
const TTY: &str = "TEST_TTY";
/// Have so many bytes of memory in use.
const BALLAST: &str = "TEST_BALLAST";
/// A file with one more argument for the command.
const LONG: &str = "TEST_LONG_ARGUMENT";
/// Be the shell of the terminal, and run the supervisor as a job of it.
const SHELL: &str = "TEST_SHELL";
/// Be that job.
const JOB: &str = "TEST_JOB";
const SEPARATOR: u8 = 0x1f;

/// A supervisor that is about to be started.
struct Setup {
    command: Command,
    directory: TempDir,
    mark: String,
}

/// A supervisor in its own process, in its own session. Ends with everything below it.
struct Supervisor {
    process: Child,
    directory: TempDir,
    mark: String,
}

impl Setup {
    fn new<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{count}", std::process::id());
        let args: Vec<Vec<u8>> = args
            .into_iter()
            .map(|a| a.as_ref().as_bytes().to_vec())
            .collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env(ARGS, OsString::from_vec(args.join(&SEPARATOR)))
            .env(GRACE, "10000")
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self {
            command,
            directory: tempfile::tempdir().unwrap(),
            mark,
        }
    }

    /// A script for `sh -c`; `$D` in it is a directory for its files.
    fn sh(script: &str) -> Self {
        let mut setup = Self::new(["sh", "-c", script]);
        let directory = setup.directory.path().to_owned();
        setup.command.env("D", directory);
        setup
    }

    fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    fn kill_grace(self, grace: Duration) -> Self {
        self.env(GRACE, grace.as_millis().to_string())
    }

    /// Under a lease that is renewed so many times.
    fn lease(self, ttl: Duration, renewals: u32) -> Self {
        self.env(TTL, ttl.as_millis().to_string())
            .env(RENEWALS, renewals.to_string())
    }

    /// Under a lease that is renewed until it is rejected, which is when the file `rejected` exists.
    fn lease_until_rejected(self) -> Self {
        let file = self.directory.path().join("rejected");
        self.lease(Duration::from_secs(60), u32::MAX)
            .env(REJECT, file)
    }

    /// From a thread of a program that handles its own signals.
    fn in_a_library(self) -> Self {
        self.env(LIBRARY, "1")
    }

    /// As the command of another program, which ends as this one does.
    fn through(mut self, program: &[&str]) -> Self {
        let mut outer = Command::new(program[0]);
        outer.args(&program[1..]).arg(self.command.get_program());
        outer.envs(self.command.get_envs().filter_map(|(k, v)| Some((k, v?))));
        outer.stdin(Stdio::null()).stdout(Stdio::null());
        self.command = outer;
        self
    }

    fn start(mut self) -> Supervisor {
        Supervisor {
            process: self.command.spawn().unwrap(),
            directory: self.directory,
            mark: self.mark,
        }
    }

    /// Runs it to its end; the exit code.
    fn run(self) -> i32 {
        self.start().wait()
    }
}

impl Supervisor {
    fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// The exit code, as a shell would see it.
    fn wait(&mut self) -> i32 {
        let mut status: Option<ExitStatus> = None;
        eventually("the supervisor ends", || {
            status = self.process.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// The number that the command wrote to a file.
    fn number_in(&self, file: &str) -> i32 {
        let path = self.path(file);
        let mut number = None;
        eventually(&format!("a number is in {file}"), || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            number = text.strip_suffix('\n').and_then(|n| n.parse().ok());
            number.is_some()
        });
        number.unwrap()
    }

    fn wait_for_file(&self, file: &str) {
        let path = self.path(file);
        eventually(&format!("{file} is there"), || path.exists());
    }

    /// The guardian's process number.
    fn guardian(&self) -> i32 {
        let mut found = None;
        eventually("the guardian is there", || {
            found = processes()
                .find(|p| p.parent == self.pid() && p.name == GUARDIAN)
                .map(|p| p.pid);
            found.is_some()
        });
        found.unwrap()
    }

    /// The processes of this run's command that are alive.
    fn command_processes(&self) -> Vec<i32> {
        let mark = format!("{MARK}={}\0", self.mark).into_bytes();
        processes()
            .filter(|p| p.state != 'Z' && p.name != GUARDIAN && p.pid != self.pid())
            .filter(|p| {
                fs::read(format!("/proc/{}/environ", p.pid))
                    .is_ok_and(|env| env.windows(mark.len()).any(|w| w == mark))
            })
            .map(|p| p.pid)
            .collect()
    }

    /// Has the lease rejected.
    fn reject(&self) {
        fs::write(self.path("rejected"), "").unwrap();
    }

    fn nothing_is_left(&self) {
        eventually("nothing of the command is left", || {
            self.command_processes().is_empty()
        });
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The guardian does the rest, unless the test has seen to it that it cannot.
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let left = self.command_processes();
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _ = signal_process(pid, nix::libc::SIGKILL);
            }
        }
    }
}

/// A variable of a process that a test has started.
fn number_of<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

struct ProcessInfo {
    pid: i32,
    parent: i32,
    name: String,
    state: char,
}

fn process_info(pid: i32) -> Option<ProcessInfo> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ');
    Some(ProcessInfo {
        pid,
        name: before.split_once('(')?.1.to_owned(),
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
    })
}

fn processes() -> impl Iterator<Item = ProcessInfo> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(process_info)
}

fn is_alive(pid: i32) -> bool {
    process_info(pid).is_some_and(|p| p.state != 'Z')
}

/// Waits until it is so.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How long it takes until it is so.
#[track_caller]
fn time_until(what: &str, is_so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    eventually(what, is_so);
    start.elapsed()
}

fn resolve(args: &[&str], path: &str) -> Result<CommandLine, Error> {
    let args = args.iter().map(OsString::from).collect();
    CommandLine::resolve(args, Some(OsStr::new(path)))
}
