//! What a connection string and its surroundings say: where to connect, as whom, and how.
//!
//! libpq's rules, since the same string must mean the same to psql and to us. Values come from the
//! string, then the service file, then `PG*` variables, then defaults. Options that promise security
//! which we cannot give are refused; those that cannot matter to us are accepted and have no effect.
//!
//! No message of this module contains the string, the password, or a value that may be part of it.

mod auth;
mod choices;
mod hosts;
mod name;
mod parse;
mod passfile;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod service;
mod settings;
#[cfg(test)]
mod tests;
mod tls;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use auth::{AuthMethod, RequiredAuth};
pub(crate) use choices::{ChannelBinding, LoadBalanceHosts, SslMode, TargetSessionAttrs};
#[cfg(feature = "tls")]
pub(crate) use choices::{SslCertMode, SslNegotiation, TlsVersion};
pub(crate) use hosts::{Host, Place};
pub(crate) use name::{Name, Unsaid, shown_path};
#[cfg(feature = "tls")]
pub(crate) use tls::Root;
pub(crate) use tls::TlsOptions;

use choices::{GssEncMode, integer, positive};
use settings::Settings;

/// Where the server's socket lies when nothing says so: Debian's place, then upstream's.
pub(crate) const DEFAULT_SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The server cuts application names to this many bytes.
const LONGEST_APPLICATION_NAME: usize = 63;

/// A secret that does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(Vec<u8>);

impl Password {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Why a connection string cannot be used: one line without a secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConninfoError(String);

impl ConninfoError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    fn caused(message: &str, cause: impl fmt::Display) -> Self {
        Self(format!("{message}: {cause}"))
    }

    fn at_sign_in_host() -> Self {
        Self::new("the host name contains \"@\"; an \"@\" in a password has to be written %40")
    }

    /// `None` when the name may be a piece of the password.
    fn unknown_option(name: Option<&str>) -> Self {
        Self::new(match name {
            Some(name) => format!("the connection string has an unknown option, {name}"),
            None => "the connection string has an unknown option \
                     (is there a character in the password that needs quoting or %-encoding?)"
                .to_owned(),
        })
    }
}

/// A connection string with everything that it leaves open filled in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Conninfo {
    /// In the order given; at least one.
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: Name,
    pub(crate) dbname: Name,
    /// From the string or the environment; otherwise see
    /// [`set_default_application_name`](Self::set_default_application_name).
    pub(crate) application_name: Option<String>,
    /// Startup options for the server; empty in most cases, and poolers prefer it so.
    pub(crate) options: String,
    /// For each address that is tried.
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) tcp: TcpOptions,
    pub(crate) tls: TlsOptions,
    pub(crate) channel_binding: ChannelBinding,
    pub(crate) required_auth: RequiredAuth,
    /// The user that has to run the server behind a Unix socket.
    pub(crate) require_peer: Option<Name>,
    pub(crate) target_session_attrs: TargetSessionAttrs,
    pub(crate) load_balance_hosts: LoadBalanceHosts,
}

/// How a dead peer is noticed. `None` is the system's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TcpOptions {
    pub(crate) keepalives: bool,
    pub(crate) keepalives_idle: Option<Duration>,
    pub(crate) keepalives_interval: Option<Duration>,
    pub(crate) keepalives_count: Option<u32>,
    pub(crate) user_timeout: Option<Duration>,
}

impl Conninfo {
    /// Reads `url`, a URL or a `key=value` string. `env` looks environment variables up.
    pub(crate) fn resolve(
        url: &str,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, ConninfoError> {
        // Before anything is read: where the credentials are not what they seem, a message about the rest could
        // show a piece of the password.
        if parse::has_at_sign_in_hosts(url) {
            return Err(ConninfoError::at_sign_in_host());
        }
        if parse::has_at_sign_in_database(url) {
            return Err(ConninfoError::new(
                "the database name contains \"@\"; an \"@\" or \"/\" in a user name, a password or a \
                 database name has to be percent-encoded",
            ));
        }
        if parse::has_options_in_credentials(url) {
            return Err(ConninfoError::new(
                "the connection URL has an \"@\" after its \"?\"; an \"@\" in a password has to be written %40",
            ));
        }
        let mut settings = parse::parse(url)?;
        if let Some(keyword) = settings.with_swallowed_password() {
            return Err(ConninfoError::new(format!(
                "the connection string has no value for {keyword}, and takes password=… for one; \
                 write {keyword}=''"
            )));
        }
        service::add_service(&mut settings, env)?;
        settings.add_environment(env);
        refuse_what_cannot_be_honoured(&settings)?;

        let home = home_directory(env);
        let user = match settings.nonempty("user")? {
            Some(user) => Name::user(user),
            None => Name::user(&operating_system_user()?),
        };
        let dbname = Name::database(settings.nonempty("dbname")?.unwrap_or(&user));
        let mut hosts = hosts::hosts(&settings)?;
        find_passwords(&mut hosts, &settings, &user, &dbname, home.as_deref());

        Ok(Self {
            hosts,
            application_name: match settings.nonempty("application_name")? {
                Some(name) => Some(name),
                None => settings.nonempty("fallback_application_name")?,
            }
            .map(str::to_owned),
            options: startup_options(&settings, env)?,
            connect_timeout: integer(&settings, "connect_timeout")?
                .and_then(|seconds| u64::try_from(seconds).ok())
                .filter(|&seconds| seconds > 0)
                // libpq never waits less than two seconds.
                .map(|seconds| Duration::from_secs(seconds.max(2))),
            tcp: tcp_options(&settings)?,
            tls: tls::options(&settings, env, home)?,
            channel_binding: ChannelBinding::given(&settings)?.unwrap_or_default(),
            required_auth: RequiredAuth::given(&settings)?,
            require_peer: settings.nonempty("requirepeer")?.map(Name::user),
            target_session_attrs: TargetSessionAttrs::given(&settings)?.unwrap_or_default(),
            load_balance_hosts: LoadBalanceHosts::given(&settings)?.unwrap_or_default(),
            user,
            dbname,
        })
    }

    /// The name that an operator sees in `pg_stat_activity`, unless the string or the environment
    /// gave one. Cut where the server would cut it, but never inside a character.
    pub(crate) fn set_default_application_name(&mut self, mut name: String) {
        while name.len() > LONGEST_APPLICATION_NAME {
            name.pop();
        }
        self.application_name.get_or_insert(name);
    }

    /// Whether both lead to the same place in the same way, whatever the connection is called.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let renamed = || Self {
            application_name: self.application_name.clone(),
            ..other.clone()
        };
        // Most are called the same, too, and then nothing needs to be copied.
        self == other || *self == renamed()
    }

    /// `host:port/dbname as user`, for messages.
    pub(crate) fn describe(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        format!("{}/{} as {}", hosts.join(","), self.dbname, self.user)
    }

    /// What is left out where the server's answer to a login is shown.
    pub(crate) fn unsaid(&self) -> Unsaid {
        Unsaid::of(&[&self.user, &self.dbname], &self.options)
    }
}

/// No more than messages have: of the rest, anything may be a piece of the password.
impl fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conninfo({})", self.describe())
    }
}

/// Security that we would have to provide, and modes that change what a connection is.
fn refuse_what_cannot_be_honoured(settings: &Settings) -> Result<(), ConninfoError> {
    let unsupported = |what: &str| Err(ConninfoError::new(format!("{what} is not supported")));
    if GssEncMode::given(settings)? == Some(GssEncMode::Require) {
        return unsupported("gssencmode=require");
    }
    for keyword in ["scram_client_key", "scram_server_key"] {
        if settings.nonempty(keyword)?.is_some() {
            return unsupported(keyword);
        }
    }
    let may_use_tls = SslMode::given(settings)? != Some(SslMode::Disable);
    if may_use_tls && settings.nonempty("sslcrldir")?.is_some() {
        return unsupported("sslcrldir");
    }
    match settings.nonempty("replication")? {
        None | Some("false" | "off" | "no" | "0") => {}
        Some(_) => return unsupported("replication"),
    }
    for keyword in ["min_protocol_version", "max_protocol_version"] {
        match settings.nonempty(keyword)? {
            None | Some("3.0") => {}
            Some("3.2" | "latest") if keyword.starts_with("max") => {}
            Some(_) => return unsupported(&format!("a {keyword} other than 3.0")),
        }
    }
    Ok(())
}

fn find_passwords(
    hosts: &mut [Host],
    settings: &Settings,
    user: &str,
    dbname: &str,
    home: Option<&Path>,
) {
    if let Some(given) = settings.bytes("password").filter(|p| !p.is_empty()) {
        for host in hosts {
            host.password = Some(Password(given.to_vec()));
        }
        return;
    }
    let file = settings
        .path("passfile")
        .or_else(|| Some(home?.join(".pgpass")));
    let Some(content) = file.and_then(|file| passfile::read(&file)) else {
        return;
    };
    for host in hosts {
        let account = passfile::Account {
            host: &host.passfile_name(),
            port: host.port,
            dbname,
            user,
        };
        host.password = passfile::find(&content, &account);
    }
}

/// `options`, and `PGTZ`, which libpq sends as a startup parameter of its own and our driver cannot.
fn startup_options(
    settings: &Settings,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<String, ConninfoError> {
    let given = settings.text("options")?.unwrap_or_default();
    let Some(zone) = env("PGTZ").filter(|zone| !zone.is_empty()) else {
        return Ok(given.to_owned());
    };
    let zone = zone
        .into_string()
        .map_err(|_| ConninfoError::new("PGTZ is not valid UTF-8"))?;
    // Last, so that it wins over the options, as libpq's parameter does.
    let zone = zone.replace('\\', "\\\\").replace(' ', "\\ ");
    Ok(format!("{given} -c TimeZone={zone}")
        .trim_start()
        .to_owned())
}

fn tcp_options(settings: &Settings) -> Result<TcpOptions, ConninfoError> {
    let second = Duration::from_secs(1);
    Ok(TcpOptions {
        keepalives: integer(settings, "keepalives")?.unwrap_or(1) != 0,
        keepalives_idle: positive(settings, "keepalives_idle", second)?,
        keepalives_interval: positive(settings, "keepalives_interval", second)?,
        keepalives_count: integer(settings, "keepalives_count")?
            .and_then(|n| u32::try_from(n).ok())
            .filter(|&n| n > 0),
        user_timeout: positive(settings, "tcp_user_timeout", Duration::from_millis(1))?,
    })
}

/// `HOME`, or what the user database says.
fn home_directory(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    env("HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
        .or_else(|| {
            let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok()??;
            Some(user.dir)
        })
}

fn operating_system_user() -> Result<String, ConninfoError> {
    let uid = nix::unistd::geteuid();
    let missing = || format!("no user name is given, and user ID {uid} has none");
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => Ok(user.name),
        Ok(None) => Err(ConninfoError::new(missing())),
        Err(e) => Err(ConninfoError::caused(&missing(), e)),
    }
}
