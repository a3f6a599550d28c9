//! What goes to standard output for people: safe to show, and in colour only where that is wanted.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use super::input::Env;

/// What a piece of text says, and so how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Heading,
    Good,
    Doubtful,
    Bad,
    Faint,
}

/// Colours text, or leaves it alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    coloured: bool,
}

impl Paint {
    /// For standard output: in colour on a terminal, unless `NO_COLOR` or `TERM=dumb` speaks against.
    pub(crate) fn for_stdout(env: Env<'_>) -> Self {
        let no_colour = env("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env("TERM").is_some_and(|term| term == OsStr::new("dumb"));
        Self {
            coloured: io::stdout().is_terminal() && !no_colour && !dumb,
        }
    }

    #[cfg(test)]
    pub(crate) fn coloured(coloured: bool) -> Self {
        Self { coloured }
    }

    pub(crate) fn apply(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => "",
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Doubtful => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
        };
        match self.coloured && !code.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Text on one line: characters that would end it, steer a terminal, or make it look like another are escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether a character is not seen as what it is: it controls the terminal or the direction of the text, has no
/// width, or is a blank other than the usual one.
pub(crate) fn is_unprintable(c: char) -> bool {
    // What `Debug` escapes behind another character, where a combining accent is as it should be.
    let escaped = || format!("-{c}").escape_debug().count() > 2;
    !matches!(c, '"' | '\'' | '\\') && escaped()
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn write_out(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_coloured_terminal_gets_escape_sequences() {
        assert_eq!(Paint::coloured(false).apply(Tone::Bad, "fail"), "fail");
        assert_eq!(Paint::coloured(true).apply(Tone::Plain, "plain"), "plain");
        assert_eq!(
            Paint::coloured(true).apply(Tone::Bad, "fail"),
            "\x1b[31mfail\x1b[0m"
        );
    }

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        assert_eq!(
            printable("a\nb\r\tc\x1b[31m\0\u{9b}é"),
            "a\\nb\\r\\tc\\u{1b}[31m\\u{0}\\u{9b}é"
        );
    }

    #[test]
    fn what_is_not_seen_is_escaped() {
        for c in [
            '\u{ad}',
            '\u{a0}',
            '\u{61c}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            let escaped = format!("a{}b", c.escape_default());
            assert_eq!(printable(&format!("a{c}b")), escaped);
        }
        for text in ["\"it's\" \\", "e\u{301}", "日本語", "שלום", "🦀"] {
            assert_eq!(printable(text), text);
        }
    }
}
