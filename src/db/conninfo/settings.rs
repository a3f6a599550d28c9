//! The options that libpq 18 knows, and values given for them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::ConninfoError;

/// Every option of libpq 18, and the environment variable that stands in for it.
const KEYWORDS: &[(&str, Option<&str>)] = &[
    ("service", Some("PGSERVICE")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("passfile", Some("PGPASSFILE")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("dbname", Some("PGDATABASE")),
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("client_encoding", Some("PGCLIENTENCODING")),
    ("options", Some("PGOPTIONS")),
    ("application_name", Some("PGAPPNAME")),
    ("fallback_application_name", None),
    ("keepalives", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("keepalives_count", None),
    ("tcp_user_timeout", None),
    ("sslmode", Some("PGSSLMODE")),
    ("sslnegotiation", Some("PGSSLNEGOTIATION")),
    ("sslcompression", Some("PGSSLCOMPRESSION")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("sslcertmode", Some("PGSSLCERTMODE")),
    ("sslpassword", None),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslcrl", Some("PGSSLCRL")),
    ("sslcrldir", Some("PGSSLCRLDIR")),
    ("sslsni", Some("PGSSLSNI")),
    ("sslkeylogfile", None),
    ("requirepeer", Some("PGREQUIREPEER")),
    ("require_auth", Some("PGREQUIREAUTH")),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION")),
    ("max_protocol_version", Some("PGMAXPROTOCOLVERSION")),
    ("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION")),
    ("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION")),
    ("gssencmode", Some("PGGSSENCMODE")),
    ("krbsrvname", Some("PGKRBSRVNAME")),
    ("gsslib", Some("PGGSSLIB")),
    ("gssdelegation", Some("PGGSSDELEGATION")),
    ("replication", None),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS")),
    ("scram_client_key", None),
    ("scram_server_key", None),
    ("oauth_issuer", None),
    ("oauth_client_id", None),
    ("oauth_client_secret", None),
    ("oauth_scope", None),
];

/// Values of options, as bytes: a password need not be UTF-8. Holds secrets, so it has no `Debug`.
#[derive(Default)]
pub(super) struct Settings {
    values: BTreeMap<&'static str, Vec<u8>>,
    /// The variables of those options that have their value from the environment.
    variables: BTreeMap<&'static str, &'static str>,
}

impl Settings {
    /// Sets an option, over an earlier value. False when there is no such option.
    #[must_use]
    pub(super) fn set(&mut self, keyword: &str, value: Vec<u8>) -> bool {
        let Some(&(keyword, _)) = KEYWORDS.iter().find(|(known, _)| *known == keyword) else {
            return false;
        };
        self.values.insert(keyword, value);
        true
    }

    /// Sets an option that has no value yet. False when there is no such option.
    #[must_use]
    pub(super) fn set_if_absent(&mut self, keyword: &str, value: Vec<u8>) -> bool {
        self.values.contains_key(keyword) || self.set(keyword, value)
    }

    /// Gives every option that has no value yet that of its environment variable.
    pub(super) fn add_environment(&mut self, env: &dyn Fn(&str) -> Option<OsString>) {
        for &(keyword, variable) in KEYWORDS {
            if self.values.contains_key(keyword) {
                continue;
            }
            let Some(variable) = variable else { continue };
            if let Some(value) = env(variable) {
                self.values.insert(keyword, value.into_vec());
                self.variables.insert(keyword, variable);
            }
        }
    }

    /// What messages call the option: by its variable where the value comes from there, so that nobody
    /// looks for the fault in the string.
    pub(super) fn name<'a>(&self, keyword: &'a str) -> &'a str {
        self.variables.get(keyword).copied().unwrap_or(keyword)
    }

    /// The value as it is, which may be empty.
    pub(super) fn bytes(&self, keyword: &str) -> Option<&[u8]> {
        self.values.get(keyword).map(Vec::as_slice)
    }

    /// The value as text, which may be empty.
    pub(super) fn text(&self, keyword: &str) -> Result<Option<&str>, ConninfoError> {
        self.bytes(keyword)
            .map(|value| {
                std::str::from_utf8(value).map_err(|_| {
                    ConninfoError::new(format!("{} is not valid UTF-8", self.name(keyword)))
                })
            })
            .transpose()
    }

    /// The value as text, unless it is empty.
    pub(super) fn nonempty(&self, keyword: &str) -> Result<Option<&str>, ConninfoError> {
        Ok(self.text(keyword)?.filter(|value| !value.is_empty()))
    }

    /// The value as a path, unless it is empty.
    pub(super) fn path(&self, keyword: &str) -> Option<PathBuf> {
        self.bytes(keyword)
            .filter(|value| !value.is_empty())
            .map(|value| OsString::from_vec(value.to_vec()).into())
    }

    /// The option that has `password=…` for its value: in `user= password=x` that is what libpq reads.
    pub(super) fn with_swallowed_password(&self) -> Option<&'static str> {
        let mut others = self
            .values
            .iter()
            .filter(|(keyword, _)| **keyword != "password");
        let (keyword, _) = others.find(|(_, value)| value.starts_with(b"password="))?;
        Some(keyword)
    }

    /// Everything that is set, for tests.
    #[cfg(any(test, fuzzing))]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.values.iter().map(|(&k, v)| (k, v.as_slice()))
    }
}
