//! What a connection string and its surroundings say of TLS.

use std::ffi::OsString;
use std::path::PathBuf;

use super::ConninfoError;
use super::choices::{SslCertMode, SslMode, SslNegotiation, TlsVersion};
use super::settings::Settings;

/// What TLS has to be like. Files are read when they are needed, as libpq does: they may be renewed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "tls"),
    allow(dead_code, reason = "read and checked, but of no use without TLS")
)]
pub(crate) struct TlsOptions {
    pub(crate) mode: SslMode,
    pub(crate) negotiation: SslNegotiation,
    pub(crate) root: Root,
    /// The client's certificate; by default `postgresql.crt` in [`directory`](Self::directory).
    pub(crate) certificate: Option<PathBuf>,
    /// Its key; by default `postgresql.key` there.
    pub(crate) key: Option<PathBuf>,
    pub(crate) certificate_mode: SslCertMode,
    /// Whether the server is told the host name before it shows a certificate.
    pub(crate) sni: bool,
    pub(crate) min_version: Option<TlsVersion>,
    pub(crate) max_version: Option<TlsVersion>,
    /// What the roots have revoked; by default `root.crl` there, if it exists.
    pub(crate) revocation_list: Option<PathBuf>,
    /// `~/.postgresql`, unless there is no home.
    pub(crate) directory: Option<PathBuf>,
}

/// Who may vouch for the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Root {
    /// `root.crt` in `~/.postgresql`, if there is one.
    #[default]
    Default,
    /// The certificates in this file.
    File(PathBuf),
    /// Those that the operating system trusts.
    System,
}

pub(super) fn options(
    settings: &Settings,
    env: &dyn Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
) -> Result<TlsOptions, ConninfoError> {
    let root = match settings.path("sslrootcert") {
        None => Root::Default,
        Some(path) if path.as_os_str() == "system" => Root::System,
        Some(path) => Root::File(path),
    };
    let required =
        env("PGREQUIRESSL").is_some_and(|value| value.as_encoded_bytes().starts_with(b"1"));
    let mode = match SslMode::given(settings)? {
        Some(mode) => mode,
        None if required => SslMode::Require,
        None if root == Root::System => SslMode::VerifyFull,
        None => SslMode::default(),
    };
    if root == Root::System && mode != SslMode::VerifyFull {
        return Err(ConninfoError::new(
            "sslrootcert=system needs sslmode=verify-full",
        ));
    }
    let negotiation = SslNegotiation::given(settings)?.unwrap_or_default();
    if negotiation == SslNegotiation::Direct && mode < SslMode::Require {
        return Err(ConninfoError::new(
            "sslnegotiation=direct needs sslmode=require, verify-ca or verify-full",
        ));
    }
    let min_version = TlsVersion::given(settings, "ssl_min_protocol_version")?;
    let max_version = TlsVersion::given(settings, "ssl_max_protocol_version")?;
    if matches!((min_version, max_version), (Some(min), Some(max)) if min > max) {
        return Err(ConninfoError::new(
            "ssl_min_protocol_version is above ssl_max_protocol_version",
        ));
    }
    if max_version.is_some_and(|max| max < TlsVersion::V1_2) {
        return Err(ConninfoError::new(
            "an ssl_max_protocol_version below TLSv1.2 is not supported",
        ));
    }
    if cfg!(not(feature = "tls")) && mode >= SslMode::Require {
        return Err(ConninfoError::new(
            "this build of dislock has no TLS: sslmode can be disable, allow or prefer",
        ));
    }
    Ok(TlsOptions {
        mode,
        negotiation,
        root,
        certificate: settings.path("sslcert"),
        key: settings.path("sslkey"),
        certificate_mode: SslCertMode::given(settings)?.unwrap_or_default(),
        sni: settings
            .text("sslsni")?
            .is_none_or(|sni| sni.starts_with('1')),
        min_version,
        max_version,
        revocation_list: settings.path("sslcrl"),
        directory: home.map(|home| home.join(".postgresql")),
    })
}
