//! Conditions with a deadline, in place of sleeps.

use std::time::{Duration, Instant};

/// How long anything may take that should happen soon: generous, because it only bounds failures.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Waits until `condition` holds; panics with `what` when it does not [`SOON`].
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    value(what, SOON, || condition().then_some(()));
}

/// Waits until `probe` has a value; panics with `what` when it has none within `limit`.
#[track_caller]
pub(crate) fn value<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
