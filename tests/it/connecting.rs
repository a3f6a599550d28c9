//! Reaching the database: strings, files and variables as psql takes them, TLS, poolers, failover.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

use crate::support::database::Database;
use crate::support::home;
use crate::support::pooler::Pooler;
use crate::support::run::{Dislock, Run};
use crate::support::server::{Server, Stop};
use crate::support::wait::{SOON, eventually, value};

const LONG: Duration = Duration::from_secs(60);

/// What the sessions of dislock on this database call themselves.
fn application_names(database: &Database) -> Vec<String> {
    let rows = database.sql(
        "SELECT application_name FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name <> 'the tests' \
         AND backend_type = 'client backend'",
    );
    let names = rows.into_iter().map(|row| row[0].clone().unwrap());
    names.collect()
}

/// How many renewals a run has logged, at level DEBUG.
fn renewals(run: &Run) -> usize {
    run.stderr().matches(" renewed ").count()
}

fn write(path: &Path, mode: u32, content: &str) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_operator_sees_which_lock_a_session_is_for() {
    let database = Database::new();
    let mut run = Dislock::lease(database.url(), 30.0).work(LONG);
    run.wait_for_worker();
    assert_eq!(application_names(&database), ["dislock:job"]);
    drop(run);

    let mut run = Dislock::lease(database.url(), 30.0)
        .env("PGAPPNAME", "mine")
        .env("LOCK_KEY", "another")
        .work(LONG);
    run.wait_for_worker();
    eventually("the first session is gone", || {
        application_names(&database) == ["mine"]
    });
}

#[test]
fn the_server_is_found_by_socket_service_file_variables_and_password_file() {
    let server = Server::start();
    let database = server.database();
    let role = database.role("LOGIN PASSWORD 'right'");
    database.sql(&format!("GRANT ALL ON key_value TO {role}"));
    let (name, port) = (database.name(), server.port());
    let socket = server.socket_dir().display();
    let directory = home::new_dir("client");
    let services = directory.join("services");
    write(
        &services,
        0o644,
        &format!("[locks]\nhost={socket}\nport={port}\ndbname={name}\nuser=postgres\n"),
    );
    let services = services.to_str().unwrap();
    let passwords = directory.join(".pgpass");
    write(
        &passwords,
        0o600,
        &format!("127.0.0.1:{port}:{name}:{role}:right\n"),
    );
    server.authenticate(&format!("host all {role} all scram-sha-256"));

    let lease = |url: &str| Dislock::lease(url, 30.0).env("HOME", &directory);
    for run in [
        lease(&format!(
            "postgresql:///{name}?host={socket}&port={port}&user=postgres"
        )),
        lease(&format!(
            "host={socket} port={port} user=postgres dbname={name}"
        )),
        lease("service=locks").env("PGSERVICEFILE", services),
        lease("postgresql://?service=locks").env("PGSERVICEFILE", services),
        lease("postgresql://127.0.0.1")
            .env("PGPORT", port.to_string())
            .env("PGDATABASE", name)
            .env("PGUSER", "postgres"),
        lease(&format!("postgresql://{role}@127.0.0.1:{port}/{name}")),
        lease(&format!("postgresql://{role}@127.0.0.1:{port}/{name}")).env("PGPASSWORD", "right"),
    ] {
        let finished = run.run(["true"]);
        assert_eq!((finished.code, &*finished.stderr), (0, ""), "{run:?}");
    }

    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o644)).unwrap();
    let finished = lease(&format!("postgresql://{role}@127.0.0.1:{port}/{name}"))
        .env("LOCK_CONNECT_TIMEOUT_SECONDS", "5")
        .run(["true"]);
    assert_eq!(finished.code, 1, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("can be read by others"),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stderr.contains("asks for a password"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_wrong_ca_and_a_wrong_host_name_end_with_1_and_say_which() {
    let certificate = |name: &str| {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let server = Server::start();
    let (own, key) = certificate("db.example.test");
    server.identify(&own, &key);
    server.restart(Stop::Fast);
    let database = server.database();
    let directory = home::new_dir("client");
    write(&directory.join("own.crt"), 0o644, &own);
    write(
        &directory.join("other.crt"),
        0o644,
        &certificate("db.example.test").0,
    );

    let run_trusting = |host: &str, root: &Path, system: &str| {
        let url = format!(
            "host={host} hostaddr=127.0.0.1 port={} user=postgres dbname={} \
             sslmode=verify-full sslrootcert={}",
            server.port(),
            database.name(),
            root.display()
        );
        Dislock::lease(url, 30.0)
            .env("SSL_CERT_FILE", directory.join(system))
            .run(["true"])
    };
    let run = |host: &str, root: &str| run_trusting(host, &directory.join(root), "other.crt");
    assert_eq!(run("db.example.test", "own.crt").code, 0);
    let wrong_ca = run("db.example.test", "other.crt");
    assert_eq!(wrong_ca.code, 1);
    assert!(
        wrong_ca.stderr.contains("not issued by a CA in"),
        "{}",
        wrong_ca.stderr
    );
    assert!(wrong_ca.stderr.contains("other.crt"), "{}", wrong_ca.stderr);
    let wrong_host = run("elsewhere.test", "own.crt");
    assert_eq!(wrong_host.code, 1);
    let expected = "is for db.example.test, not for host elsewhere.test";
    assert!(
        wrong_host.stderr.contains(expected),
        "{}",
        wrong_host.stderr
    );
    assert!(database.lease().is_some(), "the first run got in");

    let system = |trusted| run_trusting("db.example.test", Path::new("system"), trusted);
    assert_eq!(system("own.crt").code, 0);
    let stranger = system("other.crt");
    assert_eq!(stranger.code, 1);
    let expected = "not issued by a CA in the operating system's trust store";
    assert!(stranger.stderr.contains(expected), "{}", stranger.stderr);
}

/// In whatever way it fails, and however much is logged.
#[test]
fn no_output_contains_the_password() {
    let server = Server::start();
    let database = server.database();
    let role = database.role("LOGIN PASSWORD 'right'");
    server.authenticate(&format!("host all {role} all scram-sha-256"));
    let (name, port) = (database.name(), server.port());
    let good = format!("{role}:hunter2-secret@127.0.0.1:{port}/{name}");
    let missing = home::new_dir("client").join("missing");
    let missing = missing.display();
    for (url, code) in [
        (format!("postgresql://{good}"), 1),
        (format!("postgresql://{good}?sslmode=disable"), 1),
        (
            format!("postgresql://{role}:hunter2-secret@127.0.0.1:1/{name}"),
            1,
        ),
        (
            format!("postgresql://{role}:hunter2-secret@nowhere.invalid/{name}"),
            1,
        ),
        (format!("postgresql://{good}?sslmode=require"), 1),
        (
            format!("postgresql://{good}?sslmode=verify-ca&sslrootcert={missing}"),
            1,
        ),
        (format!("postgresql://{good}?pgbouncer=true"), 2),
        (format!("postgresql://{good}?sslmode=maybe"), 2),
        (
            format!("postgresql://{role}:hunter2@secret@127.0.0.1:{port}/{name}"),
            2,
        ),
        (
            format!("postgresql://{role}:hunter2/secret@127.0.0.1:{port}/{name}"),
            2,
        ),
        (
            format!("postgresql://{role}:hunter2%secret@127.0.0.1:{port}/{name}"),
            2,
        ),
        (
            format!("postgresql://{role}:hunter2-secret@127.0.0.1:port/{name}"),
            2,
        ),
        (format!("psql://{good}"), 2),
        (
            format!("host=127.0.0.1 password=hunter2 secret user={role}"),
            2,
        ),
        (
            format!("host=127.0.0.1 password='hunter2-secret user={role}"),
            2,
        ),
    ] {
        let finished = Dislock::lease(&url, 30.0)
            .env("LOCK_CONNECT_TIMEOUT_SECONDS", "1")
            .env("RUST_BACKTRACE", "1")
            .log_level("DEBUG")
            .run(["true"]);
        assert_eq!(finished.code, code, "{url}: {}", finished.stderr);
        let output = format!("{}{}", finished.stdout, finished.stderr);
        for piece in ["hunter2", "secret"] {
            assert!(!output.contains(piece), "{url}: {output}");
        }
        assert!(
            code == 1 || finished.stderr.lines().count() == 1,
            "{output}"
        );
    }
}

/// The row is on the replica, the primary dies, the replica takes over: the lease lives on.
#[test]
fn the_heartbeat_finds_the_new_primary_within_the_lease() {
    let old = Server::start();
    let database = old.database();
    let new = old.start_replica();
    let url = format!(
        "postgresql://postgres@127.0.0.1:{},127.0.0.1:{}/{}?target_session_attrs=read-write",
        old.port(),
        new.port(),
        database.name()
    );
    let mut run = Dislock::lease(url, 15.0)
        .env("LOCK_LEASE_INTERVAL", "0.5")
        .log_level("DEBUG")
        .work(LONG);
    let worker = run.wait_for_worker();
    eventually("renewals on the old primary", || renewals(&run) > 1);
    let caught_up = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = sent_lsn";
    eventually("the replica follows", || {
        old.address().sql(caught_up)[0][0].as_deref() == Some("1")
    });

    old.stop(Stop::Immediate);
    let before = renewals(&run);
    new.promote();

    value("renewals on the new primary", SOON, || {
        assert_eq!(run.try_exit_code(), None, "{}", run.stderr());
        (renewals(&run) > before + 1).then_some(())
    });
    assert_eq!(run.spans().len(), 1);
    assert_eq!(run.spans()[0].pid, worker.pid);
    assert!(!run.spans()[0].done);
}

#[test]
fn two_leases_share_the_one_connection_of_a_pooler() {
    let server = Server::start();
    let database = server.database();
    let pooler = Pooler::start(&server);
    let url = pooler.url(&database);
    let runs = ["one", "two"].map(|key| {
        Dislock::lease(&url, 30.0)
            .env("LOCK_KEY", key)
            .env("LOCK_LEASE_INTERVAL", "0.1")
            .log_level("DEBUG")
            .work(LONG)
    });
    for run in &runs {
        eventually("20 renewals", || renewals(run) >= 20);
    }
    for mut run in runs {
        run.signal(Signal::SIGTERM);
        run.exit_code();
        let log = run.stderr();
        assert!(
            !log.contains("[WARNING]") && !log.contains("[ERROR]"),
            "{log}"
        );
    }
    let backends = server.address().sql(&format!(
        "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND application_name <> 'the tests' \
         AND backend_type = 'client backend'",
        database.name()
    ));
    assert!(backends.len() <= 1, "{backends:?}");
}
