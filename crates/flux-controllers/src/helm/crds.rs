//! The CRDs of a chart: applied by the policy of the spec before anything is rendered, never removed.

use std::time::Duration;

use flux_api::helm::CRDsPolicy;
use flux_apply::ObjectId;
use flux_apply::apply::Cause;
use helm::Crd;
use helm::plan::How;
use serde_json::Value;

use super::execute::{Executor, refused};
use super::fault::Fault;
use super::wait::Subject;

const ESTABLISHED_WITHIN: Duration = Duration::from_secs(60);

/// All objects below `crds/`, of whatever kind.
pub fn objects(crds: &[Crd]) -> Result<Vec<Value>, Fault> {
    let mut found = Vec::new();
    for crd in crds {
        let unreadable = |problem: String| {
            Fault::new(format!("failed to parse CustomResourceDefinitions from {}: {problem}", crd.path))
        };
        let options = yaml::Options::new(yaml::Schema::V3);
        let documents =
            yaml::parse_stream(&crd.data, &options).map_err(|error| unreadable(error.to_string()))?;
        for document in documents.iter().filter(|document| !document.root.is_null()) {
            let object =
                yaml::kustomize_json(&document.root).map_err(|error| unreadable(error.to_string()))?;
            found.push(object);
        }
    }
    Ok(found)
}

/// What definitions define: `group/version` and kind of every version that is served.
pub fn defined(objects: &[Value]) -> Vec<(String, String)> {
    let definitions =
        objects.iter().filter(|object| ObjectId::of(object).is_some_and(|id| is_definition(&id)));
    let mut found = Vec::new();
    for object in definitions {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let versions = object.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten().filter(|version| version["served"] == true) {
            let name = version["name"].as_str().unwrap_or_default();
            found.push((format!("{}/{name}", text("/spec/group")), text("/spec/names/kind").to_owned()));
        }
    }
    found
}

/// Whether a definition that exists stays as it is. Applied from the server side, even `Create` brings it to the chart's
/// state, as upstream.
pub fn leaves_existing(policy: CRDsPolicy, server_side: bool) -> bool {
    match policy {
        CRDsPolicy::Skip => true,
        CRDsPolicy::Create => !server_side,
        CRDsPolicy::CreateReplace => false,
    }
}

/// How the definition of a cluster lacks what the chart's has. What it has beyond that is nobody's business here.
fn outdated(wanted: &Value, live: Option<&Value>) -> Option<String> {
    let Some(live) = live else { return Some("is not there".to_owned()) };
    let versions = |object: &Value| {
        object.pointer("/spec/versions").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let live = versions(live);
    versions(wanted).iter().find_map(|version| {
        let name = version["name"].as_str().unwrap_or_default();
        match live.iter().find(|known| known["name"] == version["name"]) {
            None => Some(format!("has no version {name}")),
            Some(known) => {
                lacks(version, known, String::new()).map(|at| format!("differs in {name} at {at}"))
            }
        }
    })
}

/// The first place where `live` does not have what `wanted` has.
fn lacks(wanted: &Value, live: &Value, at: String) -> Option<String> {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => wanted.iter().find_map(|(key, value)| {
            lacks(value, live.get(key).unwrap_or(&Value::Null), format!("{at}/{key}"))
        }),
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            let mut pairs = wanted.iter().zip(live).enumerate();
            pairs.find_map(|(index, (wanted, live))| lacks(wanted, live, format!("{at}/{index}")))
        }
        (wanted, live) => (wanted != live).then_some(at),
    }
}

fn is_definition(id: &ObjectId) -> bool {
    id.group == "apiextensions.k8s.io" && id.kind == "CustomResourceDefinition"
}

impl Executor<'_> {
    /// Whether any CRD was written, after which kinds are asked for again.
    pub(super) async fn apply_crds(
        &self,
        objects: &[Value],
        policy: CRDsPolicy,
        server_side: bool,
        labels: &[(String, String)],
    ) -> Result<bool, Fault> {
        if policy == CRDsPolicy::Skip {
            return Ok(false);
        }
        let mut written = Vec::new();
        for object in objects {
            let Some(id) = ObjectId::of(object) else { continue };
            if !is_definition(&id) {
                tracing::warn!(object = %id, "ignored in the chart's crds folder, which is for CustomResourceDefinitions only");
                continue;
            }
            let mut object = object.clone();
            for (key, value) in labels {
                super::render::put(&mut object, "labels", key, value);
            }
            let answer = self.apply_crd(&id, &object, policy, server_side).await?;
            if let Some(answer) = answer {
                written.push(Subject::new(id, None).seen(Some(answer)));
            }
        }
        if written.is_empty() {
            return Ok(false);
        }
        let wait = self.waiter.until_ready(self.cluster, written, false, ESTABLISHED_WITHIN);
        self.worker
            .outside(wait)
            .await
            .map_err(|fault| fault.prefixed("failed to wait for CustomResourceDefinition(s): "))?;
        self.cluster.mapper.invalidate().await;
        Ok(true)
    }

    /// Definitions that are not what the chart brings along. Whoever may not look at them is told nothing.
    pub(super) async fn outdated_crds(&self, objects: &[Value]) -> Vec<String> {
        let mut found = Vec::new();
        for object in objects {
            let Some(id) = ObjectId::of(object).filter(is_definition) else { continue };
            let Ok(live) = self.cluster.get(&id).await else { continue };
            found.extend(outdated(object, live.as_ref()).map(|how| format!("{} {how}", id.name)));
        }
        found
    }

    async fn apply_crd(
        &self,
        id: &ObjectId,
        object: &Value,
        policy: CRDsPolicy,
        server_side: bool,
    ) -> Result<Option<Value>, Fault> {
        let how = How::ServerSide { force_conflicts: true, adopt_client_side: false };
        let failed = |cause: Cause| {
            refused(id, &how, &cause)
                .prefixed(&format!("failed to create CustomResourceDefinition {}: ", id.name))
        };
        if server_side {
            // Upstream's "Create" applies, too: an existing definition is brought to the chart's state.
            return self.apply_server_side(id, object, true).await.map(Some).map_err(failed);
        }
        let live = self.cluster.get(id).await.map_err(failed)?;
        match (live, policy) {
            (None, _) => self.create(id, object).await.map(Some).map_err(failed),
            (Some(_), CRDsPolicy::Create | CRDsPolicy::Skip) => Ok(None),
            (Some(live), CRDsPolicy::CreateReplace) => {
                self.replace(id, object, Some(&live)).await.map(Some).map_err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_version_is_a_kind_to_wait_for() {
        let object = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.x"},
            "spec": {"group": "x", "names": {"kind": "A"}, "versions": [{"name": "v1", "served": true}, {"name": "v0", "served": false}]},
        });
        let other = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        assert_eq!(defined(&[object, other]), [("x/v1".to_owned(), "A".to_owned())]);
    }

    #[test]
    fn only_what_the_chart_has_and_the_cluster_lacks_is_outdated() {
        let definition = |versions: Value| serde_json::json!({"spec": {"versions": versions}});
        let schema =
            |fields: Value| serde_json::json!({"name": "v1", "served": true, "schema": {"fields": fields}});
        let wanted = definition(serde_json::json!([schema(serde_json::json!({"size": "integer"}))]));
        assert_eq!(outdated(&wanted, None).as_deref(), Some("is not there"));
        let more = schema(serde_json::json!({"size": "integer", "colour": "string"}));
        assert_eq!(outdated(&wanted, Some(&definition(serde_json::json!([more, {"name": "v2"}])))), None);
        let other = definition(serde_json::json!([schema(serde_json::json!({"size": "string"}))]));
        assert_eq!(outdated(&wanted, Some(&other)).as_deref(), Some("differs in v1 at /schema/fields/size"));
        let older = definition(serde_json::json!([{"name": "v1beta1"}]));
        assert_eq!(outdated(&wanted, Some(&older)).as_deref(), Some("has no version v1"));
    }

    #[test]
    fn definitions_that_exist_stay_as_they_are_by_policy_and_method() {
        assert!(leaves_existing(CRDsPolicy::Skip, true) && leaves_existing(CRDsPolicy::Create, false));
        assert!(!leaves_existing(CRDsPolicy::Create, true), "an apply brings them to the chart's state");
        assert!(!leaves_existing(CRDsPolicy::CreateReplace, false));
    }

    #[test]
    fn definitions_of_sub_charts_count_where_those_are_enabled() {
        let file = |name: &str, text: &str| helm::File {
            name: name.to_owned(),
            data: text.to_owned().into(),
            modified: None,
        };
        let files = vec![
            file(
                "Chart.yaml",
                "apiVersion: v2\nname: a\nversion: 1.0.0\ndependencies:\n- {name: sub, version: 1.0.0, condition: sub.enabled}\n",
            ),
            file("charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n"),
            file("charts/sub/crds/a.yaml", "kind: A\n"),
        ];
        let chart = helm::Chart::from_files(files, helm::Limits::default(), helm::Dialect::Helm4).unwrap();
        let found = |enabled: bool| {
            let values = helm::Values::from_json(serde_json::json!({"sub": {"enabled": enabled}})).unwrap();
            helm::crds(&chart, &values, helm::Dialect::Helm4).unwrap().len()
        };
        assert_eq!((found(true), found(false)), (1, 0));
    }

    #[test]
    fn every_document_of_every_file_counts() {
        let file = |text: &str| Crd { path: "c/crds/a.yaml".to_owned(), data: text.to_owned().into() };
        let found =
            objects(&[file("kind: A\n---\n# nothing\n---\nkind: B\n"), file("{\"kind\": \"C\"}")]).unwrap();
        assert_eq!(found.len(), 3);
        let problem = objects(&[file("kind: [")]).unwrap_err().message;
        assert!(
            problem.starts_with("failed to parse CustomResourceDefinitions from c/crds/a.yaml: "),
            "{problem}"
        );
    }
}
