//! A task in a Tokio service that runs on one host at a time, and is cancelled when its lease is lost.
//!
//! ```sh
//! scripts/with-postgres cargo run --features aio --example async_service
//! ```

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::time::Duration;

use dislock::aio::{self, LockSession};
use dislock::{LockContext, LockStrategy};
use tokio::time::{interval, timeout};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("DATABASE_URL")?;
    let ctx = LockContext::builder(url, "example-async")
        .ttl(Duration::from_secs(15))
        .wait(Duration::MAX)
        .build()?;

    // The end of a shutdown period, or a signal, would take the place of the timeout. Dropping the
    // future is enough: what it holds is released in the background.
    let one_term = aio::with_locks(&ctx, &[LockStrategy::Lease], compact);
    if timeout(Duration::from_secs(1), one_term).await.is_err() {
        println!("called off");
    }

    // Nothing stayed locked.
    let lease = aio::LeaseLock::acquire(&ctx).await?;
    println!("free again, term {}", lease.fencing_token());
    lease.release().await?;
    Ok(())
}

/// Runs until it is dropped: by the caller, or because the lease is lost.
async fn compact(session: &LockSession) -> dislock::Result<()> {
    let mut ticks = interval(Duration::from_millis(300));
    loop {
        ticks.tick().await;
        println!("compacting, term {}", session.fencing_token());
    }
}
