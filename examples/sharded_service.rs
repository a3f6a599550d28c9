//! A service whose instances share out many shards among themselves, one lease for each.
//!
//! ```sh
//! scripts/with-postgres cargo run --example sharded_service
//! ```
//!
//! However many leases an instance holds, it renews them over one connection, all that are due in one
//! statement. Two instances run in this process, one after the other leaves; in a service there is one
//! per process, and what is `claim` here is called every few seconds.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::collections::BTreeMap;
use std::env;

use dislock::{LeaseLock, LockContext};

const SHARDS: u32 = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("DATABASE_URL")?;
    let mut first = Instance::new(&url, "instance-1", 8);
    let mut second = Instance::new(&url, "instance-2", 8);

    first.claim()?;
    second.claim()?;
    first.serve();
    second.serve();

    // Whoever leaves releases its shards, and the next look of the others finds them.
    first.leave()?;
    second.claim()?;
    second.serve();
    second.leave()?;
    Ok(())
}

struct Instance {
    url: String,
    name: &'static str,
    /// Bounds what one instance takes, so that the first to start does not take everything.
    capacity: usize,
    shards: BTreeMap<u32, LeaseLock>,
}

impl Instance {
    fn new(url: &str, name: &'static str, capacity: usize) -> Self {
        Self {
            url: url.to_owned(),
            name,
            capacity,
            shards: BTreeMap::new(),
        }
    }

    /// Forgets the shards that are lost, and takes free ones while there is room.
    fn claim(&mut self) -> dislock::Result<()> {
        self.shards.retain(|_, lease| !lease.is_lost());
        for shard in 0..SHARDS {
            if self.shards.len() == self.capacity {
                break;
            }
            if self.shards.contains_key(&shard) {
                continue;
            }
            let ctx = LockContext::builder(self.url.as_str(), format!("example-shard-{shard}"))
                .owner(self.name)
                .build()?;
            match LeaseLock::acquire(&ctx) {
                Ok(lease) => {
                    self.shards.insert(shard, lease);
                }
                Err(busy) if busy.is_not_acquired() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Works on each shard that is still trusted.
    fn serve(&self) {
        let trusted = self.shards.iter().filter(|(_, lease)| !lease.is_lost());
        let shards: Vec<String> = trusted.map(|(shard, _)| shard.to_string()).collect();
        println!(
            "{} serves {:2} shards: {}",
            self.name,
            shards.len(),
            shards.join(" ")
        );
    }

    fn leave(&mut self) -> dislock::Result<()> {
        for (_, lease) in std::mem::take(&mut self.shards) {
            lease.release()?;
        }
        println!("{} has left", self.name);
        Ok(())
    }
}
