//! Public keys and the signatures they check.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
    VerificationAlgorithm,
};
use sha2::{Digest, Sha256};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::Error;

/// A key that signatures are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kind: Kind,
    bits: Vec<u8>,
    /// The whole of it, as certificates and logs know it.
    der: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    P256,
    P384,
    P521,
    Rsa,
    Ed25519,
}

/// The hash in a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl PublicKey {
    /// Reads `-----BEGIN PUBLIC KEY-----`.
    pub fn from_pem(pem: &[u8]) -> Result<Self, Error> {
        let wrong = || Error::Key("the public key is no PEM block 'PUBLIC KEY'".to_owned());
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| wrong())?;
        if block.label != "PUBLIC KEY" {
            return Err(wrong());
        }
        Self::from_der(&block.contents)
    }

    /// Reads a SubjectPublicKeyInfo.
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der)
            .map_err(|_| Error::Key("the public key is damaged".to_owned()))?;
        let parameters = info.algorithm.parameters.as_ref().and_then(|any| any.as_oid().ok());
        let curve = parameters.map(|oid| oid.to_id_string());
        let kind = match (info.algorithm.algorithm.to_id_string().as_str(), curve.as_deref()) {
            ("1.2.840.10045.2.1", Some("1.2.840.10045.3.1.7")) => Kind::P256,
            ("1.2.840.10045.2.1", Some("1.3.132.0.34")) => Kind::P384,
            ("1.2.840.10045.2.1", Some("1.3.132.0.35")) => Kind::P521,
            ("1.2.840.113549.1.1.1", _) => Kind::Rsa,
            ("1.3.101.112", _) => Kind::Ed25519,
            (other, _) => {
                return Err(Error::Key(format!("public keys of the kind {other} are not supported")));
            }
        };
        Ok(Self { kind, bits: info.subject_public_key.data.to_vec(), der: der.to_vec() })
    }

    /// The key without what kind it is.
    pub(super) fn bits(&self) -> &[u8] {
        &self.bits
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether `signature` is this key's for `message`; cosign hashes with SHA-256 whatever the key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.verifies_with(Hash::Sha256, message, signature)
    }

    /// The same for clients that choose the hash by the size of the key.
    pub(super) fn verifies_message(&self, message: &[u8], signature: &[u8]) -> bool {
        let own = match self.kind {
            Kind::P256 | Kind::Rsa | Kind::Ed25519 => Hash::Sha256,
            Kind::P384 => Hash::Sha384,
            Kind::P521 => Hash::Sha512,
        };
        self.verifies(message, signature) || self.verifies_with(own, message, signature)
    }

    /// How a signed note points to this key: four bytes.
    pub(super) fn note_hint(&self, name: &str) -> [u8; 4] {
        let mut hash = Sha256::new();
        match self.kind {
            Kind::P256 | Kind::P384 | Kind::P521 => hash.update(&self.der),
            Kind::Ed25519 => hash.update([name.as_bytes(), b"\n\x01", &self.bits].concat()),
            Kind::Rsa => {
                hash.update([name.as_bytes(), b"\n\xffPKIX-RSA-PKCS#1v1.5", &self.der].concat());
            }
        }
        let hash = hash.finalize();
        [hash[0], hash[1], hash[2], hash[3]]
    }

    pub(super) fn verifies_with(&self, hash: Hash, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, hash) {
            (Kind::P256, Hash::Sha256) => &ECDSA_P256_SHA256_ASN1,
            (Kind::P256, Hash::Sha384) => &ECDSA_P256_SHA384_ASN1,
            (Kind::P384, Hash::Sha256) => &ECDSA_P384_SHA256_ASN1,
            (Kind::P384, Hash::Sha384) => &ECDSA_P384_SHA384_ASN1,
            (Kind::P521, Hash::Sha256) => &ECDSA_P521_SHA256_ASN1,
            (Kind::Rsa, Hash::Sha256) => &RSA_PKCS1_2048_8192_SHA256,
            (Kind::Rsa, Hash::Sha384) => &RSA_PKCS1_2048_8192_SHA384,
            (Kind::Rsa, Hash::Sha512) => &RSA_PKCS1_2048_8192_SHA512,
            (Kind::Ed25519, _) => &ED25519,
            (Kind::P521, Hash::Sha384) => &ECDSA_P521_SHA384_ASN1,
            (Kind::P521, Hash::Sha512) => &ECDSA_P521_SHA512_ASN1,
            (Kind::P256 | Kind::P384, Hash::Sha512) => return false,
        };
        UnparsedPublicKey::new(algorithm, &self.bits).verify(message, signature).is_ok()
    }
}
