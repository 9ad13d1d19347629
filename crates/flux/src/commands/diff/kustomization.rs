//! `flux diff kustomization`: builds from local files and asks the API server what an apply would change.
//!
//! Nothing is written: every object goes through a dry-run as kustomize-controller. Secrets are masked, encrypted ones compared
//! by their keys only. Exit code 1 means there is a difference, 2 that there is no telling.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flux_api::meta::IgnoreRule;
use flux_apply::apply::{Cause, Cluster};
use flux_apply::ignore::without;
use flux_apply::{IgnoreRules, ObjectId};
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use crate::commands::build::{self, Build, MASK, is_kustomization};
use crate::error::{CliError, fail};
use crate::kinds;
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::dyff;

const MANAGER: &str = "kustomize-controller";
const GROUP: &str = "kustomize.toolkit.fluxcd.io";

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let build = build::arguments(run)?;
    if build.ignore_not_found && build.file.is_none() {
        return Err(fail!("kustomization file is required when assuming new kustomizations").with_code(2));
    }
    let session = Session::open(run).await.map_err(|error| error.with_code(2))?;
    let build = Build { session: Some(&session), ..build };
    let cluster = Cluster::new(session.client.clone());
    let told = diff(&cluster, &build).await.map_err(|error| error.with_code(2))?;
    output::data(&told.text)?;
    if !told.errors.is_empty() {
        return Err(aggregate(&told.errors).with_code(2));
    }
    if told.changed {
        let text = "identified at least one change, exiting with non-zero exit code";
        return Err(CliError::new(text).into_warning());
    }
    Ok(())
}

/// One error is itself; several stand in brackets.
fn aggregate(errors: &[String]) -> CliError {
    match errors {
        [only] => CliError::new(only.clone()),
        several => fail!("[{}]", several.join(", ")),
    }
}

#[derive(Default)]
struct Told {
    text: String,
    changed: bool,
    errors: Vec<String>,
}

impl Told {
    fn line(&mut self, mark: &str, object: &dyn std::fmt::Display, what: &str) {
        self.text.push_str(&format!("{mark} {object} {what}\n"));
    }
}

async fn diff(cluster: &Cluster, build: &Build<'_>) -> Result<Told, CliError> {
    let built = build.build().await?;
    let rules = ignore_rules(&built.kustomization)?;
    let mut told = Told::default();
    let mut kept = BTreeSet::new();
    for object in &built.objects {
        let object = normalized(object.clone());
        let Some(id) = ObjectId::of(&object) else { continue };
        match compared(cluster, &id, &object, &rules).await {
            Ok(outcome) => {
                kept.insert(id.inventory_id());
                show(&mut told, &id, &outcome);
                if build.recursive && is_kustomization(&object) && !matches!(outcome, Outcome::Created) {
                    nested(cluster, build, &built.kustomization, &object, &mut told).await?;
                }
            }
            Err(error) => told.errors.push(error),
        }
    }
    if built.kustomization.pointer("/spec/prune").and_then(Value::as_bool) == Some(true)
        && told.errors.is_empty()
    {
        for id in stale(&built.kustomization, &kept) {
            told.line("►", &id, "deleted");
            told.changed = true;
        }
    }
    Ok(told)
}

/// What an apply would do to one object.
enum Outcome {
    Created,
    Unchanged,
    Skipped,
    Drifted(String),
}

fn show(told: &mut Told, id: &ObjectId, outcome: &Outcome) {
    match outcome {
        Outcome::Unchanged => {}
        Outcome::Skipped => told.line("►", id, "skipped"),
        Outcome::Created => {
            told.line("►", id, "created");
            told.changed = true;
        }
        Outcome::Drifted(difference) => {
            told.line("►", id, "drifted");
            told.text.push_str(difference);
            told.changed = true;
        }
    }
}

async fn nested(
    cluster: &Cluster,
    build: &Build<'_>,
    outer: &Value,
    inner: &Value,
    told: &mut Told,
) -> Result<(), CliError> {
    let own = |object: &Value| (kinds::name(object).to_owned(), kinds::namespace(object).to_owned());
    if own(outer) == own(inner) {
        return Ok(());
    }
    let Some(id) = ObjectId::of(inner) else { return Ok(()) };
    if inner.pointer("/spec/kubeConfig").is_some() {
        told.line("⚠️", &id, "skipped: diff not supported for remote clusters");
        return Ok(());
    }
    let below = match build.nested(inner) {
        Ok(nested) => Box::pin(diff(cluster, &Build { given: None, ..nested })).await,
        Err(error) => Err(error),
    };
    match below {
        Ok(below) => {
            if below.changed {
                told.line("📁", &id, "changed");
                told.text.push_str(&below.text);
                told.changed = true;
            }
            told.errors.extend(below.errors);
        }
        Err(error) => told.errors.push(error.to_string()),
    }
    Ok(())
}

/// `spec.ignore`: fields whose drift does not count.
fn ignore_rules(kustomization: &Value) -> Result<IgnoreRules, CliError> {
    let rules = kustomization.pointer("/spec/ignore").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    let rules: Vec<IgnoreRule> =
        serde_json::from_value(rules).map_err(|error| fail!("spec.ignore of the Kustomization: {error}"))?;
    IgnoreRules::new(&rules).map_err(|error| fail!("{error}"))
}

async fn compared(
    cluster: &Cluster,
    id: &ObjectId,
    object: &Value,
    rules: &IgnoreRules,
) -> Result<Outcome, String> {
    let live = cluster.get(id).await.ok().flatten();
    let excluded = |object: &Value| {
        marked(object, &format!("{GROUP}/reconcile"), "disabled")
            || marked(object, &format!("{GROUP}/ssa"), "ignore")
    };
    let if_not_present = live.is_some() && marked(object, &format!("{GROUP}/ssa"), "ifnotpresent");
    if excluded(object) || live.as_ref().is_some_and(excluded) || if_not_present {
        return Ok(Outcome::Skipped);
    }
    let mut wanted = match dry_run(cluster, id, object).await {
        Ok(wanted) => wanted,
        Err(cause) if is_immutable(&cause) && marked(object, &format!("{GROUP}/force"), "enabled") => {
            return Ok(Outcome::Created);
        }
        Err(cause) => return Err(refusal(id, &cause)),
    };
    let Some(mut live) = live else { return Ok(Outcome::Created) };
    for object in [&mut live, &mut wanted] {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    let ignored = rules.of(&wanted);
    let (mut live, mut wanted) = (without(&live, &ignored), without(&wanted, &ignored));
    if !flux_apply::drift::has_drifted(&live, &wanted) {
        return Ok(Outcome::Unchanged);
    }
    if id.kind == "Secret" && id.group.is_empty() {
        mask(&mut live, &mut wanted);
        if is_encrypted(object) && keys_only(&mut live) == keys_only(&mut wanted) {
            return Ok(Outcome::Unchanged);
        }
    }
    Ok(Outcome::Drifted(dyff::report(&live, &wanted)))
}

async fn dry_run(cluster: &Cluster, id: &ObjectId, object: &Value) -> Result<Value, Cause> {
    let api = cluster.mapper.api(&cluster.client, id).await;
    let api = api.map_err(|error| Cause::Unknown(error.to_string()))?;
    let parameters = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force() };
    let answer = api.patch(&id.name, &parameters, &Patch::Apply(object)).await.map_err(Cause::from)?;
    let mut answer = serde_json::to_value(answer).map_err(|error| Cause::Unknown(error.to_string()))?;
    answer["apiVersion"] = id.api_version().into();
    answer["kind"] = id.kind.clone().into();
    Ok(answer)
}

fn is_immutable(cause: &Cause) -> bool {
    matches!(cause, Cause::Refused { code: 409 | 422, .. }) || cause.to_string().contains("immutable")
}

fn refusal(id: &ObjectId, cause: &Cause) -> String {
    match cause {
        Cause::Refused { code: 404, message, .. } if id.namespace.is_empty() => {
            format!("{id} namespace not specified: {message}")
        }
        Cause::Refused { code: 404, message, .. } => format!("{id} not found: {message}"),
        Cause::Refused { reason, message, .. } if !reason.is_empty() => {
            format!("{id} dry-run failed ({reason}): {message}")
        }
        cause => format!("{id} dry-run failed: {cause}"),
    }
}

/// A label or annotation, in any case.
fn marked(object: &Value, key: &str, value: &str) -> bool {
    ["labels", "annotations"].iter().any(|place| {
        let found = object.pointer(&format!("/metadata/{place}")).and_then(|map| map.get(key));
        found.and_then(Value::as_str).is_some_and(|found| found.eq_ignore_ascii_case(value))
    })
}

/// `stringData` becomes `data`, so that it is compared as the server keeps it.
fn normalized(mut object: Value) -> Value {
    if object.get("kind").and_then(Value::as_str) != Some("Secret") {
        return object;
    }
    let Some(Value::Object(plain)) = object.as_object_mut().and_then(|fields| fields.remove("stringData"))
    else {
        return object;
    };
    let mut data = object.get("data").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for (key, value) in plain {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        data.insert(key, BASE64_STANDARD.encode(text).into());
    }
    object["data"] = data.into();
    object
}

/// Values never show: `***`, and where they differ, before and after.
fn mask(live: &mut Value, wanted: &mut Value) {
    let data = |object: &Value| object.get("data").and_then(Value::as_object).cloned();
    let (old, new) = (data(live), data(wanted));
    let masked = |own: &Map<String, Value>, other: Option<&Map<String, Value>>, differs: &str| -> Value {
        let value = |key: &String, value: &Value| match other.and_then(|other| other.get(key)) {
            Some(other) if other != value => json!(differs),
            _ => json!("***"),
        };
        own.iter().map(|(key, own)| (key.clone(), value(key, own))).collect::<Map<_, _>>().into()
    };
    if let Some(own) = &old {
        live["data"] = masked(own, new.as_ref(), "*** (before)");
    }
    if let Some(own) = &new {
        wanted["data"] = masked(own, old.as_ref(), "*** (after)");
    }
}

fn is_encrypted(object: &Value) -> bool {
    object.get("data").and_then(Value::as_object).into_iter().flatten().any(|(_, value)| {
        let text = value.as_str().map(|text| text.replace(['\r', '\n'], ""));
        let decoded = text.and_then(|text| BASE64_STANDARD.decode(text).ok());
        decoded.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(MASK))
    })
}

/// The keys; the values all become the same, so that only keys differ.
fn keys_only(object: &mut Value) -> Vec<String> {
    let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) else { return Vec::new() };
    for value in data.values_mut() {
        *value = json!("*****");
    }
    data.keys().cloned().collect()
}

/// What the inventory holds and the build does not.
fn stale(kustomization: &Value, kept: &BTreeSet<String>) -> Vec<ObjectId> {
    let entries = kustomization.pointer("/status/inventory/entries").and_then(Value::as_array);
    let gone = entries.into_iter().flatten().filter_map(|entry| {
        let (id, version) = (entry.get("id")?.as_str()?, entry.get("v")?.as_str()?);
        (!kept.contains(id)).then(|| ObjectId::from_inventory(id, version)).flatten()
    });
    let mut gone: Vec<ObjectId> = gone.collect();
    gone.sort_by(flux_apply::order::apply_order);
    gone
}
