//! The supervisor: starts the command through the guardian and waits for what comes first, its end, a
//! signal, a change of the lease, or a deadline. Nothing is polled.
//!
//! What to do is decided in `course`; this does it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::stat::Mode;
use nix::unistd::{getpid, getsid};

use super::alarm::Alarm;
use super::course::{Course, Step, Terminal};
use super::frames::{Notice, Order, Spawn};
use super::guardian::Guardian;
use super::kernel::{Status, current_mask, pidfd_open};
use super::resolve::CommandLine;
use super::signals::Signals;
use super::sweep;
use crate::clock::BootInstant;
use crate::error::{Error, Kind, Result};
use crate::lease::LeaseState;
use crate::rules::lease::Deadlines;
use crate::rules::outcome::Ended;

/// Starting a process takes the guardian a fraction of this.
const START_LIMIT: Duration = Duration::from_millis(100);

/// What supervision came to.
#[derive(Debug)]
pub(crate) struct Supervised {
    pub(crate) ended: Result<Ended>,
    /// Whether the command ever ran. If not, what was locked for it is of no use.
    pub(crate) ran: bool,
    /// How the command itself ended, if that is known: it may have been killed by whoever killed the
    /// guardian, too.
    pub(super) status: Option<Status>,
}

/// Runs the command under the guardian until nothing of it is left that has to go, and answers what
/// it came to.
///
/// `environment` is added to the process's own; `lock_key` is what the log is about. With a lease, the
/// command is stopped at its deadline, and not even started after it; with `signals`, it gets those that
/// are sent to dislock.
///
/// It is an error when the command could not be started, or the system refuses what supervision
/// needs. Nothing of the command is left running then.
pub(crate) fn supervise(
    guardian: Guardian,
    command: &CommandLine,
    environment: &[(OsString, OsString)],
    lock_key: &str,
    lease: Option<Arc<LeaseState>>,
    kill_grace: Duration,
    signals: Option<&Signals>,
) -> Supervised {
    // A signal, or a pause after the lease was taken: nothing has been started yet, so nothing has to be.
    let not_started = |ended| Supervised {
        ended,
        ran: false,
        status: None,
    };
    if let Some(Err(interrupted)) = signals.map(Signals::check) {
        return not_started(Err(interrupted));
    }
    if let Some(lease) = lease.as_ref().filter(|lease| lease.loss().is_some()) {
        lease.announce_loss();
        return not_started(Ok(Ended::LeaseLost));
    }
    let run = Run::new(
        guardian,
        command,
        lock_key,
        lease,
        signals,
        kill_grace,
        terminal(),
    );
    let mut run = match run {
        Ok(run) => run,
        Err(error) => return not_started(Err(error)),
    };
    if let Err(error) = run.start(environment) {
        return not_started(Err(error));
    }
    let ended = run.follow();
    if ended.is_err() && run.pid.is_some() {
        run.kill_tree();
    }
    if let Some(lease) = &run.lease {
        lease.announce_loss();
    }
    let refused = matches!(&ended, Err(error) if matches!(error.kind(), Kind::Command { .. }));
    Supervised {
        ran: run.pid.is_some() && !refused,
        status: run.course.status(),
        ended,
    }
}

struct Run<'a> {
    guardian: Guardian,
    command: &'a CommandLine,
    lock_key: &'a str,
    lease: Option<Arc<LeaseState>>,
    signals: Option<&'a Signals>,
    terminal: Terminal,
    course: Course,
    /// Readable after every change of the lease.
    lease_changed: Arc<EventFd>,
    alarm: Alarm,
    /// The command's process, once it is there, unless it could not become the program.
    pid: Option<i32>,
    /// Readable once that has ended, until the guardian was made to say so.
    ended: Option<OwnedFd>,
}

impl<'a> Run<'a> {
    fn new(
        guardian: Guardian,
        command: &'a CommandLine,
        lock_key: &'a str,
        lease: Option<Arc<LeaseState>>,
        signals: Option<&'a Signals>,
        kill_grace: Duration,
        terminal: Terminal,
    ) -> Result<Self> {
        let failed = |why: Errno| Error::system("cannot supervise a command", why);
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let lease_changed = Arc::new(EventFd::from_flags(flags).map_err(failed)?);
        if let Some(lease) = &lease {
            let changed = Arc::clone(&lease_changed);
            lease.supervise(move || {
                // It fails only when it is readable anyway.
                let _ = changed.write(1);
            });
        }
        Ok(Self {
            guardian,
            command,
            lock_key,
            lease,
            signals,
            terminal,
            course: Course::new(kill_grace, terminal),
            lease_changed,
            alarm: Alarm::new().map_err(failed)?,
            pid: None,
            ended: None,
        })
    }

    fn deadlines(&self) -> Deadlines {
        self.lease
            .as_ref()
            .map_or(Deadlines::NONE, |lease| lease.deadlines())
    }

    fn start(&mut self, environment: &[(OsString, OsString)]) -> Result<()> {
        let mask = match self.signals {
            Some(signals) => Ok(signals.original_mask()),
            None => current_mask(),
        };
        let mask = mask.map_err(|why| Error::system("cannot read the signal mask", why))?;
        let strings = strings(self.command, environment);
        self.guardian.set_deadline(self.deadlines().kill_at);
        let order = Order::Spawn(Spawn {
            strings: strings.len(),
            args: self.command.args().len(),
            own_group: self.terminal == Terminal::None,
            mask,
        });
        self.guardian.order(order, &strings);
        Ok(())
    }

    fn follow(&mut self) -> Result<Ended> {
        loop {
            match self.course.next(BootInstant::now(), self.deadlines()) {
                Step::Wait(until) => {
                    self.announce_loss();
                    self.wait(until)?;
                }
                Step::Stop { kill_at } => {
                    self.guardian.order(Order::Stop { kill_at }, &[]);
                    self.announce_loss();
                }
                Step::KillTree => {
                    self.kill_tree();
                    self.course.tree_gone();
                    return Ok(self.course.outcome().unwrap_or(Ended::LeaseLost));
                }
                Step::Return(outcome) => return Ok(outcome),
            }
            self.forward_signals();
            self.note_lease();
            if let Some(outcome) = self.hear_guardian()? {
                return Ok(outcome);
            }
        }
    }

    fn wait(&mut self, until: BootInstant) -> Result<()> {
        let now = BootInstant::now();
        let until = match self.pid {
            Some(_) => until,
            // Should somebody stop the guardian just now, its silence would mean nothing.
            None => until.min(now.after(START_LIMIT)),
        };
        let failed = |why: Errno| Error::system("cannot wait for the command", why);
        self.alarm.set(until).map_err(failed)?;
        let mut channel = PollFlags::POLLIN;
        if self.guardian.has_unsent() {
            channel |= PollFlags::POLLOUT;
        }
        let mut fds = vec![
            PollFd::new(self.guardian.as_fd(), channel),
            PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.lease_changed.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(
            self.signals
                .map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)),
        );
        let ended_at = fds.len();
        fds.extend(
            self.ended
                .as_ref()
                .map(|e| PollFd::new(e.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(why) => return Err(failed(why)),
        }
        let happened = |index| fds.get(index).and_then(PollFd::any).unwrap_or(false);
        let (heard, ended) = (happened(0), happened(ended_at));
        self.guardian.send();
        if (ended || self.pid.is_none()) && !heard {
            // The guardian is about to say something; if somebody has stopped it, it is not.
            self.guardian.wake();
        }
        if ended {
            self.ended = None;
        }
        Ok(())
    }

    fn forward_signals(&mut self) {
        let Some(signals) = self.signals else {
            return;
        };
        while let Some(incoming) = signals.next() {
            log::debug!("received signal {}", incoming.signal);
            if self.course.signal(incoming) {
                self.guardian.order(Order::Signal(incoming.signal), &[]);
            }
        }
    }

    /// To be called once what the loss demands is done: a logger may block.
    fn announce_loss(&self) {
        if let Some(lease) = self.lease.as_ref().filter(|_| self.course.is_lost()) {
            lease.announce_loss();
        }
    }

    /// Moves the guardian's deadline. It takes the thread that renews *and* this one.
    fn note_lease(&self) {
        if self.lease_changed.read().is_ok() {
            self.guardian.set_deadline(self.deadlines().kill_at);
        }
    }

    /// Takes in what the guardian has to say; answers the outcome if the guardian is dead.
    fn hear_guardian(&mut self) -> Result<Option<Ended>> {
        loop {
            match self.guardian.receive() {
                Ok(None) => return Ok(None),
                Ok(Some(Notice::Spawned(pid))) => {
                    self.pid = Some(pid);
                    self.ended = pidfd_open(pid).ok();
                }
                Ok(Some(Notice::ExecFailed(errno))) => {
                    self.pid = None;
                    return Err(self.command.exec_error(errno));
                }
                Ok(Some(Notice::Started)) => {
                    let (key, file) = (self.lock_key, self.command.file().display());
                    log::info!(event = "command_started", key, command:% = file; "started {file}");
                }
                Ok(Some(Notice::Ended(how))) => self.course.ended(how),
                Ok(Some(Notice::TreeGone)) => self.course.tree_gone(),
                Ok(Some(Notice::OutOfReach(pid))) => {
                    log::warn!("cannot kill all that the command has started{}", which(pid));
                    self.course.tree_gone();
                }
                Err(why) => return self.without_guardian(why).map(Some),
            }
        }
    }

    /// Somebody has killed the guardian; the kernel has killed the command with it.
    fn without_guardian(&mut self, why: Errno) -> Result<Ended> {
        self.kill_tree();
        let deadlines = self.deadlines();
        if BootInstant::now() >= deadlines.stop_at || self.course.is_lost() {
            return Ok(Ended::LeaseLost);
        }
        self.course.outcome().ok_or_else(|| {
            Error::system(
                "the guardian process was killed, and the command with it",
                std::io::Error::from(why),
            )
        })
    }

    fn kill_tree(&mut self) {
        let group = self.pid.filter(|_| self.terminal == Terminal::None);
        if !sweep::kill_tree(&mut self.guardian, group, self.signals) {
            log::warn!("cannot kill all that the command has started");
        }
    }
}

/// Names the process that the guardian could not kill, if it has found it.
fn which(pid: i32) -> String {
    match pid {
        0 => ": /proc does not show the processes of this namespace".to_owned(),
        pid => format!(": process {pid} may not be signalled by this user"),
    }
}

/// Whether dislock has a terminal that it has to share with the command.
fn terminal() -> Terminal {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    if open("/dev/tty", flags, Mode::empty()).is_err() {
        Terminal::None
    } else if getsid(None) == Ok(getpid()) {
        Terminal::SharedByLeader
    } else {
        Terminal::Shared
    }
}

/// The program's path, its arguments and its environment, each with a NUL at its end.
fn strings(command: &CommandLine, additions: &[(OsString, OsString)]) -> Vec<u8> {
    let inherited =
        std::env::vars_os().filter(|(name, _)| !additions.iter().any(|(added, _)| added == name));
    let environment = inherited
        .chain(additions.iter().cloned())
        .map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend(value.into_vec());
            entry
        });
    let mut strings = Vec::new();
    let args = command.args().iter().map(OsString::as_os_str);
    for string in std::iter::once(command.file().as_os_str())
        .chain(args)
        .map(OsStr::as_bytes)
    {
        strings.extend_from_slice(string);
        strings.push(0);
    }
    for entry in environment {
        strings.extend(entry);
        strings.push(0);
    }
    strings
}
