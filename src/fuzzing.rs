//! What must hold for any input at all, as functions that panic when it does not.
//!
//! Two things call them: the tests beside this, with inputs that are made to be nearly right, and the
//! fuzz targets in `fuzz/`, with whatever reaches new code. No other build has this module.
//!
//! An input is bytes. Where there are several texts in it, a byte 0xFF separates them: no UTF-8 has one.

mod crontab;
mod redaction;
#[cfg(test)]
mod tests;

pub use crontab::crontab;
pub use redaction::redaction;

use crate::db::conninfo::properties;

/// Connection strings, as URL or as pairs: the first text. The others are variables, `NAME=value`.
pub fn conninfo(input: &[u8]) {
    let mut texts = texts(input);
    let string = texts.next().unwrap_or_default();
    let variables: Vec<(String, String)> = pairs(texts).collect();
    properties::conninfo(&string, &variables);
}

/// A password file, after the host, database, user and password of an entry that is put into it.
pub fn passfile(input: &[u8]) {
    let mut fields = input.splitn(5, |&byte| byte == SEPARATOR);
    let mut text = || String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let entry = [text(), text(), text(), text()];
    properties::passfile(&entry, fields.next().unwrap_or_default());
}

/// A service file, after a service's name and a connection string whose options are put into it.
pub fn service(input: &[u8]) {
    let mut fields = input.splitn(3, |&byte| byte == SEPARATOR);
    let mut text = || String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let (name, string) = (text(), text());
    properties::service(&name, &string, fields.next().unwrap_or_default());
}

/// Settings: texts of the form `--option=value` or `NAME=value`.
#[cfg(all(feature = "cli", target_os = "linux"))]
pub fn settings(input: &[u8]) {
    let (options, variables): (Vec<String>, Vec<String>) =
        texts(input).partition(|text| text.starts_with("--"));
    let variables: Vec<(String, String)> = pairs(variables.into_iter()).collect();
    crate::cli::properties::settings(&options, &variables);
}

const SEPARATOR: u8 = 0xFF;

fn texts(input: &[u8]) -> impl Iterator<Item = String> {
    input
        .split(|&byte| byte == SEPARATOR)
        .map(|text| String::from_utf8_lossy(text).into_owned())
}

fn pairs(texts: impl Iterator<Item = String>) -> impl Iterator<Item = (String, String)> {
    texts.filter_map(|text| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    })
}
