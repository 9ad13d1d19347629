//! Whether the cluster is still what was released; who changed which field; and putting it back.

use flux_api::meta::IgnoreRule;
use flux_api::names::{DISABLED, HELM_DRIFT_DETECTION};
use flux_apply::apply::Cause;
use flux_apply::ignore::without;
use flux_apply::order::apply_order;
use flux_apply::{IgnoreRules, ObjectId, authors};
use helm::plan::{Object, objects_of, own};
use helm::release::Release;
use json_patch::PatchOperation;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value};

use super::actions::{Actor, ClusterKinds};
use super::execute::{Executor, Validation, id_of, placed};
use super::next::Action;
use super::report::{About, Run, tell};
use super::{MANAGER, snapshot};
use crate::reconcile::{Events, Severity};

/// Fields named for each object in an event; more are counted.
const MOST_FIELDS: usize = 5;

/// What differs.
#[derive(Debug, Default)]
pub struct Drift {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: ObjectId,
    desired: Value,
    difference: Difference,
}

#[derive(Debug, PartialEq)]
enum Difference {
    Missing,
    Excluded,
    Changed { patch: json_patch::Patch, fields: Vec<String> },
}

impl Drift {
    pub fn has_changes(&self) -> bool {
        self.entries.iter().any(|entry| entry.difference != Difference::Excluded)
    }

    /// One line for each object, then which fields are meant and who set them.
    pub fn summary(&self) -> String {
        let lines = self.entries.iter().flat_map(|entry| {
            let (what, fields): (String, &[String]) = match &entry.difference {
                Difference::Missing => ("removed".to_owned(), &[]),
                Difference::Excluded => ("excluded".to_owned(), &[]),
                Difference::Changed { patch, fields } => (counted(patch), fields),
            };
            std::iter::once(format!("{} {what}", entry.id))
                .chain(fields.iter().map(|field| format!("  {field}")))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn counted(patch: &json_patch::Patch) -> String {
    let count = |wanted: fn(&PatchOperation) -> bool| patch.0.iter().filter(|one| wanted(one)).count();
    format!(
        "changed ({} additions, {} changes, {} removals)",
        count(|one| matches!(one, PatchOperation::Add(_))),
        count(|one| matches!(one, PatchOperation::Replace(_))),
        count(|one| matches!(one, PatchOperation::Remove(_)))
    )
}

/// Compares every object of a release with what applying it would make of the cluster.
pub async fn detect(actor: &Actor<'_>, last: &Release) -> Result<Drift, String> {
    let rules = actor.object.spec.drift_detection.as_ref().map(|drift| ignore_rules(&drift.ignore));
    let rules = rules.transpose()?.unwrap_or_default();
    let kinds = actor.kinds(std::time::Duration::from_secs(60)).await.map_err(|fault| fault.message)?;
    let objects = objects_of(&last.manifest, &last.namespace, &ClusterKinds(&kinds));
    let objects =
        objects.map_err(|error| format!("failed to read objects from release manifest: {error}"))?;
    let executor = actor.executor(&kinds, std::time::Duration::ZERO, Validation::Warn);
    let mut drift = Drift::default();
    let mut problems = Vec::new();
    for mut object in objects {
        own(&mut object.json, &last.name, &last.namespace);
        match compare(&executor, &object, &rules, actor.override_managers).await {
            Ok(Some(difference)) => {
                drift.entries.push(Entry { id: id_of(&object), desired: placed(&object), difference });
            }
            Ok(None) => {}
            Err(cause) => problems.push(format!("{} dry-run failed: {cause}", id_of(&object))),
        }
    }
    // What is known to have drifted is worth correcting even if not everything could be compared.
    if !problems.is_empty() && !drift.has_changes() {
        return Err(format!("unable to determine cluster state: {}", problems.join("; ")));
    }
    problems
        .iter()
        .for_each(|problem| tracing::error!(problem, "comparison with the cluster is not complete"));
    Ok(drift)
}

/// `driftDetection.ignore`: fields that somebody else looks after.
fn ignore_rules(rules: &[IgnoreRule]) -> Result<IgnoreRules, String> {
    IgnoreRules::new(rules)
        .map_err(|invalid| format!("spec.driftDetection.ignore[{}].{}", invalid.index, invalid.problem))
}

async fn compare(
    executor: &Executor<'_>,
    object: &Object,
    rules: &IgnoreRules,
    overridden: &[String],
) -> Result<Option<Difference>, Cause> {
    let (id, desired) = (id_of(object), placed(object));
    let ignored = rules.of(&desired);
    if is_excluded(&desired) || ignored.iter().any(|path| path.is_empty()) {
        return Ok(Some(Difference::Excluded));
    }
    let Some(live) = executor.cluster.get(&id).await? else {
        return Ok(Some(Difference::Missing));
    };
    if is_excluded(&live) {
        return Ok(Some(Difference::Excluded));
    }
    // What an overridden manager holds and the chart lacks only shows as drift once it is nobody else's.
    if !overridden.is_empty()
        && let Some(patch) = super::managers::hand_over(&live, overridden)
    {
        executor.patch_managers(&id, patch).await?;
    }
    let parameters = PatchParams {
        dry_run: true,
        force: true,
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let wanted = executor.api(&id).await?.patch(&id.name, &parameters, &Patch::Apply(&desired)).await?;
    let wanted = serde_json::to_value(&wanted).unwrap_or_default();
    let patch = difference(&live, &wanted, &ignored);
    if patch.0.is_empty() {
        return Ok(None);
    }
    let fields = authored(&patch, &live);
    Ok(Some(Difference::Changed { patch, fields }))
}

fn is_excluded(object: &Value) -> bool {
    ["/metadata/annotations", "/metadata/labels"].iter().any(|place| {
        let mark =
            object.pointer(place).and_then(|map| map.get(HELM_DRIFT_DETECTION)).and_then(Value::as_str);
        mark.is_some_and(|mark| mark.eq_ignore_ascii_case(DISABLED))
    })
}

/// The patch from `live` to `wanted`: labels and annotations that are missing or differ, and everything outside of metadata
/// and status.
fn difference(live: &Value, wanted: &Value, ignored: &[&str]) -> json_patch::Patch {
    let (live, wanted) = (without(live, ignored), without(wanted, ignored));
    let mut operations: Vec<PatchOperation> = json_patch::diff(&marks(&live), &marks(&wanted))
        .0
        .into_iter()
        .filter(|one| matches!(one, PatchOperation::Add(_) | PatchOperation::Replace(_)))
        .collect();
    operations.extend(json_patch::diff(&authors::body(&live), &authors::body(&wanted)).0);
    json_patch::Patch(operations)
}

fn marks(object: &Value) -> Value {
    let mut metadata = Map::new();
    for place in ["labels", "annotations"] {
        if let Some(map) = object.pointer(&format!("/metadata/{place}")) {
            metadata.insert(place.to_owned(), map.clone());
        }
    }
    Value::Object(Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]))
}

/// Which fields are meant and who set them. Values are never told.
fn authored(patch: &json_patch::Patch, live: &Value) -> Vec<String> {
    let paths: Vec<String> = patch.0.iter().map(|one| one.path().to_string()).collect();
    let mut lines: Vec<String> = paths
        .iter()
        .take(MOST_FIELDS)
        .map(|path| match authors::author(live, path, MANAGER) {
            Some(author) if author.is_autoscaler && path == "/spec/replicas" => format!(
                "{path} set by an autoscaler: leave the field out of the chart's values, or add it to spec.driftDetection.ignore"
            ),
            Some(author) => format!("{path} set by {}", author.manager),
            None => path.clone(),
        })
        .collect();
    if paths.len() > MOST_FIELDS {
        lines.push(format!("and {} more", paths.len() - MOST_FIELDS));
    }
    lines
}

/// Creates what is missing and patches what was changed. No release is made of it.
pub async fn correct(run: &mut Run<'_>, actor: &Actor<'_>, mut drift: Drift, events: &Events) {
    let Some(latest) = snapshot::latest(&run.status.history).cloned() else { return };
    let kinds = match actor.kinds(std::time::Duration::from_secs(60)).await {
        Ok(kinds) => kinds,
        Err(fault) => return tracing::error!(problem = fault.message, "drift could not be corrected"),
    };
    let executor = actor.executor(&kinds, actor.policy.timeout(Action::CorrectDrift), Validation::Warn);
    drift.entries.sort_by(|a, b| {
        let changed = |entry: &Entry| entry.difference != Difference::Missing;
        changed(a).cmp(&changed(b)).then_with(|| apply_order(&a.id, &b.id))
    });
    let (mut corrected, mut problems) = (Vec::new(), Vec::new());
    let work = async {
        for entry in &drift.entries {
            let (done, word) = match &entry.difference {
                Difference::Excluded => continue,
                Difference::Missing => {
                    (executor.create(&entry.id, &entry.desired).await.map(|_| "created"), "creation")
                }
                Difference::Changed { patch, .. } => {
                    (put_back(&executor, &entry.id, patch).await.map(|()| "configured"), "patch")
                }
            };
            match done {
                Ok(action) => corrected.push(format!("{} {action}", entry.id)),
                Err(_) if entry.id.kind == "Secret" => problems.push(format!("{} {word} failure", entry.id)),
                Err(cause) => problems.push(format!("{} {word} failure: {cause}", entry.id)),
            }
        }
    };
    let in_time = tokio::time::timeout(actor.policy.timeout(Action::CorrectDrift), work).await;
    if in_time.is_err() {
        problems.push("context deadline exceeded".to_owned());
    }
    let (name, about) = (snapshot::full_name(&latest), About::snapshot(&latest));
    if !problems.is_empty() {
        let partially = if corrected.is_empty() { "" } else { "partially " };
        let mut text =
            format!("Failed to {partially}correct cluster state of release {name}:\n{}", problems.join("\n"));
        if !corrected.is_empty() {
            text.push_str(&format!("\n\nSuccessful corrections:\n{}", corrected.join("\n")));
        }
        tell(events, run.raw, Severity::Error, "DriftCorrectionFailed", text, Some(&about));
    } else if !corrected.is_empty() {
        let text = format!("Cluster state of release {name} has been corrected:\n{}", corrected.join("\n"));
        tell(events, run.raw, Severity::Info, "DriftCorrected", text, Some(&about));
    }
}

async fn put_back(executor: &Executor<'_>, id: &ObjectId, patch: &json_patch::Patch) -> Result<(), Cause> {
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    executor.api(id).await?.patch(&id.name, &parameters, &Patch::<()>::Json(patch.clone())).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extra_marks_are_no_drift_and_lost_ones_are() {
        let live =
            json!({"metadata": {"labels": {"extra": "1", "a": "x"}}, "spec": {"r": 3}, "status": {"s": 1}});
        let wanted = json!({"metadata": {"labels": {"a": "x"}}, "spec": {"r": 3}});
        assert!(difference(&live, &wanted, &[]).0.is_empty());
        let wanted = json!({"metadata": {"labels": {"a": "y", "b": "1"}}, "spec": {"r": 2, "n": 1}});
        assert_eq!(counted(&difference(&live, &wanted, &[])), "changed (2 additions, 2 changes, 0 removals)");
        assert_eq!(
            counted(&difference(&live, &wanted, &["/spec/r", "/metadata/labels/a"])),
            "changed (2 additions, 0 changes, 0 removals)"
        );
    }

    #[test]
    fn the_author_of_a_field_is_named_and_autoscalers_are_advised_on() {
        let live = json!({"spec": {"replicas": 3}, "metadata": {"managedFields": [
            {"manager": "helm-controller", "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:paused": {}}}},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        ]}});
        let patch: json_patch::Patch = serde_json::from_value(json!([
            {"op": "replace", "path": "/spec/replicas", "value": 1}, {"op": "remove", "path": "/spec/paused"},
            {"op": "remove", "path": "/spec/unknown"},
        ]))
        .unwrap();
        let lines = authored(&patch, &live);
        assert!(lines[0].starts_with("/spec/replicas set by an autoscaler: "), "{}", lines[0]);
        assert_eq!(lines[1..], ["/spec/paused set by kubectl-edit", "/spec/unknown"]);
    }

    #[test]
    fn objects_are_left_out_by_a_rule_without_a_path() {
        let rules = |json: Value| ignore_rules(&serde_json::from_value::<Vec<_>>(json).unwrap()).unwrap();
        let desired =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "ns"}});
        let whole = rules(json!([{"paths": [""], "target": {"kind": "ConfigMap", "name": "we."}}]));
        assert!(whole.of(&desired).iter().any(|path| path.is_empty()));
        let anchored = rules(json!([{"paths": [""], "target": {"kind": "ConfigMap", "name": "we"}}]));
        assert!(anchored.of(&desired).is_empty(), "a name is matched from end to end");
    }

    #[test]
    fn what_is_marked_is_left_out() {
        let marked = |place: &str, value: &str| json!({"metadata": {place: {"helm.toolkit.fluxcd.io/driftDetection": value}}});
        assert!(
            is_excluded(&marked("labels", "disabled")) && is_excluded(&marked("annotations", "Disabled"))
        );
        assert!(!is_excluded(&marked("labels", "enabled")));
    }

    #[test]
    fn the_summary_has_a_line_for_each_object() {
        let id = |name: &str| ObjectId {
            group: String::new(),
            version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "ns".into(),
            name: name.into(),
        };
        let entry = |name: &str, difference| Entry { id: id(name), desired: Value::Null, difference };
        let drift =
            Drift { entries: vec![entry("a", Difference::Missing), entry("b", Difference::Excluded)] };
        assert_eq!(drift.summary(), "ConfigMap/ns/a removed\nConfigMap/ns/b excluded");
        assert!(drift.has_changes());
        assert!(!Drift { entries: vec![entry("b", Difference::Excluded)] }.has_changes());
    }
}
