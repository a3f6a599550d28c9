//! A statement whose answer is lost has been executed, and is sent again: none of it twice.

use std::time::Duration;

use crate::support::database::Database;
use crate::support::proxy::Proxy;
use crate::support::run::Dislock;
use crate::support::server::Server;
use crate::support::wait::eventually;

struct Setup {
    proxy: Proxy,
    database: Database,
    _server: Server,
}

impl Setup {
    /// A server that trusts everybody, so that the round trips can be told apart by their number.
    fn new() -> Self {
        let server = Server::start();
        let database = server.database();
        Self {
            proxy: database.proxy(),
            database,
            _server: server,
        }
    }

    fn url(&self) -> String {
        self.database.url_via(&self.proxy) + "?sslmode=disable"
    }
}

#[test]
fn an_acquisition_recognises_the_lease_that_it_already_has() {
    let setup = Setup::new();
    setup.proxy.lose_answer(2); // connect, acquire

    let run = Dislock::lease(setup.url(), 30.0).run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    // Connect, acquire, again both; connect, expire.
    assert_eq!(setup.proxy.round_trips(), 6);
    assert!(setup.database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn an_acquisition_recognises_the_slot_that_it_already_has() {
    let setup = Setup::new();
    setup.proxy.lose_answer(3); // connect, clock, acquire

    let run = Dislock::schedule(setup.url(), "0 0 1 1 *").run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    assert!(setup.proxy.round_trips() > 3);
    assert!(setup.database.slot().unwrap().seconds_left > 0.0);
}

#[test]
fn an_acquisition_recognises_both_locks_that_it_already_has() {
    let setup = Setup::new();
    setup.proxy.lose_answer(3); // connect, clock, acquire

    let run = Dislock::schedule(setup.url(), "0 0 1 1 *")
        .env("LOCK_STRATEGY", "schedule,lease")
        .run(["echo", "ran"]);

    assert_eq!((run.code, &*run.stdout), (0, "ran\n"), "{}", run.stderr);
    assert!(setup.proxy.round_trips() > 3);
    assert!(setup.database.lease().unwrap().seconds_left <= 0.0);
}

#[test]
fn a_renewal_without_an_answer_is_repeated() {
    let setup = Setup::new();
    setup.proxy.lose_answer(3); // connect, acquire, renew
    let mut run = Dislock::lease(setup.url(), 10.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .work(Duration::from_secs(60));
    run.wait_for_worker();

    // The lost one, a new connection, and two that are answered.
    eventually("renewals go on", || setup.proxy.round_trips() >= 6);

    assert_eq!(run.try_exit_code(), None, "{}", run.stderr());
    assert!(setup.database.lease().unwrap().seconds_left > 8.0);
}

#[test]
fn a_release_without_an_answer_does_not_change_the_exit_code() {
    let setup = Setup::new();
    setup.proxy.lose_answer(4); // connect, acquire; connect, expire

    let run = Dislock::lease(setup.url(), 30.0).run(["sh", "-c", "exit 7"]);

    assert_eq!(run.code, 7, "{}", run.stderr);
    assert!(setup.database.lease().unwrap().seconds_left <= 0.0);
}
