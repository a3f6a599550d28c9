//! The files of TLS: roots, revocation lists, the client's certificate and its key.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use webpki::CertRevocationList;

use super::TlsError;
use super::verify::Roots;
use crate::db::conninfo::{Root, SslCertMode, SslMode, TlsOptions, shown_path};

/// Who may vouch for the server. `None` when nobody has to: the mode asks for no more than
/// encryption, and there is no file.
pub(super) fn roots(options: &TlsOptions) -> Result<Option<Roots>, TlsError> {
    let path = match &options.root {
        Root::System => return system_roots().map(Some),
        Root::File(path) => Some(path.clone()),
        Root::Default => options.directory.as_ref().map(|d| d.join("root.crt")),
    };
    let verification_asked = options.mode >= SslMode::VerifyCa;
    let Some(path) = path else {
        return if verification_asked {
            Err(TlsError::refused(
                "there is no home directory with a root certificate: \
                 name one with sslrootcert, or use sslrootcert=system",
            ))
        } else {
            Ok(None)
        };
    };
    let content = match fs::read(&path) {
        Ok(content) => content,
        Err(e) if is_missing(&e) && !verification_asked => {
            if options.root != Root::Default {
                // libpq goes on without a word; it is what the mode says, if not the file's name.
                log::warn!(
                    "root certificate file {} does not exist: the server is not verified",
                    shown_path(&path)
                );
            }
            return Ok(None);
        }
        Err(e) if is_missing(&e) => {
            return Err(TlsError::refused(format!(
                "root certificate file {} does not exist: \
                 provide it, or use sslrootcert=system",
                shown_path(&path)
            )));
        }
        Err(e) => return Err(unreadable("root certificate file", &path, e)),
    };
    let certificates =
        certificates(&content).map_err(|e| unreadable("root certificate file", &path, e))?;
    Ok(Some(Roots::new(
        &certificates,
        revocation_lists(options)?,
        shown_path(&path).to_owned(),
        UnixTime::now(),
    )))
}

fn system_roots() -> Result<Roots, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = "the operating system's root certificates cannot be read";
        return Err(match found.errors.into_iter().next() {
            Some(e) => TlsError::caused(why, e),
            None => TlsError::refused(why),
        });
    }
    Ok(Roots::new(
        &found.certs,
        Vec::new(),
        "the operating system's trust store".to_owned(),
        UnixTime::now(),
    ))
}

/// What was revoked. A file that is named has to be readable; libpq would check nothing instead.
fn revocation_lists(options: &TlsOptions) -> Result<Vec<CertRevocationList<'static>>, TlsError> {
    let kind = "certificate revocation list";
    let default = options.directory.as_ref().map(|d| d.join("root.crl"));
    let (path, content) = match (&options.revocation_list, default) {
        (Some(path), _) => (path.clone(), fs::read(path)),
        (None, Some(path)) => {
            let content = fs::read(&path);
            if content.as_ref().is_err_and(is_missing) {
                return Ok(Vec::new());
            }
            (path, content)
        }
        (None, None) => return Ok(Vec::new()),
    };
    let content = content.map_err(|e| unreadable(kind, &path, e))?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&content)
        .map(|der| {
            let der = der.map_err(|e| unreadable(kind, &path, e))?;
            webpki::OwnedCertRevocationList::from_der(&der)
                .map(CertRevocationList::from)
                .map_err(|e| unreadable(kind, &path, e))
        })
        .collect::<Result<Vec<_>, _>>()?;
    if lists.is_empty() {
        return Err(unreadable(kind, &path, no_pem("X509 CRL")));
    }
    Ok(lists)
}

/// What to show the server when it asks who we are.
pub(super) fn client_certificate(
    options: &TlsOptions,
    provider: &CryptoProvider,
) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
    if options.certificate_mode == SslCertMode::Disable {
        return Ok(None);
    }
    let in_directory = |name| options.directory.as_ref().map(|d| d.join(name));
    let Some(path) = options
        .certificate
        .clone()
        .or_else(|| in_directory("postgresql.crt"))
    else {
        return Ok(None);
    };
    let content = match fs::read(&path) {
        Ok(content) => content,
        Err(e) if is_missing(&e) => {
            if options.certificate.is_some() {
                // libpq goes on without a word: the server may not ask.
                log::warn!("certificate file {} does not exist", shown_path(&path));
            }
            return Ok(None);
        }
        Err(e) => return Err(unreadable("certificate file", &path, e)),
    };
    let chain = certificates(&content).map_err(|e| unreadable("certificate file", &path, e))?;

    let Some(key_path) = options
        .key
        .clone()
        .or_else(|| in_directory("postgresql.key"))
    else {
        return Err(TlsError::refused(format!(
            "certificate file {} has no key: name it with sslkey",
            shown_path(&path)
        )));
    };
    let key = provider
        .key_provider
        .load_private_key(private_key(&key_path)?)
        .map_err(|e| unreadable("private key file", &key_path, e))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::refused(format!(
                "private key file {} does not belong to certificate file {}",
                shown_path(&key_path),
                shown_path(&path)
            )))
        }
        // What else there is to say about the pair, the server will.
        Ok(()) | Err(_) => Ok(Some(Arc::new(certified))),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let kind = "private key file";
    let metadata = path.metadata().map_err(|e| unreadable(kind, path, e))?;
    if !metadata.is_file() {
        return Err(TlsError::refused(format!(
            "{kind} {} is not a regular file",
            shown_path(path)
        )));
    }
    // A system-wide key belongs to root and may be readable for a group; any other only for its owner.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(TlsError::refused(format!(
            "{kind} {} can be read by others: its mode has to be 0600 or less \
             (0640 if it belongs to root)",
            shown_path(path)
        )));
    }
    let content = fs::read(path).map_err(|e| unreadable(kind, path, e))?;
    if is_encrypted(&content) {
        return Err(TlsError::refused(format!(
            "{kind} {} is encrypted, which is not supported",
            shown_path(path)
        )));
    }
    match PrivateKeyDer::from_pem_slice(&content) {
        Ok(key) => Ok(key),
        // Not PEM: perhaps bare DER, as OpenSSL takes it.
        Err(e) => PrivateKeyDer::try_from(content).map_err(|_| unreadable(kind, path, e)),
    }
}

/// Either form of an encrypted key in PEM: PKCS #8, and OpenSSL's older one with a header.
fn is_encrypted(pem: &[u8]) -> bool {
    let has = |word: &[u8]| pem.windows(word.len()).any(|w| w == word);
    has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"4,ENCRYPTED")
}

/// All certificates of a PEM file; at least one.
fn certificates(
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Box<dyn std::error::Error + Send + Sync>> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err(no_pem("CERTIFICATE").into());
    }
    Ok(found)
}

fn no_pem(what: &str) -> String {
    format!("there is no {what} in PEM form in it")
}

/// As for libpq, also when a part of the path is no directory.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn unreadable(
    kind: &str,
    path: &Path,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> TlsError {
    TlsError::caused(format!("cannot use {kind} {}", shown_path(path)), cause)
}
