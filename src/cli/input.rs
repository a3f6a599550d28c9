//! What people can set: every setting's variable and option, and how a wrong value is reported.

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::args::Args;
use crate::error::{Setting, quoted};

/// One setting as people give it: by a variable, or by an option that wins over it.
pub(crate) struct Input {
    pub(super) variable: &'static str,
    /// `None` where there is only a variable.
    pub(super) option: Option<&'static str>,
    /// What the library's errors call it; `None` for what they never speak of.
    setting: Option<Setting>,
    /// The option's value.
    of: fn(&Args) -> Option<&OsString>,
}

/// What [`Input`]s are looked up in: [`std::env::var_os`], or a test's own.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub(crate) static KEY: Input = Input {
    variable: "LOCK_KEY",
    option: Some("--key"),
    setting: Some(Setting::LockKey),
    of: |args| args.key.as_ref(),
};

pub(crate) static STRATEGY: Input = Input {
    variable: "LOCK_STRATEGY",
    option: Some("--strategy"),
    setting: Some(Setting::Strategies),
    of: |args| args.strategy.as_ref(),
};

pub(crate) static TABLE: Input = Input {
    variable: "LOCK_TABLE",
    option: Some("--table"),
    setting: Some(Setting::Table),
    of: |args| args.table.as_ref(),
};

pub(crate) static OWNER: Input = Input {
    variable: "LOCK_OWNER",
    option: Some("--owner"),
    setting: Some(Setting::Owner),
    of: |args| args.owner.as_ref(),
};

pub(crate) static CRON: Input = Input {
    variable: "CRON_SCHEDULE",
    option: Some("--cron"),
    setting: Some(Setting::Schedule),
    of: |args| args.cron.as_ref(),
};

pub(crate) static TIMEZONE: Input = Input {
    variable: "LOCK_TIMEZONE",
    option: Some("--timezone"),
    setting: Some(Setting::Timezone),
    of: |args| args.timezone.as_ref(),
};

/// What cron daemons take a crontab's zone from; stands in for [`TIMEZONE`].
pub(crate) static CRON_TZ: Input = Input {
    variable: "CRON_TZ",
    option: None,
    setting: Some(Setting::Timezone),
    of: |_| None,
};

pub(crate) static SLOT_TOLERANCE: Input = Input {
    variable: "LOCK_SLOT_TOLERANCE_SECONDS",
    option: Some("--slot-tolerance"),
    setting: Some(Setting::SlotTolerance),
    of: |args| args.slot_tolerance.as_ref(),
};

pub(crate) static TTL: Input = Input {
    variable: "RUN_LOCK_TTL_SECONDS",
    option: Some("--ttl"),
    setting: Some(Setting::Ttl),
    of: |args| args.ttl.as_ref(),
};

pub(crate) static LEASE_INTERVAL: Input = Input {
    variable: "LOCK_LEASE_INTERVAL",
    option: Some("--lease-interval"),
    setting: Some(Setting::HeartbeatInterval),
    of: |args| args.lease_interval.as_ref(),
};

pub(crate) static WAIT: Input = Input {
    variable: "LOCK_WAIT_SECONDS",
    option: Some("--wait"),
    setting: None,
    of: |args| args.wait.as_ref(),
};

pub(crate) static ON_LEASE_LOSS: Input = Input {
    variable: "LOCK_ON_LEASE_LOSS",
    option: Some("--on-lease-loss"),
    setting: None,
    of: |args| args.on_lease_loss.as_ref(),
};

pub(crate) static KILL_GRACE: Input = Input {
    variable: "LOCK_KILL_GRACE_SECONDS",
    option: Some("--kill-grace"),
    setting: Some(Setting::KillGrace),
    of: |args| args.kill_grace.as_ref(),
};

pub(crate) static JITTER: Input = Input {
    variable: "LOCK_JITTER_SECONDS",
    option: Some("--jitter"),
    setting: Some(Setting::JitterMax),
    of: |args| args.jitter.as_ref(),
};

pub(crate) static CONNECT_TIMEOUT: Input = Input {
    variable: "LOCK_CONNECT_TIMEOUT_SECONDS",
    option: Some("--connect-timeout"),
    setting: Some(Setting::ConnectTimeout),
    of: |args| args.connect_timeout.as_ref(),
};

pub(crate) static CONFLICT_EXIT_CODE: Input = Input {
    variable: "LOCK_CONFLICT_EXIT_CODE",
    option: Some("--conflict-exit-code"),
    setting: None,
    of: |args| args.conflict_exit_code.as_ref(),
};

pub(crate) static LOG_LEVEL: Input = Input {
    variable: "CRONJOB_LOCK_LOG_LEVEL",
    option: Some("--log-level"),
    setting: None,
    of: |args| args.log_level.as_ref(),
};

pub(crate) static LOG_FORMAT: Input = Input {
    variable: "CRONJOB_LOCK_LOG_FORMAT",
    option: Some("--log-format"),
    setting: None,
    of: |args| args.log_format.as_ref(),
};

impl Input {
    /// The value of a setting that has a default: one that is blank is as good as none.
    pub(crate) fn find(&'static self, args: &Args, env: Env<'_>) -> Option<Given> {
        [self.option_value(args), self.variable_value(env)]
            .into_iter()
            .flatten()
            .find(|given| !is_blank(&given.value))
    }

    /// The value of a setting that has no default, and where blank is no value.
    pub(crate) fn require(&'static self, args: &Args, env: Env<'_>) -> Result<Given, BadInput> {
        match self.option_value(args).or_else(|| self.variable_value(env)) {
            Some(given) if is_blank(&given.value) => Err(given.refuse("must not be empty")),
            Some(given) => Ok(given),
            None => Err(BadInput {
                name: self.name(false),
                value: None,
                why: "must be set and not be empty".to_owned(),
            }),
        }
    }

    fn option_value(&'static self, args: &Args) -> Option<Given> {
        (self.of)(args).map(|value| Given {
            input: self,
            by_option: true,
            value: value.clone(),
        })
    }

    fn variable_value(&'static self, env: Env<'_>) -> Option<Given> {
        env(self.variable).map(|value| Given {
            input: self,
            by_option: false,
            value,
        })
    }

    /// Both names, first the one that was used.
    fn name(&self, by_option: bool) -> String {
        match self.option {
            Some(option) if by_option => format!("{option} ({})", self.variable),
            Some(option) => format!("{} ({option})", self.variable),
            None => self.variable.to_owned(),
        }
    }
}

/// Empty, or nothing but white space.
pub(crate) fn is_blank(value: &OsStr) -> bool {
    value.to_str().is_some_and(|text| text.trim().is_empty())
}

/// A value, and where it was given.
#[derive(Clone)]
pub(crate) struct Given {
    input: &'static Input,
    by_option: bool,
    value: OsString,
}

impl Given {
    /// The library's name for what it sets.
    pub(crate) fn setting(&self) -> Option<Setting> {
        self.input.setting
    }

    /// The value as it is.
    pub(crate) fn text(&self) -> Result<&str, BadInput> {
        self.value
            .to_str()
            .ok_or_else(|| self.refuse("is not valid UTF-8"))
    }

    /// The complaint that this value is wrong.
    pub(crate) fn refuse(&self, why: impl Into<String>) -> BadInput {
        BadInput {
            name: self.input.name(self.by_option),
            value: Some(self.value.clone()),
            why: why.into(),
        }
    }
}

/// A setting that is missing or wrong, named as people give it. `Display` is one line.
#[derive(Debug)]
pub(crate) struct BadInput {
    pub(crate) name: String,
    /// As it was given; left out where it is a secret or was not given at all.
    pub(crate) value: Option<OsString>,
    /// What is wrong with it, and what is allowed.
    pub(crate) why: String,
}

impl BadInput {
    /// Says how to do without, if it was not given at all.
    pub(crate) fn or_instead(mut self, way_out: &str) -> Self {
        if self.value.is_none() {
            self.why.push_str(", or ");
            self.why.push_str(way_out);
        }
        self
    }

    /// For a setting that does not stop a run: says what is taken instead.
    pub(crate) fn with_default(mut self, default: &str) -> Self {
        self.why.push_str("; using ");
        self.why.push_str(default);
        self
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(value) = &self.value {
            write!(f, " {}", quoted(value))?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for BadInput {}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::Parser as _;

    static ALL: [&Input; 18] = [
        &KEY,
        &STRATEGY,
        &TABLE,
        &OWNER,
        &CRON,
        &TIMEZONE,
        &CRON_TZ,
        &SLOT_TOLERANCE,
        &TTL,
        &LEASE_INTERVAL,
        &WAIT,
        &ON_LEASE_LOSS,
        &KILL_GRACE,
        &JITTER,
        &CONNECT_TIMEOUT,
        &CONFLICT_EXIT_CODE,
        &LOG_LEVEL,
        &LOG_FORMAT,
    ];

    #[test]
    fn every_option_exists_and_is_read_by_its_own_setting() {
        for input in ALL {
            let Some(option) = input.option else { continue };
            let args = Args::try_parse_from(["dislock", option, "7", "URL", "true"]).unwrap();
            for other in ALL {
                let expected = std::ptr::eq(input, other).then_some("7");
                let value = (other.of)(&args).map(|v| v.to_str().unwrap());
                assert_eq!(value, expected, "{option} read by {}", other.variable);
            }
        }
    }

    #[test]
    fn the_help_names_every_variable_beside_its_option() {
        let command = Args::command();
        for input in ALL {
            let option = input.option.unwrap_or("--timezone");
            let arg = command
                .get_arguments()
                .find(|arg| arg.get_long() == option.strip_prefix("--"))
                .unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.contains(input.variable), "{option}: {help}");
        }
    }

    #[test]
    fn a_complaint_stays_on_one_line_whatever_the_value_holds() {
        let bad = Given {
            input: &TTL,
            by_option: true,
            value: OsString::from("a\nb\x1b\u{202e}"),
        }
        .refuse("must be a number");
        assert_eq!(
            bad.to_string(),
            r#"--ttl (RUN_LOCK_TTL_SECONDS) "a\nb\u{1b}\u{202e}": must be a number"#
        );
    }
}
