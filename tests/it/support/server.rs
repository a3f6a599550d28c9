//! PostgreSQL servers: one that all tests of the process share, and private ones to stop, restart,
//! freeze and misconfigure.
//!
//! Servers that the tests start are copies of one template, so that `initdb` runs once. They listen
//! on loopback and on a socket in their own directory, trust everybody, and do not sync to disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid, User};

use super::database::{Address, Database};
use super::port::Port;
use super::{home, processes};

/// Where most tests make their database: the server behind `TEST_DATABASE_URL`, else one that is
/// started at the first use and lives as long as the test process.
///
/// A test that breaks its server has to [`start`](Server::start) its own.
pub(crate) fn shared() -> &'static Address {
    static SHARED: OnceLock<(Address, Option<Server>)> = OnceLock::new();
    let (address, _) = SHARED.get_or_init(|| match std::env::var("TEST_DATABASE_URL") {
        Ok(url) => (Address::from_url(&url), None),
        Err(_) => {
            let server = Server::start();
            (server.address(), Some(server))
        }
    });
    address
}

/// How a server is stopped, in the words of `pg_ctl`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stop {
    /// Connections are ended, the data is written: a planned restart.
    Fast,
    /// As in a crash.
    Immediate,
}

/// A PostgreSQL server of a test's own, gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    dir: PathBuf,
    /// Its own also while it is stopped.
    port: Port,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with_settings("")
    }

    /// A server with these lines at the end of its `postgresql.conf`.
    pub(crate) fn with_settings(settings: &str) -> Self {
        let dir = home::new_dir("server");
        give_to_server_user(&dir);
        run_as_server(as_server("cp").arg("-R").args([&template(), &dir]), &dir);
        let port = Port::new();
        let server = Self { dir, port };
        server.configure(settings);
        server.resume();
        server
    }

    pub(crate) fn address(&self) -> Address {
        Address::local(self.port())
    }

    /// The directory of the server's socket.
    pub(crate) fn socket_dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// A new database on this server, with the table.
    pub(crate) fn database(&self) -> Database {
        Database::on(&self.address())
    }

    /// Stops the server, until [`resume`](Self::resume).
    pub(crate) fn stop(&self, how: Stop) {
        assert!(self.try_stop(how), "{}", self.log());
    }

    /// Starts the server again after [`stop`](Self::stop).
    pub(crate) fn resume(&self) {
        assert!(self.try_resume(), "{}", self.log());
    }

    pub(crate) fn restart(&self, how: Stop) {
        self.stop(how);
        self.resume();
    }

    /// Restarts the server as a hot standby without a primary: it answers, and writes nothing.
    pub(crate) fn become_standby(&self) {
        self.stop(Stop::Fast);
        fs::write(self.data().join("standby.signal"), "").expect("write standby.signal");
        self.resume();
    }

    /// Another server that follows this one, until it is [promoted](Self::promote). This one is
    /// restarted on the way.
    pub(crate) fn start_replica(&self) -> Self {
        self.stop(Stop::Fast);
        let dir = home::new_dir("replica");
        give_to_server_user(&dir);
        run_as_server(as_server("cp").arg("-R").args([&self.data(), &dir]), &dir);
        self.resume();
        let port = Port::new();
        let replica = Self { dir, port };
        replica.configure(&format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres'",
            self.port()
        ));
        fs::write(replica.data().join("standby.signal"), "").expect("write standby.signal");
        replica.resume();
        replica
    }

    /// Makes a replica a server of its own.
    pub(crate) fn promote(&self) {
        let output = self.pg_ctl().arg("promote").output().expect("run pg_ctl");
        assert!(output.status.success(), "{}", self.log());
    }

    /// Gives the server a certificate, from the next start on.
    pub(crate) fn identify(&self, certificate: &str, key: &str) {
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            let file = self.data().join(name);
            fs::write(&file, content).expect("write a file of TLS");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
            give_to_server_user(&file);
        }
        self.configure("ssl = on");
    }

    /// Puts `lines` in front of the host-based authentication rules.
    pub(crate) fn authenticate(&self, lines: &str) {
        let file = self.data().join("pg_hba.conf");
        let rules = fs::read_to_string(&file).expect("read pg_hba.conf");
        fs::write(&file, format!("{lines}\n{rules}")).expect("write pg_hba.conf");
        self.address().sql("SELECT pg_reload_conf()");
    }

    /// Adds lines to the settings; they count from the next start.
    pub(crate) fn configure(&self, settings: &str) {
        let file = self.data().join("postgresql.conf");
        let before = fs::read_to_string(&file).expect("read postgresql.conf");
        fs::write(&file, format!("{before}\n{settings}\n")).expect("write postgresql.conf");
    }

    /// The server processes of the connections that call themselves `application`.
    pub(crate) fn backends(&self, application: &str) -> Vec<Pid> {
        let rows = self.address().sql(&format!(
            "SELECT pid FROM pg_stat_activity WHERE application_name = '{application}'"
        ));
        rows.into_iter()
            .map(|row| Pid::from_raw(row[0].as_deref().expect("a pid").parse().expect("a pid")))
            .collect()
    }

    /// Stops those processes in their tracks: their connections stay open, and nothing is answered.
    pub(crate) fn freeze(&self, application: &str) -> Frozen {
        let backends = self.backends(application);
        assert!(!backends.is_empty(), "no connection of {application}");
        processes::signal_all(&backends, Signal::SIGSTOP);
        Frozen(backends)
    }

    /// Ends those connections, as an administrator does.
    pub(crate) fn terminate(&self, application: &str) {
        self.address().sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = '{application}'"
        ));
    }

    /// What the server and `pg_ctl` wrote.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn pg_ctl(&self) -> Command {
        let mut pg_ctl = as_server(bindir().join("pg_ctl"));
        pg_ctl.arg("-D").arg(self.data()).args(["-t", "60", "-w"]);
        pg_ctl
    }

    fn try_resume(&self) -> bool {
        let options = format!("-p {} -k {}", self.port(), self.dir.display());
        let mut pg_ctl = self.pg_ctl();
        pg_ctl.arg("-l").arg(self.dir.join("log"));
        // No pipe: the server would hold it open.
        let status = pg_ctl
            .args(["-o", &options, "start"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.expect("run pg_ctl").success()
    }

    fn try_stop(&self, how: Stop) -> bool {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let output = self.pg_ctl().args(["-m", mode, "stop"]).output();
        output.expect("run pg_ctl").status.success()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.try_stop(Stop::Immediate);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Server processes that stand still until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Frozen(Vec<Pid>);

impl Drop for Frozen {
    fn drop(&mut self) {
        processes::signal_all(&self.0, Signal::SIGCONT);
    }
}

/// The data directory that every server starts from.
fn template() -> PathBuf {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    let data = TEMPLATE.get_or_init(|| {
        let dir = home::new_dir("template");
        give_to_server_user(&dir);
        let data = dir.join("data");
        let mut initdb = as_server(bindir().join("initdb"));
        initdb.arg("-D").arg(&data);
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        run_as_server(initdb.args(["--no-locale", "--no-sync"]), &dir);
        let mut settings = fs::read_to_string(data.join("postgresql.conf")).expect("settings");
        settings.push_str("listen_addresses = '127.0.0.1'\nmax_connections = 200\nfsync = off\n");
        settings.push_str("full_page_writes = off\nshared_buffers = 16MB\n");
        // Servers before 14 would store what SCRAM cannot use.
        settings.push_str("password_encryption = 'scram-sha-256'\n");
        fs::write(data.join("postgresql.conf"), settings).expect("write the settings");
        data
    });
    data.clone()
}

fn run_as_server(command: &mut Command, dir: &Path) {
    let output = command.output().expect("run a program of the server");
    assert!(
        output.status.success(),
        "{command:?} in {}: {}",
        dir.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program run as the server's user, with a clean environment.
fn as_server(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env_clear().envs([
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LC_ALL", "C"),
        ("TZ", "UTC"),
    ]);
    if let Some((uid, gid)) = server_user() {
        command.uid(uid.as_raw()).gid(gid.as_raw());
    }
    command.stdin(Stdio::null());
    command
}

fn give_to_server_user(dir: &Path) {
    if let Some((uid, gid)) = server_user() {
        std::os::unix::fs::chown(dir, Some(uid.as_raw()), Some(gid.as_raw())).expect("chown");
    }
}

/// Who runs the servers when the tests run as root, as which PostgreSQL refuses to run.
fn server_user() -> Option<(Uid, Gid)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let user = ["postgres", "nobody"]
        .iter()
        .find_map(|name| User::from_name(name).ok().flatten())
        .expect("a user postgres or nobody");
    Some((user.uid, user.gid))
}

/// The directory of `initdb`, `pg_ctl` and `postgres`: that of the server that `scripts/with-postgres`
/// runs, else what PATH has, else the newest of the places where the script looks, too.
fn bindir() -> &'static Path {
    static BINDIR: OnceLock<PathBuf> = OnceLock::new();
    BINDIR.get_or_init(|| {
        let chosen = std::env::var_os("TEST_POSTGRES_BINDIR").map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).filter_map(|dir| {
            fs::canonicalize(dir.join("initdb"))
                .ok()?
                .parent()
                .map(Path::to_path_buf)
        });
        let mut usual: Vec<PathBuf> = [
            ("/usr/lib/postgresql", "bin"),
            ("/usr", "bin"),
            ("/usr/libexec", ""),
            ("/opt/homebrew/opt", "bin"),
            ("/usr/local/opt", "bin"),
        ]
        .into_iter()
        .flat_map(|(parent, bin)| {
            let entries = fs::read_dir(parent).into_iter().flatten().flatten();
            entries.map(move |entry| entry.path().join(bin))
        })
        .chain(["/usr/local/pgsql/bin".into()])
        .collect();
        usual.sort_by_key(|dir| std::cmp::Reverse(version(dir)));
        chosen
            .into_iter()
            .chain(on_path)
            .chain(usual)
            .find(|dir| {
                ["initdb", "pg_ctl", "postgres"]
                    .iter()
                    .all(|p| dir.join(p).exists())
            })
            .expect(
                "PostgreSQL server programs (initdb, pg_ctl, postgres): \
                 `scripts/with-postgres cargo test` installs them or says how",
            )
    })
}

/// The major version in a directory's name, as in `/usr/lib/postgresql/15/bin` and `postgresql@17`.
fn version(dir: &Path) -> u32 {
    let name = dir.to_string_lossy();
    let digits: String = name
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}
