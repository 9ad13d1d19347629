//! An authority for timestamps of RFC 3161, and as much DER as it takes to write one.

use anyhow::{Context, Result};
use rcgen::{CertificateParams, CustomExtension, DnType, Issuer, KeyPair, SigningKey};
use sha2::{Digest, Sha256};

use super::authority_params;

const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
const TIMESTAMP_INFO: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x10, 0x01, 0x04];
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const SHA_256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const ECDSA_WITH_SHA_256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const TIME_STAMPING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x08];
const POLICY: &[u8] = &[0x2a, 0x03, 0x04];

pub(super) struct Stamper {
    key: KeyPair,
    leaf: Vec<u8>,
    root: Vec<u8>,
}

impl Stamper {
    pub(super) fn new() -> Result<Self> {
        let (params, root_key) = (authority_params("stamp authority")?, KeyPair::generate()?);
        let root = params.self_signed(&root_key)?.der().to_vec();
        let issuer = Issuer::new(params, root_key);
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "stamper");
        params.not_before = rcgen::date_time_ymd(2025, 12, 31);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let usage = der(0x30, &[&der(0x06, &[TIME_STAMPING])]);
        let mut usage = CustomExtension::from_oid_content(&[2, 5, 29, 37], usage);
        usage.set_criticality(true);
        params.custom_extensions = vec![usage];
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &issuer)?.der().to_vec();
        Ok(Self { key, leaf, root })
    }

    pub(super) fn chain(&self) -> [&[u8]; 2] {
        [&self.leaf, &self.root]
    }

    /// A response that says that `content` was there at `time`.
    pub(super) fn stamp(&self, content: &[u8], time: &str) -> Result<Vec<u8>> {
        let sha_256 = der(0x30, &[&der(0x06, &[SHA_256])]);
        let imprint = der(0x30, &[&sha_256, &der(0x04, &[&Sha256::digest(content)])]);
        let info = der(
            0x30,
            &[
                &der(0x02, &[&[1]]),
                &der(0x06, &[POLICY]),
                &imprint,
                &der(0x02, &[&[42]]),
                &der(0x18, &[time.as_bytes()]),
            ],
        );
        let attribute = |name: &[u8], value: &[u8]| der(0x30, &[&der(0x06, &[name]), &der(0x31, &[value])]);
        let attributes = [
            attribute(CONTENT_TYPE, &der(0x06, &[TIMESTAMP_INFO])),
            attribute(MESSAGE_DIGEST, &der(0x04, &[&Sha256::digest(&info)])),
        ]
        .concat();
        let signature = self.key.sign(&der(0x31, &[&attributes]))?;
        // Serial number and issuer are the second and the fourth field of a certificate.
        let fields = elements(content_of(signed_part(&self.leaf)));
        let (serial, issuer) =
            (fields.get(1).context("a serial number")?, fields.get(3).context("an issuer")?);
        let signer = der(
            0x30,
            &[
                &der(0x02, &[&[1]]),
                &der(0x30, &[issuer, serial]),
                &sha_256,
                &der(0xa0, &[&attributes]),
                &der(0x30, &[&der(0x06, &[ECDSA_WITH_SHA_256])]),
                &der(0x04, &[&signature]),
            ],
        );
        let encapsulated = der(0x30, &[&der(0x06, &[TIMESTAMP_INFO]), &der(0xa0, &[&der(0x04, &[&info])])]);
        let data =
            der(0x30, &[&der(0x02, &[&[3]]), &der(0x31, &[&sha_256]), &encapsulated, &der(0x31, &[&signer])]);
        let token = der(0x30, &[&der(0x06, &[SIGNED_DATA]), &der(0xa0, &[&data])]);
        Ok(der(0x30, &[&der(0x30, &[&der(0x02, &[&[0]])]), &token]))
    }
}

/// An element of these parts.
pub(super) fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut bytes = vec![tag];
    match content.len() {
        length @ 0..128 => bytes.push(length as u8),
        length => {
            let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|digit| *digit == 0).collect();
            bytes.push(0x80 | digits.len() as u8);
            bytes.extend(digits);
        }
    }
    bytes.extend(content);
    bytes
}

/// Where the content of an element begins, and how long it is.
fn header(bytes: &[u8]) -> (usize, usize) {
    match bytes[1] {
        length @ 0..=127 => (2, usize::from(length)),
        count => {
            let count = usize::from(count & 0x7f);
            (2 + count, bytes[2..2 + count].iter().fold(0, |length, digit| length << 8 | usize::from(*digit)))
        }
    }
}

fn content_of(element: &[u8]) -> &[u8] {
    let (start, length) = header(element);
    &element[start..start + length]
}

fn elements(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (start, length) = header(bytes);
        let (element, rest) = bytes.split_at(start + length);
        found.push(element);
        bytes = rest;
    }
    found
}

/// The first element within the outer sequence of a certificate: what its authority signed.
pub(super) fn signed_part(certificate: &[u8]) -> &[u8] {
    elements(content_of(certificate)).first().copied().unwrap_or_default()
}
