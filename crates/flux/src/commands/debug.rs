//! `flux debug`: an object's status, history, and the values or variables it ends up with.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::{Kind, text};
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::explain;

pub(crate) async fn run(run: &Invocation, kind: &Kind) -> Result<(), CliError> {
    let is_release = kind.words == "helmrelease";
    let third = if is_release { "show-values" } else { "show-vars" };
    if ["show-status", third, "show-history"].into_iter().filter(|flag| run.is(flag)).count() != 1 {
        return Err(fail!("exactly one of --show-status, --{third}, or --show-history must be set"));
    }
    let name = run.name().unwrap_or_default();
    let session = Session::open(run).await?;
    let object = session.get(kind.api, name).await?;
    let pages = "https://fluxcd.io/flux/components";
    let page = if is_release {
        format!("{pages}/helm/helmreleases")
    } else {
        format!("{pages}/kustomize/kustomizations")
    };
    if run.is("show-status") {
        let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        if status.get("history").is_some() {
            status["history"] = history(&object, is_release);
        }
        let anchor = kind.api.singular;
        return output::data(&format!(
            "# Status documentation: {page}/#{anchor}-status\n{}",
            output::yaml_text(&status)?
        ));
    }
    if run.is("show-history") {
        let history = history(&object, is_release);
        return output::data(&format!(
            "# History documentation: {page}/#history\n{}",
            output::yaml_text(&history)?
        ));
    }
    if is_release { values(&session, &object).await } else { variables(&session, &object).await }
}

/// Upstream's typed snapshots show `deleted: null` where nothing was deleted.
fn history(object: &Value, is_release: bool) -> Value {
    let mut history = object.pointer("/status/history").cloned().unwrap_or_else(|| json!([]));
    for entry in history.as_array_mut().into_iter().flatten().filter(|_| is_release) {
        if entry.get("deleted").is_none() {
            entry["deleted"] = Value::Null;
        }
    }
    history
}

/// `substituteFrom` in its order, then `substitute` over it.
async fn variables(session: &Session, object: &Value) -> Result<(), CliError> {
    let build =
        object.pointer("/spec/postBuild").ok_or_else(|| fail!("no post build substitutions found"))?;
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for reference in build.get("substituteFrom").and_then(Value::as_array).into_iter().flatten() {
        let data = referenced(session, reference).await?;
        all.extend(data.into_iter().map(|(key, value)| (key, value.replace('\n', ""))));
    }
    for (key, value) in build.get("substitute").and_then(Value::as_object).into_iter().flatten() {
        all.insert(key.clone(), value.as_str().unwrap_or_default().replace('\n', ""));
    }
    let lines: Vec<String> = all.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    output::data(&lines.concat())
}

/// What the controller composes of `valuesFrom` and `values`.
async fn values(session: &Session, object: &Value) -> Result<(), CliError> {
    let composed = explain::of_release(session, object).await?;
    output::data(&output::yaml_text(&Value::Object(composed.values.into_map()))?)
}

/// The data of a ConfigMap or Secret; nothing when it is missing and optional.
pub(super) async fn referenced(
    session: &Session,
    reference: &Value,
) -> Result<BTreeMap<String, String>, CliError> {
    let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
    let optional = reference.get("optional").and_then(Value::as_bool).unwrap_or(false);
    let failed = |error| session.failed(error, None);
    let client = session.client.clone();
    let found = match kind {
        "ConfigMap" => {
            let api: Api<ConfigMap> = Api::namespaced(client, &session.namespace);
            api.get_opt(name).await.map_err(failed)?.map(|map| map.data.unwrap_or_default())
        }
        "Secret" => {
            let api: Api<Secret> = Api::namespaced(client, &session.namespace);
            let plain = |bytes: k8s_openapi::ByteString| String::from_utf8_lossy(&bytes.0).into_owned();
            api.get_opt(name).await.map_err(failed)?.map(|secret| {
                secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, plain(value))).collect()
            })
        }
        other => return Err(fail!("unsupported reference kind '{other}'")),
    };
    match found {
        Some(data) => Ok(data),
        None if optional => Ok(BTreeMap::new()),
        None => Err(fail!("could not find {kind} '{}/{name}'", session.namespace)),
    }
}
