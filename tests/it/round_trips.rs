//! What a run costs the network, counted between the program and a server that trusts it.

use crate::support::observed::Observed;
use crate::support::run::Dislock;
use crate::support::server::Server;

fn dislock(link: &Observed, strategy: &str) -> Dislock {
    Dislock::lease(link.url(), 30.0)
        .env("LOCK_STRATEGY", strategy)
        .env("CRON_SCHEDULE", "0 0 1 1 *")
}

#[track_caller]
fn assert_cost(strategy: &str, round_trips: usize, connections: usize) {
    let link = Observed::new();

    let run = dislock(&link, strategy).run(["echo", "ran"]);

    assert_eq!(run.stdout, "ran\n", "{}", run.stderr);
    let cost = (link.proxy.round_trips(), link.proxy.connections());
    assert_eq!(cost, (round_trips, connections), "{strategy}");
}

#[test]
fn a_lease_run_makes_4_round_trips() {
    // Connect, acquire; connect, expire.
    assert_cost("lease", 4, 2);
}

#[test]
fn a_schedule_run_makes_2_round_trips() {
    // Connect, acquire.
    assert_cost("schedule", 2, 1);
}

#[test]
fn a_run_with_both_makes_4_round_trips() {
    // Connect, acquire both; connect, expire.
    assert_cost("schedule,lease", 4, 2);
}

#[test]
fn a_busy_lease_costs_3_round_trips_at_most() {
    let link = Observed::new();
    link.database
        .put("cronjob-lock:lease:job", "somebody", 3600.0);

    let run = dislock(&link, "lease").run(["echo", "ran"]);

    assert_eq!(run.stdout, "");
    assert!(
        link.proxy.round_trips() <= 3,
        "{}",
        link.proxy.round_trips()
    );
}

#[test]
fn no_connection_stays_open_under_a_schedule_lock() {
    let server = Server::start();
    let database = server.database();
    let url = database.url() + "?application_name=scheduled";

    let mut run = Dislock::schedule(url, "0 0 1 1 *").work(std::time::Duration::from_secs(60));
    run.wait_for_worker();

    crate::support::wait::eventually("the connection is closed", || {
        server.backends("scheduled").is_empty()
    });
}

#[test]
fn one_connection_stays_open_under_a_lease() {
    let server = Server::start();
    let database = server.database();
    let url = database.url() + "?application_name=leased";
    let mut run = Dislock::lease(url, 3.0).work(std::time::Duration::from_secs(60));
    run.wait_for_worker();
    let backend = server.backends("leased");

    let renewed = database.lease().unwrap();
    crate::support::wait::eventually("two renewals later", || {
        let row = database.lease().unwrap();
        row.seconds_left > renewed.seconds_left - 0.1 && row != renewed
    });

    assert_eq!(backend.len(), 1);
    assert_eq!(server.backends("leased"), backend);
}
