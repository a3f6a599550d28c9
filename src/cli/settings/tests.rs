mod url;

use std::cell::RefCell;
use std::os::unix::ffi::OsStringExt as _;

use clap::Parser as _;

use super::*;
use crate::context::LeaseLossPolicy;

const URL: &str = "postgres://user:hunter2@localhost/db";
const BOTH: (&str, &str) = ("LOCK_STRATEGY", "schedule,lease");

/// An environment in which everything that is needed is set; later entries win.
fn base() -> Vec<(String, OsString)> {
    [
        ("DATABASE_URL", URL),
        ("LOCK_KEY", "job"),
        ("CRON_SCHEDULE", "*/5 * * * *"),
    ]
    .map(|(name, value)| (name.to_owned(), value.into()))
    .to_vec()
}

fn lookup(env: &[(String, OsString)], name: &str) -> Option<OsString> {
    let (_, value) = env.iter().rev().find(|(n, _)| n == name)?;
    Some(value.clone())
}

fn args(options: &[&str]) -> Args {
    let words = ["DATABASE_URL", "ls", "--help"];
    Args::try_parse_from(["dislock"].iter().chain(options).chain(&words)).unwrap()
}

fn resolved(options: &[&str], variables: &[(&str, &str)]) -> Result<Settings, String> {
    let mut env = base();
    env.extend(variables.iter().map(|(n, v)| ((*n).to_owned(), v.into())));
    resolve(&args(options), &|name| lookup(&env, name)).map_err(|bad| bad.to_string())
}

fn refused(options: &[&str], variables: &[(&str, &str)]) -> String {
    let message = resolved(options, variables).expect_err("must be refused");
    assert!(!message.contains("hunter2"), "{message}");
    assert!(!message.contains('\n'), "{message}");
    message
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn what_is_not_given_has_the_documented_default() {
    let settings = resolved(&[], &[BOTH]).unwrap();
    let ctx = settings.context.settings();
    assert_eq!(settings.context.lock_key(), "job");
    assert_eq!(ctx.table.to_string(), "key_value");
    assert_eq!(ctx.timing.ttl, secs(60));
    assert_eq!(ctx.timing.interval, secs(10));
    assert_eq!(ctx.timing.kill_grace, secs(10));
    assert_eq!(ctx.jitter_max, secs(0));
    assert_eq!(ctx.slot_tolerance, secs(1));
    assert_eq!(ctx.wait, secs(0));
    assert_eq!(ctx.connect_timeout, secs(10));
    assert_eq!(ctx.policy, LeaseLossPolicy::Terminate);
    assert!(ctx.timezone.is_none());
    assert!(ctx.slot.is_some());
    assert_eq!(settings.conflict_exit_code, 0);
    assert_eq!(settings.command, ["ls", "--help"]);
}

#[test]
fn without_a_strategy_it_is_the_schedule() {
    let settings = resolved(&[], &[]).unwrap();
    assert_eq!(settings.strategies, [LockStrategy::Schedule]);
}

#[test]
fn every_variable_and_every_option_arrives_where_it_belongs() {
    let given = [
        ("LOCK_KEY", "--key", "other"),
        ("LOCK_STRATEGY", "--strategy", "Lease, schedule"),
        ("LOCK_TABLE", "--table", "ops.locks"),
        ("LOCK_OWNER", "--owner", "me"),
        ("CRON_SCHEDULE", "--cron", "@hourly"),
        ("LOCK_TIMEZONE", "--timezone", "Europe/Berlin"),
        ("LOCK_SLOT_TOLERANCE_SECONDS", "--slot-tolerance", "2"),
        ("RUN_LOCK_TTL_SECONDS", "--ttl", "30"),
        ("LOCK_LEASE_INTERVAL", "--lease-interval", "3"),
        ("LOCK_WAIT_SECONDS", "--wait", "forever"),
        ("LOCK_ON_LEASE_LOSS", "--on-lease-loss", "continue"),
        ("LOCK_KILL_GRACE_SECONDS", "--kill-grace", "4"),
        ("LOCK_JITTER_SECONDS", "--jitter", "0.5"),
        ("LOCK_CONNECT_TIMEOUT_SECONDS", "--connect-timeout", "6"),
        ("LOCK_CONFLICT_EXIT_CODE", "--conflict-exit-code", "9"),
    ];
    let variables = given.map(|(variable, _, value)| (variable, value));
    let wrong = given.map(|(variable, _, _)| (variable, "!"));
    let options: Vec<&str> = given.iter().flat_map(|(_, o, v)| [*o, *v]).collect();
    for settings in [
        resolved(&[], &variables).unwrap(),
        // An option wins, and the variable is then not even looked at.
        resolved(&options, &wrong).unwrap(),
    ] {
        let ctx = settings.context.settings();
        assert_eq!(
            settings.strategies,
            [LockStrategy::Lease, LockStrategy::Schedule]
        );
        assert_eq!(ctx.lock_key, "other");
        assert_eq!(ctx.table.to_string(), "ops.locks");
        assert_eq!(ctx.owner, "me");
        assert_eq!(
            ctx.timezone.as_ref().unwrap().iana_name(),
            Some("Europe/Berlin")
        );
        assert_eq!(ctx.slot_tolerance, secs(2));
        assert_eq!(ctx.timing.ttl, secs(30));
        assert_eq!(ctx.timing.interval, secs(3));
        assert_eq!(ctx.wait, Duration::MAX);
        assert_eq!(ctx.policy, LeaseLossPolicy::Continue);
        assert_eq!(ctx.timing.kill_grace, secs(4));
        assert_eq!(ctx.jitter_max, Duration::from_millis(500));
        assert_eq!(ctx.connect_timeout, secs(6));
        assert_eq!(settings.conflict_exit_code, 9);
    }
}

#[test]
fn blank_is_as_good_as_not_set_where_there_is_a_default() {
    let with_default = [
        &input::STRATEGY,
        &input::TABLE,
        &input::OWNER,
        &input::TIMEZONE,
        &input::SLOT_TOLERANCE,
        &input::TTL,
        &input::LEASE_INTERVAL,
        &input::WAIT,
        &input::ON_LEASE_LOSS,
        &input::KILL_GRACE,
        &input::JITTER,
        &input::CONNECT_TIMEOUT,
        &input::CONFLICT_EXIT_CODE,
    ];
    for input in with_default {
        for blank in ["", "  ", "\t\n"] {
            let by_variable = resolved(&[], &[BOTH, (input.variable, blank)]);
            let by_option = resolved(&[input.option.unwrap(), blank], &[BOTH]);
            assert!(by_variable.is_ok(), "{by_variable:?}");
            assert!(by_option.is_ok(), "{by_option:?}");
        }
    }
    let settings = resolved(&["--ttl", " "], &[BOTH, ("RUN_LOCK_TTL_SECONDS", "7")]).unwrap();
    let ttl = settings.context.ttl();
    assert_eq!(ttl, secs(7), "a blank option hid the variable");
}

#[test]
fn blanks_around_a_value_do_not_count() {
    let settings = resolved(
        &[],
        &[
            BOTH,
            ("RUN_LOCK_TTL_SECONDS", " 7 "),
            ("LOCK_TABLE", " t\n"),
            ("LOCK_TIMEZONE", " UTC "),
            ("LOCK_CONFLICT_EXIT_CODE", "3 "),
            ("LOCK_ON_LEASE_LOSS", " Continue "),
        ],
    )
    .unwrap();
    assert_eq!(settings.context.ttl(), secs(7));
    assert_eq!(settings.context.settings().table.to_string(), "t");
    assert_eq!(settings.conflict_exit_code, 3);
}

#[test]
fn a_malformed_value_is_refused_by_its_names_with_its_text_and_what_is_allowed() {
    let cases = [
        (&input::STRATEGY, "mutex", "`lease`"),
        (&input::STRATEGY, "lease,", "`schedule,lease`"),
        (&input::STRATEGY, ",", "`schedule,lease`"),
        (&input::TABLE, "a..b", "`schema.table`"),
        (&input::TABLE, ".t", "`schema.table`"),
        (&input::TABLE, "t.", "`schema.table`"),
        (&input::TABLE, "a.b.c", "`schema.table`"),
        (&input::TIMEZONE, "Mars/Base", "IANA"),
        (&input::SLOT_TOLERANCE, "-1", "zero or more"),
        (&input::SLOT_TOLERANCE, "soon", "seconds"),
        (&input::TTL, "abc", "greater than zero"),
        (&input::TTL, "0", "greater than zero"),
        (&input::TTL, "-5", "greater than zero"),
        (&input::TTL, "inf", "greater than zero"),
        (&input::TTL, "NaN", "greater than zero"),
        (&input::TTL, "1e300", "100 years"),
        (&input::LEASE_INTERVAL, "0", "greater than zero"),
        (&input::LEASE_INTERVAL, "-1", "greater than zero"),
        (&input::LEASE_INTERVAL, "61", "at most the TTL"),
        (&input::WAIT, "-1", "`forever`"),
        (&input::WAIT, "always", "`forever`"),
        (&input::ON_LEASE_LOSS, "ignore", "`continue`"),
        (&input::KILL_GRACE, "-0.1", "zero or more"),
        (&input::JITTER, "10s", "zero or more"),
        (&input::JITTER, "1e300", "100 years"),
        (&input::CONNECT_TIMEOUT, "1,5", "zero or more"),
        (&input::CONFLICT_EXIT_CODE, "256", "0 to 255"),
        (&input::CONFLICT_EXIT_CODE, "-1", "0 to 255"),
        (&input::KEY, "", "must not be empty"),
        (&input::KEY, " \t", "must not be empty"),
        (&input::CRON, "", "must not be empty"),
        (&input::CRON, " ", "must not be empty"),
    ];
    for (input, value, allowed) in cases {
        let (variable, option) = (input.variable, input.option.unwrap());
        let by_variable = refused(&[], &[BOTH, (variable, value)]);
        let by_option = refused(&[&format!("{option}={value}")], &[BOTH]);
        for (message, names) in [
            (by_variable, format!("{variable} ({option})")),
            (by_option, format!("{option} ({variable})")),
        ] {
            let start = format!("{names} {value:?}: ");
            assert!(message.starts_with(&start), "{message} / {start}");
            assert!(message.contains(allowed), "{message} / {allowed}");
        }
    }
}

#[test]
fn a_missing_key_or_schedule_is_refused_by_name() {
    for (missing, option, instead) in [
        ("LOCK_KEY", "--key", ""),
        (
            "CRON_SCHEDULE",
            "--cron",
            ", or --strategy lease, which needs no schedule",
        ),
    ] {
        let env: Vec<_> = base().into_iter().filter(|(n, _)| n != missing).collect();
        let bad = resolve(&args(&[]), &|name| lookup(&env, name)).unwrap_err();
        assert_eq!(
            bad.to_string(),
            format!("{missing} ({option}): must be set and not be empty{instead}")
        );
    }
}

#[test]
fn an_empty_option_does_not_fall_back_to_the_key_in_the_variable() {
    assert!(refused(&["--key="], &[]).starts_with("--key (LOCK_KEY) \"\": "));
}

#[test]
fn bytes_that_are_not_utf8_are_refused_by_name() {
    for name in [
        "LOCK_KEY",
        "LOCK_STRATEGY",
        "LOCK_TABLE",
        "LOCK_JITTER_SECONDS",
    ] {
        let mut env = base();
        env.push((name.to_owned(), OsString::from_vec(b"a\xff".to_vec())));
        let bad = resolve(&args(&[]), &|name| lookup(&env, name)).unwrap_err();
        let message = bad.to_string();
        assert!(message.starts_with(name), "{message}");
        assert!(
            message.ends_with(r#""a\xFF": is not valid UTF-8"#),
            "{message}"
        );
    }
}

#[test]
fn what_the_strategy_does_not_need_is_not_read() {
    let schedule_only = [
        "CRON_SCHEDULE",
        "LOCK_TIMEZONE",
        "CRON_TZ",
        "LOCK_SLOT_TOLERANCE_SECONDS",
    ];
    let lease_only = [
        "RUN_LOCK_TTL_SECONDS",
        "LOCK_LEASE_INTERVAL",
        "LOCK_ON_LEASE_LOSS",
        "LOCK_WAIT_SECONDS",
    ];
    for (strategy, unneeded) in [("lease", schedule_only), ("schedule", lease_only)] {
        let asked = RefCell::new(Vec::new());
        let mut env = base();
        env.push(("LOCK_STRATEGY".to_owned(), strategy.into()));
        env.extend(unneeded.map(|n| (n.to_owned(), "!".into())));
        let read = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            lookup(&env, name)
        };
        resolve(&args(&[]), &read).unwrap_or_else(|e| panic!("{strategy}: {e}"));
        for name in unneeded {
            let asked = asked.borrow();
            assert!(!asked.iter().any(|a| a == name), "{strategy} read {name}");
        }
    }
}

#[test]
fn the_zone_is_cron_s_unless_ours_is_given() {
    let zone = |variables: &[(&str, &str)]| {
        let settings = resolved(&[], variables).unwrap();
        let zone = settings.context.settings().timezone.clone();
        zone.and_then(|zone| zone.iana_name().map(str::to_owned))
    };
    let cron = ("CRON_TZ", "Asia/Tokyo");
    assert_eq!(zone(&[cron]).as_deref(), Some("Asia/Tokyo"));
    assert_eq!(
        zone(&[cron, ("LOCK_TIMEZONE", "Europe/Berlin")]).as_deref(),
        Some("Europe/Berlin")
    );
    assert_eq!(
        zone(&[cron, ("LOCK_TIMEZONE", " ")]).as_deref(),
        Some("Asia/Tokyo")
    );
    assert_eq!(zone(&[("CRON_TZ", "")]), None);
    assert!(refused(&[], &[("CRON_TZ", "Mars")]).starts_with("CRON_TZ \"Mars\": "));
}

#[test]
fn debug_output_of_settings_has_no_password() {
    let settings = resolved(&[], &[BOTH]).unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn the_log_level_is_the_option_s_then_the_variable_s_then_warning() {
    let level = |options: &[&str], value: Option<&str>| {
        let env = |name: &str| {
            value
                .filter(|_| name == "CRONJOB_LOCK_LOG_LEVEL")
                .map(OsString::from)
        };
        let (level, format, bad) = logging(&args(options), &env);
        assert_eq!(format, Format::Text);
        (level, bad.first().map(BadInput::to_string))
    };
    assert_eq!(level(&[], None), (LevelFilter::Warn, None));
    assert_eq!(level(&[], Some(" ")), (LevelFilter::Warn, None));
    assert_eq!(level(&[], Some(" debug ")), (LevelFilter::Debug, None));
    assert_eq!(
        level(&["--log-level", "ERROR"], Some("debug")),
        (LevelFilter::Error, None)
    );
    assert_eq!(
        level(&[], Some("lo\nud")),
        (
            LevelFilter::Warn,
            Some(
                "CRONJOB_LOCK_LOG_LEVEL (--log-level) \"lo\\nud\": must be DEBUG, INFO, WARNING, \
                 ERROR or CRITICAL; using WARNING"
                    .to_owned()
            )
        )
    );
}
