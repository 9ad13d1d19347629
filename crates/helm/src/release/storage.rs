//! The Kubernetes object a record is kept in.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use super::{DecodeError, Release, decode, encode};
use crate::Dialect;

/// Which kind of object holds records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    #[default]
    Secret,
    ConfigMap,
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("{name}: holds no release")]
    NoRecord { name: String },
    #[error("{name}: {cause}")]
    Undecodable { name: String, cause: DecodeError },
}

/// Labels Helm sets itself; users may not.
const SYSTEM_LABELS: [&str; 6] = ["name", "owner", "status", "version", "createdAt", "modifiedAt"];

/// `sh.helm.release.v1.NAME.vREVISION`
pub fn storage_key(name: &str, revision: i64) -> String {
    format!("sh.helm.release.v1.{name}.v{revision}")
}

/// When a record is written, and whether for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Created(i64),
    Modified(i64),
}

/// The object to create or update, `when` in seconds since 1970.
pub fn storage_object(
    release: &Release,
    driver: Driver,
    dialect: Dialect,
    when: Written,
) -> Result<Json, std::io::Error> {
    let record = encode(release, dialect)?;
    let mut labels: BTreeMap<String, String> = release.labels.clone();
    match when {
        Written::Created(at) => labels.insert("createdAt".to_owned(), at.to_string()),
        Written::Modified(at) => labels.insert("modifiedAt".to_owned(), at.to_string()),
    };
    labels.insert("name".to_owned(), release.name.clone());
    labels.insert("owner".to_owned(), "helm".to_owned());
    labels.insert("status".to_owned(), release.info.status.name().to_owned());
    labels.insert("version".to_owned(), release.version.to_string());
    let metadata = json!({"name": storage_key(&release.name, release.version), "namespace": release.namespace, "labels": labels});
    Ok(match driver {
        Driver::Secret => json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "helm.sh/release.v1",
            "data": {"release": STANDARD.encode(record)},
        }),
        Driver::ConfigMap => {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"release": record}})
        }
    })
}

/// The record in a Secret or ConfigMap, with the labels a user gave it and when it was created.
pub fn from_storage(object: &Json) -> Result<Release, StorageError> {
    let name = || object.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default().to_owned();
    let data = object
        .pointer("/data/release")
        .and_then(Json::as_str)
        .ok_or_else(|| StorageError::NoRecord { name: name() })?;
    let undecodable = |cause| StorageError::Undecodable { name: name(), cause };
    let is_config_map = object.get("kind").and_then(Json::as_str) == Some("ConfigMap");
    let record = if is_config_map {
        data.as_bytes().to_vec()
    } else {
        STANDARD.decode(data).map_err(|_| undecodable(DecodeError::Base64))?
    };
    let mut release = decode(&record).map_err(undecodable)?;
    if let Some(Json::Object(labels)) = object.pointer("/metadata/labels") {
        release.labels = labels
            .iter()
            // Helm keeps createdAt when it rewrites a record it found by query.
            .filter(|(key, _)| *key == "createdAt" || !SYSTEM_LABELS.contains(&key.as_str()))
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
    }
    Ok(release)
}

/// Whether a user's labels use a name Helm keeps for itself.
pub fn has_system_label(labels: &BTreeMap<String, String>) -> bool {
    labels.keys().any(|key| SYSTEM_LABELS.contains(&key.as_str()))
}
