//! From a host to a connected socket.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;

use crate::db::conninfo::{DEFAULT_SOCKET_DIRECTORIES, Host, Place, TcpOptions, shown_path};

/// One place to knock at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Everything that a host may stand for. The resolver cannot be interrupted, so the caller bounds the
/// waiting.
pub(super) async fn addresses(host: &Host) -> io::Result<Vec<Address>> {
    match &host.place {
        Place::Socket(directory) => Ok(vec![socket_in(directory, host.port)]),
        Place::DefaultSocket => {
            let all = DEFAULT_SOCKET_DIRECTORIES.map(|d| socket_in(d, host.port));
            let (there, missing): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|address| matches!(address, Address::Unix(path) if path.exists()));
            // When there is none, the error should still name a place.
            Ok(if there.is_empty() { missing } else { there })
        }
        Place::Tcp {
            address: Some(address),
            ..
        } => Ok(vec![Address::Tcp((*address, host.port).into())]),
        Place::Tcp { name, .. } => {
            let name = name.as_deref().unwrap_or_default();
            let mut found = Vec::new();
            for address in look_up(name, host.port).await? {
                let address = Address::Tcp(address);
                if !found.contains(&address) {
                    found.push(address);
                }
            }
            Ok(found)
        }
    }
}

/// Asks the resolver, in a thread of its own. A runtime's pool panics when the system has no thread to
/// spare; and the end of a runtime waits for its pool.
async fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let name = name.to_owned();
    let (sender, found) = oneshot::channel();
    let resolve = move || {
        let addresses = (&*name, port).to_socket_addrs();
        // Whoever asked may have stopped waiting.
        let _ = sender.send(addresses.map(Iterator::collect));
    };
    thread::Builder::new()
        .name("dislock-resolver".to_owned())
        .spawn(resolve)?;
    found.await.map_err(io::Error::other)?
}

fn socket_in(directory: &str, port: u16) -> Address {
    Address::Unix(Path::new(directory).join(format!(".s.PGSQL.{port}")))
}

impl Address {
    pub(super) fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }

    pub(super) async fn open(&self, options: &TcpOptions) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                if options.keepalives {
                    socket.set_tcp_keepalive(&keepalive(options))?;
                }
                #[cfg(any(target_os = "linux", target_os = "android"))]
                if options.user_timeout.is_some() {
                    socket.set_tcp_user_timeout(options.user_timeout)?;
                }
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(path) => {
                // The operating system writes the abstract namespace's leading "@" as a NUL.
                let stream = match path.to_str().and_then(|p| p.strip_prefix('@')) {
                    Some(name) => UnixStream::connect(format!("\0{name}")).await,
                    None => UnixStream::connect(path).await,
                };
                // The host may have been left open, and then it tells nobody where we looked.
                let at_path =
                    |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", shown_path(path)));
                Ok(Socket::Unix(stream.map_err(at_path)?))
            }
        }
    }
}

fn keepalive(options: &TcpOptions) -> TcpKeepalive {
    let mut keepalive = TcpKeepalive::new();
    if let Some(idle) = options.keepalives_idle {
        keepalive = keepalive.with_time(idle);
    }
    if let Some(interval) = options.keepalives_interval {
        keepalive = keepalive.with_interval(interval);
    }
    if let Some(count) = options.keepalives_count {
        keepalive = keepalive.with_retries(count);
    }
    keepalive
}

/// A connected socket of either family.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Calls the same method on whichever stream is there.
macro_rules! on_stream {
    ($self:expr, $method:ident $(, $argument:expr)*) => {
        match $self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Socket::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_stream!(self, poll_read, cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, poll_write, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, poll_shutdown, cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_socket_gets_the_options_of_the_connection_string() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let options = TcpOptions {
            keepalives: true,
            keepalives_idle: Some(Duration::from_secs(31)),
            keepalives_interval: Some(Duration::from_secs(7)),
            keepalives_count: Some(4),
            user_timeout: Some(Duration::from_millis(12_345)),
        };
        let Socket::Tcp(stream) = address.open(&options).await.unwrap() else {
            panic!("not TCP");
        };
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        assert_eq!(
            socket.tcp_keepalive_time().unwrap(),
            Duration::from_secs(31)
        );
        assert_eq!(
            socket.tcp_keepalive_interval().unwrap(),
            Duration::from_secs(7)
        );
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 4);
        #[cfg(target_os = "linux")]
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(Duration::from_millis(12_345))
        );

        let options = TcpOptions::default();
        let Socket::Tcp(stream) = address.open(&options).await.unwrap() else {
            panic!("not TCP");
        };
        assert!(!SockRef::from(&stream).keepalive().unwrap());
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_named() {
        let address = socket_in("/nonexistent", 1);
        let error = address.open(&TcpOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(
            error.to_string().starts_with("/nonexistent/.s.PGSQL.1: "),
            "{error}"
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn without_a_thread_for_it_a_name_cannot_be_looked_up_now() {
        let found = crate::forks::in_child(|| {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.build().unwrap();
            crate::forks::allow_no_threads();
            runtime.block_on(look_up("localhost", 1)).is_ok().into()
        });
        assert_eq!(found, 0);
    }

    #[tokio::test]
    async fn a_name_is_looked_up() {
        let found = look_up("localhost", 7).await.unwrap();
        assert!(found.iter().all(|found| found.port() == 7), "{found:?}");
        assert!(!found.is_empty());
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn an_at_sign_means_the_abstract_namespace() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("/dislock-test-{}", std::process::id());
        let abstract_name = format!("{name}/.s.PGSQL.1");
        let bound = std::os::unix::net::SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind_addr(&bound).unwrap();
        let address = socket_in(&format!("@{name}"), 1);
        address.open(&TcpOptions::default()).await.unwrap();
    }
}
