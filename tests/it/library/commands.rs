//! Commands that run under locks: exit codes, a loss meanwhile, and a start that fails.

use dislock::{LEASE_LOST_EXIT_CODE, run_with_locks};

use super::{BOTH, LEASE, assert_released, context, steal};
use crate::support::database::Database;
use crate::support::wait::eventually;

#[test]
fn a_command_under_locks_answers_its_exit_code() {
    let database = Database::new();
    let ctx = context(&database);

    let code = run_with_locks(["sh", "-c", "exit 7"], &ctx, LEASE).unwrap();

    assert_eq!(code, 7);
    assert_released(&database);
}

#[test]
fn a_command_whose_lease_is_lost_answers_75() {
    let database = Database::new();
    let ctx = context(&database);

    let code = std::thread::scope(|scope| {
        let run = scope.spawn(|| run_with_locks(["sleep", "60"], &ctx, LEASE));
        eventually("the lease is taken", || database.lease().is_some());
        steal(&database);
        run.join().unwrap().unwrap()
    });

    assert_eq!(code, LEASE_LOST_EXIT_CODE);
    assert_eq!(database.lease().unwrap().value, "intruder");
}

#[test]
fn a_command_that_cannot_be_started_gives_its_locks_back() {
    let database = Database::new();

    run_with_locks(["no-such-command"], &context(&database), BOTH).unwrap_err();

    for row in [database.lease(), database.slot()].into_iter().flatten() {
        assert!(row.seconds_left <= 0.0, "{row:?}");
    }
}
