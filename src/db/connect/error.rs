//! Why there is no connection, and whether it is worth trying again.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::db::conninfo::Unsaid;

/// No connection: what was tried, and why it failed.
///
/// `Display` names the hosts, the reason for the last one is behind `source`. Never contains a
/// secret: it is made of host names, the system's words, and the server's without the names in them that
/// may hold one.
#[derive(Debug)]
pub(crate) struct ConnectError {
    /// In the order tried; at least one.
    reasons: Vec<(String, Reason)>,
    /// The last reason forbade trying the remaining hosts.
    decisive: bool,
}

impl ConnectError {
    pub(super) fn new(reasons: Vec<(String, Reason)>, decisive: bool) -> Self {
        Self { reasons, decisive }
    }

    fn last(&self) -> Option<&Reason> {
        self.reasons.last().map(|(_, reason)| reason)
    }

    /// The server's error code, when it was the server that refused.
    pub(crate) fn sqlstate(&self) -> Option<&str> {
        self.last()?.sqlstate()
    }

    /// Whether the network, a restart or a failover may explain it, so that trying again can help.
    ///
    /// False for what somebody has to repair: credentials, certificates, configuration. What the
    /// server answered is judged by [`sqlstate`](Self::sqlstate) instead.
    pub(crate) fn is_passing(&self) -> bool {
        if self.decisive {
            self.last().is_some_and(Reason::is_passing)
        } else {
            self.reasons.iter().any(|(_, reason)| reason.is_passing())
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(((last, _), earlier)) = self.reasons.split_last() else {
            return f.write_str("cannot connect: there is no host to try");
        };
        f.write_str("cannot connect to ")?;
        for (place, reason) in earlier {
            write!(f, "{place} ({}), ", Chain(reason))?;
        }
        f.write_str(last)
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.last().map(|reason| reason as _)
    }
}

/// Why one address did not do.
#[derive(Debug)]
pub(super) enum Reason {
    Lookup(io::Error),
    NoAddress,
    Socket(io::Error),
    /// The connection broke between hello and login. The flag: TLS came without PostgreSQL's
    /// question, which old servers do not understand.
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "only TLS shakes hands")
    )]
    Handshake(io::Error, bool),
    TimedOut,
    /// The server's answer, or the loss of the connection, while logging in; and what is not to be shown of
    /// the answer.
    Login(tokio_postgres::Error, Unsaid),
    /// What we will not go on with: the reason, and a cause.
    Refused(String, Option<Box<dyn StdError + Send + Sync>>),
    /// A server, but not one as `target_session_attrs` wants it.
    Unsuitable(&'static str),
    /// Both of the ways that `sslmode` allows.
    BothWays {
        tls: Box<Reason>,
        plain: Box<Reason>,
    },
}

impl Reason {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into(), None)
    }

    /// Of an answer to what was asked after the login.
    pub(super) fn login(error: tokio_postgres::Error) -> Self {
        Self::Login(error, Unsaid::default())
    }

    pub(super) fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Login(e, _) => e.code().map(|code| code.code()),
            Self::BothWays { tls, plain } => tls.sqlstate().or_else(|| plain.sqlstate()),
            Self::Lookup(_)
            | Self::NoAddress
            | Self::Socket(_)
            | Self::Handshake(..)
            | Self::TimedOut
            | Self::Refused(..)
            | Self::Unsuitable(_) => None,
        }
    }

    fn is_passing(&self) -> bool {
        match self {
            Self::Lookup(_)
            | Self::NoAddress
            | Self::Handshake(..)
            | Self::TimedOut
            | Self::Unsuitable(_) => true,
            Self::Socket(e) => e.kind() != io::ErrorKind::PermissionDenied,
            Self::Login(e, _) => is_connection_loss(e),
            Self::Refused(..) => false,
            Self::BothWays { tls, plain } => tls.is_passing() && plain.is_passing(),
        }
    }
}

/// Whether the driver's error is about the connection, not about what was asked of the server.
///
/// What the server refuses in the words of TLS also comes as an I/O error, but no new connection
/// will mend it.
pub(crate) fn is_connection_loss(error: &tokio_postgres::Error) -> bool {
    let io = error.source().and_then(|cause| cause.downcast_ref());
    error.is_closed() || io.is_some_and(|io| !is_tls_refusal(io))
}

#[cfg(feature = "tls")]
use crate::db::tls::is_refusal as is_tls_refusal;

#[cfg(not(feature = "tls"))]
fn is_tls_refusal(_: &io::Error) -> bool {
    false
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup(_) => f.write_str("cannot look the host name up"),
            Self::NoAddress => f.write_str("the host name has no address"),
            Self::Socket(e) => e.fmt(f),
            Self::Handshake(_, false) => {
                f.write_str("the connection broke during the TLS handshake")
            }
            Self::Handshake(_, true) => f.write_str(
                "the connection broke during the TLS handshake \
                 (sslnegotiation=direct needs PostgreSQL 17 or later)",
            ),
            Self::TimedOut => f.write_str("no answer in time"),
            // The driver's own words are "db error"; the server's are in the cause.
            Self::Login(e, unsaid) => match e.as_db_error() {
                Some(server) => write!(
                    f,
                    "{}: {} (SQLSTATE {})",
                    server.severity(),
                    unsaid.left_out_of(server.message()),
                    server.code().code()
                ),
                None => e.fmt(f),
            },
            Self::Refused(why, _) => f.write_str(why),
            Self::Unsuitable(why) => f.write_str(why),
            Self::BothWays { tls, plain } => {
                let (tls, plain) = (Chain(tls).to_string(), Chain(plain).to_string());
                if tls == plain {
                    f.write_str(&tls)
                } else {
                    write!(f, "with TLS: {tls}; without: {plain}")
                }
            }
        }
    }
}

impl StdError for Reason {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Lookup(e) | Self::Handshake(e, _) => Some(e),
            Self::Socket(e) => e.source(),
            Self::Login(e, _) if e.as_db_error().is_none() => e.source(),
            Self::Refused(_, cause) => cause.as_deref().map(|c| c as _),
            Self::Login(..)
            | Self::NoAddress
            | Self::TimedOut
            | Self::Unsuitable(_)
            | Self::BothWays { .. } => None,
        }
    }
}

/// An error and its causes on one line.
pub(super) struct Chain<'a>(pub(super) &'a dyn StdError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
