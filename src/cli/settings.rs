//! Arguments and environment in, a validated run out.
//!
//! What the strategies do not need is not read, so that it cannot be wrong. Ranges are the library's
//! to check; what it refuses comes back in the names, and with the text, that people gave.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use log::LevelFilter;

use super::args::Args;
use super::input::{self, BadInput, Env, Given, Input};
use super::logging::Format;
use super::values::{self, Form};
use crate::context::{LockContext, LockStrategy};
use crate::error::{Error, Kind, Setting};

/// Hosts whose clocks are kept by NTP differ by less, and ticks are a minute apart at least.
const DEFAULT_SLOT_TOLERANCE: Duration = Duration::from_secs(1);
const DEFAULT_LOG_LEVEL: LevelFilter = LevelFilter::Warn;
const DEFAULT_CONFLICT_EXIT_CODE: u8 = 0;

/// One run of the program.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) context: LockContext,
    /// As they were given: in any order, and perhaps more than once.
    pub(crate) strategies: Vec<LockStrategy>,
    /// The command and its arguments, untouched.
    pub(crate) command: Vec<OsString>,
    /// The exit code when the lock is held elsewhere.
    pub(crate) conflict_exit_code: i32,
}

/// What to log from which level on and how, and what to say about values that do not exist.
pub(crate) fn logging(args: &Args, env: Env<'_>) -> (LevelFilter, Format, Vec<BadInput>) {
    let mut bad = Vec::new();
    let mut reader = Reader::new(args, env);
    let level = reader.read(&input::LOG_LEVEL, &values::LOG_LEVEL);
    let level = level.unwrap_or_else(|refused| {
        bad.push(refused.with_default("WARNING"));
        None
    });
    let format = reader.read(&input::LOG_FORMAT, &values::LOG_FORMAT);
    let format = format.unwrap_or_else(|refused| {
        bad.push(refused.with_default("text"));
        None
    });
    (
        level.unwrap_or(DEFAULT_LOG_LEVEL),
        format.unwrap_or(Format::Text),
        bad,
    )
}

/// What `args` and `env` ask for.
pub(crate) fn resolve(args: &Args, env: Env<'_>) -> Result<Settings, BadInput> {
    let (url_name, command) = match args.words.split_first() {
        Some((name, command)) => (name.as_os_str(), command),
        None => (OsStr::new(""), [].as_slice()),
    };
    let (url_name, url) = database_url(url_name, env)?;
    let mut reader = Reader::new(args, env);
    let strategies = reader
        .read(&input::STRATEGY, &values::STRATEGIES)?
        .unwrap_or_else(|| vec![LockStrategy::Schedule]);

    let mut builder = LockContext::builder(url, reader.require(&input::KEY)?);
    if let Some(table) = reader.read(&input::TABLE, &values::TRIMMED)? {
        builder = builder.table(table);
    }
    if let Some(owner) = reader.read(&input::OWNER, &values::TRIMMED)? {
        builder = builder.owner(owner);
    }
    if let Some(jitter) = reader.read(&input::JITTER, &values::SECONDS)? {
        builder = builder.jitter_max(jitter);
    }
    if let Some(grace) = reader.read(&input::KILL_GRACE, &values::SECONDS)? {
        builder = builder.kill_grace(grace);
    }
    if let Some(timeout) = reader.read(&input::CONNECT_TIMEOUT, &values::SECONDS)? {
        builder = builder.connect_timeout(timeout);
    }
    if strategies.contains(&LockStrategy::Schedule) {
        let schedule = reader
            .require(&input::CRON)
            .map_err(|bad| bad.or_instead("--strategy lease, which needs no schedule"))?;
        builder = builder.schedule(schedule);
        if let Some(zone) = reader.zone()? {
            builder = builder.timezone(zone);
        }
        let tolerance = reader.read(&input::SLOT_TOLERANCE, &values::SECONDS)?;
        builder = builder.slot_tolerance(tolerance.unwrap_or(DEFAULT_SLOT_TOLERANCE));
    }
    if strategies.contains(&LockStrategy::Lease) {
        if let Some(ttl) = reader.read(&input::TTL, &values::POSITIVE_SECONDS)? {
            builder = builder.ttl(ttl);
        }
        if let Some(interval) = reader.read(&input::LEASE_INTERVAL, &values::POSITIVE_SECONDS)? {
            builder = builder.heartbeat_interval(interval);
        }
        if let Some(policy) = reader.read(&input::ON_LEASE_LOSS, &values::POLICY)? {
            builder = builder.lease_loss_policy(policy);
        }
        if let Some(wait) = reader.read(&input::WAIT, &values::WAIT)? {
            builder = builder.wait(wait);
        }
    }
    let conflict_exit_code = reader
        .read(&input::CONFLICT_EXIT_CODE, &values::EXIT_CODE)?
        .unwrap_or(DEFAULT_CONFLICT_EXIT_CODE);
    let context = builder
        .build_with(env)
        .map_err(|error| reader.in_given_names(&error, url_name))?;
    Ok(Settings {
        context,
        strategies,
        command: command.to_vec(),
        conflict_exit_code: i32::from(conflict_exit_code),
    })
}

/// What an operator's command needs: the database, the table, and as whom. It is no lock; where a
/// lock's key would stand, `subject` tells the server's activity view what is being done.
pub(crate) fn administration(
    args: &Args,
    env: Env<'_>,
    subject: &str,
) -> Result<LockContext, BadInput> {
    let word = args
        .words
        .first()
        .map_or(OsStr::new(""), OsString::as_os_str);
    let (url_name, url) = database_url(word, env)?;
    let mut reader = Reader::new(args, env);
    let mut builder = LockContext::builder(url, subject);
    if let Some(table) = reader.read(&input::TABLE, &values::TRIMMED)? {
        builder = builder.table(table);
    }
    if let Some(owner) = reader.read(&input::OWNER, &values::TRIMMED)? {
        builder = builder.owner(owner);
    }
    if let Some(timeout) = reader.read(&input::CONNECT_TIMEOUT, &values::SECONDS)? {
        builder = builder.connect_timeout(timeout);
    }
    builder
        .build_with(env)
        .map_err(|error| reader.in_given_names(&error, url_name))
}

/// Both kinds, unless a strategy is named.
pub(crate) fn kinds_to_release(args: &Args, env: Env<'_>) -> Result<Vec<LockStrategy>, BadInput> {
    let named = Reader::new(args, env).read(&input::STRATEGY, &values::STRATEGIES)?;
    Ok(named.unwrap_or_else(|| vec![LockStrategy::Schedule, LockStrategy::Lease]))
}

/// The variable's name in `word`, and the URL in that variable. A word that names nothing is shown
/// only if it could be a name: it may be the URL itself, with a password in it.
fn database_url<'w>(word: &'w OsStr, env: Env<'_>) -> Result<(&'w str, String), BadInput> {
    let refuse = |name: &str, why: &str| BadInput {
        name: name.to_owned(),
        value: None,
        why: why.to_owned(),
    };
    let found = word.to_str().and_then(|name| Some((name, env(name)?)));
    match found {
        Some((name, url)) if input::is_blank(&url) => {
            Err(refuse(name, "is empty; must be the database URL"))
        }
        Some((name, url)) => match url.into_string() {
            Ok(url) => Ok((name, url)),
            Err(_) => Err(refuse(name, "is not valid UTF-8; must be the database URL")),
        },
        None => match word.to_str().filter(|word| could_be_a_name(word)) {
            Some(name) => Err(refuse(
                name,
                "is not set; the first argument must be the name of the environment variable that \
                 holds the database URL",
            )),
            None => Err(refuse(
                "URL_ENV_NAME",
                "must be the NAME of the environment variable that holds the database URL, such as \
                 DATABASE_URL, and not the URL itself",
            )),
        },
    }
}

fn could_be_a_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads settings, and remembers what was given in case the library refuses it.
struct Reader<'a> {
    args: &'a Args,
    env: Env<'a>,
    given: Vec<Given>,
}

impl<'a> Reader<'a> {
    fn new(args: &'a Args, env: Env<'a>) -> Self {
        Self {
            args,
            env,
            given: Vec::new(),
        }
    }

    fn read<T>(&mut self, input: &'static Input, form: &Form<T>) -> Result<Option<T>, BadInput> {
        let Some(given) = input.find(self.args, self.env) else {
            return Ok(None);
        };
        let value = form.read(&given)?;
        self.given.push(given);
        Ok(Some(value))
    }

    fn require(&mut self, input: &'static Input) -> Result<String, BadInput> {
        let given = input.require(self.args, self.env)?;
        let value = given.text()?.to_owned();
        self.given.push(given);
        Ok(value)
    }

    fn zone(&mut self) -> Result<Option<String>, BadInput> {
        match self.read(&input::TIMEZONE, &values::TRIMMED)? {
            Some(zone) => Ok(Some(zone)),
            None => self.read(&input::CRON_TZ, &values::TRIMMED),
        }
    }

    /// The library's refusal, in the names and with the text that people gave.
    fn in_given_names(&self, error: &Error, url_name: &str) -> BadInput {
        let Kind::Configuration(bad) = error.kind() else {
            // Building a context does nothing but read its settings.
            return BadInput {
                name: "settings".to_owned(),
                value: None,
                why: format!("{error:#}"),
            };
        };
        let given = self
            .given
            .iter()
            .find(|given| given.setting() == Some(bad.setting));
        match given {
            Some(given) => given.refuse(&*bad.why),
            None => BadInput {
                name: if bad.setting == Setting::Url {
                    url_name.to_owned()
                } else {
                    bad.setting.to_string()
                },
                value: bad.value.as_ref().map(OsString::from),
                why: bad.why.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
