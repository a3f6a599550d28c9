//! Which server certificates are accepted: what libpq with OpenSSL accepts, and nothing more.
//!
//! The chain is built by webpki. It is stricter than OpenSSL in ways that matter for PostgreSQL,
//! where certificates are home-made: it takes no certificate of version 1 (which is what the
//! PostgreSQL manual's own recipe makes with OpenSSL before 3.2) and no CA certificate as a server's
//! (which is what a self-signed certificate that is its own root mostly is). For these two there is
//! one more rule: the certificate has to be signed directly by a root. It is laxer in others: here a
//! root has to be self-signed and in date, and the key's usage has to allow a TLS server.
//!
//! Host names are compared as libpq does, which knows common names.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use rustls::{
    CertificateError, DigitallySignedStruct, OtherError, PeerMisbehaved, SignatureScheme,
};
use webpki::{CertRevocationList, RawPublicKeyEntity};

use super::x509::{Certificate, Name};

/// Why a server's certificate is not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untrusted {
    #[error("the server's certificate cannot be read")]
    Unreadable,
    #[error("the server's certificate was not issued by a CA in {roots}")]
    UnknownIssuer { roots: String },
    #[error("the server's certificate has expired")]
    Expired,
    #[error("the server's certificate is not valid yet")]
    NotYetValid,
    #[error("the server's certificate is not meant for a TLS server")]
    WrongPurpose,
    #[error("the server's certificate is for {names}, not for host {host}")]
    WrongHost { host: String, names: String },
    #[error("the server's certificate has been revoked")]
    Revoked,
    #[error("the server's certificate cannot be verified")]
    Other(#[source] webpki::Error),
}

/// Whom the server's certificate has to come from.
pub(super) struct Roots {
    anchors: Vec<TrustAnchor<'static>>,
    /// Certificates that help to build a chain, but do not end it.
    intermediates: Vec<CertificateDer<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
    /// Where they come from, for messages.
    source: String,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots")
            .field("anchors", &self.anchors.len())
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Roots {
    /// Sorts certificates into those that end a chain and those that may be part of one.
    pub(super) fn new(
        certificates: &[CertificateDer<'static>],
        revoked: Vec<CertRevocationList<'static>>,
        source: String,
        now: UnixTime,
    ) -> Self {
        let mut roots = Self {
            anchors: Vec::new(),
            intermediates: Vec::new(),
            revoked,
            source,
        };
        for der in certificates {
            let Some(certificate) = Certificate::read(der) else {
                continue;
            };
            if !certificate.is_self_issued() {
                roots.intermediates.push(der.clone());
            } else if check_dates(&certificate, now).is_ok() {
                let anchor = webpki::anchor_from_trusted_cert(der);
                roots.anchors.extend(anchor.map(|a| a.to_owned()));
            }
        }
        roots
    }
}

/// What the handshake asks about the server.
#[derive(Debug)]
pub(super) struct ServerCheck {
    /// Nobody has to vouch for the server when there are none.
    pub(super) roots: Option<Roots>,
    /// The host that the certificate has to name.
    pub(super) host: Option<String>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCheck {
    fn check(
        &self,
        der: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Untrusted> {
        let Some(roots) = &self.roots else {
            return Ok(());
        };
        let certificate = Certificate::read(der).ok_or(Untrusted::Unreadable)?;
        let chain = if certificate.is_v3 {
            self.check_chain(der, sent, roots, now)
        } else {
            Err(webpki::Error::UnsupportedCertVersion)
        };
        match chain {
            Ok(()) => {}
            Err(webpki::Error::UnsupportedCertVersion | webpki::Error::CaUsedAsEndEntity) => {
                self.check_signed_by_root(&certificate, roots, now)?;
            }
            Err(e) => return Err(explain(e, roots)),
        }
        if !certificate.allows_tls_server() {
            return Err(Untrusted::WrongPurpose);
        }
        match &self.host {
            Some(host) => check_host(&certificate, host),
            None => Ok(()),
        }
    }

    fn check_chain(
        &self,
        der: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        roots: &Roots,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let intermediates: Vec<_> = sent.iter().chain(&roots.intermediates).cloned().collect();
        let lists: Vec<_> = roots.revoked.iter().collect();
        let revocation = webpki::RevocationOptionsBuilder::new(&lists)
            .ok()
            .map(|options| {
                options
                    .with_expiration_policy(webpki::ExpirationPolicy::Enforce)
                    .build()
            });
        webpki::EndEntityCert::try_from(der)?
            .verify_for_usage(
                self.algorithms.all,
                &roots.anchors,
                &intermediates,
                now,
                webpki::KeyUsage::server_auth(),
                revocation,
                None,
            )
            .map(|_path| ())
    }

    /// The rule for what webpki does not take: in date, and signed by the key of a root.
    fn check_signed_by_root(
        &self,
        certificate: &Certificate<'_>,
        roots: &Roots,
        now: UnixTime,
    ) -> Result<(), Untrusted> {
        check_dates(certificate, now)?;
        let signed = roots
            .anchors
            .iter()
            // What a root limits its signatures to, and what it took back, is for webpki to judge.
            .filter(|anchor| anchor.name_constraints.is_none() && roots.revoked.is_empty())
            .filter(|anchor| anchor.subject.as_ref() == certificate.issuer)
            .any(|anchor| self.is_signed_by(certificate, &webpki::spki_for_anchor(anchor)));
        if signed {
            Ok(())
        } else {
            Err(explain(webpki::Error::UnknownIssuer, roots))
        }
    }

    fn is_signed_by(
        &self,
        certificate: &Certificate<'_>,
        key: &SubjectPublicKeyInfoDer<'_>,
    ) -> bool {
        let Ok(key) = RawPublicKeyEntity::try_from(key) else {
            return false;
        };
        self.algorithms
            .all
            .iter()
            .filter(|a| a.signature_alg_id().as_ref() == certificate.signature_algorithm)
            .any(|&algorithm| {
                key.verify_signature(algorithm, certificate.signed, certificate.signature)
                    .is_ok()
            })
    }
}

fn check_dates(certificate: &Certificate<'_>, now: UnixTime) -> Result<(), Untrusted> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.not_before {
        Err(Untrusted::NotYetValid)
    } else if now > certificate.not_after {
        Err(Untrusted::Expired)
    } else {
        Ok(())
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other errors are told in webpki's words"
)]
fn explain(error: webpki::Error, roots: &Roots) -> Untrusted {
    match error {
        webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
            Untrusted::UnknownIssuer {
                roots: roots.source.clone(),
            }
        }
        webpki::Error::CertExpired { .. } => Untrusted::Expired,
        webpki::Error::CertNotValidYet { .. } => Untrusted::NotYetValid,
        webpki::Error::CertRevoked => Untrusted::Revoked,
        webpki::Error::RequiredEkuNotFoundContext(_) => Untrusted::WrongPurpose,
        other => Untrusted::Other(other),
    }
}

/// libpq's rule: any alternative name may match; the common name counts when there is no alternative
/// name of the host's kind.
fn check_host(certificate: &Certificate<'_>, host: &str) -> Result<(), Untrusted> {
    let address: Option<IpAddr> = host.parse().ok();
    let names = certificate.alternative_names();
    let matches = names.iter().any(|name| match name {
        Name::Dns(name) => is_name_for(name, host),
        Name::Ip(ip) => address == Some(*ip),
    });
    let of_the_hosts_kind = names
        .iter()
        .any(|name| matches!(name, Name::Ip(_)) == address.is_some());
    let common_name = certificate.common_name();
    if matches || (!of_the_hosts_kind && common_name.is_some_and(|name| is_name_for(name, host))) {
        return Ok(());
    }

    let mut shown: Vec<_> = names
        .iter()
        .map(|name| match name {
            Name::Dns(name) => String::from_utf8_lossy(name).escape_debug().to_string(),
            Name::Ip(ip) => ip.to_string(),
        })
        .collect();
    if shown.is_empty() {
        let name = common_name.map(|name| String::from_utf8_lossy(name).escape_debug().to_string());
        shown.push(name.unwrap_or_else(|| "no host".to_owned()));
    }
    Err(Untrusted::WrongHost {
        host: host.to_owned(),
        names: shown.join(", "),
    })
}

/// Whether a certificate's name, perhaps with a `*` for its first label, is for this host.
fn is_name_for(name: &[u8], host: &str) -> bool {
    let host = host.as_bytes();
    if name.eq_ignore_ascii_case(host) {
        return !name.is_empty() && !name.contains(&0);
    }
    let Some(domain) = name
        .strip_prefix(b"*")
        .filter(|d| d.len() > 1 && d[0] == b'.')
    else {
        return false;
    };
    // The first label is what the star stands for: it has no dot and is not empty.
    host.iter()
        .position(|&b| b == b'.')
        .is_some_and(|dot| dot > 0 && host[dot..].eq_ignore_ascii_case(domain))
}

impl ServerCertVerifier for ServerCheck {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity, intermediates, now)
            .map(|()| ServerCertVerified::assertion())
            .map_err(|why| CertificateError::Other(OtherError(Arc::new(why))).into())
    }

    // Without these two, whoever has a copy of the certificate could pose as the server. The key is
    // taken out of the certificate here, since rustls reads none of version 1.

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = public_key(cert)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(|_| CertificateError::BadEncoding)?;
        let algorithms = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme)
            .map(|(_, algorithms)| *algorithms)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        if algorithms
            .iter()
            .any(|&a| key.verify_signature(a, message, signed.signature()).is_ok())
        {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature_with_raw_key(message, &public_key(cert)?, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn public_key<'a>(
    der: &'a CertificateDer<'_>,
) -> Result<SubjectPublicKeyInfoDer<'a>, rustls::Error> {
    Certificate::read(der)
        .map(|certificate| certificate.public_key.into())
        .ok_or_else(|| CertificateError::BadEncoding.into())
}
