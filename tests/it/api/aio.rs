//! The async twin's. Its futures can be sent, so that they may be spawned.

use std::time::{Duration, SystemTime};

use dislock::aio::{
    LeaseLock, LeaseLost, LockPlan, LockSession, ScheduleLock, acquire_locks, build_locks,
    run_with_locks, with_locks,
};
use dislock::{Error, LockContext, LockStrategy, Result};

use super::{cloned, usual};

/// A future of `T` that can be spawned.
fn gives<T>(_: impl Future<Output = T> + Send) {}

#[test]
fn functions() {
    type With<T> = fn(&LockContext, &[LockStrategy], T);
    let _: fn(&LockContext, &[LockStrategy]) -> Result<LockPlan> = build_locks;
    let _: With<()> = |ctx, s, ()| gives::<Result<LockSession>>(acquire_locks(ctx, s));
    let _: With<[&str; 1]> = |ctx, s, words| gives::<Result<i32>>(run_with_locks(words, ctx, s));

    async fn block(_: &LockSession) -> Result<u8> {
        Ok(0)
    }
    let _: With<()> = |ctx, s, ()| gives::<Result<u8, Error>>(with_locks(ctx, s, block));
    let _: With<()> = |ctx, s, ()| gives::<Result<u8, Error>>(with_locks(ctx, s, async |_| Ok(0)));
}

#[test]
fn slot() {
    usual::<ScheduleLock>();
    let _: fn(&LockContext) = |ctx| gives::<Result<ScheduleLock>>(ScheduleLock::acquire(ctx));
    let _: fn(&ScheduleLock) -> i64 = ScheduleLock::fencing_token;
    let _: fn(&ScheduleLock) -> Option<SystemTime> = ScheduleLock::until;
    let _: fn(ScheduleLock) = |slot| gives::<Result<()>>(ScheduleLock::give_back(slot));
}

#[test]
fn lease() {
    usual::<LeaseLock>();
    let _: fn(&LockContext) = |ctx| gives::<Result<LeaseLock>>(LeaseLock::acquire(ctx));
    let _: fn(&LeaseLock) -> i64 = LeaseLock::fencing_token;
    let _: fn(&LeaseLock) -> bool = LeaseLock::is_lost;
    let _: fn(&LeaseLock) -> Result<()> = LeaseLock::check;
    let _: fn(&LeaseLock) -> Option<LeaseLost> = LeaseLock::lease_lost;
    let _: fn(LeaseLock) = |lease| gives::<Result<()>>(LeaseLock::release(lease));

    usual::<LeaseLost>();
    cloned::<LeaseLost>();
    let _: fn(&LeaseLost) -> bool = LeaseLost::is_lost;
    let _: fn(&LeaseLost) = |lost| gives::<bool>(LeaseLost::wait(lost));
    let _: fn(&LeaseLost, Duration) = |lost, t| gives::<bool>(LeaseLost::wait_timeout(lost, t));
    let _: fn(LeaseLost) = |lost| gives::<bool>(lost.into_future());
}

#[test]
fn plan_and_session() {
    usual::<LockPlan>();
    let _: fn(&LockPlan) -> Vec<LockStrategy> = LockPlan::strategies;
    let _: fn(&LockPlan) = |plan| gives::<Result<LockSession>>(LockPlan::acquire(plan));

    usual::<LockSession>();
    let _: fn(&LockSession) -> &str = LockSession::owner;
    let _: fn(&LockSession) -> i64 = LockSession::fencing_token;
    let _: fn(&LockSession) -> Option<&ScheduleLock> = LockSession::slot;
    let _: fn(&LockSession) -> bool = LockSession::is_lost;
    let _: fn(&LockSession) -> Result<()> = LockSession::check;
    let _: fn(&LockSession) -> Option<LeaseLost> = LockSession::lease_lost;
    let _: fn(LockSession) = |session| gives::<Result<()>>(LockSession::release(session));
}
