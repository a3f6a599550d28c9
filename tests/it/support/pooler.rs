//! A connection pooler between dislock and a server.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::database::{Address, Database, Rows};
use super::home;
use super::port::Port;
use super::server::Server;
use super::wait::eventually;

/// A PgBouncer that hands a server connection on after each transaction, and has just one.
pub(crate) struct Pooler {
    process: Child,
    port: Port,
    directory: PathBuf,
}

impl Pooler {
    pub(crate) fn start(server: &Server) -> Self {
        let program = [
            "/usr/sbin/pgbouncer",
            "/usr/bin/pgbouncer",
            "/usr/local/bin/pgbouncer",
            "/opt/homebrew/bin/pgbouncer",
        ]
        .into_iter()
        .find(|program| Path::new(program).exists())
        .expect("this test needs PgBouncer: run `sudo apt-get install pgbouncer`, or its like");
        let directory = home::new_dir("pooler");
        let owner = fs::metadata(server.socket_dir()).expect("whose the server is");
        let (uid, gid) = (owner.uid(), owner.gid());
        std::os::unix::fs::chown(&directory, Some(uid), Some(gid)).expect("chown");
        let reserved = Port::new();
        let port = reserved.number();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres pool_size=1\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\nlogfile = {}/log\n",
            server.port(),
            directory.display()
        );
        let file = directory.join("settings");
        fs::write(&file, settings).expect("write the pooler's settings");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("chmod");
        let mut command = Command::new(program);
        command
            .arg("-q")
            .arg(file)
            .env(home::RUN_MARK, format!("{}/", directory.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if nix::unistd::geteuid().is_root() {
            command.uid(uid).gid(gid);
        }
        let process = command.spawn().expect("start the pooler");
        eventually("the pooler listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self {
            process,
            port: reserved,
            directory,
        }
    }

    /// What to put into `DATABASE_URL`, for a database of the pooler's server.
    pub(crate) fn url(&self, database: &Database) -> String {
        let (port, name) = (self.port.number(), database.name());
        format!("postgresql://postgres@127.0.0.1:{port}/{name}")
    }

    /// Runs statements over the one connection that the pooler has to the server.
    pub(crate) fn sql(&self, database: &Database, statements: &str) -> Rows {
        let address = Address::local(self.port.number());
        address.session(database.name()).sql(statements)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
