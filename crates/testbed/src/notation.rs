//! Somebody who signs as the Notary Project does: an authority, a certificate of its, and envelopes.

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, CrlDistributionPoint, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SigningKey,
};
use serde_json::{Value, json};

/// The artifact type of a signature's manifest, and the media type of what is in it.
pub const SIGNATURE: &str = "application/vnd.cncf.notary.signature";
pub const ENVELOPE: &str = "application/jose+json";
pub const BINARY_ENVELOPE: &str = "application/cose";
/// Whom certificates name.
pub const SUBJECT: &str = "C=US, ST=WA, O=Fleet, CN=signer";

pub struct Notary {
    authority: String,
    chain: Vec<Vec<u8>>,
    key: KeyPair,
}

/// What is otherwise than it should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flaw {
    None,
    /// The certificate is over.
    Expired,
    /// The signature says of itself that it is over.
    Stale,
    /// It is about something else.
    OtherTarget,
    /// The payload was changed after it was signed.
    Changed,
    /// The certificate is for servers.
    OtherPurpose,
    /// The certificate may be revoked, and says where one would read it.
    Revocable,
    /// Something has to be understood that nobody does.
    Critical,
    /// The chain ends before its authority.
    Cut,
}

impl Notary {
    pub fn new(flaw: Flaw) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "authority");
        let root_key = KeyPair::generate()?;
        let root = params.self_signed(&root_key)?;
        let issuer = Issuer::new(params, root_key);
        let mut params = CertificateParams::new(Vec::new())?;
        for (kind, value) in [
            (DnType::CountryName, "US"),
            (DnType::StateOrProvinceName, "WA"),
            (DnType::OrganizationName, "Fleet"),
            (DnType::CommonName, "signer"),
        ] {
            params.distinguished_name.push(kind, value);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match flaw {
            Flaw::OtherPurpose => vec![ExtendedKeyUsagePurpose::ServerAuth],
            _ => vec![ExtendedKeyUsagePurpose::CodeSigning],
        };
        if flaw == Flaw::Expired {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        if flaw == Flaw::Revocable {
            let uris = vec!["http://127.0.0.1:1/list.crl".to_owned()];
            params.crl_distribution_points = vec![CrlDistributionPoint { uris }];
        }
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &issuer)?.der().to_vec();
        let chain = if flaw == Flaw::Cut { vec![leaf] } else { vec![leaf, root.der().to_vec()] };
        Ok(Self { authority: root.pem(), chain, key })
    }

    /// The authority's certificate, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A trust policy of one statement, with more or other fields.
    pub fn policy(more: Value) -> Value {
        let mut statement = json!({
            "name": "fleet", "signatureVerification": { "level": "strict" }, "trustStores": ["ca:fleet"],
            "trustedIdentities": [format!("x509.subject: {SUBJECT}")], "registryScopes": ["*"],
        });
        if let (Some(statement), Some(more)) = (statement.as_object_mut(), more.as_object()) {
            statement.extend(more.clone());
        }
        json!({ "version": "1.0", "trustPolicies": [statement] })
    }

    /// An envelope about an image.
    pub fn sign(&self, media_type: &str, digest: &str, size: usize, flaw: Flaw) -> Result<Value> {
        let size = if flaw == Flaw::OtherTarget { size + 1 } else { size };
        let payload =
            json!({ "targetArtifact": { "mediaType": media_type, "digest": digest, "size": size } });
        let mut critical = vec!["io.cncf.notary.signingScheme"];
        let mut protected = json!({
            "alg": "ES256", "cty": "application/vnd.cncf.notary.payload.v1+json",
            "io.cncf.notary.signingScheme": "notary.x509", "io.cncf.notary.signingTime": "2026-01-01T00:00:00Z",
        });
        if flaw == Flaw::Stale {
            critical.push("io.cncf.notary.expiry");
            protected["io.cncf.notary.expiry"] = json!("2026-01-02T00:00:00Z");
        }
        if flaw == Flaw::Critical {
            critical.push("com.example.secret");
            protected["com.example.secret"] = json!("x");
        }
        protected["crit"] = json!(critical);
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let (protected, mut payload) = (encode(&protected), encode(&payload));
        let signature = self.key.sign(format!("{protected}.{payload}").as_bytes())?;
        let signature = fixed(&signature).context("a signature of two numbers")?;
        if flaw == Flaw::Changed {
            payload = encode(
                &json!({ "targetArtifact": { "mediaType": media_type, "digest": digest, "size": size + 1 } }),
            );
        }
        let chain: Vec<String> = self.chain.iter().map(|der| BASE64_STANDARD.encode(der)).collect();
        Ok(json!({
            "payload": payload, "protected": protected, "header": { "x5c": chain },
            "signature": BASE64_URL_SAFE_NO_PAD.encode(signature),
        }))
    }
}

impl Notary {
    /// The same in COSE.
    pub fn sign_binary(&self, media_type: &str, digest: &str, size: usize, flaw: Flaw) -> Result<Vec<u8>> {
        let size = if flaw == Flaw::OtherTarget { size + 1 } else { size };
        let payload =
            json!({ "targetArtifact": { "mediaType": media_type, "digest": digest, "size": size } })
                .to_string();
        let text = |text: &str| cbor(3, text.len(), text.as_bytes());
        let time = |second: usize| [vec![0xc1], cbor(0, second, &[])].concat();
        let scheme = "io.cncf.notary.signingScheme";
        let mut critical = vec![text(scheme)];
        let mut headers = vec![
            // The algorithm is ES256, which is number -7.
            [vec![0x01, 0x26], vec![0x03], text("application/vnd.cncf.notary.payload.v1+json")].concat(),
            [text(scheme), text("notary.x509")].concat(),
            [text("io.cncf.notary.signingTime"), time(1_767_225_600)].concat(),
        ];
        // The first of these holds two.
        let mut count = headers.len() + 1;
        if flaw == Flaw::Stale {
            critical.push(text("io.cncf.notary.expiry"));
            headers.push([text("io.cncf.notary.expiry"), time(1_767_312_000)].concat());
            count += 1;
        }
        if flaw == Flaw::Critical {
            critical.push(text("com.example.secret"));
            headers.push([text("com.example.secret"), text("x")].concat());
            count += 1;
        }
        headers.push([vec![0x02], cbor(4, critical.len(), &critical.concat())].concat());
        let protected = cbor(5, count + 1, &headers.concat());
        let bytes = |bytes: &[u8]| cbor(2, bytes.len(), bytes);
        let message =
            [vec![0x84], text("Signature1"), bytes(&protected), bytes(&[]), bytes(payload.as_bytes())]
                .concat();
        let signature = fixed(&self.key.sign(&message)?).context("a signature of two numbers")?;
        let payload = if flaw == Flaw::Changed { payload.replacen("size", "Size", 1) } else { payload };
        let chain: Vec<Vec<u8>> = self.chain.iter().map(|der| bytes(der)).collect();
        let unprotected = cbor(5, 1, &[vec![0x18, 33], cbor(4, chain.len(), &chain.concat())].concat());
        Ok([vec![0xd2, 0x84], bytes(&protected), unprotected, bytes(payload.as_bytes()), bytes(&signature)]
            .concat())
    }
}

/// The head of an item, its kind and a number, and what follows it.
fn cbor(kind: u8, number: usize, content: &[u8]) -> Vec<u8> {
    let kind = kind << 5;
    let digits = (number as u32).to_be_bytes();
    let head = match number {
        0..24 => vec![kind | number as u8],
        24..256 => vec![kind | 24, number as u8],
        256..65_536 => vec![kind | 25, digits[2], digits[3]],
        _ => [&[kind | 26][..], &digits].concat(),
    };
    [head, content.to_vec()].concat()
}

/// Two numbers of 32 bytes, from the two in a sequence.
fn fixed(der: &[u8]) -> Option<Vec<u8>> {
    let mut rest = der.get(2..)?;
    let mut fixed = Vec::new();
    for _ in 0..2 {
        let length = usize::from(*rest.get(1)?);
        let number = rest.get(2..2 + length)?;
        let digits: Vec<u8> = number.iter().copied().skip_while(|digit| *digit == 0).collect();
        fixed.extend(std::iter::repeat_n(0, 32_usize.checked_sub(digits.len())?));
        fixed.extend(digits);
        rest = &rest[2 + length..];
    }
    Some(fixed)
}
