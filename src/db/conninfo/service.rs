//! Service files: named sets of options that a connection string refers to.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::name::{Name, shown_path};
use super::settings::Settings;
use super::{ConninfoError, home_directory};

/// Where a system-wide file lies: Debian's libpq, and one that was built from source.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/etc/postgresql-common", "/usr/local/pgsql/etc"];

/// libpq's line buffer: a longer line is an error, not cut.
const LONGEST_LINE: usize = 1022;

/// Adds what the named service says, under what the connection string says itself.
pub(super) fn add_service(
    settings: &mut Settings,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(), ConninfoError> {
    let service = match settings.text("service")? {
        Some(service) => service.to_owned(),
        None => match env("PGSERVICE") {
            Some(service) => service
                .into_string()
                .map_err(|_| ConninfoError::new("PGSERVICE is not valid UTF-8"))?,
            None => return Ok(()),
        },
    };
    for file in files(env) {
        let content = std::fs::read(&file).map_err(|e| {
            ConninfoError::caused(
                &format!("cannot read service file {}", shown_path(&file)),
                e,
            )
        })?;
        if add_section(settings, &service, &content, &file)? {
            return Ok(());
        }
    }
    Err(ConninfoError::new(format!(
        "service {:?} is not defined in any service file",
        Name::database(&service)
    )))
}

/// The files to look in. One that is named has to exist, the default ones need not.
fn files(env: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(named) = env("PGSERVICEFILE") {
        files.push(named.into());
    } else if let Some(home) = home_directory(env) {
        files.push(home.join(".pg_service.conf"));
        files.retain(|file| file.exists());
    }
    let system = match env("PGSYSCONFDIR") {
        Some(directory) => vec![PathBuf::from(directory)],
        None => SYSTEM_DIRECTORIES.map(PathBuf::from).to_vec(),
    };
    files.extend(
        system
            .into_iter()
            .map(|directory| directory.join("pg_service.conf"))
            .filter(|file| file.exists()),
    );
    files
}

/// Reads the first section of that name; false when there is none.
pub(super) fn add_section(
    settings: &mut Settings,
    service: &str,
    content: &[u8],
    file: &Path,
) -> Result<bool, ConninfoError> {
    let mut in_section = false;
    for (number, line) in (1..).zip(content.split(|&b| b == b'\n')) {
        let wrong = |what: &str| {
            ConninfoError::new(format!(
                "service file {} line {number}: {what}",
                shown_path(file)
            ))
        };
        if line.len() > LONGEST_LINE {
            return Err(wrong("too long"));
        }
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        if let Some(header) = line.strip_prefix(b"[") {
            if in_section {
                break;
            }
            in_section = header
                .strip_prefix(service.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"]"));
        } else if in_section {
            if line.starts_with(b"ldap") {
                return Err(wrong("looking a service up in LDAP is not supported"));
            }
            let Some(equals) = line.iter().position(|&b| b == b'=') else {
                return Err(wrong("\"=\" is missing"));
            };
            let keyword = std::str::from_utf8(&line[..equals]).unwrap_or("");
            if keyword == "service" {
                return Err(wrong("a service cannot refer to another service"));
            }
            if !settings.set_if_absent(keyword, line[equals + 1..].to_vec()) {
                return Err(wrong("there is no such option"));
            }
        }
    }
    Ok(in_section)
}
