//! What a context takes and refuses.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::error::Error;

const URL: &str = "postgresql://app:hunter2@db.example/app";

fn build(builder: LockContextBuilder) -> Result<LockContext> {
    builder.build_with(&|_| None)
}

fn refusal(builder: LockContextBuilder) -> String {
    let error = build(builder).unwrap_err();
    assert!(error.is_configuration());
    error.to_string()
}

#[test]
fn public_types_can_go_to_other_threads() {
    fn check<T: Send + Sync>() {}
    check::<LockContext>();
    check::<crate::LockSession>();
    check::<crate::LeaseLock>();
    check::<crate::ScheduleLock>();
    check::<crate::LeaseLost>();
    check::<crate::LockPlan>();
    check::<Error>();
}

#[test]
fn table_names_are_quoted_as_identifiers() {
    let table = [
        ("key_value", r#""key_value""#),
        ("ops.locks", r#""ops"."locks""#),
        (r#"a"b"#, r#""a""b""#),
        ("x; DROP TABLE y", r#""x; DROP TABLE y""#),
    ];
    for (name, sql) in table {
        assert_eq!(TableName::parse(name).unwrap().sql(), sql);
    }
}

#[test]
fn malformed_table_names_are_refused_by_name() {
    let long = "t".repeat(64);
    for name in [
        "", ".", "a..b", ".t", "t.", "a.b.c", " ", "a. ", "nul\0", &long,
    ] {
        let message = refusal(LockContext::builder(URL, "k").table(name));
        assert!(
            message.starts_with(&format!("table name {name:?}: ")),
            "{message}"
        );
    }
}

#[test]
fn lock_keys_and_owners_must_fit_into_a_row() {
    let long = "k".repeat(1025);
    for name in ["", "a\0b", &long] {
        let message = refusal(LockContext::builder(URL, name));
        assert!(message.starts_with("lock key "), "{message}");
        let message = refusal(LockContext::builder(URL, "k").owner(name));
        assert!(message.starts_with("owner "), "{message}");
    }
}

#[test]
fn unsafe_times_are_refused_when_the_context_is_built() {
    let seconds = Duration::from_secs;
    let builder = || LockContext::builder(URL, "k");
    let table = [
        (builder().ttl(Duration::ZERO), "TTL"),
        (builder().ttl(Duration::from_nanos(999)), "TTL"),
        (builder().ttl(Duration::MAX), "TTL"),
        (
            builder().heartbeat_interval(Duration::ZERO),
            "heartbeat interval",
        ),
        (
            builder().heartbeat_interval(seconds(61)),
            "heartbeat interval",
        ),
        (builder().jitter_max(Duration::MAX), "jitter"),
        (builder().kill_grace(Duration::MAX), "kill grace"),
        (builder().slot_tolerance(Duration::MAX), "slot tolerance"),
        (builder().connect_timeout(Duration::MAX), "connect timeout"),
    ];
    for (builder, name) in table {
        let message = refusal(builder);
        assert!(message.starts_with(name), "{message}");
    }
    assert!(build(builder().heartbeat_interval(seconds(60))).is_ok());
    assert!(build(builder().wait(Duration::MAX)).is_ok(), "for ever");
}

#[test]
fn schedules_and_zones_are_checked_before_anything_is_sent() {
    let builder = || LockContext::builder(URL, "k");
    let message = refusal(builder().schedule("61 * * * *"));
    assert!(
        message.starts_with(r#"schedule "61 * * * *": minute "61": "#),
        "{message}"
    );
    let message = refusal(builder().timezone("Mars/Olympus"));
    assert!(message.contains("Mars/Olympus"), "{message}");
    let both = builder()
        .schedule("@daily")
        .next_run_time(SystemTime::UNIX_EPOCH);
    assert!(refusal(both).starts_with("next run time: "));
    let missing = crate::build_locks(&build(builder()).unwrap(), &[LockStrategy::Schedule]);
    assert!(missing.unwrap_err().is_configuration());
    let none = crate::build_locks(&build(builder()).unwrap(), &[]);
    assert!(none.unwrap_err().is_configuration());
}

#[test]
fn a_message_shows_no_more_than_the_beginning_of_a_long_value() {
    let builder = LockContext::builder(URL, "k").schedule("🦀".repeat(1_000_000));
    let message = refusal(builder);
    assert!(message.starts_with(r#"schedule "🦀🦀"#), "{message}");
    assert!(
        message.contains(r#"🦀…": these are 4000000 bytes"#),
        "{message}"
    );
    assert!(message.len() < 1500, "{message}");
}

#[test]
fn strategies_come_in_one_order_whatever_order_they_are_given_in() {
    let ctx = build(LockContext::builder(URL, "k").schedule("@daily")).unwrap();
    use LockStrategy::{Lease, Schedule};
    for given in [[Lease, Schedule], [Schedule, Lease]] {
        let plan = crate::build_locks(&ctx, &given).unwrap();
        assert_eq!(plan.strategies(), [Schedule, Lease]);
    }
    let plan = crate::build_locks(&ctx, &[Lease, Lease]).unwrap();
    assert_eq!(plan.strategies(), [Lease]);
}

#[test]
fn the_password_is_not_in_any_debug_form() {
    let builder = LockContext::builder(URL, "k");
    let shown = format!("{builder:?} {:?}", build(builder.clone()).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    let wrong = LockContext::builder("postgresql://app:hunter2@db:99999/app", "k");
    let error = build(wrong).unwrap_err();
    let shown = format!("{error} {error:?} {error:#}");
    assert!(!shown.contains("hunter2"), "{shown}");
    assert!(shown.starts_with("connection string: "), "{shown}");
}

proptest! {
    #[test]
    fn no_input_panics(
        url in ".*", key in ".*", table in ".*", owner in ".*", zone in ".*",
        schedule in ".*", ttl in any::<Duration>(), interval in any::<Duration>(),
        grace in any::<Duration>(), wait in any::<Duration>(),
    ) {
        let builder = LockContext::builder(url, key)
            .table(table)
            .owner(owner)
            .timezone(zone)
            .schedule(schedule)
            .ttl(ttl)
            .heartbeat_interval(interval)
            .kill_grace(grace)
            .wait(wait);
        if let Err(error) = build(builder) {
            prop_assert!(error.is_configuration());
        }
    }
}
