//! How single values are written, and what is said about those that are not written so.
//!
//! Whether a well-formed value is in range is the library's business, except for the sign: a
//! `Duration` has none.

use std::time::Duration;

use log::LevelFilter;

use super::input::{BadInput, Given};
use super::logging;
use crate::context::{LeaseLossPolicy, LockStrategy};

/// A way of writing values.
pub(crate) struct Form<T> {
    /// Reads a text without blanks around it.
    read: fn(&str) -> Option<T>,
    /// Completes "must be".
    allowed: &'static str,
}

impl<T> Form<T> {
    /// Reads what was given.
    pub(crate) fn read(&self, given: &Given) -> Result<T, BadInput> {
        (self.read)(given.text()?.trim())
            .ok_or_else(|| given.refuse(format!("must be {}", self.allowed)))
    }
}

/// Text, without blanks around it.
pub(crate) static TRIMMED: Form<String> = Form {
    read: |text| Some(text.to_owned()),
    allowed: "text",
};

pub(crate) static SECONDS: Form<Duration> = Form {
    read: seconds,
    allowed: "a number of seconds, zero or more",
};

/// Where the library refuses zero.
pub(crate) static POSITIVE_SECONDS: Form<Duration> = Form {
    read: seconds,
    allowed: "a number of seconds greater than zero",
};

/// [`Duration::MAX`] is for ever.
pub(crate) static WAIT: Form<Duration> = Form {
    read: |text| {
        if text.eq_ignore_ascii_case("forever") {
            Some(Duration::MAX)
        } else {
            seconds(text)
        }
    },
    allowed: "a number of seconds, zero or more, or `forever`",
};

pub(crate) static EXIT_CODE: Form<u8> = Form {
    read: |text| text.parse().ok(),
    allowed: "a whole number from 0 to 255",
};

pub(crate) static POLICY: Form<LeaseLossPolicy> = Form {
    read: |text| match text.to_ascii_lowercase().as_str() {
        "terminate" => Some(LeaseLossPolicy::Terminate),
        "continue" => Some(LeaseLossPolicy::Continue),
        _ => None,
    },
    allowed: "`terminate` or `continue`",
};

pub(crate) static STRATEGIES: Form<Vec<LockStrategy>> = Form {
    read: |text| text.split(',').map(strategy).collect(),
    allowed: "`schedule`, `lease` or `schedule,lease`",
};

pub(crate) static LOG_LEVEL: Form<LevelFilter> = Form {
    read: logging::level,
    allowed: "DEBUG, INFO, WARNING, ERROR or CRITICAL",
};

pub(crate) static LOG_FORMAT: Form<logging::Format> = Form {
    read: |text| match &*text.to_ascii_lowercase() {
        "text" => Some(logging::Format::Text),
        "json" => Some(logging::Format::Json),
        _ => None,
    },
    allowed: "`text` or `json`",
};

/// A number that is too large for a `Duration` becomes the longest one: no number is infinite, and
/// the library says where that is too long.
fn seconds(text: &str) -> Option<Duration> {
    // Rust also reads "inf" and "nan".
    if text.contains(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-' | 'e' | 'E')) {
        return None;
    }
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number >= 0.0)
        .then(|| Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX))
}

/// An age in whole seconds, or with a unit: `90s`, `30m`, `12h`, `7d`, `4w`; at most 100 years.
pub(crate) fn age(text: &str) -> Option<Duration> {
    const LONGEST: u64 = 100 * 366 * 24 * 60 * 60;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits)? {
        "" | "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return None,
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds <= LONGEST).then(|| Duration::from_secs(seconds))
}

fn strategy(item: &str) -> Option<LockStrategy> {
    match item.trim().to_ascii_lowercase().as_str() {
        "schedule" => Some(LockStrategy::Schedule),
        "lease" => Some(LockStrategy::Lease),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_finite_decimal_numbers_of_zero_or_more() {
        let millis = Duration::from_millis;
        let cases = [
            ("0", Some(millis(0))),
            ("-0", Some(millis(0))),
            ("60", Some(millis(60_000))),
            ("+1", Some(millis(1_000))),
            ("0.25", Some(millis(250))),
            (".5", Some(millis(500))),
            ("5.", Some(millis(5_000))),
            ("1e2", Some(millis(100_000))),
            ("1e300", Some(Duration::MAX)),
            ("1e999", None),
            ("-1", None),
            ("-0.001", None),
            ("", None),
            (".", None),
            ("e", None),
            ("1,5", None),
            ("1_000", None),
            ("1 0", None),
            ("10s", None),
            ("0x10", None),
            ("inf", None),
            ("-inf", None),
            ("Infinity", None),
            ("nan", None),
            ("NaN", None),
            ("forever", None),
            ("١", None),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_a_wait_can_be_for_ever() {
        assert_eq!((WAIT.read)("forever"), Some(Duration::MAX));
        assert_eq!((WAIT.read)("FOREVER"), Some(Duration::MAX));
        assert_eq!((WAIT.read)("2"), Some(Duration::from_secs(2)));
        assert_eq!((WAIT.read)("-1"), None);
        assert_eq!((SECONDS.read)("forever"), None);
    }

    #[test]
    fn ages_are_whole_numbers_with_a_unit() {
        let seconds = |s| Some(Duration::from_secs(s));
        let cases = [
            ("0", seconds(0)),
            ("3600", seconds(3_600)),
            ("90s", seconds(90)),
            ("30m", seconds(1_800)),
            ("12h", seconds(43_200)),
            ("7d", seconds(604_800)),
            ("4w", seconds(2_419_200)),
            ("", None),
            ("d", None),
            ("-1d", None),
            ("1.5h", None),
            ("7 d", None),
            ("7D", None),
            ("1d12h", None),
            ("7days", None),
            ("1e3", None),
            ("36601d", None),
            ("99999999999999999999", None),
            ("18446744073709551615w", None),
            ("٧d", None),
        ];
        for (text, expected) in cases {
            assert_eq!(age(text), expected, "{text:?}");
        }
    }

    #[test]
    fn strategies_are_read_in_any_case_and_order_and_with_blanks() {
        use LockStrategy::{Lease, Schedule};
        let cases = [
            ("schedule", Some(vec![Schedule])),
            ("LEASE", Some(vec![Lease])),
            ("Schedule , leasE", Some(vec![Schedule, Lease])),
            ("lease,schedule", Some(vec![Lease, Schedule])),
            ("lease,lease", Some(vec![Lease, Lease])),
            ("lease,", None),
            (",lease", None),
            ("schedule,,lease", None),
            (",", None),
            ("", None),
            ("schedule;lease", None),
            ("schedule lease", None),
            ("mutex", None),
        ];
        for (text, expected) in cases {
            assert_eq!((STRATEGIES.read)(text), expected, "{text:?}");
        }
    }

    #[test]
    fn exit_codes_are_whole_numbers_of_one_byte() {
        for (text, expected) in [
            ("0", Some(0)),
            ("75", Some(75)),
            ("255", Some(255)),
            ("256", None),
            ("-1", None),
            ("1.0", None),
            ("", None),
        ] {
            assert_eq!((EXIT_CODE.read)(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_policy_is_one_of_two_words() {
        assert_eq!((POLICY.read)("Terminate"), Some(LeaseLossPolicy::Terminate));
        assert_eq!((POLICY.read)("continue"), Some(LeaseLossPolicy::Continue));
        assert_eq!((POLICY.read)("ignore"), None);
    }
}
