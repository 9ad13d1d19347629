//! The HelmChart that `spec.chart` asks for: made, kept as asked, and deleted when it is no longer wanted.

use flux_api::Object;
use flux_api::helm::{HelmRelease, HelmReleaseStatus};
use flux_api::kinds;
use flux_apply::apply::Cause;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::render::origin_labels;
use super::{MANAGER, names};
use crate::reconcile::{Cache, ObjectKey, resource};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cross-namespace references are not allowed: cannot access HelmChart {0}")]
    AccessDenied(ObjectKey),
    #[error("failed to run server-side apply: {0}")]
    Apply(Cause),
    #[error("failed to delete HelmChart '{0}': {1}")]
    Delete(String, Cause),
}

/// What happened, for an event beside the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Created(String),
    Configured(String),
    Deleted(String),
}

/// Brings the HelmChart to what the spec asks for; in `status` stands which one is ours.
pub async fn reconcile(
    client: &Client,
    cache: &Cache,
    object: &HelmRelease,
    status: &mut HelmReleaseStatus,
    no_cross_namespace: bool,
) -> Result<Vec<Happened>, Error> {
    let mut happened = Vec::new();
    let wanted = names::helm_chart(object);
    let outdated = status
        .helm_chart
        .clone()
        .filter(|known| wanted.as_ref().map(ToString::to_string).as_ref() != Some(known));
    if outdated.is_some() {
        happened.extend(delete(client, object, status, no_cross_namespace).await?);
    }
    let Some(key) = wanted else {
        return Ok(happened);
    };
    allowed(object, &key, no_cross_namespace)?;
    let chart = build(object, &key);
    let known = cache.get(&kinds::HELM_CHART, &key);
    if !known.as_ref().is_some_and(|known| is_as_wanted(known, &chart)) {
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &key.namespace, &resource(&kinds::HELM_CHART));
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = api.patch(&key.name, &parameters, &Patch::Apply(&chart)).await;
        applied.map_err(|error| Error::Apply(Cause::from(error)))?;
        let source = chart.pointer("/spec/sourceRef").cloned().unwrap_or_default();
        let text = |field: &str| source.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let what =
            format!("HelmChart/{key} with SourceRef '{}/{}/{}'", text("kind"), key.namespace, text("name"));
        happened.push(match known {
            None => Happened::Created(format!("Created {what}")),
            Some(_) => Happened::Configured(format!("Configured {what}")),
        });
    }
    status.helm_chart = Some(key.to_string());
    Ok(happened)
}

/// Whether a HelmChart holds what the HelmRelease asks for now. When it does not, its artifact is of an older wish.
pub fn serves(known: &DynamicObject, object: &HelmRelease) -> bool {
    names::helm_chart(object).is_some_and(|key| has_spec(known, &build(object, &key)))
}

/// Deletes the HelmChart that the status names.
pub async fn delete(
    client: &Client,
    object: &HelmRelease,
    status: &mut HelmReleaseStatus,
    no_cross_namespace: bool,
) -> Result<Option<Happened>, Error> {
    let Some(known) = status.helm_chart.clone() else {
        return Ok(None);
    };
    let (namespace, name) = known.split_once('/').unwrap_or((Object::namespace(object), &known));
    let key = ObjectKey::new(namespace, name);
    allowed(object, &key, no_cross_namespace)?;
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &key.namespace, &resource(&kinds::HELM_CHART));
    let deleted = match api.delete(&key.name, &DeleteParams::default()).await {
        Ok(_) => Some(Happened::Deleted(format!("deleted HelmChart '{known}'"))),
        Err(kube::Error::Api(answer)) if answer.code == 404 => None,
        Err(error) => return Err(Error::Delete(known, Cause::from(error))),
    };
    status.helm_chart = None;
    Ok(deleted)
}

fn allowed(object: &HelmRelease, key: &ObjectKey, no_cross_namespace: bool) -> Result<(), Error> {
    if no_cross_namespace && key.namespace != Object::namespace(object) {
        return Err(Error::AccessDenied(key.clone()));
    }
    Ok(())
}

fn build(object: &HelmRelease, key: &ObjectKey) -> Value {
    let template = object.spec.chart.as_ref();
    let mut spec =
        template.and_then(|template| serde_json::to_value(&template.spec).ok()).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        // The HelmChart stands beside its source.
        if let Some(Value::Object(source)) = fields.get_mut("sourceRef") {
            source.remove("namespace");
        }
        fields.entry("interval").or_insert_with(|| json!(object.spec.interval));
    }
    let metadata = template.and_then(|template| template.metadata.clone()).unwrap_or_default();
    let mut labels: Map<String, Value> =
        metadata.labels.into_iter().map(|(key, value)| (key, json!(value))).collect();
    labels.extend(origin_labels(object).map(|(key, value)| (key, json!(value))));
    let mut chart = json!({
        "apiVersion": kinds::HELM_CHART.api_version(), "kind": kinds::HELM_CHART.kind,
        "metadata": { "name": key.name, "namespace": key.namespace, "labels": labels },
        "spec": spec,
    });
    if !metadata.annotations.is_empty() {
        chart["metadata"]["annotations"] = json!(metadata.annotations);
    }
    chart
}

/// Whether everything we would apply stands there already, and nothing that we applied once and no longer do. The latter
/// shows in the fields that are ours; comparing the generation of our own last apply would need memory.
fn is_as_wanted(known: &DynamicObject, wanted: &Value) -> bool {
    let labels = wanted.pointer("/metadata/labels").and_then(Value::as_object);
    let annotations = wanted.pointer("/metadata/annotations").and_then(Value::as_object);
    let has = |all: &std::collections::BTreeMap<String, String>, some: Option<&Map<String, Value>>| {
        some.into_iter().flatten().all(|(key, value)| all.get(key).map(String::as_str) == value.as_str())
    };
    has_spec(known, wanted) && has(known.labels(), labels) && has(known.annotations(), annotations)
}

fn has_spec(known: &DynamicObject, wanted: &Value) -> bool {
    let spec = known.data.get("spec").cloned().unwrap_or_default();
    let mut expected = json!({"version": "*", "reconcileStrategy": "ChartVersion"});
    merge(&mut expected, &wanted.get("spec").cloned().unwrap_or_default());
    spec == expected
}

fn merge(into: &mut Value, from: &Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::object;
    use super::*;

    fn release(chart: Value) -> HelmRelease {
        let mut release = object(json!({}));
        release.spec.chart_ref = None;
        release.spec.chart = serde_json::from_value(chart).unwrap();
        release
    }

    #[test]
    fn the_chart_stands_beside_its_source_and_names_its_release() {
        let release = release(
            json!({"metadata": {"labels": {"team": "a"}, "annotations": {"n": "1"}}, "spec": {
            "chart": "podinfo", "version": "6.x", "sourceRef": {"kind": "HelmRepository", "name": "r", "namespace": "repos"},
            "valuesFiles": ["a.yaml"], "verify": {"provider": "cosign"}}}),
        );
        let key = names::helm_chart(&release).unwrap();
        let chart = build(&release, &key);
        assert_eq!(chart["metadata"]["name"], "apps-web");
        assert_eq!(chart["metadata"]["namespace"], "repos");
        assert_eq!(chart["metadata"]["annotations"], json!({"n": "1"}));
        assert_eq!(
            chart["metadata"]["labels"],
            json!({"team": "a", "helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "apps"})
        );
        assert_eq!(
            chart["spec"],
            json!({"chart": "podinfo", "version": "6.x", "interval": "1m0s",
            "sourceRef": {"kind": "HelmRepository", "name": "r"}, "valuesFiles": ["a.yaml"], "verify": {"provider": "cosign"}})
        );
    }

    #[test]
    fn a_chart_that_is_as_wanted_is_left_alone() {
        let release = release(
            json!({"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "r"}}}),
        );
        let key = names::helm_chart(&release).unwrap();
        let wanted = build(&release, &key);
        let mut known: DynamicObject = serde_json::from_value(wanted.clone()).unwrap();
        known.data["spec"]["version"] = json!("*");
        known.data["spec"]["reconcileStrategy"] = json!("ChartVersion");
        assert!(is_as_wanted(&known, &wanted));
        known.data["spec"]["valuesFiles"] = json!(["old.yaml"]);
        assert!(!is_as_wanted(&known, &wanted), "a field we no longer ask for is taken away");
        assert!(!serves(&known, &release));
        known.data["spec"] = wanted["spec"].clone();
        known.data["spec"]["version"] = json!("*");
        known.data["spec"]["reconcileStrategy"] = json!("ChartVersion");
        known.metadata.labels = None;
        assert!(serves(&known, &release), "labels do not change what the chart is");
    }

    #[test]
    fn other_namespaces_are_out_of_bounds_where_forbidden() {
        let release = release(
            json!({"spec": {"chart": "c", "sourceRef": {"kind": "HelmRepository", "name": "r", "namespace": "repos"}}}),
        );
        let key = names::helm_chart(&release).unwrap();
        assert!(allowed(&release, &key, false).is_ok());
        assert_eq!(
            allowed(&release, &key, true).unwrap_err().to_string(),
            "cross-namespace references are not allowed: cannot access HelmChart repos/apps-web"
        );
    }
}
