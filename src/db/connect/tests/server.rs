//! A private PostgreSQL server in a temporary directory, with TLS, gone when it is dropped.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::unistd::User;

use super::certificates::Identity;
use super::eventually;

pub(super) struct Server {
    /// Stops the server and removes its directory when this process is gone, however it went.
    keeper: Option<Child>,
    directory: tempfile::TempDir,
    pub(super) port: u16,
    account: Option<User>,
}

/// Read last, so that it wins.
const SETTINGS: &str = "data/postgresql.auto.conf";

/// Where `scripts/with-postgres` has its server from, then the path, then where distributions put the
/// programs that are not in the path; the newest version first.
fn program(name: &str) -> PathBuf {
    let mut places: Vec<PathBuf> = ["TEST_POSTGRES_BINDIR", "PATH"]
        .into_iter()
        .filter_map(std::env::var_os)
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .collect();
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .map(|d| d.flatten().map(|e| e.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    places.extend(versions.into_iter().rev());
    places
        .into_iter()
        .map(|place| place.join(name))
        .find(|program| program.exists())
        .unwrap_or_else(|| panic!("{name} is needed: install a PostgreSQL server and psql"))
}

impl Server {
    pub(super) fn start(settings: &str, hba: &str, identity: &Identity) -> Self {
        Self::start_as(false, settings, hba, identity)
    }

    /// One that waits for what a primary might send, and answers questions meanwhile.
    pub(super) fn start_standby(hba: &str, identity: &Identity) -> Self {
        Self::start_as(true, "", hba, identity)
    }

    fn start_as(standby: bool, settings: &str, hba: &str, identity: &Identity) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // initdb refuses to run as root.
        let account = nix::unistd::geteuid().is_root().then(|| {
            let user = User::from_name("postgres").unwrap();
            user.or_else(|| User::from_name("nobody").unwrap()).unwrap()
        });
        let mut server = Self {
            keeper: None,
            directory,
            port: 0,
            account,
        };
        server.give(server.directory.path());
        server.keeper = Some(server.keep());
        server.run(
            "initdb",
            &["-U", "postgres", "--auth=trust", "--no-sync", "-D", "data"],
        );
        server.write("hba", &format!("local all postgres trust\n{hba}"));
        server.write(
            SETTINGS,
            &format!(
                "listen_addresses = '127.0.0.1'\nfsync = off\nssl = on\n\
                 unix_socket_directories = '{socket}'\nhba_file = '{hba}'\n{settings}\n",
                socket = server.directory.path().display(),
                hba = server.path("hba").display(),
            ),
        );
        server.write_identity(identity);
        server.write("data/client_ca.crt", &identity.root);
        if standby {
            server.write("data/standby.signal", "");
        }
        server.start_on_some_port();
        server
    }

    /// A port that is free now may be taken when the server binds it: the server decides. From below
    /// the range that outgoing connections use.
    fn start_on_some_port(&mut self) {
        for _ in 0..20 {
            self.port = rand::random_range(10_000..32_000);
            let port = format!("-p {}", self.port);
            let start = ["start", "-w", "-D", "data", "-l", "log", "-s", "-o", &port];
            let mut pg_ctl = self.command("pg_ctl");
            let status = pg_ctl.args(start).stderr(Stdio::null()).status();
            if status.unwrap().success() {
                return;
            }
            let log = fs::read_to_string(self.path("log")).unwrap();
            assert!(log.contains("could not bind"), "{log}");
        }
        panic!("no free port");
    }

    /// A process that waits for the end of its standard input, which only this one holds open.
    fn keep(&self) -> Child {
        const SCRIPT: &str = r#"cat; "$1" stop -m immediate -D data -s; rm -rf "$PWD""#;
        self.command("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(program("pg_ctl"))
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn give(&self, path: &Path) {
        if let Some(user) = &self.account {
            chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
        }
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        self.give(&path);
    }

    fn write_identity(&self, identity: &Identity) {
        self.write("data/server.crt", &identity.chain);
        self.write("data/server.key", &identity.key);
    }

    /// A program in the server's directory and as its user.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(program(name));
        command
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(user) = &self.account {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
    }

    fn run(&self, name: &str, arguments: &[&str]) {
        let status = self.command(name).args(arguments).status().unwrap();
        assert!(status.success(), "{name} {arguments:?}: {status}");
    }

    /// Gives the server another certificate.
    pub(super) fn present(&self, identity: &Identity) {
        self.reload_after(|| self.write_identity(identity));
    }

    /// Sets something that a reload is enough for.
    pub(super) fn set(&self, setting: &str) {
        self.reload_after(|| {
            let old = fs::read_to_string(self.path(SETTINGS)).unwrap();
            self.write(SETTINGS, &format!("{old}{setting}\n"));
        });
    }

    /// Returns when the server has taken the change.
    fn reload_after(&self, change: impl FnOnce()) {
        let loaded = || self.ask("SELECT pg_conf_load_time()");
        let before = loaded();
        change();
        self.run("pg_ctl", &["reload", "-D", "data", "-s"]);
        eventually("the server reloads", || loaded() != before);
    }

    /// The major version.
    pub(super) fn version(&self) -> u32 {
        self.ask("SHOW server_version_num").parse::<u32>().unwrap() / 10_000
    }

    /// What psql says over the socket, as the superuser.
    pub(super) fn ask(&self, sql: &str) -> String {
        let target = format!(
            "host={} port={} user=postgres dbname=postgres",
            self.directory.path().display(),
            self.port
        );
        psql(&target, sql, self.directory.path()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
    }
}

/// What psql answers, or why it does not.
pub(super) fn psql(target: &str, sql: &str, home: &Path) -> Result<String, String> {
    let output = Command::new(program("psql"))
        .args(["-XAtqw", "-c", sql, "-d", target])
        .env_clear()
        .env("HOME", home)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
