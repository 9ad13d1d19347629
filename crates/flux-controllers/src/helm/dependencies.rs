//! `dependsOn`: of which kind a dependency is, and whether it is ready. Pure.

use flux_api::kinds::{self, Kind};
use flux_api::meta::DependencyReference;
use kube::api::DynamicObject;
use kube_cel::{Bindings, Environment, Libraries, Program, Type};
use serde_json::Value;

use super::prerequisites::Unmet;

/// The kind of a dependency: a HelmRelease, unless it says otherwise.
pub fn kind(reference: &DependencyReference) -> Result<&'static Kind, String> {
    let kind = reference.kind.as_deref().unwrap_or(kinds::HELM_RELEASE.kind);
    let known = [&kinds::HELM_RELEASE, &kinds::KUSTOMIZATION].into_iter().find(|known| known.kind == kind);
    let group = reference.api_version.as_deref().map(|version| version.split('/').next().unwrap_or_default());
    known.filter(|known| group.is_none_or(|group| group == known.group)).ok_or_else(|| {
        format!(
            "dependency '{}': kind '{kind}' cannot be depended on; choose HelmRelease or Kustomization",
            reference.name
        )
    })
}

/// Whether the latest generation was looked at and is Ready.
pub fn is_ready(object: &DynamicObject) -> bool {
    let observed = object.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
    observed == object.metadata.generation && ready.is_some_and(|ready| ready["status"] == "True")
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
        let reference = |json: Value| serde_json::from_value::<DependencyReference>(json).unwrap();
        assert_eq!(kind(&reference(json!({"name": "a"}))).unwrap().kind, "HelmRelease");
        assert_eq!(
            kind(&reference(json!({"name": "a", "kind": "Kustomization"}))).unwrap().kind,
            "Kustomization"
        );
        let full =
            json!({"name": "a", "kind": "Kustomization", "apiVersion": "kustomize.toolkit.fluxcd.io/v1"});
        assert_eq!(kind(&reference(full)).unwrap().kind, "Kustomization");
        assert!(kind(&reference(json!({"name": "a", "kind": "Deployment"}))).is_err());
        assert!(
            kind(&reference(json!({"name": "a", "kind": "Kustomization", "apiVersion": "x/v1"}))).is_err()
        );
    }

    #[test]
    fn readiness_is_of_the_latest_generation() {
        let object = |observed: i64, status: &str| -> DynamicObject {
            serde_json::from_value(json!({"metadata": {"name": "a", "generation": 2},
                "status": {"observedGeneration": observed, "conditions": [{"type": "Ready", "status": status}]}}))
            .unwrap()
        };
        assert!(is_ready(&object(2, "True")));
        assert!(!is_ready(&object(1, "True")) && !is_ready(&object(2, "False")));
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
