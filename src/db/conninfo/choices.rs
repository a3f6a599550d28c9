//! Options that are one of a few words, or a number.

use std::time::Duration;

use super::ConninfoError;
use super::settings::Settings;

/// Declares an enum whose variants are the words of an option.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident of $keyword:literal {
        $($(#[$default:ident])? $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name {
            $($(#[$default])? $variant),+
        }

        impl $name {
            /// What the option says, if it was given.
            pub(super) fn given(settings: &Settings) -> Result<Option<Self>, ConninfoError> {
                match settings.bytes($keyword) {
                    None => Ok(None),
                    $(Some(value) if value == $word.as_bytes() => Ok(Some(Self::$variant)),)+
                    Some(_) => Err(ConninfoError::new(format!(
                        concat!("invalid {}; it can be", $(" ", $word),+),
                        settings.name($keyword)
                    ))),
                }
            }
        }
    };
}

choice! {
    /// Whether to use TLS, and how much of the server's certificate to verify; the strictest last.
    SslMode of "sslmode" {
        Disable = "disable",
        Allow = "allow",
        #[default]
        Prefer = "prefer",
        Require = "require",
        VerifyCa = "verify-ca",
        VerifyFull = "verify-full",
    }
}

choice! {
    /// How TLS begins: after PostgreSQL's own question, or at once.
    SslNegotiation of "sslnegotiation" {
        #[default]
        Postgres = "postgres",
        Direct = "direct",
    }
}

choice! {
    /// Whether to show the server a client certificate.
    SslCertMode of "sslcertmode" {
        Disable = "disable",
        #[default]
        Allow = "allow",
        Require = "require",
    }
}

choice! {
    /// Whether SCRAM has to be tied to the TLS session.
    ChannelBinding of "channel_binding" {
        Disable = "disable",
        #[default]
        Prefer = "prefer",
        Require = "require",
    }
}

choice! {
    /// Encryption by Kerberos, which is not supported.
    GssEncMode of "gssencmode" {
        Disable = "disable",
        #[default]
        Prefer = "prefer",
        Require = "require",
    }
}

choice! {
    /// Which servers will do.
    TargetSessionAttrs of "target_session_attrs" {
        #[default]
        Any = "any",
        ReadWrite = "read-write",
        ReadOnly = "read-only",
        Primary = "primary",
        Standby = "standby",
        PreferStandby = "prefer-standby",
    }
}

choice! {
    /// In which order hosts are tried.
    LoadBalanceHosts of "load_balance_hosts" {
        #[default]
        Disable = "disable",
        Random = "random",
    }
}

/// A version of TLS as an option names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TlsVersion {
    V1_0,
    V1_1,
    V1_2,
    V1_3,
}

impl TlsVersion {
    pub(super) fn given(settings: &Settings, keyword: &str) -> Result<Option<Self>, ConninfoError> {
        let Some(word) = settings.nonempty(keyword)? else {
            return Ok(None);
        };
        match word.to_ascii_lowercase().as_str() {
            "tlsv1" => Ok(Some(Self::V1_0)),
            "tlsv1.1" => Ok(Some(Self::V1_1)),
            "tlsv1.2" => Ok(Some(Self::V1_2)),
            "tlsv1.3" => Ok(Some(Self::V1_3)),
            _ => Err(ConninfoError::new(format!(
                "invalid {}; it can be TLSv1 TLSv1.1 TLSv1.2 TLSv1.3",
                settings.name(keyword)
            ))),
        }
    }
}

/// An integer as C's `strtol` reads it, blanks around it allowed.
pub(super) fn integer(settings: &Settings, keyword: &str) -> Result<Option<i32>, ConninfoError> {
    let Some(text) = settings.text(keyword)? else {
        return Ok(None);
    };
    text.trim_ascii()
        .parse()
        .map(Some)
        .map_err(|_| ConninfoError::new(format!("{} has to be an integer", settings.name(keyword))))
}

/// A positive number of units; zero and less mean "the system's default".
pub(super) fn positive(
    settings: &Settings,
    keyword: &str,
    unit: Duration,
) -> Result<Option<Duration>, ConninfoError> {
    Ok(integer(settings, keyword)?
        .and_then(|n| u32::try_from(n).ok())
        .filter(|&n| n > 0)
        .map(|n| unit * n))
}
