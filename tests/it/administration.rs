//! What an operator asks for in place of a run: the table, the locks in it, and their end.

use std::thread;
use std::time::{Duration, Instant};

use dislock::{LeaseLock, LockContext};

use crate::support::database::Database;
use crate::support::run::{Dislock, Finished};
use crate::support::wait;

const LEASE: &str = "cronjob-lock:lease:job";
const SLOT: &str = "cronjob-lock:schedule:job";
const FENCE: &str = "cronjob-lock:fence:job";

/// Runs a task, without a lock key: none is needed.
fn task(database: &Database, words: &[&str]) -> Finished {
    let words = words.iter().chain(&["DATABASE_URL"]);
    Dislock::new(database.url())
        .without("LOCK_KEY")
        .run_args(words)
}

#[track_caller]
fn assert_told(finished: &Finished, code: i32, stdout: &str) {
    assert_eq!(finished.code, code, "{finished:?}");
    assert!(finished.stdout.contains(stdout), "{finished:?}");
}

#[track_caller]
fn assert_refused(finished: &Finished, code: i32, stderr: &str) {
    assert_eq!(finished.code, code, "{finished:?}");
    assert!(finished.stderr.contains(stderr), "{finished:?}");
    assert_eq!(finished.stdout, "");
}

#[test]
fn the_table_and_its_schema_are_made_once() {
    let database = Database::empty();

    let first = task(&database, &["--init", "--table", "Ops.locks"]);
    let second = task(&database, &["--init", "--table", "Ops.locks"]);

    assert_told(&first, 0, "Table Ops.locks is created, in schema Ops");
    assert_told(&second, 0, "Table Ops.locks was there, in schema Ops");
    assert_eq!(database.value(r#"SELECT count(*) FROM "Ops".locks"#), "0");
}

#[test]
fn the_grants_that_are_printed_are_all_that_a_role_needs() {
    let database = Database::empty();
    let printed = task(&database, &["--init", "--table", "ops.locks"]).stdout;
    let role = database.role("LOGIN PASSWORD 'x'");
    let (locking, pruning) = printed.split_once("-- One that also prunes:").unwrap();
    let strategy = [
        "--table",
        "ops.locks",
        "--strategy",
        "schedule,lease",
        "--cron",
        "* * * * *",
    ];
    let locker = Dislock::new(database.url_as(&role, "x")).options(&strategy);

    let without = locker.run(["true"]);
    database.sql(&locking.replace("your_role", &role));
    let with = locker.run(["true"]);
    let list = locker.run_args(["--list", "--table", "ops.locks", "DATABASE_URL"]);
    let prune = ["--prune", "0", "--table", "ops.locks", "DATABASE_URL"];
    let prune_without = locker.run_args(prune);
    database.sql(&pruning.replace("your_role", &role));
    let prune_with = locker.run_args(prune);

    assert_eq!((without.code, with.code, list.code), (1, 0, 0), "{with:?}");
    assert_refused(&prune_without, 1, "GRANT DELETE");
    assert_eq!(prune_with.code, 0, "{prune_with:?}");
}

#[test]
fn ten_hosts_that_make_the_table_at_once_all_succeed() {
    let database = Database::empty();
    let dislock = Dislock::new(database.url());
    let init = ["--init", "--table", "new.locks", "DATABASE_URL"];

    let runs: Vec<_> = (0..10).map(|_| dislock.start_args(init)).collect();
    let ended: Vec<Finished> = runs.into_iter().map(|run| run.finish()).collect();

    assert!(ended.iter().all(|run| run.code == 0), "{ended:?}");
    assert_eq!(database.value("SELECT count(*) FROM new.locks"), "0");
}

#[test]
fn a_role_that_may_not_create_is_told_so() {
    let database = Database::empty();
    database.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let role = database.role("LOGIN PASSWORD 'x'");
    let dislock = Dislock::new(database.url_as(&role, "x"));

    assert_refused(
        &dislock.run_args(["--init", "DATABASE_URL"]),
        1,
        "needs CREATE on",
    );
}

#[test]
fn a_role_that_may_not_create_is_content_with_a_table_that_is_there() {
    let database = Database::new();
    let role = database.role("LOGIN PASSWORD 'x'");
    let dislock = Dislock::new(database.url_as(&role, "x"));

    assert_told(
        &dislock.run_args(["--init", "DATABASE_URL"]),
        0,
        "was there",
    );
}

#[test]
fn a_role_that_may_create_in_a_schema_needs_no_right_to_create_schemas() {
    let database = Database::empty();
    let role = database.role("LOGIN PASSWORD 'x'");
    database.sql(&format!(
        "CREATE SCHEMA ops; GRANT ALL ON SCHEMA ops TO {role}"
    ));
    let dislock = Dislock::new(database.url_as(&role, "x"));

    let made = dislock.run_args(["--init", "--table", "ops.locks", "DATABASE_URL"]);

    assert_told(&made, 0, "is created, in schema ops");
}

#[test]
fn a_table_of_another_shape_is_no_success() {
    let database = Database::empty();
    database.sql("CREATE TABLE key_value (key text, value text, expire_at timestamp)");

    let refused = task(&database, &["--init"]);

    assert_refused(
        &refused,
        1,
        "expire_at of key_value is timestamp without time zone",
    );
    assert!(refused.stderr.contains("no primary key"), "{refused:?}");
}

/// Live and expired locks, and rows that are none.
fn populated() -> Database {
    let database = Database::new();
    database.put(LEASE, "db1:1:aa", 60.0);
    database.put(SLOT, "db2:2:bb", -100.0);
    database.put("cronjob-lock:lease:other", "db3:3:cc", -7200.0);
    database.put("session:42", "not a lock", 60.0);
    database.put("session:43", "not a lock", -86400.0);
    database.sql(&format!(
        "INSERT INTO key_value VALUES ('{FENCE}', '17', 'infinity')"
    ));
    database
}

#[test]
fn the_list_shows_live_locks_and_nothing_else() {
    let listed = task(&populated(), &["--list"]);

    assert_eq!(listed.code, 0, "{listed:?}");
    let lines: Vec<Vec<&str>> = listed
        .stdout
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(lines.len(), 2, "{listed:?}");
    assert_eq!(lines[0].len(), 6);
    assert_eq!(lines[1][..3], ["job", "lease", "db1:1:aa"]);
    assert_eq!(lines[1][5].trim(), "17");
    // A pipe is no terminal.
    assert!(!listed.stdout.contains('\x1b'));
}

#[test]
fn the_list_shows_expired_locks_on_demand() {
    let listed = task(&populated(), &["--list", "--all"]).stdout;

    assert_eq!(listed.lines().count(), 4, "{listed}");
    assert!(listed.contains("expired 2h 0m ago"), "{listed}");
    assert!(!listed.contains("session:"), "{listed}");
}

#[test]
fn the_list_is_json_that_others_can_read() {
    let database = populated();
    database.put("cronjob-lock:schedule:é\"\\\n", "x", 1.0);
    database.sql("UPDATE key_value SET expire_at = 'infinity' WHERE value = 'x'");

    let json = task(&database, &["--list", "--json"]).stdout;
    let read =
        |path: &str| database.value(&format!("SELECT $json${json}$json$::jsonb #>> '{path}'"));

    assert_eq!(read("{0,key}"), "job");
    assert_eq!(read("{0,kind}"), "lease");
    assert_eq!(read("{0,token}"), "17");
    assert_eq!(read("{0,live}"), "true");
    assert!(read("{0,seconds_left}").parse::<f64>().unwrap() > 30.0);
    assert_eq!(read("{1,key}"), "é\"\\\n");
    assert!(json.contains("\"expires_at\":null"), "{json}");
}

#[test]
fn an_empty_list_is_one_for_programs_too() {
    let database = Database::new();

    assert_told(
        &task(&database, &["--list"]),
        0,
        "no locks in table key_value\n",
    );
    assert_told(&task(&database, &["--list", "--json"]), 0, "[]\n");
}

#[test]
fn a_live_lock_is_not_released_without_force_and_its_holder_goes_on() {
    let database = Database::new();
    let mut holder = Dislock::lease(database.url(), 60.0).work(Duration::from_millis(1500));
    holder.wait_for_worker();
    let before = database.lease().unwrap().value;

    let refused = task(&database, &["--release", "job"]);

    assert_refused(&refused, 1, "--force");
    assert!(refused.stderr.contains(&before), "{refused:?}");
    assert_eq!(database.lease().unwrap().value, before);
    assert_eq!(holder.exit_code(), 0);
}

#[test]
fn a_lock_that_is_released_by_force_stops_its_holder_within_an_interval() {
    let database = Database::new();
    let mut holder = Dislock::lease(database.url(), 600.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(Duration::from_secs(60));
    holder.wait_for_worker();
    let before = database.lease().unwrap().value;

    let released = task(&database, &["--release", "job", "--force"]);

    assert_told(&released, 0, "lease job is free now");
    assert!(released.stdout.contains(&before), "{released:?}");
    assert_eq!(holder.exit_code_within(Duration::from_secs(5)), 75);
    assert!(holder.processes().is_empty());
    let row = database.lease().unwrap();
    assert!(
        row.value.ends_with(":released") && row.seconds_left <= 0.0,
        "{row:?}"
    );
    let next = Dislock::lease(database.url(), 60.0).run(["true"]);
    assert_eq!(next.code, 0);
    assert!(database.lease().unwrap().value != row.value);
}

#[test]
fn whoever_waits_for_a_lock_has_it_as_soon_as_it_is_released_by_force() {
    let database = Database::new();
    let context = LockContext::builder(database.url(), "job")
        .wait(Duration::MAX)
        .build()
        .unwrap();
    let mut delays = Vec::new();
    for _ in 0..5 {
        database.put(LEASE, "db1:1:aa", 600.0);
        let context = context.clone();
        let waiter = thread::spawn(move || {
            let lease = LeaseLock::acquire(&context).unwrap();
            (Instant::now(), lease)
        });
        wait::eventually("it waits", || {
            let looked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                          AND query LIKE 'SELECT NOW(), seen%' AND state = 'idle'";
            database.value(looked) == "1"
        });

        let released = task(&database, &["--release", "job", "--force"]);

        let end = Instant::now();
        assert_told(&released, 0, "lease job is free now");
        let (acquired, lease) = waiter.join().unwrap();
        lease.release().unwrap();
        delays.push(acquired.saturating_duration_since(end));
    }
    // It would also find out by looking, but only within a second.
    delays.sort();
    assert!(delays[2] < Duration::from_millis(100), "{delays:?}");
}

#[test]
fn only_the_lease_is_released_where_the_strategy_says_so() {
    let database = populated();
    database.put(SLOT, "db2:2:bb", 60.0);

    let released = task(
        &database,
        &["--release", "job", "--force", "--strategy", "lease"],
    );

    assert_told(&released, 0, "lease job is free now");
    assert!(database.slot().unwrap().seconds_left > 0.0);
    assert!(database.lease().unwrap().seconds_left <= 0.0);
    let token = format!("SELECT value FROM key_value WHERE key = '{FENCE}'");
    assert_eq!(database.value(&token), "17");
}

#[test]
fn an_expired_lock_needs_no_release_and_is_left_as_it_is() {
    let database = Database::new();
    database.put(LEASE, "db1:1:aa", -100.0);

    let released = task(&database, &["--release", "job"]);

    assert_told(
        &released,
        0,
        "lease job is free; it was held by db1:1:aa, expired 1m",
    );
    assert_eq!(database.lease().unwrap().value, "db1:1:aa");
}

#[test]
fn a_lock_that_never_expires_is_released_by_force() {
    let database = Database::new();
    database.sql(&format!(
        "INSERT INTO key_value VALUES ('{LEASE}', 'an operator', 'infinity')"
    ));

    let refused = task(&database, &["--release", "job"]);
    let released = task(&database, &["--release", "job", "--force"]);

    assert_refused(&refused, 1, "held by an operator, for ever; --force");
    assert_told(&released, 0, "held by an operator, for ever");
    assert_eq!(Dislock::lease(database.url(), 60.0).run(["true"]).code, 0);
}

#[test]
fn a_lock_that_does_not_exist_cannot_be_released() {
    let database = populated();

    assert_refused(
        &task(&database, &["--release", "jobs"]),
        1,
        "there is no lock \"jobs\"",
    );
    assert_refused(&task(&database, &["--release", ""]), 2, "must not be empty");
}

#[test]
fn pruning_deletes_old_expired_locks_and_nothing_else() {
    let database = populated();

    assert_told(
        &task(&database, &["--prune", "1h"]),
        0,
        "1 expired lock was deleted",
    );
    assert_told(
        &task(&database, &["--prune", "1h"]),
        0,
        "0 expired locks were deleted",
    );
    let keys = database.sql("SELECT key FROM key_value ORDER BY key COLLATE \"C\"");

    let keys: Vec<String> = keys.into_iter().flatten().flatten().collect();
    assert_eq!(keys, [FENCE, LEASE, SLOT, "session:42", "session:43"]);
}

#[test]
fn an_age_that_is_none_is_refused_by_name() {
    let database = Database::new();

    for age in ["", "-1", "7days", "1.5h", "forever"] {
        assert_refused(&task(&database, &["--prune", age]), 2, "--prune");
    }
}

#[test]
fn two_tasks_at_once_are_a_usage_error() {
    let database = Database::new();

    assert_refused(
        &task(&database, &["--list", "--init"]),
        2,
        "cannot be used with",
    );
    assert_refused(
        &task(&database, &["--json", "--init"]),
        2,
        "only goes with --list",
    );
}

#[test]
fn a_task_on_a_missing_table_says_what_to_do() {
    let database = Database::empty();

    for words in [&["--list"][..], &["--release", "job"], &["--prune", "0"]] {
        assert_refused(&task(&database, words), 1, "--init");
    }
}

#[test]
fn a_task_that_cannot_connect_does_not_show_the_password() {
    let database = Database::new();
    let dislock = Dislock::new(database.url_as("nobody", "hunter2"))
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "1")
        .log_level("DEBUG");

    for words in [&["--list"][..], &["--init"], &["--check"]] {
        let finished = dislock.run_args(words.iter().chain(&["DATABASE_URL"]));
        assert_ne!(finished.code, 0, "{finished:?}");
        assert!(!format!("{finished:?}").contains("hunter2"), "{finished:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let database = populated();
    let mut shell = std::process::Command::new("sh");
    shell
        .args([
            "-c",
            r#"{ "$DISLOCK" --list DATABASE_URL; echo "exit $?" >&2; } | true"#,
        ])
        .env("DISLOCK", env!("CARGO_BIN_EXE_dislock"))
        .env("DATABASE_URL", database.url());

    let finished = crate::support::run::Run::start(shell).finish();

    assert_eq!(finished.stderr, "exit 0\n");
}

fn wait_for_a_release_that_waits(database: &Database) {
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND datname = current_database()";
    wait::eventually("the release waits", || database.value(waiting) != "0");
}

#[test]
fn a_row_that_somebody_else_has_locked_does_not_hold_a_release_up_for_ever() {
    let database = populated();
    let mut session = database.session();
    session.sql("BEGIN");
    session.sql(&format!(
        "SELECT FROM key_value WHERE key = '{LEASE}' FOR UPDATE"
    ));
    let dislock = Dislock::new(database.url());

    let mut run = dislock.start_args(["--release", "job", "--force", "DATABASE_URL"]);
    wait_for_a_release_that_waits(&database);

    assert_eq!(run.exit_code_within(Duration::from_secs(20)), 1);
    assert!(run.stderr().contains("does not answer"), "{}", run.stderr());
}

#[test]
fn a_release_that_meets_a_renewal_ends_what_the_renewal_has_made() {
    let database = populated();
    let mut holder = database.session();
    holder.sql("BEGIN");
    holder.sql(&format!(
        "UPDATE key_value SET value = 'renewed', expire_at = now() + interval '1 h' WHERE key = '{LEASE}'"
    ));
    let dislock = Dislock::new(database.url());
    let run = dislock.start_args(["--release", "job", "--force", "DATABASE_URL"]);
    wait_for_a_release_that_waits(&database);

    holder.sql("COMMIT");

    assert_told(&run.finish(), 0, "it was held by renewed, for another 1h");
    let row = database.lease().unwrap();
    assert!(
        row.value.ends_with(":released") && row.seconds_left <= 0.0,
        "{row:?}"
    );
}
