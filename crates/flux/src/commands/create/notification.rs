//! `flux create alert`, `alert-provider` and `receiver`.

use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::tree::{Invocation, kind_name_namespace};

use super::{list_of, reference_of, text_of};

pub(super) fn alert(run: &Invocation) -> Result<Value, CliError> {
    let provider = run.some("provider-ref").ok_or_else(|| fail!("provider ref is required"))?;
    let mut sources = Vec::new();
    for text in run.list("event-source") {
        let (kind, name, namespace) = kind_name_namespace(&text);
        if kind.is_empty() {
            return Err(fail!("invalid event source '{text}', must be in format <kind>/<name>"));
        }
        let namespace = if namespace.is_empty() { Value::Null } else { namespace.into() };
        sources.push(json!({"kind": kind, "name": name, "namespace": namespace}));
    }
    if sources.is_empty() {
        return Err(fail!("at least one event source is required"));
    }
    Ok(json!({
        "providerRef": {"name": provider},
        "eventSeverity": text_of(run, "event-severity"),
        "eventSources": sources,
    }))
}

pub(super) fn provider(run: &Invocation) -> Result<Value, CliError> {
    let kind = run.some("type").ok_or_else(|| fail!("Provider type is required"))?;
    Ok(json!({
        "type": kind,
        "channel": text_of(run, "channel"),
        "username": text_of(run, "username"),
        "address": text_of(run, "address"),
        "secretRef": reference_of(run, "secret-ref"),
    }))
}

pub(super) fn receiver(run: &Invocation) -> Result<Value, CliError> {
    let kind = run.some("type").ok_or_else(|| fail!("Receiver type is required"))?;
    let secret = run.some("secret-ref").ok_or_else(|| fail!("secret ref is required"))?;
    let mut resources = Vec::new();
    for text in run.list("resource") {
        let Some((kind, name)) = text.split_once('/') else {
            return Err(fail!("invalid event source '{text}', must be in format <kind>/<name>"));
        };
        resources.push(json!({"kind": kind, "name": name}));
    }
    if resources.is_empty() {
        return Err(fail!("atleast one resource is required"));
    }
    Ok(json!({
        "type": kind,
        "events": list_of(run, "event"),
        "resources": resources,
        "secretRef": {"name": secret},
    }))
}
