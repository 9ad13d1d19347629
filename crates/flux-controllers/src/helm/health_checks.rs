//! `spec.healthCheckExprs`: kinds whose health is told in CEL over the object's fields. Pure.

use flux_api::meta::CustomHealthCheck;
use flux_apply::health::{Health, Status};
use kube_cel::{Bindings, Libraries, Program};
use serde_json::Value;

/// The expressions of one HelmRelease, compiled.
#[derive(Debug, Default)]
pub struct HealthChecks(Vec<Check>);

#[derive(Debug)]
struct Check {
    group: String,
    /// Every kind of the group that has no check of its own.
    kind: Option<String>,
    in_progress: Option<Program>,
    failed: Option<Program>,
    current: Program,
}

impl HealthChecks {
    pub fn new(checks: &[CustomHealthCheck]) -> Result<Self, String> {
        let mut compiled: Vec<Check> = Vec::new();
        for (index, check) in checks.iter().enumerate() {
            let program = |name: &str, text: &str| {
                Program::unchecked(text, Libraries::Extended).map_err(|error| {
                    format!("failed to create custom status evaluator for healthchecks[{index}]: failed to parse the expression {name}: failed to parse the CEL expression '{text}': {error}")
                })
            };
            let one = Check {
                group: group_of(&check.api_version).to_owned(),
                kind: check.kind.clone(),
                in_progress: check
                    .in_progress
                    .as_deref()
                    .map(|text| program("InProgress", text))
                    .transpose()?,
                failed: check.failed.as_deref().map(|text| program("Failed", text)).transpose()?,
                current: program("Current", &check.current)?,
            };
            if compiled.iter().any(|known| known.group == one.group && known.kind == one.kind) {
                let kind = one.kind.unwrap_or_default();
                return Err(format!(
                    "duplicate custom health check for GroupKind {kind}.{} at healthchecks[{index}]",
                    one.group
                ));
            }
            compiled.push(one);
        }
        Ok(Self(compiled))
    }

    /// What the expressions say of `object`; `None` when there are none for its kind.
    pub fn judge(&self, object: &Value) -> Option<Health> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let group = group_of(text("apiVersion"));
        let of_kind = |kind: Option<&str>| {
            self.0.iter().find(|check| check.group == group && check.kind.as_deref() == kind)
        };
        of_kind(Some(text("kind"))).or_else(|| of_kind(None)).map(|check| check.judge(object))
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl Check {
    fn judge(&self, object: &Value) -> Health {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
        if let (Some(observed), Some(generation)) =
            (number("/status/observedGeneration"), number("/metadata/generation"))
            && observed != generation
        {
            return health(Status::InProgress, "the latest generation has not been observed");
        }
        let steps = [
            (self.in_progress.as_ref(), Status::InProgress),
            (self.failed.as_ref(), Status::Failed),
            (Some(&self.current), Status::Current),
        ];
        for (program, status) in steps {
            match program.map(|program| holds(program, object)) {
                Some(Ok(true)) => return health(status, "by spec.healthCheckExprs"),
                Some(Ok(false)) | None => {}
                Some(Err(problem)) => return health(Status::Unknown, &problem),
            }
        }
        health(Status::InProgress, "no expression of spec.healthCheckExprs holds yet")
    }
}

fn holds(program: &Program, object: &Value) -> Result<bool, String> {
    let Some(fields) = object.as_object() else {
        return Err("is no object".to_owned());
    };
    match program.eval(&Bindings::new().with_fields_of(fields)) {
        Ok(value) => value
            .as_bool()
            .ok_or_else(|| "an expression of spec.healthCheckExprs is neither true nor false".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn health(status: Status, message: &str) -> Health {
    Health { status, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checks(json: Value) -> Result<HealthChecks, String> {
        HealthChecks::new(&serde_json::from_value::<Vec<CustomHealthCheck>>(json).unwrap())
    }

    #[test]
    fn the_first_expression_that_holds_decides() {
        let checks = checks(json!([
            {"apiVersion": "x.org/v1", "kind": "Widget", "inProgress": "status.phase == 'Making'", "failed": "status.phase == 'Broken'", "current": "status.phase == 'Made'"},
            {"apiVersion": "x.org/v1", "current": "has(status.ok)"},
        ]))
        .unwrap();
        let status = |kind: &str, status: Value| {
            let object = json!({"apiVersion": "x.org/v2", "kind": kind, "metadata": {}, "status": status});
            checks.judge(&object).map(|health| health.status)
        };
        assert_eq!(status("Widget", json!({"phase": "Made"})), Some(Status::Current));
        assert_eq!(status("Widget", json!({"phase": "Making"})), Some(Status::InProgress));
        assert_eq!(status("Widget", json!({"phase": "Broken"})), Some(Status::Failed));
        assert_eq!(status("Widget", json!({"phase": "?"})), Some(Status::InProgress));
        assert_eq!(status("Widget", json!({})), Some(Status::Unknown));
        assert_eq!(status("Gadget", json!({"ok": 1})), Some(Status::Current), "any other kind of the group");
        assert_eq!(checks.judge(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})), None);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let problem = checks(json!([{"apiVersion": "x/v1", "kind": "A", "current": "status."}])).unwrap_err();
        assert!(problem.starts_with("failed to create custom status evaluator for healthchecks[0]: failed to parse the expression Current: "), "{problem}");
        let twice = json!([{"apiVersion": "x/v1", "kind": "A", "current": "true"}, {"apiVersion": "x/v2", "kind": "A", "current": "true"}]);
        assert_eq!(
            checks(twice).unwrap_err(),
            "duplicate custom health check for GroupKind A.x at healthchecks[1]"
        );
    }
}
