//! Files of TLS that cannot be used: the message names them, and no password.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::time::Instant;

use super::super::connect;
use super::certificates::{Authority, identities};
use super::server::Server;
use super::{AMPLE, chain, resolve, runtime};

/// A key that nobody uses, in the form that `openssl pkcs8 -topk8` gives an encrypted one.
const ENCRYPTED_KEY: &str =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
const OLD_ENCRYPTED_KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMAA=\n-----END EC PRIVATE KEY-----\n";

fn write(directory: &Path, name: &str, mode: u32, content: &str) -> String {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_no_password() {
    let ca = Authority::root("root");
    let server = Server::start("", "host all all all trust\n", &identities(&ca)[0]);
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (certificate, key) = ca.client("somebody");
    let (_, other_key) = ca.client("somebody else");

    let good = write(home, "good.crt", 0o644, &certificate);
    let good_key = write(home, "good.key", 0o600, &key);
    let garbage = write(home, "garbage.pem", 0o600, "hunter2, as it happens\n");
    let open_key = write(home, "open.key", 0o644, &key);
    let other_key = write(home, "other.key", 0o600, &other_key);
    let encrypted = write(home, "encrypted.key", 0o600, ENCRYPTED_KEY);
    let old_encrypted = write(home, "old-encrypted.key", 0o600, OLD_ENCRYPTED_KEY);
    let missing = home.join("missing").to_str().unwrap().to_owned();
    let directory = home.to_str().unwrap();

    let base = format!(
        "host=127.0.0.1 port={} user=postgres password=hunter2 dbname=postgres",
        server.port
    );
    for (options, named) in [
        (format!("sslmode=require sslrootcert={garbage}"), &garbage),
        (format!("sslmode=verify-ca sslrootcert={missing}"), &missing),
        (
            format!("sslmode=verify-ca sslrootcert={directory}"),
            &directory.to_owned(),
        ),
        (
            format!("sslmode=require sslrootcert={good} sslcrl={garbage}"),
            &garbage,
        ),
        (
            format!("sslmode=require sslrootcert={good} sslcrl={missing}"),
            &missing,
        ),
        (
            format!("sslmode=require sslcert={garbage} sslkey={good_key}"),
            &garbage,
        ),
        (
            format!("sslmode=require sslcert={directory} sslkey={good_key}"),
            &directory.to_owned(),
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={missing}"),
            &missing,
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={garbage}"),
            &garbage,
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={directory}"),
            &directory.to_owned(),
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={open_key}"),
            &open_key,
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={other_key}"),
            &other_key,
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={encrypted} sslpassword=hunter2"),
            &encrypted,
        ),
        (
            format!("sslmode=require sslcert={good} sslkey={old_encrypted}"),
            &old_encrypted,
        ),
    ] {
        let target = resolve(&format!("{base} {options}"), home);
        let error = runtime()
            .block_on(connect(&target, Instant::now() + AMPLE))
            .expect_err(&options);
        let message = chain(&error);
        assert!(message.contains(named.as_str()), "{options}: {message}");
        assert!(!error.is_passing(), "{options}: {message}");
        for text in [message, format!("{error:?}"), format!("{target:?}")] {
            assert!(!text.contains("hunter2"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    for (options, accepted) in [
        (format!("sslcert={good} sslkey={good_key}"), true),
        (format!("sslcert={missing} sslkey={good_key}"), true),
        (format!("sslcert={garbage} sslcertmode=disable"), true),
        // The server does not ask for a certificate.
        (
            format!("sslcert={good} sslkey={good_key} sslcertmode=require"),
            false,
        ),
    ] {
        let target = resolve(&format!("{base} sslmode=require {options}"), home);
        let result = runtime().block_on(connect(&target, Instant::now() + AMPLE));
        assert_eq!(result.is_ok(), accepted, "{options}");
    }
}
