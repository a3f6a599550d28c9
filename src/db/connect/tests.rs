#![cfg(feature = "tls")]

mod certificates;
mod files;
mod peers;
mod search;
mod server;
mod table;

use std::path::Path;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::error::Chain;
use super::{ConnectError, Connection, connect};
use crate::db::conninfo::Conninfo;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn resolve(target: &str, home: &Path) -> Conninfo {
    let environment = |name: &str| (name == "HOME").then(|| home.into());
    Conninfo::resolve(target, &environment).unwrap_or_else(|e| panic!("{target}: {e}"))
}

/// Connects within this time, with nothing at home.
async fn connect_within(target: &str, limit: Duration) -> Result<Connection, ConnectError> {
    let target = resolve(target, Path::new("/nonexistent"));
    connect(&target, Instant::now() + limit).await
}

const AMPLE: Duration = Duration::from_secs(20);

/// Waits for something that another thread or process is about to do.
fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !happened() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn chain(error: &ConnectError) -> String {
    Chain(error).to_string()
}
