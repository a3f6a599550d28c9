//! Children of a fork, for tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use fork::Fork;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, Uid, alarm, setuid};

/// A child that hangs ends after this time.
const LIMIT: Duration = Duration::from_secs(20);

const PANICKED: i32 = 101;

/// What `child` answers in a copy of this process; 101 if it panics.
#[expect(clippy::exit, reason = "the child must not go on with the tests")]
pub(crate) fn in_child(child: impl FnOnce() -> u8) -> u8 {
    let pid = match fork::fork().unwrap() {
        Fork::Parent(pid) => Pid::from_raw(pid),
        Fork::Child => {
            alarm::set(LIMIT.as_secs().try_into().unwrap());
            let answer = catch_unwind(AssertUnwindSafe(child));
            std::process::exit(answer.map_or(PANICKED, i32::from));
        }
    };
    let WaitStatus::Exited(_, answer) = waitpid(pid, None).unwrap() else {
        panic!("the child was killed");
    };
    answer.try_into().unwrap()
}

/// From here on this process can start no thread.
pub(crate) fn allow_no_threads() {
    if Uid::current().is_root() {
        // The limit does not hold for root.
        setuid(Uid::from_raw(65534)).unwrap();
    }
    setrlimit(Resource::RLIMIT_NPROC, 0, 0).unwrap();
    thread::Builder::new().spawn(|| ()).unwrap_err();
}
