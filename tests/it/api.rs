//! The public API, item by item with its type: what SemVer covers of the library.
//!
//! Nothing here is called. A change that would break a caller does not compile; a public item that is
//! not written down here fails the test at the end.

#[cfg(feature = "aio")]
mod aio;
mod complete;

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::{Duration, SystemTime};

use dislock::{
    Error, LEASE_LOST_EXIT_CODE, LeaseLock, LeaseLossPolicy, LeaseLost, LockContext,
    LockContextBuilder, LockPlan, LockSession, LockStrategy, Result, ScheduleLock, acquire_locks,
    build_locks, run_with_locks, with_locks,
};

/// What every public type can do: be sent, shared, kept and printed.
fn usual<T: Debug + Send + Sync + Unpin + 'static>() {}
fn cloned<T: Clone>() {}
fn compared<T: Copy + Eq + Hash>() {}
fn error<T: StdError + Display>() {}

#[test]
fn functions_and_constants() {
    const { assert!(LEASE_LOST_EXIT_CODE == 75) };
    let _: fn(&LockContext, &[LockStrategy]) -> Result<LockPlan> = build_locks;
    let _: fn(&LockContext, &[LockStrategy]) -> Result<LockSession> = acquire_locks;
    type Run<W> = fn(W, &LockContext, &[LockStrategy]) -> Result<i32>;
    let _: Run<[&'static str; 1]> = run_with_locks;
    let _: Run<Vec<String>> = run_with_locks;

    type Block<T, E> = fn(&LockSession) -> Result<T, E>;
    type Guarded<T, E> = fn(&LockContext, &[LockStrategy], Block<T, E>) -> Result<T, E>;
    let _: Guarded<u8, Error> = with_locks;
    let _: Guarded<(), Box<dyn StdError>> = with_locks;
}

#[test]
fn context() {
    usual::<LockContext>();
    cloned::<LockContext>();
    let _: fn(&'static str, String) -> LockContextBuilder = LockContext::builder;
    let _: fn(&LockContext) -> &str = LockContext::lock_key;
    let _: fn(&LockContext) -> &str = LockContext::owner;
    let _: fn(&LockContext) -> Duration = LockContext::ttl;
    let _: fn(&LockContext) -> Duration = LockContext::heartbeat_interval;
    let _: fn(&LockContext) -> LeaseLossPolicy = LockContext::lease_loss_policy;
}

#[test]
fn context_builder() {
    usual::<LockContextBuilder>();
    cloned::<LockContextBuilder>();
    type Setter<T> = fn(LockContextBuilder, T) -> LockContextBuilder;
    let _: Setter<&'static str> = LockContextBuilder::table;
    let _: Setter<String> = LockContextBuilder::owner;
    let _: Setter<SystemTime> = LockContextBuilder::next_run_time;
    let _: Setter<&'static str> = LockContextBuilder::schedule;
    let _: Setter<&'static str> = LockContextBuilder::timezone;
    let _: Setter<Duration> = LockContextBuilder::slot_tolerance;
    let _: Setter<Duration> = LockContextBuilder::ttl;
    let _: Setter<Duration> = LockContextBuilder::heartbeat_interval;
    let _: Setter<Duration> = LockContextBuilder::jitter_max;
    let _: Setter<LeaseLossPolicy> = LockContextBuilder::lease_loss_policy;
    let _: Setter<Duration> = LockContextBuilder::kill_grace;
    let _: Setter<Duration> = LockContextBuilder::wait;
    let _: Setter<Duration> = LockContextBuilder::connect_timeout;
    let _: fn(LockContextBuilder) -> Result<LockContext> = LockContextBuilder::build;
}

#[test]
fn choices() {
    usual::<LockStrategy>();
    compared::<LockStrategy>();
    let _: [LockStrategy; 2] = [LockStrategy::Schedule, LockStrategy::Lease];
    assert!(LockStrategy::Schedule < LockStrategy::Lease);

    usual::<LeaseLossPolicy>();
    compared::<LeaseLossPolicy>();
    let _: [LeaseLossPolicy; 2] = [LeaseLossPolicy::Terminate, LeaseLossPolicy::Continue];
    assert_eq!(LeaseLossPolicy::default(), LeaseLossPolicy::Terminate);
}

#[test]
fn errors() {
    usual::<Error>();
    error::<Error>();
    let _: fn(&Error) -> bool = Error::is_not_acquired;
    let _: fn(&Error) -> bool = Error::is_lease_lost;
    let _: fn(&Error) -> bool = Error::is_configuration;
    let _: fn(&Error) -> Option<&str> = Error::holder;
    let _: fn(&Error) -> Option<SystemTime> = Error::held_until;
}

#[test]
fn slot() {
    usual::<ScheduleLock>();
    let _: fn(&LockContext) -> Result<ScheduleLock> = ScheduleLock::acquire;
    let _: fn(&ScheduleLock) -> i64 = ScheduleLock::fencing_token;
    let _: fn(&ScheduleLock) -> Option<SystemTime> = ScheduleLock::until;
    let _: fn(ScheduleLock) -> Result<()> = ScheduleLock::give_back;
}

#[test]
fn lease() {
    usual::<LeaseLock>();
    let _: fn(&LockContext) -> Result<LeaseLock> = LeaseLock::acquire;
    let _: fn(&LeaseLock) -> i64 = LeaseLock::fencing_token;
    let _: fn(&LeaseLock) -> bool = LeaseLock::is_lost;
    let _: fn(&LeaseLock) -> Result<()> = LeaseLock::check;
    let _: fn(&LeaseLock) -> Option<LeaseLost> = LeaseLock::lease_lost;
    let _: fn(LeaseLock) -> Result<()> = LeaseLock::release;

    usual::<LeaseLost>();
    cloned::<LeaseLost>();
    let _: fn(&LeaseLost) -> bool = LeaseLost::is_lost;
    let _: fn(&LeaseLost) -> bool = LeaseLost::wait;
    let _: fn(&LeaseLost, Duration) -> bool = LeaseLost::wait_timeout;
}

#[test]
fn plan_and_session() {
    usual::<LockPlan>();
    let _: fn(&LockPlan) -> Vec<LockStrategy> = LockPlan::strategies;
    let _: fn(&LockPlan) -> Result<LockSession> = LockPlan::acquire;

    usual::<LockSession>();
    let _: fn(&LockSession) -> &str = LockSession::owner;
    let _: fn(&LockSession) -> i64 = LockSession::fencing_token;
    let _: fn(&LockSession) -> Option<&ScheduleLock> = LockSession::slot;
    let _: fn(&LockSession) -> bool = LockSession::is_lost;
    let _: fn(&LockSession) -> Result<()> = LockSession::check;
    let _: fn(&LockSession) -> Option<LeaseLost> = LockSession::lease_lost;
    let _: fn(LockSession) -> Result<()> = LockSession::release;
}
