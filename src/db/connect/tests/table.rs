//! TLS means the same to us as to psql: both try the same server, cell by cell.

use std::path::Path;

use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::super::connect;
use super::certificates::{Authority, identities};
use super::server::{Server, psql};
use super::{AMPLE, chain, resolve, runtime};

/// How a connection ends up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Encrypted,
    Plain,
    Refused,
}

const QUESTION: &str = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

fn outcome(answer: &str) -> Outcome {
    match answer {
        "true" => Outcome::Encrypted,
        "false" => Outcome::Plain,
        other => panic!("{other}"),
    }
}

fn theirs(target: &str, home: &Path) -> (Outcome, String) {
    match psql(target, QUESTION, home) {
        Ok(answer) => (outcome(&answer), answer),
        Err(why) => (Outcome::Refused, why),
    }
}

fn ours(runtime: &Runtime, target: &str, home: &Path) -> (Outcome, String) {
    let target = resolve(target, home);
    runtime.block_on(async {
        match connect(&target, Instant::now() + AMPLE).await {
            Ok(connection) => {
                let client = connection.client();
                let row = client.query_typed_one(QUESTION, &[]).await.unwrap();
                let answer: String = row.get(0);
                connection.close().await;
                (outcome(&answer), answer)
            }
            Err(why) => (Outcome::Refused, chain(&why)),
        }
    })
}

struct Table {
    runtime: Runtime,
    cells: usize,
    different: Vec<String>,
}

impl Table {
    fn new() -> Self {
        Self {
            runtime: runtime(),
            cells: 0,
            different: Vec::new(),
        }
    }

    fn cell(&mut self, name: &str, target: &str, home: &Path) {
        let (their_outcome, their_words) = theirs(target, home);
        let (our_outcome, our_words) = ours(&self.runtime, target, home);
        self.cells += 1;
        if our_outcome != their_outcome {
            self.different.push(format!(
                "{name}: {target}\n  psql: {their_outcome:?} {their_words}\n  dislock: {our_outcome:?} {our_words}"
            ));
        }
    }

    fn check(self, at_least: usize) {
        println!("{} cells, {} different", self.cells, self.different.len());
        assert!(self.different.is_empty(), "{}", self.different.join("\n"));
        assert!(self.cells >= at_least);
    }
}

#[test]
fn certificates_are_judged_as_by_psql() {
    let ca = Authority::root("root");
    let stranger = Authority::root("root");
    let identities = identities(&ca);
    let server = Server::start("", "host all all all trust\n", &identities[0]);
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = file("wrong.crt", &stranger.pem);
    let missing = home.path().join("missing.crt").to_str().unwrap().to_owned();

    let mut table = Table::new();
    for identity in &identities {
        server.present(identity);
        let right = file("right.crt", &identity.root);
        let base = format!("port={} user=postgres dbname=postgres", server.port);
        for root in [&right, &wrong, &missing] {
            for mode in ["prefer", "require", "verify-ca"] {
                let target = format!(
                    "host=db.example.test hostaddr=127.0.0.1 {base} sslmode={mode} sslrootcert={root}"
                );
                table.cell(identity.name, &target, home.path());
            }
        }
        for host in [
            "host=db.example.test hostaddr=127.0.0.1",
            "host=example.test hostaddr=127.0.0.1",
            "host=127.0.0.1",
            "hostaddr=127.0.0.1",
        ] {
            let target = format!("{host} {base} sslmode=verify-full sslrootcert={right}");
            table.cell(identity.name, &target, home.path());
        }
    }
    table.check(360);
}

/// Who gets in over what, whatever the password; one rule of `pg_hba.conf` each.
const ACCOUNTS: &str = "\
local all all scram-sha-256
hostssl all tls_only all scram-sha-256
hostnossl all plain_only all scram-sha-256
host all scram all scram-sha-256
host all md5 all md5
host all clear all password
host all trusted all trust
host all rejected all reject
hostssl all by_certificate all cert
hostssl all certified all scram-sha-256 clientcert=verify-ca
";

const USERS: [&str; 9] = [
    "tls_only",
    "plain_only",
    "scram",
    "md5",
    "clear",
    "trusted",
    "rejected",
    "by_certificate",
    "certified",
];

fn write(path: &Path, mode: u32, content: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn server_with_accounts(ca: &Authority) -> Server {
    let identities = identities(ca);
    let server = Server::start("ssl_ca_file = 'client_ca.crt'", ACCOUNTS, &identities[0]);
    for user in USERS {
        let encryption = if user == "md5" {
            "md5"
        } else {
            "scram-sha-256"
        };
        server.ask(&format!(
            "SET password_encryption = '{encryption}'; CREATE ROLE {user} LOGIN PASSWORD 'right'"
        ));
    }
    server
}

#[test]
fn logins_go_the_way_of_psql() {
    let ca = Authority::root("root");
    let server = server_with_accounts(&ca);
    let (certificate, key) = ca.client("by_certificate");
    let (strange_certificate, strange_key) = Authority::root("other").client("by_certificate");
    let homes: Vec<_> = [
        None,
        Some((&certificate, &key, 0o600)),
        Some((&certificate, &key, 0o644)),
        Some((&certificate, &strange_key, 0o600)),
        Some((&strange_certificate, &strange_key, 0o600)),
    ]
    .into_iter()
    .map(|client| {
        let home = tempfile::tempdir().unwrap();
        if let Some((certificate, key, mode)) = client {
            write(
                &home.path().join(".postgresql/postgresql.crt"),
                0o644,
                certificate,
            );
            write(&home.path().join(".postgresql/postgresql.key"), mode, key);
        }
        home
    })
    .collect();
    let bare = homes[0].path();
    let base = format!("host=127.0.0.1 port={} dbname=postgres", server.port);
    let modes = ["disable", "allow", "prefer", "require"];

    let mut table = Table::new();
    for user in USERS {
        for mode in modes {
            for password in ["right", "wrong", ""] {
                let target = format!("{base} user={user} sslmode={mode} password='{password}'");
                table.cell("login", &target, bare);
            }
            for binding in ["disable", "require"] {
                let target = format!(
                    "{base} user={user} sslmode={mode} password=right channel_binding={binding}"
                );
                table.cell("channel binding", &target, bare);
            }
        }
    }
    for user in ["by_certificate", "certified", "scram"] {
        for mode in modes {
            for home in &homes {
                let target = format!("{base} user={user} sslmode={mode} password=right");
                table.cell("client certificate", &target, home.path());
            }
        }
    }
    let socket = server.path("");
    for mode in ["disable", "allow", "prefer", "require", "verify-full"] {
        let target = format!(
            "host={} port={} dbname=postgres user=scram password=right sslmode={mode}",
            socket.display(),
            server.port
        );
        table.cell("socket", &target, bare);
    }
    for wanted in [
        "any",
        "read-write",
        "read-only",
        "primary",
        "standby",
        "prefer-standby",
    ] {
        let target = format!("{base} user=trusted target_session_attrs={wanted}");
        table.cell("session", &target, bare);
    }
    for (name, rest) in [
        (
            "no such database",
            "dbname=nowhere user=scram password=right",
        ),
        ("no such user", "user=nobody password=right"),
        ("options", "user=trusted options='-c search_path=x'"),
        ("bad options", "user=trusted options='-c nonsense=x'"),
        (
            "TLS 1.2",
            "user=scram password=right sslmode=require ssl_max_protocol_version=TLSv1.2",
        ),
        (
            "TLS 1.3",
            "user=scram password=right sslmode=require ssl_min_protocol_version=TLSv1.3",
        ),
        (
            "no SNI",
            "user=scram password=right sslmode=require sslsni=0",
        ),
    ] {
        table.cell(name, &format!("{base} {rest}"), bare);
    }

    server.set("ssl = off");
    for user in ["tls_only", "plain_only", "scram", "trusted"] {
        for mode in [
            "disable",
            "allow",
            "prefer",
            "require",
            "verify-ca",
            "verify-full",
        ] {
            let target = format!("{base} user={user} sslmode={mode} password=right");
            table.cell("server without TLS", &target, bare);
        }
    }
    table.check(280);
}

#[test]
fn revoked_certificates_are_refused_as_by_psql() {
    const NEVER: i32 = 2100;
    const LONG_AGO: i32 = 2021;
    let ca = Authority::root("root");
    let stranger = Authority::root("other");
    let (revoked, list) = ca.revoked_server("localhost", NEVER);
    let (_, expired_list) = ca.revoked_server("localhost", LONG_AGO);
    let lists = [
        ("revoked", list),
        ("revoked long ago", expired_list),
        ("nothing revoked", ca.empty_revocation_list(NEVER)),
        (
            "nothing revoked long ago",
            ca.empty_revocation_list(LONG_AGO),
        ),
        ("of another CA", stranger.empty_revocation_list(NEVER)),
    ];
    let server = Server::start("", "host all all all trust\n", &revoked);
    let mut table = Table::new();
    for (name, list) in &lists {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".postgresql");
        write(&directory.join("root.crt"), 0o644, &ca.pem);
        write(&home.path().join("named.crl"), 0o644, list);
        let named = home.path().join("named.crl");
        for mode in ["prefer", "require", "verify-ca", "verify-full"] {
            let target = format!(
                "host=localhost hostaddr=127.0.0.1 port={} user=postgres dbname=postgres sslmode={mode}",
                server.port
            );
            table.cell("no list", &target, home.path());
            table.cell(
                name,
                &format!("{target} sslcrl={}", named.display()),
                home.path(),
            );
            write(&directory.join("root.crl"), 0o644, list);
            table.cell(name, &target, home.path());
            std::fs::remove_file(directory.join("root.crl")).unwrap();
        }
    }
    table.check(60);
}
