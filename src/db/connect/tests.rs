#![cfg(feature = "tls")]

mod certificates;
mod server;
mod table;
