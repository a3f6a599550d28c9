//! "Cannot lock" is exit code 1 and a reason: never 0, never "held elsewhere", and nothing runs.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::run::{Dislock, Finished};
use crate::support::server::{Server, Stop};
use crate::support::wait::eventually;

/// The server says why, and nobody tries again for the minute that there would be.
#[track_caller]
fn assert_cannot_lock(url: &str, reasons: &[&str]) -> [Finished; 2] {
    assert_fails(url, "60", reasons)
}

/// No server says anything.
#[track_caller]
fn assert_cannot_reach(url: &str, reasons: &[&str]) {
    assert_fails(url, "1", reasons);
}

/// Runs both strategies, each alone, and expects neither to start its command.
#[track_caller]
fn assert_fails(url: &str, connect_timeout: &str, reasons: &[&str]) -> [Finished; 2] {
    ["lease", "schedule"].map(|strategy| {
        let run = Dislock::lease(url, 30.0)
            .env("LOCK_STRATEGY", strategy)
            .env("CRON_SCHEDULE", "0 0 1 1 *")
            .env("LOCK_CONNECT_TIMEOUT_SECONDS", connect_timeout)
            .env("LOCK_CONFLICT_EXIT_CODE", "42")
            .run(["echo", "ran"]);

        assert_eq!(
            (run.code, &*run.stdout),
            (1, ""),
            "{strategy}: {}",
            run.stderr
        );
        assert!(run.took < Duration::from_secs(20), "{:?}", run.took);
        let logged = run.only_log_line();
        assert_eq!(logged.level, "ERROR");
        for reason in reasons {
            assert!(logged.message.contains(reason), "{reason} in {logged:?}");
        }
        assert!(!logged.message.contains("is held by"), "{logged:?}");
        run
    })
}

#[test]
fn nobody_listens() {
    let server = Server::start();
    let url = server.database().url();
    server.stop(Stop::Immediate);

    assert_cannot_reach(&url, &["127.0.0.1", &server.port().to_string(), "refused"]);
}

#[test]
fn a_host_that_has_no_address() {
    assert_cannot_reach(
        "postgresql://me@no-such-host.invalid/db?sslmode=disable",
        &["no-such-host.invalid"],
    );
}

#[test]
fn a_server_that_takes_the_connection_and_is_silent() {
    let database = Database::new();
    let proxy = database.proxy();
    proxy.silence();

    assert_cannot_reach(&database.url_via(&proxy), &["127.0.0.1"]);
}

/// The server does answer: whoever reads the message is not to look for the fault there.
#[test]
fn a_ttl_that_is_over_before_the_answer_comes() {
    let run = Dislock::lease(Database::new().url(), 0.000_001)
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "2")
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (1, ""), "{}", run.stderr);
    let logged = run.only_log_line();
    let reason = "the answer comes too late for a lease with a TTL of 1µs";
    assert!(logged.message.contains(reason), "{logged:?}");
}

#[test]
fn a_wrong_password() {
    let server = Server::start();
    let database = server.database();
    let role = database.role("LOGIN PASSWORD 'right'");
    server.authenticate(&format!("host all {role} 127.0.0.1/32 scram-sha-256"));

    let refused = database.url_as(&role, "wrong");
    assert_cannot_lock(&refused, &[&role, "password authentication failed"]);
}

#[test]
fn a_user_that_does_not_exist() {
    let database = Database::new();

    // Where everybody is trusted it says that, else that the password is wrong.
    assert_cannot_lock(
        &database.url_as("nobody_knows_me", "x"),
        &["nobody_knows_me"],
    );
}

#[test]
fn a_database_that_does_not_exist() {
    let database = Database::new();
    let url = format!("{}_gone", database.url());

    assert_cannot_lock(
        &url,
        &[&format!("{}_gone", database.name()), "does not exist"],
    );
}

#[test]
fn a_missing_table_is_reported_with_the_statement_that_creates_it() {
    let database = Database::empty();

    let [run, _] = assert_cannot_lock(&database.url(), &["key_value", "CREATE TABLE"]);

    let ddl = &run.stderr[run.stderr.find("CREATE TABLE").unwrap()..];
    let ddl = &ddl[..ddl.rfind("NULL)").unwrap() + "NULL)".len()];
    database.sql(ddl);
    let run = Dislock::lease(database.url(), 30.0).run(["echo", "ran"]);
    assert_eq!(run.stdout, "ran\n", "{}", run.stderr);
}

#[test]
fn a_table_of_another_shape() {
    let database = Database::empty();
    database.sql("CREATE TABLE key_value (key text PRIMARY KEY, value text NOT NULL)");

    assert_cannot_lock(&database.url(), &["key_value", "expire_at"]);
}

#[test]
fn a_table_without_a_key_constraint() {
    let database = Database::empty();
    database.sql("CREATE TABLE key_value (key text, value text, expire_at timestamptz)");

    assert_cannot_lock(&database.url(), &["key_value"]);
}

#[test]
fn a_table_whose_key_is_deferrable() {
    let database = Database::empty();
    database.sql(
        "CREATE TABLE key_value (key text PRIMARY KEY DEFERRABLE, value text NOT NULL, \
         expire_at timestamptz NOT NULL)",
    );

    assert_cannot_lock(
        &database.url(),
        &["the shape of a lock table", "deferrable"],
    );
}

#[test]
fn a_table_with_times_that_have_no_zone() {
    let database = Database::empty();
    database.sql(
        "CREATE TABLE key_value (key text PRIMARY KEY, value text NOT NULL, \
         expire_at timestamp NOT NULL)",
    );
    for strategy in ["lease", "schedule"] {
        let run = Dislock::schedule(database.url(), "0 0 1 1 *")
            .env("LOCK_STRATEGY", strategy)
            .run(["echo", "ran"]);

        assert_eq!((run.code, &*run.stdout), (1, ""), "{}", run.stderr);
        let reason = "the shape of a lock table (key text PRIMARY KEY, value text NOT NULL, \
                      expire_at timestamptz NOT NULL): expire_at is timestamp and should be timestamptz\n";
        assert!(run.stderr.contains(reason), "{}", run.stderr);
    }
}

#[test]
fn a_row_with_a_null() {
    let database = Database::empty();
    database
        .sql("CREATE TABLE key_value (key text PRIMARY KEY, value text, expire_at timestamptz)");
    for row in ["'somebody', NULL", "NULL, now() + interval '1 h'"] {
        for kind in ["lease", "schedule"] {
            database.sql(&format!(
                "INSERT INTO key_value VALUES ('cronjob-lock:{kind}:job', {row})"
            ));
        }

        assert_cannot_lock(&database.url(), &["key_value has not the shape", "is NULL"]);
        database.sql("DELETE FROM key_value");
    }
}

#[test]
fn no_privilege_on_the_table() {
    let database = Database::new();
    let role = database.role("LOGIN PASSWORD 'x'");

    assert_cannot_lock(
        &database.url_as(&role, "x"),
        &["key_value", "permission denied", &role],
    );
    assert_eq!(database.rows(), 0);
}

#[test]
fn a_policy_that_forbids_the_row() {
    let database = Database::new();
    let role = database.role("LOGIN PASSWORD 'x'");
    database.sql(&format!(
        "GRANT SELECT, INSERT, UPDATE ON key_value TO {role};
         ALTER TABLE key_value ENABLE ROW LEVEL SECURITY;
         CREATE POLICY others ON key_value USING (key NOT LIKE 'cronjob-lock:%')"
    ));

    assert_cannot_lock(
        &database.url_as(&role, "x"),
        &[
            "violates row-level security policy",
            "a policy that lets it",
        ],
    );
}

#[test]
fn a_table_that_another_session_has_locked() {
    let database = Database::new();
    let mut session = database.session();
    session.sql("BEGIN");
    session.sql("LOCK TABLE key_value");

    let run = Dislock::lease(database.url(), 30.0)
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "2")
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (1, ""), "{}", run.stderr);
    let reason = "another session holds a lock on the row or the table";
    assert!(run.stderr.contains(reason), "{}", run.stderr);
}

#[test]
fn a_database_that_is_read_only() {
    let database = Database::new();
    let name = database.name();
    database.sql(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on"
    ));

    assert_cannot_lock(&database.url(), &["read-only"]);
    assert_eq!(database.rows(), 0);
}

#[test]
fn a_hot_standby() {
    let server = Server::start();
    let database = server.database();
    server.become_standby();

    assert_cannot_lock(&database.url(), &["read-only"]);
}

#[test]
fn a_hot_standby_that_holds_a_live_row_is_no_lock_either() {
    let server = Server::start();
    let database = server.database();
    database.put("cronjob-lock:lease:job", "somebody", 3600.0);
    database.put("cronjob-lock:schedule:job", "somebody", 3600.0);
    server.become_standby();

    assert_cannot_lock(&database.url(), &["read-only"]);
}

#[test]
fn a_server_that_comes_back_within_the_connect_timeout_is_enough() {
    let server = Server::start();
    let database = server.database();
    server.stop(Stop::Immediate);
    let mut run = Dislock::lease(database.url(), 30.0)
        .log_level("DEBUG")
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "60")
        .start(["echo", "ran"]);
    eventually("it has tried", || run.stderr().contains("refused"));

    server.resume();

    assert_eq!(
        (run.exit_code(), &*run.stdout()),
        (0, "ran\n"),
        "{}",
        run.stderr()
    );
}

#[test]
fn a_dislock_that_is_stopped_while_it_connects_ends_at_once() {
    let database = Database::new();
    let proxy = database.proxy();
    proxy.silence();
    let mut run = Dislock::lease(database.url_via(&proxy), 30.0)
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "600")
        .start(["echo", "ran"]);
    eventually("it connects", || proxy.connections() > 0);

    run.signal(nix::sys::signal::Signal::SIGTERM);

    assert_eq!(run.exit_code_within(Duration::from_secs(5)), 143);
    assert_eq!(&*run.stdout(), "");
    proxy.heal();
    assert_eq!(database.lease(), None);
}
