//! Releases: the records the real `helm` keeps in Secrets, and what a history of them says.
//!
//! A record is read and written without loss: what this crate does not look at (the chart as it was stored) is carried along.

mod chart_record;
mod codec;
mod history;
mod storage;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

pub use codec::{DecodeError, decode, encode};
pub use history::History;
pub use storage::{
    Driver, StorageError, Written, from_storage, has_system_label, storage_key, storage_object,
};

pub(crate) use chart_record::metadata as metadata_record;

use crate::manifest::Hook;
use crate::{Chart, Rendered, Values};

/// One revision of a release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub info: Info,
    /// The chart as stored: metadata, templates, defaults, schema, files. Subcharts are not part of a record. By far the largest
    /// part of it, so that copies of a release share it.
    #[serde(default, with = "shared")]
    pub chart: Arc<Json>,
    /// What the user set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Json>>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    #[serde(default, deserialize_with = "list_or_null", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The revision.
    #[serde(default)]
    pub version: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// How it was applied; Helm 3 does not say, which means client-side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_method: Option<ApplyMethod>,
    /// Labels a user gave the release. They live on the storage object, not in the record.
    #[serde(skip)]
    pub labels: BTreeMap<String, String>,
    /// Fields of a record that is newer than this code.
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

/// JSON behind a reference is written and read as if it were not.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value as Json;

    pub fn serialize<S: Serializer>(value: &Arc<Json>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Json>, D::Error> {
        Json::deserialize(deserializer).map(Arc::new)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// RFC 3339, empty when unset; so are the other times.
    #[serde(default, deserialize_with = "text_or_null", skip_serializing_if = "String::is_empty")]
    pub first_deployed: String,
    #[serde(default, deserialize_with = "text_or_null", skip_serializing_if = "String::is_empty")]
    pub last_deployed: String,
    #[serde(default, deserialize_with = "text_or_null", skip_serializing_if = "String::is_empty")]
    pub deleted: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default)]
    pub status: Status,
    /// The revision that was rolled back to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rollback_revision: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    #[serde(flatten)]
    pub other: Map<String, Json>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(revision: &i64) -> bool {
    *revision == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    #[default]
    Unknown,
    Deployed,
    Uninstalled,
    Superseded,
    Failed,
    Uninstalling,
    PendingInstall,
    PendingUpgrade,
    PendingRollback,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Unknown => "unknown",
            Status::Deployed => "deployed",
            Status::Uninstalled => "uninstalled",
            Status::Superseded => "superseded",
            Status::Failed => "failed",
            Status::Uninstalling => "uninstalling",
            Status::PendingInstall => "pending-install",
            Status::PendingUpgrade => "pending-upgrade",
            Status::PendingRollback => "pending-rollback",
        }
    }

    /// Whether another operation is, or was, at work.
    pub fn is_pending(self) -> bool {
        matches!(self, Status::PendingInstall | Status::PendingUpgrade | Status::PendingRollback)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyMethod {
    #[serde(rename = "csa")]
    ClientSide,
    #[serde(rename = "ssa")]
    ServerSide,
    /// Written by nobody, read as client-side.
    #[serde(rename = "")]
    Unset,
}

impl Release {
    /// A first revision, not yet stored. `now` is written as given.
    pub fn new(
        name: &str,
        namespace: &str,
        chart: &Chart,
        rendered: &Rendered,
        values: &Values,
        method: ApplyMethod,
        now: jiff::Timestamp,
    ) -> Release {
        let now = now.to_string();
        Release {
            name: name.to_owned(),
            info: Info {
                first_deployed: now.clone(),
                last_deployed: now,
                notes: rendered.notes.clone(),
                ..Info::default()
            },
            chart: Arc::new(chart_record::of(chart, rendered)),
            config: (!values.is_empty()).then(|| values.as_map().clone()),
            manifest: rendered.manifest(false),
            hooks: rendered.hooks.clone(),
            version: 1,
            namespace: namespace.to_owned(),
            apply_method: Some(method),
            labels: BTreeMap::new(),
            other: Map::new(),
        }
    }

    pub fn set_status(&mut self, status: Status, description: impl Into<String>) {
        self.info.status = status;
        self.info.description = description.into();
    }

    /// What the user set, as templates would see it.
    pub fn values(&self) -> Values {
        self.config.clone().and_then(|config| Values::from_json(Json::Object(config))).unwrap_or_default()
    }

    pub fn chart_name(&self) -> &str {
        self.chart.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default()
    }

    pub fn chart_version(&self) -> &str {
        self.chart.pointer("/metadata/version").and_then(Json::as_str).unwrap_or_default()
    }

    pub fn app_version(&self) -> &str {
        self.chart.pointer("/metadata/appVersion").and_then(Json::as_str).unwrap_or_default()
    }

    pub fn is_server_side(&self) -> bool {
        self.apply_method == Some(ApplyMethod::ServerSide)
    }
}

/// A text that may also be null.
pub(crate) fn text_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

fn list_or_null<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Hook>, D::Error> {
    Ok(Option::<Vec<Hook>>::deserialize(deserializer)?.unwrap_or_default())
}
