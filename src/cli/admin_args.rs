//! The arguments of the operator's commands. They are options, so that no name of a command is taken.

use std::ffi::OsString;

use clap_complete::Shell;

/// What is asked for in place of a run: at most one of the group `task`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Administration, in place of a run")]
pub(crate) struct AdminArgs {
    /// Create the lock table and its schema where they are missing
    ///
    /// May be repeated, and done by many hosts at once. Prints the GRANTs that a role needs to lock.
    #[arg(long, group = "task")]
    init: bool,

    /// Show who holds which lock, and for how much longer
    #[arg(long, group = "task")]
    list: bool,

    /// With --list: as JSON
    #[arg(long)]
    json: bool,

    /// With --list: also those that have expired
    #[arg(long)]
    all: bool,

    /// Take a stuck lock away from its holder
    ///
    /// Says whose it was. A lock that is live is only taken with --force; a lease's holder finds out
    /// with its next renewal and stops its command. --strategy limits it to the slot or the lease.
    // A lock may be called anything, "-x" included.
    #[arg(long, value_name = "KEY", group = "task", allow_hyphen_values = true)]
    release: Option<OsString>,

    /// With --release: even if the lock is live
    #[arg(long)]
    force: bool,

    /// Delete locks that expired longer than this ago: 3600, 90s, 30m, 12h, 7d, 4w
    ///
    /// Only tidies up: an expired row is in nobody's way. Fencing tokens go on where they were.
    #[arg(
        long,
        value_name = "AGE",
        group = "task",
        allow_negative_numbers = true
    )]
    prune: Option<OsString>,

    /// Check everything that a run would need; starts and writes nothing
    ///
    /// Put it into a line of a crontab, before the name of the URL's variable, to check that line.
    #[arg(long, group = "task")]
    check: bool,

    /// Print completions for a shell
    #[arg(long, value_name = "SHELL", group = "task")]
    completions: Option<Shell>,

    /// Print the manual page, for man(1)
    #[arg(long, group = "task")]
    man: bool,
}

/// One of the operator's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Init,
    List { all: bool, json: bool },
    Release { key: OsString, force: bool },
    Prune { age: OsString },
    Check,
    Completions(Shell),
    Man,
}

impl Task {
    /// What the command line calls it.
    pub(crate) fn option(&self) -> &'static str {
        match self {
            Self::Init => "--init",
            Self::List { .. } => "--list",
            Self::Release { .. } => "--release",
            Self::Prune { .. } => "--prune",
            Self::Check => "--check",
            Self::Completions(_) => "--completions",
            Self::Man => "--man",
        }
    }
}

impl AdminArgs {
    /// An option that goes with a task, and the task that it needs, when that is not asked for.
    /// (With clap's `requires` it would pass beside another task.)
    pub(crate) fn stray(&self) -> Option<(&'static str, &'static str)> {
        [
            (self.json && !self.list, "--json", "--list"),
            (self.all && !self.list, "--all", "--list"),
            (self.force && self.release.is_none(), "--force", "--release"),
        ]
        .into_iter()
        .find_map(|(stray, option, task)| stray.then_some((option, task)))
    }

    /// The task, if one is asked for; clap has seen to it that there is no second one.
    pub(crate) fn task(&self) -> Option<Task> {
        let flags = [
            (self.init, Task::Init),
            (
                self.list,
                Task::List {
                    all: self.all,
                    json: self.json,
                },
            ),
            (self.check, Task::Check),
            (self.man, Task::Man),
        ];
        if let Some((_, task)) = flags.into_iter().find(|(given, _)| *given) {
            return Some(task);
        }
        if let Some(key) = &self.release {
            return Some(Task::Release {
                key: key.clone(),
                force: self.force,
            });
        }
        if let Some(age) = &self.prune {
            return Some(Task::Prune { age: age.clone() });
        }
        self.completions.map(Task::Completions)
    }
}
