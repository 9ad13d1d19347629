//! Showing an object in another version of its kind.
//!
//! Custom kinds have `None` conversion: only `apiVersion` changes. Of the builtin kinds two are served twice:
//! HorizontalPodAutoscaler (autoscaling v1 and v2) and Event (core and events.k8s.io).

use serde_json::{Map, Value, json};

use crate::kinds::Resource;
use crate::object::{child_mut, text};

/// The object in `resource`'s version.
pub fn to(resource: &Resource, mut object: Value) -> Value {
    let wanted = resource.api_version();
    if text(&object, "/apiVersion") == wanted {
        return object;
    }
    match (&*resource.storage, &*wanted) {
        ("horizontalpodautoscalers.autoscaling", "autoscaling/v1") => autoscaler_to_v1(&mut object),
        ("horizontalpodautoscalers.autoscaling", _) => autoscaler_to_v2(&mut object),
        ("events", "v1") => event_to_core(&mut object),
        ("events", _) => event_to_events(&mut object),
        _ => {}
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), wanted.into());
        fields.insert("kind".into(), (&*resource.kind).into());
    }
    object
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

fn autoscaler_to_v1(object: &mut Value) {
    let spec = child_mut(object, "spec");
    let metrics = spec.remove("metrics");
    spec.remove("behavior");
    let Some(Value::Array(metrics)) = metrics else { return };
    let (cpu, others): (Vec<Value>, Vec<Value>) = metrics.into_iter().partition(is_cpu_utilization);
    if let Some(target) = cpu.first().and_then(|metric| metric.pointer("/resource/target/averageUtilization"))
    {
        spec.insert("targetCPUUtilizationPercentage".into(), target.clone());
    }
    if !others.is_empty() {
        let text = serde_json::to_string(&others).expect("a JSON value has string keys");
        let annotations = crate::object::map_in(crate::object::meta_mut(object), "annotations");
        annotations.insert(METRICS.into(), text.into());
    }
}

fn is_cpu_utilization(metric: &Value) -> bool {
    text(metric, "/type") == "Resource"
        && text(metric, "/resource/name") == "cpu"
        && metric.pointer("/resource/target/averageUtilization").is_some()
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut metrics = Vec::new();
    if let Some(target) = child_mut(object, "spec").remove("targetCPUUtilizationPercentage") {
        metrics.push(json!({
            "type": "Resource",
            "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": target } },
        }));
    }
    if let Some(annotations) =
        crate::object::meta_mut(object).get_mut("annotations").and_then(Value::as_object_mut)
        && let Some(Value::String(text)) = annotations.remove(METRICS)
        && let Ok(Value::Array(others)) = serde_json::from_str(&text)
    {
        metrics.extend(others);
    }
    if !metrics.is_empty() {
        child_mut(object, "spec").insert("metrics".into(), metrics.into());
    }
}

/// Names of the same field in core/v1 and events.k8s.io/v1.
const EVENT_FIELDS: [(&str, &str); 8] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingInstance", "reportingInstance"),
];

fn event_to_core(object: &mut Value) {
    rename(object, |(core, new)| (new, core));
}

fn event_to_events(object: &mut Value) {
    rename(object, |(core, new)| (core, new));
}

fn rename(
    object: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(fields) = object.as_object_mut() else { return };
    let taken: Map<String, Value> = EVENT_FIELDS
        .into_iter()
        .map(direction)
        .filter_map(|(from, to)| Some((to.to_owned(), fields.remove(from)?)))
        .collect();
    fields.extend(taken);
}
