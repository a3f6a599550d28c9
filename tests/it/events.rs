//! `--log-format json`: what programs that read the log go by.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;

use crate::support::database::Database;
use crate::support::run::{Dislock, Finished, Run};
use crate::support::wait::eventually;
use crate::support::{home, processes};

const COURSE_OF_A_LOSS: [&str; 5] = [
    "lock_acquired",
    "command_started",
    "lease_lost",
    "command_ended",
    "run_failed",
];

/// The lines of a run's log, read by PostgreSQL, which takes no broken JSON.
struct Events {
    database: Database,
    lines: Vec<String>,
}

impl Events {
    fn of(database: Database, run: &Finished) -> Self {
        let lines = run.stderr.lines().map(String::from).collect();
        Self { database, lines }
    }

    /// A field of every line, `-` where it is missing; numbers as JSON has them.
    fn all(&self, field: &str) -> Vec<String> {
        let read = |line: &String| {
            let field =
                format!("SELECT coalesce(($json${line}$json$::jsonb -> '{field}')::text, '-')");
            self.database.value(&field).trim_matches('"').to_owned()
        };
        self.lines.iter().map(read).collect()
    }

    /// What happened, without the attempts that were made again.
    fn course(&self) -> Vec<String> {
        let mut names = self.all("event");
        names.retain(|name| name != "renewal_failed");
        names
    }

    /// When the one line of this event was written.
    #[track_caller]
    fn time(&self, event: &str) -> Timestamp {
        self.one(event, "time").parse().unwrap()
    }

    /// A field of the one line of this event.
    #[track_caller]
    fn one(&self, event: &str, field: &str) -> String {
        let names = self.all("event");
        let at: Vec<usize> = (0..names.len()).filter(|n| names[*n] == event).collect();
        assert_eq!(at.len(), 1, "{event} in {:?}", self.lines);
        self.all(field).swap_remove(at[0])
    }
}

/// Starts a command that says when it is ready, and waits for that.
#[track_caller]
fn start_ready(dislock: &Dislock, script: &str) -> Run {
    let run = dislock.start(["sh", "-c", script]);
    eventually("the command is ready", || run.stdout().contains("ready"));
    run
}

fn json(dislock: Dislock, level: &str) -> Dislock {
    dislock.log_level(level).options(&["--log-format", "json"])
}

#[test]
fn a_run_is_told_from_the_lock_to_its_release() {
    let database = Database::new();
    let dislock = Dislock::schedule(database.url(), "* * * * *")
        .env("LOCK_STRATEGY", "schedule,lease")
        .env("LOCK_OWNER", "host\"1\"");

    let run = json(dislock, "INFO").run(["sh", "-c", "echo $DISLOCK_OWNER; exit 3"]);
    let events = Events::of(database, &run);

    assert_eq!(
        events.all("event"),
        [
            "lock_acquired",
            "command_started",
            "command_ended",
            "lock_released"
        ]
    );
    assert!(events.all("key").iter().all(|key| key == "job"));
    assert!(events.all("level").iter().all(|level| level == "INFO"));
    assert_eq!(events.one("lock_acquired", "token"), "1");
    assert_eq!(events.one("command_ended", "exit_code"), "3");
    let owner = events.one("command_ended", "owner").replace('\\', "");
    assert_eq!(owner, run.stdout.trim());
    let duration: f64 = events
        .one("command_ended", "duration_seconds")
        .parse()
        .unwrap();
    assert!((0.0..60.0).contains(&duration), "{duration}");
    assert!(events.one("lock_acquired", "slot_until").ends_with(":00Z"));
}

#[test]
fn every_line_at_debug_is_json() {
    let database = Database::new();
    let dislock = Dislock::lease(database.url(), 60.0).env("LOCK_LEASE_INTERVAL", "0.2");

    let run = json(dislock, "DEBUG").run(["sleep", "1"]);
    let events = Events::of(database, &run);

    let renewed = events
        .all("event")
        .iter()
        .filter(|e| *e == "lease_renewed")
        .count();
    assert!(renewed >= 2, "{run:?}");
}

#[test]
fn a_busy_lock_is_one_event_with_its_holder() {
    let database = Database::new();
    database.put("cronjob-lock:lease:job", "db1:1:aa", 60.0);
    let dislock = Dislock::lease(database.url(), 60.0).env("LOCK_CONFLICT_EXIT_CODE", "9");

    let run = json(dislock, "INFO").run(["true"]);
    let events = Events::of(database, &run);

    assert_eq!(events.all("event"), ["lock_busy"]);
    assert_eq!(events.one("lock_busy", "holder"), "db1:1:aa");
    assert_eq!(events.one("lock_busy", "exit_code"), "9");
    assert!(events.one("lock_busy", "until").ends_with('Z'));
}

#[test]
fn a_lost_lease_is_told_at_once_and_again_at_the_end() {
    let database = Database::new();
    let dislock = Dislock::lease(database.url(), 60.0).env("LOCK_LEASE_INTERVAL", "0.2");
    let mut run = json(dislock, "INFO").work(Duration::from_secs(60));
    run.wait_for_worker();
    database.sql("DELETE FROM key_value WHERE key = 'cronjob-lock:lease:job'");

    let run = run.finish();
    let events = Events::of(database, &run);

    assert_eq!(events.all("event"), COURSE_OF_A_LOSS, "{run:?}");
    assert_eq!(events.one("command_ended", "exit_code"), "143");
    assert_eq!(events.one("run_failed", "exit_code"), "75");
    assert_eq!(
        events.one("lease_lost", "owner"),
        events.one("run_failed", "owner")
    );
}

#[test]
fn a_lease_lost_in_silence_is_told_once_however_soon_the_command_is_dead() {
    let database = Database::new();
    let proxy = database.proxy();
    let dislock = Dislock::lease(database.url_via(&proxy), 3.0);
    let dislock = json(dislock.env("LOCK_KILL_GRACE_SECONDS", "1"), "INFO");
    let run = start_ready(&dislock, "echo ready; exec sleep 60");
    proxy.silence();

    let run = run.finish();
    let events = Events::of(database, &run);

    assert_eq!(events.course(), COURSE_OF_A_LOSS, "{run:?}");
    assert_eq!(
        events.one("lease_lost", "reason"),
        "it could not be renewed in time"
    );
    assert!(
        events
            .one("lease_lost", "message")
            .ends_with("; stopping the command")
    );
    let owner = events.one("lock_acquired", "owner");
    assert_eq!(events.one("lease_lost", "owner"), owner);
    assert_eq!(events.one("command_ended", "exit_code"), "143");
    assert_eq!(events.one("run_failed", "exit_code"), "75");
}

#[test]
fn a_lease_lost_in_silence_is_told_while_the_command_still_lives() {
    let database = Database::new();
    let proxy = database.proxy();
    let dislock = Dislock::lease(database.url_via(&proxy), 6.0);
    let dislock = json(dislock.env("LOCK_KILL_GRACE_SECONDS", "2"), "INFO");
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let run = start_ready(&dislock, script);
    proxy.silence();

    let events = Events::of(database, &run.finish());

    assert_eq!(events.one("command_ended", "exit_code"), "137");
    let alive = events
        .time("command_ended")
        .duration_since(events.time("lease_lost"));
    assert!(alive >= SignedDuration::from_millis(200), "{alive}");
}

#[test]
fn under_continue_a_loss_is_one_line() {
    let database = Database::new();
    let dislock = Dislock::lease(database.url(), 60.0)
        .env("LOCK_LEASE_INTERVAL", "0.2")
        .env("LOCK_ON_LEASE_LOSS", "continue");
    let run = start_ready(&json(dislock, "WARNING"), "echo ready; exec sleep 60");
    database.sql("DELETE FROM key_value WHERE key = 'cronjob-lock:lease:job'");
    eventually("the loss is told", || run.stderr().contains("lease_lost"));
    run.signal(Signal::SIGTERM);

    let run = run.finish();
    let events = Events::of(database, &run);

    assert_eq!(run.code, 143);
    assert_eq!(events.all("event"), ["lease_lost"], "{run:?}");
}

#[test]
fn a_script_without_its_interpreter_never_started() {
    let database = Database::new();
    let script = home::new_dir("script").join("script");
    fs::write(&script, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();

    let run = json(Dislock::lease(database.url(), 60.0), "INFO").run([script]);
    let events = Events::of(database, &run);

    assert_eq!(
        events.all("event"),
        ["lock_acquired", "lock_released", "run_failed"]
    );
    assert_eq!(events.one("run_failed", "exit_code"), "127");
}

#[test]
fn how_a_command_ended_whose_guardian_was_killed_is_not_told() {
    let database = Database::new();
    let dislock = json(Dislock::lease(database.url(), 60.0), "INFO");
    let run = dislock.start(["sleep", "60"]);
    eventually("the command is told", || {
        run.stderr().contains("command_started")
    });
    let mut guardian = processes::children(run.pid());
    guardian.retain(|pid| processes::name(*pid).as_deref() == Some("lock-guardian"));
    processes::signal_all(&guardian, Signal::SIGKILL);

    let events = Events::of(database, &run.finish());

    assert_eq!(
        events.all("event"),
        [
            "lock_acquired",
            "command_started",
            "lock_released",
            "run_failed"
        ]
    );
    assert_eq!(events.one("run_failed", "exit_code"), "1");
}

#[test]
fn a_slot_alone_is_not_released() {
    let database = Database::new();
    let dislock = Dislock::schedule(database.url(), "0 0 1 1 *");

    let run = json(dislock, "INFO").run(["true"]);
    let events = Events::of(database, &run);

    assert_eq!(
        events.all("event"),
        ["lock_acquired", "command_started", "command_ended"]
    );
}

#[test]
fn a_wrong_setting_and_a_failed_task_are_events_too() {
    let database = Database::empty();
    let wrong = json(Dislock::lease(database.url(), -1.0), "INFO").run(["true"]);
    let missing = json(Dislock::new(database.url()), "INFO").options(&["--list"]);
    let missing = missing.run(Vec::<String>::new());

    let wrong = Events::of(Database::empty(), &wrong);
    let missing = Events::of(Database::empty(), &missing);

    assert_eq!(wrong.one("configuration_error", "exit_code"), "2");
    assert_eq!(missing.one("task_failed", "task"), "--list");
    assert_eq!(missing.one("task_failed", "exit_code"), "1");
}

#[test]
fn an_unknown_format_is_a_warning_and_text() {
    let database = Database::new();

    let run = Dislock::lease(database.url(), 60.0)
        .env("CRONJOB_LOCK_LOG_FORMAT", "xml")
        .run(["true"]);

    assert_eq!(run.code, 0);
    assert!(
        run.stderr.contains("[WARNING] CRONJOB_LOCK_LOG_FORMAT"),
        "{run:?}"
    );
}
