//! Private keys: making, reading and writing them, and signing with them.

use dsa::KeySize;
use ed25519_dalek::Signer;
use p256::ecdsa::signature::hazmat::PrehashSigner;
use p256::elliptic_curve::sec1::ToEncodedPoint;
use rand_core::{CryptoRng, RngCore};
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey, EncodeRsaPublicKey};
use rsa::pkcs8::DecodePrivateKey;
use rsa::{Pkcs1v15Sign, RsaPrivateKey};
use sha2::{Digest, Sha256};

use super::der::{self, bit_string, element, integer, oid, sequence};
use crate::context::Context;

const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const SHA256_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const EC_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];
const SHA256_OID: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const NULL: &[u8] = &[5, 0];

/// A private key of one of the kinds sprig knows. There is deliberately no `Debug`.
pub enum Key {
    Rsa(Box<RsaPrivateKey>),
    Ec(p256::SecretKey),
    Ed25519(Box<ed25519_dalek::SigningKey>),
    /// Only its PEM form: nothing can be signed with it here, as in Go.
    Dsa(Vec<u8>),
}

/// The host's chance, as the key generators want it.
struct HostRandom<'a, 'c>(&'a Context<'c>);

impl RngCore for HostRandom<'_, '_> {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, buffer: &mut [u8]) {
        self.0.host().random(buffer);
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(buffer);
        Ok(())
    }
}

impl CryptoRng for HostRandom<'_, '_> {}

pub fn rsa(ctx: &Context<'_>, bits: usize) -> Result<Key, String> {
    RsaPrivateKey::new(&mut HostRandom(ctx), bits)
        .map(|key| Key::Rsa(Box::new(key)))
        .map_err(|e| e.to_string())
}

pub fn ecdsa(ctx: &Context<'_>) -> Key {
    Key::Ec(p256::SecretKey::random(&mut HostRandom(ctx)))
}

pub fn ed25519(ctx: &Context<'_>) -> Key {
    let mut seed = [0; 32];
    ctx.host().random(&mut seed);
    Key::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(&seed)))
}

pub fn dsa(ctx: &Context<'_>) -> Key {
    let mut random = HostRandom(ctx);
    let components = dsa::Components::generate(&mut random, KeySize::DSA_2048_256);
    let key = dsa::SigningKey::generate(&mut random, components);
    let public = key.verifying_key();
    let number = |number: &dsa::BigUint| integer(&number.to_bytes_be());
    let components = public.components();
    Key::Dsa(sequence(&[
        &integer(&[]),
        &number(components.p()),
        &number(components.q()),
        &number(components.g()),
        &number(public.y()),
        &number(key.x()),
    ]))
}

impl Key {
    pub fn pem(&self) -> String {
        match self {
            Self::Rsa(key) => {
                let der = key.to_pkcs1_der().map(|der| der.as_bytes().to_vec()).unwrap_or_default();
                der::pem("RSA PRIVATE KEY", &der)
            }
            Self::Dsa(der) => der::pem("DSA PRIVATE KEY", der),
            Self::Ec(key) => {
                let point = key.public_key().to_encoded_point(false);
                let der = sequence(&[
                    &integer(&[1]),
                    &element(der::OCTET_STRING, &key.to_bytes()),
                    &element(0xa0, &oid(P256_OID)),
                    &element(0xa1, &bit_string(point.as_bytes(), 0)),
                ]);
                der::pem("EC PRIVATE KEY", &der)
            }
            Self::Ed25519(key) => {
                let seed = element(der::OCTET_STRING, &key.to_bytes());
                let der = sequence(&[
                    &integer(&[]),
                    &sequence(&[&oid(ED25519_OID)]),
                    &element(der::OCTET_STRING, &seed),
                ]);
                der::pem("PRIVATE KEY", &der)
            }
        }
    }

    /// Reads a PEM block; the error is sprig's text.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        let (label, bytes) = der::read_pem(text).ok_or("no PEM data in input")?;
        match label.as_str() {
            "PRIVATE KEY" => {
                from_pkcs8(&bytes).ok_or_else(|| "decoding PEM as PKCS#8: malformed private key".to_owned())
            }
            "RSA PRIVATE KEY" => RsaPrivateKey::from_pkcs1_der(&bytes)
                .map(|key| Self::Rsa(Box::new(key)))
                .map_err(|error| format!("parsing RSA private key from PEM: {error}")),
            "EC PRIVATE KEY" => p256::SecretKey::from_sec1_der(&bytes)
                .map(Self::Ec)
                .map_err(|error| format!("parsing EC private key from PEM: {error}")),
            "DSA PRIVATE KEY" => match der::read(&bytes).and_then(|outer| der::read_all(outer.content)) {
                Some(numbers) if numbers.len() == 6 => Ok(Self::Dsa(bytes)),
                _ => Err("parsing DSA private key from PEM: asn1: structure error".to_owned()),
            },
            other if other.ends_with(" PRIVATE KEY") => Err(format!("invalid private key type {other}")),
            other => Err(format!("no private key data in PEM block of type {other}")),
        }
    }

    /// The public key as a certificate holds it.
    pub fn public_info(&self) -> Result<Vec<u8>, String> {
        Ok(match self {
            Self::Rsa(key) => {
                let public = key.to_public_key().to_pkcs1_der().map_err(|error| error.to_string())?;
                sequence(&[&sequence(&[&oid(RSA_OID), NULL]), &bit_string(public.as_bytes(), 0)])
            }
            Self::Ec(key) => {
                let point = key.public_key().to_encoded_point(false);
                sequence(&[&sequence(&[&oid(EC_OID), &oid(P256_OID)]), &bit_string(point.as_bytes(), 0)])
            }
            Self::Ed25519(key) => {
                sequence(&[&sequence(&[&oid(ED25519_OID)]), &bit_string(key.verifying_key().as_bytes(), 0)])
            }
            Self::Dsa(_) => return Err("x509: unsupported public key type: *dsa.PublicKey".to_owned()),
        })
    }

    /// The identifier of the algorithm this key signs certificates with.
    pub fn signature_algorithm(&self) -> Result<Vec<u8>, String> {
        Ok(match self {
            Self::Rsa(_) => sequence(&[&oid(SHA256_WITH_RSA), NULL]),
            Self::Ec(_) => sequence(&[&oid(ECDSA_WITH_SHA256)]),
            Self::Ed25519(_) => sequence(&[&oid(ED25519_OID)]),
            Self::Dsa(_) => return Err("x509: only RSA, ECDSA and Ed25519 keys supported".to_owned()),
        })
    }

    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let digest = Sha256::digest(message);
        match self {
            Self::Rsa(key) => {
                let info =
                    sequence(&[&sequence(&[&oid(SHA256_OID), NULL]), &element(der::OCTET_STRING, &digest)]);
                key.sign(Pkcs1v15Sign::new_unprefixed(), &info).map_err(|error| error.to_string())
            }
            Self::Ec(key) => {
                let signer = p256::ecdsa::SigningKey::from(key);
                let signature: p256::ecdsa::Signature =
                    signer.sign_prehash(&digest).map_err(|error| error.to_string())?;
                Ok(signature.to_der().as_bytes().to_vec())
            }
            Self::Ed25519(key) => Ok(key.sign(message).to_bytes().to_vec()),
            Self::Dsa(_) => Err("x509: only RSA, ECDSA and Ed25519 keys supported".to_owned()),
        }
    }
}

fn from_pkcs8(bytes: &[u8]) -> Option<Key> {
    let outer = der::read(bytes)?;
    let parts = der::read_all(outer.content)?;
    let algorithm = der::read_all(parts.get(1)?.content)?;
    match algorithm.first()?.content {
        RSA_OID => RsaPrivateKey::from_pkcs8_der(bytes).ok().map(|key| Key::Rsa(Box::new(key))),
        EC_OID => p256::SecretKey::from_pkcs8_der(bytes).ok().map(Key::Ec),
        ED25519_OID => {
            let seed: [u8; 32] = der::read(parts.get(2)?.content)?.content.try_into().ok()?;
            Some(Key::Ed25519(Box::new(ed25519_dalek::SigningKey::from_bytes(&seed))))
        }
        _ => None,
    }
}
