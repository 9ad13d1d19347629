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
