//! What the driver reads and writes: a socket, encrypted or not, that watches the login.
//!
//! The driver does not tell whether an error of the server came before or after it let us in, and
//! libpq's fallbacks depend on it; nor which process of the server it was given for its cancel
//! requests, by which a pooler is known. So the stream follows the server's first messages; and how much
//! is sent, to the end.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready as ready_or_return};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::bounds::Bounds;
use super::socket::Socket;
use crate::db::conninfo::{AuthMethod, RequiredAuth};

/// A stream to a PostgreSQL server.
pub(super) struct Stream {
    channel: Channel,
    /// The hash of the server's certificate, when there is one to bind to.
    binding: Option<Vec<u8>>,
    login: LoginWatch,
    bounds: Bounds,
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
            bounds: Bounds::default(),
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
            bounds: Bounds::default(),
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
        let bytes = &buf.filled()[before..];
        let this = self.get_mut();
        let verdict = this.bounds.observe(bytes);
        Poll::Ready(match verdict {
            Ok(()) => this.login.observe(bytes),
            Err(why) => Err(this.login.refuse(why)),
        })
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

/// Follows the server's messages until it says which process of it we talk to, and breaks the
/// connection off when it asks for proof in a way that `require_auth` rules out, before any is given.
#[derive(Clone, Debug)]
pub(super) struct LoginWatch {
    required: RequiredAuth,
    seen: Arc<Seen>,
    position: Position,
}

/// What was seen; shared, since the driver keeps the stream.
#[derive(Debug, Default)]
struct Seen {
    challenged: AtomicBool,
    authenticated: AtomicBool,
    refusal: OnceLock<String>,
    backend: OnceLock<i32>,
}

/// Where in the stream of messages we are: a type byte, a length that counts itself, a body.
#[derive(Clone, Debug)]
enum Position {
    /// In the bytes that matter: type, length, and the number that some messages begin with.
    Head(Vec<u8>),
    /// This many bytes before the next message.
    Body(usize),
    /// Nothing more to learn.
    Over,
}

impl Position {
    /// Before the next message, when `rest` of this one is still to come.
    fn after(rest: usize) -> Self {
        match rest {
            0 => Self::Head(Vec::new()),
            rest => Self::Body(rest),
        }
    }
}

impl LoginWatch {
    pub(super) fn new(required: RequiredAuth) -> Self {
        Self {
            required,
            seen: Arc::default(),
            position: Position::Head(Vec::new()),
        }
    }

    /// Whether the server accepted the login. An error that comes later is not about it.
    pub(super) fn is_authenticated(&self) -> bool {
        self.seen.authenticated.load(Ordering::Relaxed)
    }

    /// Whether the server asked for proof.
    pub(super) fn was_challenged(&self) -> bool {
        self.seen.challenged.load(Ordering::Relaxed)
    }

    /// Why we broke off.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.seen.refusal.get().map(String::as_str)
    }

    fn refuse(&self, why: String) -> io::Error {
        let why = self.seen.refusal.get_or_init(|| why);
        io::Error::new(io::ErrorKind::PermissionDenied, why.as_str())
    }

    /// The process that the server, or a pooler, says it is.
    pub(super) fn backend(&self) -> Option<i32> {
        self.seen.backend.get().copied()
    }

    fn observe(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match &mut self.position {
                Position::Over => break,
                Position::Body(left) => {
                    let skipped = bytes.len().min(*left);
                    bytes = &bytes[skipped..];
                    *left -= skipped;
                    self.position = Position::after(*left);
                }
                Position::Head(head) => {
                    head.push(bytes[0]);
                    bytes = &bytes[1..];
                    if let Some(message) = read_head(head) {
                        self.position = self
                            .follow(&message)
                            .map_err(|why| self.refuse(why.to_owned()))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn follow(&self, message: &Message) -> Result<Position, &'static str> {
        let (code, rest) = match *message {
            Message::Authentication { code, rest } => (code, rest),
            Message::BackendKey { process } => {
                let _ = self.seen.backend.set(process);
                return Ok(Position::Over);
            }
            Message::Ready => return Ok(Position::Over),
            Message::Other { rest } => return Ok(Position::after(rest)),
        };
        let method = match code {
            0 if self.required.allows_none() || self.was_challenged() => {
                self.seen.authenticated.store(true, Ordering::Relaxed);
                return Ok(Position::after(rest));
            }
            0 => return Err("require_auth: the server lets us in without asking for proof"),
            3 => AuthMethod::Password,
            5 => AuthMethod::Md5,
            7 | 8 => AuthMethod::Gss,
            9 => AuthMethod::Sspi,
            10..=12 => AuthMethod::ScramSha256,
            _ => return Err("the server asks for proof in an unknown way"),
        };
        if !self.required.allows(method) {
            return Err("require_auth does not allow the way in which the server asks for proof");
        }
        self.seen.challenged.store(true, Ordering::Relaxed);
        Ok(Position::after(rest))
    }
}

/// A message, without the `rest` of its body.
enum Message {
    Authentication {
        code: u32,
        rest: usize,
    },
    /// Which process a cancel request has to name.
    BackendKey {
        process: i32,
    },
    /// For statements: the login is over.
    Ready,
    Other {
        rest: usize,
    },
}

/// What a message is, once enough of it is there.
fn read_head(head: &[u8]) -> Option<Message> {
    let (&kind, bytes) = head.split_first()?;
    let (length, bytes) = bytes.split_first_chunk()?;
    let body = usize::try_from(u32::from_be_bytes(*length))
        .unwrap_or(usize::MAX)
        .saturating_sub(length.len());
    let number = bytes.first_chunk();
    match kind {
        b'R' => number.map(|code| Message::Authentication {
            code: u32::from_be_bytes(*code),
            rest: body.saturating_sub(code.len()),
        }),
        b'K' => number.map(|process| Message::BackendKey {
            process: i32::from_be_bytes(*process),
        }),
        b'Z' => Some(Message::Ready),
        _ => Some(Message::Other { rest: body }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authentication(code: u32, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(8 + data.len()).unwrap();
        let mut message = vec![b'R'];
        message.extend(length.to_be_bytes());
        message.extend(code.to_be_bytes());
        message.extend(data);
        message
    }

    /// An error message of the server, which contains what looks like an accepted login.
    fn error() -> Vec<u8> {
        let body = authentication(0, b"");
        let mut message = vec![b'E'];
        message.extend(u32::try_from(4 + body.len()).unwrap().to_be_bytes());
        message.extend(body);
        message
    }

    fn watch(bytes: &[u8], piece: usize) -> LoginWatch {
        let mut watch = LoginWatch::new(RequiredAuth::default());
        for piece in bytes.chunks(piece) {
            watch.observe(piece).unwrap();
        }
        watch
    }

    #[test]
    fn an_accepted_login_is_noticed_however_the_bytes_arrive() {
        let mut bytes = authentication(10, b"SCRAM-SHA-256\0\0");
        bytes.extend(authentication(11, b"r=1,s=2,i=4096"));
        bytes.extend(authentication(12, b"v=3"));
        for piece in 1..=bytes.len() {
            assert!(watch(&bytes, piece).was_challenged());
            assert!(!watch(&bytes, piece).is_authenticated());
        }
        bytes.extend(authentication(0, b""));
        bytes.extend(b"S\0\0\0\x05\0");
        for piece in 1..=bytes.len() {
            assert!(watch(&bytes, piece).is_authenticated());
            assert_eq!(watch(&bytes, piece).backend(), None);
        }
    }

    #[test]
    fn the_servers_process_is_known_when_the_login_is_over() {
        let mut bytes = authentication(0, b"");
        bytes.extend(b"S\0\0\0\x05\0");
        let silent = [&bytes[..], b"Z\0\0\0\x05I", b"K\0\0\0\x0c\0\0\0\x01key1"].concat();
        bytes.extend(b"K\0\0\0\x0c\0\x01\x02\x03key1Z\0\0\0\x05I");
        for piece in 1..=bytes.len() {
            assert_eq!(watch(&bytes, piece).backend(), Some(0x1_0203));
            assert_eq!(
                watch(&silent, piece).backend(),
                None,
                "what follows is no login"
            );
        }
    }

    #[test]
    fn an_error_before_the_login_is_not_an_accepted_login() {
        for piece in 1..=error().len() {
            assert!(!watch(&error(), piece).is_authenticated());
        }
    }
}
