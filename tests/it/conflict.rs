//! The exit code of a run whose lock is held elsewhere, as `flock -E`.

use crate::support::database::Database;
use crate::support::run::Dislock;

const BOTH: &str = "schedule,lease";

/// Runs against a database in which `held` is somebody else's; nothing may start.
fn exit_code(held: &str, strategy: &str, configure: impl Fn(Dislock) -> Dislock) -> i32 {
    let database = Database::new();
    database.put(&format!("cronjob-lock:{held}:job"), "db1:1:aa", 60.0);
    let dislock = Dislock::schedule(database.url(), "0 0 1 1 *").env("LOCK_STRATEGY", strategy);

    let run = configure(dislock).run(["echo", "started"]);

    assert_eq!(run.stdout, "");
    run.code
}

#[test]
fn it_can_be_chosen_for_each_strategy() {
    let chosen = |dislock: Dislock| dislock.env("LOCK_CONFLICT_EXIT_CODE", "42");
    for (held, strategy) in [
        ("lease", "lease"),
        ("schedule", "schedule"),
        ("schedule", BOTH),
        ("lease", BOTH),
    ] {
        assert_eq!(
            exit_code(held, strategy, chosen),
            42,
            "{strategy}, {held} held"
        );
        assert_eq!(
            exit_code(held, strategy, |d| d),
            0,
            "{strategy}, {held} held"
        );
    }
}

#[test]
fn the_option_wins_and_the_whole_range_is_passed_on() {
    for code in ["0", "1", "75", "255"] {
        let configure = |dislock: Dislock| {
            dislock
                .env("LOCK_CONFLICT_EXIT_CODE", "42")
                .options(&["--conflict-exit-code", code])
        };
        assert_eq!(exit_code("lease", "lease", configure).to_string(), code);
    }
}

#[test]
fn it_is_not_for_a_lock_that_was_taken() {
    let database = Database::new();
    let dislock = Dislock::lease(database.url(), 60.0).env("LOCK_CONFLICT_EXIT_CODE", "42");

    assert_eq!(dislock.run(["true"]).code, 0);
    assert_eq!(dislock.run(["sh", "-c", "exit 7"]).code, 7);
}
