//! One opaque error type with predicates, so that kinds can be added without breaking anybody.

use std::error::Error as StdError;
use std::fmt;
use std::time::SystemTime;

/// What every fallible function of this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Source = Box<dyn StdError + Send + Sync + 'static>;

/// Why a lock could not be taken, kept or used.
///
/// `Display` names the key, table or host that it is about and, where that is known, what to do;
/// the causes are behind [`source`](StdError::source), and `{:#}` prints the whole chain on one
/// line. None of it ever contains a password.
///
/// Most callers tell three cases apart:
///
/// ```no_run
/// # fn example(ctx: &dislock::LockContext) -> Result<(), dislock::Error> {
/// match dislock::LeaseLock::acquire(ctx) {
///     Ok(lease) => lease.release()?,
///     // Expected: another host is at work.
///     Err(busy) if busy.is_not_acquired() => println!("{busy}"),
///     // A fault: nobody knows whether the lock is free.
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Kind>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    /// The caller's fault: nothing was written to the database.
    #[error(transparent)]
    Configuration(BadSetting),
    /// Somebody else holds the lock: expected in normal operation.
    #[error("{} is held by {}{}", .0.key, .0.holder, .0.until_phrase())]
    NotAcquired(Busy),
    /// The lease ended while it was still needed.
    #[error("lease {key} was lost: {reason}; another process may have held it meanwhile")]
    LeaseLost { key: String, reason: String },
    /// The database could not be reached, or refused.
    #[error("{message}")]
    Database {
        message: String,
        source: Option<Source>,
    },
    /// The command could not be started.
    #[error("{message}")]
    Command {
        message: String,
        failure: StartFailure,
        source: Option<Source>,
    },
    /// Asked to stop by a signal while nothing ran yet.
    #[error("stopped by signal {0} before anything was started")]
    Interrupted(i32),
    /// The operating system refused something that supervision needs.
    #[error("{message}")]
    System {
        message: String,
        source: Option<Source>,
    },
}

/// A setting that is missing or wrong.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {why}", setting, shown(value.as_deref()))]
pub(crate) struct BadSetting {
    pub(crate) setting: Setting,
    /// As it was given; left out where it is a secret or was not given at all.
    pub(crate) value: Option<String>,
    /// What is wrong with it, and what is allowed.
    pub(crate) why: String,
}

fn shown(value: Option<&str>) -> String {
    value.map_or_else(String::new, |value| format!(" {}", quoted(value)))
}

/// A value for a message: on one line, whatever bytes are in it, and not too long; and not at all if it may
/// be a connection string that was given in the wrong place.
pub(crate) fn quoted<T: fmt::Debug + ?Sized>(value: &T) -> String {
    const SHOWN: usize = 200;
    let mut text = format!("{value:?}");
    if text.contains("://") || text.contains("password=") {
        return "\"…\"".to_owned();
    }
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        text.truncate(end);
        text.push_str("…\"");
    }
    text
}

/// What a configuration error is about. `Display` is the library's name for it; the command line
/// says the variable's instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Setting {
    Url,
    Table,
    LockKey,
    Owner,
    NextRunTime,
    Schedule,
    Timezone,
    SlotTolerance,
    Ttl,
    HeartbeatInterval,
    JitterMax,
    KillGrace,
    ConnectTimeout,
    Strategies,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url => "connection string",
            Self::Table => "table name",
            Self::LockKey => "lock key",
            Self::Owner => "owner",
            Self::NextRunTime => "next run time",
            Self::Schedule => "schedule",
            Self::Timezone => "time zone",
            Self::SlotTolerance => "slot tolerance",
            Self::Ttl => "TTL",
            Self::HeartbeatInterval => "heartbeat interval",
            Self::JitterMax => "jitter",
            Self::KillGrace => "kill grace",
            Self::ConnectTimeout => "connect timeout",
            Self::Strategies => "lock strategies",
        })
    }
}

/// Why a command did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartFailure {
    /// There is no such file.
    NotFound,
    /// It is there, but cannot be executed.
    NotExecutable,
}

/// Who holds a lock that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Busy {
    /// The row's key.
    pub(crate) key: String,
    /// The row's value.
    pub(crate) holder: String,
    /// When the row expires by the database's clock; `None` when never.
    pub(crate) until: Option<SystemTime>,
}

impl Busy {
    fn until_phrase(&self) -> String {
        self.until
            .and_then(|t| jiff::Timestamp::try_from(t).ok())
            .map_or_else(String::new, |t| format!(" until {t}"))
    }
}

impl Error {
    /// `setting` is wrong as it stands; `value` is shown.
    pub(crate) fn setting(
        setting: Setting,
        value: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Kind::Configuration(BadSetting {
            setting,
            value: Some(value.into()),
            why: why.into(),
        })
        .into()
    }

    /// `setting` is missing, or wrong in a way that must not show its value.
    pub(crate) fn setting_hidden(setting: Setting, why: impl Into<String>) -> Self {
        Kind::Configuration(BadSetting {
            setting,
            value: None,
            why: why.into(),
        })
        .into()
    }

    pub(crate) fn database(message: impl Into<String>) -> Self {
        Kind::Database {
            message: message.into(),
            source: None,
        }
        .into()
    }

    pub(crate) fn database_from(message: impl Into<String>, source: impl Into<Source>) -> Self {
        Kind::Database {
            message: message.into(),
            source: Some(source.into()),
        }
        .into()
    }

    pub(crate) fn system(message: impl Into<String>, source: impl Into<Source>) -> Self {
        Kind::System {
            message: message.into(),
            source: Some(source.into()),
        }
        .into()
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }

    /// The lock is held by somebody else: expected whenever several hosts want it.
    pub fn is_not_acquired(&self) -> bool {
        matches!(*self.0, Kind::NotAcquired(_))
    }

    /// The lease was lost while it was in use.
    pub fn is_lease_lost(&self) -> bool {
        matches!(*self.0, Kind::LeaseLost { .. })
    }

    /// A setting is missing or wrong; nothing was written to the database.
    pub fn is_configuration(&self) -> bool {
        matches!(*self.0, Kind::Configuration(_))
    }

    /// The row's value of whoever holds the busy lock; `None` for any other error.
    pub fn holder(&self) -> Option<&str> {
        Some(&self.busy()?.holder)
    }

    /// When the busy lock's row expires by the database's clock; `None` when it never does, and for any
    /// other error.
    pub fn held_until(&self) -> Option<SystemTime> {
        self.busy()?.until
    }

    fn busy(&self) -> Option<&Busy> {
        match self.kind() {
            Kind::NotAcquired(busy) => Some(busy),
            Kind::Configuration(_)
            | Kind::LeaseLost { .. }
            | Kind::Database { .. }
            | Kind::Command { .. }
            | Kind::Interrupted(_)
            | Kind::System { .. } => None,
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self(Box::new(kind))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        if f.alternate() {
            let mut cause = self.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a `main` that returns this error prints; the same care as for `Display`.
        write!(f, "{self:#}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.kind() {
            Kind::Database { source, .. }
            | Kind::Command { source, .. }
            | Kind::System { source, .. } => {
                source.as_deref().map(|s| s as &(dyn StdError + 'static))
            }
            Kind::Configuration(_)
            | Kind::NotAcquired(_)
            | Kind::LeaseLost { .. }
            | Kind::Interrupted(_) => None,
        }
    }
}
