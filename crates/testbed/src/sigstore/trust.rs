//! Serves a trust root as The Update Framework wants it: signed lists that name each other, and a root of keys that is
//! replaced by the next one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::response::IntoResponse;
use http::{StatusCode, Uri};
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::hex;
use crate::http_server::{HttpServer, Security};

const NAME: &str = "trusted_root.json";
const LATER: &str = "2099-01-01T00:00:00Z";

type Files = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// A running mirror.
pub struct TrustServer {
    http: HttpServer,
    files: Files,
    keys: Vec<KeyPair>,
    root: Bytes,
    root_version: u64,
    version: u64,
}

/// What is otherwise than it should be in the files that are served next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mistake {
    None,
    /// Signed by nobody who may.
    Stranger,
    Expired,
    /// A version that was there before.
    Old,
    /// A list that is not the one whose number it has.
    OtherVersion,
    /// A trust root that is not the one that was signed for.
    OtherFile,
}

impl TrustServer {
    pub fn start(trusted_root: &Value) -> Result<Self> {
        let files = Files::default();
        let served = files.clone();
        let answer = move |uri: Uri| {
            let found = served.lock().unwrap_or_else(PoisonError::into_inner).get(uri.path()).cloned();
            async move { found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), Bytes::into_response) }
        };
        let http = HttpServer::start(Router::new().fallback(answer), Security::Plain)?;
        let keys = (0..3).map(|_| KeyPair::generate()).collect::<Result<Vec<_>, _>>()?;
        let mut server = Self { http, files, keys, root: Bytes::new(), root_version: 1, version: 1 };
        server.root = server.root_file(&server.keys, &[], LATER)?;
        server.publish(trusted_root, Mistake::None)?;
        Ok(server)
    }

    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    /// The root that trust begins with.
    pub fn first_root(&self) -> Vec<u8> {
        self.root.to_vec()
    }

    /// Puts another trust root in place.
    pub fn publish(&mut self, trusted_root: &Value, mistake: Mistake) -> Result<()> {
        self.version =
            if mistake == Mistake::Old { self.version.saturating_sub(1) } else { self.version + 1 };
        let (version, target) = (self.version, trusted_root.to_string());
        let expires = if mistake == Mistake::Expired { "2020-01-01T00:00:00Z" } else { LATER };
        let sum = hex(&Sha256::digest(&target));
        let stranger = [KeyPair::generate()?];
        let keys = if mistake == Mistake::Stranger { &stranger[..] } else { &self.keys[..] };
        let listed = if mistake == Mistake::OtherVersion { version + 1 } else { version };
        let targets = json!({
            "_type": "targets", "spec_version": "1.0", "version": listed, "expires": LATER,
            "targets": { NAME: { "length": target.len(), "hashes": { "sha256": sum } } },
        });
        let snapshot = json!({
            "_type": "snapshot", "spec_version": "1.0", "version": version, "expires": LATER,
            "meta": { "targets.json": { "version": version } },
        });
        let timestamp = json!({
            "_type": "timestamp", "spec_version": "1.0", "version": version, "expires": expires,
            "meta": { "snapshot.json": { "version": version } },
        });
        let content =
            if mistake == Mistake::OtherFile { target.replacen("2025-", "2024-", 1) } else { target };
        self.put(&format!("/{version}.targets.json"), self.signed(&targets, &self.keys)?);
        self.put(&format!("/{version}.snapshot.json"), self.signed(&snapshot, &self.keys)?);
        self.put("/timestamp.json", self.signed(&timestamp, keys)?);
        self.put(&format!("/targets/{sum}.{NAME}"), content.into());
        Ok(())
    }

    /// Replaces all keys. Only those who were trusted before may say who follows.
    pub fn rotate(&mut self, by_stranger: bool) -> Result<()> {
        let next = (0..3).map(|_| KeyPair::generate()).collect::<Result<Vec<_>, _>>()?;
        self.root_version += 1;
        let stranger = [KeyPair::generate()?, KeyPair::generate()?];
        let file = match by_stranger {
            true => self.root_file(&next, &stranger, LATER)?,
            false => self.root_file(&next, &self.keys, LATER)?,
        };
        self.put(&format!("/{}.root.json", self.root_version), file);
        self.keys = next;
        Ok(())
    }

    fn put(&self, path: &str, bytes: Bytes) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), bytes);
    }

    /// Two of three keys have to sign the root, one of them everything else.
    fn root_file(&self, keys: &[KeyPair], before: &[KeyPair], expires: &str) -> Result<Bytes> {
        let known: serde_json::Map<String, Value> = keys
            .iter()
            .map(|key| {
                let value = json!({
                    "keytype": "ecdsa", "scheme": "ecdsa-sha2-nistp256", "keyval": { "public": key.public_key_pem() },
                });
                (key_id(key), value)
            })
            .collect();
        let ids: Vec<String> = keys.iter().map(key_id).collect();
        let role = |threshold: usize| json!({ "keyids": ids, "threshold": threshold });
        let root = json!({
            "_type": "root", "spec_version": "1.0", "version": self.root_version, "expires": expires,
            "consistent_snapshot": true, "keys": known,
            "roles": { "root": role(2), "timestamp": role(1), "snapshot": role(1), "targets": role(1) },
        });
        let signers: Vec<&KeyPair> = keys.iter().take(2).chain(before).collect();
        sign(&root, &signers)
    }

    fn signed(&self, file: &Value, keys: &[KeyPair]) -> Result<Bytes> {
        sign(file, &keys.iter().take(1).collect::<Vec<_>>())
    }
}

fn key_id(key: &KeyPair) -> String {
    hex(&Sha256::digest(key.public_key_pem()))
}

fn sign(file: &Value, keys: &[&KeyPair]) -> Result<Bytes> {
    // Sorted and without spaces already; line breaks are all that is escaped in these files, and must not be.
    let message = file.to_string().replace("\\n", "\n").replace("\\r", "\r");
    let signatures = keys
        .iter()
        .map(|key| Ok(json!({ "keyid": key_id(key), "sig": hex(&key.sign(message.as_bytes())?) })))
        .collect::<Result<Vec<_>>>()?;
    Ok(json!({ "signed": file, "signatures": signatures }).to_string().into())
}

impl std::fmt::Debug for TrustServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrustServer").field("version", &self.version).finish_non_exhaustive()
    }
}
