//! One run of a command under a lock, beside other ways to run it; then over a slow link.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::cost::{Cost, DISLOCK, installed, of_postgres, python};
use crate::report::Group;
use crate::support::database::Database;
use crate::support::wait;

const ROUNDS: u32 = 9;
const RUNS_PER_ROUND: u32 = 10;

/// The same way to run a command, again and again.
struct Subject {
    name: &'static str,
    words: Vec<String>,
}

impl Subject {
    fn new(name: &'static str, words: &[&str]) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { name, words }
    }

    fn dislock(name: &'static str, strategy: &str) -> Self {
        let words = [DISLOCK, "--strategy", strategy, "DATABASE_URL", "true"];
        Self::new(name, &words)
    }

    fn psql(url: &str) -> Result<Self, String> {
        let words = [&of_postgres("psql")?, url, "-c", "select 1"];
        Ok(Self::new("psql -c 'select 1'", &words))
    }

    fn python() -> Result<Self, String> {
        let program = python()?;
        let words = [
            "env",
            "LOCK_STRATEGY=lease",
            &program,
            "DATABASE_URL",
            "true",
        ];
        Ok(Self::new("Python original, lease", &words))
    }

    fn cost(&self, runs: u32, url: &str) -> Cost {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        Cost::of_runs(runs, url, &words)
    }
}

/// Those that there are; says why the others are not.
fn present(
    group: &Group,
    subjects: impl IntoIterator<Item = (&'static str, Result<Subject, String>)>,
) -> Vec<Subject> {
    let mut present = Vec::new();
    for (name, subject) in subjects {
        match subject {
            Ok(subject) => present.push(subject),
            Err(why) => group.skip(name, &why),
        }
    }
    present
}

/// A run of `true`.
pub(crate) fn on_this_machine() {
    let mut group = Group::new("cli");
    let database = Database::new();
    let url = database.url();
    let file = tempfile::NamedTempFile::new().unwrap();
    let etcd = Etcd::start();
    let flock = installed("flock").map(|flock| {
        let words = [flock, file.path().to_str().unwrap(), "true"];
        Subject::new("flock file true", &words)
    });
    let etcdctl = etcd.as_ref().map_err(Clone::clone).map(|etcd| {
        let at = ["etcdctl", "--endpoints", &etcd.endpoint];
        Subject::new(
            "etcdctl lock",
            &[&at[..], &["lock", "bench", "true"]].concat(),
        )
    });
    let mut subjects = vec![
        Subject::dislock("dislock, lease", "lease"),
        Subject::dislock("dislock, schedule", "schedule"),
    ];
    subjects.extend(present(
        &group,
        [
            ("psql", Subject::psql(&url)),
            ("flock", flock),
            ("etcdctl lock", etcdctl),
            ("Python original", Subject::python()),
        ],
    ));
    for _ in 0..ROUNDS {
        for subject in &subjects {
            let cost = subject.cost(RUNS_PER_ROUND, &url);
            group.add(subject.name, "wall ms", cost.wall * 1e3);
            group.add(subject.name, "CPU ms", cost.cpu * 1e3);
            group.add(subject.name, "peak MiB", cost.peak / 1024.0);
        }
    }
}

/// Over a link with 20 ms each way, in plain text and without a password.
pub(crate) fn over_a_slow_link() {
    let mut group = Group::new("link");
    let database = Database::new();
    let proxy = database.proxy();
    proxy.slow_down(Duration::from_millis(20));
    let url = format!("{}?sslmode=disable", database.url_via(&proxy));
    let mut subjects = vec![
        Subject::dislock("dislock, lease", "lease"),
        Subject::dislock("dislock, schedule", "schedule"),
        Subject::dislock("dislock, both", "schedule,lease"),
    ];
    subjects.extend(present(
        &group,
        [
            ("psql", Subject::psql(&url)),
            ("Python original", Subject::python()),
        ],
    ));
    for _ in 0..ROUNDS {
        for subject in &subjects {
            let before = proxy.round_trips();
            let cost = subject.cost(1, &url);
            let round_trips = proxy.round_trips() - before;
            group.add(subject.name, "round trips", round_trips as f64);
            group.add(subject.name, "wall ms", cost.wall * 1e3);
        }
    }
}

/// An etcd of our own, gone when this is dropped.
struct Etcd {
    child: Child,
    endpoint: String,
    _data: tempfile::TempDir,
}

impl Etcd {
    fn start() -> Result<Self, String> {
        let program = installed("etcd")?;
        installed("etcdctl")?;
        let data = tempfile::tempdir().unwrap();
        let [endpoint, peer] =
            [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
        let cluster = format!("default={peer}");
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(data.path())
            .args(["--listen-client-urls", &endpoint])
            .args(["--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let etcd = Self {
            child,
            endpoint,
            _data: data,
        };
        wait::eventually("etcd answers", || {
            let mut health = Command::new("etcdctl");
            health.args(["--endpoints", &etcd.endpoint, "endpoint", "health"]);
            health
                .env("ETCDCTL_API", "3")
                .output()
                .is_ok_and(|output| output.status.success())
        });
        Ok(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
