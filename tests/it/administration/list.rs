//! Showing the locks.

use super::{LEASE, assert_refused, assert_told, populated, task};
use crate::support::database::Database;
use crate::support::run::Dislock;

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
fn what_would_make_a_key_look_like_another_is_escaped() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job\u{202e}x\u{200b}", "db1:1:aa", 60.0);

    let table = task(&database, &["--list"]);
    let json = task(&database, &["--list", "--json"]);
    let released = task(&database, &["--release", "job\u{202e}x\u{200b}"]);

    assert_told(&table, 0, "job\\u{202e}x\\u{200b}");
    assert_told(&json, 0, "job\\u202ex\\u200b");
    let escaped = "job\\u{202e}x\\u{200b} is held by";
    assert!(released.stderr.contains(escaped), "{released:?}");
}

#[test]
fn a_key_does_not_limit_the_list_and_is_refused() {
    let database = populated();

    for words in [
        &["--list", "--key", "job"][..],
        &["--prune", "0", "--key", "job"],
        &["--prune", "0", "--strategy", "lease"],
        &["--release", "job", "--key", "other"],
    ] {
        assert_refused(&task(&database, words), 2, "does not go with --");
    }
    assert_eq!(database.rows(), 6);
    let by_variable = Dislock::new(database.url()).run_args(["--list", "DATABASE_URL"]);
    assert_eq!(by_variable.code, 0, "{by_variable:?}");
}

#[test]
fn the_list_shows_what_it_can_and_names_the_rows_that_are_broken() {
    let database = populated();
    database.sql(
        "ALTER TABLE key_value ALTER value DROP NOT NULL, ALTER expire_at DROP NOT NULL;
         INSERT INTO key_value VALUES ('cronjob-lock:lease:timeless', 'x', NULL),
             ('cronjob-lock:lease:nobodys', NULL, now() + interval '1 h')",
    );

    let listed = task(&database, &["--list"]);

    assert_told(&listed, 1, "db1:1:aa");
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
    let reason = "table key_value has not the shape of a lock table";
    let which = "is NULL in cronjob-lock:lease:nobodys, cronjob-lock:lease:timeless\n";
    assert!(listed.stderr.contains(reason), "{listed:?}");
    assert!(listed.stderr.contains(which), "{listed:?}");
    for key in ["timeless", "nobodys"] {
        let released = task(&database, &["--release", key, "--force"]);
        assert_refused(&released, 1, "has not the shape of a lock table");
    }
    let left = "SELECT count(*) FROM key_value WHERE value IS NULL AND expire_at > now()";
    assert_eq!(database.value(left), "1");
}

#[test]
fn a_list_of_times_without_a_zone_says_so() {
    let database = populated();
    database.sql("ALTER TABLE key_value ALTER expire_at TYPE timestamp");

    for words in [&["--list"][..], &["--release", "job", "--force"]] {
        assert_refused(
            &task(&database, words),
            1,
            "expire_at is timestamp and should be timestamptz",
        );
    }
    let holder = format!("SELECT value FROM key_value WHERE key = '{LEASE}'");
    assert_eq!(database.value(&holder), "db1:1:aa");
}
