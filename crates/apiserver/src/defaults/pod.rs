//! Defaults of pods and pod templates.

use serde_json::{Map, Value, json};

use super::{child, child_of, each, fields, get, set, set_all};

const MODE: i64 = 0o644;

/// A pod: its spec, and what only pods get (not templates).
pub(super) fn pod(value: &mut Value) {
    let spec = fields(child(value, "spec"));
    spec_defaults(spec);
    set(spec, "enableServiceLinks", json!(true));
    if spec.get("hostNetwork") == Some(&json!(true)) {
        for list in ["containers", "initContainers"] {
            each(spec, list).for_each(host_ports);
        }
    }
    for list in ["containers", "initContainers"] {
        each(spec, list).for_each(requests_from_limits);
    }
    let status = fields(child(value, "status"));
    set(status, "phase", json!("Pending"));
}

pub(super) fn template(value: &mut Value) {
    fields(child(value, "metadata"));
    spec_defaults(fields(child(value, "spec")));
}

/// Defaults every pod spec gets.
fn spec_defaults(spec: &mut Map<String, Value>) {
    set_all(
        spec,
        [
            ("restartPolicy", json!("Always")),
            ("dnsPolicy", json!("ClusterFirst")),
            ("schedulerName", json!("default-scheduler")),
            ("terminationGracePeriodSeconds", json!(30)),
            ("securityContext", json!({})),
        ],
    );
    // The old name of the field mirrors the new one.
    if let Some(account) = spec.get("serviceAccountName").or(spec.get("serviceAccount")).cloned() {
        spec.insert("serviceAccountName".into(), account.clone());
        spec.insert("serviceAccount".into(), account);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, list).for_each(container);
    }
    each(spec, "volumes").for_each(volume);
}

fn container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if always_pulled(image) { "Always" } else { "IfNotPresent" };
    set_all(
        container,
        [
            ("imagePullPolicy", json!(policy)),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
            ("resources", json!({})),
        ],
    );
    for port in each(container, "ports") {
        set(port, "protocol", json!("TCP"));
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = get(container, name) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = get(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(handler) = get(lifecycle, name) {
                self::handler(handler);
            }
        }
    }
    for variable in each(container, "env") {
        if let Some(reference) = get(variable, "valueFrom").and_then(|from| get(from, "fieldRef")) {
            set(reference, "apiVersion", json!("v1"));
        }
    }
}

/// `latest`, said or unsaid, is pulled every time; a digest never changes.
fn always_pulled(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn probe(probe: &mut Map<String, Value>) {
    // Zero is "not said" for these numbers.
    for (key, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(key).and_then(Value::as_i64).unwrap_or(0) == 0 {
            probe.insert(key.into(), json!(value));
        }
    }
    handler(probe);
    if let Some(grpc) = get(probe, "grpc") {
        set(grpc, "service", json!(""));
    }
}

fn handler(handler: &mut Map<String, Value>) {
    if let Some(http) = get(handler, "httpGet") {
        for (key, value) in [("path", "/"), ("scheme", "HTTP")] {
            if http.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
                http.insert(key.into(), json!(value));
            }
        }
    }
}

fn volume(volume: &mut Map<String, Value>) {
    if volume.len() == 1 && volume.contains_key("name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = get(volume, source) {
            set(source, "defaultMode", json!(MODE));
        }
    }
    if let Some(downward) = get(volume, "downwardAPI") {
        field_references(downward);
    }
    if let Some(projected) = get(volume, "projected") {
        for source in each(projected, "sources") {
            if let Some(token) = get(source, "serviceAccountToken") {
                set(token, "expirationSeconds", json!(3600));
            }
            if let Some(downward) = get(source, "downwardAPI") {
                field_references(downward);
            }
        }
    }
    if let Some(path) = get(volume, "hostPath") {
        set(path, "type", json!(""));
    }
    if let Some(claim) = get(volume, "ephemeral").and_then(|ephemeral| get(ephemeral, "volumeClaimTemplate"))
    {
        set(child_of(claim, "spec"), "volumeMode", json!("Filesystem"));
    }
    if let Some(iscsi) = get(volume, "iscsi") {
        set(iscsi, "iscsiInterface", json!("default"));
    }
    if let Some(disk) = get(volume, "azureDisk") {
        set_all(
            disk,
            [
                ("cachingMode", json!("ReadWrite")),
                ("fsType", json!("ext4")),
                ("kind", json!("Shared")),
                ("readOnly", json!(false)),
            ],
        );
    }
}

fn field_references(downward: &mut Map<String, Value>) {
    for item in each(downward, "items") {
        if let Some(reference) = get(item, "fieldRef") {
            set(reference, "apiVersion", json!("v1"));
        }
    }
}

fn host_ports(container: &mut Map<String, Value>) {
    for port in each(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            set(port, "hostPort", number);
        }
    }
}

fn requests_from_limits(container: &mut Map<String, Value>) {
    let Some(resources) = get(container, "resources") else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = child_of(resources, "requests");
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}
