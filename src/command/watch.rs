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

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGWINCH};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, getpid, read, setsid};

use super::alarm::Alarm;
use super::frames::{Inbox, Notice, Order, Received, Spawn, instant, send_some};
use super::kernel::{
    SharedNanos, Waited, close_all_but, drop_handlers, exit, forget_environment, forget_memory,
    signal_group, signal_process, wait_for, wait_for_any,
};
use super::launch::{Command, Group, launch};
use super::tree::{Among, Tree};
use crate::clock::BootInstant;

/// Its name in the process list. Not one that `pkill dislock` would find: whoever kills dislock so
/// wants it to end, and for that the guardian is needed.
const TITLE: &CStr = c"lock-guardian";
/// How long before it has to be dead the tree is looked at, to begin with the killing in time; also the
/// most that the killing begins too early.
const LOOK_AHEAD: Duration = Duration::from_secs(1);
/// Between two rounds of killing: more often at first, when a fork may just have been missed.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// Who is not dead after so many rounds is in a system call that cannot be interrupted.
const BRISK_ROUNDS: u32 = 100;
const PATIENT_PAUSE: Duration = Duration::from_secs(1);
/// Rounds without a readable `/proc` before giving up on what is outside the command's group.
const BLIND_ROUNDS: u32 = 20;

/// Runs in the fresh process until it ends.
pub(super) fn watch(channel: OwnedFd, supervisor: Option<OwnedFd>, deadline: &SharedNanos) -> ! {
    drop_handlers();
    forget_environment(TITLE.to_bytes());
    forget_memory();
    match Watch::new(channel, supervisor, deadline) {
        Ok(watch) => watch.run(),
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

#[derive(Clone, Copy)]
enum Phase {
    Watching,
    Stopping(Stop),
    Killing(Rounds),
}

#[derive(Clone, Copy)]
struct Stop {
    /// When all has to be dead.
    kill_at: BootInstant,
    /// Whoever was told to end has until then for that, however many they are.
    earliest: BootInstant,
    /// How long the killing takes, once the tree was looked at for that.
    takes: Option<Duration>,
}

impl Stop {
    /// When the killing begins, or the tree is looked at to know that.
    fn kill_from(&self) -> BootInstant {
        let takes = self.takes.unwrap_or(LOOK_AHEAD).min(LOOK_AHEAD);
        let from = self.kill_at.before(takes);
        from.max(self.earliest).min(self.kill_at)
    }
}

#[derive(Clone, Copy)]
struct Rounds {
    next: BootInstant,
    pause: Duration,
    done: u32,
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

    /// The next instant at which something has to be done without being asked.
    fn next(&self) -> BootInstant {
        if self.command.is_none() {
            return BootInstant::NEVER;
        }
        let deadline = instant(self.deadline.get());
        match self.phase {
            Phase::Watching => deadline,
            Phase::Stopping(stop) => stop.kill_from().min(deadline),
            Phase::Killing(_) if self.childless || self.reported => BootInstant::NEVER,
            Phase::Killing(rounds) => rounds.next,
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

    /// Keeps nothing that belongs to dislock or to the command: no terminal, no pipe whose other end
    /// waits for its closing, no connection, no directory.
    fn let_go(&self) {
        let _ = setsid();
        let _ = chdir(c"/");
        let starting = self.command.as_ref().and_then(|c| c.starting.as_ref());
        let number = |fd: Option<BorrowedFd<'_>>| {
            // What does not exist is stood in for by something that is kept anyway.
            fd.unwrap_or(self.channel.as_fd()).as_raw_fd()
        };
        let mut keep = [
            number(None),
            number(self.supervisor.as_ref().map(AsFd::as_fd)),
            number(starting.map(AsFd::as_fd)),
            number(self.tree.as_ref().map(Tree::fd)),
            self.children.as_fd().as_raw_fd(),
            self.alarm.as_fd().as_raw_fd(),
        ];
        close_all_but(&mut keep);
        for _ in (0..=2).filter(|fd| !keep.contains(fd)) {
            // The lowest number that is free, so this one; it stays open for good.
            let null = open(c"/dev/null", OFlag::O_RDWR, Mode::empty());
            let _ = null.map(OwnedFd::into_raw_fd);
        }
    }

    /// Passes a signal on, as if it had been sent to the command in the first place.
    fn forward(&mut self, signal: i32) {
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

    fn stop(&mut self, kill_at: BootInstant) {
        let now = BootInstant::now();
        let halfway = now.after(kill_at.left(now) / 2);
        self.phase = match self.phase {
            Phase::Watching => {
                self.terminate(halfway.min(instant(self.deadline.get())));
                Phase::Stopping(Stop {
                    kill_at,
                    earliest: halfway,
                    takes: None,
                })
            }
            Phase::Stopping(before) => Phase::Stopping(Stop {
                kill_at: kill_at.min(before.kill_at),
                earliest: halfway.min(before.earliest),
                takes: before.takes,
            }),
            Phase::Killing(_) => return,
        };
    }

    /// SIGTERM to everything that can be told until then; SIGCONT so that what is stopped gets it.
    fn terminate(&mut self, until: BootInstant) {
        let own_group = self
            .command
            .as_ref()
            .filter(|c| !c.forgotten && matches!(c.group, Group::Own))
            .map(|c| c.pid);
        if let Some(group) = own_group {
            let _ = signal_group(group, SIGTERM);
            let _ = signal_group(group, SIGCONT);
        }
        if let Some(tree) = &mut self.tree {
            let among = own_group.map_or(Among::All, Among::OutsideGroup);
            tree.tell(&[SIGTERM, SIGCONT], among, until);
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
            _ => command.starting = None,
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

    fn act(&mut self, now: BootInstant) {
        if self.alone && (self.command.is_none() || self.reported) {
            exit(0);
        }
        let killing = matches!(self.phase, Phase::Killing(_));
        if !killing && (self.alone || self.is_time_to_kill(now)) {
            self.phase = Phase::Killing(Rounds {
                next: now,
                pause: FIRST_PAUSE,
                done: 0,
            });
        }
        match self.phase {
            Phase::Killing(rounds) if !self.childless && !self.reported && now >= rounds.next => {
                self.kill(rounds);
            }
            Phase::Watching | Phase::Stopping(_) | Phase::Killing(_) => {}
        }
        if self.childless && !matches!(self.phase, Phase::Watching) {
            self.conclude(Notice::TreeGone);
        }
    }

    /// Whether the killing has to begin for all to be dead in time. To know that, the tree is looked at
    /// once in a stop; it is not while dislock may still move the deadline.
    fn is_time_to_kill(&mut self, now: BootInstant) -> bool {
        if now < self.next() {
            return false;
        }
        let last_moment = instant(self.deadline.get());
        match self.phase {
            Phase::Stopping(stop)
                if stop.takes.is_none() && now < stop.kill_at.min(last_moment) =>
            {
                let takes = self.tree.as_mut().map(Tree::time_to_kill);
                self.phase = Phase::Stopping(Stop {
                    takes: Some(takes.unwrap_or_default()),
                    ..stop
                });
                BootInstant::now() >= self.next()
            }
            Phase::Watching | Phase::Stopping(_) | Phase::Killing(_) => true,
        }
    }

    /// One round: the group at one blow, then everything that `/proc` shows.
    fn kill(&mut self, rounds: Rounds) {
        if let Some(command) = self.command.as_ref().filter(|c| !c.forgotten) {
            let _ = match command.group {
                Group::Own => signal_group(command.pid, SIGKILL),
                Group::Shared(_) => signal_process(command.pid, SIGKILL),
            };
        }
        let round = self.tree.as_mut().and_then(|tree| tree.kill().ok());
        self.reap();
        let out_of_reach = match round {
            _ if self.childless => None,
            Some(round) => round.out_of_reach(),
            None => (rounds.done >= BLIND_ROUNDS).then_some(0),
        };
        if let Some(pid) = out_of_reach {
            self.conclude(Notice::OutOfReach(pid));
        }
        let longest = if rounds.done < BRISK_ROUNDS {
            LONGEST_PAUSE
        } else {
            PATIENT_PAUSE
        };
        self.phase = Phase::Killing(Rounds {
            next: BootInstant::now().after(rounds.pause),
            pause: rounds.pause.saturating_mul(2).min(longest),
            done: rounds.done.saturating_add(1),
        });
    }

    fn conclude(&mut self, outcome: Notice) {
        if self.alone {
            exit(0);
        }
        if !self.reported {
            self.reported = true;
            self.report(outcome);
        }
    }
}
