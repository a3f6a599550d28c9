//! One address: socket, encryption, login, and whether the server is one that will do.

use tokio_postgres::Client;
use tokio_postgres::config::{
    ChannelBinding as DriverBinding, SslMode as DriverTls, SslNegotiation,
};

use super::error::Failure;
use super::socket::{Address, Socket};
use super::stream::{Encrypted, LoginWatch, Stream};
use crate::db::conninfo::{
    ChannelBinding, Conninfo, Host, SslMode, TargetSessionAttrs, TcpOptions,
};

/// The driver's future that does the reading and writing.
pub(super) type Driver = tokio_postgres::Connection<Stream, Stream>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encryption {
    Plain,
    Tls,
}

/// In which order `sslmode` tries. A Unix socket is never encrypted, whatever the mode: the other
/// end is this machine.
fn ways(mode: SslMode, address: &Address) -> &'static [Encryption] {
    use Encryption::{Plain, Tls};
    if address.ip().is_none() || (cfg!(not(feature = "tls")) && mode < SslMode::Require) {
        return &[Plain];
    }
    match mode {
        SslMode::Disable => &[Plain],
        SslMode::Allow => &[Plain, Tls],
        SslMode::Prefer => &[Tls, Plain],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Tls],
    }
}

/// Why one way of encrypting failed, and whether the other may be tried.
struct Trouble {
    failure: Failure,
    fallback: bool,
}

impl Trouble {
    fn decisive(failure: Failure) -> Self {
        Self {
            failure,
            fallback: false,
        }
    }
}

/// Connects and logs in.
pub(super) async fn log_in(
    target: &Conninfo,
    host: &Host,
    address: &Address,
) -> Result<(Client, Driver, Encryption), Failure> {
    let mut first = None;
    for &way in ways(target.tls.mode, address) {
        match log_in_once(target, host, address, way).await {
            Ok((client, driver)) => return Ok((client, driver, way)),
            Err(Trouble { failure, fallback }) => match first.take() {
                Some(first) => return Err(both(way, first, failure)),
                None if fallback => first = Some(failure),
                None => return Err(failure),
            },
        }
    }
    Err(first.unwrap_or(Failure::NoAddress))
}

fn both(second_way: Encryption, first: Failure, second: Failure) -> Failure {
    let (first, second) = (Box::new(first), Box::new(second));
    match second_way {
        Encryption::Plain => Failure::BothWays {
            tls: first,
            plain: second,
        },
        Encryption::Tls => Failure::BothWays {
            tls: second,
            plain: first,
        },
    }
}

async fn log_in_once(
    target: &Conninfo,
    host: &Host,
    address: &Address,
    way: Encryption,
) -> Result<(Client, Driver), Trouble> {
    let socket = address
        .open(&target.tcp)
        .await
        .map_err(|e| Trouble::decisive(Failure::Socket(e)))?;
    let login = LoginWatch::default();
    let stream = match way {
        Encryption::Plain => {
            check_peer(target, &socket).map_err(Trouble::decisive)?;
            Stream::plain(socket, login.clone())
        }
        Encryption::Tls => {
            return Err(Trouble {
                failure: Failure::refused("TLS is not built yet"),
                fallback: target.tls.mode == SslMode::Prefer,
            });
        }
    };
    driver_config(target, host, way)
        .connect_raw(stream, Encrypted)
        .await
        .map_err(|e| Trouble {
            // libpq tries the other way only when the server refused before it let us in.
            fallback: e.as_db_error().is_some() && !login.is_authenticated(),
            failure: match host.password {
                None if login.was_challenged() && e.as_db_error().is_none() => {
                    Failure::refused("the server asks for a password, and none is given")
                }
                _ => Failure::Login(e),
            },
        })
}

/// Another stream to where a connection already goes, for a cancel request.
pub(super) async fn open_again(address: &Address, way: Encryption) -> Result<Stream, Failure> {
    let socket = address
        .open(&TcpOptions::default())
        .await
        .map_err(Failure::Socket)?;
    match way {
        Encryption::Plain => Ok(Stream::plain(socket, LoginWatch::default())),
        Encryption::Tls => Err(Failure::refused("TLS is not built yet")),
    }
}

/// Filled by setters: the driver's own parser reads strings differently than libpq does.
fn driver_config(target: &Conninfo, host: &Host, way: Encryption) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config
        .user(&target.user)
        .dbname(&target.dbname)
        // The stream is encrypted already, or is not to be: no question to the server in either case.
        .ssl_negotiation(SslNegotiation::Direct)
        .ssl_mode(match way {
            Encryption::Plain => DriverTls::Disable,
            Encryption::Tls => DriverTls::Require,
        })
        .channel_binding(match target.channel_binding {
            ChannelBinding::Disable => DriverBinding::Disable,
            ChannelBinding::Prefer => DriverBinding::Prefer,
            ChannelBinding::Require => DriverBinding::Require,
        });
    if let Some(password) = &host.password {
        config.password(password.bytes());
    }
    if let Some(name) = &target.application_name {
        config.application_name(name);
    }
    if !target.options.is_empty() {
        config.options(&target.options);
    }
    config
}

/// `requirepeer`: who runs the server behind a Unix socket.
fn check_peer(target: &Conninfo, socket: &Socket) -> Result<(), Failure> {
    let (Some(required), Socket::Unix(stream)) = (&target.require_peer, socket) else {
        return Ok(());
    };
    let uid = stream.peer_cred().map_err(Failure::Socket)?.uid();
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    match user {
        Some(user) if user.name == *required => Ok(()),
        Some(user) => Err(Failure::refused(format!(
            "requirepeer is {required}, but the server runs as {}",
            user.name
        ))),
        None => Err(Failure::refused(format!(
            "requirepeer is {required}, but the server runs as user ID {uid}, which has no name"
        ))),
    }
}

/// What `target_session_attrs` asks about; servers from version 14 on tell it unasked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerState {
    default_read_only: Option<bool>,
    in_recovery: Option<bool>,
}

impl ServerState {
    pub(super) fn reported(driver: &Driver) -> Self {
        let flag = |name| driver.parameter(name).map(|value| value == "on");
        Self {
            default_read_only: flag("default_transaction_read_only"),
            in_recovery: flag("in_hot_standby"),
        }
    }
}

/// Costs a round trip only when something is asked for that the server has not reported.
pub(super) async fn check_session(
    client: &Client,
    known: ServerState,
    wanted: TargetSessionAttrs,
) -> Result<(), Failure> {
    let complaint = match wanted {
        TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => None,
        TargetSessionAttrs::ReadWrite => is_read_only(client, known)
            .await?
            .then_some("the server is read-only"),
        TargetSessionAttrs::ReadOnly => {
            (!is_read_only(client, known).await?).then_some("the server is not read-only")
        }
        TargetSessionAttrs::Primary => is_in_recovery(client, known)
            .await?
            .then_some("the server is a standby"),
        TargetSessionAttrs::Standby => {
            (!is_in_recovery(client, known).await?).then_some("the server is not a standby")
        }
    };
    complaint.map_or(Ok(()), |why| Err(Failure::Unsuitable(why)))
}

async fn is_read_only(client: &Client, known: ServerState) -> Result<bool, Failure> {
    if let (Some(read_only), Some(in_recovery)) = (known.default_read_only, known.in_recovery) {
        return Ok(read_only || in_recovery);
    }
    let answer: String = ask(client, "SHOW transaction_read_only").await?;
    Ok(answer == "on")
}

async fn is_in_recovery(client: &Client, known: ServerState) -> Result<bool, Failure> {
    match known.in_recovery {
        Some(in_recovery) => Ok(in_recovery),
        None => ask(client, "SELECT pg_catalog.pg_is_in_recovery()").await,
    }
}

async fn ask<T>(client: &Client, question: &str) -> Result<T, Failure>
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    let row = client
        .query_typed_one(question, &[])
        .await
        .map_err(Failure::Login)?;
    row.try_get(0).map_err(Failure::Login)
}
