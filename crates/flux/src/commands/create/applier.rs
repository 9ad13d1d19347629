//! `flux create kustomization` and `flux create helmrelease`.

use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::{Invocation, kind_name_namespace};

use super::{depends_on, duration_of, go_error, labels, signed_duration_of, text_of, true_of};

pub(super) fn kustomization(run: &Invocation) -> Result<Value, CliError> {
    let source = run.some("source").ok_or_else(|| fail!("source is required"))?;
    let (kind, name, namespace) = kind_name_namespace(source);
    if !run.is("export") {
        output::generating("generating Kustomization");
    }
    labels::of(run)?;
    let wait = run.is("wait");
    let checks = if wait { Value::Null } else { health_checks(&run.list("health-check"))? };
    let timeout =
        if wait || !checks.is_null() { run.text("health-check-timeout").into() } else { Value::Null };
    let decryption = run.some("decryption-provider").map_or(
        Value::Null,
        |provider| json!({"provider": provider, "secretRef": super::reference_of(run, "decryption-secret")}),
    );
    Ok(json!({
        "interval": run.text("interval"),
        "path": run.text("path"),
        "prune": run.is("prune"),
        "sourceRef": {"kind": kind, "name": name, "namespace": filled(&namespace)},
        "targetNamespace": text_of(run, "target-namespace"),
        "dependsOn": depends_on(run),
        "kubeConfig": kube_config(run),
        "healthChecks": checks,
        "timeout": timeout,
        "wait": true_of(run, "wait"),
        "serviceAccountName": text_of(run, "service-account"),
        "decryption": decryption,
        "retryInterval": duration_of(run, "retry-interval"),
    }))
}

fn filled(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

fn kube_config(run: &Invocation) -> Value {
    run.some("kubeconfig-secret-ref").map_or(Value::Null, |name| json!({"secretRef": {"name": name}}))
}

/// `Kind/name.namespace` each.
fn health_checks(list: &[String]) -> Result<Value, CliError> {
    let mut checks = Vec::new();
    for text in list {
        let parts: Vec<&str> = text.split('/').collect();
        let [kind, rest] = parts[..] else {
            return Err(fail!(
                "invalid health check '{text}' must be in the format 'kind/name.namespace' [{}]",
                parts.join(" ")
            ));
        };
        if !matches!(kind, "Deployment" | "DaemonSet" | "StatefulSet" | "HelmRelease") {
            return Err(fail!(
                "invalid health check kind '{kind}' can be HelmRelease, Deployment, DaemonSet or StatefulSet"
            ));
        }
        let names: Vec<&str> = rest.split('.').collect();
        let [name, namespace] = names[..] else {
            return Err(fail!("invalid health check '{text}' must be in the format 'kind/name.namespace'"));
        };
        let version = if kind == "HelmRelease" { "helm.toolkit.fluxcd.io/v2".into() } else { Value::Null };
        checks.push(json!({"apiVersion": version, "kind": kind, "name": name, "namespace": namespace}));
    }
    Ok(if checks.is_empty() { Value::Null } else { checks.into() })
}

pub(super) fn helm_release(run: &Invocation) -> Result<Value, CliError> {
    let (chart, chart_ref) = (run.text("chart"), run.text("chart-ref"));
    match (chart.is_empty(), chart_ref.is_empty()) {
        (true, true) => return Err(fail!("chart or chart-ref is required")),
        (false, false) => return Err(fail!("cannot use --chart in combination with --chart-ref")),
        _ => {}
    }
    labels::of(run)?;
    if !run.is("export") {
        output::generating("generating HelmRelease");
    }
    let strategy = run.text("reconcile-strategy");
    if !matches!(strategy, "Revision" | "ChartVersion") {
        return Err(fail!("'{strategy}' is an invalid reconcile strategy(valid: Revision, ChartVersion)"));
    }
    let target = text_of(run, "target-namespace");
    let storage = run.some("storage-namespace").map_or_else(|| target.clone(), Into::into);
    let crds = run.some("crds");
    let install = if crds.is_some() || run.is("create-target-namespace") {
        json!({
            "createNamespace": true_of(run, "create-target-namespace"),
            "crds": crds.map_or(Value::Null, |_| "Create".into()),
        })
    } else {
        Value::Null
    };
    Ok(json!({
        "releaseName": text_of(run, "release-name"),
        "interval": run.text("interval"),
        "targetNamespace": target,
        "storageNamespace": storage,
        "dependsOn": depends_on(run),
        "chart": chart_template(run),
        "chartRef": reference_to_chart(chart_ref)?,
        "kubeConfig": kube_config(run),
        "install": install,
        "upgrade": crds.map_or(Value::Null, |policy| json!({ "crds": policy })),
        "serviceAccountName": text_of(run, "service-account"),
        "values": values(&run.list("values"))?,
        "valuesFrom": values_from(&run.list("values-from"))?,
    }))
}

/// Without `--source` the reference stays empty, as upstream leaves it.
fn chart_template(run: &Invocation) -> Value {
    let Some(chart) = run.some("chart") else { return Value::Null };
    let (kind, name, namespace) = kind_name_namespace(run.text("source"));
    json!({"spec": {
        "chart": chart,
        "version": text_of(run, "chart-version"),
        "sourceRef": {"kind": filled(&kind), "name": name, "namespace": filled(&namespace)},
        "reconcileStrategy": text_of(run, "reconcile-strategy"),
        "interval": signed_duration_of(run, "chart-interval"),
    }})
}

fn reference_to_chart(text: &str) -> Result<Value, CliError> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let (kind, name, namespace) = kind_name_namespace(text);
    if !matches!(kind.as_str(), "HelmChart" | "OCIRepository") {
        return Err(fail!(
            "chart reference kind '{kind}' is not supported, must be one of: OCIRepository, HelmChart"
        ));
    }
    Ok(json!({"kind": kind, "name": name, "namespace": filled(&namespace)}))
}

/// The files, the later over the earlier.
fn values(files: &[String]) -> Result<Value, CliError> {
    let mut merged = Value::Null;
    for file in files {
        let text = std::fs::read(file)
            .map_err(|error| fail!("reading values from {file} failed: open {file}: {}", go_error(&error)))?;
        let values = yaml::to_json(&text)
            .map_err(|error| fail!("converting values to JSON from {file} failed: {error}"))?;
        let other = match &values {
            Value::Object(_) | Value::Null => None,
            Value::Array(_) => Some("array"),
            Value::String(_) => Some("string"),
            Value::Number(_) => Some("number"),
            Value::Bool(_) => Some("bool"),
        };
        if let Some(other) = other {
            return Err(fail!(
                "unmarshaling values from {file} failed: json: cannot unmarshal {other} into Go value of type map[string]interface {{}}"
            ));
        }
        let values = if values.is_null() { Value::Object(serde_json::Map::new()) } else { values };
        merge(&mut merged, values);
    }
    Ok(merged)
}

fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

fn values_from(list: &[String]) -> Result<Value, CliError> {
    let mut references = Vec::new();
    for text in list {
        let Some((kind, name)) = text.split_once('/') else {
            return Err(fail!(
                "invalid Kubernetes object reference '{text}', must be in format <kind>/<name>"
            ));
        };
        let known = ["Secret", "ConfigMap"].into_iter().find(|known| known.eq_ignore_ascii_case(kind));
        let kind = known.ok_or_else(|| {
            fail!("reference kind '{kind}' is not supported, must be one of: Secret, ConfigMap")
        })?;
        references.push(json!({"kind": kind, "name": name}));
    }
    Ok(if references.is_empty() { Value::Null } else { references.into() })
}
