//! Blocks that run under locks: their values, errors and panics, and losses meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dislock::{Error, with_locks};

use super::{BOTH, LEASE, assert_released, context, lose, steal};
use crate::support::database::Database;

#[test]
fn a_block_has_the_locks_and_its_value_is_passed() {
    let database = Database::new();

    let value = with_locks(&context(&database), LEASE, |session| {
        assert_eq!(database.lease().unwrap().value, session.owner());
        Ok::<_, Error>(42)
    });

    assert_eq!(value.unwrap(), 42);
    assert_released(&database);
}

/// A caller's own kind of error.
#[derive(Debug)]
enum Failed {
    Work,
    Lock(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[test]
fn a_block_that_succeeds_after_its_lease_was_lost_is_a_loss() {
    let database = Database::new();

    let result = with_locks(&context(&database), LEASE, |session| {
        lose(&database, session);
        Ok::<_, Failed>(42)
    });

    assert!(matches!(result, Err(Failed::Lock(error)) if error.is_lease_lost()));
}

#[test]
fn a_blocks_own_error_is_not_masked_by_a_loss() {
    let database = Database::new();

    let result = with_locks(&context(&database), LEASE, |session| {
        lose(&database, session);
        Err::<(), _>(Failed::Work)
    });

    assert!(matches!(result, Err(Failed::Work)));
}

#[test]
fn a_blocks_panic_is_not_masked_and_gives_the_lease_up() {
    let database = Database::new();

    let panic = catch_unwind(AssertUnwindSafe(|| {
        with_locks(&context(&database), LEASE, |_| -> Result<(), Error> {
            std::panic::panic_any("the block's own")
        })
    }));

    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"the block's own"));
    assert_released(&database);
}

#[test]
fn a_block_does_not_run_without_its_locks() {
    let database = Database::new();
    steal(&database);

    let result = with_locks(&context(&database), BOTH, |_| -> Result<(), Error> {
        panic!("the block ran")
    });

    assert!(result.unwrap_err().is_not_acquired());
}
