//! Fencing tokens: they only ever grow, and by them a job's own writes refuse a holder that does not
//! know its end.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use dislock::{LockContext, LockStrategy, acquire_locks};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::support::database::Database;
use crate::support::home;
use crate::support::processes;
use crate::support::run::Dislock;
use crate::support::server::{Server, Stop};
use crate::support::wait;

const PAGE: &str = include_str!("../../docs/fencing.md");

/// Runs a command that tells its token.
fn token(dislock: &Dislock) -> i64 {
    let run = dislock.run(["sh", "-c", "echo $DISLOCK_FENCING_TOKEN"]);
    assert_eq!(run.code, 0, "{run:?}");
    run.stdout
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn a_token_is_drawn_by_every_acquisition_whatever_the_strategy() {
    let database = Database::new();
    let lease = Dislock::lease(database.url(), 60.0);
    // A slot of its own for each run: the slot is over as soon as it is looked at.
    let slot = Dislock::schedule(database.url(), "* * * * *");
    let both =
        Dislock::schedule(database.url(), "* * * * *").env("LOCK_STRATEGY", "lease,schedule");
    let free_slot = || database.put("cronjob-lock:schedule:job", "nobody", -1.0);

    let mut tokens = Vec::new();
    for dislock in [&lease, &slot, &both, &lease, &both] {
        free_slot();
        tokens.push(token(dislock));
    }

    assert_eq!(tokens, [1, 2, 3, 4, 5]);
}

#[test]
fn tokens_grow_over_deleted_and_stolen_rows_and_over_crashes() {
    let server = Server::start();
    let database = server.database();
    let lease = Dislock::lease(database.url(), 60.0);
    let mut tokens = vec![token(&lease)];

    database.sql("DELETE FROM key_value WHERE key LIKE 'cronjob-lock:lease:%'");
    tokens.push(token(&lease));
    database.put("cronjob-lock:lease:job", "a thief", -1.0);
    tokens.push(token(&lease));
    server.restart(Stop::Immediate);
    tokens.push(token(&lease));
    let holder = Dislock::renewed_often(database.url(), 2.0).work(Duration::from_secs(60));
    wait::eventually("the holder starts", || !holder.spans().is_empty());
    holder.signal(Signal::SIGKILL);
    wait::eventually("the lease expires", || {
        database.lease().is_some_and(|row| row.seconds_left < 0.0)
    });
    tokens.push(token(&lease));
    lease.run_args(["--prune", "0", "DATABASE_URL"]);
    assert_eq!(database.lease(), None);
    tokens.push(token(&lease));

    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn who_is_refused_draws_no_token() {
    let database = Database::new();
    let lease = Dislock::lease(database.url(), 60.0);
    database.put("cronjob-lock:lease:job", "somebody", 60.0);
    database.put("cronjob-lock:schedule:job", "nobody", -1.0);
    let both =
        Dislock::schedule(database.url(), "* * * * *").env("LOCK_STRATEGY", "lease,schedule");

    assert_eq!(lease.run(["echo"]).stdout, "");
    assert_eq!(both.run(["echo"]).stdout, "");
    database.put("cronjob-lock:lease:job", "nobody", -1.0);

    assert_eq!(token(&lease), 1);
}

/// A server that takes so many clients at once.
fn crowded_server() -> Server {
    Server::with_settings("max_connections = 300")
}

#[test]
fn of_200_contenders_that_all_get_the_lease_each_has_a_larger_token_than_the_one_before() {
    let server = crowded_server();
    let database = server.database();
    let context = LockContext::builder(database.url(), "job")
        .wait(Duration::MAX)
        .connect_timeout(Duration::from_secs(60))
        .build()
        .unwrap();
    let tokens = Mutex::new(Vec::new());

    thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let session = acquire_locks(&context, &[LockStrategy::Lease]).unwrap();
                tokens.lock().unwrap().push(session.fencing_token());
                let own = format!("value = '{}'", session.owner());
                // It goes behind what all the others ask, and on a busy machine its time is soon over.
                if session.release().is_err() {
                    database.sql(&format!(
                        "UPDATE key_value SET expire_at = now() WHERE {own}"
                    ));
                }
            });
        }
    });

    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens, (1..=200).collect::<Vec<i64>>());
}

#[test]
fn of_200_contenders_for_one_slot_one_draws_a_token() {
    let server = crowded_server();
    let database = server.database();
    let context = LockContext::builder(database.url(), "job")
        .schedule("0 0 1 1 *")
        .connect_timeout(Duration::from_secs(60))
        .build()
        .unwrap();

    let contenders: Vec<_> = (0..200)
        .map(|_| {
            let context = context.clone();
            thread::spawn(move || {
                match acquire_locks(&context, &[LockStrategy::Schedule, LockStrategy::Lease]) {
                    Ok(session) => Some(session.fencing_token()),
                    Err(busy) if busy.is_not_acquired() => None,
                    Err(error) => panic!("{error:#}"),
                }
            })
        })
        .collect();
    let tokens: Vec<i64> = contenders
        .into_iter()
        .filter_map(|contender| contender.join().unwrap())
        .collect();

    assert_eq!(tokens, [1]);
    let count = "SELECT value FROM key_value WHERE key = 'cronjob-lock:fence:job'";
    assert_eq!(database.value(count), "1");
}

/// The variable that makes a run of this test binary the job below; its value is the statement.
const JOB: &str = "IT_FENCED_WRITE";
/// Where the job finds the database, and the file that it waits for before it writes.
const JOB_URL: &str = "IT_FENCED_URL";
const JOB_GATE: &str = "IT_FENCED_GATE";

/// Writes once, under the token of its lock, and tells how many rows took the write.
async fn write_report(url: &str, statement: &str) -> u64 {
    let token = std::env::var("DISLOCK_FENCING_TOKEN").unwrap();
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let body = format!("by {token}");
    let statement = client.prepare(statement).await.unwrap();
    match statement.params()[1].name() {
        "text" => client.execute(&statement, &[&body, &token]).await,
        _ => {
            client
                .execute(&statement, &[&body, &token.parse::<i64>().unwrap()])
                .await
        }
    }
    .unwrap()
}

/// Started by the tests below as the command under the lock; does nothing otherwise.
#[test]
fn a_job_that_writes_with_its_token() {
    let Ok(statement) = std::env::var(JOB) else {
        return;
    };
    println!("\nprocess {}\n", std::process::id());
    let gate = PathBuf::from(std::env::var_os(JOB_GATE).unwrap());
    wait::eventually("the gate is opened", || gate.exists());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let rows = runtime.block_on(write_report(&std::env::var(JOB_URL).unwrap(), &statement));
    println!("rows written: {rows}");
}

/// A holder of the lease that writes with `statement` once the file `gate` is there.
fn fenced_job(database: &Database, ttl: f64, statement: &str, gate: &Path) -> Dislock {
    Dislock::renewed_often(database.url(), ttl)
        .options(&["--key", "report"])
        .env(JOB, statement)
        .env(JOB_URL, database.url())
        .env(JOB_GATE, gate)
}

fn job() -> Vec<String> {
    let program = std::env::current_exe()
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap();
    let test = "fencing::a_job_that_writes_with_its_token";
    let rest = ["--exact", test, "--nocapture", "--test-threads=1"].map(String::from);
    std::iter::once(program).chain(rest).collect()
}

/// Processes that stand still until they are killed by the end of the test.
struct Paused(Vec<Pid>);

impl Paused {
    fn new(pids: Vec<Pid>) -> Self {
        wait::eventually("all stand still", || {
            // More than once: dislock wakes a guardian of which it has not heard yet.
            processes::signal_all(&pids, Signal::SIGSTOP);
            pids.iter().all(|pid| processes::state(*pid) == Some('T'))
        });
        Self(pids)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        processes::signal_all(&self.0, Signal::SIGKILL);
    }
}

fn parent(pid: Pid) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Pid::from_raw(line.unwrap().trim().parse().unwrap())
}

/// A machine is paused past the TTL of its lease, another one takes over, writes and ends, and the
/// first one's job, which knows nothing, is the first thing to run after it wakes.
fn assert_a_paused_holder_cannot_write(statement: &str) {
    assert!(PAGE.contains(statement), "not what the page says");
    let database = Database::new();
    database.sql(
        "CREATE TABLE report (id int PRIMARY KEY, body text, token bigint NOT NULL); \
         INSERT INTO report VALUES (1, 'empty', 0)",
    );
    let files = home::new_dir("gates");
    let (paused_gate, open_gate) = (files.join("paused"), files.join("open"));
    std::fs::write(&open_gate, "").unwrap();

    let paused = fenced_job(&database, 2.0, statement, &paused_gate).start(job());
    let job_process = wait::value("the job runs", wait::SOON, || {
        let stdout = paused.stdout();
        let pid = stdout
            .lines()
            .find_map(|line| line.strip_prefix("process "))?;
        Some(Pid::from_raw(pid.parse().ok()?))
    });
    // The guardian is the job's parent; it would not let the job live past the lease.
    let everybody = [vec![parent(job_process)], paused.processes()].concat();
    let _paused = Paused::new(everybody);
    wait::eventually("its lease expires", || {
        let row = database.row("cronjob-lock:lease:report");
        row.is_some_and(|row| row.seconds_left < 0.0)
    });
    let successor = fenced_job(&database, 60.0, statement, &open_gate).run(job());
    assert!(
        successor.stdout.contains("rows written: 1"),
        "{successor:?}"
    );
    std::fs::write(&paused_gate, "").unwrap();
    processes::signal_all(&[job_process], Signal::SIGCONT);

    wait::eventually("the job that was paused writes", || {
        paused.stdout().contains("rows written: ")
    });
    assert!(
        paused.stdout().contains("rows written: 0"),
        "{}",
        paused.stdout()
    );
    assert_eq!(database.value("SELECT body FROM report"), "by 2");
}

#[test]
fn the_write_of_a_paused_and_resumed_holder_is_refused_by_the_token_beside_the_data() {
    assert_a_paused_holder_cannot_write(
        "UPDATE report SET body = $1, token = $2 WHERE id = 1 AND token <= $2",
    );
}

#[test]
fn the_write_of_a_paused_and_resumed_holder_is_refused_by_the_count_in_the_lock_table() {
    assert_a_paused_holder_cannot_write(
        "UPDATE report SET body = $1 WHERE id = 1 AND EXISTS (SELECT FROM key_value \
         WHERE key = 'cronjob-lock:fence:report' AND value = $2 FOR SHARE)",
    );
}

#[test]
fn without_a_token_the_paused_holder_would_overwrite_its_successor() {
    // What the two tests above are worth: the same course without the condition.
    let statement = "UPDATE report SET body = $1, token = $2 WHERE id = 1";
    let refused = std::panic::catch_unwind(|| assert_a_paused_holder_cannot_write(statement));

    let message = *refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("rows written: 1"), "{message}");
}
