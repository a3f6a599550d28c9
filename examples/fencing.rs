//! A table that refuses the writes of a holder that does not know yet that it was replaced.
//!
//! ```sh
//! scripts/with-postgres cargo run --features aio --example fencing
//! ```
//!
//! No lock can stop a machine that was paused (a VM, a laptop) from finishing the statement that it was
//! about to send. The table can: it keeps the fencing token of the last write beside the data.

#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::env;
use std::error::Error;

use dislock::LockContext;
use dislock::aio::LeaseLock;
use tokio_postgres::{Client, NoTls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("DATABASE_URL")?;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(
            "CREATE TEMPORARY TABLE report (id int PRIMARY KEY, body text, token bigint);
             INSERT INTO report VALUES (1, 'empty', 0)",
        )
        .await?;

    let ctx = LockContext::builder(url, "example-fencing").build()?;
    let paused = LeaseLock::acquire(&ctx).await?;
    let old = paused.fencing_token();
    // Stands for a machine that sleeps past its TTL: the row is free, and another host takes it.
    paused.release().await?;
    let successor = LeaseLock::acquire(&ctx).await?;
    let new = successor.fencing_token();

    println!("token {new} writes: {}", write(&client, "new", new).await?);
    println!("token {old} writes: {}", write(&client, "old", old).await?);
    let row = client
        .query_one("SELECT body FROM report WHERE id = 1", &[])
        .await?;
    println!("the report is {:?}", row.get::<_, &str>(0));

    successor.release().await?;
    Ok(())
}

/// Writes the report unless somebody with a larger token did.
async fn write(client: &Client, body: &str, token: i64) -> Result<&'static str, Box<dyn Error>> {
    let rows = client
        .execute(
            "UPDATE report SET body = $1, token = $2 WHERE id = 1 AND token <= $2",
            &[&body, &token],
        )
        .await?;
    Ok(if rows == 1 { "done" } else { "refused" })
}
