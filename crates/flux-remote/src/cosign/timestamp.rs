//! Timestamps of RFC 3161: an authority's word that it has seen a signature, and when.
//!
//! As much of the syntax of cryptographic messages as authorities use: one signer, signed attributes, ECDSA, RSA or Ed25519.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::certificate::X509Certificate;

use super::certificate::{chain_holds, parse};
use super::der::{self, Element};
use super::key::Hash;
use super::trust_root::Authority;
use super::{PublicKey, TrustRoot};

// Identifiers, encoded.
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
const TIMESTAMP_INFO: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x10, 0x01, 0x04];
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const SHA_256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const SHA_384: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02];
const SHA_512: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03];

// Tags.
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const IDENTIFIER: u8 = 0x06;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const CONTEXT_0: u8 = 0xa0;

const TIMESTAMPING: &str = "2.5.29.37";

/// When one of the root's authorities saw `signature`.
pub(super) fn verify(response: &[u8], signature: &[u8], root: &TrustRoot) -> Result<Timestamp, String> {
    let token = Token::read(response).ok_or("a timestamp that cannot be read")?;
    let mut last = "no timestamp authority in the trusted root".to_owned();
    for authority in &root.timestamp_authorities {
        match token.check(authority, signature) {
            Ok(()) => return Ok(token.time),
            Err(problem) => last = problem,
        }
    }
    Err(last)
}

/// What an authority signed, and its signature.
struct Token<'a> {
    time: Timestamp,
    /// Of the signature that was stamped.
    imprint: (Hash, &'a [u8]),
    content: &'a [u8],
    certificates: Vec<&'a [u8]>,
    issuer: &'a [u8],
    serial: &'a [u8],
    hash: Hash,
    /// As they are signed: a set, not a part of something.
    attributes: Vec<u8>,
    signature: &'a [u8],
}

impl<'a> Token<'a> {
    fn read(response: &'a [u8]) -> Option<Self> {
        let [status, content] = fields::<2>(only(response, SEQUENCE)?)?;
        let granted = der::all(status.content)?.into_iter().next()?;
        if granted.tag != INTEGER || !matches!(granted.content, [0 | 1]) {
            return None;
        }
        let [kind, inner] = fields::<2>(content)?;
        if kind.content != SIGNED_DATA || inner.tag != CONTEXT_0 {
            return None;
        }
        let data = der::all(only(inner.content, SEQUENCE)?.content)?;
        let [_version, _algorithms, encapsulated, rest @ ..] = data.as_slice() else { return None };
        let [kind, inner] = fields::<2>(*encapsulated)?;
        if kind.content != TIMESTAMP_INFO || inner.tag != CONTEXT_0 {
            return None;
        }
        let content = only(inner.content, OCTETS)?.content;
        let certificates = rest.iter().find(|element| element.tag == CONTEXT_0);
        let certificates = match certificates {
            Some(element) => der::all(element.content)?.into_iter().map(|one| one.whole).collect(),
            None => Vec::new(),
        };
        let signers = der::all(rest.last().filter(|element| element.tag == SET)?.content)?;
        let [signer] = signers.as_slice() else { return None };
        let signer = der::all(signer.content)?;
        let [_version, id, algorithm, attributes, _, signature, ..] = signer.as_slice() else { return None };
        if id.tag != SEQUENCE || attributes.tag != CONTEXT_0 || signature.tag != OCTETS {
            return None;
        }
        let [issuer, serial] = fields::<2>(*id)?;
        let (time, imprint) = info(content)?;
        Some(Self {
            time,
            imprint,
            content,
            certificates,
            issuer: issuer.whole,
            serial: serial.content,
            hash: hash(algorithm.content)?,
            attributes: der::write(SET, attributes.content),
            signature: signature.content,
        })
    }

    fn check(&self, authority: &Authority, signature: &[u8]) -> Result<(), String> {
        let leaf = self.signer(authority).ok_or("the timestamp is by nobody in the trusted root")?;
        let leaf = parse(leaf)?;
        check_purpose(&leaf)?;
        if !authority.valid.holds(self.time) || !chain_holds(&leaf, &self.above(authority), self.time) {
            return Err("the timestamp's authority was not valid at that time".to_owned());
        }
        let key = PublicKey::from_der(leaf.public_key().raw).map_err(|error| error.to_string())?;
        if !key.verifies_with(self.hash, &self.attributes, self.signature) {
            return Err("the timestamp's signature is not its authority's".to_owned());
        }
        if self.attribute(CONTENT_TYPE) != Some(TIMESTAMP_INFO)
            || self.attribute(MESSAGE_DIGEST) != Some(digest(self.hash, self.content).as_slice())
        {
            return Err("the timestamp says something else than was signed".to_owned());
        }
        let (hash, imprint) = self.imprint;
        if digest(hash, signature) != imprint {
            return Err("the timestamp is for another signature".to_owned());
        }
        Ok(())
    }

    /// The one in the trusted root, or, where that holds authorities only, one that came along.
    fn signer<'b>(&'b self, authority: &'b Authority) -> Option<&'b [u8]> {
        let first = authority.chain.first()?.as_slice();
        let known = parse(first).ok().filter(|certificate| !certificate.is_ca());
        if known.is_some() {
            return self.is_of(first).then_some(first);
        }
        self.certificates.iter().copied().find(|certificate| self.is_of(certificate))
    }

    fn is_of(&self, certificate: &[u8]) -> bool {
        parse(certificate).is_ok_and(|certificate| {
            certificate.issuer().as_raw() == self.issuer && certificate.raw_serial() == self.serial
        })
    }

    fn above<'b>(&self, authority: &'b Authority) -> Vec<&'b [u8]> {
        let own = authority.chain.first().is_some_and(|first| self.is_of(first));
        authority.chain.iter().skip(usize::from(own)).map(Vec::as_slice).collect()
    }

    /// The only value of an attribute.
    fn attribute(&self, name: &[u8]) -> Option<&[u8]> {
        let all = der::all(der::read(&self.attributes)?.0.content)?;
        let mut found = all.into_iter().filter_map(|attribute| {
            let [kind, values] = fields::<2>(attribute)?;
            (kind.content == name).then_some(values)
        });
        let values = found.next()?;
        if found.next().is_some() {
            return None;
        }
        match der::all(values.content)?.as_slice() {
            [value] => Some(value.content),
            _ => None,
        }
    }
}

/// The one element that `bytes` are.
fn only(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    let (element, rest) = der::read(bytes)?;
    (rest.is_empty() && element.tag == tag).then_some(element)
}

/// The first elements within one.
fn fields<const N: usize>(element: Element<'_>) -> Option<[Element<'_>; N]> {
    let all = der::all(element.content)?;
    all.into_iter().take(N).collect::<Vec<_>>().try_into().ok()
}

fn hash(algorithm: &[u8]) -> Option<Hash> {
    let (name, _) = der::read(algorithm)?;
    match (name.tag, name.content) {
        (IDENTIFIER, SHA_256) => Some(Hash::Sha256),
        (IDENTIFIER, SHA_384) => Some(Hash::Sha384),
        (IDENTIFIER, SHA_512) => Some(Hash::Sha512),
        _ => None,
    }
}

fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8> {
    match hash {
        Hash::Sha256 => Sha256::digest(bytes).to_vec(),
        Hash::Sha384 => Sha384::digest(bytes).to_vec(),
        Hash::Sha512 => Sha512::digest(bytes).to_vec(),
    }
}

/// The time and the imprint in what was signed.
fn info(content: &[u8]) -> Option<(Timestamp, (Hash, &[u8]))> {
    let [_version, _policy, imprint, _serial, time] = fields::<5>(only(content, SEQUENCE)?)?;
    let [algorithm, hashed] = fields::<2>(imprint)?;
    if time.tag != GENERALIZED_TIME || hashed.tag != OCTETS {
        return None;
    }
    let text = std::str::from_utf8(time.content).ok()?.strip_suffix('Z')?;
    // Fractions of a second are allowed.
    let whole = text.split('.').next()?;
    let time = DateTime::strptime("%Y%m%d%H%M%S", whole).ok()?;
    let time = TimeZone::UTC.to_timestamp(time).ok()?;
    Some((time, (hash(algorithm.content)?, hashed.content)))
}

/// For stamping and for nothing else, and says so in a way that nobody may overlook.
fn check_purpose(leaf: &X509Certificate<'_>) -> Result<(), String> {
    let usage = leaf.extended_key_usage().ok().flatten();
    let only = usage.as_ref().is_some_and(|usage| {
        let value = &usage.value;
        let others = [
            value.any,
            value.server_auth,
            value.client_auth,
            value.code_signing,
            value.email_protection,
            value.ocsp_signing,
        ];
        value.time_stamping && value.other.is_empty() && !others.contains(&true)
    });
    let critical = leaf
        .extensions()
        .iter()
        .any(|extension| extension.critical && extension.oid.to_id_string() == TIMESTAMPING);
    if only && critical && !leaf.is_ca() {
        Ok(())
    } else {
        Err("the timestamp's certificate is not for timestamps".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    const ROOT: &str = include_str!("../../tests/timestamp/root.pem");
    const STAMPER: &str = include_str!("../../tests/timestamp/stamper.pem");
    const STAMPED: &[u8] = include_bytes!("../../tests/timestamp/stamped");

    /// A trust root whose authority for timestamps is this chain.
    fn root(chain: &[&str]) -> TrustRoot {
        let chain: Vec<_> = chain
            .iter()
            .map(|pem| {
                let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
                json!({ "rawBytes": STANDARD.encode(block.contents) })
            })
            .collect();
        let mut file = testbed::sigstore::Sigstore::new().unwrap().trusted_root();
        file["timestampAuthorities"] = json!([{ "certChain": { "certificates": chain } }]);
        TrustRoot::from_json(file.to_string().as_bytes()).unwrap()
    }

    /// `openssl ts` made these, with keys made for it; one brings its certificates along.
    #[test]
    fn timestamps_of_openssl_are_verified() {
        let (bare, full) = (
            include_bytes!("../../tests/timestamp/bare.tsr"),
            include_bytes!("../../tests/timestamp/cert.tsr"),
        );
        for response in [&bare[..], full] {
            let time = verify(response, STAMPED, &root(&[STAMPER, ROOT])).unwrap();
            assert_eq!(time.strftime("%Y-%m").to_string(), "2026-11");
            let problem = verify(response, b"another", &root(&[STAMPER, ROOT])).unwrap_err();
            assert!(problem.contains("for another signature"), "{problem}");
            // Without an authority above it a certificate is nobody's.
            assert!(verify(response, STAMPED, &root(&[STAMPER])).is_err());
        }
        // Where the root names the authority only, the certificate has to come along.
        assert!(verify(full, STAMPED, &root(&[ROOT])).is_ok());
        assert!(verify(bare, STAMPED, &root(&[ROOT])).is_err());
    }
}
