//! Acquire and release as fast as it goes, beside the same two statements sent by others.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

use crate::cost::{children_cpu, of_postgres, own_cpu};
use crate::report::Group;
use crate::support::database::Database;

/// What dislock sends: a unit test of its statements compares them with these.
const ACQUIRE: &str = include_str!("acquire.sql");
const RELEASE: &str = include_str!("release.sql");

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_secs(2);

pub(crate) fn pairs_of_statements() {
    for threads in [1, 16] {
        let mut group = Group::new(format!("pairs, {threads} at a time"));
        let database = Database::new();
        let url = database.url();
        let pgbench = of_postgres("pgbench");
        if let Err(why) = &pgbench {
            group.skip("pgbench", why);
        }
        for _ in 0..ROUNDS {
            let mut add = |subject, measure: &dyn Fn() -> f64| {
                let cpu = own_cpu() + children_cpu();
                let done = measure();
                let cpu = own_cpu() + children_cpu() - cpu;
                group.add(subject, "pairs/s", done / ROUND.as_secs_f64());
                group.add(subject, "client CPU us/pair", cpu * 1e6 / done);
            };
            if let Ok(pgbench) = &pgbench {
                add("pgbench", &|| by_pgbench(pgbench, &url, threads));
            }
            add("dislock", &|| by_dislock(&url, threads));
            add("driver alone", &|| by_driver(&url, threads));
        }
    }
}

/// How many pairs were done in a round.
fn by_dislock(url: &str, threads: usize) -> f64 {
    let end = Instant::now() + ROUND;
    let pairs = |thread: usize| {
        let ctx = LockContext::builder(url, format!("dislock-{thread}"));
        let ctx = ctx.build().unwrap();
        let mut done = 0;
        while Instant::now() < end {
            LeaseLock::acquire(&ctx).unwrap().release().unwrap();
            done += 1;
        }
        done
    };
    let done: u32 = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|n| scope.spawn(move || pairs(n)))
            .collect();
        let done = running.into_iter().map(|thread| thread.join().unwrap());
        done.sum()
    });
    f64::from(done)
}

/// A connection for each client, and the same protocol: parse, bind and execute in one go.
fn by_pgbench(pgbench: &str, url: &str, clients: usize) -> f64 {
    let acquire = ACQUIRE
        .replace("$1", ":value::text")
        .replace("$2", ":patience::text")
        .replace("$3", "(:key::text || :client_id)")
        .replace("$4", ":ttl::float8")
        .replace("$5", "(:fence::text || :client_id)");
    let release = RELEASE
        .replace("$1", "ARRAY[:key::text || :client_id]")
        .replace("$2", "ARRAY[:value::text]")
        .replace("$3", "ARRAY[:channel::text || :client_id]");
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), format!("{acquire};\n{release};\n")).unwrap();
    let clients = clients.to_string();
    let output = Command::new(pgbench)
        .args([
            "--no-vacuum",
            "--protocol",
            "extended",
            "--client",
            &clients,
        ])
        .args(["--time", &ROUND.as_secs().to_string()])
        .args([
            "-D",
            "value=pgbench:0123456789abcdef",
            "-D",
            "patience=200ms",
        ])
        .args(["-D", "key=cronjob-lock:lease:pgbench-", "-D", "ttl=60"])
        .args(["-D", "fence=cronjob-lock:fence:pgbench-"])
        .args(["-D", "channel=dislock:0123456789abcde"])
        .arg("--file")
        .arg(script.path())
        .arg(url)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // The last one of old versions leaves the time to connect out, as does the only one of new ones.
    let line = text.lines().rfind(|line| line.starts_with("tps = "));
    let rate: Option<f64> = line.and_then(|line| line.split(' ').nth(2)?.parse().ok());
    rate.unwrap_or_else(|| panic!("pgbench: {output:?}")) * ROUND.as_secs_f64()
}

/// The driver that dislock uses, on one thread that does nothing else: what is left is dislock's part.
fn by_driver(url: &str, clients: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let end = Instant::now() + ROUND;
    let done = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let client = Arc::new(client);
        let running: Vec<_> = (0..clients)
            .map(|n| {
                let client = Arc::clone(&client);
                tokio::spawn(async move {
                    let mut done = 0;
                    while Instant::now() < end {
                        pair(&client, n).await;
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        let mut done = 0;
        for task in running {
            done += task.await.unwrap();
        }
        done
    });
    f64::from(done)
}

async fn pair(client: &Client, n: usize) {
    let value = "driver:0123456789abcdef";
    let key = format!("cronjob-lock:lease:driver-{n}");
    let fence = format!("cronjob-lock:fence:driver-{n}");
    let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
        (&value, Type::TEXT),
        (&"200ms", Type::TEXT),
        (&key, Type::TEXT),
        (&60.0, Type::FLOAT8),
        (&fence, Type::TEXT),
    ];
    client.query_typed(ACQUIRE, &parameters).await.unwrap();
    let channel = format!("dislock:{n:016}");
    let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
        (&vec![key], Type::TEXT_ARRAY),
        (&vec![value], Type::TEXT_ARRAY),
        (&vec![channel], Type::TEXT_ARRAY),
    ];
    client.query_typed(RELEASE, &parameters).await.unwrap();
}
