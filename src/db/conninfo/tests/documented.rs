//! What docs/connecting.md shows has to be read as it says.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::*;

const PAGE: &str = include_str!("../../../../docs/connecting.md");

/// All but the last part of the page shows what can be used.
fn accepted_and_refused() -> (&'static str, &'static str) {
    PAGE.split_once("\n## What is refused\n").unwrap()
}

/// The content of a fenced block.
fn block(language: &str) -> &'static str {
    let (_, after) = PAGE.split_once(&format!("\n```{language}\n")).unwrap();
    after.split("```").next().unwrap()
}

/// What stands between backticks, fenced blocks left out.
fn code(text: &str) -> Vec<&str> {
    let mut fenced = false;
    text.lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// Whether this is a URL, or begins with `option=`.
fn is_connection_string(code: &str) -> bool {
    let begins_with_option = code.split_once('=').is_some_and(|(name, value)| {
        !value.is_empty()
            && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            && name != "key"
    });
    code.contains("://") || begins_with_option
}

fn connection_strings(text: &str) -> Vec<&str> {
    let mut strings = code(text);
    strings.retain(|code| is_connection_string(code));
    strings
}

/// Options are shown without a host to connect to.
fn completed(string: &str) -> String {
    if string.contains("://") || string.contains("service=") {
        string.to_owned()
    } else {
        format!("host=db user=app sslmode=verify-full {string}")
    }
}

/// An environment in which the service that the page defines can be found.
fn with_service(directory: &Path) -> [(&'static str, String); 1] {
    let file = write(directory, "services", 0o644, block("ini"));
    [("PGSERVICEFILE", file)]
}

#[test]
fn what_the_page_shows_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let service = with_service(directory.path());
    let service = service
        .each_ref()
        .map(|(name, file)| (*name, file.as_str()));
    let (accepted, _) = accepted_and_refused();
    let strings = connection_strings(accepted);
    assert!(strings.len() > 40, "{strings:#?}");
    for string in strings {
        resolved(&completed(string), &service);
    }
}

#[test]
fn what_the_page_says_is_refused_is_refused() {
    let (_, refused) = accepted_and_refused();
    let (harmless, table) = refused.split_once("\n| refused |").unwrap();
    for string in connection_strings(harmless) {
        resolved(&completed(string), &[]);
    }
    let strings = connection_strings(table);
    assert!(strings.len() > 12, "{strings:#?}");
    for string in strings {
        refusal(&completed(string));
    }
}

/// Each names user, database and password, and nothing of it is sent in the clear over a network.
#[test]
fn the_services_of_the_page_are_reached_encrypted() {
    let (_, table) = PAGE.split_once("\n| service |").unwrap();
    let table = table.split("\n\n").next().unwrap();
    let strings: Vec<_> = connection_strings(table);
    assert_eq!(strings.len(), 12, "{strings:#?}");
    for string in strings {
        let target = resolved(string, &[]);
        let [host] = &target.hosts[..] else {
            panic!("{string}");
        };
        assert_eq!(password_of(host), Some("PASSWORD"), "{string}");
        assert!(string.contains(&*target.dbname), "{string}");
        match &host.place {
            Place::Socket(directory) => assert!(directory.starts_with("/cloudsql/")),
            Place::Tcp { name, .. } => {
                assert!(target.tls.mode >= SslMode::Require, "{string}");
                assert!(name.as_ref().is_some_and(|name| string.contains(name)));
            }
            Place::DefaultSocket => panic!("{string}"),
        }
        let expected = match string.split_once("sslmode=").map(|(_, mode)| mode) {
            None => SslMode::Prefer,
            Some(mode) if mode.starts_with("verify-full") => SslMode::VerifyFull,
            Some(mode) if mode.starts_with("verify-ca") => SslMode::VerifyCa,
            Some(_) => SslMode::Require,
        };
        assert_eq!(target.tls.mode, expected, "{string}");
    }
}

#[test]
fn the_service_file_and_the_password_file_of_the_page_fit_together() {
    let directory = tempfile::tempdir().unwrap();
    let [(_, services)] = with_service(directory.path());
    let passwords = write(directory.path(), "pgpass", 0o600, block("pgpass"));
    let target = resolved(
        "service=locks",
        &[("PGSERVICEFILE", &services), ("PGPASSFILE", &passwords)],
    );
    let found: Vec<_> = target.hosts.iter().map(password_of).collect();
    assert_eq!(found, [Some("PASSWORD"), Some("PASSWORD")]);
    assert_eq!(target.tls.mode, SslMode::VerifyFull);
    assert_eq!(target.target_session_attrs, TargetSessionAttrs::ReadWrite);
}

#[test]
fn the_variables_that_the_page_names_are_looked_at() {
    let asked = RefCell::new(BTreeSet::new());
    let environment = |name: &str| {
        asked.borrow_mut().insert(name.to_owned());
        None
    };
    let _unknown_service = Conninfo::resolve("service=locks", &environment).unwrap_err();
    Conninfo::resolve("", &environment).unwrap();
    let asked = asked.into_inner();
    let mut named = code(PAGE);
    named.retain(|code| {
        code.strip_prefix("PG")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    });
    assert!(named.len() > 5, "{named:?}");
    for name in named {
        assert!(asked.contains(name), "{name}");
    }
}
