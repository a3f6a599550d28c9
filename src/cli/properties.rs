//! What must hold for any settings; see [`crate::fuzzing`].

use std::ffi::OsString;

use clap::Parser as _;

use super::args::Args;
use super::settings::{logging, resolve};
use crate::context::LockStrategy;

/// What is in the URL and nowhere else.
const SECRET: &str = "Xq7Zw";

/// Read for a lease only.
const OF_LEASES: [&str; 4] = [
    "RUN_LOCK_TTL_SECONDS",
    "LOCK_LEASE_INTERVAL",
    "LOCK_ON_LEASE_LOSS",
    "LOCK_WAIT_SECONDS",
];
/// Read for a schedule only.
const OF_SCHEDULES: [&str; 4] = [
    "CRON_SCHEDULE",
    "LOCK_TIMEZONE",
    "CRON_TZ",
    "LOCK_SLOT_TOLERANCE_SECONDS",
];

/// `options` are arguments, `variables` the environment beside the URL.
pub(crate) fn settings(options: &[String], variables: &[(String, String)]) {
    let words = ["DATABASE_URL".to_owned(), "true".to_owned()];
    let program = std::iter::once("dislock".to_owned());
    let args = program.chain(options.iter().cloned()).chain(words);
    // Clap's refusals are clap's.
    let Ok(args) = Args::try_parse_from(args) else {
        return;
    };
    let lookup = |left_out: &[&str], name: &str| -> Option<OsString> {
        if name == "DATABASE_URL" {
            return Some(format!("postgresql://me:{SECRET}@db/app").into());
        }
        if name.starts_with("PG") || name == "HOME" || left_out.contains(&name) {
            return None;
        }
        let (_, value) = variables.iter().rev().find(|(n, _)| n == name)?;
        Some(value.into())
    };
    let given = |text: &String| text.contains(SECRET);
    if options.iter().any(given) || variables.iter().any(|(_, value)| given(value)) {
        return;
    }
    let check = |said: &str| {
        assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
        assert!(!said.contains(SECRET), "{said}");
    };
    let (_, _, refused) = logging(&args, &|name| lookup(&[], name));
    refused.iter().for_each(|bad| check(&bad.to_string()));
    let settings = match resolve(&args, &|name| lookup(&[], name)) {
        Ok(settings) => settings,
        Err(bad) => return check(&bad.to_string()),
    };
    assert!(!format!("{settings:?}").contains(SECRET));
    assert!((0..=255).contains(&settings.conflict_exit_code));
    assert!(!settings.strategies.is_empty());
    let context = settings.context.settings();
    assert!(!context.timing.ttl.is_zero() && !context.timing.interval.is_zero());
    assert!(context.timing.interval <= context.timing.ttl);

    // A variable that the strategy does not need is not read.
    let not_needed = [
        (LockStrategy::Lease, OF_LEASES),
        (LockStrategy::Schedule, OF_SCHEDULES),
    ];
    for (strategy, names) in not_needed {
        if !settings.strategies.contains(&strategy) {
            let less = resolve(&args, &|name| lookup(&names, name));
            let less = less.map(|settings| format!("{settings:?}"));
            assert_eq!(less.ok(), Some(format!("{settings:?}")));
        }
    }
}
