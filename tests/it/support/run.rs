//! Runs of `dislock`, each with a clean environment and every process accounted for.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::home::{self, RUN_MARK};
use super::worker::{self, Span};
use super::{processes, wait};

/// What a user of `dislock` would configure. The lock key is `job`: tests do not share databases.
#[derive(Debug)]
pub(crate) struct Dislock {
    url_name: OsString,
    options: Vec<OsString>,
    variables: Vec<(OsString, Option<OsString>)>,
}

impl Dislock {
    /// With the URL in `DATABASE_URL`, the lock key and nothing else.
    pub(crate) fn new(url: impl Into<OsString>) -> Self {
        let this = Self {
            url_name: "DATABASE_URL".into(),
            options: Vec::new(),
            variables: Vec::new(),
        };
        this.env("DATABASE_URL", url).env("LOCK_KEY", "job")
    }

    /// One lease of so many seconds.
    pub(crate) fn lease(url: impl Into<OsString>, ttl: f64) -> Self {
        Self::new(url)
            .env("LOCK_STRATEGY", "lease")
            .env("RUN_LOCK_TTL_SECONDS", ttl.to_string())
    }

    /// One lease of so many seconds that outlives nearly as long a delay of its renewals, as a busy
    /// machine may cause it: for tests in which it is not to be lost.
    pub(crate) fn renewed_often(url: impl Into<OsString>, ttl: f64) -> Self {
        Self::lease(url, ttl)
            .env("LOCK_LEASE_INTERVAL", (ttl / 10.0).to_string())
            .env("LOCK_KILL_GRACE_SECONDS", "0.1")
    }

    /// One slot of this crontab schedule.
    pub(crate) fn schedule(url: impl Into<OsString>, cron: &str) -> Self {
        Self::new(url).env("CRON_SCHEDULE", cron)
    }

    pub(crate) fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), Some(value.into())));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.push((name.into(), None));
        self
    }

    /// Says more: `INFO` or `DEBUG`.
    pub(crate) fn log_level(self, level: &str) -> Self {
        self.env("CRONJOB_LOCK_LOG_LEVEL", level)
    }

    /// Words before the name of the URL's variable.
    pub(crate) fn options(mut self, words: &[&str]) -> Self {
        self.options.extend(words.iter().map(OsString::from));
        self
    }

    /// The first positional argument, in place of `DATABASE_URL`.
    pub(crate) fn url_name(mut self, name: &str) -> Self {
        self.url_name = name.into();
        self
    }

    /// Starts a command under the lock.
    pub(crate) fn start<W: Into<OsString>>(&self, command: impl IntoIterator<Item = W>) -> Run {
        let mut words = self.options.clone();
        words.push(self.url_name.clone());
        words.extend(command.into_iter().map(W::into));
        self.start_with(words, &[])
    }

    /// Starts a [worker] under the lock.
    pub(crate) fn work(&self, duration: Duration) -> Run {
        let mut words = self.options.clone();
        words.push(self.url_name.clone());
        words.extend(worker::command().into_iter().map(OsString::from));
        self.start_with(words, &[worker::variable(duration)])
    }

    /// Starts a shell under the lock, in whose script `"$@"` is a [worker].
    pub(crate) fn work_under_shell(&self, script: &str, duration: Duration) -> Run {
        let mut words = self.options.clone();
        words.push(self.url_name.clone());
        words.extend(["sh", "-c", script, "sh"].map(OsString::from));
        words.extend(worker::command().into_iter().map(OsString::from));
        self.start_with(words, &[worker::variable(duration)])
    }

    /// Runs a command under the lock to its end.
    pub(crate) fn run<W: Into<OsString>>(&self, command: impl IntoIterator<Item = W>) -> Finished {
        self.start(command).finish()
    }

    /// Runs `dislock` with exactly these arguments.
    pub(crate) fn run_args<W: Into<OsString>>(
        &self,
        args: impl IntoIterator<Item = W>,
    ) -> Finished {
        self.start_args(args).finish()
    }

    /// Starts `dislock` with exactly these arguments.
    pub(crate) fn start_args<W: Into<OsString>>(&self, args: impl IntoIterator<Item = W>) -> Run {
        let words = args.into_iter().map(W::into).collect();
        self.start_with(words, &[])
    }

    fn start_with(&self, words: Vec<OsString>, more: &[(&str, String)]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dislock"));
        command.args(words).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = [
                "LOCK_",
                "CRON",
                "RUN_LOCK",
                "PG",
                "DISLOCK_",
                "DATABASE_",
                "TEST_DATABASE_",
            ];
            if ours.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.envs(more.iter().map(|(name, value)| (name, value)));
        Run::start(command)
    }
}

/// A program and all that it has started, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Run {
    dir: PathBuf,
    child: Child,
    status: Option<ExitStatus>,
    started: Instant,
}

impl Run {
    /// Starts any command in this custody: its output goes to files.
    pub(crate) fn start(command: Command) -> Self {
        let dir = home::new_dir("run");
        let stderr = File::create(dir.join("stderr")).expect("create an output file");
        Self::start_in(dir, command, stderr)
    }

    /// Starts a command whose stderr goes elsewhere.
    pub(crate) fn start_with_stderr(command: Command, stderr: impl Into<Stdio>) -> Self {
        Self::start_in(home::new_dir("run"), command, stderr)
    }

    fn start_in(dir: PathBuf, mut command: Command, stderr: impl Into<Stdio>) -> Self {
        let stdout = File::create(dir.join("stdout")).expect("create an output file");
        command
            .env(RUN_MARK, &dir)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        let started = Instant::now();
        let child = command.spawn().expect("start the program");
        Self {
            dir,
            child,
            status: None,
            started,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a pid"))
    }

    /// Sends a signal to the program, and to nothing that it started.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("send a signal");
    }

    /// Sends a signal to the program's process group, as a terminal does.
    pub(crate) fn signal_group(&self, signal: Signal) {
        nix::sys::signal::killpg(self.pid(), signal).expect("send a signal");
    }

    /// The exit code as a shell sees it, once there is one.
    pub(crate) fn try_exit_code(&mut self) -> Option<i32> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("wait for the program");
        }
        let status = self.status?;
        status.code().or_else(|| Some(128 + status.signal()?))
    }

    /// The exit code as a shell sees it; panics when the program does not end within `limit`.
    #[track_caller]
    pub(crate) fn exit_code_within(&mut self, limit: Duration) -> i32 {
        let what = format!("the end of run {}", self.dir.display());
        wait::value(&what, limit, || self.try_exit_code())
    }

    /// The exit code as a shell sees it; panics when the program goes on and on.
    #[track_caller]
    pub(crate) fn exit_code(&mut self) -> i32 {
        self.exit_code_within(Duration::from_secs(60))
    }

    /// Waits for the end, and returns all there is to know.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let code = self.exit_code();
        Finished {
            code,
            took: self.started.elapsed(),
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }

    pub(crate) fn stdout(&self) -> String {
        self.output("stdout")
    }

    pub(crate) fn stderr(&self) -> String {
        self.output("stderr")
    }

    fn output(&self, name: &str) -> String {
        let bytes = fs::read(self.dir.join(name)).expect("read an output file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The lives of this run's workers.
    pub(crate) fn spans(&self) -> Vec<Span> {
        worker::spans(&self.dir)
    }

    /// Waits until the worker works; panics when the program ends without.
    #[track_caller]
    pub(crate) fn wait_for_worker(&mut self) -> Span {
        wait::value("the worker starts", wait::SOON, || {
            let worker = self.spans().first().copied();
            if worker.is_none() && self.try_exit_code().is_some() && self.spans().is_empty() {
                panic!(
                    "exit {:?} without a worker: {}",
                    self.try_exit_code(),
                    self.stderr()
                );
            }
            worker
        })
    }

    /// Waits until a worker works, or the run has ended without one; whether one does.
    #[track_caller]
    pub(crate) fn gets_to_work(&mut self) -> bool {
        wait::value("a worker works, or the run ends", wait::SOON, || {
            let ended = self.try_exit_code().is_some();
            match self.spans().is_empty() {
                true => ended.then_some(false),
                false => Some(true),
            }
        })
    }

    /// Has the workers come to their end, as if their time was over.
    pub(crate) fn end_work(&self) {
        worker::end(&self.dir);
    }

    /// Everything that runs and descends from this run, whatever group or parent it has by now.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        processes::with_variable(RUN_MARK, &self.dir.to_string_lossy())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Again, because the first round may miss what is being started.
        loop {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            processes::signal_all(&left, Signal::SIGKILL);
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) took: Duration,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// How long workers of these runs were alive at the same time, in the worst case.
pub(crate) fn overlap<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Option<Duration> {
    let spans: Vec<Span> = runs.into_iter().flat_map(Run::spans).collect();
    worker::overlap(&spans)
}

/// One line that the program logged.
#[derive(Debug, PartialEq)]
pub(crate) struct Logged {
    pub(crate) level: String,
    pub(crate) message: String,
}

/// Reads stderr as lines of the form `2026-01-31 03:00:00 [WARNING] message`; panics at any other.
#[track_caller]
pub(crate) fn log_lines(stderr: &str) -> Vec<Logged> {
    stderr.lines().map(log_line).collect()
}

#[track_caller]
fn log_line(line: &str) -> Logged {
    const TIME: &str = "dddd-dd-dd dd:dd:dd [";
    let has_time = line.len() > TIME.len()
        && line.chars().zip(TIME.chars()).all(|(c, form)| match form {
            'd' => c.is_ascii_digit(),
            other => c == other,
        });
    let rest = if has_time { &line[TIME.len()..] } else { "" };
    let (level, message) = rest
        .split_once("] ")
        .unwrap_or_else(|| panic!("not a log line: {line:?}"));
    Logged {
        level: level.into(),
        message: message.into(),
    }
}

impl Finished {
    /// The only line that was logged.
    #[track_caller]
    pub(crate) fn only_log_line(&self) -> Logged {
        let mut lines = log_lines(&self.stderr);
        assert_eq!(lines.len(), 1, "{}", self.stderr);
        lines.remove(0)
    }
}

/// Starts contenders, one after the other, until one of them gets to work; as hosts would that fire
/// again and again.
#[track_caller]
pub(crate) fn work_when_free(dislock: &Dislock, limit: Duration) -> Run {
    wait::value("a contender gets the lock", limit, || {
        let mut run = dislock.work(Duration::from_secs(60));
        run.gets_to_work().then_some(run)
    })
}
