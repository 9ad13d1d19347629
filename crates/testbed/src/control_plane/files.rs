//! What the servers read from disk: certificates, keys, the administrator's kubeconfig, the audit policy.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::Ports;
use crate::tls::{self, Authority, Pair};

pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) authority: PathBuf,
    pub(super) server_certificate: PathBuf,
    pub(super) server_key: PathBuf,
    pub(super) account_key: PathBuf,
    pub(super) account_public_key: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) audit_policy: PathBuf,
    pub(super) audit_log: PathBuf,
    /// Read only when asked for: constant tokens are for recordings.
    pub(super) tokens: PathBuf,
}

const TOKENS: &str = "admintoken,admin,admin-uid,system:masters\nusertoken,alice,alice-uid,dev\n";

impl Files {
    pub(super) fn write(folder: &Path, ports: Ports) -> Result<Self> {
        let authority = Authority::new("testbed")?;
        let server = authority.server(&["127.0.0.1", "localhost", "kubernetes.default.svc"])?;
        let admin = authority.client("admin", &["system:masters"])?;
        let (account_key, account_public_key) = tls::signing_key()?;
        let kubeconfig = kubeconfig(ports, authority.certificate(), &admin);
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            folder: folder.to_owned(),
            authority: write("ca.crt", authority.certificate())?,
            server_certificate: write("server.crt", &server.certificate)?,
            server_key: write("server.key", &server.key)?,
            account_key: write("service-account.key", &account_key)?,
            account_public_key: write("service-account.pub", &account_public_key)?,
            kubeconfig: write("kubeconfig", &kubeconfig)?,
            audit_policy: write("audit-policy.json", &audit_policy())?,
            audit_log: folder.join("audit.log"),
            tokens: write("tokens.csv", TOKENS)?,
        })
    }

    pub(super) fn log(&self, server: &str) -> PathBuf {
        self.folder.join(format!("{server}.log"))
    }
}

/// Written as JSON, which every reader of YAML reads.
fn kubeconfig(ports: Ports, authority: &str, admin: &Pair) -> String {
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {
            "server": format!("https://127.0.0.1:{}", ports.api_server),
            "certificate-authority-data": encode(authority),
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": encode(&admin.certificate),
            "client-key-data": encode(&admin.key),
        }}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "admin"}}],
        "current-context": "testbed",
    })
    .to_string()
}

/// Every request once, when it is answered; a watch also when it begins. No bodies: they may hold secrets.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    })
    .to_string()
}
