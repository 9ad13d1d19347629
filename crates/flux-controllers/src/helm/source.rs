//! Where the chart comes from: the object that holds it, whether that is ready, and the chart itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, Condition, ConditionStatus, READY, STALLED};
use flux_api::helm::{ChartReferenceKind, HelmRelease};
use flux_api::kinds::{self, Kind};
use helm::{Chart, Dialect, Limits};
use kube::api::DynamicObject;
use semver_range::Version;
use serde_json::Value;

use super::names;
use crate::artifact::{Fetcher, fetch};
use crate::reconcile::ObjectKey;

/// Nobody's chart is larger, and its unpacked size has a limit of its own.
const LARGEST: u64 = 100 << 20;
/// Charts that are kept in memory beyond their use.
const KEPT: usize = 16;

/// The object that holds the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKey {
    pub kind: ChartReferenceKind,
    pub key: ObjectKey,
}

impl SourceKey {
    pub fn of(object: &HelmRelease) -> Option<Self> {
        if let Some(reference) = &object.spec.chart_ref {
            let namespace = reference.namespace.as_deref().unwrap_or_else(|| Object::namespace(object));
            return Some(Self { kind: reference.kind, key: ObjectKey::new(namespace, &reference.name) });
        }
        Some(Self { kind: ChartReferenceKind::HelmChart, key: names::helm_chart(object)? })
    }

    pub fn row(&self) -> &'static Kind {
        match self.kind {
            ChartReferenceKind::OCIRepository => &kinds::OCI_REPOSITORY,
            ChartReferenceKind::HelmChart => &kinds::HELM_CHART,
            ChartReferenceKind::ExternalArtifact => &kinds::EXTERNAL_ARTIFACT,
        }
    }
}

impl std::fmt::Display for SourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.key)
    }
}

/// The artifact of a source that is ready for use, or why it is not.
pub fn ready_artifact(source: &SourceKey, object: &DynamicObject) -> Result<Artifact, String> {
    let artifact = object.data.pointer("/status/artifact").cloned();
    let artifact: Option<Artifact> = artifact.and_then(|artifact| serde_json::from_value(artifact).ok());
    let not_ready = |why: &str| format!("{} '{}' is not ready: {why}", source.kind.as_str(), source.key);
    if source.kind == ChartReferenceKind::ExternalArtifact {
        return artifact.ok_or_else(|| not_ready("does not have an artifact"));
    }
    let conditions: Vec<Condition> = object
        .data
        .pointer("/status/conditions")
        .and_then(|conditions| serde_json::from_value(conditions.clone()).ok())
        .unwrap_or_default();
    let observed = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if object.metadata.generation.unwrap_or_default() != observed.unwrap_or_default() {
        let failed =
            condition::find(&conditions, READY).filter(|ready| ready.status == ConditionStatus::False);
        let why =
            failed.map_or("latest generation of object has not been reconciled", |ready| &ready.message);
        return Err(not_ready(why));
    }
    if let Some(stalled) =
        condition::find(&conditions, STALLED).filter(|one| one.status == ConditionStatus::True)
    {
        return Err(not_ready(&stalled.message));
    }
    artifact.ok_or_else(|| not_ready("does not have an artifact"))
}

/// The version a chart is released as, and the digest of the image it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revised {
    pub version: String,
    pub oci_digest: Option<String>,
}

/// A chart from an image is released under its version with a piece of the image's digest, so that a tag which moved is
/// a new release.
pub fn revised(
    source: &SourceKey,
    artifact: &Artifact,
    version: &str,
    track: bool,
) -> Result<Revised, String> {
    let revision = artifact.revision.as_str();
    let has_digest = match source.kind {
        ChartReferenceKind::OCIRepository => true,
        ChartReferenceKind::ExternalArtifact => revision.contains(':'),
        ChartReferenceKind::HelmChart => false,
    };
    if !has_digest {
        return Ok(Revised { version: version.to_owned(), oci_digest: None });
    }
    let parsed = Version::parse(version).map_err(|_| format!("invalid chart version {version}"))?;
    let digest = match revision.split_once('@') {
        Some((tag, digest)) => {
            let wanted = Version::parse(&tag.replace('_', "+")).ok();
            if wanted.as_ref().is_some_and(|wanted| *wanted != parsed) {
                return Err(format!("artifact revision {tag} does not match chart version {version}"));
            }
            // A tag that is no version stands before a digest all the same.
            if wanted.is_some() { digest } else { revision }
        }
        None => revision,
    };
    let invalid = || format!("invalid artifact revision {digest}");
    let (_, hex) = digest.split_once(':').ok_or_else(invalid)?;
    let short = hex.get(..12).filter(|_| !hex.contains(':')).ok_or_else(invalid)?;
    let tracked = parsed.with_metadata(short).map_err(|_| invalid())?.to_string();
    let version = if track { tracked } else { version.to_owned() };
    Ok(Revised { version, oci_digest: Some(digest.to_owned()) })
}

/// Whether what was loaded came from this artifact.
pub fn is_of(artifact: &Artifact, loaded: &super::Loaded) -> bool {
    let revision = artifact.revision.as_str();
    match &loaded.oci_digest {
        Some(digest) => revision.ends_with(digest.as_str()),
        None => revision == loaded.version(),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("artifact not found")]
    NotFound,
    #[error("{0}")]
    Fetch(String),
    #[error("{0}")]
    Load(String),
}

/// Loaded charts by the digest of their archive: a thousand releases of one chart load and parse it once.
#[derive(Default)]
pub struct Charts(Mutex<VecDeque<(String, Arc<Chart>)>>);

impl Charts {
    pub async fn load(
        &self,
        fetcher: &Fetcher,
        artifact: &Artifact,
        dialect: Dialect,
    ) -> Result<Arc<Chart>, Error> {
        let key = artifact.digest.as_str().to_owned();
        if let Some(chart) = self.get(&key) {
            return Ok(chart);
        }
        let bytes = fetcher.bytes(artifact, LARGEST).await.map_err(|error| match error {
            fetch::Error::NotFound => Error::NotFound,
            error => Error::Fetch(error.to_string()),
        })?;
        let loaded =
            crate::reconcile::heavy(move || Chart::from_archive(&bytes, Limits::default(), dialect)).await;
        let chart = loaded
            .map_err(|error| Error::Load(error.to_string()))?
            .map_err(|error| Error::Load(error.to_string()))?;
        let chart = Arc::new(chart);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, chart.clone()));
        kept.truncate(KEPT);
        Ok(chart)
    }

    fn get(&self, key: &str) -> Option<Arc<Chart>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(at)?;
        kept.push_front(found.clone());
        Some(found.1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(kind: ChartReferenceKind) -> SourceKey {
        SourceKey { kind, key: ObjectKey::new("apps", "web") }
    }

    fn artifact(revision: &str) -> Artifact {
        serde_json::from_value(json!({
            "url": "http://x/y.tgz", "path": "y.tgz", "revision": revision, "lastUpdateTime": "2026-01-01T00:00:00Z",
            "digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        }))
        .unwrap()
    }

    fn object(status: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
            "metadata": {"name": "web", "namespace": "apps", "generation": 2}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_source_is_used_when_its_latest_generation_was_seen_and_it_has_an_artifact() {
        let key = source(ChartReferenceKind::HelmChart);
        let has = serde_json::to_value(artifact("1.0.0")).unwrap();
        let failed = json!([{"type": "Ready", "status": "False", "reason": "x", "message": "no such chart", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let stalled = json!([{"type": "Stalled", "status": "True", "reason": "x", "message": "bad url", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        for (status, why) in [
            (json!({"observedGeneration": 1}), "latest generation of object has not been reconciled"),
            (json!({"observedGeneration": 1, "conditions": failed}), "no such chart"),
            (json!({"observedGeneration": 2, "conditions": stalled, "artifact": has}), "bad url"),
            (json!({"observedGeneration": 2}), "does not have an artifact"),
        ] {
            assert_eq!(
                ready_artifact(&key, &object(status)).unwrap_err(),
                format!("HelmChart 'apps/web' is not ready: {why}")
            );
        }
        let old = json!({"observedGeneration": 2, "conditions": failed, "artifact": has});
        assert!(ready_artifact(&key, &object(old)).is_ok(), "an older artifact will do");
        let external = source(ChartReferenceKind::ExternalArtifact);
        assert!(ready_artifact(&external, &object(json!({"artifact": has}))).is_ok());
    }

    #[test]
    fn a_chart_from_an_image_carries_a_piece_of_its_digest() {
        let oci = source(ChartReferenceKind::OCIRepository);
        let digest = "sha256:cdd538a0167e4b51152b71a477e51eb6737553510ce8797dbcc537e1342311bb";
        let of = |revision: &str, version: &str| revised(&oci, &artifact(revision), version, true);
        let plain = of(&format!("6.5.0@{digest}"), "6.5.0").unwrap();
        assert_eq!(
            (plain.version.as_str(), plain.oci_digest.as_deref()),
            ("6.5.0+cdd538a0167e", Some(digest))
        );
        assert_eq!(of(&format!("1.0.0_a@{digest}"), "1.0.0+a").unwrap().version, "1.0.0+cdd538a0167e");
        assert_eq!(of(digest, "6.5.0").unwrap().version, "6.5.0+cdd538a0167e");
        assert_eq!(
            of(&format!("6.5.1@{digest}"), "6.5.0").unwrap_err(),
            "artifact revision 6.5.1 does not match chart version 6.5.0"
        );
        assert_eq!(of("sha256:short", "1.0.0").unwrap_err(), "invalid artifact revision sha256:short");
        let untracked = revised(&oci, &artifact(digest), "6.5.0", false).unwrap();
        assert_eq!(untracked.version, "6.5.0");
        let chart = source(ChartReferenceKind::HelmChart);
        let same = revised(&chart, &artifact("6.5.0"), "6.5.0", true).unwrap();
        assert_eq!(same, Revised { version: "6.5.0".to_owned(), oci_digest: None });
    }
}
