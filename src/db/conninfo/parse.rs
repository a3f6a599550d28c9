//! The two forms of a connection string, read exactly as libpq 18 reads them.
//!
//! A malformed string usually means a password with a character that should have been escaped, so
//! any part of it may be a piece of the password. Messages therefore say what is wrong and where to
//! look, and quote nothing but the name of an unknown option where that cannot be such a piece.

#[cfg(test)]
mod tests;

use super::ConninfoError;
use super::settings::Settings;

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// Reads a URL or a `key=value` string; what is not in it is not in the result.
pub(super) fn parse(string: &str) -> Result<Settings, ConninfoError> {
    if string.contains('\0') {
        return Err(ConninfoError::new("the connection string contains a NUL"));
    }
    let mut settings = Settings::default();
    match SCHEMES.iter().find_map(|s| string.strip_prefix(s)) {
        Some(rest) => parse_url(rest, &mut settings)?,
        None => parse_pairs(string, &mut settings)?,
    }
    Ok(settings)
}

/// Whether a URL has an `@` where its hosts are, after the one that ends the credentials. To libpq that may
/// be the name of a socket, which could be written `%40` as well; more likely all before it belongs to a
/// password.
pub(super) fn has_at_sign_in_hosts(string: &str) -> bool {
    authority(string).is_some_and(|(credentials, rest)| {
        let hosts = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        credentials.is_some() && hosts.contains('@')
    })
}

/// Whether what libpq takes for a URL's credentials has the password among its options: with no `/` before
/// them, an `@` in that password is where the credentials end.
pub(super) fn has_options_in_credentials(string: &str) -> bool {
    let credentials = authority(string).and_then(|(credentials, _)| credentials);
    let options = credentials.and_then(|credentials| credentials.split_once('?'));
    options.is_some_and(|(_, options)| options.contains("password="))
}

/// The credentials of a URL, and what follows them.
fn authority(string: &str) -> Option<(Option<&str>, &str)> {
    let rest = SCHEMES.iter().find_map(|s| string.strip_prefix(s))?;
    Some(split_credentials(rest))
}

/// Whether a URL has an `@` where its database is. To libpq that is a part of the name, which could be written
/// `%40` as well; more likely it is the end of credentials whose password has a `/`, perhaps an `@` before it.
pub(super) fn has_at_sign_in_database(string: &str) -> bool {
    authority(string).is_some_and(|(_, rest)| {
        let place = &rest[..rest.find('?').unwrap_or(rest.len())];
        place
            .split_once('/')
            .is_some_and(|(_, database)| database.contains('@'))
    })
}

/// The old `requiressl` still means what it did.
fn store(settings: &mut Settings, keyword: &str, value: Vec<u8>) -> bool {
    if keyword == "requiressl" {
        let mode: &[u8] = if value.first() == Some(&b'1') {
            b"require"
        } else {
            b"prefer"
        };
        return settings.set("sslmode", mode.to_vec());
    }
    settings.set(keyword, value)
}

fn is_option_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

// --- postgresql://[user[:password]@][host][:port][,…][/dbname][?option=value&…]

/// Splits `user[:password]@` off what follows the scheme.
///
/// The first `@` before any `/` ends the credentials, wherever libpq's grammar would have allowed
/// more: that is why an `@` or `/` in a password has to be percent-encoded.
fn split_credentials(rest: &str) -> (Option<&str>, &str) {
    let first = rest.find(['@', '/']);
    match first.filter(|&i| rest[i..].starts_with('@')) {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    }
}

/// `rest` is what follows the scheme.
fn parse_url(rest: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    let (credentials, rest) = split_credentials(rest);
    if let Some(credentials) = credentials {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        set_part(settings, "user", user)?;
        set_part(settings, "password", password)?;
    }

    let (hosts, ports, after) = split_hosts(rest)?;
    set_part(settings, "host", &hosts)?;
    set_part(settings, "port", &ports)?;

    let query = if let Some(path) = after.strip_prefix('/') {
        let (dbname, query) = path.split_once('?').unwrap_or((path, ""));
        set_part(settings, "dbname", dbname)?;
        query
    } else {
        after.strip_prefix('?').unwrap_or("")
    };
    parse_query(query, settings)
}

/// An empty part is the same as none, so that the environment still supplies it.
fn set_part(settings: &mut Settings, keyword: &str, raw: &str) -> Result<(), ConninfoError> {
    if !raw.is_empty() {
        let value = decode(raw).map_err(|why| why.of(keyword))?;
        // Each of the keywords above exists.
        let _known = settings.set(keyword, value);
    }
    Ok(())
}

/// Splits `host[:port][,…]` off: the hosts, the ports (one comma fewer than hosts) and the rest.
fn split_hosts(rest: &str) -> Result<(String, String, &str), ConninfoError> {
    let (mut hosts, mut ports) = (String::new(), String::new());
    let mut rest = rest;
    loop {
        if let Some(bracketed) = rest.strip_prefix('[') {
            let Some((address, after)) = bracketed.split_once(']') else {
                return Err(ConninfoError::new(
                    "the connection URL has an IPv6 address without its closing \"]\"",
                ));
            };
            if address.is_empty() {
                return Err(ConninfoError::new(
                    "the connection URL has an empty IPv6 address",
                ));
            }
            if !after.is_empty() && !after.starts_with([':', '/', '?', ',']) {
                return Err(ConninfoError::new(
                    "the connection URL has something other than \":\" or \"/\" after its IPv6 address",
                ));
            }
            hosts.push_str(address);
            rest = after;
        } else {
            let end = rest.find([':', '/', '?', ',']).unwrap_or(rest.len());
            hosts.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        if let Some(after) = rest.strip_prefix(':') {
            let end = after.find(['/', '?', ',']).unwrap_or(after.len());
            ports.push_str(&after[..end]);
            rest = &after[end..];
        }
        let Some(after) = rest.strip_prefix(',') else {
            return Ok((hosts, ports, rest));
        };
        hosts.push(',');
        ports.push(',');
        rest = after;
    }
}

fn parse_query(query: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    let mut rest = query;
    while !rest.is_empty() {
        let (pair, after) = rest.split_once('&').unwrap_or((rest, ""));
        rest = after;
        let Some((raw_keyword, raw_value)) = pair.split_once('=') else {
            return Err(ConninfoError::new(
                "the connection URL has an option without \"=\" after its \"?\"",
            ));
        };
        let unnamed = "an option after the \"?\"";
        let keyword = decode(raw_keyword).map_err(|why| why.of(unnamed))?;
        let keyword = String::from_utf8_lossy(&keyword);
        let shown = if is_option_name(&keyword) && !query.contains('@') {
            keyword.as_ref()
        } else {
            unnamed
        };
        if raw_value.contains('=') {
            return Err(ConninfoError::new(format!(
                "the connection URL has more than one \"=\" in {shown}; write %3D"
            )));
        }
        let value = decode(raw_value).map_err(|why| why.of(shown))?;
        let known = if keyword == "ssl" && value == b"true" {
            settings.set("sslmode", b"require".to_vec())
        } else {
            store(settings, &keyword, value)
        };
        if !known {
            return Err(ConninfoError::unknown_option(
                (shown != unnamed).then_some(shown),
            ));
        }
    }
    Ok(())
}

/// Why a part of a URL cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Malformed {
    Percent,
    Nul,
    Blank,
}

impl Malformed {
    fn of(self, part: &str) -> ConninfoError {
        ConninfoError::new(match self {
            Self::Percent => format!(
                "the connection URL has a \"%\" without two hexadecimal digits in {part}; write %25"
            ),
            Self::Nul => format!("the connection URL has a %00 in {part}"),
            Self::Blank => format!("the connection URL has a blank in {part}; write %20"),
        })
    }
}

/// Undoes percent-encoding. Blanks around a part are dropped, as libpq does since version 18.
fn decode(raw: &str) -> Result<Vec<u8>, Malformed> {
    let raw = raw.trim_matches(' ').as_bytes();
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        decoded.push(match byte {
            b' ' => return Err(Malformed::Blank),
            b'%' => {
                let mut digit = || {
                    let digit = char::from(*bytes.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err(Malformed::Percent);
                };
                match high << 4 | low {
                    0 => return Err(Malformed::Nul),
                    byte => byte,
                }
            }
            byte => byte,
        });
    }
    Ok(decoded)
}

// --- key = value key='quoted value' …

/// C's `isspace` in the C locale.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

fn parse_pairs(string: &str, settings: &mut Settings) -> Result<(), ConninfoError> {
    let mut rest = string.trim_start_matches(is_blank);
    let mut previous = "";
    let mut follows_password = false;
    while !rest.is_empty() {
        let end = rest.find(|c| c == '=' || is_blank(c)).unwrap_or(rest.len());
        let keyword = &rest[..end];
        let Some(after) = rest[end..].trim_start_matches(is_blank).strip_prefix('=') else {
            return Err(ConninfoError::new(format!(
                "the connection string is neither a postgresql:// URL nor key=value pairs: \
                 \"=\" is missing after {}",
                place(previous)
            )));
        };
        let after = after.trim_start_matches(is_blank);
        let (value, after) = match after.strip_prefix('\'') {
            Some(quoted) => unquote(quoted).ok_or_else(|| {
                ConninfoError::new("the connection string has a quoted value that does not end")
            })?,
            None => take_word(after),
        };
        if !store(settings, keyword, value) {
            // After `password=two words=…` the unknown word is a piece of the password.
            let harmless = is_option_name(keyword) && !follows_password;
            return Err(ConninfoError::unknown_option(harmless.then_some(keyword)));
        }
        previous = keyword;
        // Also after `user=me;password=two words=…`.
        follows_password = rest[..rest.len() - after.len()].contains("password");
        rest = after.trim_start_matches(is_blank);
    }
    Ok(())
}

fn place(previous: &str) -> String {
    match previous {
        "" => "its first word".to_owned(),
        previous => format!(
            "the word that follows the value of {previous} \
             (a value with blanks needs single quotes)"
        ),
    }
}

/// Reads up to the closing quote; `None` when there is none.
fn unquote(quoted: &str) -> Option<(Vec<u8>, &str)> {
    let mut value = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '\'' => return Some((value.into_bytes(), chars.as_str())),
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
}

/// The words of startup options, which are written as unquoted values are.
pub(super) fn words(options: &str) -> impl Iterator<Item = String> {
    let mut rest = options.trim_start_matches(is_blank);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (word, after) = take_word(rest);
        rest = after.trim_start_matches(is_blank);
        Some(String::from_utf8_lossy(&word).into_owned())
    })
}

/// Reads up to the next blank that is not escaped.
fn take_word(string: &str) -> (Vec<u8>, &str) {
    let mut value = String::new();
    let mut chars = string.chars();
    while let Some(c) = chars.next() {
        match c {
            c if is_blank(c) => break,
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    (value.into_bytes(), chars.as_str())
}
