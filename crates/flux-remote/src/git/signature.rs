//! Signatures of commits and tags: OpenPGP and SSH, made and checked without `gpg` or `ssh-keygen`.
//!
//! What is checked are the very bytes that were fetched, less the signature: nothing is parsed and written anew on the
//! way, so what was signed is what is checked out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flux_api::secret::SecretString;
use pgp::composed::{
    ArmorOptions, Deserializable, DetachedSignature, SignedPublicKey, SignedPublicSubKey, SignedSecretKey,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature as Packet, SignatureType};
use pgp::types::{KeyDetails, Password};
use russh::keys::ssh_key::{LineEnding, SshSig};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PublicKey};

use super::objects::{Commit, Tag};
use super::{Error, ssh};

/// What git signs under.
const NAMESPACE: &str = "git";
const SMALLEST_RSA: u32 = 2048;
const PGP: &str = "-----BEGIN PGP SIGNATURE-----";
const SSH: &str = "-----BEGIN SSH SIGNATURE-----";
const X509: &str = "-----BEGIN SIGNED MESSAGE-----";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureKind {
    OpenPgp,
    Ssh,
    X509,
    Unknown,
}

impl SignatureKind {
    fn of(text: &str) -> Self {
        let text = text.trim_start();
        match () {
            () if text.starts_with(PGP) => SignatureKind::OpenPgp,
            () if text.starts_with(SSH) => SignatureKind::Ssh,
            () if text.starts_with(X509) => SignatureKind::X509,
            () => SignatureKind::Unknown,
        }
    }

    fn name(self) -> &'static str {
        match self {
            SignatureKind::OpenPgp => "openpgp",
            SignatureKind::Ssh => "ssh",
            SignatureKind::X509 => "x509",
            SignatureKind::Unknown => "unknown",
        }
    }
}

/// A signature and the bytes it stands for.
pub struct Signature {
    pub kind: SignatureKind,
    text: String,
    payload: Vec<u8>,
}

/// Why a signature is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Unverified {
    #[error("PGP signature detected but no PGP public keys found in secret (keys with .asc suffix)")]
    NoPgpKeys,
    #[error("SSH signature detected but no SSH public keys found in secret (keys with .sshpub suffix)")]
    NoSshKeys,
    #[error("unsupported signature type: {0}")]
    Unsupported(&'static str),
    #[error("unable to verify Git {what}: unable to read armored key ring: {cause}")]
    PgpKeys { what: &'static str, cause: String },
    #[error("unable to verify Git {what} SSH signature: unable to parse authorized keys: {cause}")]
    SshKeys { what: &'static str, cause: String },
    #[error("unable to verify Git {what}: unable to verify payload with any of the given key rings: {cause}")]
    PgpMismatch { what: &'static str, cause: String },
    #[error(
        "unable to verify Git {what} SSH signature: unable to verify payload with any of the given authorized keys: {cause}"
    )]
    SshMismatch { what: &'static str, cause: String },
}

impl Commit {
    /// Its signature, from the `gpgsig` header.
    pub fn signature(&self) -> Option<Signature> {
        let end = self.raw.windows(2).position(|two| two == b"\n\n").map_or(self.raw.len(), |at| at + 1);
        let (mut text, mut payload, mut inside) = (Vec::new(), Vec::new(), false);
        for line in self.raw[..end].split_inclusive(|byte| *byte == b'\n') {
            match line {
                _ if inside && line.starts_with(b" ") => text.extend_from_slice(&line[1..]),
                _ if line.starts_with(b"gpgsig ") => {
                    inside = true;
                    text.extend_from_slice(&line[b"gpgsig ".len()..]);
                }
                _ => {
                    inside = false;
                    payload.extend_from_slice(line);
                }
            }
        }
        payload.extend_from_slice(&self.raw[end..]);
        let text = String::from_utf8(text).ok().filter(|text| !text.is_empty())?;
        Some(Signature { kind: SignatureKind::of(&text), text, payload })
    }
}

impl Tag {
    /// Its signature, at the end of the message.
    pub fn signature(&self) -> Option<Signature> {
        let mut start = None;
        let mut at = 0;
        for line in self.raw.split_inclusive(|byte| *byte == b'\n') {
            if [PGP, SSH, X509].iter().any(|begin| line.starts_with(begin.as_bytes())) {
                start = Some(at);
            }
            at += line.len();
        }
        let (payload, text) = self.raw.split_at(start?);
        let text = String::from_utf8(text.to_vec()).ok()?;
        Some(Signature { kind: SignatureKind::of(&text), text, payload: payload.to_vec() })
    }
}

/// The public keys whose signatures count.
#[derive(Default)]
pub struct TrustedKeys {
    pgp: Vec<String>,
    ssh: Vec<String>,
}

impl TrustedKeys {
    /// Takes the value of one key of a Secret: `….sshpub` holds SSH keys, `….asc` and any other an OpenPGP key ring.
    pub fn add(&mut self, key: &str, value: &[u8]) {
        let text = String::from_utf8_lossy(value).into_owned();
        match key.ends_with(".sshpub") {
            true => self.ssh.push(text),
            false => self.pgp.push(text),
        }
    }

    /// Which key made the signature: an OpenPGP key id or an SSH fingerprint. `what` is `commit` or `tag`.
    pub fn verify(
        &self,
        signature: Option<&Signature>,
        what: &'static str,
        now: SystemTime,
    ) -> Result<String, Unverified> {
        let Some(signature) = signature else {
            return Err(Unverified::Unsupported("empty"));
        };
        match signature.kind {
            SignatureKind::OpenPgp if self.pgp.is_empty() => Err(Unverified::NoPgpKeys),
            SignatureKind::OpenPgp => self.verify_pgp(signature, what, now),
            SignatureKind::Ssh if self.ssh.is_empty() => Err(Unverified::NoSshKeys),
            SignatureKind::Ssh => self.verify_ssh(signature, what),
            SignatureKind::X509 | SignatureKind::Unknown => {
                Err(Unverified::Unsupported(signature.kind.name()))
            }
        }
    }

    fn verify_pgp(
        &self,
        signature: &Signature,
        what: &'static str,
        now: SystemTime,
    ) -> Result<String, Unverified> {
        let mismatch = |cause: &str| Unverified::PgpMismatch { what, cause: cause.to_owned() };
        let detached = DetachedSignature::from_string(signature.text.trim())
            .map_err(|_| mismatch("the signature is malformed"))?
            .0;
        let mut unreadable = None;
        let mut read_any = false;
        for ring in &self.pgp {
            let keys = match key_ring(ring) {
                Ok(keys) => keys,
                Err(cause) => {
                    unreadable.get_or_insert(cause);
                    continue;
                }
            };
            read_any = true;
            if let Some(id) = keys.iter().find_map(|key| signed_by(key, &detached, &signature.payload, now)) {
                return Ok(id);
            }
        }
        match unreadable {
            Some(cause) if !read_any => Err(Unverified::PgpKeys { what, cause }),
            _ => Err(mismatch("no matching key")),
        }
    }

    fn verify_ssh(&self, signature: &Signature, what: &'static str) -> Result<String, Unverified> {
        let mismatch = |cause: &str| Unverified::SshMismatch { what, cause: cause.to_owned() };
        let made =
            SshSig::from_pem(signature.text.trim()).map_err(|_| mismatch("the signature is malformed"))?;
        // SHA-1 and MD5 are no hashes of an SSH signature, and a signature for mail or files is not one for Git.
        if !matches!(made.hash_alg(), HashAlg::Sha256 | HashAlg::Sha512) || made.namespace() != NAMESPACE {
            return Err(mismatch("the signature is not one for Git"));
        }
        let mut unreadable = None;
        let mut read_any = false;
        for text in &self.ssh {
            let keys = match authorized_keys(text) {
                Ok(keys) => keys,
                Err(cause) => {
                    unreadable.get_or_insert(cause);
                    continue;
                }
            };
            read_any = true;
            let matching = |key: &&PublicKey| key.verify(NAMESPACE, &signature.payload, &made).is_ok();
            if let Some(key) = keys.iter().find(matching) {
                return Ok(key.fingerprint(HashAlg::Sha256).to_string());
            }
        }
        match unreadable {
            Some(cause) if !read_any => Err(Unverified::SshKeys { what, cause }),
            _ => Err(mismatch("no matching key")),
        }
    }
}

fn authorized_keys(text: &str) -> Result<Vec<PublicKey>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| PublicKey::from_openssh(line).map_err(|_| "not an SSH public key".to_owned())).collect()
}

fn key_ring(text: &str) -> Result<Vec<SignedPublicKey>, String> {
    let (keys, _) = SignedPublicKey::from_string_many(text.trim()).map_err(|error| first_line(&error))?;
    let keys: Vec<SignedPublicKey> = keys.collect::<Result<_, _>>().map_err(|error| first_line(&error))?;
    if keys.is_empty() { Err("it holds no key".to_owned()) } else { Ok(keys) }
}

fn first_line(error: &pgp::errors::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The id of the primary key, if it or one of its subkeys made the signature and was fit to.
fn signed_by(
    key: &SignedPublicKey,
    made: &DetachedSignature,
    payload: &[u8],
    now: SystemTime,
) -> Option<String> {
    let id = || key_id_text(&key.primary_key);
    let expired = made
        .signature
        .created()
        .zip(made.signature.signature_expiration_time())
        .is_some_and(|(from, lasts)| is_over(from.as_secs(), lasts.as_secs(), now));
    if expired || !is_usable(key, now) {
        return None;
    }
    if may_sign(key) && made.verify(&key.primary_key, payload).is_ok() {
        return Some(id());
    }
    let subkey = key.public_subkeys.iter().find(|subkey| made.verify(&subkey.key, payload).is_ok())?;
    subkey_may_sign(key, subkey, now).then(id)
}

/// Sixteen digits in capitals, as key servers and Flux write it.
fn key_id_text(key: &impl KeyDetails) -> String {
    key.legacy_key_id().as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn is_over(from: u32, lasts: u32, now: SystemTime) -> bool {
    let end = UNIX_EPOCH + Duration::from_secs(u64::from(from) + u64::from(lasts));
    lasts != 0 && now > end
}

/// The signatures a key made about itself that hold.
fn self_signatures(key: &SignedPublicKey) -> impl Iterator<Item = &Packet> {
    let primary = &key.primary_key;
    let direct = key.details.direct_signatures.iter().filter(move |one| one.verify_key(primary).is_ok());
    let users = key.details.users.iter().flat_map(move |user| {
        let own =
            move |one: &&Packet| one.verify_certification(primary, pgp::types::Tag::UserId, &user.id).is_ok();
        user.signatures.iter().filter(|one| one.is_certification()).filter(own)
    });
    direct.chain(users)
}

/// Neither revoked nor past its time.
fn is_usable(key: &SignedPublicKey, now: SystemTime) -> bool {
    let revoked =
        key.details.revocation_signatures.iter().any(|one| one.verify_key(&key.primary_key).is_ok());
    let newest = self_signatures(key).max_by_key(|one| one.created().map(|at| at.as_secs()));
    let expired = newest
        .and_then(Packet::key_expiration_time)
        .is_some_and(|lasts| is_over(key.primary_key.created_at().as_secs(), lasts.as_secs(), now));
    newest.is_some() && !revoked && !expired
}

/// A key that says nothing about its use may sign.
fn may_sign(key: &SignedPublicKey) -> bool {
    let newest = self_signatures(key).max_by_key(|one| one.created().map(|at| at.as_secs()));
    newest.is_some_and(|one| {
        let flags = one.key_flags();
        let says_nothing =
            !(flags.sign() || flags.certify() || flags.encrypt_comms() || flags.encrypt_storage());
        flags.sign() || says_nothing
    })
}

fn subkey_may_sign(key: &SignedPublicKey, subkey: &SignedPublicSubKey, now: SystemTime) -> bool {
    let bound = |kind: SignatureType| {
        subkey
            .signatures
            .iter()
            .filter(move |one| one.typ() == Some(kind))
            .filter(|one| one.verify_subkey_binding(&key.primary_key, &subkey.key).is_ok())
    };
    if bound(SignatureType::SubkeyRevocation).next().is_some() {
        return false;
    }
    let newest = bound(SignatureType::SubkeyBinding).max_by_key(|one| one.created().map(|at| at.as_secs()));
    let Some(binding) = newest else { return false };
    // The subkey must have agreed: else anybody could adopt a stranger's key.
    let agreed = binding
        .embedded_signature()
        .is_some_and(|back| back.verify_primary_key_binding(&subkey.key, &key.primary_key).is_ok());
    let expired = binding
        .key_expiration_time()
        .is_some_and(|lasts| is_over(subkey.key.created_at().as_secs(), lasts.as_secs(), now));
    binding.key_flags().sign() && agreed && !expired
}

/// Signs commits.
pub enum Signer {
    OpenPgp(Box<PgpSigner>),
    Ssh(Box<PrivateKey>),
}

/// Unlocked: it has no passphrase any more.
pub struct PgpSigner {
    key: SignedSecretKey,
    /// Which subkey signs; `None` is the primary key.
    subkey: Option<usize>,
}

fn open_pgp_keys(ring: &[u8]) -> Result<Vec<SignedSecretKey>, Error> {
    let keys = match ring.trim_ascii_start().starts_with(b"-----BEGIN") {
        true => SignedSecretKey::from_armor_many(ring).and_then(|(keys, _)| keys.collect()),
        false => SignedSecretKey::from_bytes_many(ring).and_then(|keys| keys.collect()),
    };
    keys.map_err(|error| Error::Signing(first_line(&error)))
}

impl Signer {
    /// With an SSH private key, as `gpg.format=ssh` does.
    pub fn ssh(pem: &SecretString, passphrase: Option<&SecretString>) -> Result<Self, Error> {
        let key = ssh::private_key(pem, passphrase)?;
        let weak = |bits: u32| {
            Error::Signing(format!("RSA key of {bits} bits is too small: at least {SMALLEST_RSA}"))
        };
        match key.algorithm() {
            Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => {}
            Algorithm::Rsa { .. } => {
                let bits = key.public_key().key_data().rsa().map_or(0, |rsa| rsa.key_size());
                if bits < SMALLEST_RSA {
                    return Err(weak(bits));
                }
            }
            other => return Err(Error::Signing(format!("SSH keys of type {other} cannot sign"))),
        }
        Ok(Signer::Ssh(Box::new(key)))
    }

    /// With a key of an OpenPGP key ring, armored or not: the one with `key_id`, else the first.
    pub fn open_pgp(
        ring: &[u8],
        passphrase: Option<&SecretString>,
        key_id: Option<&str>,
    ) -> Result<Self, Error> {
        let failed = |cause: String| Error::Signing(cause);
        let keys = open_pgp_keys(ring)?;
        let wanted = |key: &SignedSecretKey| {
            let id = key_id_text(&key.primary_key);
            key_id.is_none_or(|asked| asked.to_uppercase().trim_start_matches("0X").ends_with(&id))
        };
        let mut key = keys.into_iter().find(|key| wanted(key)).ok_or_else(|| match key_id {
            Some(id) => failed(format!("no GPG private key matching key id '{id}' found in the key ring")),
            None => failed("the key ring holds no private key".to_owned()),
        })?;
        let passphrase = passphrase.map_or_else(Password::empty, |one| Password::from(one.expose().as_str()));
        let signs = |one: &Packet| one.typ() == Some(SignatureType::SubkeyBinding) && one.key_flags().sign();
        let subkey = key.secret_subkeys.iter().rposition(|subkey| subkey.signatures.iter().any(signs));
        // A wrong passphrase is told now, not with the first commit; and unlocking takes a while.
        let unlocked = match subkey.and_then(|index| key.secret_subkeys.get_mut(index)) {
            Some(subkey) => subkey.key.remove_password(&passphrase),
            None => key.primary_key.remove_password(&passphrase),
        };
        unlocked.map_err(|_| failed("the key cannot be unlocked with the passphrase given".to_owned()))?;
        Ok(Signer::OpenPgp(Box::new(PgpSigner { key, subkey })))
    }

    /// How many private keys an OpenPGP key ring holds.
    pub fn count_open_pgp(ring: &[u8]) -> Result<usize, Error> {
        open_pgp_keys(ring).map(|keys| keys.len())
    }

    /// An armored signature of `payload`.
    pub(super) fn sign(&self, payload: &[u8]) -> Result<String, Error> {
        match self {
            Signer::Ssh(key) => SshSig::sign(key.as_ref(), NAMESPACE, HashAlg::Sha512, payload)
                .and_then(|made| made.to_pem(LineEnding::LF))
                .map_err(|error| Error::Signing(error.to_string())),
            Signer::OpenPgp(signer) => {
                let random = rand_core::OsRng;
                let (hash, passphrase) = (HashAlgorithm::Sha256, &Password::empty());
                let subkey = signer.subkey.and_then(|index| signer.key.secret_subkeys.get(index));
                let made = match subkey {
                    Some(subkey) => {
                        DetachedSignature::sign_binary_data(random, &subkey.key, passphrase, hash, payload)
                    }
                    None => DetachedSignature::sign_binary_data(
                        random,
                        &signer.key.primary_key,
                        passphrase,
                        hash,
                        payload,
                    ),
                };
                made.and_then(|made| made.to_armored_string(ArmorOptions::default()))
                    .map_err(|error| Error::Signing(first_line(&error)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Oid;
    use super::super::objects::parse_commit;
    use super::*;

    fn commit(raw: &str) -> Commit {
        parse_commit(Oid::parse(&"1".repeat(40)).unwrap(), raw.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_payload_is_the_commit_without_its_signature() {
        let tree = "2".repeat(40);
        let raw = format!(
            "tree {tree}\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\ngpgsig {SSH}\n abc\n \n -----END\nencoding x\n\nsubject\n\ngpgsig not this\n"
        );
        let signature = commit(&raw).signature().unwrap();
        assert_eq!(signature.kind, SignatureKind::Ssh);
        assert_eq!(signature.text, format!("{SSH}\nabc\n\n-----END\n"));
        let expected = format!(
            "tree {tree}\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\nencoding x\n\nsubject\n\ngpgsig not this\n"
        );
        assert_eq!(String::from_utf8(signature.payload).unwrap(), expected);
    }

    #[test]
    fn a_commit_with_two_trees_is_no_commit() {
        let tree = "2".repeat(40);
        let raw = format!("tree {tree}\ntree {tree}\nauthor A <a@x> 1 +0000\n\nx\n");
        assert!(parse_commit(Oid::parse(&"1".repeat(40)).unwrap(), raw.into_bytes()).is_err());
    }

    #[test]
    fn what_is_not_signed_is_not_verified() {
        let unsigned = commit(&format!("tree {}\nauthor A <a@x> 1 +0000\n\nx\n", "2".repeat(40)));
        assert!(unsigned.signature().is_none());
        let error = TrustedKeys::default().verify(None, "commit", SystemTime::now()).unwrap_err();
        assert_eq!(error.to_string(), "unsupported signature type: empty");
    }
}
