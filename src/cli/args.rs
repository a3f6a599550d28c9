//! The arguments: what they are called, what the help says, and nothing of what they mean.
//!
//! Every option mirrors a variable. Reading both, and who wins, is the business of
//! [`settings`](super::settings): clap's own reading of the environment would also read, and refuse,
//! variables that the chosen strategy does not need.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};

use super::admin_args::{AdminArgs, Task};

/// Examples and exit codes, below the long help and in the manual page: a heading is a line that is
/// not indented and ends with a colon.
pub(super) const AFTER_LONG_HELP: &str = "\
Examples:
  One start per tick, whichever host is first; every host has this line in its crontab:
    */5 * * * * dislock --key report --cron '*/5 * * * *' DATABASE_URL ./report.sh

  Never two at once; the command is stopped before another host can take its lease:
    dislock --key importer --strategy lease --ttl 30 DATABASE_URL ./import.sh --all

  Everything by variables, as in a container:
    LOCK_KEY=report LOCK_STRATEGY=lease dislock DATABASE_URL ./report.sh

  Once, then whenever something looks odd:
    dislock --init DATABASE_URL
    dislock --check --key report --cron '*/5 * * * *' DATABASE_URL ./report.sh
    dislock --list DATABASE_URL
    dislock --release importer --force DATABASE_URL

Exit codes:
  the command's own; 128 + n when signal n ended it
    0   also when the lock is held elsewhere and nothing ran (see --conflict-exit-code)
    1   runtime failure: database out of reach, refused, table missing, ...
    2   configuration or usage
   75   the lease was lost and the command was stopped
  126   the command could not be executed
  127   the command was not found
  128 + n also when dislock was stopped by signal n before the command ran";

/// Run a command unless another machine is running it, with one PostgreSQL table as the lock.
///
/// Everything after URL_ENV_NAME is the command, untouched, its flags included; options of dislock
/// come first. An option wins over the variable that it mirrors. The database URL itself is never an
/// argument: arguments can be seen by everybody on the machine.
#[derive(Debug, clap::Parser)]
#[command(
    name = "dislock",
    version,
    override_usage = "dislock [OPTIONS] <URL_ENV_NAME> <COMMAND> [ARGS]...\n       \
        dislock [OPTIONS] --init|--list|--release <KEY>|--prune <AGE> <URL_ENV_NAME>\n       \
        dislock [OPTIONS] --check <URL_ENV_NAME> [COMMAND] [ARGS]...",
    after_help = "More, with examples and exit codes: dislock --help",
    after_long_help = AFTER_LONG_HELP,
    max_term_width = 100,
    args_override_self = true
)]
pub(crate) struct Args {
    /// Variable that holds the database URL, then the command
    ///
    /// The first word is the NAME of the environment variable that holds the database URL, for
    /// example DATABASE_URL. The rest is the command and its arguments.
    // One positional, not two: after the first word of a trailing list clap takes everything as it
    // is, whereas it would still look for options between two positionals.
    #[arg(
        value_names = ["URL_ENV_NAME", "COMMAND"],
        num_args = 1..,
        required_unless_present_any = ["completions", "man"],
        trailing_var_arg = true
    )]
    pub(crate) words: Vec<OsString>,

    /// Name of the lock; required [env: LOCK_KEY]
    #[arg(long, value_name = "NAME", help_heading = "Lock")]
    pub(crate) key: Option<OsString>,

    /// `schedule`, `lease` or both with a comma [env: LOCK_STRATEGY] [default: schedule]
    ///
    /// `schedule`: at most one start per tick of the schedule; long runs may overlap.
    /// `lease`: no two runs at once. `schedule,lease`: both.
    #[arg(long, value_name = "LIST", help_heading = "Lock", verbatim_doc_comment)]
    pub(crate) strategy: Option<OsString>,

    /// Lock table, `table` or `schema.table` [env: LOCK_TABLE] [default: key_value]
    #[arg(long, value_name = "TABLE", help_heading = "Lock")]
    pub(crate) table: Option<OsString>,

    /// Readable part of the lock row's value [env: LOCK_OWNER] [default: hostname:pid]
    #[arg(long, value_name = "NAME", help_heading = "Lock")]
    pub(crate) owner: Option<OsString>,

    /// Crontab expression; required for `schedule` [env: CRON_SCHEDULE]
    ///
    /// The expression by which the command is started, five fields or a name such as @hourly. It
    /// starts nothing here: it tells when the tick's lock ends.
    #[arg(long, value_name = "EXPRESSION", help_heading = "Schedule")]
    pub(crate) cron: Option<OsString>,

    /// Time zone of the schedule, an IANA name [env: LOCK_TIMEZONE, else CRON_TZ]
    /// [default: the database session's]
    #[arg(long, value_name = "ZONE", help_heading = "Schedule")]
    pub(crate) timezone: Option<OsString>,

    /// How far the clocks of hosts that fire one tick may lie apart
    /// [env: LOCK_SLOT_TOLERANCE_SECONDS] [default: 1]
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Schedule",
        allow_negative_numbers = true
    )]
    pub(crate) slot_tolerance: Option<OsString>,

    /// How long the lease outlives its last renewal [env: RUN_LOCK_TTL_SECONDS] [default: 60]
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Lease",
        allow_negative_numbers = true
    )]
    pub(crate) ttl: Option<OsString>,

    /// From one renewal to the next, at most the TTL [env: LOCK_LEASE_INTERVAL]
    /// [default: 0.3 × TTL, between 1 and 10, at most TTL / 2]
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Lease",
        allow_negative_numbers = true
    )]
    pub(crate) lease_interval: Option<OsString>,

    /// Wait this long for a busy lease, or `forever` [env: LOCK_WAIT_SECONDS] [default: 0]
    ///
    /// A slot of the schedule that is taken is never waited for: its tick has started.
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Lease",
        allow_negative_numbers = true
    )]
    pub(crate) wait: Option<OsString>,

    /// `terminate` the command when its lease is lost, or `continue` [env: LOCK_ON_LEASE_LOSS]
    /// [default: terminate]
    ///
    /// With `continue` the loss is only logged, and another host may run the same command meanwhile.
    #[arg(long, value_name = "POLICY", help_heading = "Lease")]
    pub(crate) on_lease_loss: Option<OsString>,

    /// From SIGTERM to SIGKILL when the command has to stop [env: LOCK_KILL_GRACE_SECONDS]
    /// [default: 10]
    ///
    /// When a lease runs out the command gets at most a third of the TTL: it has to be dead before
    /// another host can take the lease.
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Run",
        allow_negative_numbers = true
    )]
    pub(crate) kill_grace: Option<OsString>,

    /// Random delay of up to this before anything is acquired [env: LOCK_JITTER_SECONDS]
    /// [default: 0]
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Run",
        allow_negative_numbers = true
    )]
    pub(crate) jitter: Option<OsString>,

    /// How long to keep trying to reach the database [env: LOCK_CONNECT_TIMEOUT_SECONDS]
    /// [default: 10]
    ///
    /// An attempt that has begun is seen through: it gets as long to connect, and as long again for the
    /// answer, and what may have been locked gets 2 seconds to be given back. 0 makes one attempt, with
    /// 10 seconds for either. Administration has 10 seconds for its statements.
    #[arg(
        long,
        value_name = "SECONDS",
        help_heading = "Run",
        allow_negative_numbers = true
    )]
    pub(crate) connect_timeout: Option<OsString>,

    /// Exit code when the lock is held elsewhere, 0 to 255 [env: LOCK_CONFLICT_EXIT_CODE]
    /// [default: 0]
    #[arg(
        long,
        value_name = "CODE",
        help_heading = "Run",
        allow_negative_numbers = true
    )]
    pub(crate) conflict_exit_code: Option<OsString>,

    /// DEBUG, INFO, WARNING, ERROR or CRITICAL [env: CRONJOB_LOCK_LOG_LEVEL] [default: WARNING]
    #[arg(long, value_name = "LEVEL", help_heading = "Run")]
    pub(crate) log_level: Option<OsString>,

    /// `text`, or `json`: one object a line [env: CRONJOB_LOCK_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT", help_heading = "Run")]
    pub(crate) log_format: Option<OsString>,

    #[command(flatten)]
    admin: AdminArgs,
}

impl Args {
    /// Reads `argv`. Help and version come back as errors, as clap has it.
    pub(crate) fn read<T: Into<OsString> + Clone>(
        argv: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        let args = Self::try_parse_from(argv).map_err(|mut error| {
            // The advice to put `--` before an unknown option, which would only make it the variable's name.
            error.remove(ContextKind::Suggested);
            hide_what_is_not_plain(&mut error);
            error
        })?;
        args.check_words()?;
        Ok(args)
    }

    /// What is to be done in place of a run.
    pub(crate) fn task(&self) -> Option<Task> {
        self.admin.task()
    }

    /// Why an option that seems to limit a task to one lock does not go with it.
    fn ignored(&self) -> Option<String> {
        let task = self.task()?;
        let (options, why) = match task {
            Task::List { .. } | Task::Prune { .. } => (
                &["--key", "--strategy"][..],
                "which is about all locks of the table",
            ),
            Task::Release { .. } => (&["--key"][..], "which names the lock itself"),
            Task::Init | Task::Check | Task::Completions(_) | Task::Man => return None,
        };
        let given = [("--key", &self.key), ("--strategy", &self.strategy)];
        let (option, _) = given
            .iter()
            .find(|(option, value)| value.is_some() && options.contains(option))?;
        Some(format!(
            "{option} does not go with {}, {why}",
            task.option()
        ))
    }

    /// What goes together: a run has a command after the URL's variable, and most tasks have nothing there.
    fn check_words(&self) -> Result<(), clap::Error> {
        let refuse = |kind, message: &str| Err(Self::command().error(kind, message));
        if let Some(why) = self.ignored() {
            return refuse(ErrorKind::ArgumentConflict, &why);
        }
        if let Some((option, task)) = self.admin.stray() {
            return refuse(
                ErrorKind::MissingRequiredArgument,
                &format!("{option} only goes with {task}"),
            );
        }
        match (self.task(), &*self.words) {
            (None, [_]) => refuse(
                ErrorKind::MissingRequiredArgument,
                "a command has to follow the name of the variable that holds the database URL",
            ),
            // Not shown: whoever mistakes the URL for its name must not find it in a log.
            (Some(task), [_, ..]) if matches!(task, Task::Completions(_) | Task::Man) => refuse(
                ErrorKind::TooManyValues,
                &format!("nothing may follow {}", task.option()),
            ),
            (Some(task), [_, _, ..]) if task != Task::Check => refuse(
                ErrorKind::TooManyValues,
                &format!(
                    "with {} nothing may follow the name of the variable that holds the database \
                     URL; options come before it",
                    task.option()
                ),
            ),
            _ => Ok(()),
        }
    }
}

/// Leaves out of a usage error what was typed, unless it is a word as options and their values are: whoever
/// mistakes the URL for its variable's name must not find it in a log.
fn hide_what_is_not_plain(error: &mut clap::Error) {
    let is_plain = |text: &str| {
        // The name of a value is part of what clap calls an argument, as in `--key <NAME>`.
        let in_name = |c: char| c.is_ascii_alphanumeric() || "-_ <>[].".contains(c);
        text.chars().all(in_name)
    };
    for kind in [ContextKind::InvalidArg, ContextKind::InvalidValue] {
        let hidden = match error.get(kind) {
            Some(ContextValue::String(typed)) => !is_plain(typed),
            _ => false,
        };
        if hidden {
            error.insert(kind, ContextValue::String("…".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests;
