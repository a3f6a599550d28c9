//! What it costs to hold leases: the renewals.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext};

use crate::report::Group;
use crate::support::database::Database;
use crate::support::proxy::Proxy;
use crate::support::{server, wait};

/// In which there is a renewal, and what was of use for the acquisitions only is closed.
const A_WHILE: Duration = Duration::from_secs(20);

/// The costs of a renewal, by how many leases there are.
pub(crate) fn renewals() {
    let mut group = Group::new("renewals");
    for leases in [1, 100, 10_000] {
        let subject = format!("{leases} leases");
        let minute = Duration::from_secs(60);
        keep(&mut group, &subject, &Database::new(), leases, minute);
    }
}

/// What room in the table's pages does to renewals; `schema.sql` leaves half of them free.
pub(crate) fn fillfactor() {
    let mut group = Group::new("fillfactor");
    for percent in [50, 100, 70, 40] {
        let database = Database::new();
        database.sql(&format!(
            "ALTER TABLE key_value SET (fillfactor = {percent})"
        ));
        let subject = format!("fillfactor {percent}");
        let length = Duration::from_secs(30);
        keep(&mut group, &subject, &database, 10_000, length);
    }
}

/// A large service: whether it keeps its leases for long, and at what cost.
pub(crate) fn many(leases: u32, seconds: u32) {
    let mut group = Group::new("many");
    let subject = format!("{leases} leases");
    let length = Duration::from_secs(seconds.into());
    keep(&mut group, &subject, &Database::new(), leases, length);
}

/// Holds so many leases (TTL 60 s, renewed every 10 s) for so long.
fn keep(group: &mut Group, subject: &str, database: &Database, leases: u32, length: Duration) {
    let mut add = |measure, value| group.add(subject, measure, value);
    let proxy = database.proxy();

    let started = Instant::now();
    let held = acquire(&database.url_via(&proxy), leases);
    add("acquired in s", started.elapsed().as_secs_f64());
    let backend = wait::value("one thread and one connection are left", A_WHILE, || {
        only(backends(database)).filter(|_| heartbeats().len() == 1)
    });
    let updates = Updates::of(database);
    let before = Totals::after_a_renewal(database, &proxy, backend);
    let resident = resident_mib();

    let (mut lost, mut connections) = (0, 0);
    let end = Instant::now() + length;
    while Instant::now() < end {
        thread::sleep(Duration::from_secs(1));
        lost = lost.max(held.iter().filter(|lease| lease.is_lost()).count());
        connections = connections.max(backends(database).len());
    }
    let resident_after = resident_mib();
    let after = Totals::after_a_renewal(database, &proxy, backend);
    let (updates, hot) = Updates::of(database).since(&updates);

    let seconds = (after.at - before.at).as_secs_f64();
    let renewals = after.renewals - before.renewals;
    let statements = after.round_trips - before.round_trips;
    add("held for s", seconds);
    add("lost", lost as f64);
    add("renewals", renewals);
    add("statements/s", statements / seconds);
    add("leases/statement", renewals / statements);
    add("WAL bytes/renewal", (after.wal - before.wal) / renewals);
    add("HOT share", hot / updates);
    let cpu = after.server_cpu - before.server_cpu;
    add("server CPU %", cpu / seconds * 100.0);
    add("server CPU us/renewal", cpu * 1e6 / renewals);
    let cpu = after.client_cpu - before.client_cpu;
    add("client CPU %", cpu / seconds * 100.0);
    add("client CPU us/renewal", cpu * 1e6 / renewals);
    add("resident MiB before", resident);
    add("resident MiB after", resident_after);
    add("threads", heartbeats().len() as f64);
    add("connections at most", connections as f64);
    let started = Instant::now();
    drop(held);
    add("released in s", started.elapsed().as_secs_f64());
}

/// One by one, as a program does.
fn acquire(url: &str, leases: u32) -> Vec<LeaseLock> {
    let lease = |n| {
        let ctx = LockContext::builder(url, format!("job-{n}"));
        LeaseLock::acquire(&ctx.build().unwrap()).unwrap()
    };
    (0..leases).map(lease).collect()
}

/// What has been spent so far.
struct Totals {
    at: Instant,
    renewals: f64,
    /// Each is one statement.
    round_trips: f64,
    wal: f64,
    /// Of the process that renews, in seconds.
    server_cpu: f64,
    /// Of the thread that renews, in seconds.
    client_cpu: f64,
}

impl Totals {
    /// Right after a renewal, which is when the server counts it. Asked from another database, in order
    /// not to be counted.
    fn after_a_renewal(database: &Database, proxy: &Proxy, backend: u32) -> Self {
        let query = format!(
            "SELECT tup_updated, pg_current_wal_lsn() - '0/0' FROM pg_stat_database \
             WHERE datname = '{}'",
            database.name()
        );
        let ask = || {
            let rows = server::shared().sql(&query);
            [0, 1].map(|column| number(&rows[0][column]))
        };
        let [seen, _] = ask();
        let [renewals, wal] = wait::value("a renewal is counted", A_WHILE, || {
            Some(ask()).filter(|[renewals, _]| *renewals > seen)
        });
        let [thread] = &heartbeats()[..] else {
            panic!("not one thread that renews");
        };
        Self {
            at: Instant::now(),
            renewals,
            round_trips: proxy.round_trips() as f64,
            wal,
            server_cpu: cpu_of(&format!("/proc/{backend}")),
            client_cpu: cpu_of(&format!("/proc/self/task/{thread}")),
        }
    }
}

/// Of the table, and how many of them were HOT.
struct Updates {
    all: f64,
    hot: f64,
}

impl Updates {
    fn of(database: &Database) -> Self {
        let rows = database.sql(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'key_value'",
        );
        let [all, hot] = [0, 1].map(|column| number(&rows[0][column]));
        Self { all, hot }
    }

    fn since(&self, before: &Self) -> (f64, f64) {
        (self.all - before.all, self.hot - before.hot)
    }
}

fn number(value: &Option<String>) -> f64 {
    value.as_deref().unwrap().parse().unwrap()
}

/// The server's processes for the leases' connections.
fn backends(database: &Database) -> Vec<u32> {
    let rows = server::shared().sql(&format!(
        "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND application_name LIKE 'dislock:%'",
        database.name()
    ));
    let pid = |row: Vec<Option<String>>| row[0].as_deref().unwrap().parse().unwrap();
    rows.into_iter().map(pid).collect()
}

fn only(pids: Vec<u32>) -> Option<u32> {
    match pids[..] {
        [pid] => Some(pid),
        _ => None,
    }
}

/// The threads of this process that renew.
fn heartbeats() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let ids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
    ids.filter(|id| {
        let name = fs::read_to_string(format!("/proc/self/task/{id}/comm"));
        name.is_ok_and(|name| name.starts_with("dislock-"))
    })
    .collect()
}

fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    kib / 1024.0
}

/// Of a process or thread of this machine, in seconds.
fn cpu_of(process: &str) -> f64 {
    let ns = fs::read_to_string(format!("{process}/schedstat")).unwrap();
    let ns: f64 = ns.split_whitespace().next().unwrap().parse().unwrap();
    ns / 1e9
}
