//! TLS as `sslmode` and its relatives mean it, on rustls.

mod files;
mod verify;
mod x509;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, OtherError, SignatureScheme, SupportedProtocolVersion,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use self::verify::ServerCheck;
use self::x509::Certificate;
use super::conninfo::{SslCertMode, SslMode, SslNegotiation, TlsOptions, TlsVersion};

/// What PostgreSQL is called in ALPN.
const PROTOCOL: &[u8] = b"postgresql";

/// Why there is no encrypted connection.
#[derive(Debug)]
pub(super) enum TlsError {
    /// The connection broke: the peer may be restarting.
    Io(io::Error),
    /// We or the server do not want it.
    Refused(String, Option<Cause>),
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

impl TlsError {
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into(), None)
    }

    fn caused(why: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Refused(why.into(), Some(cause.into()))
    }
}

/// Shakes hands over a connected socket. Returns the stream and the certificate's hash that a login
/// can be bound to.
///
/// `host` is the name to verify and to tell the server, if one is known.
pub(super) async fn handshake<S>(
    socket: S,
    options: &TlsOptions,
    host: Option<&str>,
) -> Result<(TlsStream<S>, Option<Vec<u8>>), TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let provider = Arc::new(crypto());
    let client = Arc::new(ClientCertificate {
        certificate: files::client_certificate(options, &provider)?,
        asked: AtomicBool::new(false),
    });
    let config = client_config(options, host, provider, Arc::clone(&client))?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(server_name(host), socket)
        .await
        .map_err(explain)?;

    let (_, session) = stream.get_ref();
    if options.negotiation == SslNegotiation::Direct && session.alpn_protocol() != Some(PROTOCOL) {
        return Err(TlsError::refused(
            "the server answers TLS without naming the protocol: is it PostgreSQL 17 or later?",
        ));
    }
    if options.certificate_mode == SslCertMode::Require {
        client.check_was_shown()?;
    }
    let binding = session.peer_certificates().and_then(|chain| {
        let der = chain.first()?;
        let hash = Certificate::read(der)?.binding_hash()?;
        Some(ring::digest::digest(hash, der).as_ref().to_vec())
    });
    Ok((stream, binding))
}

/// ring, with P-256 first: it is the one curve of servers before version 18, and guessing another
/// costs a round trip.
fn crypto() -> CryptoProvider {
    CryptoProvider {
        kx_groups: vec![
            provider::kx_group::SECP256R1,
            provider::kx_group::X25519,
            provider::kx_group::SECP384R1,
        ],
        ..provider::default_provider()
    }
}

fn client_config(
    options: &TlsOptions,
    host: Option<&str>,
    provider: Arc<CryptoProvider>,
    client: Arc<ClientCertificate>,
) -> Result<ClientConfig, TlsError> {
    let host = if options.mode == SslMode::VerifyFull {
        let Some(host) = host else {
            return Err(TlsError::refused(
                "sslmode=verify-full needs a host name to verify",
            ));
        };
        Some(host.to_owned())
    } else {
        None
    };
    let check = ServerCheck {
        roots: files::roots(options)?,
        host,
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(options))
        .map_err(|e| TlsError::caused("cannot set TLS up", e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(check))
        .with_client_cert_resolver(client);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.enable_sni = options.sni;
    // Every connection has a configuration of its own; there is nothing to resume.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// At least one: a maximum below 1.2 has been refused.
fn versions(options: &TlsOptions) -> Vec<&'static SupportedProtocolVersion> {
    let min = options.min_version.unwrap_or(TlsVersion::V1_2);
    let max = options.max_version.unwrap_or(TlsVersion::V1_3);
    [
        (TlsVersion::V1_3, &rustls::version::TLS13),
        (TlsVersion::V1_2, &rustls::version::TLS12),
    ]
    .into_iter()
    .filter(|(version, _)| (min..=max).contains(version))
    .map(|(_, version)| version)
    .collect()
}

/// What the server is told, where it is a name that can be told. Verifying it is our own business.
fn server_name(host: Option<&str>) -> ServerName<'static> {
    host.and_then(|host| ServerName::try_from(host.to_owned()).ok())
        .unwrap_or(ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()))
}

/// Shows our certificate when asked, and remembers that.
#[derive(Debug)]
struct ClientCertificate {
    certificate: Option<Arc<CertifiedKey>>,
    asked: AtomicBool,
}

impl ClientCertificate {
    /// `sslcertmode=require`.
    fn check_was_shown(&self) -> Result<(), TlsError> {
        if !self.asked.load(Ordering::Relaxed) {
            Err(TlsError::refused(
                "sslcertmode is require, but the server did not ask for a certificate",
            ))
        } else if self.certificate.is_none() {
            Err(TlsError::refused(
                "sslcertmode is require, but there is no client certificate",
            ))
        } else {
            Ok(())
        }
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        // Whoever issued it: the server may know more than it says.
        self.certificate
            .clone()
            .filter(|certificate| certificate.key.choose_scheme(schemes).is_some())
    }

    fn has_certs(&self) -> bool {
        self.certificate.is_some()
    }
}

/// Whether an error says that one side does not want the other: a server that looks at our
/// certificate after the handshake says so in place of its first answer.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let tls = error.get_ref().and_then(|e| e.downcast_ref());
    matches!(
        tls,
        Some(rustls::Error::AlertReceived(_) | rustls::Error::InvalidCertificate(_))
    )
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other errors are told in rustls's words"
)]
fn explain(error: io::Error) -> TlsError {
    let Some(tls) = error.get_ref().and_then(|e| e.downcast_ref()) else {
        return TlsError::Io(error);
    };
    match tls {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
            let cause = why.source().map(|cause| cause.to_string().into());
            TlsError::Refused(why.to_string(), cause)
        }
        rustls::Error::AlertReceived(alert) => {
            TlsError::refused(format!("the server refuses TLS: {alert:?}"))
        }
        other => TlsError::caused("TLS handshake failed", other.clone()),
    }
}
