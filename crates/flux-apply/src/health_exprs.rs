//! Health of kinds that kstatus knows nothing of, told in CEL (`spec.healthCheckExprs`). Pure.

use std::collections::BTreeMap;

use flux_api::meta::CustomHealthCheck;
use kube_cel::{Bindings, Libraries, Program};
use serde_json::Value;

use crate::health::{self, Health, Status};

/// How health is judged: by expressions where there are some, else by the rules of kstatus.
#[derive(Debug, Default)]
pub struct Judge {
    by_kind: BTreeMap<(String, String), Compiled>,
}

#[derive(Debug)]
struct Compiled {
    in_progress: Option<Program>,
    failed: Option<Program>,
    current: Program,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("duplicate custom health check for GroupKind {kind} at healthchecks[{index}]")]
    Duplicate { kind: String, index: usize },
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: failed to parse the expression {name}: \
         failed to parse the CEL expression '{text}': {problem}"
    )]
    Invalid { index: usize, name: &'static str, text: String, problem: String },
}

impl Judge {
    /// A check without a kind holds for every kind of its group that has none of its own.
    pub fn new(checks: &[CustomHealthCheck]) -> Result<Self, Error> {
        let mut by_kind = BTreeMap::new();
        for (index, check) in checks.iter().enumerate() {
            let group = check.api_version.split_once('/').map_or("", |(group, _)| group);
            let kind = check.kind.as_deref().unwrap_or_default();
            let compiled = compile(check, index)?;
            if by_kind.insert((group.to_owned(), kind.to_owned()), compiled).is_some() {
                return Err(Error::Duplicate { kind: shown(group, kind), index });
            }
        }
        Ok(Self { by_kind })
    }

    /// Judges `object` at `now`, in seconds since the epoch.
    pub fn judge(&self, object: &Value, now: i64) -> Health {
        self.by_expressions(object).unwrap_or_else(|| health::judge(object, now))
    }

    /// What the expressions say of `object`; `None` when there are none for its kind.
    pub fn by_expressions(&self, object: &Value) -> Option<Health> {
        self.expressions(object).map(|compiled| compiled.judge(object))
    }

    fn expressions(&self, object: &Value) -> Option<&Compiled> {
        if self.by_kind.is_empty() {
            return None;
        }
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group).to_owned();
        let exact = self.by_kind.get(&(group.clone(), text("kind").to_owned()));
        exact.or_else(|| self.by_kind.get(&(group, String::new())))
    }
}

fn shown(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

fn compile(check: &CustomHealthCheck, index: usize) -> Result<Compiled, Error> {
    let program = |name: &'static str, text: &str| {
        Program::unchecked(text, Libraries::Extended).map_err(|error| Error::Invalid {
            index,
            name,
            text: text.to_owned(),
            problem: error.to_string(),
        })
    };
    Ok(Compiled {
        current: program("Current", &check.current)?,
        failed: check.failed.as_deref().map(|text| program("Failed", text)).transpose()?,
        in_progress: check.in_progress.as_deref().map(|text| program("InProgress", text)).transpose()?,
    })
}

impl Compiled {
    fn judge(&self, object: &Value) -> Health {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
        if let (Some(observed), Some(generation)) =
            (number("/status/observedGeneration"), number("/metadata/generation"))
            && observed != generation
        {
            let message = format!("generation is {generation}, but latest observed generation is {observed}");
            return Health { status: Status::InProgress, message };
        }
        let steps = [
            (self.in_progress.as_ref(), Status::InProgress),
            (self.failed.as_ref(), Status::Failed),
            (Some(&self.current), Status::Current),
        ];
        for (program, status) in steps {
            match program.map(|program| holds(program, object)) {
                Some(Ok(true)) => return Health { status, message: "by spec.healthCheckExprs".to_owned() },
                Some(Ok(false)) | None => {}
                Some(Err(message)) => return Health { status: Status::Unknown, message },
            }
        }
        Health { status: Status::InProgress, message: "no expression holds yet".to_owned() }
    }
}

fn holds(program: &Program, object: &Value) -> Result<bool, String> {
    let Some(fields) = object.as_object() else { return Err("not an object".to_owned()) };
    let value = program.eval(&Bindings::new().with_fields_of(fields)).map_err(|error| error.to_string())?;
    value.as_bool().ok_or_else(|| "the expression gives no true or false".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: Option<&str>, current: &str) -> CustomHealthCheck {
        CustomHealthCheck {
            api_version: "example.org/v1".to_owned(),
            kind: kind.map(str::to_owned),
            in_progress: None,
            failed: None,
            current: current.to_owned(),
        }
    }

    fn widget(phase: &str) -> Value {
        json!({"apiVersion": "example.org/v2", "kind": "Widget", "metadata": {"generation": 1}, "status": {"phase": phase}})
    }

    #[test]
    fn expressions_are_asked_in_order_and_a_missing_answer_is_progress() {
        let all = CustomHealthCheck {
            in_progress: Some("status.phase == 'Working'".to_owned()),
            failed: Some("status.phase == 'Broken' || status.phase == 'Both'".to_owned()),
            ..check(Some("Widget"), "status.phase == 'Done' || status.phase == 'Both'")
        };
        let judge = Judge::new(&[all]).unwrap();
        for (phase, status) in [
            ("Working", Status::InProgress),
            ("Broken", Status::Failed),
            ("Both", Status::Failed),
            ("Done", Status::Current),
            ("Other", Status::InProgress),
        ] {
            assert_eq!(judge.judge(&widget(phase), 0).status, status, "{phase}");
        }
    }

    #[test]
    fn a_generation_that_was_not_observed_is_progress_whatever_the_expression_says() {
        let judge = Judge::new(&[check(Some("Widget"), "true")]).unwrap();
        let mut object = widget("Done");
        object["status"]["observedGeneration"] = json!(0);
        assert_eq!(judge.judge(&object, 0).status, Status::InProgress);
        object["status"]["observedGeneration"] = json!("0");
        assert_eq!(judge.judge(&object, 0).status, Status::Current);
    }

    #[test]
    fn a_whole_group_stands_behind_its_kinds_and_a_run_that_fails_is_unknown() {
        let judge = Judge::new(&[check(None, "false"), check(Some("Widget"), "true")]).unwrap();
        assert_eq!(judge.judge(&widget("x"), 0).status, Status::Current);
        let other = json!({"apiVersion": "example.org/v1", "kind": "Gadget", "status": {}});
        assert_eq!(judge.judge(&other, 0).status, Status::InProgress);
        let judge = Judge::new(&[check(None, "status.missing.deep")]).unwrap();
        assert_eq!(judge.judge(&other, 0).status, Status::Unknown);
        let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        assert_eq!(judge.judge(&foreign, 0).status, Status::Current);
    }

    #[test]
    fn the_same_kind_twice_and_broken_text_are_refused() {
        let error = Judge::new(&[check(Some("Widget"), "true"), check(Some("Widget"), "false")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "duplicate custom health check for GroupKind Widget.example.org at healthchecks[1]"
        );
        assert!(matches!(Judge::new(&[check(None, "a ==")]), Err(Error::Invalid { name: "Current", .. })));
    }
}
