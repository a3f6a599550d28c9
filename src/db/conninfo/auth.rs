//! `require_auth`: by which methods the server may ask for proof, or that it must.

use super::ConninfoError;
use super::settings::Settings;

/// A way in which servers ask clients to prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMethod {
    Password,
    Md5,
    Gss,
    Sspi,
    ScramSha256,
    OAuth,
}

const NAMES: [(&str, AuthMethod); 6] = [
    ("password", AuthMethod::Password),
    ("md5", AuthMethod::Md5),
    ("gss", AuthMethod::Gss),
    ("sspi", AuthMethod::Sspi),
    ("scram-sha-256", AuthMethod::ScramSha256),
    ("oauth", AuthMethod::OAuth),
];

/// What the server may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequiredAuth {
    allowed: Vec<AuthMethod>,
    /// Whether it may let us in without asking.
    may_skip: bool,
}

impl Default for RequiredAuth {
    fn default() -> Self {
        Self {
            allowed: NAMES.map(|(_, method)| method).to_vec(),
            may_skip: true,
        }
    }
}

impl RequiredAuth {
    pub(crate) fn allows(&self, method: AuthMethod) -> bool {
        self.allowed.contains(&method)
    }

    pub(crate) fn allows_none(&self) -> bool {
        self.may_skip
    }

    /// A list of what is allowed, or of what is not; each word at most once, since a slip here would
    /// go unnoticed.
    pub(super) fn given(settings: &Settings) -> Result<Self, ConninfoError> {
        let Some(list) = settings.nonempty("require_auth")? else {
            return Ok(Self::default());
        };
        let negative = list.starts_with('!');
        let mut required = if negative {
            Self::default()
        } else {
            Self {
                allowed: Vec::new(),
                may_skip: false,
            }
        };
        let mut seen = Vec::new();
        for word in list.split(',') {
            let name = match word.strip_prefix('!') {
                Some(name) if negative => name,
                None if !negative => word,
                _ => {
                    return Err(ConninfoError::new(
                        "require_auth mixes methods with and without \"!\"",
                    ));
                }
            };
            if seen.contains(&name) {
                return Err(ConninfoError::new(
                    "require_auth names a method more than once",
                ));
            }
            seen.push(name);
            if name == "none" {
                required.may_skip = !negative;
                continue;
            }
            let Some((_, method)) = NAMES.iter().find(|(known, _)| *known == name) else {
                return Err(ConninfoError::new(
                    "invalid require_auth; it can list, each with or each without \"!\": \
                     password md5 gss sspi scram-sha-256 oauth none",
                ));
            };
            if negative {
                required.allowed.retain(|allowed| allowed != method);
            } else {
                required.allowed.push(*method);
            }
        }
        Ok(required)
    }
}
