//! The whole run: find the program, take the locks, supervise, release.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::time::Duration;

use jiff::Timestamp;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::supervise::{Supervised, supervise};
use super::{CommandLine, Guardian, Signals};
use crate::clock::BootInstant;
use crate::context::{LockContext, LockStrategy};
use crate::error::{Error, Result};
use crate::rules::outcome::{Ended, LEASE_LOST_EXIT_CODE};
use crate::sync::{LockSession, ScheduleLock, build_locks, close_all};

/// For closing connections, which nobody needs to wait for.
const GOODBYE: Duration = Duration::from_millis(500);

/// Runs `command` while the locks are held, and answers its exit code as a shell would see it: its
/// own, 128 + n when signal n killed it, [`LEASE_LOST_EXIT_CODE`] when it was stopped because its
/// lease was lost.
///
/// The command sees `DISLOCK_KEY`, `DISLOCK_OWNER` and `DISLOCK_FENCING_TOKEN` in its environment.
/// When the lease is lost, or the calling process is killed, the whole tree of processes below the
/// command is stopped before another holder can take the lease. The calling process's own signal
/// handlers and masks are left alone, and its signals are not forwarded. May be called from any
/// thread.
///
/// ```no_run
/// use dislock::{LEASE_LOST_EXIT_CODE, LockContext, LockStrategy, run_with_locks};
///
/// # fn main() -> Result<(), dislock::Error> {
/// let ctx = LockContext::builder("postgresql://app@db/app", "worker").build()?;
/// match run_with_locks(["python3", "worker.py"], &ctx, &[LockStrategy::Lease])? {
///     0 => println!("done"),
///     LEASE_LOST_EXIT_CODE => println!("stopped: the lease was lost"),
///     code => println!("failed with {code}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`acquire_locks`](crate::acquire_locks), and when the command cannot be found or
/// executed: what was locked for it is given back then, a slot too.
pub fn run_with_locks<S: AsRef<OsStr>>(
    command: impl IntoIterator<Item = S>,
    ctx: &LockContext,
    strategies: &[LockStrategy],
) -> Result<i32> {
    let command: Vec<OsString> = command
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect();
    let guardian = fork_guardian()?;
    run(command, ctx, strategies, guardian, None)
}

/// Forks the guardian of the next run.
pub(crate) fn fork_guardian() -> Result<Guardian> {
    Guardian::fork().map_err(|why| Error::system("cannot start the guardian process", why))
}

/// [`run_with_locks`] with a guardian that was forked before, and with the signals that the command
/// is to get; before it runs, one that asks for the end ends the run.
pub(crate) fn run(
    command: Vec<OsString>,
    ctx: &LockContext,
    strategies: &[LockStrategy],
    guardian: Guardian,
    signals: Option<&Signals>,
) -> Result<i32> {
    let outcome = run_locked(command, ctx, strategies, guardian, signals);
    if signals.is_some() {
        // The program is about to end.
        close_all(GOODBYE);
    }
    outcome
}

fn run_locked(
    command: Vec<OsString>,
    ctx: &LockContext,
    strategies: &[LockStrategy],
    guardian: Guardian,
    signals: Option<&Signals>,
) -> Result<i32> {
    let plan = build_locks(ctx, strategies)?;
    let path = std::env::var_os("PATH");
    let command = CommandLine::resolve(command, path.as_deref())?;
    let failed = |why| Error::system("cannot wait for the locks", why);
    let (done, done_sender) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    let pending = plan.start(ctx.settings().jitter_max, done_sender)?;
    if let Some(Err(interrupted)) = signals.map(|signals| signals.wait_for(done.as_fd())) {
        pending.cancel();
        return Err(interrupted);
    }
    let session = pending.wait()?;
    let environment = [
        ("DISLOCK_KEY", ctx.lock_key().to_owned()),
        ("DISLOCK_OWNER", session.owner().to_owned()),
        ("DISLOCK_FENCING_TOKEN", session.fencing_token().to_string()),
    ]
    .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let slot_until = session.slot().and_then(ScheduleLock::until);
    log::info!(
        event = "lock_acquired",
        key = ctx.lock_key(),
        owner = session.owner(),
        token = session.fencing_token(),
        slot_until = slot_until.and_then(|at| Timestamp::try_from(at).ok()).map(|at| at.to_string());
        "locked {} as {}", ctx.lock_key(), session.owner()
    );
    let started = BootInstant::now();
    let grace = ctx.settings().timing.kill_grace;
    let supervised = supervise(
        guardian,
        &command,
        &environment,
        ctx.lock_key(),
        session.limit(),
        grace,
        signals,
    );
    finish(ctx, session, supervised, started)
}

/// Releases what was taken; what the run came to decides how.
fn finish(
    ctx: &LockContext,
    session: LockSession,
    supervised: Supervised,
    started: BootInstant,
) -> Result<i32> {
    let Supervised { ended, ran, status } = supervised;
    let duration = BootInstant::now().left(started);
    let (key, owner, token) = (
        ctx.lock_key(),
        session.owner().to_owned(),
        session.fencing_token(),
    );
    if let Some(status) = status {
        let (exit_code, duration_seconds) =
            (Ended::from(status).exit_code(), duration.as_secs_f64());
        log::info!(
            event = "command_ended", key, owner, token, exit_code, duration_seconds;
            "the command ended with exit code {exit_code}"
        );
    }
    let has_lease = session.has_lease() && !session.is_lost();
    let released = match ran {
        true => session.release(),
        false => session.give_back(),
    };
    let lost = released.as_ref().is_err_and(Error::is_lease_lost);
    match released {
        // A slot alone stays taken.
        Ok(()) if !ran || has_lease => {
            log::info!(event = "lock_released", key, owner, token; "released {key}");
        }
        Ok(()) => {}
        Err(error) if lost => {
            let exit_code = LEASE_LOST_EXIT_CODE;
            log::error!(event = "run_failed", key, owner, token, exit_code; "{error:#}");
        }
        Err(error) => {
            log::warn!(event = "release_failed", key, owner, token; "{error:#}");
        }
    }
    let ended = ended?;
    if lost {
        // Perhaps at the last moment: the command's own success would be taken for a clean one.
        return Ok(LEASE_LOST_EXIT_CODE);
    }
    Ok(ended.exit_code())
}
