//! Certificates for servers, good and bad.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

/// A certificate authority, or a part of one.
pub(super) struct Authority {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What a server is given.
pub(super) struct Identity {
    pub(super) name: &'static str,
    /// Its certificate, and what it sends along.
    pub(super) chain: String,
    pub(super) key: String,
    /// A file of roots that is right for it, as far as there can be one.
    pub(super) root: String,
}

fn params(common_name: &str, alternative_names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    for name in alternative_names {
        params.subject_alt_names.push(match name.parse() {
            Ok(ip) => SanType::IpAddress(ip),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        });
    }
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2100, 1, 1);
    params
}

fn ca_params(common_name: &str) -> CertificateParams {
    let mut params = params(common_name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    pub(super) fn root(common_name: &str) -> Self {
        Self::self_signed(ca_params(common_name))
    }

    fn self_signed(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn intermediate(&self, common_name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = ca_params(common_name);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn issue(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        (pem, key.serialize_pem())
    }

    fn identity(&self, name: &'static str, params: &CertificateParams) -> Identity {
        let (chain, key) = self.issue(params);
        Identity {
            name,
            chain,
            key,
            root: self.pem.clone(),
        }
    }

    /// A certificate for a server, and a list that revokes it.
    pub(super) fn revoked_server(&self, host: &str, next_update: i32) -> (Identity, String) {
        let mut params = params("x", &[host]);
        params.serial_number = Some(SerialNumber::from(4711));
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(4711),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = self.revocation_list(vec![revoked], next_update);
        (self.identity("revoked", &params), list)
    }

    /// A list that revokes nothing.
    pub(super) fn empty_revocation_list(&self, next_update: i32) -> String {
        self.revocation_list(Vec::new(), next_update)
    }

    fn revocation_list(&self, revoked_certs: Vec<RevokedCertParams>, next_update: i32) -> String {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(next_update, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A client's certificate and key.
    pub(super) fn client(&self, user: &str) -> (String, String) {
        self.issue(&params(user, &[]))
    }
}

fn self_signed(name: &'static str, params: &CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Identity {
        name,
        chain: pem.clone(),
        key: key.serialize_pem(),
        root: pem,
    }
}

/// Servers for `db.example.test`, and for something else.
pub(super) fn identities(ca: &Authority) -> Vec<Identity> {
    const HOST: &str = "db.example.test";
    let good = params("whatever", &[HOST]);
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = good.clone();
        change(&mut params);
        params
    };

    let intermediate = ca.intermediate("intermediate");
    let (leaf, leaf_key) = intermediate.issue(&good);
    let expired_root = {
        let mut params = ca_params("expired root");
        params.not_after = date_time_ymd(2021, 1, 1);
        Authority::self_signed(params)
    };
    let mut expired_v1 = params(HOST, &[]);
    expired_v1.not_after = date_time_ymd(2021, 1, 1);

    vec![
        ca.identity("name", &good),
        ca.identity("wildcard", &params("x", &["*.example.test"])),
        ca.identity(
            "wildcard of a deeper domain",
            &params("x", &["*.db.example.test"]),
        ),
        ca.identity(
            "wildcard inside a label",
            &params("x", &["d*.example.test"]),
        ),
        ca.identity("upper case", &params("x", &["DB.Example.TEST"])),
        ca.identity("other name", &params(HOST, &["other.example.test"])),
        ca.identity(
            "several names",
            &params("x", &["a.test", HOST, "127.0.0.1"]),
        ),
        ca.identity("common name only", &params(HOST, &[])),
        ca.identity("address", &params(HOST, &["127.0.0.1"])),
        ca.identity("other address", &params("127.0.0.1", &["127.0.0.2"])),
        ca.identity("address as common name", &params("127.0.0.1", &[])),
        ca.identity("address as a DNS name", &params("x", &["other.test"])),
        ca.identity(
            "expired",
            &with(&|p| p.not_after = date_time_ymd(2021, 1, 1)),
        ),
        ca.identity(
            "not valid yet",
            &with(&|p| p.not_before = date_time_ymd(2099, 1, 1)),
        ),
        ca.identity(
            "for clients only",
            &with(&|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
        ),
        ca.identity(
            "for servers",
            &with(&|p| {
                p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
                p.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            }),
        ),
        ca.identity(
            "key for other uses",
            &with(&|p| p.key_usages = vec![KeyUsagePurpose::CrlSign]),
        ),
        ca.identity(
            "a CA's as a server's",
            &with(&|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
        ),
        self_signed("self-signed", &good),
        self_signed(
            "self-signed, as a CA",
            &with(&|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
        ),
        self_signed(
            "self-signed, no CA by its word",
            &with(&|p| p.is_ca = IsCa::ExplicitNoCa),
        ),
        self_signed(
            "self-signed and expired",
            &with(&|p| {
                p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                p.not_after = date_time_ymd(2021, 1, 1);
            }),
        ),
        Identity {
            name: "intermediate sent",
            chain: format!("{leaf}{}", intermediate.pem),
            key: leaf_key.clone(),
            root: ca.pem.clone(),
        },
        Identity {
            name: "intermediate missing",
            chain: leaf.clone(),
            key: leaf_key.clone(),
            root: ca.pem.clone(),
        },
        Identity {
            name: "intermediate in the root file",
            chain: leaf.clone(),
            key: leaf_key.clone(),
            root: format!("{}{}", intermediate.pem, ca.pem),
        },
        Identity {
            name: "intermediate alone in the root file",
            chain: leaf.clone(),
            key: leaf_key.clone(),
            root: intermediate.pem.clone(),
        },
        Identity {
            name: "server's certificate alone in the root file",
            chain: leaf.clone(),
            key: leaf_key,
            root: leaf,
        },
        expired_root.identity("expired root", &good),
        version_1(ca, "version 1", &params(HOST, &[])),
        version_1(ca, "version 1, expired", &expired_v1),
    ]
}

/// What the PostgreSQL manual's recipe makes with an OpenSSL before 3.2. No library of ours writes
/// it, so it is made of a newer one without the fields that version 1 lacks.
fn version_1(ca: &Authority, name: &'static str, params: &CertificateParams) -> Identity {
    let (pem, key) = ca.issue(params);
    let der = pem_to_der(&pem);
    let (_, certificate, _) = element(&der);
    let (_, tbs, after_tbs) = element(certificate);
    let (algorithm, ..) = whole_element(after_tbs);
    let mut fields = tbs;
    let mut kept = Vec::new();
    while !fields.is_empty() {
        let (whole, rest) = whole_element(fields);
        // [0] is the version, [3] the extensions.
        if !matches!(whole[0], 0xa0 | 0xa3) {
            kept.extend_from_slice(whole);
        }
        fields = rest;
    }
    let tbs = tlv(0x30, &kept);
    let signer = ring::signature::EcdsaKeyPair::from_pkcs8(
        &ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        ca.issuer.key().serialized_der(),
        &ring::rand::SystemRandom::new(),
    )
    .unwrap();
    let signature = signer.sign(&ring::rand::SystemRandom::new(), &tbs).unwrap();
    let signature = tlv(0x03, &[&[0], signature.as_ref()].concat());
    let der = tlv(0x30, &[&tbs, algorithm, &signature].concat());
    Identity {
        name,
        chain: der_to_pem(&der),
        key,
        root: ca.pem.clone(),
    }
}

/// Tag, contents, and what follows.
fn element(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (header, length) = match der[1] {
        short if short < 0x80 => (2, usize::from(short)),
        0x81 => (3, usize::from(der[2])),
        0x82 => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
        _ => panic!("too long for a certificate"),
    };
    (
        der[0],
        &der[header..header + length],
        &der[header + length..],
    )
}

/// The element with its header, and what follows.
fn whole_element(der: &[u8]) -> (&[u8], &[u8]) {
    let (.., rest) = element(der);
    (&der[..der.len() - rest.len()], rest)
}

fn tlv(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len()).unwrap().to_be_bytes();
    let header = match length {
        [0, short] if short < 0x80 => vec![tag, short],
        [0, one] => vec![tag, 0x81, one],
        [high, low] => vec![tag, 0x82, high, low],
    };
    [&header, contents].concat()
}

fn pem_to_der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .to_vec()
}

fn der_to_pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut base64 = String::new();
    for group in der.chunks(3) {
        let bits = group.iter().fold(0, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - group.len()));
        for i in 0..4 {
            base64.push(if i <= group.len() {
                char::from(DIGITS[(bits >> (18 - 6 * i) & 63) as usize])
            } else {
                '='
            });
        }
    }
    let lines: Vec<_> = base64
        .as_bytes()
        .chunks(64)
        .map(|l| std::str::from_utf8(l).unwrap())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}
