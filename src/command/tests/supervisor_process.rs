//! What a process does that a test has started as a supervisor.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::unistd::setsid;

use super::{
    ARGS, BALLAST, GRACE, JOB, KILL_AT, LIBRARY, LONG, MARK, REJECT, RENEWALS, SEPARATOR, SHELL,
    TTL, TTY, crowds, number_of, terminal,
};
use crate::clock::BootInstant;
use crate::command::supervise::supervise;
use crate::command::{CommandLine, Guardian, Signals};
use crate::lease::LeaseState;
use crate::rules::lease::{LeaseTerm, LeaseTiming};
use crate::rules::outcome::exit_code_of;

/// Makes this binary a supervisor before `main`, if a test has started it as one: only there is it still
/// a process with one thread, as the program is when it takes its signals over.
#[used]
#[expect(unsafe_code, reason = "says where the linker puts a function pointer")]
// SAFETY: the section holds pointers to functions without arguments, as this is one.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = supervisor_process;

/// What a [`Supervisor`](super::Supervisor) runs in its process.
#[expect(clippy::exit, reason = "the code of the run is this process's own")]
extern "C" fn supervisor_process() {
    let Some(args) = std::env::var_os(ARGS) else {
        crowds::be_a_crowd();
        return;
    };
    if std::env::var_os(JOB).is_some() {
        terminal::wait_for_the_foreground();
    } else {
        // From here on without a terminal, unless it is given one.
        setsid().unwrap();
    }
    let terminal = std::env::var_os(TTY).map(|tty| {
        // The first terminal that a session's leader opens becomes the session's.
        let mut options = fs::File::options();
        options.read(true).write(true).open(tty).unwrap()
    });
    if std::env::var_os(SHELL).is_some() {
        std::process::exit(terminal::job_control_shell(&terminal.unwrap()));
    }
    let mut args: Vec<OsString> = args
        .into_vec()
        .split(|&b| b == SEPARATOR)
        .map(|a| OsString::from_vec(a.to_vec()))
        .collect();
    let ballast = std::env::var(BALLAST).map(|bytes| vec![1_u8; bytes.parse().unwrap()]);
    args.extend(std::env::var_os(LONG).map(|file| OsString::from_vec(fs::read(file).unwrap())));
    let code = if std::env::var_os(LIBRARY).is_some() {
        thread::spawn(|| run_in_this_process(args, None))
            .join()
            .unwrap()
    } else {
        let signals = Signals::block().unwrap();
        run_in_this_process(args, Some(&signals))
    };
    drop((terminal, ballast));
    std::process::exit(code);
}

fn run_in_this_process(args: Vec<OsString>, signals: Option<&Signals>) -> i32 {
    let guardian = Guardian::fork().unwrap();
    let lease = number_of(TTL).map(|ttl| hold_lease(Duration::from_millis(ttl)));
    let grace = Duration::from_millis(number_of(GRACE).unwrap());
    let mark = (OsString::from(MARK), std::env::var_os(MARK).unwrap());
    let path = std::env::var_os("PATH");
    let outcome = CommandLine::resolve(args, path.as_deref()).and_then(|command| {
        supervise(guardian, &command, &[mark], "job", lease, grace, signals).ended
    });
    match outcome {
        Ok(ended) => ended.exit_code(),
        Err(error) => {
            eprintln!("{error:#}");
            exit_code_of(&error, 0)
        }
    }
}

/// A lease as the thread that talks to the database keeps it.
fn hold_lease(ttl: Duration) -> Arc<LeaseState> {
    let interval = Duration::from_millis(100).min(ttl / 10);
    let timing = LeaseTiming {
        ttl,
        interval,
        kill_grace: Duration::from_millis(number_of(GRACE).unwrap()),
    };
    let term = LeaseTerm::begin(timing, BootInstant::now());
    let lease = Arc::new(LeaseState::new("job", "owner".into(), term));
    let renewed = Arc::clone(&lease);
    let renewals: u32 = number_of(RENEWALS).unwrap();
    let reject = std::env::var_os(REJECT).map(PathBuf::from);
    thread::spawn(move || {
        for _ in 0..renewals {
            thread::sleep(interval);
            if let Some(reject) = reject.as_deref().filter(|path| path.exists()) {
                renewed.rejected();
                let kill_at = renewed.deadlines().kill_at.since_boot().as_nanos();
                let _ = fs::write(reject.with_file_name(KILL_AT), kill_at.to_string());
                return;
            }
            renewed.renewed(BootInstant::now());
        }
    });
    lease
}
