//! What a release needs before anything can be done: its dependencies, its chart, its values, and somebody to act as.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::helm::{ChartReferenceKind, HelmRelease};
use flux_api::kinds::{HELM_RELEASE, Kind};
use flux_api::meta::{ConfigKind, ValuesReference};
use flux_apply::ObjectId;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::Value;

use super::dependencies::{self, Of};
use super::source::{self, SourceKey};
use super::values::Referenced;
use super::{Context, Loaded};
use crate::reconcile::{ObjectKey, circle, resource};

/// The reason of those who wait for each other.
pub(super) const DEPENDENCY_CYCLE: &str = "DependencyCycle";

/// Why a release cannot be worked on yet.
#[derive(Debug, thiserror::Error)]
pub enum Unmet {
    #[error("{0}")]
    Expression(String),
    #[error("{0}")]
    Dependency(String),
    #[error("dependencies go round in a circle: {0}; remove one of these dependencies")]
    DependencyCycle(String),
    #[error("{0}")]
    AccessDenied(String),
    #[error("could not get Source object: {0}")]
    SourceMissing(String),
    #[error("{0}")]
    SourceNotReady(String),
    #[error("Source not ready: artifact not found. Retrying in {0}")]
    ArtifactGone(flux_api::duration::GoDuration),
    #[error("Could not load chart: {0}")]
    Artifact(String),
    #[error("{0}")]
    Values(String),
    #[error("{0}")]
    ChartVersion(String),
    #[error("{0}")]
    Identity(String),
    #[error("{0}")]
    ChartObject(String),
}

impl Unmet {
    pub fn reason(&self) -> &'static str {
        match self {
            Unmet::Expression(_) => "InvalidCELExpression",
            Unmet::Dependency(_) => "DependencyNotReady",
            Unmet::DependencyCycle(_) => DEPENDENCY_CYCLE,
            Unmet::AccessDenied(_) => "AccessDenied",
            Unmet::SourceMissing(_) | Unmet::ArtifactGone(_) | Unmet::Artifact(_) => "ArtifactFailed",
            Unmet::SourceNotReady(_) => "SourceNotReady",
            Unmet::Values(_) => "ValuesError",
            Unmet::ChartVersion(_) => "ChartMutateError",
            Unmet::Identity(_) => "RESTClientError",
            Unmet::ChartObject(_) => "HelmChartSyncErr",
        }
    }
}

impl Context {
    /// The first dependency that is not there yet.
    pub(super) async fn check_dependencies(&self, object: &HelmRelease) -> Result<(), Unmet> {
        let own = Object::namespace(object);
        let itself = ObjectKey::new(own, object.name());
        if !self.options.upstream_only
            && let Some(circle) = circle::of(&self.cache, &HELM_RELEASE, &itself)
        {
            return Err(Unmet::DependencyCycle(circle));
        }
        for reference in &object.spec.depends_on {
            let key = ObjectKey::new(reference.namespace.as_deref().unwrap_or(own), &reference.name);
            let of = dependencies::kind(reference)?;
            let found = match &of {
                Of::Watched(kind) => self.watched(kind, &key).await?,
                Of::Other { api_version, kind } => self.other(object, api_version, kind, &key).await?,
            };
            if let Some(expression) = &reference.ready_expr {
                if !dependencies::holds(expression, &reference.name, &json(object), &found)? {
                    let text = format!("dependency '{key}' is not ready according to readyExpr eval");
                    return Err(Unmet::Dependency(text));
                }
                if !self.options.additive_cel_dependency_check {
                    continue;
                }
            }
            let is_ready = match of {
                Of::Watched(_) => dependencies::is_ready(&found),
                Of::Other { .. } => dependencies::is_healthy(&found, Timestamp::now().as_second()),
            };
            if !is_ready {
                return Err(Unmet::Dependency(format!("dependency '{key}' is not ready")));
            }
        }
        Ok(())
    }

    /// A dependency of a kind that is watched; asked for where this controller does not watch.
    async fn watched(&self, kind: &'static Kind, key: &ObjectKey) -> Result<Value, Unmet> {
        let unable = |why: String| Unmet::Dependency(format!("unable to get '{key}' dependency: {why}"));
        if let Some(known) = self.cache.get(kind, key) {
            return Ok(json(known.as_ref()));
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &resource(kind));
        let found = api.get_opt(&key.name).await.map_err(|error| unable(error.to_string()))?;
        let missing = || unable(format!("{}.{} \"{}\" not found", kind.plural, kind.group, key.name));
        found.map(|found| json(&found)).ok_or_else(missing)
    }

    /// A dependency of any other kind of this cluster, as the account of the release sees it.
    async fn other(
        &self,
        object: &HelmRelease,
        api_version: &str,
        kind: &str,
        key: &ObjectKey,
    ) -> Result<Value, Unmet> {
        if key.namespace != Object::namespace(object) && self.options.no_cross_namespace_refs {
            let text = format!("cross-namespace references are not allowed: cannot access {kind} {key}");
            return Err(Unmet::AccessDenied(text));
        }
        let cluster = self.here(object).await.map_err(|error| Unmet::Identity(error.message().to_owned()))?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let id = ObjectId {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        };
        let unable =
            |why: String| Unmet::Dependency(format!("unable to get '{kind}/{key}' dependency: {why}"));
        let found = cluster.get(&id).await.map_err(|cause| unable(cause.to_string()))?;
        found.ok_or_else(|| unable("not found".to_owned()))
    }

    /// What the chart is in, once its source is ready.
    pub(super) fn artifact(&self, object: &HelmRelease) -> Result<(SourceKey, Artifact), Unmet> {
        let source =
            SourceKey::of(object).ok_or_else(|| Unmet::SourceMissing("no chart is given".to_owned()))?;
        let foreign = source.key.namespace != Object::namespace(object);
        if foreign && self.options.no_cross_namespace_refs {
            return Err(Unmet::AccessDenied(format!(
                "cross-namespace references are not allowed: cannot access {} {}",
                source.kind.as_str(),
                source.key
            )));
        }
        if source.kind == ChartReferenceKind::ExternalArtifact && !self.options.external_artifact {
            let text = format!("can't access '{source}', ExternalArtifact feature gate is disabled");
            return Err(Unmet::AccessDenied(text));
        }
        let row = source.row();
        let found = self.cache.get(row, &source.key).ok_or_else(|| {
            Unmet::SourceMissing(format!("{}.{} \"{}\" not found", row.plural, row.group, source.key.name))
        })?;
        let artifact = source::ready_artifact(&source, &found).map_err(Unmet::SourceNotReady)?;
        Ok((source, artifact))
    }

    /// The chart in an artifact, of the version it is released as.
    pub(super) async fn chart(&self, source: &SourceKey, artifact: &Artifact) -> Result<Loaded, Unmet> {
        let chart = self.charts.load(&self.fetcher, artifact, helm::Dialect::Helm4).await;
        let chart = chart.map_err(|error| match error {
            source::Error::NotFound => Unmet::ArtifactGone(self.options.requeue_dependency.into()),
            source::Error::Fetch(text) | source::Error::Load(text) => Unmet::Artifact(text),
        })?;
        let track = !self.options.disable_chart_digest_tracking;
        let revised = source::revised(source, artifact, &chart.metadata.version, track);
        let revised = revised.map_err(Unmet::ChartVersion)?;
        if revised.version == chart.metadata.version {
            return Ok(Loaded { chart, oci_digest: revised.oci_digest });
        }
        let mut changed = (*chart).clone();
        changed.metadata.version = revised.version;
        Ok(Loaded { chart: Arc::new(changed), oci_digest: revised.oci_digest })
    }

    /// Who asks for another run: the source, if it has something else than what was loaded, else the object itself.
    pub(super) fn newer_than(&self, object: &HelmRelease, loaded: &Loaded) -> String {
        let newer = SourceKey::of(object).filter(|source| {
            let found = self.cache.get(source.row(), &source.key);
            let artifact = found.and_then(|found| source::ready_artifact(source, &found).ok());
            artifact.is_some_and(|artifact| !source::is_of(&artifact, loaded))
        });
        match newer {
            Some(source) => source.to_string(),
            None => format!("HelmRelease/{}/{}", Object::namespace(object), object.name()),
        }
    }

    /// What `valuesFrom` points to, each object read once.
    pub(super) async fn referenced(&self, object: &HelmRelease) -> Result<Referenced, Unmet> {
        read_references(&self.client, Object::namespace(object), &object.spec.values_from)
            .await
            .map_err(|error| Unmet::Values(error.to_string()))
    }
}

fn json(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Reads ConfigMaps and Secrets that values come from.
pub async fn read_references(
    client: &Client,
    namespace: &str,
    references: &[ValuesReference],
) -> Result<Referenced, kube::Error> {
    let mut all = Referenced::default();
    for reference in references {
        if all.contains(reference.kind, &reference.name) {
            continue;
        }
        let data = match reference.kind {
            ConfigKind::ConfigMap => {
                let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
                api.get_opt(&reference.name).await?.map(|map| {
                    let data = map.data.unwrap_or_default();
                    data.into_iter().map(|(key, text)| (key, text.into_bytes())).collect::<BTreeMap<_, _>>()
                })
            }
            ConfigKind::Secret => {
                let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                api.get_opt(&reference.name).await?.map(|secret| {
                    let data = secret.data.unwrap_or_default();
                    data.into_iter().map(|(key, bytes)| (key, bytes.0)).collect()
                })
            }
        };
        all.insert(reference.kind, &reference.name, data);
    }
    Ok(all)
}
