//! Many hosts that fire at the same instant: one of them starts the command, and nobody fails.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::run::{Dislock, Run};

const YEARLY: &str = "0 0 1 1 *";

/// Starts contenders at once; all but one must end with 0 and without a worker.
#[track_caller]
fn assert_one_start(dislock: &Dislock, contenders: usize) {
    let mut runs: Vec<Run> = (0..contenders)
        .map(|_| dislock.work(Duration::from_secs(120)))
        .collect();
    let mut winners = 0;
    for run in &mut runs {
        let code =
            crate::support::wait::value("each has won or lost", Duration::from_secs(90), || {
                let working = !run.spans().is_empty();
                run.try_exit_code().map(Some).or(working.then_some(None))
            });
        match code {
            Some(code) => assert_eq!(code, 0, "{}", run.stderr()),
            None => winners += 1,
        }
    }
    assert_eq!(winners, 1);
    assert_eq!(runs.iter().flat_map(Run::spans).count(), 1);
}

#[test]
fn of_50_contenders_for_a_lease_one_starts() {
    let database = Database::new();

    assert_one_start(&Dislock::lease(database.url(), 60.0), 50);
}

#[test]
fn of_50_contenders_for_a_slot_one_starts() {
    let database = Database::new();

    assert_one_start(&Dislock::schedule(database.url(), YEARLY), 50);
}

#[test]
fn of_50_contenders_for_both_one_starts() {
    let database = Database::new();
    let dislock = Dislock::schedule(database.url(), YEARLY).env("LOCK_STRATEGY", "schedule,lease");

    assert_one_start(&dislock, 50);
}

#[test]
fn under_serializable_isolation_nobody_fails() {
    let database = Database::new();
    database.sql(&format!(
        "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'",
        database.name()
    ));

    assert_one_start(&Dislock::lease(database.url(), 60.0), 40);
}

#[test]
fn with_few_connections_to_share_nobody_fails() {
    let database = Database::new();
    let role = database.role("LOGIN PASSWORD 'secret' CONNECTION LIMIT 5");
    database.sql(&format!(
        "GRANT SELECT, INSERT, UPDATE ON key_value TO {role}"
    ));
    let dislock = Dislock::lease(database.url_as(&role, "secret"), 60.0)
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "60");

    assert_one_start(&dislock, 40);
}
