//! The Update Framework, as far as a client goes that fetches one file: who may sign what follows from a root that was there
//! before, step by step, and nothing old or foreign is taken.
//!
//! There are no delegations: the file stands in the top-level targets. What was seen is kept in memory.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::PublicKey;
use super::log::from_hex;
use crate::transport::{Transport, causes, shown};

const LARGEST_ROOT: usize = 512 << 10;
const LARGEST_TIMESTAMP: usize = 64 << 10;
const LARGEST_LIST: usize = 8 << 20;
/// How many roots may have followed the one that we know.
const MOST_ROOTS: u64 = 256;

/// What is known of a repository.
pub(super) struct Repository {
    mirror: String,
    root: Root,
    /// Versions that were seen; older ones are no longer taken.
    timestamp: u64,
    snapshot: u64,
    targets: u64,
}

#[derive(Clone, Deserialize)]
struct Root {
    #[serde(rename = "_type")]
    kind: String,
    version: u64,
    expires: String,
    keys: BTreeMap<String, Key>,
    roles: BTreeMap<String, Role>,
}

#[derive(Clone, Deserialize)]
struct Key {
    keytype: String,
    keyval: KeyValue,
}

#[derive(Clone, Deserialize)]
struct KeyValue {
    public: String,
}

#[derive(Clone, Deserialize)]
struct Role {
    keyids: BTreeSet<String>,
    threshold: usize,
}

#[derive(Deserialize)]
struct Envelope {
    signed: Value,
    signatures: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    keyid: String,
    sig: String,
}

/// Timestamp and snapshot: which version of the next file is the latest.
#[derive(Deserialize)]
struct Listing {
    #[serde(rename = "_type")]
    kind: String,
    version: u64,
    expires: String,
    meta: BTreeMap<String, Meta>,
}

#[derive(Deserialize)]
struct Meta {
    version: u64,
    length: Option<usize>,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Targets {
    #[serde(rename = "_type")]
    kind: String,
    version: u64,
    expires: String,
    targets: BTreeMap<String, Target>,
}

#[derive(Deserialize)]
struct Target {
    length: usize,
    hashes: BTreeMap<String, String>,
}

impl Repository {
    /// `root` is trusted because we have it; that its keys signed it is for its own sake.
    pub(super) fn new(mirror: &str, root: &[u8]) -> Result<Self, String> {
        let envelope = envelope(root, "root.json")?;
        let root: Root = signed(&envelope, "root.json")?;
        root.verify("root", &envelope)?;
        let mirror = mirror.trim_end_matches('/').to_owned();
        Ok(Self { mirror, root, timestamp: 0, snapshot: 0, targets: 0 })
    }

    /// The latest version of a file.
    pub(super) async fn fetch(&mut self, name: &str, now: Timestamp) -> Result<Vec<u8>, String> {
        let client = Transport::default().client().map_err(|error| error.to_string())?;
        let mirror = Mirror { client, address: self.mirror.clone() };
        self.follow_roots(&mirror, now).await?;
        let snapshot = self.timestamp(&mirror, now).await?;
        let targets = self.snapshot(&mirror, &snapshot, now).await?;
        let target = self.targets(&mirror, &targets, name, now).await?;
        let sum = target.hashes.get("sha256").ok_or_else(|| format!("{name}: no sha256 in the targets"))?;
        let (folder, base) = name.rsplit_once('/').map_or(("", name), |(folder, base)| (folder, base));
        let path = format!("targets/{folder}{}{sum}.{base}", if folder.is_empty() { "" } else { "/" });
        if target.length > LARGEST_LIST || !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("{name}: no length or sum that a file may have"));
        }
        let bytes = mirror.get(&path, target.length).await?.ok_or_else(|| format!("{path}: not found"))?;
        check_bytes(&path, &bytes, Some(target.length), &target.hashes)?;
        Ok(bytes)
    }

    /// Each root is signed by those whom the one before names, and by those whom it names itself.
    async fn follow_roots(&mut self, mirror: &Mirror, now: Timestamp) -> Result<(), String> {
        for _ in 0..MOST_ROOTS {
            let name = format!("{}.root.json", self.root.version + 1);
            let Some(bytes) = mirror.get(&name, LARGEST_ROOT).await? else { break };
            let envelope = envelope(&bytes, &name)?;
            self.root.verify("root", &envelope).map_err(|problem| format!("{name}: {problem}"))?;
            let next: Root = signed(&envelope, &name)?;
            next.verify("root", &envelope).map_err(|problem| format!("{name}: {problem}"))?;
            if next.kind != "root" || next.version != self.root.version + 1 {
                return Err(format!("{name}: not the root that follows {}", self.root.version));
            }
            // Keys that were taken away may have signed versions that never were.
            let same = |role: &str| self.root.keys_of(role) == next.keys_of(role);
            if !same("timestamp") || !same("snapshot") {
                (self.timestamp, self.snapshot, self.targets) = (0, 0, 0);
            }
            self.root = next;
        }
        not_expired("root.json", &self.root.expires, now)
    }

    async fn timestamp(&mut self, mirror: &Mirror, now: Timestamp) -> Result<Meta, String> {
        let name = "timestamp.json";
        let bytes = mirror.get(name, LARGEST_TIMESTAMP).await?.ok_or("timestamp.json: not found")?;
        let mut listing: Listing = self.root.read("timestamp", &bytes, name)?;
        check(name, (&listing.kind, "timestamp"), &listing.expires, now)?;
        not_older(name, listing.version, self.timestamp)?;
        let meta = listing.meta.remove("snapshot.json").ok_or("timestamp.json: no snapshot.json in it")?;
        not_older("snapshot.json", meta.version, self.snapshot)?;
        self.timestamp = listing.version;
        Ok(meta)
    }

    async fn snapshot(&mut self, mirror: &Mirror, wanted: &Meta, now: Timestamp) -> Result<Meta, String> {
        let name = format!("{}.snapshot.json", wanted.version);
        let bytes = mirror.file(&name, wanted).await?;
        let mut listing: Listing = self.root.read("snapshot", &bytes, &name)?;
        check(&name, (&listing.kind, "snapshot"), &listing.expires, now)?;
        is_version(&name, listing.version, wanted.version)?;
        let meta =
            listing.meta.remove("targets.json").ok_or_else(|| format!("{name}: no targets.json in it"))?;
        not_older("targets.json", meta.version, self.targets)?;
        (self.snapshot, self.targets) = (listing.version, meta.version);
        Ok(meta)
    }

    async fn targets(
        &self,
        mirror: &Mirror,
        wanted: &Meta,
        file: &str,
        now: Timestamp,
    ) -> Result<Target, String> {
        let name = format!("{}.targets.json", wanted.version);
        let bytes = mirror.file(&name, wanted).await?;
        let mut targets: Targets = self.root.read("targets", &bytes, &name)?;
        check(&name, (&targets.kind, "targets"), &targets.expires, now)?;
        is_version(&name, targets.version, wanted.version)?;
        targets.targets.remove(file).ok_or_else(|| format!("{name}: no {file} in it"))
    }
}

impl Root {
    fn keys_of(&self, role: &str) -> Option<&BTreeSet<String>> {
        self.roles.get(role).map(|role| &role.keyids)
    }

    fn read<T: DeserializeOwned>(&self, role: &str, bytes: &[u8], name: &str) -> Result<T, String> {
        let envelope = envelope(bytes, name)?;
        self.verify(role, &envelope).map_err(|problem| format!("{name}: {problem}"))?;
        signed(&envelope, name)
    }

    /// As many keys of the role as it takes have signed.
    fn verify(&self, role: &str, envelope: &Envelope) -> Result<(), String> {
        let role = self.roles.get(role).ok_or_else(|| format!("the root knows no role {role}"))?;
        let mut message = Vec::new();
        canonical(&envelope.signed, &mut message).ok_or("numbers that are none")?;
        let valid: BTreeSet<&str> = envelope
            .signatures
            .iter()
            .filter(|signature| role.keyids.contains(&signature.keyid))
            .filter(|signature| {
                let key = self.keys.get(&signature.keyid);
                let bytes = from_hex(&signature.sig).filter(|bytes| !bytes.is_empty());
                key.zip(bytes).is_some_and(|(key, bytes)| key.verifies(&message, &bytes))
            })
            .map(|signature| signature.keyid.as_str())
            .collect();
        if role.threshold == 0 || valid.len() < role.threshold {
            return Err(format!("{} of {} signatures that it takes", valid.len(), role.threshold));
        }
        Ok(())
    }
}

impl Key {
    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let public = &self.keyval.public;
        let pem = || PublicKey::from_pem(public.as_bytes()).ok();
        match self.keytype.as_str() {
            "ecdsa" | "ecdsa-sha2-nistp256" => pem().is_some_and(|key| key.verifies(message, signature)),
            "ed25519" => from_hex(public).is_some_and(|key| {
                UnparsedPublicKey::new(&aws_lc_rs::signature::ED25519, key).verify(message, signature).is_ok()
            }),
            "rsa" => pem().is_some_and(|key| {
                UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, key.bits())
                    .verify(message, signature)
                    .is_ok()
            }),
            _ => false,
        }
    }
}

/// Where the files are.
struct Mirror {
    client: reqwest::Client,
    address: String,
}

impl Mirror {
    /// A file of at most so many bytes; nothing where there is none.
    async fn get(&self, path: &str, largest: usize) -> Result<Option<Vec<u8>>, String> {
        let url = url::Url::parse(&format!("{}/{path}", self.address))
            .map_err(|error| format!("the mirror's address: {error}"))?;
        let request = self.client.get(url.clone()).timeout(std::time::Duration::from_secs(30));
        let response = request.send().await.map_err(|error| format!("{}: {}", shown(&url), causes(error)))?;
        match response.status().as_u16() {
            200 => {}
            403 | 404 => return Ok(None),
            status => return Err(format!("{}: {status}", shown(&url))),
        }
        let bytes = crate::oci::limited_body(response, largest, "a file of the trust root").await;
        bytes.map(Some).map_err(|error| format!("{}: {error}", shown(&url)))
    }

    async fn file(&self, name: &str, wanted: &Meta) -> Result<Vec<u8>, String> {
        let largest = wanted.length.unwrap_or(LARGEST_LIST).min(LARGEST_LIST);
        let bytes = self.get(name, largest).await?.ok_or_else(|| format!("{name}: not found"))?;
        check_bytes(name, &bytes, wanted.length, &wanted.hashes)?;
        Ok(bytes)
    }
}

fn envelope(bytes: &[u8], name: &str) -> Result<Envelope, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("{name}: {error}"))
}

fn signed<T: DeserializeOwned>(envelope: &Envelope, name: &str) -> Result<T, String> {
    T::deserialize(&envelope.signed).map_err(|error| format!("{name}: {error}"))
}

fn check(name: &str, (kind, wanted): (&str, &str), expires: &str, now: Timestamp) -> Result<(), String> {
    if kind != wanted {
        return Err(format!("{name}: it is of the kind {kind}"));
    }
    not_expired(name, expires, now)
}

fn not_expired(name: &str, expires: &str, now: Timestamp) -> Result<(), String> {
    let until: Timestamp = expires.parse().map_err(|_| format!("{name}: expires at no known time"))?;
    if now < until { Ok(()) } else { Err(format!("{name}: expired at {expires}")) }
}

fn not_older(name: &str, version: u64, known: u64) -> Result<(), String> {
    if version < known {
        Err(format!("{name}: version {version} is older than {known}, which was seen"))
    } else {
        Ok(())
    }
}

fn is_version(name: &str, version: u64, wanted: u64) -> Result<(), String> {
    if version == wanted { Ok(()) } else { Err(format!("{name}: it says that it is version {version}")) }
}

fn check_bytes(
    name: &str,
    bytes: &[u8],
    length: Option<usize>,
    hashes: &BTreeMap<String, String>,
) -> Result<(), String> {
    let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if length.is_some_and(|length| length != bytes.len())
        || hashes.get("sha256").is_some_and(|wanted| *wanted != sum)
    {
        return Err(format!("{name}: not the file that was signed for"));
    }
    Ok(())
}

/// JSON as it is signed: keys in order, no spaces, and in texts only quotes and backslashes escaped.
fn canonical(value: &Value, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
        Value::Number(number) => {
            if !number.is_i64() && !number.is_u64() {
                return None;
            }
            out.extend_from_slice(number.to_string().as_bytes());
        }
        Value::String(text) => canonical_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                canonical(item, out)?;
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            let fields: BTreeMap<&String, &Value> = fields.iter().collect();
            out.push(b'{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                canonical_text(name, out);
                out.push(b':');
                canonical(value, out)?;
            }
            out.push(b'}');
        }
    }
    Some(())
}

fn canonical_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_that_is_built_in_is_signed_by_its_keys() {
        let root = super::super::public::ROOT;
        let repository = Repository::new("https://x", root).unwrap();
        assert_eq!(repository.root.kind, "root");
        let text = String::from_utf8_lossy(root);
        let other = text.replacen("\"threshold\": 3", "\"threshold\": 2", 1);
        assert_ne!(text, other);
        assert!(Repository::new("https://x", other.as_bytes()).err().unwrap().contains("0 of 2 signatures"));
    }

    #[test]
    fn only_quotes_and_backslashes_are_escaped() {
        let value = serde_json::json!({ "b": [1, true, null], "a": "line\n\"quoted\" \\ é" });
        let mut out = Vec::new();
        canonical(&value, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"a\":\"line\n\\\"quoted\\\" \\\\ é\",\"b\":[1,true,null]}"
        );
        assert!(canonical(&serde_json::json!(1.5), &mut Vec::new()).is_none());
    }
}
