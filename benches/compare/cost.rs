//! What it costs to run a program.

use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

pub(crate) const DISLOCK: &str = env!("CARGO_BIN_EXE_dislock");
/// The argument that makes this program the parent of what is measured.
pub(crate) const PARENT: &str = "--run";

/// Of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// In seconds.
    pub(crate) wall: f64,
    /// In seconds.
    pub(crate) cpu: f64,
    /// The most memory that was resident in one process, in KiB.
    pub(crate) peak: f64,
}

impl Cost {
    /// The mean of so many runs, one after the other, each under a lock of its own.
    ///
    /// The parent of the runs is a process of its own, or others' memory would count, too.
    pub(crate) fn of_runs(runs: u32, url: &str, words: &[&str]) -> Self {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([PARENT, &runs.to_string()])
            .args(words)
            .env("DATABASE_URL", url)
            .env("CRON_SCHEDULE", "* * * * *")
            .env("ETCDCTL_API", "3")
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<f64> = text
            .split_whitespace()
            .map(|number| number.parse().unwrap())
            .collect();
        let [wall, cpu, peak] = numbers[..] else {
            panic!("not three numbers: {text}");
        };
        Self {
            wall: wall / f64::from(runs),
            cpu: cpu / f64::from(runs),
            peak,
        }
    }
}

/// The work of the parent: runs `words[1..]` as often as the first one says and prints what that cost.
pub(crate) fn be_parent(words: &[String]) {
    let runs: u32 = words[0].parse().unwrap();
    let started = Instant::now();
    for n in 0..runs {
        let status = Command::new(&words[1])
            .args(&words[2..])
            .env("LOCK_KEY", format!("run-{}-{n}", std::process::id()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{words:?}: {status}");
    }
    let wall = started.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    println!("{wall} {} {}", children_cpu(), usage.max_rss());
}

/// Of all children that have ended, in seconds.
pub(crate) fn children_cpu() -> f64 {
    cpu(UsageWho::RUSAGE_CHILDREN)
}

/// Of this process, in seconds.
pub(crate) fn own_cpu() -> f64 {
    cpu(UsageWho::RUSAGE_SELF)
}

fn cpu(of: UsageWho) -> f64 {
    let usage = getrusage(of).unwrap();
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
}

/// The program, or why it cannot be run.
pub(crate) fn installed(program: &str) -> Result<&str, String> {
    match Command::new(program).arg("--version").output() {
        Ok(_) => Ok(program),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// One of PostgreSQL's programs, or why it cannot be run. From the server's own directory if it is known:
/// what Debian has in PATH is a script that looks for the right version, which costs more than the rest.
pub(crate) fn of_postgres(program: &str) -> Result<String, String> {
    let directory = std::env::var("TEST_POSTGRES_BINDIR").unwrap_or_default();
    let own = format!("{directory}/{program}");
    installed(&own)
        .or_else(|_| installed(program))
        .map(str::to_owned)
}

/// The Python original, or why there is none.
pub(crate) fn python() -> Result<String, String> {
    std::env::var("DISLOCK_PYTHON").map_err(|_| "DISLOCK_PYTHON does not name its program".into())
}
