//! What the guardian does: the parent of the command, and its end when dislock cannot be.
//!
//! The guardian was forked by a process that may have many threads and many gigabytes, at any moment.
//! So from the fork on nothing here allocates, takes a lock, uses std's I/O or panics; memory is on the
//! stack or mapped. All signals are blocked for good: no handler of that process ever runs in it.
//!
//! It waits for whichever comes first, and never polls:
//!
//! * an order from dislock;
//! * the end of dislock: its end of the channel closes, or its pidfd says so (another process may
//!   hold a copy of that end). The tree is killed at once, and the guardian with it;
//! * the deadline in the shared page passes without having been moved: dislock is stopped or hangs.
//!   The tree is killed at once;
//! * the end of a child: the command, or an orphan below it, all of which the guardian adopts. So "no
//!   child is left" is an exact test that the tree is gone.
//!
//! Until a stop begins, the ended command is not waited for: its number, and that of its process
//! group, cannot be given to anybody else. Once it has been waited for, neither is signalled any more.
//!
//! dislock ends the guardian with SIGKILL when the run is over. What the command left behind on
//! purpose then lives on, and is adopted by init.

mod ending;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, getpid, read, setsid};

use self::ending::Phase;
use super::alarm::Alarm;
use super::frames::{Inbox, Notice, Order, Received, Spawn, instant, send_some};
use super::kernel::{
    SharedNanos, Waited, close_all_but, close_on_exec_all_but, drop_handlers, exit,
    forget_environment, forget_memory, signal_group, signal_process, wait_for, wait_for_any,
};
use super::launch::{Command, Group, launch};
use super::signals::ends;
use super::tree::{Among, Tree};
use crate::clock::BootInstant;

/// Its name in the process list. Not one that `pkill dislock` would find: whoever kills dislock so
/// wants it to end, and for that the guardian is needed.
const TITLE: &CStr = c"lock-guardian";

/// Runs in the fresh process until it ends.
pub(super) fn watch(channel: OwnedFd, supervisor: Option<OwnedFd>, deadline: &SharedNanos) -> ! {
    drop_handlers();
    forget_environment(TITLE.to_bytes());
    forget_memory();
    match Watch::new(channel, supervisor, deadline) {
        Ok(watch) => {
            watch.let_go_of_what_is_not_inherited();
            watch.run()
        }
        Err(_) => exit(1),
    }
}

struct Watch<'a> {
    channel: OwnedFd,
    supervisor: Option<OwnedFd>,
    deadline: &'a SharedNanos,
    children: SignalFd,
    alarm: Alarm,
    inbox: Inbox,
    tree: Option<Tree>,
    command: Option<Command>,
    phase: Phase,
    /// dislock is gone: nobody to report to, nothing to wait for but the tree's end.
    alone: bool,
    /// No child is left.
    childless: bool,
    /// The outcome of a stop has been reported.
    reported: bool,
}

impl<'a> Watch<'a> {
    fn new(
        channel: OwnedFd,
        supervisor: Option<OwnedFd>,
        deadline: &'a SharedNanos,
    ) -> Result<Self, Errno> {
        prctl::set_name(TITLE)?;
        // If somebody has stopped it, it goes on when dislock ends.
        prctl::set_pdeathsig(Signal::SIGCONT)?;
        prctl::set_child_subreaper(true)?;
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGCHLD);
        Ok(Self {
            channel,
            supervisor,
            deadline,
            children: SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            alarm: Alarm::new()?,
            inbox: Inbox::default(),
            // Without it (no /proc) the command's group can still be killed.
            tree: Tree::below(getpid().as_raw()).ok(),
            command: None,
            phase: Phase::Watching,
            alone: false,
            childless: false,
            reported: false,
        })
    }

    fn run(mut self) -> ! {
        loop {
            self.wait();
            self.obey();
            while let Ok(Some(_)) = self.children.read_signal() {}
            self.note_start();
            self.reap();
            self.act(BootInstant::now());
        }
    }

    fn wait(&mut self) {
        if self.alarm.set(self.next()).is_err() {
            // It does not happen; but without deadlines this is no guardian.
            exit(1);
        }
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let starting = self.command.as_ref().and_then(|c| c.starting.as_ref());
        let mut fds = [
            readable(self.children.as_fd()),
            readable(self.alarm.as_fd()),
            // What does not exist is stood in for by something that is waited for anyway.
            readable(starting.map_or(self.alarm.as_fd(), AsFd::as_fd)),
            readable(self.channel.as_fd()),
            readable(
                self.supervisor
                    .as_ref()
                    .map_or(self.alarm.as_fd(), AsFd::as_fd),
            ),
        ];
        // Once dislock is gone its descriptors say so for ever.
        let watched = if self.alone { 3 } else { fds.len() };
        let watched = fds.get_mut(..watched).unwrap_or_default();
        let _ = poll(watched, PollTimeout::NONE);
        let gone = fds.last().and_then(PollFd::any).unwrap_or(false);
        self.alone |= gone && self.supervisor.is_some();
    }

    fn obey(&mut self) {
        while !self.alone {
            match self.inbox.receive(self.channel.as_fd()) {
                Received::Frame(frame) => match Order::decode(frame) {
                    Some(Order::Spawn(spawn)) => self.spawn(spawn),
                    Some(Order::Signal(signal)) => self.forward(signal),
                    Some(Order::Stop { kill_at }) => self.stop(kill_at),
                    None => {}
                },
                Received::Nothing => return,
                Received::Closed => self.alone = true,
            }
        }
    }

    fn report(&self, notice: Notice) {
        // A handful of small frames in all: they always fit. When dislock is gone, that is noticed
        // where it is waited for.
        let _ = send_some(self.channel.as_fd(), &notice.encode());
    }

    fn spawn(&mut self, spawn: Spawn) {
        if BootInstant::now() >= instant(self.deadline.get()) {
            // A pause came between; a command that was not started need not be killed.
            self.report(Notice::TreeGone);
            return;
        }
        match launch(self.channel.as_fd(), spawn) {
            Ok(command) => {
                self.report(Notice::Spawned(command.pid));
                self.command = Some(command);
                self.let_go();
            }
            Err(errno) => self.report(Notice::ExecFailed(errno)),
        }
    }

    /// Keeps nothing that the command does not inherit. The locks may be waited for for long, and meanwhile
    /// the program may close what this process has a copy of: a connection would not end, a lock on a file
    /// would stay.
    fn let_go_of_what_is_not_inherited(&self) {
        close_on_exec_all_but(&self.own_descriptors());
    }

    fn own_descriptors(&self) -> [RawFd; 6] {
        let starting = self.command.as_ref().and_then(|c| c.starting.as_ref());
        let number = |fd: Option<BorrowedFd<'_>>| {
            // What does not exist is stood in for by something that is kept anyway.
            fd.unwrap_or(self.channel.as_fd()).as_raw_fd()
        };
        [
            number(None),
            number(self.supervisor.as_ref().map(AsFd::as_fd)),
            number(starting.map(AsFd::as_fd)),
            number(self.tree.as_ref().map(Tree::fd)),
            self.children.as_fd().as_raw_fd(),
            self.alarm.as_fd().as_raw_fd(),
        ]
    }

    /// Keeps nothing that belongs to dislock or to the command: no terminal, no pipe whose other end
    /// waits for its closing, no connection, no directory.
    fn let_go(&self) {
        let _ = setsid();
        let _ = chdir(c"/");
        let mut keep = self.own_descriptors();
        close_all_but(&mut keep);
        for _ in (0..=2).filter(|fd| !keep.contains(fd)) {
            // The lowest number that is free, so this one; it stays open for good.
            let null = open(c"/dev/null", OFlag::O_RDWR, Mode::empty());
            let _ = null.map(OwnedFd::into_raw_fd);
        }
    }

    /// Passes a signal on, as if it had been sent to the command in the first place. One that asks for an
    /// end is followed by SIGCONT, or what is stopped would not get it. That disturbs no job control: a
    /// job is suspended as a whole, dislock with it, and then nothing is passed on.
    fn forward(&mut self, signal: i32) {
        self.send(signal);
        if ends(signal) {
            self.send(SIGCONT);
        }
    }

    fn send(&mut self, signal: i32) {
        let Some(command) = self.command.as_ref().filter(|c| !c.forgotten) else {
            return;
        };
        let for_the_group = matches!(
            signal,
            SIGTERM | SIGINT | SIGQUIT | SIGHUP | SIGWINCH | SIGCONT
        );
        match (command.group, self.tree.as_mut()) {
            (Group::Own, _) if for_the_group => {
                let _ = signal_group(command.pid, signal);
            }
            (Group::Shared(group), Some(tree)) if for_the_group => {
                let until = instant(self.deadline.get());
                tree.tell(&[signal], Among::InGroup(group), until);
            }
            _ => {
                let _ = signal_process(command.pid, signal);
            }
        }
    }

    /// Notices whether the command became the program.
    fn note_start(&mut self) {
        let Some(command) = &mut self.command else {
            return;
        };
        let Some(starting) = &command.starting else {
            return;
        };
        let mut errno = [0; 4];
        match read(starting, &mut errno) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Ok(4) => {
                command.starting = None;
                command.ended = true;
                let errno = Errno::from_raw(i32::from_ne_bytes(errno));
                self.report(Notice::ExecFailed(errno));
            }
            _ => {
                command.starting = None;
                self.report(Notice::Started);
            }
        }
    }

    /// Notices the command's end, and lets go of the orphans that have ended.
    fn reap(&mut self) {
        loop {
            let (pid, how) = match wait_for_any() {
                Waited::Ended(pid, how) => (pid, how),
                Waited::Running => {
                    self.childless = false;
                    return;
                }
                Waited::NoChildren => {
                    self.childless = true;
                    return;
                }
            };
            if self.command.as_ref().is_some_and(|c| c.pid == pid) {
                // Why it failed to start, if it did, was written before it ended.
                self.note_start();
                let watching = matches!(self.phase, Phase::Watching);
                if let Some(command) = &mut self.command {
                    let news = !command.ended;
                    command.ended = true;
                    command.forgotten = !watching;
                    if news {
                        self.report(Notice::Ended(how));
                    }
                }
                if watching {
                    self.childless = false;
                    return;
                }
            }
            wait_for(pid);
        }
    }
}
