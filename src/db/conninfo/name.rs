//! Names and paths that are shown only where they hold no secret by accident.
//!
//! A string that is malformed for people may be well-formed for libpq: `user=app;password=x` names a user.
//! Nothing tells such a name from one that is meant, and names may be anything. So one is used as it is,
//! and shown only if it is made of such characters as names mostly are.

use std::fmt;
use std::ops::Deref;
use std::path::Path;

use super::parse::words;

/// Stands in messages for what is not shown.
const HIDDEN: &str = "…";

/// The server cuts the names of users and databases to this many bytes.
const LONGEST_NAME: usize = 63;

/// The name of a user, a database or a service, or a socket's directory. `Display` and `Debug` show it only
/// if it is plain.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Name {
    text: String,
    is_plain: bool,
}

impl Name {
    /// Of a user; Azure's have an `@`.
    pub(crate) fn user(text: &str) -> Self {
        let text = text.to_owned();
        let is_plain = text.chars().all(|c| is_plain(c) || c == '@');
        Self { text, is_plain }
    }

    /// Of a database or a service. After `@…?dbname=` in a password, not escaped, the rest of it is taken for
    /// one, so that an `@` is not plain here.
    pub(crate) fn database(text: &str) -> Self {
        let text = text.to_owned();
        let is_plain = text.chars().all(is_plain);
        Self { text, is_plain }
    }

    /// A socket's directory, or with a leading `@` its place in the abstract namespace.
    pub(super) fn directory(text: &str) -> Self {
        let text = text.to_owned();
        let is_plain = is_plain_path(&text);
        Self { text, is_plain }
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_plain { &self.text } else { HIDDEN })
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A file for messages.
pub(crate) fn shown_path(path: &Path) -> &str {
    path.to_str()
        .filter(|text| is_plain_path(text))
        .unwrap_or(HIDDEN)
}

/// Whether a name or an address can be looked up at all.
pub(super) fn is_host(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
    let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
    let letters = |text: &str| text.chars().all(|c| is_plain(c) && c != '$');
    (is_address && letters(zone)) || letters(text)
}

/// Whether a path may be that of a socket. It may have almost any character; with these it is more likely
/// that something else was to end it.
pub(super) fn is_socket_path(text: &str) -> bool {
    text.starts_with(['/', '@']) && !text.contains([';', '|', '&', '='])
}

fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$')
}

fn is_plain_path(text: &str) -> bool {
    let path = text.strip_prefix('@').unwrap_or(text);
    path.chars()
        .all(|c| is_plain(c) || matches!(c, '/' | ':' | '+' | '~' | ' '))
}

/// What the server was told and may repeat, but is not to be shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsaid(Vec<Hidden>);

#[derive(Clone)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Unsaid {
    /// Of these names, those that are not plain; and the same of the values of startup options.
    pub(super) fn of(names: &[&Name], options: &str) -> Self {
        let mut unsaid = Vec::new();
        for name in names.iter().filter(|name| !name.is_plain) {
            unsaid.push(Hidden(name.text.clone()));
            let mut cut = name.text.clone();
            while cut.len() > LONGEST_NAME {
                cut.pop();
            }
            unsaid.push(Hidden(cut));
        }
        for word in words(options) {
            let value = word.split_once('=').map_or(&*word, |(_, value)| value);
            if !is_plain_path(value) {
                unsaid.push(Hidden(value.to_owned()));
            }
        }
        // The longest first: another may be a part of it.
        unsaid.sort_by_key(|hidden| std::cmp::Reverse(hidden.0.len()));
        Self(unsaid)
    }

    /// What the server said, without it.
    pub(crate) fn left_out_of(&self, said: &str) -> String {
        self.0.iter().fold(said.to_owned(), |said, hidden| {
            said.replace(&hidden.0, HIDDEN)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_are_mostly_made_of_is_shown_and_nothing_else() {
        for (name, shown) in [
            (Name::user("app"), true),
            (Name::user("app@corp"), true),
            (Name::user("Zoë_1-a.b$"), true),
            (Name::user("app:x"), false),
            (Name::user("app;password=x"), false),
            (Name::user("app x"), false),
            (Name::database("postgres.abcdef"), true),
            (Name::database("a@b"), false),
            (Name::directory("/cloudsql/project:region:instance"), true),
            (Name::directory("@/abstract"), true),
            (Name::directory("//app:x@h/db"), false),
        ] {
            let expected = if shown { &*name } else { "…" };
            assert_eq!(name.to_string(), expected, "{}", &*name);
            assert_eq!(format!("{name:?}"), format!("\"{expected}\""));
        }
        assert_eq!(shown_path(Path::new("/etc/a b.pem")), "/etc/a b.pem");
        assert_eq!(shown_path(Path::new("/etc/ca.pem;password=x")), "…");
        assert_eq!(shown_path(Path::new("postgresql://app:x@h/db")), "…");
    }

    #[test]
    fn hosts_are_names_and_addresses() {
        for host in [
            "a",
            "a-b_c.example.org.",
            "bücher.example",
            "10.0.0.1",
            "::1",
            "fe80::1%eth0.5",
        ] {
            assert!(is_host(host), "{host}");
        }
        for text in [
            "a:1", "a;b", "a=b", "a b", "a/b", "a@b", "::g", "::1%e;x", "a%1", "[::1]",
        ] {
            assert!(!is_host(text), "{text}");
        }
    }

    #[test]
    fn what_the_server_repeats_is_left_out_in_whole_or_cut_short() {
        let long = Name::user(&format!("app;password={}", "x".repeat(80)));
        let database = Name::database("app;password");
        let unsaid = Unsaid::of(
            &[&long, &database],
            "-c TimeZone=a;b -c a=b\\ ;c -c d=Europe/Oslo",
        );
        let cut: String = long.chars().take(LONGEST_NAME).collect();
        for (said, expected) in [
            (&*long, "…"),
            (&*cut, "…"),
            ("for user \"app;password\"", "for user \"…\""),
            ("a;b, b ;c, Europe/Oslo", "…, …, Europe/Oslo"),
        ] {
            assert_eq!(unsaid.left_out_of(said), expected);
        }
        let plain = Name::user("app");
        let unsaid = Unsaid::of(&[&plain, &plain], "");
        assert_eq!(unsaid.left_out_of("user \"app\""), "user \"app\"");
    }
}
