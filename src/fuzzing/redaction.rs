//! Nothing that is said about a connection string contains its password, or a piece of it.

use crate::context::LockContext;
use crate::db::conninfo::Conninfo;
use crate::db::conninfo::properties::{percent_encoded, quoted, without_files};

/// Part of every password here. No message of ours contains it, nor is it the name of an option.
const MARK: &str = "Xq7Zw";

/// What stands before the mark in a password, what stands after it, and what comes after the whole.
pub fn redaction(input: &[u8]) {
    let mut texts = super::texts(input);
    let mut next = || texts.next().unwrap_or_default();
    let (before, after, tail) = (next(), next(), next());
    if says_the_mark(&tail) || before.contains('\0') || after.contains('\0') {
        return;
    }
    let password = format!("{before}{MARK}{after}");
    let encoded = percent_encoded(password.as_bytes());
    let mut strings = vec![
        format!("postgresql://me:{encoded}@h1,h2:5433/app{tail}"),
        format!("postgresql://me:{encoded}@h1{tail}"),
        format!("postgresql://h/app?password={encoded}{tail}"),
        format!("postgresql://h/app?password={encoded}&{tail}"),
        format!("host=h user=me password={} {tail}", quoted(&password)),
        format!("host=h password={}{tail}", quoted(&password)),
        format!("{tail} password={}", quoted(&password)),
        format!("http://me:{encoded}@h1/{tail}"),
    ];
    // As people write it who do not know of escapes. What reads as something else by accident (another
    // option, a host and a database) is that, and not a password any more.
    let accidents = ['=', '/', '\'', '\\'];
    if !password.contains(accidents) {
        strings.extend([
            format!("postgresql://me:{password}@h1,h2:5433/app{tail}"),
            format!("postgresql://me:{password}@h1:port/{tail}"),
            format!("postgresql:/me:{password}@h1/app{tail}"),
            format!("postgresql://h/app?password={password}"),
            format!("host=h password={password} user=me"),
            format!("host=h user=me password={password}"),
            format!("host=h password='{password}"),
            format!("host=h user=me {password}"),
            password.clone(),
        ]);
    }
    // As people write pairs who separate them otherwise. After a comma comes the next host, after a blank the
    // next option.
    let ends = [',', ' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];
    if !password.contains(accidents) && !password.contains(ends) {
        for separator in [";", "&", "|"] {
            strings.extend([
                format!("host=h{separator}port=1{separator}user=me{separator}password={password}"),
                format!("host=h user=me{separator}password={password}"),
                format!("host=/h{separator}password={password} user=me"),
                format!("dbname=d{separator}password={password} host=h"),
                format!("postgresql://me{separator}{password}@h1/app"),
                format!("host=h service=s{separator}password={password}"),
                format!("host=h requirepeer=me{separator}password={password}"),
            ]);
        }
    }
    let url = format!("postgresql://me:{encoded}@h1/app");
    for variable in [
        "PGHOST",
        "PGUSER",
        "PGDATABASE",
        "PGREQUIREPEER",
        "PGPORT",
        "PGTZ",
    ] {
        look_for_leaks("", Some((variable, &url)), &[MARK, &encoded]);
    }
    for string in &strings {
        look_for_leaks(string, None, &[MARK, &encoded]);
    }
    look_for_leaks(&tail, Some(("PGPASSWORD", &password)), &[MARK]);
}

/// Whether a text that is no password may be read as one with the mark: libFuzzer finds out how.
fn says_the_mark(text: &str) -> bool {
    let unquoted = text.replace(['\\', '\''], "").to_ascii_lowercase();
    let encoded = MARK
        .bytes()
        .map(|byte| percent_encoded(&[byte]).to_ascii_lowercase());
    unquoted.contains(&MARK.to_ascii_lowercase()) || { encoded }
        .any(|byte| unquoted.contains(&byte))
}

fn look_for_leaks(string: &str, variable: Option<(&str, &str)>, secrets: &[&str]) {
    let env = without_files(|name| {
        let (_, value) = variable.filter(|(variable, _)| *variable == name)?;
        Some(value.into())
    });
    let mut said = vec![match Conninfo::resolve(string, &env) {
        Ok(target) => format!("{} {target:?}", target.describe()),
        Err(error) => format!("{error} {error:?}"),
    }];
    let builder = LockContext::builder(string, "job");
    said.push(format!("{builder:?}"));
    said.push(match builder.build_with(&env) {
        Ok(context) => format!("{context:?}"),
        Err(error) => format!("{error} {error:#} {error:?}"),
    });
    for said in said {
        for secret in secrets {
            assert!(!said.contains(secret), "of {string:?} it says: {said}");
        }
    }
}
