//! The password file, `~/.pgpass`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Password, shown_path};

/// What an entry has to match.
pub(super) struct Account<'a> {
    /// As the connection string names it; `localhost` for the default socket directory.
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) dbname: &'a str,
    pub(super) user: &'a str,
}

/// The contents of the file, unless it must not be used.
///
/// A file that others may read is ignored with a warning, and one that is not there silently: the
/// server may well not ask for a password.
pub(super) fn read(file: &Path) -> Option<Vec<u8>> {
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() {
        log::warn!(
            "password file {} is not a plain file: ignored",
            shown_path(file)
        );
        return None;
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        log::warn!(
            "password file {} can be read by others: ignored until its mode is 0600 or less",
            shown_path(file)
        );
        return None;
    }
    std::fs::read(file)
        .inspect_err(|e| log::warn!("cannot read password file {}: {e}", shown_path(file)))
        .ok()
}

/// The password of the first line that matches.
pub(super) fn find(content: &[u8], account: &Account<'_>) -> Option<Password> {
    let port = account.port.to_string();
    let wanted = [account.host, &port, account.dbname, account.user];
    content
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.starts_with(b"#"))
        .find_map(|line| {
            let mut rest = line;
            for value in wanted {
                rest = match_field(rest, value.as_bytes())?;
            }
            Some(unescape(rest))
        })
        .filter(|password| !password.is_empty())
        .map(Password)
}

/// Matches one `:`-ended field, in which `\` escapes and a lone `*` matches all; returns the rest.
fn match_field<'a>(line: &'a [u8], value: &[u8]) -> Option<&'a [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let mut rest = line;
    let mut value = value.iter();
    loop {
        let (&byte, after) = rest.split_first()?;
        let (byte, after) = match byte {
            b':' => return value.next().is_none().then_some(after),
            b'\\' => after.split_first().map(|(&b, after)| (b, after))?,
            byte => (byte, after),
        };
        if value.next() != Some(&byte) {
            return None;
        }
        rest = after;
    }
}

/// The password field: up to the next bare `:`, escapes undone.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut password = Vec::with_capacity(field.len());
    let mut bytes = field.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b':' => break,
            b'\\' => password.push(*bytes.next().unwrap_or(&b'\\')),
            byte => password.push(byte),
        }
    }
    password
}
