//! The command under the lock: started as it was written, alone on stdout, and its exit code passed.

use std::os::unix::fs::PermissionsExt;

use crate::support::database::Database;
use crate::support::home;
use crate::support::run::Dislock;

const YEARLY: &str = "0 0 1 1 *";

/// The options of each way to lock.
const STRATEGIES: [&str; 3] = ["lease", "schedule", "schedule,lease"];

fn dislock(database: &Database, strategy: &str) -> Dislock {
    Dislock::lease(database.url(), 30.0)
        .env("LOCK_STRATEGY", strategy)
        .env("CRON_SCHEDULE", YEARLY)
}

#[test]
fn flags_after_the_first_positional_are_the_commands() {
    let database = Database::new();

    for words in [
        vec!["--help"],
        vec!["--version", "--key", "x"],
        vec!["--", "-v"],
        vec!["-h", "", " a  b ", "*"],
    ] {
        let command = [vec!["printf", "<%s>"], words.clone()].concat();
        let run = dislock(&database, "lease").run(command);

        let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
        // printf itself ends its options at `--`, and has none before the format.
        assert_eq!((run.code, run.stdout), (0, expected), "{}", run.stderr);
    }
}

#[test]
fn help_and_version_come_before_it() {
    let database = Database::new();
    let help = Dislock::new(database.url()).run_args(["--help"]);
    let version = Dislock::new(database.url()).run_args(["--version"]);

    assert_eq!((help.code, version.code), (0, 0));
    assert!(help.stdout.contains("LOCK_KEY"), "{}", help.stdout);
    assert_eq!(
        version.stdout,
        format!("dislock {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(database.rows(), 0);
}

#[test]
fn the_url_may_be_in_any_variable() {
    let database = Database::new();

    let run = dislock(&database, "lease")
        .env("MY_JOBS_DB", database.url())
        .without("DATABASE_URL")
        .url_name("MY_JOBS_DB")
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
}

#[test]
fn stdout_and_stderr_are_the_commands_alone() {
    for strategy in STRATEGIES {
        let database = Database::new();

        let run = dislock(&database, strategy).run(["sh", "-c", "echo out; echo err >&2"]);

        assert_eq!(
            (&*run.stdout, &*run.stderr),
            ("out\n", "err\n"),
            "{strategy}"
        );
    }
}

#[test]
fn even_at_debug_stdout_is_the_commands_alone() {
    let database = Database::new();

    let run = dislock(&database, "schedule,lease")
        .log_level("debug")
        .run(["echo", "out"]);

    assert_eq!(run.stdout, "out\n");
    assert!(!crate::support::run::log_lines(&run.stderr).is_empty());
}

#[test]
fn the_exit_code_is_the_commands() {
    for strategy in STRATEGIES {
        for (script, code) in [("exit 7", 7), ("exit 255", 255), ("kill -SEGV $$", 139)] {
            let database = Database::new();

            let run = dislock(&database, strategy).run(["sh", "-c", script]);

            assert_eq!(run.code, code, "{strategy} {script}: {}", run.stderr);
        }
    }
}

#[test]
fn the_command_knows_its_lock() {
    let database = Database::new();

    let run = dislock(&database, "lease").run([
        "sh",
        "-c",
        "echo \"$DISLOCK_KEY|$DISLOCK_OWNER|$DISLOCK_FENCING_TOKEN\"",
    ]);

    let parts: Vec<&str> = run.stdout.trim_end().split('|').collect();
    assert_eq!(parts[..2], ["job", &database.lease().unwrap().value]);
    assert_eq!(
        parts[2],
        database.row("cronjob-lock:fence:job").unwrap().value
    );
}

/// Whether the next contender finds nothing in its way.
#[track_caller]
fn assert_given_back(database: &Database, strategy: &str) {
    for row in [database.lease(), database.slot()].into_iter().flatten() {
        assert!(row.seconds_left <= 0.0, "{strategy}: {row:?}");
    }
    let next = dislock(database, strategy).run(["echo", "ran"]);
    assert_eq!(next.stdout, "ran\n", "{strategy}: {}", next.stderr);
}

#[test]
fn a_command_that_is_not_found_is_127_and_takes_no_lock() {
    for strategy in STRATEGIES {
        for command in ["no-such-command", "/no/such/command"] {
            let database = Database::new();

            let run = dislock(&database, strategy).run([command]);

            assert_eq!(run.code, 127, "{}", run.stderr);
            assert!(
                run.only_log_line().message.contains(command),
                "{}",
                run.stderr
            );
            assert_given_back(&database, strategy);
        }
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_takes_no_lock() {
    let dir = home::new_dir("commands");
    let file = dir.join("not-executable");
    std::fs::write(&file, "#!/bin/sh\n").unwrap();
    for strategy in STRATEGIES {
        for command in [&file, &dir] {
            let database = Database::new();

            let run = dislock(&database, strategy).run([command]);

            assert_eq!(run.code, 126, "{}", run.stderr);
            assert_given_back(&database, strategy);
        }
    }
}

#[test]
fn a_command_whose_interpreter_is_missing_gives_its_locks_back() {
    let file = home::new_dir("commands").join("script");
    std::fs::write(&file, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    for strategy in STRATEGIES {
        let database = Database::new();

        let run = dislock(&database, strategy).run([&file]);

        // Found only by trying, with the lock in hand. Shells disagree between the two codes.
        assert!(
            [126, 127].contains(&run.code),
            "{}: {}",
            run.code,
            run.stderr
        );
        assert_given_back(&database, strategy);
    }
}
