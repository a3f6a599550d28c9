//! One address: socket, encryption, login, and whether the server is one that will do.

#[cfg(feature = "tls")]
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Client, config as driver};

use super::CANNOT_CONNECT_NOW;
use super::error::Reason;
use super::socket::{Address, Socket};
use super::stream::{Encrypted, LoginWatch, Stream};
#[cfg(feature = "tls")]
use crate::db::conninfo::SslNegotiation;
use crate::db::conninfo::{
    ChannelBinding, Conninfo, Host, RequiredAuth, SslMode, TargetSessionAttrs, TcpOptions,
    TlsOptions,
};
#[cfg(feature = "tls")]
use crate::db::tls::{self, TlsError};

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

/// A connection that the server has accepted.
pub(super) struct LoggedIn {
    pub(super) client: Client,
    pub(super) driver: Driver,
    pub(super) encryption: Encryption,
    /// What the login told, and whether the connection was broken off.
    pub(super) login: LoginWatch,
}

/// Why one way of encrypting failed, and whether the other may be tried.
struct Trouble {
    reason: Reason,
    fallback: bool,
}

impl Trouble {
    fn decisive(reason: Reason) -> Self {
        Self {
            reason,
            fallback: false,
        }
    }
}

/// Connects, which has to have succeeded by `open_by`, and logs in, which the caller bounds.
pub(super) async fn log_in(
    target: &Conninfo,
    host: &Host,
    address: &Address,
    open_by: Instant,
) -> Result<LoggedIn, Reason> {
    let open = timeout_at(open_by, address.open(&target.tcp));
    let mut opened = Some(
        open.await
            .map_err(|_| Reason::TimedOut)?
            .map_err(Reason::Socket)?,
    );
    let mut first = None;
    for &way in ways(target.tls.mode, address) {
        let socket = match opened.take() {
            Some(socket) => socket,
            None => address.open(&target.tcp).await.map_err(Reason::Socket)?,
        };
        match log_in_over(socket, target, host, way).await {
            Ok(logged_in) => return Ok(logged_in),
            Err(Trouble { reason, fallback }) => match first.take() {
                Some(first) => return Err(both(way, first, reason)),
                None if fallback => first = Some(reason),
                None => return Err(reason),
            },
        }
    }
    Err(first.unwrap_or(Reason::NoAddress))
}

fn both(second_way: Encryption, first: Reason, second: Reason) -> Reason {
    let (first, second) = (Box::new(first), Box::new(second));
    match second_way {
        Encryption::Plain => Reason::BothWays {
            tls: first,
            plain: second,
        },
        Encryption::Tls => Reason::BothWays {
            tls: second,
            plain: first,
        },
    }
}

async fn log_in_over(
    socket: Socket,
    target: &Conninfo,
    host: &Host,
    way: Encryption,
) -> Result<LoggedIn, Trouble> {
    check_peer(target, &socket).map_err(Trouble::decisive)?;
    let login = LoginWatch::new(target.required_auth.clone());
    let (stream, way) = match way {
        Encryption::Plain => (Stream::plain(socket, login.clone()), way),
        Encryption::Tls => encrypt(socket, &target.tls, host, login.clone()).await?,
    };
    let result = driver_config(target, host, way)
        .connect_raw(stream, Encrypted)
        .await;
    let error = match result {
        Ok((client, driver)) => {
            return Ok(LoggedIn {
                client,
                driver,
                encryption: way,
                login,
            });
        }
        Err(error) => error,
    };
    let sqlstate = error.code().map(|code| code.code());
    Err(Trouble {
        // libpq tries the other way only when the server refused before it let us in.
        fallback: sqlstate.is_some_and(|code| code != CANNOT_CONNECT_NOW)
            && !login.is_authenticated(),
        reason: match (login.refusal(), &host.password) {
            (Some(why), _) => Reason::refused(why),
            (None, None) if login.was_challenged() && sqlstate.is_none() => Reason::refused(
                "the server asks for a password, and none is given: neither by the connection \
                     string nor PGPASSWORD nor a line of the password file that fits",
            ),
            _ => Reason::Login(error, target.unsaid()),
        },
    })
}

/// Turns a fresh socket into an encrypted stream; or, where the mode allows it and the server knows
/// no TLS, into a plain one.
#[cfg(feature = "tls")]
async fn encrypt(
    mut socket: Socket,
    options: &TlsOptions,
    host: &Host,
    login: LoginWatch,
) -> Result<(Stream, Encryption), Trouble> {
    if options.negotiation == SslNegotiation::Postgres {
        let answer = ask_for_tls(&mut socket)
            .await
            .map_err(|e| Trouble::decisive(Reason::Socket(e)))?;
        match answer {
            b'S' => {}
            b'N' if options.mode == SslMode::Prefer => {
                return Ok((Stream::plain(socket, login), Encryption::Plain));
            }
            b'N' => {
                return Err(Trouble::decisive(Reason::refused(
                    "the server does not support TLS",
                )));
            }
            // An error message, perhaps; but nobody vouches for it yet.
            _ => {
                return Err(Trouble::decisive(Reason::refused(
                    "the server answers the request for TLS with something else",
                )));
            }
        }
    }
    match tls::handshake(socket, options, host.name()).await {
        Ok((stream, binding)) => Ok((Stream::tls(stream, binding, login), Encryption::Tls)),
        Err(e) => Err(Trouble {
            reason: match e {
                TlsError::Io(e) => {
                    Reason::Handshake(e, options.negotiation == SslNegotiation::Direct)
                }
                TlsError::Refused(why, cause) => Reason::Refused(why, cause),
            },
            fallback: true,
        }),
    }
}

/// Never reached: [`ways`] offers no TLS in such a build.
#[cfg(not(feature = "tls"))]
async fn encrypt(
    _socket: Socket,
    _options: &TlsOptions,
    _host: &Host,
    _login: LoginWatch,
) -> Result<(Stream, Encryption), Trouble> {
    Err(Trouble::decisive(Reason::refused(
        "this build of dislock has no TLS",
    )))
}

/// PostgreSQL's own question before TLS. Its answer is one byte, and no more than that is read: what
/// may follow in plain text is not to be taken for something that was encrypted.
#[cfg(feature = "tls")]
async fn ask_for_tls(socket: &mut Socket) -> std::io::Result<u8> {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    socket.write_all(&SSL_REQUEST).await?;
    socket.read_u8().await
}

/// Another stream to where a connection already goes, for a cancel request.
pub(super) async fn open_again(
    address: &Address,
    way: Encryption,
    options: &TlsOptions,
    host: &Host,
) -> Result<Stream, Reason> {
    let socket = address
        .open(&TcpOptions::default())
        .await
        .map_err(Reason::Socket)?;
    let login = LoginWatch::new(RequiredAuth::default());
    match way {
        Encryption::Plain => Ok(Stream::plain(socket, login)),
        Encryption::Tls => match encrypt(socket, options, host, login).await {
            Ok((stream, Encryption::Tls)) => Ok(stream),
            Ok((_, Encryption::Plain)) => Err(Reason::refused("the server does not support TLS")),
            Err(trouble) => Err(trouble.reason),
        },
    }
}

/// Filled by setters: the driver's own parser reads strings differently than libpq does.
fn driver_config(target: &Conninfo, host: &Host, way: Encryption) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config
        .user(&*target.user)
        .dbname(&*target.dbname)
        // The stream is encrypted already, or is not to be: no question to the server in either case.
        .ssl_negotiation(driver::SslNegotiation::Direct)
        .ssl_mode(match way {
            Encryption::Plain => driver::SslMode::Disable,
            Encryption::Tls => driver::SslMode::Require,
        })
        .channel_binding(match target.channel_binding {
            ChannelBinding::Disable => driver::ChannelBinding::Disable,
            ChannelBinding::Prefer => driver::ChannelBinding::Prefer,
            ChannelBinding::Require => driver::ChannelBinding::Require,
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
fn check_peer(target: &Conninfo, socket: &Socket) -> Result<(), Reason> {
    let (Some(required), Socket::Unix(stream)) = (&target.require_peer, socket) else {
        return Ok(());
    };
    let uid = stream.peer_cred().map_err(Reason::Socket)?.uid();
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    match user {
        Some(user) if user.name == **required => Ok(()),
        Some(user) => Err(Reason::refused(format!(
            "requirepeer is {required}, but the server runs as {}",
            user.name
        ))),
        None => Err(Reason::refused(format!(
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
) -> Result<(), Reason> {
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
    complaint.map_or(Ok(()), |why| Err(Reason::Unsuitable(why)))
}

async fn is_read_only(client: &Client, known: ServerState) -> Result<bool, Reason> {
    if let (Some(read_only), Some(in_recovery)) = (known.default_read_only, known.in_recovery) {
        return Ok(read_only || in_recovery);
    }
    let answer: String = ask(client, "SHOW transaction_read_only").await?;
    Ok(answer == "on")
}

async fn is_in_recovery(client: &Client, known: ServerState) -> Result<bool, Reason> {
    match known.in_recovery {
        Some(in_recovery) => Ok(in_recovery),
        None => ask(client, "SELECT pg_catalog.pg_is_in_recovery()").await,
    }
}

async fn ask<T>(client: &Client, question: &str) -> Result<T, Reason>
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    let row = client
        .query_typed_one(question, &[])
        .await
        .map_err(Reason::login)?;
    row.try_get(0).map_err(Reason::login)
}
