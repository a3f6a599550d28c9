//! What must hold for any connection string, password file and service file; see [`crate::fuzzing`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;

use super::settings::Settings;
use super::{Conninfo, parse, passfile, service};

type Options = BTreeMap<&'static str, Vec<u8>>;

fn options(settings: &Settings) -> Options {
    settings.iter().map(|(k, v)| (k, v.to_vec())).collect()
}

/// An environment that names no file, and no home where one may lie.
pub(crate) fn without_files(
    env: impl Fn(&str) -> Option<OsString>,
) -> impl Fn(&str) -> Option<OsString> {
    move |name| match name {
        "HOME" | "PGSYSCONFDIR" => Some("/nonexistent".into()),
        "PGPASSFILE" | "PGSERVICE" | "PGSERVICEFILE" => None,
        name => env(name),
    }
}

/// Each byte as `%` and two digits.
pub(crate) fn percent_encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "%{byte:02x}");
        text
    })
}

/// In single quotes, as the value of a pair.
pub(crate) fn quoted(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{value}'")
}

pub(crate) fn conninfo(string: &str, variables: &[(String, String)]) {
    let read = match parse::parse(string) {
        Ok(settings) => options(&settings),
        Err(error) => {
            let why = error.to_string();
            assert!(
                !why.is_empty() && !why.contains('\n'),
                "{string:?}: {why:?}"
            );
            return;
        }
    };
    reads_the_same_when_written_again(&read);
    // What names a file would have it read.
    if ["passfile", "service"].iter().any(|k| read.contains_key(k)) {
        return;
    }
    let env = without_files(|name| {
        let (_, value) = variables.iter().rev().find(|(n, _)| n == name)?;
        Some(value.into())
    });
    let resolved = Conninfo::resolve(string, &env);
    if let Ok(target) = &resolved {
        assert!(!target.hosts.is_empty() && !target.user.is_empty() && !target.dbname.is_empty());
        assert!(target.hosts.iter().all(|host| host.port > 0));
        let given = read.get("password").filter(|password| !password.is_empty());
        for (host, given) in target.hosts.iter().zip(std::iter::repeat(given)) {
            let password = host.password.as_ref().map(super::Password::bytes);
            assert!(given.is_none_or(|given| password == Some(given)));
        }
    }
    let again = Conninfo::resolve(string, &env);
    assert_eq!(resolved.ok(), again.ok(), "{string:?}");
}

/// Both as pairs and as a URL.
fn reads_the_same_when_written_again(read: &Options) {
    let as_url = read.iter().map(|(keyword, value)| {
        let value = percent_encoded(value);
        format!("{keyword}={value}&")
    });
    let as_url = format!("postgresql://?{}", as_url.collect::<String>());
    let as_pairs: Option<String> = read
        .iter()
        .map(|(keyword, value)| {
            let value = std::str::from_utf8(value).ok()?;
            Some(format!("{keyword} = {} ", quoted(value)))
        })
        .collect();
    for string in [Some(as_url), as_pairs].into_iter().flatten() {
        match parse::parse(&string) {
            Ok(settings) => assert_eq!(&options(&settings), read, "{string:?}"),
            Err(why) => panic!("{string:?}: {why}"),
        }
    }
}

/// `entry` is a host, a database, a user and a password; `content` is a file of any kind.
pub(crate) fn passfile(entry: &[String; 4], content: &[u8]) {
    let [host, dbname, user, password] = entry;
    let account = passfile::Account {
        host,
        port: 5432,
        dbname,
        user,
    };
    let found = passfile::find(content, &account);
    if let Some(found) = &found {
        let bytes = found.bytes();
        assert!(!bytes.is_empty() && !bytes.contains(&b'\n'));
        // The first line that matches counts, whatever follows.
        let longer = [content, b"\n*:*:*:*:other\n"].concat();
        assert_eq!(passfile::find(&longer, &account).as_ref(), Some(found));
    }
    let commented = [b"# *:*:*:*:none\n", content].concat();
    assert_eq!(passfile::find(&commented, &account), found);

    let writable = |text: &String| !text.contains('\n') && !text.ends_with('\r');
    if entry.iter().all(writable) && !password.is_empty() {
        let escaped = |text: &str| text.replace('\\', "\\\\").replace(':', "\\:");
        let fields = [host, "5432", dbname, user, password].map(escaped);
        let line = fields.join(":").into_bytes();
        // A host that begins so makes a comment.
        if !line.starts_with(b"#") {
            let file = [&line, &b"\n"[..], content].concat();
            let found = passfile::find(&file, &account);
            assert_eq!(
                found.as_ref().map(super::Password::bytes),
                Some(password.as_bytes())
            );
        }
    }
}

/// `content` is a file of any kind; the options of the connection string `string` are put into another.
pub(crate) fn service(name: &str, string: &str, content: &[u8]) {
    let file = Path::new("service.conf");
    let mut settings = Settings::default();
    let _known = settings.set("user", b"me".to_vec());
    match service::add_section(&mut settings, name, content, file) {
        Ok(found) => assert!(found || options(&settings).len() == 1),
        Err(error) => {
            let why = error.to_string();
            assert!(why.starts_with("service file service.conf line "), "{why}");
            assert!(!why.contains('\n'), "{why:?}");
        }
    }
    assert_eq!(
        settings.bytes("user"),
        Some(&b"me"[..]),
        "what was given wins"
    );

    let Ok(given) = parse::parse(string) else {
        return;
    };
    let given: Options = options(&given)
        .into_iter()
        .filter(|(keyword, value)| *keyword != "service" && is_writable(value))
        .collect();
    let mut written = format!("# {name}\n[other]\nhost=wrong\n[{name}]\n").into_bytes();
    for (keyword, value) in &given {
        written.extend([keyword.as_bytes(), b"=", value, b"\n"].concat());
    }
    let short = name.len() < 100 && !name.starts_with("other") && is_writable(name.as_bytes());
    if short && !name.contains(']') {
        let mut settings = Settings::default();
        match service::add_section(&mut settings, name, &written, file) {
            Ok(found) => assert!(found, "{name:?}"),
            Err(why) => panic!("{name:?}: {why}"),
        }
        assert_eq!(options(&settings), given);
    }
}

/// Whether a line of a file can end with it.
fn is_writable(value: &[u8]) -> bool {
    value.len() < 900 && !value.contains(&b'\n') && value.trim_ascii_end() == value
}
