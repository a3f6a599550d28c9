//! Creating the table.

use super::{assert_refused, assert_told, task};
use crate::support::database::Database;
use crate::support::run::{Dislock, Finished};

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
