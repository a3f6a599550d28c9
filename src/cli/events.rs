//! Log records for machines: one JSON object a line.
//!
//! What a record is about stands in its key-value pairs, which the code that logs it names; `event`
//! is the one that programs go by. docs/events.md lists them.

use jiff::Timestamp;
use log::Record;
use log::kv::{self, Key, Value, VisitSource, VisitValue};

use super::json::Object;

/// The event of a record that has no name of its own: its message says what happened.
const UNNAMED: &str = "message";

/// One record as one line. `lock_key` is what the record is about unless it says so itself.
pub(crate) fn line(
    at: Timestamp,
    level: &str,
    record: &Record<'_>,
    lock_key: Option<&str>,
) -> String {
    let mut event = Event {
        name: UNNAMED.to_owned(),
        key: lock_key.map(str::to_owned),
        fields: Vec::new(),
    };
    // Nothing in the visitor below fails.
    let _ = record.key_values().visit(&mut event);
    let mut object = start(at, level, &event.name);
    if let Some(key) = &event.key {
        object = object.text("key", key);
    }
    for (name, value) in &event.fields {
        object = match value {
            Scalar::Text(text) => object.text(name, text),
            Scalar::Plain(text) => object.plain(name, text),
        };
    }
    end(object, &record.args().to_string())
}

/// A line that did not come through the logger.
pub(crate) fn bare_line(at: Timestamp, level: &str, event: &str, message: &str) -> String {
    end(start(at, level, event), message)
}

fn start(at: Timestamp, level: &str, event: &str) -> Object {
    Object::new()
        .text("time", &at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
        .text("level", level)
        .text("event", event)
}

fn end(object: Object, message: &str) -> String {
    let mut line = object.text("message", message).end();
    line.push('\n');
    line
}

struct Event {
    name: String,
    key: Option<String>,
    fields: Vec<(String, Scalar)>,
}

enum Scalar {
    Text(String),
    /// As JSON writes it.
    Plain(String),
}

impl<'kvs> VisitSource<'kvs> for Event {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        match key.as_str() {
            "event" => self.name = value.to_string(),
            "key" => self.key = Some(value.to_string()),
            name => {
                let mut scalar = Scalar::Plain("null".to_owned());
                value.visit(&mut scalar)?;
                self.fields.push((name.to_owned(), scalar));
            }
        }
        Ok(())
    }
}

impl<'v> VisitValue<'v> for Scalar {
    fn visit_any(&mut self, value: Value<'_>) -> Result<(), kv::Error> {
        *self = Self::Text(value.to_string());
        Ok(())
    }

    fn visit_null(&mut self) -> Result<(), kv::Error> {
        Ok(())
    }

    fn visit_u64(&mut self, value: u64) -> Result<(), kv::Error> {
        *self = Self::Plain(value.to_string());
        Ok(())
    }

    fn visit_i64(&mut self, value: i64) -> Result<(), kv::Error> {
        *self = Self::Plain(value.to_string());
        Ok(())
    }

    fn visit_f64(&mut self, value: f64) -> Result<(), kv::Error> {
        // JSON has no infinities.
        if value.is_finite() {
            *self = Self::Plain(value.to_string());
        }
        Ok(())
    }

    fn visit_bool(&mut self, value: bool) -> Result<(), kv::Error> {
        *self = Self::Plain(value.to_string());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    fn line_of(kvs: &dyn kv::Source, lock_key: Option<&str>) -> String {
        let at = "2026-01-31T02:00:00.1234Z".parse().unwrap();
        let record = Record::builder()
            .args(format_args!("a\n\"b\""))
            .level(Level::Info)
            .key_values(kvs)
            .build();
        line(at, "INFO", &record, lock_key)
    }

    #[test]
    fn a_record_without_a_name_is_a_message() {
        let nothing: [(&str, &str); 0] = [];
        assert_eq!(
            line_of(&nothing, None),
            "{\"time\":\"2026-01-31T02:00:00.123Z\",\"level\":\"INFO\",\"event\":\"message\",\
             \"message\":\"a\\n\\\"b\\\"\"}\n"
        );
    }

    #[test]
    fn numbers_stay_numbers_and_what_is_none_is_null() {
        let none: Option<&str> = None;
        let pairs = [
            ("event", Value::from("lock_acquired")),
            ("token", Value::from(7_i64)),
            ("duration_seconds", Value::from(0.25)),
            ("endless", Value::from(f64::INFINITY)),
            ("owner", Value::from("h:1\u{1b}")),
            ("until", none.map_or(Value::null(), Value::from)),
        ];
        let line = line_of(&pairs, Some("job"));
        assert!(
            line.contains(
                r#""event":"lock_acquired","key":"job","token":7,"duration_seconds":0.25,"endless":null,"owner":"h:1\u001b","until":null,"#
            ),
            "{line}"
        );
    }

    #[test]
    fn a_record_that_names_its_key_is_about_that_one() {
        let line = line_of(&[("key", "other")], Some("job"));
        assert!(
            line.contains(r#""key":"other""#) && !line.contains("job"),
            "{line}"
        );
    }
}
