//! The URL's password is shown nowhere, at any level, whatever goes wrong.

use crate::support::database::Database;
use crate::support::run::{Dislock, Finished};

/// What stands in the URL for the password that `%` decodes to.
const ENCODED: &str = "s3cr%65t-p%40ss";
const DECODED: &str = "s3cret-p@ss";

/// A URL with the password in it. The shared server may trust everybody, and then ignores it.
fn url(database: &Database) -> String {
    let role = database.role(&format!("LOGIN SUPERUSER PASSWORD '{DECODED}'"));
    database.url_as(&role, ENCODED)
}

#[track_caller]
fn assert_secret_kept(run: &Finished) {
    for secret in [ENCODED, DECODED, "s3cr"] {
        assert!(!run.stderr.contains(secret), "{}", run.stderr);
        assert!(!run.stdout.contains(secret), "{}", run.stdout);
    }
}

#[test]
fn a_run_at_debug_does_not_show_it() {
    let database = Database::new();
    let dislock = Dislock::lease(url(&database), 30.0).log_level("DEBUG");

    let run = dislock.run(["true"]);
    database.put("cronjob-lock:lease:job", "somebody", 3600.0);
    let busy = dislock.run(["true"]);

    assert_eq!((run.code, busy.code), (0, 0), "{}", run.stderr);
    assert!(!run.stderr.is_empty());
    assert_secret_kept(&run);
    assert_secret_kept(&busy);
}

#[test]
fn a_failure_does_not_show_it() {
    let database = Database::new();
    let good = url(&database);
    let port = good.rsplit([':', '/']).nth(1).unwrap();
    let failing = [
        good.replace(&format!(":{port}/"), ":1/"), // refused
        good.replace("127.0.0.1", "no-such-host.invalid"), // not resolved
        format!("{good}_which_is_missing"),
        format!("{good}?no_such_setting=1"),
        format!("{good}?sslmode=nonsense"),
        format!("{good}?connect_timeout=soon"),
        good.replace(&format!(":{port}/"), ":port/"),
        good.replace(&format!(":{port}/"), ":99999/"),
        good.replace("postgresql://", "mysql://"),
        good.replace("postgresql://", ""),
        good.replace("%65", "%6"),
        good.replace("%65", "%zz"),
        good.replace("%65", "%00"),
        good.replace("127.0.0.1", "[127.0.0.1"),
        format!("user=me password={ENCODED} no_such_setting=1"),
        format!("host=127.0.0.1 password='{ENCODED}"),
        format!("password {ENCODED}"),
        ENCODED.to_owned(),
    ];
    for url in failing {
        let run = Dislock::lease(url.clone(), 30.0)
            .log_level("DEBUG")
            .env("LOCK_CONNECT_TIMEOUT_SECONDS", "0.2")
            .run(["true"]);

        assert!(
            [1, 2].contains(&run.code),
            "{url}: {} {}",
            run.code,
            run.stderr
        );
        assert!(!run.stderr.is_empty(), "{url}");
        assert_secret_kept(&run);
    }
}

/// Strings whose author meant a password, and which libpq takes for something else.
const MISREAD: [&str; 9] = [
    "user=app;password=s3cr",
    "user=app&password=s3cr",
    "user=app:s3cr",
    "dbname=x,password=s3cr",
    "dbname=d;user=app;password=s3cr host=127.0.0.1",
    "postgresql://app%3As3cr@/db",
    "postgresql://?user=app/s3cr",
    "postgresql://app;s3cr@",
    "postgresql://app,s3cr@",
];

/// Strings with a host that is none.
const MISPLACED: [&str; 8] = [
    "host=127.0.0.1;port=1;user=app;password=s3cr",
    "host=h,port=1,user=app,password=s3cr",
    "host=h&password=s3cr",
    "host=h|password=s3cr",
    "host=h:1;password=s3cr",
    "host=/tmp;password=s3cr",
    "service=x;password=s3cr",
    "postgresql://?host=h:s3cr",
];

/// Runs and tasks, at every level and in both formats.
fn runs_of(dislock: &Dislock) -> Vec<Finished> {
    let in_json: [&str; 6] = [
        "--log-format",
        "json",
        "--strategy",
        "lease",
        "DATABASE_URL",
        "true",
    ];
    let lines: [&[&str]; 5] = [
        &["DATABASE_URL", "true"],
        &in_json,
        &["--list", "DATABASE_URL"],
        &["--release", "job", "DATABASE_URL"],
        &["--check", "DATABASE_URL"],
    ];
    lines.map(|line| dislock.run_args(line)).into()
}

/// Where nothing answers, and where a server repeats the names that it was told.
#[test]
fn a_string_that_libpq_reads_otherwise_than_it_was_meant_does_not_show_it() {
    let database = Database::new();
    let server = database.address();
    for (host, port) in [(&*server.host, server.port), ("127.0.0.1", 1)] {
        for url in MISREAD {
            let dislock = Dislock::lease(url, 30.0)
                .env("PGHOST", host)
                .env("PGPORT", port.to_string())
                .env("LOCK_CONNECT_TIMEOUT_SECONDS", "0.3")
                .log_level("DEBUG");
            for run in runs_of(&dislock) {
                assert_eq!(run.code, 1, "{url}: {run:?}");
                assert!(format!("{run:?}").contains('…'), "{url}: {run:?}");
                assert_secret_kept(&run);
            }
        }
    }
    let options = "-c statement_timeout=1;password=s3cr";
    let dislock = Dislock::lease(database.url(), 30.0).env("PGOPTIONS", options);
    for run in runs_of(&dislock) {
        let told = format!("{run:?}").contains("statement_timeout");
        assert!(run.code == 1 && told, "{run:?}");
        assert_secret_kept(&run);
    }
}

#[test]
fn a_host_that_is_none_is_refused_before_it_is_looked_up_or_shown() {
    for url in MISPLACED {
        let dislock = Dislock::lease(url, 30.0).log_level("DEBUG");
        for run in runs_of(&dislock) {
            assert_eq!(run.code, 2, "{url}: {run:?}");
            assert_secret_kept(&run);
        }
    }
    for variable in [
        "PGUSER",
        "PGSERVICE",
        "PGHOST",
        "PGDATABASE",
        "PGSSLROOTCERT",
    ] {
        let dislock = Dislock::lease("sslmode=verify-full port=1", 30.0)
            .env("PGHOST", "127.0.0.1")
            .env(variable, "postgresql://app:s3cr@127.0.0.1/db")
            .env("LOCK_CONNECT_TIMEOUT_SECONDS", "0.3")
            .log_level("DEBUG");
        for run in runs_of(&dislock) {
            assert!([1, 2].contains(&run.code), "{variable}: {run:?}");
            assert_secret_kept(&run);
        }
    }
}

#[test]
fn a_url_given_to_an_option_is_not_shown() {
    let url = "postgresql://app:s3cr@h/db";
    for option in [
        "list",
        "init",
        "check",
        "json",
        "help",
        "completions",
        "strategy",
        url,
    ] {
        let joined = format!("--{option}={url}");
        let run = Dislock::new(url).run_args([&*joined, "DATABASE_URL", "true"]);

        assert_eq!(run.code, 2, "{option}: {run:?}");
        assert_secret_kept(&run);
    }
}

#[test]
fn a_url_given_in_place_of_its_variables_name_is_not_shown() {
    let database = Database::new();
    let url = url(&database);

    let run = Dislock::lease(url.clone(), 30.0)
        .url_name(&url)
        .run(["true"]);

    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("NAME"), "{}", run.stderr);
    assert_secret_kept(&run);
    assert_eq!(database.rows(), 0);
}

#[test]
fn the_command_finds_the_variable_and_nothing_more() {
    let database = Database::new();
    let url = url(&database);

    let run = Dislock::lease(url.clone(), 30.0).run(["env"]);

    let with_secret: Vec<&str> = run
        .stdout
        .lines()
        .filter(|line| line.contains("s3cr"))
        .collect();
    assert_eq!(with_secret, [format!("DATABASE_URL={url}")]);
}
