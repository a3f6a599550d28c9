//! The operator's commands: what is asked for, done and told.

use std::ffi::OsString;
use std::io;

use clap::CommandFactory as _;
use jiff::tz::TimeZone;

use super::admin_args::Task;
use super::args::Args;
use super::input::{BadInput, Env};
use super::listing::{self, kind, left};
use super::manual;
use super::report;
use super::settings::{self, Settings};
use super::terminal::{Paint, printable, write_out};
use super::values;
use crate::admin::{self, Creation, Finding, LockRow, Verdict};
use crate::command::CommandLine;
use crate::context::{LockContext, LockStrategy, identifier};
use crate::db::timestamp::RowTime;
use crate::error::Error;
use crate::rules::outcome;

/// Why a task was not done.
enum Failed {
    Input(BadInput),
    Task(Error),
    Output(io::Error),
    /// Everything went as it should, and the answer is no.
    Refused(String),
}

impl From<BadInput> for Failed {
    fn from(bad: BadInput) -> Self {
        Self::Input(bad)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Task(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Does `task` and tells how it went; its exit code.
pub(crate) fn perform(task: &Task, args: &Args, env: Env<'_>) -> i32 {
    let done = match task {
        Task::Init => init(args, env),
        Task::List { all, json } => list(args, env, *all, *json),
        Task::Release { key, force } => release(args, env, key, *force),
        Task::Prune { age } => prune(args, env, age),
        Task::Check => check(args, env),
        Task::Completions(shell) => completions(*shell),
        Task::Man => manual_page(),
    };
    let (exit_code, why) = match done {
        Ok(code) => return code,
        Err(Failed::Input(bad)) => (outcome::USAGE, bad.to_string()),
        Err(Failed::Task(error)) => (
            outcome::exit_code_of(&error, outcome::FAILURE),
            format!("{error:#}"),
        ),
        Err(Failed::Output(error)) => (outcome::FAILURE, not_written(&error)),
        Err(Failed::Refused(why)) => (outcome::FAILURE, why),
    };
    log::error!(event = "task_failed", task = task.option(), exit_code; "{why}");
    exit_code
}

/// What is said where standard output takes nothing.
pub(super) fn not_written(error: &io::Error) -> String {
    format!("cannot write to standard output: {error}")
}

fn init(args: &Args, env: Env<'_>) -> Result<i32, Failed> {
    let ctx = settings::administration(args, env, "init")?;
    let Creation { created, schema } = admin::init(&ctx)?;
    let table = &ctx.settings().table;
    let how = if created { "is created" } else { "was there" };
    let mut text = format!(
        "-- Table {} {how}, in schema {}. A role that locks needs:\n",
        printable(&table.to_string()),
        printable(&schema)
    );
    if schema != "public" {
        text.push_str(&format!(
            "GRANT USAGE ON SCHEMA {} TO your_role;\n",
            identifier(&schema)
        ));
    }
    let sql = table.sql();
    text.push_str(&format!(
        "GRANT SELECT, INSERT, UPDATE ON {sql} TO your_role;\n\
         -- One that also prunes:\n\
         GRANT DELETE ON {sql} TO your_role;\n"
    ));
    write_out(&text)?;
    Ok(0)
}

fn list(args: &Args, env: Env<'_>, all: bool, json: bool) -> Result<i32, Failed> {
    let ctx = settings::administration(args, env, "list")?;
    let (locks, wrong) = admin::list(&ctx, all)?;
    let text = match (json, locks.is_empty()) {
        (true, _) => listing::json(&locks),
        (false, true) if wrong.is_some() => String::new(),
        (false, true) => format!(
            "no locks in table {}\n",
            printable(&ctx.settings().table.to_string())
        ),
        (false, false) => listing::table(&locks, &TimeZone::system(), Paint::for_stdout(env)),
    };
    write_out(&text)?;
    wrong.map_or(Ok(0), |error| Err(error.into()))
}

fn release(args: &Args, env: Env<'_>, key: &OsString, force: bool) -> Result<i32, Failed> {
    let key = key
        .to_str()
        .ok_or_else(|| bad("--release", key, "is not valid UTF-8"))?;
    let ctx = settings::administration(args, env, key)?;
    let kinds = settings::kinds_to_release(args, env)?;
    let locks = admin::release(&ctx, &kinds, force)?;
    if locks.is_empty() {
        return Err(Failed::Refused(nothing_to_release(&ctx, &kinds)));
    }
    let mut refused = Vec::new();
    let mut text = String::new();
    for lock in &locks {
        let name = format!("{} {}", kind(lock.kind), printable(&lock.lock_key));
        let holder = printable(&lock.holder);
        match (lock.is_live(), force) {
            (true, true) => text.push_str(&format!(
                "{name} is free now; it was held by {holder}, {}\n",
                for_how_long(lock)
            )),
            (true, false) => refused.push(held(lock, &name)),
            (false, _) => text.push_str(&format!(
                "{name} is free; it was held by {holder}, {}\n",
                left(lock)
            )),
        }
    }
    write_out(&text)?;
    match refused.is_empty() {
        true => Ok(0),
        false => Err(Failed::Refused(refused.join("; "))),
    }
}

fn for_how_long(lock: &LockRow) -> String {
    match lock.expire_at {
        RowTime::Never => left(lock),
        RowTime::Past | RowTime::At(_) => format!("for another {}", left(lock)),
    }
}

fn held(lock: &LockRow, name: &str) -> String {
    let consequence = match lock.kind {
        LockStrategy::Schedule => "and the tick may then start once more",
        LockStrategy::Lease => "and its holder then stops",
    };
    format!(
        "{name} is held by {}, {}; --force takes it away, {consequence}",
        lock.holder,
        for_how_long(lock)
    )
}

fn nothing_to_release(ctx: &LockContext, kinds: &[LockStrategy]) -> String {
    let kinds: Vec<&str> = kinds.iter().copied().map(kind).collect();
    format!(
        "there is no lock {:?} ({}) in table {} at {}",
        ctx.lock_key(),
        kinds.join(", "),
        ctx.settings().table,
        ctx.settings().conninfo.describe()
    )
}

fn prune(args: &Args, env: Env<'_>, age: &OsString) -> Result<i32, Failed> {
    let read = age.to_str().and_then(|text| values::age(text.trim()));
    let age = read.ok_or_else(|| {
        let why = "must be a whole number with a unit s, m, h, d or w (seconds without), at most 100 years";
        bad("--prune", age, why)
    })?;
    let ctx = settings::administration(args, env, "prune")?;
    let text = match admin::prune(&ctx, age)? {
        1 => "1 expired lock was deleted\n".to_owned(),
        n => format!("{n} expired locks were deleted\n"),
    };
    write_out(&text)?;
    Ok(0)
}

/// Checks as much as can be told from settings that may be wrong.
fn check(args: &Args, env: Env<'_>) -> Result<i32, Failed> {
    let resolved = settings::resolve(args, env);
    let wrong = resolved.is_err();
    let (mut report, told) = match resolved {
        Ok(settings) => {
            let told = told(&settings, env);
            (admin::check(&settings.context, &settings.strategies), told)
        }
        Err(bad) => {
            let told = vec![Finding::fail(
                "configuration",
                bad.to_string(),
                "see dislock --help",
            )];
            let report = match settings::administration(args, env, "check") {
                Ok(ctx) => admin::check(&ctx, &[]),
                Err(_) => admin::Report::default(),
            };
            (report, told)
        }
    };
    report.findings.splice(0..0, told);
    write_out(&report::render(&report, Paint::for_stdout(env)))?;
    let fails = report.findings.iter().any(|f| f.verdict == Verdict::Fail);
    Ok(match (wrong, fails) {
        (true, _) => outcome::USAGE,
        (false, true) => outcome::FAILURE,
        (false, false) => 0,
    })
}

/// What can be told without the database.
fn told(settings: &Settings, env: Env<'_>) -> Vec<Finding> {
    let ctx = &settings.context;
    let mut strategies: Vec<LockStrategy> = settings.strategies.clone();
    strategies.sort_unstable();
    strategies.dedup();
    let names: Vec<&str> = strategies.into_iter().map(kind).collect();
    let mut findings = vec![Finding::ok(
        "configuration",
        format!(
            "lock {}, strategy {}, table {}, owner {}",
            ctx.lock_key(),
            names.join(","),
            ctx.settings().table,
            ctx.owner()
        ),
    )];
    if !settings.command.is_empty() {
        let path = env("PATH");
        findings.push(
            match CommandLine::resolve(settings.command.clone(), path.as_deref()) {
                Ok(command) => Finding::ok("command", command.file().display().to_string()),
                Err(error) => Finding::fail(
                    "command",
                    format!("{error:#}"),
                    "cron's PATH is short: give the whole path",
                ),
            },
        );
    }
    findings
}

fn completions(shell: clap_complete::Shell) -> Result<i32, Failed> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "dislock", &mut script);
    write_out(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

fn manual_page() -> Result<i32, Failed> {
    write_out(&manual::page()?)?;
    Ok(0)
}

fn bad(option: &str, value: &OsString, why: &str) -> BadInput {
    BadInput {
        name: option.to_owned(),
        value: Some(value.clone()),
        why: why.to_owned(),
    }
}
