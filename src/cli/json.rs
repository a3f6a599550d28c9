//! JSON, as far as a program needs it that only writes flat objects.

use std::fmt::{Display, Write as _};

use super::terminal::is_unprintable;

/// An object on one line, put together member by member.
#[derive(Debug)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        push_string(&mut self.0, value);
        self
    }

    /// A number or `true` or `false`, as Rust prints it; numbers have to be finite.
    pub(crate) fn plain(mut self, name: &str, value: impl Display) -> Self {
        self.name(name);
        // Writing to a string does not fail.
        let _ = write!(self.0, "{value}");
        self
    }

    pub(crate) fn null(self, name: &str) -> Self {
        self.plain(name, "null")
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn name(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        push_string(&mut self.0, name);
        self.0.push(':');
    }
}

fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            // Beyond what JSON asks for: what steers a terminal, ends a line somewhere or is not seen is escaped.
            c if is_unprintable(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_line_whatever_is_in_it() {
        let object = Object::new()
            .text(
                "name",
                "a\"b\\c\nd\te\u{1b}\u{9b}\u{2028}\u{202e}\u{e0041}é",
            )
            .plain("count", -3)
            .plain("left", 1.5)
            .plain("live", true)
            .null("until")
            .end();
        assert_eq!(
            object,
            r#"{"name":"a\"b\\c\nd\u0009e\u001b\u009b\u2028\u202e\udb40\udc41é","count":-3,"left":1.5,"live":true,"until":null}"#
        );
    }

    #[test]
    fn an_empty_object_has_no_members() {
        assert_eq!(Object::new().end(), "{}");
    }
}
