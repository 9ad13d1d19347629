//! The records of a release: Secrets that real helm reads and writes, too.
//!
//! Every write names the version it replaces. A process that lost its turn, or a person with `helm`, therefore never
//! overwrites what somebody else has written since: the later writer is refused and looks again.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_apply::apply::Cause;
use helm::Dialect;
use helm::release::{Driver, History, Release, Written, from_storage, storage_key, storage_object};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::MANAGER;

/// What the API server accepts as the data of one Secret, less what a record grows by until it is deployed.
pub const LARGEST: usize = (1 << 20) - (4 << 10);
const TRIES: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Refused(#[from] Cause),
    #[error("{0}")]
    Unreadable(String),
    #[error("the record of revision {0} was changed by somebody else meanwhile")]
    Taken(i64),
    #[error("{0}")]
    TooLarge(String),
}

impl Error {
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Refused(cause) => super::fault::is_transient(cause),
            Error::Taken(_) => true,
            Error::Unreadable(_) | Error::TooLarge(_) => false,
        }
    }
}

/// Where the records of one release are.
#[derive(Clone)]
pub struct Storage {
    secrets: Api<Secret>,
    namespace: String,
    dialect: Dialect,
}

/// What was found: all revisions, and the version of each Secret.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub history: History,
    versions: BTreeMap<i64, String>,
}

impl Storage {
    pub fn new(client: Client, namespace: &str, dialect: Dialect) -> Self {
        Self { secrets: Api::namespaced(client, namespace), namespace: namespace.to_owned(), dialect }
    }

    pub async fn read(&self, name: &str) -> Result<Records, Error> {
        let parameters = ListParams::default().labels(&format!("name={name},owner=helm"));
        let listed = self.secrets.list(&parameters).await.map_err(Cause::from)?;
        let mut versions = BTreeMap::new();
        let mut revisions = Vec::new();
        for secret in listed {
            let version = secret.resource_version().unwrap_or_default();
            let object =
                serde_json::to_value(&secret).map_err(|error| Error::Unreadable(error.to_string()))?;
            // As Helm: a record that cannot be read is nobody's release.
            let release = match from_storage(&object) {
                Ok(release) => release,
                Err(error) => {
                    tracing::warn!(%error, "a release record is skipped");
                    continue;
                }
            };
            versions.insert(release.version, version);
            revisions.push(release);
        }
        Ok(Records { history: History::new(revisions), versions })
    }

    /// The Secret of a record that is to be created, or why it can never be stored.
    pub fn prepare(&self, release: &Release) -> Result<Value, Error> {
        let object = self.object(release, Written::Created(Timestamp::now().as_second()))?;
        let size =
            object.pointer("/data/release").and_then(Value::as_str).map_or(0, |text| text.len() / 4 * 3);
        if size > LARGEST {
            return Err(Error::TooLarge(breakdown(release, size)));
        }
        Ok(object)
    }

    pub async fn create(&self, release: &Release, records: &mut Records) -> Result<(), Error> {
        let secret = self.decode(self.prepare(release)?)?;
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let made = retrying(|| self.secrets.create(&parameters, &secret)).await;
        match made {
            Ok(made) => {
                records.versions.insert(release.version, made.resource_version().unwrap_or_default());
                Ok(())
            }
            Err(Cause::Refused { code: 409, .. }) => Err(Error::Taken(release.version)),
            Err(cause) => Err(cause.into()),
        }
    }

    pub async fn update(&self, release: &Release, records: &mut Records) -> Result<(), Error> {
        // What was neither read nor made here is somebody else's.
        let Some(version) = records.versions.get(&release.version) else {
            return Err(Error::Taken(release.version));
        };
        let mut object = self.object(release, Written::Modified(Timestamp::now().as_second()))?;
        object["metadata"]["resourceVersion"] = json!(version);
        let secret = self.decode(object)?;
        let name = secret.name_any();
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let made = retrying(|| self.secrets.replace(&name, &parameters, &secret)).await;
        match made {
            Ok(made) => {
                records.versions.insert(release.version, made.resource_version().unwrap_or_default());
                Ok(())
            }
            Err(Cause::Refused { code: 404 | 409, .. }) => Err(Error::Taken(release.version)),
            Err(cause) => Err(cause.into()),
        }
    }

    pub async fn delete(&self, name: &str, revision: i64) -> Result<(), Error> {
        let key = storage_key(name, revision);
        let parameters = DeleteParams::default();
        match retrying(|| self.secrets.delete(&key, &parameters)).await {
            Ok(_) | Err(Cause::Refused { code: 404, .. }) => Ok(()),
            Err(cause) => Err(cause.into()),
        }
    }

    fn object(&self, release: &Release, when: Written) -> Result<Value, Error> {
        let object = storage_object(release, Driver::Secret, self.dialect, when);
        let mut object = object.map_err(|error| Error::Unreadable(error.to_string()))?;
        // Records need not live where the release does.
        object["metadata"]["namespace"] = json!(self.namespace);
        Ok(object)
    }

    fn decode(&self, object: Value) -> Result<Secret, Error> {
        serde_json::from_value(object).map_err(|error| Error::Unreadable(error.to_string()))
    }
}

/// Tries again what the API server could not do just now. An answer that got lost may have been "done": then the next
/// try is refused, which the caller takes for somebody else's write and looks again.
async fn retrying<T, F>(mut request: impl FnMut() -> F) -> Result<T, Cause>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut delay = Duration::from_millis(100);
    for _ in 1..TRIES {
        match request().await.map_err(Cause::from) {
            Err(cause) if super::fault::is_transient(&cause) && !is_conflict(&cause) => {
                tokio::time::sleep(delay).await;
                delay *= 2;
            }
            result => return result,
        }
    }
    request().await.map_err(Cause::from)
}

fn is_conflict(cause: &Cause) -> bool {
    matches!(cause, Cause::Refused { code: 409, .. })
}

/// What makes a record large, largest first.
fn breakdown(release: &Release, size: usize) -> String {
    let text = |pointer: &str| release.chart.pointer(pointer).map_or(0, |part| part.to_string().len());
    let mut parts = [
        ("the rendered manifest", release.manifest.len()),
        ("hooks", release.hooks.iter().map(|hook| hook.manifest.len()).sum()),
        ("the chart's templates", text("/templates")),
        ("the chart's other files (crds, docs, dashboards)", text("/files")),
        ("the chart's default values", text("/values")),
        ("the values", release.config.as_ref().map_or(0, |config| yaml::json_text(&json!(config)).len())),
        ("the notes", release.info.notes.len()),
    ];
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, bytes)| *bytes > 1024)
        .map(|(name, bytes)| format!("{name} {} KiB", bytes / 1024))
        .collect();
    format!(
        "the release would not fit into its Secret: {} KiB compressed, and {} KiB is the most; nothing was applied. Before compression: {}",
        size / 1024,
        LARGEST / 1024,
        parts.join(", ")
    )
}

impl Records {
    /// Takes over what was written.
    pub fn put(&mut self, release: &Release) {
        let others = self.history.revisions().iter().filter(|known| known.version != release.version);
        let mut all: Vec<Release> = others.cloned().collect();
        all.push(release.clone());
        self.history = History::new(all);
    }

    pub fn forget(&mut self, revision: i64) {
        let rest = self.history.revisions().iter().filter(|known| known.version != revision);
        self.history = History::new(rest.cloned().collect());
        self.versions.remove(&revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_too_large_says_what_makes_it_so() {
        let mut release: Release =
            serde_json::from_value(json!({"name": "a", "version": 1, "chart": {"files": "x".repeat(5000)}}))
                .unwrap();
        release.manifest = "m".repeat(9000);
        let text = breakdown(&release, 2 << 20);
        assert!(
            text.starts_with("the release would not fit into its Secret: 2048 KiB compressed, and 1020 KiB"),
            "{text}"
        );
        assert!(
            text.ends_with(
                "the rendered manifest 8 KiB, the chart's other files (crds, docs, dashboards) 4 KiB"
            ),
            "{text}"
        );
    }
}
