//! A worker of which exactly one runs, on whatever host; the others stand by and take over.
//!
//! ```sh
//! scripts/with-postgres cargo run --example singleton_worker
//! ```
//!
//! Two threads stand for two hosts here. In a service, `serve` is what its `main` calls, on every host.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it shows what happens"
)]

use std::time::Duration;
use std::{env, thread};

use dislock::{LockContext, LockSession, LockStrategy, with_locks};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("DATABASE_URL")?;
    let hosts = ["host-a", "host-b"].map(|host| {
        let url = url.clone();
        thread::spawn(move || serve(url, host))
    });
    for host in hosts {
        host.join().map_err(|_| "a host panicked")??;
    }
    Ok(())
}

fn serve(url: String, host: &'static str) -> dislock::Result<()> {
    let ctx = LockContext::builder(url, "example-singleton")
        .owner(host)
        // A host that dies without a word is replaced after this long.
        .ttl(Duration::from_secs(15))
        .wait(Duration::MAX)
        .build()?;
    loop {
        println!("{host}: standing by");
        match with_locks(&ctx, &[LockStrategy::Lease], |session| work(host, session)) {
            // Somebody else may be at work by now: back into the queue.
            Err(error) if error.is_lease_lost() => eprintln!("{host}: {error}"),
            ended => return ended,
        }
    }
}

/// A real one would go on for ever; this one resigns, so that the other is seen to take over.
fn work(host: &str, session: &LockSession) -> dislock::Result<()> {
    for item in 1..=3 {
        // Between any two steps that must not be done twice.
        session.check()?;
        println!("{host}: item {item}, term {}", session.fencing_token());
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
