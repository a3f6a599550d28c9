//! Connections: one search over the hosts, as libpq does it, but never longer than a deadline.
//!
//! Hosts are tried in order, or shuffled when asked. Each address gets `connect_timeout`, and never
//! more than its share of the time that is left, so that a first host which swallows packets leaves
//! time for the second. Addresses of one host share only the time until one of them answers: they
//! mostly lead to one server, and a slow one needs its time. The search goes on after whatever may be
//! that one host's trouble: no address, no route, no answer, a lost connection, a server that is
//! starting up or is of the wrong kind. It ends with the first real answer: what one server refuses (a
//! password, a certificate), the next is not asked for.

mod attempt;
mod bounds;
mod error;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{AsyncMessage, Client};

pub(crate) use error::{ConnectError, is_connection_loss};

use self::attempt::{Encryption, LoggedIn};
use self::error::Reason;
use self::socket::{Address, addresses};
use self::stream::{Encrypted, LoginWatch};
use super::conninfo::{Conninfo, Host, LoadBalanceHosts, TargetSessionAttrs, TlsOptions};
use crate::random;

/// For the goodbye, which nobody needs.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// For a cancel request, which may be too late anyhow.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// How many announcements are kept for somebody who is slow to take them; when there are more, they have
/// a reason to look anyway.
const ANNOUNCEMENTS: usize = 64;

/// A server that is starting up or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// An open connection and the task that reads and writes for it.
///
/// Dropping it ends the task, and with it the socket, without a goodbye and without waiting. The
/// runtime on which it was opened has to be running for anything to happen.
#[derive(Debug)]
pub(crate) struct Connection {
    client: Client,
    driver: DriverTask,
    runtime: Handle,
    peer: Peer,
    login: LoginWatch,
    /// The driver's task has the sender, so that it is closed when the connection has ended.
    announcements: broadcast::Receiver<String>,
}

/// What a cancel request has to know: it goes where the connection goes, encrypted the same way.
#[derive(Clone, Debug)]
struct Peer {
    host: Host,
    address: Address,
    encryption: Encryption,
    tls: TlsOptions,
}

#[derive(Debug)]
struct DriverTask(JoinHandle<()>);

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Has to be called on a runtime.
    fn start(accepted: LoggedIn, peer: Peer) -> Self {
        let LoggedIn {
            client,
            mut driver,
            login,
            encryption: _,
        } = accepted;
        let (announced, announcements) = broadcast::channel(ANNOUNCEMENTS);
        let task = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| driver.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(about)) => {
                        // Nobody may be listening any more.
                        let _ = announced.send(about.channel().to_owned());
                    }
                    Ok(_) => {}
                    Err(e) => {
                        log::debug!("connection to the database ended: {}", error::Chain(&e));
                        break;
                    }
                }
            }
        });
        Self {
            client,
            driver: DriverTask(task),
            runtime: Handle::current(),
            peer,
            login,
            announcements,
        }
    }

    /// The channels on which something is announced from now on. Closed when the connection ends.
    pub(crate) fn announcements(&self) -> broadcast::Receiver<String> {
        self.announcements.resubscribe()
    }

    /// Ends it for everybody who uses it, without a goodbye.
    pub(crate) fn kill(&self) {
        self.driver.0.abort();
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the server process `backend`, which a statement has met, is the one that this connection
    /// belongs to. It is not where a pooler stands between, whatever its mode: the login names a process
    /// that is not there.
    pub(crate) fn is_with(&self, backend: i32) -> bool {
        self.login.backend() == Some(backend)
    }

    /// Why we broke the connection off, if that was us: the driver only says that it is closed.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.login.refusal()
    }

    /// The server that was found.
    #[cfg(all(feature = "cli", target_os = "linux"))]
    pub(crate) fn host(&self) -> &Host {
        &self.peer.host
    }

    /// Whether what is sent is encrypted.
    #[cfg(all(feature = "cli", target_os = "linux"))]
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.peer.encryption, Encryption::Tls)
    }

    /// Asks the server to stop the statement that is running, over a connection of its own.
    ///
    /// Returns at once and tells nobody how it went: the request may come too late anyway.
    pub(crate) fn cancel(&self) {
        let token = self.client.cancel_token();
        let peer = self.peer.clone();
        let request = async move {
            let stream =
                attempt::open_again(&peer.address, peer.encryption, &peer.tls, &peer.host).await?;
            token
                .cancel_query_raw(stream, Encrypted)
                .await
                .map_err(Reason::login)
        };
        self.runtime.spawn(async move {
            match timeout(CANCEL_LIMIT, request).await {
                Ok(Ok(())) => log::debug!("asked the server to cancel the running statement"),
                Ok(Err(e)) => log::debug!("cannot ask the server to cancel: {}", error::Chain(&e)),
                Err(_) => log::debug!("cannot ask the server to cancel: no answer in time"),
            }
        });
    }

    /// Says goodbye, so that the server logs no lost connection, and waits for it a moment at most.
    pub(crate) async fn close(self) {
        let Self { client, driver, .. } = self;
        drop(client);
        let mut driver = driver;
        // Whether it ended or not: dropping the task is the end.
        let _ended = timeout(CLOSE_LIMIT, &mut driver.0).await;
    }
}

/// Finds a server that will do and logs in. Everything ends by `deadline`.
pub(crate) async fn connect(
    target: &Conninfo,
    deadline: Instant,
) -> Result<Connection, ConnectError> {
    let mut hosts: Vec<&Host> = target.hosts.iter().collect();
    if target.load_balance_hosts == LoadBalanceHosts::Random {
        hosts.shuffle(&mut random::generator());
    }
    let wanted = target.target_session_attrs;
    let passes = if wanted == TargetSessionAttrs::PreferStandby {
        vec![TargetSessionAttrs::Standby, TargetSessionAttrs::Any]
    } else {
        vec![wanted]
    };

    let mut reasons = Vec::new();
    for wanted in passes {
        for (i, host) in hosts.iter().enumerate() {
            let rest = hosts.len() - i - 1;
            match try_host(target, host, wanted, deadline, rest).await {
                Ok(connection) => return Ok(connection),
                Err(reason) => {
                    let decisive = !lets_search_go_on(&reason);
                    reasons.push((host.to_string(), reason));
                    if decisive || Instant::now() >= deadline {
                        return Err(ConnectError::new(reasons, decisive));
                    }
                }
            }
        }
    }
    Err(ConnectError::new(reasons, false))
}

/// Tries every address of a host; `rest` more hosts may need time after it.
async fn try_host(
    target: &Conninfo,
    host: &Host,
    wanted: TargetSessionAttrs,
    deadline: Instant,
    rest: usize,
) -> Result<Connection, Reason> {
    let until = share(target, deadline, rest + 1);
    let mut found = timeout_at(until, addresses(host))
        .await
        .map_err(|_| Reason::TimedOut)?
        .map_err(Reason::Lookup)?;
    if target.load_balance_hosts == LoadBalanceHosts::Random {
        found.shuffle(&mut random::generator());
    }

    let mut last = Reason::NoAddress;
    for (i, address) in found.iter().enumerate() {
        let open_by = share(target, deadline, found.len() - i + rest);
        let done_by = share(target, deadline, 1 + rest);
        let attempt = try_address(target, host, address, open_by, wanted);
        match timeout_at(done_by, attempt).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(reason @ (Reason::Socket(_) | Reason::Handshake(..) | Reason::TimedOut))) => {
                last = reason;
            }
            Ok(Err(reason)) => return Err(reason),
            Err(_) => last = Reason::TimedOut,
        }
    }
    Err(last)
}

/// When to give one of `candidates` up.
fn share(target: &Conninfo, deadline: Instant, candidates: usize) -> Instant {
    let now = Instant::now();
    let left = deadline.saturating_duration_since(now);
    let fair = left / u32::try_from(candidates).unwrap_or(u32::MAX).max(1);
    now + target.connect_timeout.map_or(fair, |limit| limit.min(fair))
}

fn lets_search_go_on(reason: &Reason) -> bool {
    match reason {
        Reason::Lookup(_)
        | Reason::NoAddress
        | Reason::Socket(_)
        | Reason::Handshake(..)
        | Reason::TimedOut
        | Reason::Unsuitable(_) => true,
        Reason::Login(e, _) => {
            is_connection_loss(e) || reason.sqlstate() == Some(CANNOT_CONNECT_NOW)
        }
        Reason::Refused(..) => false,
        Reason::BothWays { tls, plain } => lets_search_go_on(tls) && lets_search_go_on(plain),
    }
}

async fn try_address(
    target: &Conninfo,
    host: &Host,
    address: &Address,
    open_by: Instant,
    wanted: TargetSessionAttrs,
) -> Result<Connection, Reason> {
    let accepted = attempt::log_in(target, host, address, open_by).await?;
    let known = attempt::ServerState::reported(&accepted.driver);
    let peer = Peer {
        host: host.clone(),
        address: address.clone(),
        encryption: accepted.encryption,
        tls: target.tls.clone(),
    };
    let connection = Connection::start(accepted, peer);
    match attempt::check_session(connection.client(), known, wanted).await {
        Ok(()) => Ok(connection),
        Err(reason) => Err(connection.refusal().map_or(reason, Reason::refused)),
    }
}
