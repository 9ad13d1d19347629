//! Defaults of kinds that make pods.

use serde_json::{Value, json};

use super::{child, child_of, each, fields, get, pod, set, set_all};

pub(super) fn deployment(value: &mut Value) {
    let spec = child(value, "spec");
    pod::template(child(spec, "template"));
    let spec = fields(spec);
    set_all(
        spec,
        [
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("progressDeadlineSeconds", json!(600)),
        ],
    );
    let strategy = child_of(spec, "strategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = child_of(strategy, "rollingUpdate");
        set_all(rolling, [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
    }
}

pub(super) fn replica_set(value: &mut Value) {
    let spec = child(value, "spec");
    pod::template(child(spec, "template"));
    set(fields(spec), "replicas", json!(1));
}

pub(super) fn replication_controller(value: &mut Value) {
    let spec = child(value, "spec");
    if !spec["template"].is_null() {
        pod::template(child(spec, "template"));
    }
    let labels = spec.pointer("/template/metadata/labels").cloned();
    let fields = fields(spec);
    set(fields, "replicas", json!(1));
    if let Some(labels) = labels {
        set(fields, "selector", labels.clone());
        set(child_of(super::fields(value), "metadata"), "labels", labels);
    }
}

pub(super) fn stateful_set(value: &mut Value) {
    let spec = child(value, "spec");
    pod::template(child(spec, "template"));
    let spec = fields(spec);
    set_all(
        spec,
        [
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("podManagementPolicy", json!("OrderedReady")),
            ("serviceName", json!("")),
        ],
    );
    let strategy = child_of(spec, "updateStrategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        set(child_of(strategy, "rollingUpdate"), "partition", json!(0));
    }
    let retention = child_of(spec, "persistentVolumeClaimRetentionPolicy");
    set_all(retention, [("whenDeleted", json!("Retain")), ("whenScaled", json!("Retain"))]);
    for claim in each(spec, "volumeClaimTemplates") {
        set_all(claim, [("kind", json!("PersistentVolumeClaim")), ("apiVersion", json!("v1"))]);
        set(child_of(claim, "spec"), "volumeMode", json!("Filesystem"));
        set(child_of(claim, "status"), "phase", json!("Pending"));
    }
}

pub(super) fn daemon_set(value: &mut Value) {
    // Left from the time before DaemonSets had revisions; the real server still counts it.
    let annotations = child_of(crate::object::meta_mut(value), "annotations");
    set(annotations, "deprecated.daemonset.template.generation", json!("1"));
    let spec = child(value, "spec");
    pod::template(child(spec, "template"));
    let spec = fields(spec);
    set(spec, "revisionHistoryLimit", json!(10));
    let strategy = child_of(spec, "updateStrategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = child_of(strategy, "rollingUpdate");
        set_all(rolling, [("maxUnavailable", json!(1)), ("maxSurge", json!(0))]);
    }
}

pub(super) fn job(value: &mut Value) {
    let labels = value.pointer("/spec/template/metadata/labels").cloned();
    let meta = crate::object::meta_mut(value);
    if let (Some(labels), None) = (labels, meta.get("labels")) {
        meta.insert("labels".into(), labels);
    }
    let spec = child(value, "spec");
    pod::template(child(spec, "template"));
    let policy = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    let per_index = !spec["backoffLimitPerIndex"].is_null();
    let fields = fields(spec);
    if fields.get("completions").is_none() && fields.get("parallelism").is_none() {
        fields.insert("completions".into(), json!(1));
    }
    set_all(
        fields,
        [
            ("parallelism", json!(1)),
            ("backoffLimit", json!(if per_index { i64::from(i32::MAX) } else { 6 })),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("manualSelector", json!(false)),
            ("podReplacementPolicy", json!(policy)),
        ],
    );
}

/// A job's pods are found by labels that only this job has.
pub(crate) fn job_selector(value: &mut Value) {
    let uid = crate::object::uid(value).to_owned();
    let name = crate::object::name(value).to_owned();
    let inherits = value.pointer("/metadata/labels") == value.pointer("/spec/template/metadata/labels");
    let fields = fields(child(value, "spec"));
    if fields.get("manualSelector") == Some(&json!(true)) || fields.contains_key("selector") {
        return;
    }
    fields.insert("selector".into(), json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }));
    let labels = child_of(child_of(child_of(fields, "template"), "metadata"), "labels");
    for (key, label) in [
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        labels.insert(key.into(), label.as_str().into());
    }
    // A job without labels of its own shows its template's, these included.
    let labels = labels.clone();
    if inherits {
        crate::object::set_meta(value, "labels", Some(Value::Object(labels)));
    }
}

pub(super) fn cron_job(value: &mut Value) {
    let spec = child(value, "spec");
    let template = child(spec, "jobTemplate");
    fields(child(template, "metadata"));
    pod::template(child(child(template, "spec"), "template"));
    set_all(
        fields(spec),
        [
            ("concurrencyPolicy", json!("Allow")),
            ("suspend", json!(false)),
            ("successfulJobsHistoryLimit", json!(3)),
            ("failedJobsHistoryLimit", json!(1)),
        ],
    );
}

pub(super) fn autoscaler(version: &str, value: &mut Value) {
    let spec = fields(child(value, "spec"));
    set(spec, "minReplicas", json!(1));
    if version == "v2" {
        let none = spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if none {
            let target = json!({ "type": "Utilization", "averageUtilization": 80 });
            spec.insert(
                "metrics".into(),
                json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]),
            );
        }
        if let Some(behavior) = get(spec, "behavior") {
            scaling_rules(behavior);
        }
    } else if spec.get("targetCPUUtilizationPercentage").is_none() {
        spec.insert("targetCPUUtilizationPercentage".into(), json!(80));
    }
}

fn scaling_rules(behavior: &mut serde_json::Map<String, Value>) {
    if let Some(up) = get(behavior, "scaleUp") {
        let policies = json!([
            { "type": "Pods", "value": 4, "periodSeconds": 15 }, { "type": "Percent", "value": 100, "periodSeconds": 15 },
        ]);
        set_all(
            up,
            [
                ("selectPolicy", json!("Max")),
                ("stabilizationWindowSeconds", json!(0)),
                ("policies", policies),
            ],
        );
    }
    if let Some(down) = get(behavior, "scaleDown") {
        let policies = json!([{ "type": "Percent", "value": 100, "periodSeconds": 15 }]);
        set_all(down, [("selectPolicy", json!("Max")), ("policies", policies)]);
    }
}
