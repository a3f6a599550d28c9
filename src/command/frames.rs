//! What dislock and the guardian tell each other: frames of one size over a stream.
//!
//! The deadline is not among them: it is one number in a page that both share, so that moving it needs
//! nobody's attention and never blocks.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};

use super::kernel::{Mask, Status};
use crate::clock::BootInstant;

/// The size of every frame: a kind and three numbers.
pub(super) const FRAME: usize = 32;
pub(super) type Frame = [u8; FRAME];

/// From dislock to the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Start the command; `strings` bytes follow: its path, arguments and environment.
    Spawn(Spawn),
    /// Send the command a signal.
    Signal(i32),
    /// SIGTERM to the whole tree now, SIGKILL to what is left of it at `kill_at`.
    Stop { kill_at: BootInstant },
}

/// How to start the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spawn {
    /// The length of the strings that follow.
    pub(super) strings: usize,
    /// How many of them are arguments, the program's name among them.
    pub(super) args: usize,
    /// Whether the command gets a process group of its own.
    pub(super) own_group: bool,
    /// The signal mask it starts with.
    pub(super) mask: Mask,
}

/// From the guardian to dislock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The command's process is there, as this number.
    Spawned(i32),
    /// It could not become the program.
    ExecFailed(Errno),
    /// It became the program, unless something killed it before that.
    Started,
    /// The command itself has ended.
    Ended(Status),
    /// After a stop: nothing is left below the guardian.
    TreeGone,
    /// After a stop: this process, at least, cannot be killed by us.
    OutOfReach(i32),
}

impl Order {
    pub(super) fn encode(self) -> Frame {
        match self {
            Self::Spawn(spawn) => frame(
                0,
                [
                    number(spawn.strings),
                    number(spawn.args) << 1 | u64::from(spawn.own_group),
                    spawn.mask,
                ],
            ),
            Self::Signal(signal) => frame(1, [to_u64(signal), 0, 0]),
            Self::Stop { kill_at } => frame(2, [nanos(kill_at), 0, 0]),
        }
    }

    pub(super) fn decode(frame: Frame) -> Option<Self> {
        let [kind, a, b, c] = fields(frame);
        match kind {
            0 => Some(Self::Spawn(Spawn {
                strings: usize::try_from(a).ok()?,
                args: usize::try_from(b >> 1).ok()?,
                own_group: b & 1 == 1,
                mask: c,
            })),
            1 => Some(Self::Signal(to_i32(a)?)),
            2 => Some(Self::Stop {
                kill_at: instant(a),
            }),
            _ => None,
        }
    }
}

impl Notice {
    pub(super) fn encode(self) -> Frame {
        match self {
            Self::Spawned(pid) => frame(0, [to_u64(pid), 0, 0]),
            Self::ExecFailed(errno) => frame(1, [to_u64(errno as i32), 0, 0]),
            Self::Ended(Status::Exited(code)) => frame(2, [to_u64(code), 0, 0]),
            Self::Ended(Status::Signaled(signal)) => frame(3, [to_u64(signal), 0, 0]),
            Self::TreeGone => frame(4, [0; 3]),
            Self::OutOfReach(pid) => frame(5, [to_u64(pid), 0, 0]),
            Self::Started => frame(6, [0; 3]),
        }
    }

    pub(super) fn decode(frame: Frame) -> Option<Self> {
        let [kind, a, ..] = fields(frame);
        match kind {
            0 => Some(Self::Spawned(to_i32(a)?)),
            1 => Some(Self::ExecFailed(Errno::from_raw(to_i32(a)?))),
            2 => Some(Self::Ended(Status::Exited(to_i32(a)?))),
            3 => Some(Self::Ended(Status::Signaled(to_i32(a)?))),
            4 => Some(Self::TreeGone),
            5 => Some(Self::OutOfReach(to_i32(a)?)),
            6 => Some(Self::Started),
            _ => None,
        }
    }
}

fn frame(kind: u64, numbers: [u64; 3]) -> Frame {
    let [a, b, c] = numbers;
    let mut frame = [0; FRAME];
    for (bytes, field) in frame.chunks_exact_mut(8).zip([kind, a, b, c]) {
        bytes.copy_from_slice(&field.to_ne_bytes());
    }
    frame
}

fn fields(frame: Frame) -> [u64; 4] {
    let mut fields = [0_u64; 4];
    for (field, bytes) in fields.iter_mut().zip(frame.chunks_exact(8)) {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        *field = u64::from_ne_bytes(word);
    }
    fields
}

fn number(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Signals, process numbers, exit codes and errors are never negative.
fn to_u64(n: i32) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn to_i32(n: u64) -> Option<i32> {
    i32::try_from(n).ok()
}

/// Nanoseconds since the machine's start; what does not fit is never.
pub(super) fn nanos(at: BootInstant) -> u64 {
    u64::try_from(at.since_boot().as_nanos()).unwrap_or(u64::MAX)
}

/// The instant that [`nanos`] stands for.
pub(super) fn instant(nanos: u64) -> BootInstant {
    match nanos {
        u64::MAX => BootInstant::NEVER,
        n => BootInstant::from_boot(Duration::from_nanos(n)),
    }
}

/// Puts a stream together into frames, without ever waiting.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    buffer: Frame,
    filled: usize,
}

/// What an [`Inbox`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Frame(Frame),
    /// No whole frame for now.
    Nothing,
    /// The other side is gone.
    Closed,
}

impl Inbox {
    pub(super) fn receive(&mut self, channel: BorrowedFd<'_>) -> Received {
        while let Some(free) = self.buffer.get_mut(self.filled..).filter(|f| !f.is_empty()) {
            match recv(channel.as_raw_fd(), free, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Received::Closed,
                Ok(len) => self.filled = self.filled.saturating_add(len),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Received::Nothing,
                Err(_) => return Received::Closed,
            }
        }
        self.filled = 0;
        Received::Frame(self.buffer)
    }
}

/// Sends as much as can be sent without waiting; answers how much that was.
///
/// # Errors
///
/// When the other side is gone.
pub(super) fn send_some(channel: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        match send(channel.as_raw_fd(), bytes, flags) {
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Ok(0),
            answer => return answer,
        }
    }
}
