//! `flux diff kustomization`: builds from local files and asks the API server what an apply would change.
//!
//! Nothing is written: every object goes through a dry-run as kustomize-controller. Secrets are masked, encrypted ones compared
//! by their keys only. Exit code 1 means there is a difference, 2 that there is no telling.

use std::collections::BTreeSet;

use flux_api::meta::IgnoreRule;
use flux_apply::apply::Cluster;
use flux_apply::ignore::without;
use flux_apply::{IgnoreRules, ObjectId};
use serde_json::Value;

use crate::commands::build::{self, Build, is_kustomization};
use crate::error::{CliError, fail};
use crate::kinds;
use crate::session::Session;
use crate::tree::Invocation;

use super::dry_run::{
    dry_run, is_encrypted, is_immutable, keys_only, marked, mask, normalized, plain, refusal,
};
use super::dyff;
use super::told::Told;

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
    told.end()
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
    let mut wanted = match dry_run(cluster, MANAGER, id, object).await {
        Ok(wanted) => wanted,
        Err(cause) if is_immutable(&cause) && marked(object, &format!("{GROUP}/force"), "enabled") => {
            return Ok(Outcome::Created);
        }
        Err(cause) => return Err(refusal(id, &cause)),
    };
    let Some(mut live) = live else { return Ok(Outcome::Created) };
    plain(&mut live);
    plain(&mut wanted);
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
