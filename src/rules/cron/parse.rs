//! From text to a [`Crontab`], strictly: what another cron dialect reads differently is an error.

use super::{Crontab, LAST, Set};

/// Why a crontab expression is refused: one line that names the field and the item, but does not repeat
/// the whole expression.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CronError(String);

/// One of the five fields: what it is called and which values it takes.
struct Field {
    name: &'static str,
    low: i8,
    /// The end of `*` and of `N/step`.
    high: i8,
    /// The greatest number that may be written: 7 is another name for Sunday.
    max: i8,
    /// Names of the values from `low` on, in lower case.
    names: &'static [&'static str],
    /// For messages: what the field takes beyond `*`, lists, ranges and steps.
    allowed: &'static str,
}

const MINUTE: Field = Field {
    name: "minute",
    low: 0,
    high: 59,
    max: 59,
    names: &[],
    allowed: "0-59",
};
const HOUR: Field = Field {
    name: "hour",
    low: 0,
    high: 23,
    max: 23,
    names: &[],
    allowed: "0-23",
};
const DAY: Field = Field {
    name: "day-of-month",
    low: 1,
    high: 31,
    max: 31,
    names: &[],
    allowed: "1-31, L (the last day)",
};
const MONTH: Field = Field {
    name: "month",
    low: 1,
    high: 12,
    max: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
    allowed: "1-12, jan-dec",
};
const WEEKDAY: Field = Field {
    name: "day-of-week",
    low: 0,
    high: 6,
    max: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    allowed: "0-7 (0 and 7 are Sunday), sun-sat, 5#2 (the second Friday), L5 (the last Friday)",
};

/// The fields that have names.
const NAMED: [&Field; 2] = [&MONTH, &WEEKDAY];

const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// The occurrences in a month of a day that is meant every week.
const EVERY: Set = Set::between(1, 5);

/// In bytes. Nobody writes that much; and so reading takes next to no time, whatever is in it.
const LONGEST: usize = 1000;

impl Crontab {
    /// Reads an expression that comes again and again.
    ///
    /// # Errors
    ///
    /// When it is not a crontab's five fields or a nickname such as `@daily`, means something else to
    /// another cron, or never fires.
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        if text.len() > LONGEST {
            return Err(CronError(format!(
                "these are {} bytes; allowed are up to {LONGEST}",
                text.len()
            )));
        }
        let strange = |&c: &char| (c.is_whitespace() || c.is_control()) && c != ' ' && c != '\t';
        if let Some(c) = text.chars().find(strange) {
            return Err(CronError(format!(
                "contains the character U+{:04X}; only blanks and tabs may stand between fields",
                u32::from(c)
            )));
        }
        let text = text.trim();
        let expression = if text.starts_with('@') {
            expand(text)?
        } else {
            text
        };
        let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(wrong_number_of_fields(text, fields.len()));
        };
        let crontab = Self {
            minutes: MINUTE.parse(minute)?,
            hours: HOUR.parse(hour)?,
            days: parse_days(day)?,
            months: MONTH.parse(month)?,
            weekdays: parse_weekdays(weekday)?,
            either_day: is_restricted(day) && is_restricted(weekday),
            follows_wall_clock: minute.starts_with('*') || hour.starts_with('*'),
        };
        // With a restricted day-of-week there is a day in every month, or at least in some February.
        if !is_restricted(weekday) && crontab.days_never_come() {
            return Err(CronError(format!(
                "never fires: {} {} has no {} {}",
                MONTH.name,
                quote(month),
                DAY.name,
                quote(day)
            )));
        }
        Ok(crontab)
    }

    /// Whether every day of the month is beyond the end of every month.
    fn days_never_come(&self) -> bool {
        let longest = |month| match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let comes = |month| {
            self.days
                .first_from(1)
                .is_some_and(|day| day <= longest(month))
        };
        !self.days.contains(LAST) && !self.months.iter().any(comes)
    }
}

/// Cron's rule: only the first item decides, and only a `*` without a step.
fn is_restricted(field: &str) -> bool {
    field.split(',').next() != Some("*")
}

fn expand(nickname: &str) -> Result<&'static str, CronError> {
    let known = NICKNAMES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(nickname));
    if let Some((_, expression)) = known {
        return Ok(expression);
    }
    let why = if nickname.eq_ignore_ascii_case("@reboot") {
        "it names no time"
    } else if nickname.to_ascii_lowercase().starts_with("@every") {
        "hosts would not agree on its start, write a step such as */5"
    } else {
        "there is no such nickname"
    };
    let names: Vec<&str> = NICKNAMES.iter().map(|&(name, _)| name).collect();
    Err(CronError(format!(
        "{why}; allowed are {} and five fields",
        names.join(", ")
    )))
}

fn wrong_number_of_fields(text: &str, count: usize) -> CronError {
    let why = match count {
        0 => "an expression is missing".to_owned(),
        1 => "this is one field".to_owned(),
        _ if text.contains('=') => "the time zone is not part of an expression".to_owned(),
        _ => format!("these are {count} fields"),
    };
    CronError(format!(
        "{why}; allowed are exactly five (minute hour day-of-month month day-of-week), \
         without seconds, a year or a command"
    ))
}

/// Days of the month, and the last one.
fn parse_days(text: &str) -> Result<Set, CronError> {
    let items = DAY.items(text, |item| {
        if item.eq_ignore_ascii_case("L") {
            Ok(Set::of([LAST]))
        } else {
            DAY.values(item)
        }
    })?;
    Ok(union(items))
}

/// For each day of the week its occurrences in a month.
fn parse_weekdays(text: &str) -> Result<[Set; 7], CronError> {
    let items = WEEKDAY.items(text, |item| {
        if let Some((day, nth)) = item.split_once('#') {
            let nth = i8::try_from(number(nth)?).unwrap_or(i8::MAX);
            if !(1..=5).contains(&nth) {
                return Err("the number after # is 1 to 5".to_owned());
            }
            Ok((Set::of([WEEKDAY.value(day)?]), Set::of([nth])))
        } else if let Some(day) = item.strip_prefix(['L', 'l']) {
            Ok((Set::of([WEEKDAY.value(day)?]), Set::of([LAST])))
        } else {
            Ok((WEEKDAY.values(item)?, EVERY))
        }
    })?;
    let weekly = items.iter().filter(|(_, runs)| *runs == EVERY).count();
    if weekly != 0 && weekly != items.len() {
        let why = "whole weekdays and single ones (# and L) do not mix";
        return Err(WEEKDAY.refuse(text, why));
    }
    let mut weekdays = [Set::default(); 7];
    for (days, runs) in items {
        for day in days.iter() {
            // 7 is Sunday again.
            let weekday = &mut weekdays[usize::from(day.unsigned_abs()) % 7];
            *weekday = weekday.or(runs);
        }
    }
    Ok(weekdays)
}

impl Field {
    fn parse(&self, text: &str) -> Result<Set, CronError> {
        Ok(union(self.items(text, |item| self.values(item))?))
    }

    /// What `read` makes of the items of a list.
    fn items<T>(
        &self,
        text: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, CronError> {
        text.split(',')
            .map(|item| {
                if item.is_empty() {
                    return Err(self.refuse(text, "an item of the list is missing"));
                }
                read(item).map_err(|why| self.refuse(item, self.dialect(item).unwrap_or(&why)))
            })
            .collect()
    }

    /// The values of `*`, a value or a range, with or without a step.
    fn values(&self, item: &str) -> Result<Set, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (item, None),
        };
        let (first, last) = if range == "*" {
            (self.low, self.high)
        } else if let Some((first, last)) = range.split_once('-') {
            (self.value(first)?, self.value(last)?)
        } else {
            let value = self.value(range)?;
            match step {
                None => (value, value),
                // From Sunday, written as 7, to the end of the week.
                Some(_) if value > self.high => (self.low, self.high),
                Some(_) => (value, self.high),
            }
        };
        match step {
            Some(0) => Err("a step is at least 1".to_owned()),
            Some(_) if first > last => Err("a range that runs backward takes no step".to_owned()),
            Some(step) => Ok(Set::of((first..=last).step_by(step))),
            None if first > last => {
                Ok(Set::between(first, self.high).or(Set::between(self.low, last)))
            }
            None => Ok(Set::between(first, last)),
        }
    }

    /// A number or a name.
    fn value(&self, text: &str) -> Result<i8, String> {
        if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
            let number = number(text)?;
            return i8::try_from(number)
                .ok()
                .filter(|value| (self.low..=self.max).contains(value))
                .ok_or_else(|| format!("{number} is out of range"));
        }
        let is = |name: &&str| name.eq_ignore_ascii_case(text);
        let mut named = (self.low..).zip(self.names);
        if let Some((value, _)) = named.find(|(_, name)| is(name)) {
            return Ok(value);
        }
        let starts = |name: &&str| text.get(..3).is_some_and(|t| name.eq_ignore_ascii_case(t));
        Err(
            if let Some(other) = NAMED.iter().find(|f| f.names.iter().any(is)) {
                format!("{text} is a name of the {} field", other.name)
            } else if self.names.iter().any(starts) {
                "names have three letters".to_owned()
            } else if self.names.is_empty() {
                format!("{} is not a number", quote(text))
            } else {
                format!("{} is neither a number nor a name", quote(text))
            },
        )
    }

    /// What a refused item means to another cron, or a usual slip.
    fn dialect(&self, item: &str) -> Option<&'static str> {
        let item = item.to_ascii_uppercase();
        let is_day = self.name == DAY.name;
        let is_weekday = self.name == WEEKDAY.name;
        Some(if item.contains('?') {
            "? is Quartz, write *"
        } else if item.contains(['"', '\'']) {
            "the quotes are part of the value, leave them out"
        } else if item.contains('~') {
            "hosts would not agree on a random time"
        } else if item == "H" || item.starts_with("H/") || item.starts_with("H(") {
            "H is Jenkins, which picks a time of its own"
        } else if item.starts_with('-') {
            "a range needs a start, and no number is negative"
        } else if is_day && item.ends_with('W') {
            "W (the nearest weekday) is Quartz"
        } else if is_day && item.contains('L') {
            "L stands alone, without an offset, a range or a step"
        } else if is_weekday && item.ends_with('L') {
            "the last Friday of a month is written L5"
        } else if is_weekday && item.contains('#') && item.contains(['-', '/', '*']) {
            "# takes one day of the week"
        } else {
            return None;
        })
    }

    fn refuse(&self, item: &str, why: &str) -> CronError {
        CronError(format!(
            "{} {}: {why}; allowed are {}, *, lists, ranges and steps",
            self.name,
            quote(item),
            self.allowed
        ))
    }
}

fn union(sets: Vec<Set>) -> Set {
    sets.into_iter().fold(Set::default(), Set::or)
}

/// Digits and nothing else; there may be zeros before them.
fn number(text: &str) -> Result<usize, String> {
    if text.is_empty() {
        Err("a value is missing".to_owned())
    } else if !text.bytes().all(|b| b.is_ascii_digit()) {
        Err(format!("{} is not a number", quote(text)))
    } else {
        text.parse()
            .map_err(|_| format!("{} is too large", quote(text)))
    }
}

/// Text for a message: on one line whatever is in it, and not too long.
fn quote(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
