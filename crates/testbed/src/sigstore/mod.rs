//! A Sigstore instance in memory: an authority for certificates of ten minutes, logs of both generations, an authority for
//! timestamps, and signatures of images that all of them vouch for. `trust` serves its trust root.

mod stamp;
pub mod trust;

use std::collections::BTreeMap;

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, PublicKeyData, SanType, SigningKey,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use stamp::Stamper;

/// 2026-01-01T00:00:00Z: when the certificates here begin to be valid, for ten minutes.
pub const START: i64 = 1_767_225_600;
const FIRST_LOG: &str = "rekor.example.com - 1193050959916656506";
const SECOND_LOG: &str = "log2026.example.com";

/// The issuer and the subject that certificates here name.
pub const ISSUER: &str = "https://accounts.example.com";
pub const SUBJECT: &str = "dev@example.com";

/// Authorities and logs.
pub struct Sigstore {
    authority: Issuer<'static, KeyPair>,
    authority_der: Vec<u8>,
    authority_key: Vec<u8>,
    certificate_log: KeyPair,
    signature_log: KeyPair,
    second_log: KeyPair,
    stamper: Stamper,
}

/// What is otherwise than it should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flaw {
    None,
    /// Signed when the certificate was no longer valid.
    Late,
    NoCertificateTimestamp,
    ForeignLog,
    /// The log's entry is about something else.
    OtherEntry,
    OtherAuthority,
    /// The log has another tree than the one the proof is for.
    OtherTree,
    /// No authority says when.
    NoStamp,
    /// One says it of another signature.
    StampOfAnother,
    ForeignStamper,
}

/// A signature as cosign kept it before there were bundles: what was signed, and what stands beside it.
pub struct TagSignature {
    pub payload: String,
    pub annotations: BTreeMap<&'static str, String>,
}

impl Sigstore {
    pub fn new() -> Result<Self> {
        let (params, key) = (authority_params("authority")?, KeyPair::generate()?);
        let authority_der = params.self_signed(&key)?.der().to_vec();
        Ok(Self {
            authority_key: key.subject_public_key_info(),
            authority: Issuer::new(params, key),
            authority_der,
            certificate_log: KeyPair::generate()?,
            signature_log: KeyPair::generate()?,
            second_log: KeyPair::generate_for(&rcgen::PKCS_ED25519)?,
            stamper: Stamper::new()?,
        })
    }

    /// `trusted_root.json`.
    pub fn trusted_root(&self) -> Value {
        let period = json!({ "start": "2025-01-01T00:00:00Z" });
        let log = |key: &KeyPair, id: &[u8], address: &str| {
            json!({
                "baseUrl": address, "hashAlgorithm": "SHA2_256",
                "publicKey": { "rawBytes": encode(&key.subject_public_key_info()), "validFor": period },
                "logId": { "keyId": encode(id) },
            })
        };
        let authority = |chain: &[&[u8]]| {
            let chain: Vec<Value> = chain.iter().map(|der| json!({ "rawBytes": encode(der) })).collect();
            json!({ "certChain": { "certificates": chain }, "validFor": period })
        };
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [
                log(&self.signature_log, &key_id(&self.signature_log), "https://rekor.example.com"),
                log(&self.second_log, &self.second_id(), &format!("https://{SECOND_LOG}")),
            ],
            "ctlogs": [log(&self.certificate_log, &key_id(&self.certificate_log), "https://ctfe.example.com")],
            "certificateAuthorities": [authority(&[&self.authority_der])],
            "timestampAuthorities": [authority(&self.stamper.chain())],
        })
    }

    /// How a log of the second generation is known: by its name and its key.
    fn second_id(&self) -> Vec<u8> {
        let key = self.second_log.subject_public_key_info();
        // The last 32 bytes are the key itself.
        let bits = &key[key.len() - 32..];
        Sha256::digest([SECOND_LOG.as_bytes(), b"\n\x01", bits].concat()).to_vec()
    }

    /// A certificate for `key`, with the timestamp of a log in it.
    fn certificate(&self, key: &KeyPair, flaw: Flaw) -> Result<Vec<u8>> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = vec![SanType::Rfc822Name(SUBJECT.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = params.not_before + std::time::Duration::from_secs(600);
        params.serial_number = Some(vec![1, 2, 3].into());
        let issuer = [&[0x0c, ISSUER.len() as u8][..], ISSUER.as_bytes()].concat();
        params.custom_extensions =
            vec![CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 57264, 1, 8], issuer)];
        let other = Issuer::new(authority_params("authority")?, KeyPair::generate()?);
        let authority = if flaw == Flaw::OtherAuthority { &other } else { &self.authority };
        let bare = params.signed_by(key, authority)?.der().to_vec();
        if flaw == Flaw::NoCertificateTimestamp {
            return Ok(bare);
        }
        let list = self.certificate_timestamps(stamp::signed_part(&bare))?;
        let list = stamp::der(0x04, &[&list]);
        params
            .custom_extensions
            .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2], list));
        Ok(params.signed_by(key, authority)?.der().to_vec())
    }

    /// RFC 6962: a list of one timestamp.
    fn certificate_timestamps(&self, tbs: &[u8]) -> Result<Vec<u8>> {
        let time = (START as u64 * 1000).to_be_bytes();
        let mut message = vec![0, 0];
        message.extend_from_slice(&time);
        message.extend_from_slice(&[0, 1]);
        message.extend_from_slice(&Sha256::digest(&self.authority_key));
        message.extend_from_slice(&(tbs.len() as u32).to_be_bytes()[1..]);
        message.extend_from_slice(tbs);
        message.extend_from_slice(&[0, 0]);
        let signature = self.certificate_log.sign(&message)?;
        let mut timestamp = vec![0];
        timestamp.extend_from_slice(&key_id(&self.certificate_log));
        timestamp.extend_from_slice(&time);
        timestamp.extend_from_slice(&[0, 0, 4, 3]);
        timestamp.extend_from_slice(&(signature.len() as u16).to_be_bytes());
        timestamp.extend_from_slice(&signature);
        let mut list = ((timestamp.len() + 2) as u16).to_be_bytes().to_vec();
        list.extend_from_slice(&(timestamp.len() as u16).to_be_bytes());
        list.extend_from_slice(&timestamp);
        Ok(list)
    }

    /// Body, time and the log's signature over them, as a log of the first generation has them.
    fn entry(&self, body: &Value, flaw: Flaw) -> Result<(String, i64, Vec<u8>)> {
        let body = encode(body.to_string().as_bytes());
        let at = if flaw == Flaw::Late { START + 601 } else { START + 5 };
        let id = hex(&key_id(&self.signature_log));
        let signed = json!({ "body": body, "integratedTime": at, "logID": id, "logIndex": 7 }).to_string();
        let foreign = KeyPair::generate()?;
        let log = if flaw == Flaw::ForeignLog { &foreign } else { &self.signature_log };
        let signature = log.sign(signed.as_bytes())?;
        Ok((body, at, signature))
    }

    /// Signs as cosign did before there were bundles.
    pub fn tag_signature(&self, digest: &str, flaw: Flaw) -> Result<TagSignature> {
        let key = KeyPair::generate()?;
        let leaf = self.certificate(&key, flaw)?;
        let payload = json!({
            "critical": {
                "identity": { "docker-reference": "" },
                "image": { "docker-manifest-digest": digest },
                "type": "cosign container image signature",
            },
            "optional": null,
        })
        .to_string();
        let signature = encode(&key.sign(payload.as_bytes())?);
        let hashed = if flaw == Flaw::OtherEntry { "another payload" } else { payload.as_str() };
        let body = json!({
            "apiVersion": "0.0.1", "kind": "hashedrekord",
            "spec": {
                "data": { "hash": { "algorithm": "sha256", "value": hex(&Sha256::digest(hashed)) } },
                "signature": { "content": signature, "publicKey": { "content": encode(pem(&leaf).as_bytes()) } },
            },
        });
        let (body, at, signed) = self.entry(&body, flaw)?;
        let bundle = json!({
            "SignedEntryTimestamp": encode(&signed),
            "Payload": {
                "body": body, "integratedTime": at, "logIndex": 7, "logID": hex(&key_id(&self.signature_log)),
            },
        });
        let annotations = BTreeMap::from([
            ("dev.cosignproject.cosign/signature", signature),
            ("dev.sigstore.cosign/certificate", pem(&leaf)),
            ("dev.sigstore.cosign/bundle", bundle.to_string()),
        ]);
        Ok(TagSignature { payload, annotations })
    }

    /// Signs as cosign does today, with a log of the first generation.
    pub fn bundle(&self, digest: &str, flaw: Flaw) -> Result<Value> {
        let key = KeyPair::generate()?;
        let leaf = self.certificate(&key, flaw)?;
        let statement = Statement::about(digest);
        let signature = key.sign(statement.message().as_bytes())?;
        let hashed = if flaw == Flaw::OtherEntry { "another payload" } else { statement.payload.as_str() };
        let body = json!({
            "apiVersion": "0.0.1", "kind": "dsse",
            "spec": {
                "payloadHash": { "algorithm": "sha256", "value": hex(&Sha256::digest(hashed)) },
                "signatures": [{ "signature": encode(&signature), "verifier": encode(pem(&leaf).as_bytes()) }],
            },
        });
        let (encoded, at, signed) = self.entry(&body, flaw)?;
        let proof = prove(&body, FIRST_LOG, &self.signature_log, &key_id(&self.signature_log)[..4], flaw)?;
        Ok(json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": { "rawBytes": encode(&leaf) },
                "tlogEntries": [{
                    "logIndex": "7", "logId": { "keyId": encode(&key_id(&self.signature_log)) },
                    "kindVersion": { "kind": "dsse", "version": "0.0.1" }, "integratedTime": at.to_string(),
                    "inclusionPromise": { "signedEntryTimestamp": encode(&signed) },
                    "inclusionProof": proof, "canonicalizedBody": encoded,
                }],
            },
            "dsseEnvelope": statement.envelope(&signature),
        }))
    }

    /// The same with a log of the second generation, which gives no time, and a timestamp instead.
    pub fn stamped_bundle(&self, digest: &str, flaw: Flaw) -> Result<Value> {
        let key = KeyPair::generate()?;
        let leaf = self.certificate(&key, flaw)?;
        let statement = Statement::about(digest);
        let signature = key.sign(statement.message().as_bytes())?;
        let hashed = if flaw == Flaw::OtherEntry { "another".to_owned() } else { statement.message() };
        let body = json!({
            "apiVersion": "0.0.2", "kind": "hashedrekord",
            "spec": { "hashedRekordV002": {
                "data": { "algorithm": "SHA2_256", "digest": encode(&Sha256::digest(hashed)) },
                "signature": { "content": encode(&signature), "verifier": {
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": { "rawBytes": encode(&leaf) },
                } },
            } },
        });
        let foreign = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let log = if flaw == Flaw::ForeignLog { &foreign } else { &self.second_log };
        let proof = prove(&body, SECOND_LOG, log, &self.second_id()[..4], flaw)?;
        let stamped = if flaw == Flaw::StampOfAnother { b"another" } else { signature.as_slice() };
        let stranger = Stamper::new()?;
        let stamper = if flaw == Flaw::ForeignStamper { &stranger } else { &self.stamper };
        let time = if flaw == Flaw::Late { "20260101001001Z" } else { "20260101000005Z" };
        let stamps = match flaw {
            Flaw::NoStamp => json!([]),
            _ => json!([{ "signedTimestamp": encode(&stamper.stamp(stamped, time)?) }]),
        };
        Ok(json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": { "rawBytes": encode(&leaf) },
                "tlogEntries": [{
                    "logIndex": INDEX.to_string(), "logId": { "keyId": encode(&self.second_id()) },
                    "kindVersion": { "kind": "hashedrekord", "version": "0.0.2" },
                    "inclusionProof": proof, "canonicalizedBody": encode(body.to_string().as_bytes()),
                }],
                "timestampVerificationData": { "rfc3161Timestamps": stamps },
            },
            "dsseEnvelope": statement.envelope(&signature),
        }))
    }
}

/// What is signed of an image.
struct Statement {
    payload: String,
}

impl Statement {
    const KIND: &'static str = "application/vnd.in-toto+json";

    fn about(digest: &str) -> Self {
        let hex = digest.trim_start_matches("sha256:");
        let payload = json!({
            "_type": "https://in-toto.io/Statement/v1", "subject": [{ "digest": { "sha256": hex } }],
            "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": {},
        });
        Self { payload: payload.to_string() }
    }

    fn message(&self) -> String {
        let (kind, payload) = (Self::KIND, &self.payload);
        format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len())
    }

    fn envelope(&self, signature: &[u8]) -> Value {
        json!({
            "payload": encode(self.payload.as_bytes()), "payloadType": Self::KIND,
            "signatures": [{ "sig": encode(signature) }],
        })
    }
}

const INDEX: usize = 3;

/// Puts an entry among others, and proves that it is there.
fn prove(body: &Value, origin: &str, log: &KeyPair, hint: &[u8], flaw: Flaw) -> Result<Value> {
    let leaf = |text: &str| Sha256::new().chain_update([0]).chain_update(text).finalize().to_vec();
    let mut leaves: Vec<Vec<u8>> = ["a", "b", "c", "d", "e", "f"].map(leaf).to_vec();
    if flaw != Flaw::OtherTree {
        leaves[INDEX] = leaf(&body.to_string());
    }
    let (root, way) = tree(&leaves, INDEX);
    let note = format!("{origin}\n{}\n{}\n", leaves.len(), encode(&root));
    let signature = [hint, &log.sign(note.as_bytes())?].concat();
    let name = origin.split(" - ").next().unwrap_or_default();
    let hashes: Vec<String> = way.iter().map(|hash| encode(hash)).collect();
    Ok(json!({
        "logIndex": INDEX.to_string(), "treeSize": leaves.len().to_string(), "rootHash": encode(&root), "hashes": hashes,
        "checkpoint": { "envelope": format!("{note}\n\u{2014} {name} {}\n", encode(&signature)) },
    }))
}

/// The tree of RFC 6962: its root, and the hashes beside a leaf's way up.
fn tree(leaves: &[Vec<u8>], index: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let [leaf] = leaves else {
        let node = |left: &[u8], right: &[u8]| Sha256::digest([&[1][..], left, right].concat()).to_vec();
        let half = leaves.len().next_power_of_two() / 2;
        let (left, right) = leaves.split_at(half);
        let (mut way, root, other) = match index.checked_sub(half) {
            None => {
                let ((below, way), (other, _)) = (tree(left, index), tree(right, 0));
                (way, node(&below, &other), other)
            }
            Some(index) => {
                let ((other, _), (below, way)) = (tree(left, 0), tree(right, index));
                (way, node(&other, &below), other)
            }
        };
        way.push(other);
        return (root, way);
    };
    (leaf.clone(), Vec::new())
}

fn authority_params(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2025, 12, 31);
    params.not_after = rcgen::date_time_ymd(2026, 1, 2);
    Ok(params)
}

fn key_id(key: &KeyPair) -> Vec<u8> {
    Sha256::digest(key.subject_public_key_info()).to_vec()
}

fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", encode(der))
}
