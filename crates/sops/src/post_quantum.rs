//! The post-quantum identities of age 1.3 (`AGE-SECRET-KEY-PQ-1…`), which the `age` crate does not have.
//!
//! A stanza `mlkem768x25519` holds the file key sealed by HPKE (RFC 9180, base mode) with the key encapsulation
//! X-Wing (ML-KEM-768 and X25519), HKDF-SHA-256 and ChaCha20-Poly1305. Only what opening needs is here.

use ::age::DecryptError;
use ::age::secrecy::zeroize::Zeroizing;
use age_core::format::{FileKey, Stanza};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use bech32::{FromBase32, ToBase32, Variant};
use chacha20poly1305::aead::{Aead, KeyInit as _};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use hmac::{Hmac, KeyInit as _, Mac};
use ml_kem::kem::{Decapsulate, KeyExport};
use ml_kem::ml_kem_768::{Ciphertext, DecapsulationKey};
use sha2::Sha256;
use sha3::{Digest, Sha3_256};
use shake::digest::{ExtendableOutput, Update, XofReader};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

const IDENTITY_PREFIX: &str = "age-secret-key-pq-";
const RECIPIENT_PREFIX: &str = "age1pq";
const STANZA_TAG: &str = "mlkem768x25519";
const INFO: &[u8] = b"age-encryption.org/mlkem768x25519";
/// The emblem of X-Wing, which its combiner ends with.
const LABEL: &[u8] = br"\.//^\";
/// HPKE with X-Wing, HKDF-SHA-256, ChaCha20-Poly1305.
const SUITE: &[u8] = &[b'H', b'P', b'K', b'E', 0x64, 0x7a, 0, 1, 0, 3];
const ML_KEM_CIPHERTEXT: usize = 1088;
const FILE_KEY: usize = 16;

pub(crate) struct Identity {
    lattice: DecapsulationKey,
    curve: Zeroizing<[u8; 32]>,
    curve_public: [u8; 32],
}

impl Identity {
    /// Reads a line of a key file; `None` if it is no identity of this kind.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (prefix, data, variant) = bech32::decode(line).ok()?;
        if prefix.to_ascii_lowercase() != IDENTITY_PREFIX || variant != Variant::Bech32 {
            return None;
        }
        let seed = Zeroizing::new(Vec::<u8>::from_base32(&data).ok()?);
        if seed.len() != 32 {
            return None;
        }
        let mut expand = shake::Shake256::default();
        expand.update(&seed);
        let mut expanded = expand.finalize_xof();
        let (mut lattice, mut curve) = (ml_kem::Seed::default(), Zeroizing::new([0; 32]));
        expanded.read(&mut lattice);
        expanded.read(&mut *curve);
        let curve_public = x25519(*curve, X25519_BASEPOINT_BYTES);
        Some(Self { lattice: DecapsulationKey::from_seed(lattice), curve, curve_public })
    }

    /// `age1pq1…`
    pub(crate) fn recipient(&self) -> String {
        let mut public = self.lattice.encapsulation_key().to_bytes().to_vec();
        public.extend_from_slice(&self.curve_public);
        bech32::encode(RECIPIENT_PREFIX, public.to_base32(), Variant::Bech32).unwrap_or_default()
    }

    fn open(&self, enc: &[u8], sealed: &[u8]) -> Option<FileKey> {
        let (lattice, curve) = enc.split_at_checked(ML_KEM_CIPHERTEXT)?;
        let curve: [u8; 32] = curve.try_into().ok()?;
        let lattice = Ciphertext::try_from(lattice).ok()?;
        let agreed = Zeroizing::new(x25519(*self.curve, curve));
        if *agreed == [0; 32] {
            return None;
        }
        let mut shared = Sha3_256::new();
        Digest::update(&mut shared, self.lattice.decapsulate(&lattice));
        Digest::update(&mut shared, *agreed);
        Digest::update(&mut shared, curve);
        Digest::update(&mut shared, self.curve_public);
        Digest::update(&mut shared, LABEL);
        let shared = Zeroizing::new(shared.finalize().to_vec());

        let context =
            [&[0][..], &extract(&[], b"psk_id_hash", &[]), &extract(&[], b"info_hash", INFO)].concat();
        let secret = Zeroizing::new(extract(&shared, b"secret", &[]));
        let key = Zeroizing::new(expand(&secret, b"key", &context, 32));
        let nonce = expand(&secret, b"base_nonce", &context, 12);
        let cipher = ChaCha20Poly1305::new(Key::from_slice(&key[..32]));
        let plain = Zeroizing::new(cipher.decrypt(Nonce::from_slice(&nonce[..12]), sealed).ok()?);
        let bytes: [u8; FILE_KEY] = plain.as_slice().try_into().ok()?;
        Some(FileKey::new(Box::new(bytes)))
    }
}

impl ::age::Identity for Identity {
    fn unwrap_stanza(&self, stanza: &Stanza) -> Option<Result<FileKey, DecryptError>> {
        if stanza.tag != STANZA_TAG {
            return None;
        }
        let [enc] = &stanza.args[..] else { return Some(Err(DecryptError::InvalidHeader)) };
        let Ok(enc) = BASE64_STANDARD_NO_PAD.decode(enc) else {
            return Some(Err(DecryptError::InvalidHeader));
        };
        if enc.len() != ML_KEM_CIPHERTEXT + 32 || stanza.body.len() != FILE_KEY + 16 {
            return Some(Err(DecryptError::InvalidHeader));
        }
        // One that is for somebody else fails here only: the encapsulation itself never refuses.
        self.open(&enc, &stanza.body).map(Ok)
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        Mac::update(&mut mac, part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// HPKE's `LabeledExtract`.
fn extract(salt: &[u8], label: &[u8], input: &[u8]) -> Vec<u8> {
    hmac(salt, &[b"HPKE-v1", SUITE, label, input])
}

/// The first block of HPKE's `LabeledExpand` for `length` bytes, 32 at most.
fn expand(secret: &[u8], label: &[u8], info: &[u8], length: u16) -> Vec<u8> {
    hmac(secret, &[&length.to_be_bytes(), b"HPKE-v1", SUITE, label, info, &[1]])
}
