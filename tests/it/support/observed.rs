//! A server of its own behind a proxy, so that the round trips can be counted and told apart.

use super::database::Database;
use super::proxy::Proxy;
use super::server::Server;

pub(crate) struct Observed {
    pub(crate) proxy: Proxy,
    pub(crate) database: Database,
    _server: Server,
}

impl Observed {
    /// A server that trusts everybody: the shared one may ask for a password.
    pub(crate) fn new() -> Self {
        let server = Server::start();
        let database = server.database();
        Self {
            proxy: database.proxy(),
            database,
            _server: server,
        }
    }

    /// The way through the proxy, without the question whether the server knows TLS.
    pub(crate) fn url(&self) -> String {
        self.database.url_via(&self.proxy) + "?sslmode=disable"
    }
}
