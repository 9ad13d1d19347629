//! Whether an Alert wants an event: its sources, its severity, its expressions over the message.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use flux_api::Object;
use flux_api::notification::{Alert, AlertSpec, EventSeverity, EventSource};
use regex::Regex;

use super::event::Event;

/// Larger programs are refused; matching itself is linear.
const LARGEST_EXPRESSION: usize = 1 << 20;
const KEPT: usize = 1024;

/// Whether the sources of an Alert name the object of an event.
#[derive(Debug, PartialEq)]
pub enum Interest<'a> {
    No,
    Yes,
    /// If the object has the labels of one of these sources.
    IfLabelled(Vec<&'a EventSource>),
}

pub fn interest<'a>(alert: &'a Alert, event: &Event) -> Interest<'a> {
    if alert.spec.suspend {
        return Interest::No;
    }
    let object = &event.involved_object;
    let mut labelled = Vec::new();
    for source in &alert.spec.event_sources {
        let namespace = source.namespace.as_deref().unwrap_or_else(|| alert.namespace());
        let named = source.name == "*" || source.name == object.name;
        if object.namespace != namespace || object.kind != source.kind.as_str() || !named {
            continue;
        }
        if source.match_labels.is_empty() {
            return Interest::Yes;
        }
        labelled.push(source);
    }
    if labelled.is_empty() { Interest::No } else { Interest::IfLabelled(labelled) }
}

/// Whether the event is grave enough for the Alert.
pub fn severity_fits(alert: &AlertSpec, event: &Event) -> bool {
    match alert.event_severity() {
        EventSeverity::Info => true,
        EventSeverity::Error => event.is_error(),
    }
}

pub fn has_labels(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// What the lists say about a message, and which expressions cannot be read.
#[derive(Debug, Default, PartialEq)]
pub struct Verdict {
    pub passes: bool,
    pub problems: Vec<String>,
}

/// At least one inclusion (where there are any) and no exclusion; one that cannot be read matches nothing.
pub fn judge(spec: &AlertSpec, message: &str, expressions: &Expressions) -> Verdict {
    let mut problems = Vec::new();
    let mut any = |list: &[String], what: &str| {
        list.iter().any(|text| match expressions.get(text) {
            Some(expression) => expression.is_match(message),
            None => {
                problems.push(format!("failed to compile {what} regex: {text}"));
                false
            }
        })
    };
    let included = spec.inclusion_list.is_empty() || any(&spec.inclusion_list, "inclusion");
    let passes = included && !any(&spec.exclusion_list, "exclusion");
    Verdict { passes, problems }
}

/// Expressions that were compiled before.
#[derive(Default)]
pub struct Expressions(Mutex<HashMap<String, Option<Arc<Regex>>>>);

impl Expressions {
    fn get(&self, text: &str) -> Option<Arc<Regex>> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            return known.clone();
        }
        let fresh = regex::RegexBuilder::new(text).size_limit(LARGEST_EXPRESSION).build().ok().map(Arc::new);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(text.to_owned(), fresh.clone());
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use serde_json::json;

    fn alert(spec: serde_json::Value) -> Alert {
        let mut whole = json!({ "providerRef": { "name": "p" }, "eventSources": [{ "kind": "GitRepository", "name": "*" }] });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        serde_json::from_value(
            json!({ "metadata": { "name": "a", "namespace": "gitops-system" }, "spec": whole }),
        )
        .unwrap()
    }

    fn wants(spec: serde_json::Value, event: &Event) -> bool {
        let alert = alert(spec);
        severity_fits(&alert.spec, event) && interest(&alert, event) == Interest::Yes
    }

    #[test]
    fn sources_are_matched_by_kind_name_and_namespace() {
        let event = example();
        let source = |source: serde_json::Value| json!({ "eventSources": [{ "kind": "Bucket", "name": "*" }, source] });
        assert!(wants(json!({}), &event));
        assert!(wants(source(json!({ "kind": "GitRepository", "name": "webapp" })), &event));
        assert!(wants(
            source(json!({ "kind": "GitRepository", "name": "*", "namespace": "gitops-system" })),
            &event
        ));
        assert!(!wants(source(json!({ "kind": "GitRepository", "name": "web" })), &event));
        assert!(!wants(
            source(json!({ "kind": "GitRepository", "name": "*", "namespace": "other" })),
            &event
        ));
        assert!(!wants(source(json!({ "kind": "Kustomization", "name": "*" })), &event));
        assert!(!wants(json!({ "suspend": true }), &event));
        let labelled =
            alert(source(json!({ "kind": "GitRepository", "name": "*", "matchLabels": { "a": "b" } })));
        assert!(matches!(interest(&labelled, &event), Interest::IfLabelled(sources) if sources.len() == 1));
    }

    #[test]
    fn info_is_everything_and_error_is_errors() {
        let failed = Event { severity: "error".to_owned(), ..example() };
        assert!(wants(json!({ "eventSeverity": "info" }), &failed));
        assert!(wants(json!({ "eventSeverity": "error" }), &failed));
        assert!(!wants(json!({ "eventSeverity": "error" }), &example()));
        assert!(wants(json!({}), &Event { severity: "trace".to_owned(), ..example() }));
    }

    #[test]
    fn labels_must_all_be_there() {
        let map = |text: &str| -> BTreeMap<String, String> {
            text.split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect()
        };
        assert!(has_labels(&map("a=1"), &map("a=1,b=2")));
        assert!(!has_labels(&map("a=1,b=3"), &map("a=1,b=2")));
        assert!(!has_labels(&map("a=1"), &map("")));
    }

    #[test]
    fn lists_include_and_then_exclude() {
        let known = Expressions::default();
        let passes =
            |spec: serde_json::Value, message: &str| judge(&alert(spec).spec, message, &known).passes;
        assert!(passes(json!({}), "anything"));
        let spec = json!({ "inclusionList": ["^stored .*", "fail"], "exclusionList": ["timeout$"] });
        assert!(passes(spec.clone(), "stored artifact"));
        assert!(!passes(spec.clone(), "no changes"));
        assert!(!passes(spec, "failed: timeout"));
        let broken =
            judge(&alert(json!({ "inclusionList": ["["], "exclusionList": ["("] })).spec, "x", &known);
        assert_eq!(
            broken,
            Verdict { passes: false, problems: vec!["failed to compile inclusion regex: [".to_owned()] }
        );
        let broken = judge(&alert(json!({ "exclusionList": ["("] })).spec, "x", &known);
        assert_eq!((broken.passes, broken.problems.len()), (true, 1));
    }

    #[test]
    fn an_expression_that_would_cost_too_much_matches_nothing() {
        let known = Expressions::default();
        let spec = json!({ "exclusionList": ["((((((a{100}){100}){100}){100}){100}){100})"] });
        let verdict = judge(&alert(spec).spec, &"a".repeat(100_000), &known);
        assert_eq!((verdict.passes, verdict.problems.len()), (true, 1));
        // A pattern that drives backtracking engines to exponential time.
        assert!(
            judge(
                &alert(json!({ "exclusionList": ["^(a+)+$"] })).spec,
                &format!("{}!", "a".repeat(100_000)),
                &known
            )
            .passes
        );
    }
}
