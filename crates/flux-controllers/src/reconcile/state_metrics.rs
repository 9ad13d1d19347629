//! What the objects say about themselves, as metrics: read from the cache when somebody asks.

use std::sync::Arc;

use flux_api::condition::{READY, RECONCILING, STALLED};
use flux_api::kinds::Kind;
use flux_remote::transport::shown_text;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::Cache;
use super::metrics::{Page, RECONCILE_CONDITION, RESOURCE_INFO, SUSPEND_STATUS};
use super::run::Shard;

/// Adds the objects of `kind` that this process works on.
pub fn collect(page: &mut Page, cache: &Cache, kind: &'static Kind, shard: &Shard, resource_info: bool) {
    for object in cache.list(kind).into_iter().filter(|object| shard.includes(object)) {
        if kind.has_status {
            conditions(page, kind, &object);
        }
        if kind.can_suspend {
            let suspended = if is_suspended(&object) { 1.0 } else { 0.0 };
            page.number(&SUSPEND_STATUS, &named(kind, &object, &namespace(&object)), suspended);
        }
        if resource_info {
            info(page, kind, &object);
        }
    }
}

fn named<'a>(kind: &'a Kind, object: &'a DynamicObject, namespace: &'a str) -> [&'a str; 3] {
    [kind.kind, object.metadata.name.as_deref().unwrap_or_default(), namespace]
}

fn namespace(object: &DynamicObject) -> String {
    object.namespace().unwrap_or_default()
}

/// One series for each condition and status; exactly one of the three statuses is 1.
fn conditions(page: &mut Page, kind: &Kind, object: &DynamicObject) {
    let namespace = namespace(object);
    let [kind, name, namespace] = named(kind, object, &namespace);
    for condition in [READY, RECONCILING, STALLED] {
        let found = condition_status(object, condition).unwrap_or("Unknown");
        for status in ["True", "False", "Unknown"] {
            let number = if status == found { 1.0 } else { 0.0 };
            page.number(&RECONCILE_CONDITION, &[kind, name, namespace, condition, status], number);
        }
    }
}

fn condition_status<'a>(object: &'a DynamicObject, wanted: &str) -> Option<&'a str> {
    let conditions = object.data.pointer("/status/conditions")?.as_array()?;
    let found = conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(wanted))?;
    found.get("status").and_then(Value::as_str)
}

fn is_suspended(object: &DynamicObject) -> bool {
    object.data.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false)
}

/// The labels that Flux's dashboards read from kube-state-metrics.
fn info(page: &mut Page, kind: &Kind, object: &Arc<DynamicObject>) {
    let text = |paths: &[&str]| {
        paths.iter().find_map(|path| object.data.pointer(path).and_then(Value::as_str)).unwrap_or_default()
    };
    let revision = text(&[
        "/status/lastAppliedRevision",
        "/status/artifact/revision",
        "/status/history/0/chartVersion",
        "/status/lastScanResult/revision",
    ]);
    let source = text(&["/spec/sourceRef/name", "/spec/chart/spec/sourceRef/name", "/spec/chartRef/name"]);
    let suspended = if is_suspended(object) { "true" } else { "false" };
    let namespace = namespace(object);
    let ready = condition_status(object, READY).unwrap_or("Unknown");
    let labels = [
        object.metadata.name.as_deref().unwrap_or_default(),
        &namespace,
        kind.group,
        kind.version,
        kind.kind,
        ready,
        suspended,
        revision,
        source,
        &shown_text(text(&["/spec/url"])),
    ];
    page.number(&RESOURCE_INFO, &labels, 1.0);
}
