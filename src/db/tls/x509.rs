//! The few facts about a certificate that rustls keeps to itself.
//!
//! Reads structure only; whether a certificate is to be trusted is decided in
//! [`verify`](super::verify). Everything that is not plain DER gives `None`.

use std::net::IpAddr;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const SAN_DNS: u8 = 0x82;
const SAN_IP: u8 = 0x87;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];

/// digitalSignature, keyEncipherment and keyAgreement: what a TLS server's key is used for.
const TLS_KEY_USES: u8 = 0b1010_1000;

/// The parts of a certificate.
#[derive(Debug)]
pub(super) struct Certificate<'a> {
    /// What is signed.
    pub(super) signed: &'a [u8],
    /// The contents of the signature's `AlgorithmIdentifier`.
    pub(super) signature_algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
    /// Whether it is of version 3: only those have extensions.
    pub(super) is_v3: bool,
    /// The contents of the name, as `TrustAnchor` of rustls-webpki has it.
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    /// Seconds of Unix time.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
    /// The whole `SubjectPublicKeyInfo`.
    pub(super) public_key: &'a [u8],
    extensions: &'a [u8],
}

/// A name that a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Dns(Vec<u8>),
    Ip(IpAddr),
}

impl<'a> Certificate<'a> {
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        let mut outer = Der(der);
        let mut certificate = Der(outer.expect(SEQUENCE)?);
        outer.end()?;

        let signed = certificate.next()?;
        let signature_algorithm = certificate.expect(SEQUENCE)?;
        let (unused_bits, signature) = certificate.expect(BIT_STRING)?.split_first()?;
        certificate.end()?;
        if signed.tag != SEQUENCE || *unused_bits != 0 {
            return None;
        }

        let mut fields = Der(signed.body);
        let version = match fields.optional(VERSION) {
            Some(version) => *Der(version).expect(INTEGER)?.last()?,
            None => 0,
        };
        let _serial = fields.expect(INTEGER)?;
        let inner_algorithm = fields.expect(SEQUENCE)?;
        let issuer = fields.expect(SEQUENCE)?;
        let mut validity = Der(fields.expect(SEQUENCE)?);
        let subject = fields.expect(SEQUENCE)?;
        let public_key = fields.next().filter(|e| e.tag == SEQUENCE)?.whole;
        let mut extensions: &[u8] = &[];
        while let Some(field) = fields.next() {
            if field.tag == EXTENSIONS {
                extensions = Der(field.body).expect(SEQUENCE)?;
            }
        }
        if inner_algorithm != signature_algorithm {
            return None;
        }
        Some(Self {
            signed: signed.whole,
            signature_algorithm,
            signature,
            is_v3: version == 2,
            issuer,
            subject,
            not_before: validity.time()?,
            not_after: validity.time()?,
            public_key,
            extensions,
        })
    }

    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    fn extension(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let mut extensions = Der(self.extensions);
        while let Some(extension) = extensions.expect(SEQUENCE) {
            let mut fields = Der(extension);
            if fields.expect(OBJECT_ID)? == wanted {
                let _critical = fields.optional(BOOLEAN);
                return fields.expect(OCTET_STRING);
            }
        }
        None
    }

    /// The DNS names and addresses of its subjectAltName, in order.
    pub(super) fn alternative_names(&self) -> Vec<Name> {
        let Some(names) = self
            .extension(SUBJECT_ALT_NAME)
            .and_then(|value| Der(value).expect(SEQUENCE))
        else {
            return Vec::new();
        };
        let mut names = Der(names);
        let mut found = Vec::new();
        while let Some(name) = names.next() {
            match name.tag {
                SAN_DNS => found.push(Name::Dns(name.body.to_vec())),
                SAN_IP => {
                    let v4 = <[u8; 4]>::try_from(name.body).map(IpAddr::from);
                    let v6 = <[u8; 16]>::try_from(name.body).map(IpAddr::from);
                    found.extend(v4.or(v6).ok().map(Name::Ip));
                }
                _ => {}
            }
        }
        found
    }

    /// The first common name of its subject.
    pub(super) fn common_name(&self) -> Option<&'a [u8]> {
        let mut subject = Der(self.subject);
        while let Some(set) = subject.expect(SET) {
            let mut attributes = Der(set);
            while let Some(attribute) = attributes.expect(SEQUENCE) {
                let mut fields = Der(attribute);
                if fields.expect(OBJECT_ID)? == COMMON_NAME {
                    return fields.next().map(|value| value.body);
                }
            }
        }
        None
    }

    /// Whether its key may be used as a TLS server's, as far as it says.
    pub(super) fn allows_tls_server(&self) -> bool {
        let key_usage = self.extension(KEY_USAGE).is_none_or(|value| {
            Der(value)
                .expect(BIT_STRING)
                .and_then(|bits| bits.get(1))
                .is_some_and(|uses| uses & TLS_KEY_USES != 0)
        });
        let extended = self.extension(EXTENDED_KEY_USAGE).is_none_or(|value| {
            let mut purposes = Der(Der(value).expect(SEQUENCE).unwrap_or_default());
            std::iter::from_fn(|| purposes.expect(OBJECT_ID)).any(|p| p == SERVER_AUTH)
        });
        key_usage && extended
    }

    /// The hash that binds a SCRAM login to this certificate (RFC 5929): that of its signature, but
    /// SHA-256 for the broken ones. `None` for signatures that have none, such as Ed25519.
    pub(super) fn binding_hash(&self) -> Option<&'static ring::digest::Algorithm> {
        use ring::digest::{SHA256, SHA384, SHA512};
        let mut algorithm = Der(self.signature_algorithm);
        let id = algorithm.expect(OBJECT_ID)?;
        match id {
            // 1.2.840.113549.1.1: RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512.
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last] => match last {
                4 | 5 | 11 => Some(&SHA256),
                12 => Some(&SHA384),
                13 => Some(&SHA512),
                10 => pss_hash(algorithm),
                _ => None,
            },
            // 1.2.840.10045.4: ECDSA with SHA-1; 4.3: with SHA-256, SHA-384, SHA-512.
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => {
                Some(&SHA256)
            }
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => Some(&SHA384),
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => Some(&SHA512),
            _ => None,
        }
    }
}

/// RSASSA-PSS names its hash in the parameters; SHA-1 when it does not.
fn pss_hash(mut algorithm: Der<'_>) -> Option<&'static ring::digest::Algorithm> {
    use ring::digest::{SHA256, SHA384, SHA512};
    let mut parameters = Der(algorithm.expect(SEQUENCE)?);
    let Some(hash) = parameters.optional(0xa0) else {
        return Some(&SHA256);
    };
    let id = Der(Der(hash).expect(SEQUENCE)?).expect(OBJECT_ID)?;
    match id {
        // 2.16.840.1.101.3.4.2
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => Some(&SHA256),
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => Some(&SHA384),
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => Some(&SHA512),
        _ => None,
    }
}

/// DER that is still to be read.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

#[derive(Clone, Copy)]
struct Element<'a> {
    tag: u8,
    body: &'a [u8],
    whole: &'a [u8],
}

impl<'a> Der<'a> {
    /// Reads one element; `None` at the end, and when it does not fit.
    fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if digits.is_empty() || digits.len() > 3 {
                return None;
            }
            let length = digits.iter().fold(0, |n, &d| n << 8 | usize::from(d));
            (length, rest)
        };
        let (body, rest) = rest.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Some(Element { tag, body, whole })
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|e| e.tag == tag).map(|e| e.body)
    }

    fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&tag) {
            self.expect(tag)
        } else {
            None
        }
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    fn time(&mut self) -> Option<i64> {
        let element = self.next()?;
        let digits = std::str::from_utf8(element.body).ok()?.strip_suffix('Z')?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let (year, rest) = match element.tag {
            UTC_TIME => {
                let year: i16 = digits.get(..2)?.parse().ok()?;
                (if year < 50 { 2000 } else { 1900 } + year, &digits[2..])
            }
            GENERALIZED_TIME => (digits.get(..4)?.parse().ok()?, &digits[4..]),
            _ => return None,
        };
        if rest.len() != 10 {
            return None;
        }
        let two = |at: usize| rest[at..at + 2].parse::<i8>().ok();
        let (month, day) = (two(0)?, two(2)?);
        let (hour, minute, second) = (two(4)?, two(6)?, two(8)?);
        let time = jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
        let time = jiff::tz::Offset::UTC.to_timestamp(time).ok()?;
        Some(time.as_second())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};

    use super::*;

    fn certificate() -> Vec<u8> {
        let mut params =
            CertificateParams::new(["db.example.test".to_owned(), "::1".to_owned()]).unwrap();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "somebody");
        params.distinguished_name.push(DnType::CommonName, "a name");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.not_before = rcgen::date_time_ymd(1970, 1, 2);
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    /// Everything that is ever asked of a certificate.
    fn ask(der: &[u8]) {
        if let Some(certificate) = Certificate::read(der) {
            certificate.alternative_names();
            certificate.common_name();
            certificate.allows_tls_server();
            certificate.binding_hash();
            certificate.is_self_issued();
        }
    }

    #[test]
    fn a_certificate_is_read_as_it_was_written() {
        let der = certificate();
        let certificate = Certificate::read(&der).unwrap();
        assert!(certificate.is_v3);
        assert!(certificate.is_self_issued());
        assert_eq!(certificate.not_before, 86_400);
        assert_eq!(certificate.not_after, 4_102_444_800);
        assert_eq!(certificate.common_name(), Some(b"a name".as_slice()));
        assert!(certificate.allows_tls_server());
        let names = [
            Name::Dns(b"db.example.test".to_vec()),
            Name::Ip("::1".parse().unwrap()),
        ];
        assert_eq!(certificate.alternative_names(), names);
        assert!(certificate.binding_hash().is_some());
    }

    #[test]
    fn no_damage_to_a_certificate_makes_reading_it_panic() {
        let der = certificate();
        for end in 0..der.len() {
            ask(&der[..end]);
        }
        for at in 0..der.len() {
            for value in [0, 1, 0x30, 0x7f, 0x80, 0x81, 0x84, 0xff] {
                let mut damaged = der.clone();
                damaged[at] = value;
                ask(&damaged);
            }
        }
    }
}
