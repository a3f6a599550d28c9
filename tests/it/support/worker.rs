//! The command under the lock: it writes down when it was really alive, so that a test sees what
//! happened and not what a log says.
//!
//! The worker is this test binary itself, started again with only the test below and a variable
//! that says how long to work. So it needs no other program to be built, found or installed, works
//! with `cargo test` and nextest alike, and reads the same clock as the tests.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::home::RUN_MARK;

/// How long to work, in milliseconds.
const WORK: &str = "IT_WORK_MILLIS";

/// The file in the directory of a run that ends its workers' work.
const ENOUGH: &str = "enough";

/// The sign of life comes this often.
const PULSE: Duration = Duration::from_millis(4);

/// The life of one worker, on the clock of [`now`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) pid: Pid,
    pub(crate) start: Duration,
    /// The last sign of life.
    pub(crate) end: Duration,
    /// It worked to its end.
    pub(crate) done: bool,
}

/// Program and arguments of a worker.
pub(crate) fn command() -> Vec<String> {
    let this = std::env::current_exe().expect("this test binary");
    let program = this
        .into_os_string()
        .into_string()
        .expect("a readable path");
    let test = concat!(module_path!(), "::a_worker_records_its_life");
    let (_crate, test) = test.split_once("::").expect("a path");
    ["--exact", test, "--nocapture", "--test-threads=1"]
        .iter()
        .fold(vec![program], |mut words, word| {
            words.push((*word).into());
            words
        })
}

/// The variable that makes [`command`] work for `duration`.
pub(crate) fn variable(duration: Duration) -> (&'static str, String) {
    (WORK, duration.as_millis().to_string())
}

/// The lives recorded in the directory of a run, in the order of their start.
pub(crate) fn spans(run: &Path) -> Vec<Span> {
    let log = fs::read_to_string(log_file(run)).unwrap_or_default();
    let mut spans: Vec<Span> = Vec::new();
    // A last line without its end is still being written.
    for line in log.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, pid, nanos] = words[..] else {
            panic!("a worker wrote {line:?}");
        };
        let pid = Pid::from_raw(pid.parse().expect("a pid"));
        let at = Duration::from_nanos(nanos.parse().expect("nanoseconds"));
        match spans.iter_mut().find(|span| span.pid == pid) {
            Some(span) => {
                span.end = at;
                span.done = what == "done";
            }
            None => spans.push(Span {
                pid,
                start: at,
                end: at,
                done: false,
            }),
        }
    }
    spans
}

/// Has the workers of a run come to their end.
pub(crate) fn end(run: &Path) {
    fs::write(run.join(ENOUGH), "").expect("tell the workers to end");
}

/// How long two workers were alive at the same time, in the worst case; `None` when never.
pub(crate) fn overlap(spans: &[Span]) -> Option<Duration> {
    let pairs = spans
        .iter()
        .enumerate()
        .flat_map(|(n, a)| spans[n + 1..].iter().map(move |b| (a, b)));
    pairs
        .filter_map(|(a, b)| a.end.min(b.end).checked_sub(a.start.max(b.start)))
        .max()
}

/// The clock of the spans.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .expect("the monotonic clock")
        .into()
}

fn log_file(run: &Path) -> PathBuf {
    run.join("worker.log")
}

fn work(run: &Path, duration: Duration) {
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log_file(run))
        .expect("the worker's log");
    let mut write = |what: &str, at: Duration| {
        // One write for one line: other workers of the run append to the same file.
        let line = format!("{what} {} {}\n", std::process::id(), at.as_nanos());
        log.write_all(line.as_bytes())
            .expect("write the worker's log");
    };
    let start = now();
    let enough = run.join(ENOUGH);
    write("start", start);
    while now() < start + duration && !enough.exists() {
        std::thread::sleep(PULSE);
        write("alive", now());
    }
    write("done", now());
}

/// Started as a worker, works. Started as a test, checks one.
#[test]
fn a_worker_records_its_life() {
    if let (Ok(millis), Some(run)) = (std::env::var(WORK), std::env::var_os(RUN_MARK)) {
        let millis = millis.parse().expect("milliseconds");
        return work(Path::new(&run), Duration::from_millis(millis));
    }
    let run = super::home::new_dir("worker");
    let start_worker = |millis| {
        let words = command();
        std::process::Command::new(&words[0])
            .args(&words[1..])
            .envs([variable(Duration::from_millis(millis))])
            .env(RUN_MARK, &run)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("start a worker")
    };

    let before = now();
    let mut first = start_worker(100);
    assert!(first.wait().expect("wait for the worker").success());
    let mut second = start_worker(60_000);
    super::wait::eventually("the second worker starts", || spans(&run).len() == 2);
    second.kill().expect("kill the worker");
    second.wait().expect("wait for the worker");
    let after = now();

    let spans = spans(&run);
    assert!(spans[0].done && !spans[1].done, "{spans:?}");
    assert!(before < spans[0].start && spans[1].end < after, "{spans:?}");
    assert!(spans[0].end - spans[0].start >= Duration::from_millis(100));
    assert_eq!(overlap(&spans), None);
    assert!(overlap(&[spans[0], spans[0]]) >= Some(Duration::from_millis(100)));
}
