//! What can be seen of a fleet's objects: each one's verdict, in the words of its Ready condition.

use anyhow::{Context, Result};
use flux_api::kinds::{self, Kind};
use flux_api::names;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Failed,
    /// Has not said anything about the generation it is at.
    Waiting,
    Suspended,
    Ready,
}

impl Verdict {
    pub(crate) fn mark(self) -> char {
        match self {
            Verdict::Ready => '✔',
            Verdict::Failed => '✗',
            Verdict::Waiting => '◎',
            Verdict::Suspended => '‖',
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verdict::Ready => "ready",
            Verdict::Failed => "failed",
            Verdict::Waiting => "waiting",
            Verdict::Suspended => "suspended",
        }
    }
}

/// One object of Flux, or a workload.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) object: Value,
}

impl Seen {
    /// Nothing is wrong with it itself: something else has to come first.
    pub(crate) fn is_held(&self) -> bool {
        self.verdict == Verdict::Failed
            && matches!(self.reason.as_str(), "DependencyNotReady" | "SourceNotReady")
    }

    /// How it is, at a glance.
    pub(crate) fn mark(&self) -> char {
        if self.is_held() { Verdict::Waiting.mark() } else { self.verdict.mark() }
    }

    /// `Kind/namespace/name`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// The Kustomization or HelmRelease that applied it, as `Kind/namespace/name`.
    pub(crate) fn owner(&self) -> Option<String> {
        let label = |group: &str, key: &str| {
            let labels = self.object.pointer("/metadata/labels")?;
            labels.get(format!("{group}/{key}")).and_then(Value::as_str)
        };
        // What a HelmRelease installs may carry the labels of both; the release is nearer.
        [(kinds::HELM_GROUP, "HelmRelease"), (kinds::KUSTOMIZE_GROUP, "Kustomization")].iter().find_map(
            |(group, kind)| {
                let (namespace, name) = (label(group, "namespace")?, label(group, "name")?);
                let owner = format!("{kind}/{namespace}/{name}");
                (owner != self.id()).then_some(owner)
            },
        )
    }

    /// The source that it begins with, as `Kind/namespace/name`.
    pub(crate) fn source(&self) -> Option<String> {
        let text =
            |reference: &Value, key: &str| reference.get(key).and_then(Value::as_str).map(str::to_owned);
        let reference = ["/spec/sourceRef", "/spec/chartRef", "/spec/chart/spec/sourceRef"]
            .iter()
            .find_map(|path| self.object.pointer(path))?;
        let namespace = text(reference, "namespace").unwrap_or_else(|| self.namespace.clone());
        Some(format!("{}/{namespace}/{}", text(reference, "kind")?, text(reference, "name")?))
    }

    pub(crate) fn revision(&self) -> Option<&str> {
        let paths =
            ["/status/lastAppliedRevision", "/status/artifact/revision", "/status/history/0/chartVersion"];
        paths.iter().find_map(|path| self.object.pointer(path)).and_then(Value::as_str)
    }

    /// `dependsOn`, as `Kind/namespace/name`.
    pub(crate) fn dependencies(&self) -> Vec<String> {
        let entries = self.object.pointer("/spec/dependsOn").and_then(Value::as_array);
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        entries
            .into_iter()
            .flatten()
            .map(|entry| {
                let kind = text(entry, "kind").unwrap_or_else(|| self.kind.clone());
                let namespace = text(entry, "namespace").unwrap_or_else(|| self.namespace.clone());
                format!("{kind}/{namespace}/{}", text(entry, "name").unwrap_or_default())
            })
            .collect()
    }
}

/// Every object of Flux that can be ready or not.
pub(crate) async fn flux_objects(client: &Client) -> Result<Vec<Seen>> {
    let mut all = Vec::new();
    for kind in kinds::ALL.iter().filter(|kind| kind.has_status) {
        let resource = flux_controllers::reconcile::resource(kind);
        let api: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &resource);
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list,
            // A fleet that brings its own CRDs may bring older ones.
            Err(kube::Error::Api(answer)) if answer.code == 404 => continue,
            Err(error) => return Err(error).with_context(|| format!("list {}", kind.plural)),
        };
        for object in list {
            let object = serde_json::to_value(&object)?;
            all.push(judge_flux(kind.kind, object));
        }
    }
    Ok(all)
}

fn judge_flux(kind: &str, object: Value) -> Seen {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
    let of_ready = |key: &str| ready.and_then(|ready| ready[key].as_str()).unwrap_or_default().to_owned();
    let observed = ready.and_then(|ready| ready["observedGeneration"].as_i64());
    let current = observed == object.pointer("/metadata/generation").and_then(Value::as_i64);
    let suspended = object.pointer("/spec/suspend") == Some(&Value::Bool(true));
    // An old HelmRepository of type oci and what is static have nothing to say.
    let silent = kind == "HelmRepository" && object.pointer("/spec/type").is_some_and(|kind| kind == "oci");
    let verdict = match of_ready("status").as_str() {
        _ if suspended => Verdict::Suspended,
        "True" if current => Verdict::Ready,
        "False" if current => Verdict::Failed,
        "" if silent => Verdict::Ready,
        _ => Verdict::Waiting,
    };
    Seen {
        kind: kind.to_owned(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        verdict,
        reason: of_ready("reason"),
        message: of_ready("message"),
        object,
    }
}

/// The workloads that somebody of Flux applied.
pub(crate) async fn workloads(client: &Client) -> Result<Vec<Seen>> {
    let kinds = [
        ("apps", "Deployment", "deployments"),
        ("apps", "StatefulSet", "statefulsets"),
        ("apps", "DaemonSet", "daemonsets"),
        ("batch", "Job", "jobs"),
        ("batch", "CronJob", "cronjobs"),
    ];
    let mut all = Vec::new();
    for (group, kind, plural) in kinds {
        let resource = ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in api.list(&ListParams::default()).await? {
            let mut object = serde_json::to_value(&object)?;
            object["apiVersion"] = resource.api_version.clone().into();
            object["kind"] = kind.into();
            let seen = judge_workload(kind, object);
            if seen.owner().is_some() {
                all.push(seen);
            }
        }
    }
    Ok(all)
}

fn judge_workload(kind: &str, object: Value) -> Seen {
    let health = flux_apply::health::judge(&object, jiff::Timestamp::now().as_second());
    let verdict = match health.status {
        flux_apply::health::Status::Current => Verdict::Ready,
        flux_apply::health::Status::Failed | flux_apply::health::Status::NotFound => Verdict::Failed,
        flux_apply::health::Status::InProgress
        | flux_apply::health::Status::Terminating
        | flux_apply::health::Status::Unknown => Verdict::Waiting,
    };
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    Seen {
        kind: kind.to_owned(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        verdict,
        reason: health.status.as_str().to_owned(),
        message: health.message,
        object,
    }
}

/// Asks a source to look at once.
pub(crate) async fn request(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
    let resource = flux_controllers::reconcile::resource(kind);
    let api: Api<kube::api::DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let now = jiff::Timestamp::now().to_string();
    let patch = serde_json::json!({ "metadata": { "annotations": { names::RECONCILE_REQUEST: now } } });
    api.patch(name, &Default::default(), &kube::api::Patch::Merge(patch)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_condition_of_an_older_generation_says_nothing() {
        let object = |generation: i64| {
            json!({
                "metadata": { "name": "a", "namespace": "b", "generation": generation },
                "status": { "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": 1 }] },
            })
        };
        assert_eq!(judge_flux("Kustomization", object(1)).verdict, Verdict::Ready);
        assert_eq!(judge_flux("Kustomization", object(2)).verdict, Verdict::Waiting);
    }

    #[test]
    fn a_dependency_has_the_kind_and_namespace_of_its_dependent() {
        let spec = json!({ "dependsOn": [{ "name": "x" }, { "name": "y", "namespace": "z", "kind": "HelmRelease" }] });
        let object = json!({ "metadata": { "name": "a", "namespace": "b" }, "spec": spec });
        let seen = judge_flux("Kustomization", object);
        assert_eq!(seen.dependencies(), ["Kustomization/b/x", "HelmRelease/z/y"]);
    }
}
