//! What the driver reads and writes: a socket, encrypted or not, that watches the login.
//!
//! The driver does not tell whether an error of the server came before or after it let us in, and
//! libpq's fallbacks depend on it. So the stream follows the server's first messages.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready as ready_or_return};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::socket::Socket;

/// A stream to a PostgreSQL server.
pub(super) struct Stream {
    channel: Channel,
    /// The hash of the server's certificate, when there is one to bind to.
    binding: Option<Vec<u8>>,
    login: LoginWatch,
}

enum Channel {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<Socket>>),
}

impl Stream {
    pub(super) fn plain(socket: Socket, login: LoginWatch) -> Self {
        Self {
            channel: Channel::Plain(socket),
            binding: None,
            login,
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn tls(
        stream: tokio_rustls::client::TlsStream<Socket>,
        binding: Option<Vec<u8>>,
        login: LoginWatch,
    ) -> Self {
        Self {
            channel: Channel::Tls(Box::new(stream)),
            binding,
            login,
        }
    }
}

/// Calls the same method on whichever channel is there.
macro_rules! on_channel {
    ($self:expr, $method:ident $(, $argument:expr)*) => {
        match &mut $self.get_mut().channel {
            Channel::Plain(stream) => Pin::new(stream).$method($($argument),*),
            #[cfg(feature = "tls")]
            Channel::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready_or_return!(on_channel!(self.as_mut(), poll_read, cx, buf))?;
        self.login.observe(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_channel!(self, poll_write, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_channel!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_channel!(self, poll_shutdown, cx)
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        self.binding
            .clone()
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// Hands the driver a stream whose handshake is over.
pub(super) struct Encrypted;

impl TlsConnect<Stream> for Encrypted {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Ready<io::Result<Stream>>;

    fn connect(self, stream: Stream) -> Self::Future {
        ready(Ok(stream))
    }
}

/// Follows the server's messages until it says that we are who we claim to be.
#[derive(Clone, Debug, Default)]
pub(super) struct LoginWatch {
    authenticated: Arc<AtomicBool>,
    challenged: Arc<AtomicBool>,
    position: Position,
}

/// Where in the stream of messages we are: a type byte, a length that counts itself, a body.
#[derive(Clone, Debug)]
enum Position {
    /// In the bytes that matter: type, length, and the code of an authentication message.
    Head(Vec<u8>),
    /// This many bytes before the next message.
    Body(usize),
    /// Nothing more to learn.
    Over,
}

impl Default for Position {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

const AUTHENTICATION: u8 = b'R';
const AUTHENTICATION_OK: u32 = 0;

impl LoginWatch {
    /// Whether the server accepted the login. An error that comes later is not about it.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    /// Whether the server asked for proof.
    pub(super) fn was_challenged(&self) -> bool {
        self.challenged.load(Ordering::Relaxed)
    }

    fn observe(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.position {
                Position::Over => return,
                Position::Body(left) => {
                    let skipped = bytes.len().min(*left);
                    bytes = &bytes[skipped..];
                    *left -= skipped;
                    if *left == 0 {
                        self.position = Position::default();
                    }
                }
                Position::Head(head) => {
                    head.push(bytes[0]);
                    bytes = &bytes[1..];
                    if let Some(next) = after_head(head) {
                        self.position = match next {
                            Head::Skip(left) => Position::Body(left),
                            Head::Authenticated => {
                                self.authenticated.store(true, Ordering::Relaxed);
                                Position::Over
                            }
                            Head::Challenge(left) => {
                                self.challenged.store(true, Ordering::Relaxed);
                                Position::Body(left)
                            }
                        };
                    }
                }
            }
        }
    }
}

enum Head {
    Skip(usize),
    Challenge(usize),
    Authenticated,
}

/// What a message is, once enough of it is there.
fn after_head(head: &[u8]) -> Option<Head> {
    let (&kind, rest) = head.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let body = usize::try_from(u32::from_be_bytes(*length))
        .unwrap_or(usize::MAX)
        .saturating_sub(length.len());
    if kind != AUTHENTICATION {
        return Some(Head::Skip(body));
    }
    let (code, _) = rest.split_first_chunk()?;
    Some(match u32::from_be_bytes(*code) {
        AUTHENTICATION_OK => Head::Authenticated,
        _ => Head::Challenge(body.saturating_sub(code.len())),
    })
}
