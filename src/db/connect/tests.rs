mod certificates;
mod server;
mod table;
