//! A database per test, with the table in it, and SQL from outside: what another host would see.

use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use tokio_postgres::{Client, Config, Error, NoTls, SimpleQueryMessage};

use super::proxy::Proxy;
use super::server;
use super::wait::eventually;

/// The table, as users create it.
pub(crate) const SCHEMA: &str = include_str!("../../../schema.sql");

/// Rows of text, as they come over the simple protocol.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// Where a server listens, and as whom the tests log in: somebody who may do everything.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    user: String,
    password: Option<String>,
}

impl Address {
    pub(crate) fn local(port: u16) -> Self {
        Self {
            host: "127.0.0.1".into(),
            port,
            user: "postgres".into(),
            password: None,
        }
    }

    pub(crate) fn from_url(url: &str) -> Self {
        let config: Config = url.parse().expect("TEST_DATABASE_URL is no connection URL");
        let host = match config.get_hosts() {
            [tokio_postgres::config::Host::Tcp(host)] => host.clone(),
            _ => panic!("TEST_DATABASE_URL must name one host"),
        };
        let password = config.get_password();
        Self {
            host,
            port: config.get_ports().first().copied().unwrap_or(5432),
            user: config.get_user().unwrap_or("postgres").into(),
            password: password.map(|p| String::from_utf8_lossy(p).into_owned()),
        }
    }

    /// Runs statements in the server's own database.
    pub(crate) fn sql(&self, statements: &str) -> Rows {
        self.session("postgres").sql(statements)
    }

    /// A connection to one of the server's databases.
    pub(crate) fn session(&self, database: &str) -> Session {
        Session::open(&self.config(database)).expect("connect")
    }

    fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host(&self.host).port(self.port).user(&self.user);
        if let Some(password) = &self.password {
            config.password(password);
        }
        config.dbname(database).application_name("the tests");
        config
    }
}

/// A lock row as another host sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) value: String,
    /// Until it expires, by the database's clock: negative when it has, infinite when it never does.
    pub(crate) seconds_left: f64,
}

/// A database of a test's own, dropped with this; so are the roles made for it.
#[derive(Debug)]
pub(crate) struct Database {
    address: Address,
    name: String,
    roles: Mutex<Vec<String>>,
}

impl Database {
    /// A new database with the table, on the [shared](server::shared) server.
    pub(crate) fn new() -> Self {
        Self::on(server::shared())
    }

    /// A new database with the table.
    pub(crate) fn on(address: &Address) -> Self {
        let database = Self::empty_on(address);
        database.sql(SCHEMA);
        database
    }

    /// A new database without the table, on the [shared](server::shared) server.
    pub(crate) fn empty() -> Self {
        Self::empty_on(server::shared())
    }

    fn empty_on(address: &Address) -> Self {
        let name = unique("dislock_test");
        address.sql(&format!("CREATE DATABASE {name}"));
        Self {
            address: address.clone(),
            name,
            roles: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its server listens.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// What to put into `DATABASE_URL`.
    pub(crate) fn url(&self) -> String {
        self.url_at(&self.address.host, self.address.port)
    }

    /// The same database through a proxy.
    pub(crate) fn url_via(&self, proxy: &Proxy) -> String {
        self.url_at("127.0.0.1", proxy.port())
    }

    /// The same database as another user.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        let Address { host, port, .. } = &self.address;
        format!("postgresql://{user}:{password}@{host}:{port}/{}", self.name)
    }

    fn url_at(&self, host: &str, port: u16) -> String {
        let Address { user, password, .. } = &self.address;
        let password = password.as_ref().map(|p| format!(":{p}"));
        let login = format!("{user}{}", password.unwrap_or_default());
        format!("postgresql://{login}@{host}:{port}/{}", self.name)
    }

    /// The way to this database's server, to fail on demand.
    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::to(&self.address.host, self.address.port)
    }

    /// A role with these attributes (`LOGIN PASSWORD 'x'`); no right on the table.
    pub(crate) fn role(&self, attributes: &str) -> String {
        let name = unique("dislock_role");
        self.sql(&format!("CREATE ROLE {name} {attributes}"));
        self.roles.lock().expect("unpoisoned").push(name.clone());
        name
    }

    /// Runs statements, all in one transaction.
    pub(crate) fn sql(&self, statements: &str) -> Rows {
        self.session().sql(statements)
    }

    /// The only value of the only row.
    pub(crate) fn value(&self, query: &str) -> String {
        let rows = self.sql(query);
        match &rows[..] {
            [row] => row[0].clone().expect("not null"),
            _ => panic!("{query}: {} rows", rows.len()),
        }
    }

    /// A row of the table `key_value`.
    pub(crate) fn row(&self, key: &str) -> Option<Row> {
        let rows = self.sql(&format!(
            "SELECT value, extract(epoch FROM expire_at) - extract(epoch FROM clock_timestamp()) \
             FROM key_value WHERE key = '{key}'"
        ));
        let row = rows.first()?;
        let column = |n: usize| row[n].clone().expect("not null");
        Some(Row {
            value: column(0),
            seconds_left: column(1).parse().expect("a number"),
        })
    }

    /// The lease row of the lock key that [`run`](super::run) uses.
    pub(crate) fn lease(&self) -> Option<Row> {
        self.row("cronjob-lock:lease:job")
    }

    /// The schedule row of the lock key that [`run`](super::run) uses.
    pub(crate) fn slot(&self) -> Option<Row> {
        self.row("cronjob-lock:schedule:job")
    }

    /// How many rows the table has: 0 while nothing was ever acquired.
    pub(crate) fn rows(&self) -> usize {
        self.sql("SELECT key FROM key_value").len()
    }

    /// Puts somebody's row there, live for so many seconds (dead for negative ones).
    pub(crate) fn put(&self, key: &str, value: &str, seconds: f64) {
        self.sql(&format!(
            "INSERT INTO key_value VALUES ('{key}', '{value}', now() + interval '{seconds} s') \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value, expire_at = excluded.expire_at"
        ));
    }

    /// Waits until the rows are alive past the instant at which they would now expire: renewals go on.
    #[track_caller]
    pub(crate) fn wait_until_they_outlive_their_expiry(&self, keys: &[&str]) {
        let expiry = |key| {
            self.value(&format!(
                "SELECT expire_at FROM key_value WHERE key = '{key}'"
            ))
        };
        for (key, expiry) in keys.iter().map(|key| (key, expiry(key))) {
            let over = format!("SELECT now() > '{expiry}'");
            eventually("the time of the row is over", || self.value(&over) == "t");
            let row = self.row(key);
            assert!(
                row.as_ref().is_some_and(|row| row.seconds_left > 0.0),
                "{key}: {row:?}"
            );
        }
    }

    /// A connection that stays, for a transaction that stays open.
    pub(crate) fn session(&self) -> Session {
        self.address.session(&self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may be gone, and then so is the database.
        let Ok(mut session) = Session::open(&self.address.config("postgres")) else {
            return;
        };
        // What `WITH (FORCE)` does in one statement since PostgreSQL 13.
        let _ = session.try_sql(&format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS false; \
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'",
            name = self.name
        ));
        let _ = session.try_sql(&format!("DROP DATABASE {}", self.name));
        for role in self.roles.get_mut().expect("unpoisoned").iter() {
            let _ = session.try_sql(&format!("DROP ROLE {role}"));
        }
    }
}

/// One connection. Its task runs only while a statement does.
pub(crate) struct Session {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

impl Session {
    fn open(config: &Config) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("start a runtime");
        let client = runtime.block_on(bounded(async {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            Ok(client)
        }))?;
        Ok(Self { runtime, client })
    }

    pub(crate) fn sql(&mut self, statements: &str) -> Rows {
        self.try_sql(statements)
            .unwrap_or_else(|e| panic!("{statements}: {e:?}"))
    }

    pub(crate) fn try_sql(&mut self, statements: &str) -> Result<Rows, Error> {
        let messages = self
            .runtime
            .block_on(bounded(self.client.simple_query(statements)))?;
        let rows = messages.iter().filter_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            Some(
                (0..row.len())
                    .map(|n| row.get(n).map(String::from))
                    .collect(),
            )
        });
        Ok(rows.collect())
    }
}

/// Panics where the server does not answer, so that no test hangs.
async fn bounded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("the server does not answer")
}

fn unique(prefix: &str) -> String {
    format!("{prefix}_{:016x}", rand::random::<u64>())
}
