//! The URL's password is shown nowhere, at any level, whatever goes wrong.

use crate::support::database::Database;
use crate::support::run::Dislock;

/// What stands in the URL for the password that `%` decodes to.
const ENCODED: &str = "s3cr%65t-p%40ss";
const DECODED: &str = "s3cret-p@ss";

/// A URL with the password in it. The shared server may trust everybody, and then ignores it.
fn url(database: &Database) -> String {
    let role = database.role(&format!("LOGIN SUPERUSER PASSWORD '{DECODED}'"));
    database.url_as(&role, ENCODED)
}

#[track_caller]
fn assert_secret_kept(run: &crate::support::run::Finished) {
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
