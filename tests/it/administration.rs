//! What an operator asks for in place of a run: the table, the locks in it, and their end.

mod init;
mod list;
mod release;

use crate::support::database::Database;
use crate::support::run::{Dislock, Finished};

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
