//! Roles with odd settings, tables with odd triggers, limits, and readers that do not read.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::support::database::Database;
use crate::support::run::{Dislock, Run};
use crate::support::wait::{self, eventually};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn acquisition_that_was_answered_after_its_ttl_is_asked_for_again_before_anything_starts() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "somebody", -1.0);
    let mut locker = database.session();
    locker.sql("BEGIN");
    locker.sql("SELECT 1 FROM key_value FOR UPDATE");
    let mut run = Dislock::renewed_often(database.url(), 2.0).start(["sh", "-c", "echo ran"]);
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                 AND datname = current_database() AND now() > query_start + interval '2.2 s'";
    // Longer than the TTL, and shorter than the connect timeout.
    eventually("the acquisition has waited for the lock", || {
        database.value(waits) == "1"
    });
    locker.sql("COMMIT");

    assert_eq!(run.exit_code(), 0, "{}", run.stderr());
    assert_eq!(run.stdout(), "ran\n");
}

#[test]
fn a_slot_is_given_back_when_the_system_has_no_room_for_the_command() {
    let mut failures = 0;
    // Somewhere between "cannot even start" and "enough" supervision runs out of descriptors.
    for limit in 6..24 {
        let database = Database::new();
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" DATABASE_URL true");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_dislock")]);
        command.env("DATABASE_URL", database.url());
        command
            .env("LOCK_KEY", "job")
            .env("CRON_SCHEDULE", "0 0 1 1 *")
            .env("LOCK_CONNECT_TIMEOUT_SECONDS", "1");
        let finished = Run::start(command).finish();
        if finished.code != 0 {
            failures += 1;
            let live = database.slot().is_some_and(|row| row.seconds_left > 0.0);
            assert!(!live, "limit {limit}: {}", finished.stderr);
        }
    }
    assert!(failures > 0, "no limit was low enough to show anything");
}

#[test]
fn a_role_with_a_single_connection_releases_its_lease() {
    let database = Database::new();
    let role = database.role("LOGIN CONNECTION LIMIT 1");
    database.sql(&format!(
        "GRANT SELECT, INSERT, UPDATE ON key_value TO {role}"
    ));

    let finished = Dislock::lease(database.url_as(&role, ""), 60.0).run(["true"]);

    assert_eq!((finished.code, &*finished.stderr), (0, ""));
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn a_row_that_a_trigger_swallows_is_a_failure_and_not_a_conflict() {
    let database = Database::new();
    database.sql(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER swallow BEFORE INSERT ON key_value FOR EACH ROW EXECUTE FUNCTION swallow()",
    );
    let cron = Dislock::schedule(database.url(), "0 0 1 1 *");
    for dislock in [Dislock::lease(database.url(), 30.0), cron] {
        let dislock = dislock.env("LOCK_CONNECT_TIMEOUT_SECONDS", "2");
        let finished = dislock.run(["echo", "ran"]);
        assert_eq!((finished.code, &*finished.stdout), (1, ""));
        assert!(
            finished.stderr.contains("nobody holds it"),
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn a_count_that_a_trigger_swallows_is_a_failure_that_leaves_nothing_locked() {
    let database = Database::new();
    database.sql(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER swallow BEFORE INSERT ON key_value FOR EACH ROW \
         WHEN (NEW.key LIKE '%:fence:%') EXECUTE FUNCTION swallow()",
    );
    let cron = Dislock::schedule(database.url(), "0 0 1 1 *");
    for dislock in [Dislock::lease(database.url(), 30.0), cron] {
        let dislock = dislock.env("LOCK_CONNECT_TIMEOUT_SECONDS", "2");

        let finished = dislock.run(["echo", "ran"]);

        assert_eq!((finished.code, &*finished.stdout), (1, ""));
        let live = "SELECT count(*) FROM key_value WHERE expire_at > now()";
        assert_eq!(database.value(live), "0");
        let why = "row cronjob-lock:fence:job was not written";
        assert!(finished.stderr.contains(why), "{}", finished.stderr);
    }
}

#[test]
fn columns_of_other_programs_do_no_harm() {
    let database = Database::new();
    for column in [
        "n", "ttl", "due", "touched", "seen", "channel", "now", "token",
    ] {
        database.sql(&format!("ALTER TABLE key_value ADD COLUMN {column} text"));
    }
    let dislock = Dislock::lease(database.url(), 5.0).env("LOCK_LEASE_INTERVAL", "0.2");
    let finished = dislock
        .env("CRON_SCHEDULE", "@daily")
        .options(&["--strategy", "lease,schedule"]);

    let finished = finished.run(["sleep", "0.7"]);

    assert_eq!((finished.code, &*finished.stderr), (0, ""));
    assert!(database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn a_connection_that_was_closed_while_idle_is_no_reason_to_warn() {
    let database = Database::new();
    let version: i32 = database.value("SHOW server_version_num").parse().unwrap();
    if version < 140_000 {
        // Such servers close no idle session.
        return;
    }
    let role = database.role("LOGIN");
    database.sql(&format!(
        "GRANT SELECT, INSERT, UPDATE ON key_value TO {role}; \
         ALTER ROLE {role} SET idle_session_timeout = '400ms'"
    ));
    let dislock = Dislock::lease(database.url_as(&role, ""), 10.0);

    // Long after that, so that the two do not meet.
    let finished = dislock
        .env("LOCK_LEASE_INTERVAL", "1")
        .run(["sleep", "2.5"]);

    assert_eq!((finished.code, &*finished.stderr), (0, ""));
}

#[test]
fn lock_rows_are_committed_durably_even_where_the_session_would_not_wait_for_it() {
    let database = Database::new();
    let role = database.role("LOGIN");
    database.sql(&format!(
        "CREATE TABLE seen (key text, setting text); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS \
         'BEGIN INSERT INTO seen VALUES (NEW.key, current_setting(''synchronous_commit'')); \
          RETURN NEW; END'; \
         CREATE TRIGGER note AFTER INSERT OR UPDATE ON key_value \
         FOR EACH ROW WHEN (NEW.key NOT LIKE '%fence%' AND NEW.expire_at > now()) \
         EXECUTE FUNCTION note(); \
         GRANT SELECT, INSERT, UPDATE ON key_value TO {role}; \
         ALTER ROLE {role} SET synchronous_commit = off"
    ));
    let dislock = Dislock::lease(database.url_as(&role, ""), 10.0)
        .env("LOCK_LEASE_INTERVAL", "0.2")
        .env("CRON_SCHEDULE", "@daily")
        .options(&["--strategy", "schedule,lease"]);

    assert_eq!(dislock.run(["sleep", "1.5"]).code, 0);

    let settings = database.sql("SELECT DISTINCT setting FROM seen");
    assert_eq!(settings, [[Some("local".to_owned())]]);
    // The slot, the lease, and at least one renewal.
    let rows: i32 = database.value("SELECT count(*) FROM seen").parse().unwrap();
    assert!(rows >= 3, "{rows}");
}

#[test]
fn a_stderr_that_nobody_reads_costs_log_lines_and_neither_the_lease_nor_the_end() {
    let database = Database::new();
    let (_reader, full) = full_pipe();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dislock"));
    command.args(["--log-level", "debug", "DATABASE_URL", "sleep", "60"]);
    command
        .env("DATABASE_URL", database.url())
        .env("LOCK_KEY", "job");
    command
        .env("LOCK_STRATEGY", "lease")
        .env("RUN_LOCK_TTL_SECONDS", "6");
    command.env("LOCK_LEASE_INTERVAL", "0.2");
    let mut run = Run::start_with_stderr(command, full);
    let lease = || database.lease().filter(|row| row.seconds_left > 0.0);
    let first = wait::value("the lease", wait::SOON, lease).seconds_left;
    // Renewed although every renewal logs a line.
    eventually("a renewal", || {
        lease().is_some_and(|row| row.seconds_left > first)
    });

    database.sql("DELETE FROM key_value");

    assert_eq!(run.exit_code_within(LONG), 75);
}

/// A pipe into which nothing fits any more, and its reader, which does not read.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let flags = |flags| fcntl(writer.as_fd(), FcntlArg::F_SETFL(flags)).unwrap();
    flags(OFlag::O_NONBLOCK);
    let mut file = File::from(writer.try_clone().unwrap());
    while file.write(&[b'x'; 1]).is_ok() {}
    flags(OFlag::empty());
    (reader, writer)
}
