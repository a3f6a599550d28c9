//! What locks cost a program that holds them.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::report::Group;

const PAIRS_FOR: Duration = Duration::from_secs(5);

fn lease(url: &str, key: &str) -> LeaseLock {
    let ctx = LockContext::builder(url, key).build().unwrap();
    LeaseLock::acquire(&ctx).unwrap()
}

/// The only value that a query answers.
fn value(url: &str, query: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let messages = client.simple_query(query).await.unwrap();
        let row = messages.into_iter().find_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            row.get(0).map(str::to_owned)
        });
        row.unwrap_or_default()
    })
}

fn number(url: &str, query: &str) -> f64 {
    value(url, query).parse().unwrap()
}

/// Acquire and release as fast as it goes, beside pgbench with the same two statements.
pub(crate) fn pairs(url: &str) {
    let mut group = Group::new("pairs");
    for threads in [1_usize, 16] {
        let script = tempfile::NamedTempFile::new().unwrap();
        fs::write(script.path(), include_str!("pair.sql")).unwrap();
        let mut pgbench = |clients: usize, subject: &str| {
            let output = Command::new("pgbench")
                .args([
                    "-n",
                    "-M",
                    "simple",
                    "-T",
                    "5",
                    "-c",
                    &clients.to_string(),
                    "-f",
                ])
                .arg(script.path())
                .arg(url)
                .output();
            let Ok(output) = output else { return };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let tps = text.lines().find_map(|line| line.strip_prefix("tps = "));
            let tps = tps.and_then(|rest| rest.split(' ').next()?.parse().ok());
            group.line(subject, "pairs/s", tps.unwrap_or(f64::NAN));
        };
        pgbench(1, "pgbench, 1 connection");
        if threads > 1 {
            pgbench(threads, &format!("pgbench, {threads} connections"));
        }
        let end = Instant::now() + PAIRS_FOR;
        let done: u32 = thread::scope(|scope| {
            let running: Vec<_> = (0..threads)
                .map(|n| {
                    scope.spawn(move || {
                        let ctx = LockContext::builder(url, format!("pair-{n}"))
                            .build()
                            .unwrap();
                        let mut done = 0;
                        while Instant::now() < end {
                            LeaseLock::acquire(&ctx).unwrap().release().unwrap();
                            done += 1;
                        }
                        done
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        let rate = f64::from(done) / PAIRS_FOR.as_secs_f64();
        group.line(&format!("dislock, {threads} threads"), "pairs/s", rate);
    }
}

/// CPU of this process, in seconds.
fn own_cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
}

/// CPU of the server's process that renews, in seconds; zero where it runs elsewhere.
fn server_cpu(url: &str) -> f64 {
    let query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'dislock:%' LIMIT 1";
    let stat = fs::read_to_string(format!("/proc/{}/stat", value(url, query)));
    let ticks = stat.ok().and_then(|stat| {
        let fields: Vec<f64> = stat
            .rsplit(')')
            .next()?
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        Some(fields[11] + fields[12])
    });
    ticks.unwrap_or(0.0) / 100.0
}

fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    kib / 1024.0
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Holds so many leases (TTL 60 s, renewed every 10 s) for so long.
pub(crate) fn keep(name: &'static str, url: &str, leases: u32, seconds: u32) {
    let mut group = Group::new(name);
    let subject = format!("{leases} leases");
    let started = Instant::now();
    let held: Vec<LeaseLock> = (0..leases)
        .map(|n| lease(url, &format!("{name}-{n}")))
        .collect();
    let acquired = started.elapsed().as_secs_f64();
    // The first renewals bring leases together that were taken one by one.
    thread::sleep(Duration::from_secs(12));
    let updates = "SELECT n_tup_upd FROM pg_stat_user_tables \
                   WHERE relname = 'key_value'";
    let hot = updates.replacen("n_tup_upd", "n_tup_hot_upd", 1);
    let commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let wal = "SELECT pg_current_wal_lsn() - '0/0'";
    let before = [updates, &hot, commits, wal].map(|query| number(url, query));
    let (cpu, server, resident) = (own_cpu(), server_cpu(url), resident_mib());
    let connections =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'dislock:%'";
    let connections = number(url, connections);
    let end = Instant::now() + Duration::from_secs(seconds.into());
    while Instant::now() < end {
        thread::sleep(Duration::from_secs(1));
    }
    let lost = held.iter().filter(|lease| lease.is_lost()).count();
    let seconds = f64::from(seconds);
    group.line(&subject, "acquired in s", acquired);
    group.line(&subject, "held for s", seconds);
    group.line(&subject, "lost", lost as f64);
    group.line(
        &subject,
        "client CPU %",
        (own_cpu() - cpu) / seconds * 100.0,
    );
    group.line(
        &subject,
        "server CPU %",
        (server_cpu(url) - server) / seconds * 100.0,
    );
    group.line(&subject, "resident MiB before", resident);
    group.line(&subject, "resident MiB after", resident_mib());
    group.line(&subject, "threads", threads() as f64);
    group.line(&subject, "connections", connections);
    let after = [updates, &hot, commits, wal].map(|query| number(url, query));
    let [renewals, hot, commits, wal] = [0, 1, 2, 3].map(|n| after[n] - before[n]);
    group.line(&subject, "renewals", renewals);
    group.line(&subject, "HOT share", hot / renewals);
    group.line(&subject, "statements per s", commits / seconds);
    group.line(&subject, "WAL bytes per renewal", wal / renewals);
    let started = Instant::now();
    drop(held);
    group.line(&subject, "released in s", started.elapsed().as_secs_f64());
}
