//! One run of a command under a lock, beside other ways to run it.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::proxy::Proxy;
use crate::report::Group;
use crate::wait;

const DISLOCK: &str = env!("CARGO_BIN_EXE_dislock");
const RUNS: u32 = 40;
const HERD: usize = 500;

/// In a process of its own, so that the costs are those of one subject: runs a command so many times
/// and prints seconds, CPU seconds and the largest resident size in KiB.
pub(crate) fn run_children(words: &[String]) {
    let runs: u32 = words[0].parse().unwrap();
    let started = Instant::now();
    for _ in 0..runs {
        let status = quiet(&words[1..]).status().unwrap();
        assert!(status.success(), "{words:?}: {status}");
    }
    let wall = started.elapsed().as_secs_f64();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let cpu = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    println!("{wall} {} {}", cpu as f64 / 1e6, usage.max_rss());
}

fn quiet(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

struct Cost {
    wall: f64,
    cpu: f64,
    peak: f64,
}

/// Per run.
fn cost(runs: u32, url: &str, words: &[&str]) -> Cost {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg("--children")
        .arg(runs.to_string())
        .args(words)
        .env("DATABASE_URL", url)
        .env("LOCK_KEY", "bench")
        .env("CRON_SCHEDULE", "* * * * *")
        .env("ETCDCTL_API", "3")
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    Cost {
        wall: numbers[0] / f64::from(runs),
        cpu: numbers[1] / f64::from(runs),
        peak: numbers[2],
    }
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// An etcd on ports of its own, gone when this is dropped.
struct Etcd {
    child: Child,
    endpoint: String,
    _data: tempfile::TempDir,
}

impl Etcd {
    fn start() -> Option<Self> {
        if !is_installed("etcd") || !is_installed("etcdctl") {
            return None;
        }
        let data = tempfile::tempdir().unwrap();
        let (endpoint, peer) = ("http://127.0.0.1:23790", "http://127.0.0.1:23800");
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(data.path())
            .args([
                "--listen-client-urls",
                endpoint,
                "--advertise-client-urls",
                endpoint,
            ])
            .args([
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        wait::eventually("etcd listens", || {
            TcpStream::connect("127.0.0.1:23790").is_ok()
        });
        std::thread::sleep(Duration::from_secs(2));
        Some(Self {
            child,
            endpoint: endpoint.to_owned(),
            _data: data,
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run of `true`.
pub(crate) fn compare(url: &str) {
    let mut group = Group::new("cli");
    let mut measure = |subject: &str, runs: u32, words: &[&str]| {
        let cost = cost(runs, url, words);
        group.line(subject, "wall ms", cost.wall * 1e3);
        group.line(subject, "CPU ms", cost.cpu * 1e3);
        group.line(subject, "peak MiB", cost.peak / 1024.0);
    };
    let lease = ["--strategy", "lease", "DATABASE_URL", "true"];
    measure("dislock lease", RUNS, &[&[DISLOCK], &lease[..]].concat());
    measure("dislock schedule", RUNS, &[DISLOCK, "DATABASE_URL", "true"]);
    if is_installed("psql") {
        measure("psql select 1", RUNS, &["psql", url, "-c", "select 1"]);
    }
    if is_installed("flock") {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        measure("flock", RUNS, &["flock", path, "true"]);
    }
    if let Some(etcd) = Etcd::start() {
        let words = [
            "etcdctl",
            "--endpoints",
            &etcd.endpoint,
            "lock",
            "bench",
            "true",
        ];
        measure("etcdctl lock", RUNS, &words);
    }
    if let Ok(python) = std::env::var("DISLOCK_PYTHON") {
        let program = [
            "env",
            "LOCK_STRATEGY=lease",
            &python,
            "DATABASE_URL",
            "true",
        ];
        measure("Python original", RUNS / 4, &program);
    }
}

/// Over a link with 20 ms each way, in plain text and without a password.
pub(crate) fn round_trips(url: &str) {
    let (host, port) = address(url);
    let proxy = Proxy::to(&host, port);
    proxy.slow_down(Duration::from_millis(20));
    let via = url.replacen(
        &format!("{host}:{port}"),
        &format!("127.0.0.1:{}", proxy.port()),
        1,
    );
    let via = format!(
        "{via}{}sslmode=disable",
        if via.contains('?') { '&' } else { '?' }
    );
    let mut group = Group::new("round trips");
    for strategy in ["lease", "schedule", "schedule,lease"] {
        let before = proxy.round_trips();
        // A schedule of its own for each, or the slot would be taken.
        let key = format!("round-trips-{strategy}-{}", std::process::id());
        let words = [
            "--key",
            &key,
            "--strategy",
            strategy,
            "DATABASE_URL",
            "true",
        ];
        let cost = cost(1, &via, &[&[DISLOCK], &words[..]].concat());
        group.line(
            strategy,
            "round trips",
            (proxy.round_trips() - before) as f64,
        );
        group.line(strategy, "wall ms", cost.wall * 1e3);
    }
}

fn address(url: &str) -> (String, u16) {
    let config: tokio_postgres::Config = url.parse().unwrap();
    let host = match config.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
        _ => panic!("DATABASE_URL must name a TCP host"),
    };
    (host, config.get_ports().first().copied().unwrap_or(5432))
}

/// Many hosts fire one tick.
pub(crate) fn herd(url: &str) {
    let mut group = Group::new("herd");
    group_of_contenders(&mut group, url, "dislock", DISLOCK, HERD);
    if let Ok(python) = std::env::var("DISLOCK_PYTHON") {
        group_of_contenders(&mut group, url, "Python original", &python, HERD / 10);
    }
}

fn group_of_contenders(group: &mut Group, url: &str, subject: &str, program: &str, n: usize) {
    let cpu = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e3
    };
    let before = cpu();
    let started = Instant::now();
    let children: Vec<Child> = (0..n)
        .map(|_| {
            let mut command = Command::new(program);
            command.args(["DATABASE_URL", "echo", "started"]);
            command
                .env("DATABASE_URL", url)
                .env("LOCK_KEY", format!("herd-{subject}"));
            command.env("LOCK_CONNECT_TIMEOUT_SECONDS", "120");
            command
                .env("CRON_SCHEDULE", "0 0 1 1 *")
                .env("LOCK_STRATEGY", "schedule");
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let outputs: Vec<_> = children
        .into_iter()
        .map(|c| c.wait_with_output().unwrap())
        .collect();
    let starts = outputs.iter().filter(|o| !o.stdout.is_empty()).count();
    let failures = outputs.iter().filter(|o| !o.status.success()).count();
    group.line(subject, "contenders", n as f64);
    group.line(subject, "starts", starts as f64);
    group.line(subject, "failures", failures as f64);
    group.line(subject, "CPU ms per contender", (cpu() - before) / n as f64);
    group.line(subject, "wall s", started.elapsed().as_secs_f64());
}
