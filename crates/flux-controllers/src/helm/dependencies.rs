//! `dependsOn`: of which kind a dependency is, and whether it is ready. Pure.

use flux_api::kinds::{self, Kind};
use flux_api::meta::DependencyReference;
use flux_apply::health::{Status, judge};
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::Value;

use super::prerequisites::Unmet;

/// What a dependency is.
#[derive(Debug, PartialEq, Eq)]
pub enum Of {
    /// A kind that is watched here.
    Watched(&'static Kind),
    Other {
        api_version: String,
        kind: String,
    },
}

/// The kind of a dependency: a HelmRelease, unless it says otherwise.
pub fn kind(reference: &DependencyReference) -> Result<Of, Unmet> {
    let kind = reference.kind.as_deref().unwrap_or(kinds::HELM_RELEASE.kind);
    let group = reference
        .api_version
        .as_deref()
        .map(|version| version.split_once('/').map_or("", |(group, _)| group));
    let watched = [&kinds::HELM_RELEASE, &kinds::KUSTOMIZATION].into_iter().find(|known| known.kind == kind);
    if let Some(known) = watched.filter(|known| group.is_none_or(|group| group == known.group)) {
        return Ok(Of::Watched(known));
    }
    let known = kinds::by_kind(kind).map(Kind::api_version);
    let api_version = reference.api_version.clone().or(known).ok_or_else(|| {
        let name = &reference.name;
        Unmet::Expression(format!(
            "spec.dependsOn: '{kind}/{name}' needs an apiVersion, since {kind} is not one of Flux's kinds"
        ))
    })?;
    Ok(Of::Other { api_version, kind: kind.to_owned() })
}

/// Whether the latest generation was looked at and is Ready.
pub fn is_ready(object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    number("/status/observedGeneration") == number("/metadata/generation") && says_ready(object)
}

/// The same for kinds of others, some of which keep no count of generations.
pub fn is_healthy(object: &Value, now: i64) -> bool {
    says_ready(object) && judge(object, now).status == Status::Current
}

fn says_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "True")
}

/// An expression that cannot be read is a mistake in the spec; one that fails on what is there now may hold later.
pub fn holds(expression: &str, name: &str, this: &Value, dependency: &Value) -> Result<bool, Unmet> {
    let environment = Environment::new()
        .with("self", Type::Dyn)
        .with("dep", Type::Dyn)
        .returning(Type::Bool)
        .with_libraries(Libraries::Extended);
    let program = Program::compile(expression, &environment).map_err(|error| {
        Unmet::Expression(format!(
            "failed to evaluate dependency {name}: failed to compile the CEL expression '{expression}': {error}"
        ))
    })?;
    let bindings = Bindings::new().with_json("self", this).with_json("dep", dependency);
    match program.eval(&bindings) {
        Ok(value) => Ok(value.as_bool() == Some(true)),
        Err(error) => {
            Err(Unmet::Dependency(format!("failed to evaluate the CEL expression '{expression}': {error}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kustomization_can_be_depended_on() {
        let of = |json: Value| kind(&serde_json::from_value::<DependencyReference>(json).unwrap());
        assert_eq!(of(json!({"name": "a"})).unwrap(), Of::Watched(&kinds::HELM_RELEASE));
        let kustomization = Of::Watched(&kinds::KUSTOMIZATION);
        assert_eq!(of(json!({"name": "a", "kind": "Kustomization"})).unwrap(), kustomization);
        let full =
            json!({"name": "a", "kind": "Kustomization", "apiVersion": "kustomize.toolkit.fluxcd.io/v1"});
        assert_eq!(of(full).unwrap(), kustomization);
    }

    #[test]
    fn another_kind_needs_an_api_version_unless_it_is_one_of_fluxs() {
        let of = |json: Value| kind(&serde_json::from_value::<DependencyReference>(json).unwrap());
        let other = |api_version: &str, kind: &str| Of::Other {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let deployment = json!({"name": "a", "kind": "Deployment", "apiVersion": "apps/v1"});
        assert_eq!(of(deployment).unwrap(), other("apps/v1", "Deployment"));
        let bucket = json!({"name": "a", "kind": "Bucket"});
        assert_eq!(of(bucket).unwrap(), other("source.toolkit.fluxcd.io/v1", "Bucket"));
        let foreign = json!({"name": "a", "kind": "Kustomization", "apiVersion": "x/v1"});
        assert_eq!(of(foreign).unwrap(), other("x/v1", "Kustomization"));
        let problem = of(json!({"name": "a", "kind": "Deployment"})).unwrap_err().to_string();
        assert!(problem.contains("'Deployment/a' needs an apiVersion"), "{problem}");
    }

    #[test]
    fn readiness_is_of_the_latest_generation() {
        let object = |observed: Value, status: &str| {
            json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a", "generation": 2},
                "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": status}]}})
        };
        assert!(is_ready(&object(json!(2), "True")));
        assert!(!is_ready(&object(json!(1), "True")) && !is_ready(&object(json!(2), "False")));
        assert!(is_healthy(&object(Value::Null, "True"), 0) && !is_ready(&object(Value::Null, "True")));
        assert!(!is_healthy(&object(json!(1), "True"), 0) && !is_healthy(&object(json!(2), "False"), 0));
        let silent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert!(!is_healthy(&silent, 0), "what says nothing of itself is not ready");
    }

    #[test]
    fn an_expression_sees_both_objects() {
        let this = json!({"metadata": {"labels": {"v": "2"}}});
        let dependency = |v: &str| json!({"status": {"v": v}});
        let expression = "dep.status.v == self.metadata.labels.v";
        assert!(holds(expression, "d", &this, &dependency("2")).unwrap());
        assert!(!holds(expression, "d", &this, &dependency("1")).unwrap());
        assert!(matches!(holds(expression, "d", &this, &json!({})), Err(Unmet::Dependency(_))));
        assert!(matches!(holds("dep.", "d", &this, &json!({})), Err(Unmet::Expression(_))));
    }
}
