//! `flux reconcile`: asks a controller to look at an object now, and waits until it has.

use flux_api::kinds as api;
use flux_api::names;
use jiff::Zoned;
use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind, condition, text};
use crate::output;
use crate::readiness;
use crate::session::Session;
use crate::tree::Invocation;

use super::required_name;

/// What a HelmRelease may be asked beside reconciling, and what a Kustomization may be allowed.
#[derive(Debug, Clone, Copy, Default)]
struct Extra<'a> {
    force: bool,
    reset: bool,
    /// The plan of a held prune that may go.
    release_prune: Option<&'a str>,
}

/// As the controller reads it.
const RELEASE_PRUNE: &str = "fluxcd.rs/release-prune";

pub(crate) async fn run(run: &Invocation, kind: &'static Kind) -> Result<(), CliError> {
    let name = required_name(run, kind.api.kind)?;
    let session = Session::open(run).await?;
    let extra =
        Extra { force: run.is("force"), reset: run.is("reset"), release_prune: run.some("release-prune") };
    reconcile(&session, kind, name, run.is("with-source"), extra).await
}

/// A chart's source comes first when asked for; a release's chart too, and then always with its source.
async fn reconcile(
    session: &Session,
    kind: &'static Kind,
    name: &str,
    with_source: bool,
    extra: Extra<'_>,
) -> Result<(), CliError> {
    let object = session.get(kind.api, name).await?;
    if kind.is_static(&object) {
        output::success("reconciliation not supported by the object");
        return Ok(());
    }
    if kinds::is_suspended(&object) {
        return Err(fail!("resource is suspended"));
    }
    if with_source && has_source(kind) {
        let source = source(kind, &object)?;
        let place = session.in_namespace(&source.namespace);
        let nested = *source.kind.api == api::HELM_CHART;
        Box::pin(reconcile(&place, source.kind, &source.name, nested, Extra::default())).await?;
    }
    if let Some(plan) = extra.release_prune {
        check_plan(&object, plan)?;
    }
    let before = text(&object, "/status/lastHandledReconcileAt").to_owned();
    output::action(&format!("annotating {} {name} in {} namespace", kind.api.kind, session.namespace));
    session.merge(kind.api, name, &request(kind, extra)).await?;
    output::success(&format!("{} annotated", kind.api.kind));
    output::waiting(&format!("waiting for {} reconciliation", kind.api.kind));
    let handled = |object: &Value| readiness::handled_since(object, &before);
    let object = readiness::until(session, kind, name, handled).await?;
    told(kind, &object)
}

fn told(kind: &Kind, object: &Value) -> Result<(), CliError> {
    let Some(ready) = condition(object, "Ready") else {
        return Err(fail!("status can't be determined"));
    };
    if text(ready, "/status") != "True" {
        let message = text(ready, "/message");
        // The two forms are upstream's: one for kinds with a source, one for the others.
        return Err(if has_source(kind) {
            fail!("{} reconciliation failed: {message}", kind.api.kind)
        } else {
            fail!("{} reconciliation failed: '{message}'", kind.api.kind)
        });
    }
    output::success(&kind.success(object));
    Ok(())
}

/// A plan is named by what it holds: whoever releases another one has not seen what would go.
fn check_plan(object: &Value, plan: &str) -> Result<(), CliError> {
    let held = condition(object, "PruneHeld").filter(|held| text(held, "/status") == "True");
    let Some(held) = held else {
        return Err(fail!("no prune of Kustomization {} is held", kinds::name(object)));
    };
    let message = text(held, "/message");
    let named = message.split(&format!("{RELEASE_PRUNE}: ")).nth(1).and_then(|rest| rest.split(',').next());
    match named {
        Some(named) if named == plan => Ok(()),
        Some(named) => Err(fail!("the prune that is held is plan {named}, not {plan}: {message}")),
        None => Err(fail!("the plan of the prune that is held cannot be told: {message}")),
    }
}

fn request(kind: &Kind, extra: Extra<'_>) -> Value {
    let now = Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.9f%:z").to_string().replace("+00:00", "Z");
    let mut annotations = serde_json::Map::new();
    annotations.insert(names::RECONCILE_REQUEST.to_owned(), now.clone().into());
    if *kind.api == api::HELM_RELEASE {
        for (asked, annotation) in [(extra.force, names::FORCE_REQUEST), (extra.reset, names::RESET_REQUEST)]
        {
            if asked {
                annotations.insert(annotation.to_owned(), now.clone().into());
            }
        }
    }
    if let Some(plan) = extra.release_prune {
        annotations.insert(RELEASE_PRUNE.to_owned(), plan.into());
    }
    json!({"metadata": {"annotations": annotations}})
}

fn has_source(kind: &Kind) -> bool {
    [api::KUSTOMIZATION, api::HELM_RELEASE, api::HELM_CHART].contains(kind.api)
}

struct Source {
    kind: &'static Kind,
    name: String,
    namespace: String,
}

/// Where the object's files come from.
fn source(kind: &Kind, object: &Value) -> Result<Source, CliError> {
    let own = kinds::namespace(object);
    if *kind.api == api::HELM_RELEASE && object.pointer("/spec/chartRef").is_none() {
        let namespace =
            Some(text(object, "/spec/chart/spec/sourceRef/namespace")).filter(|it| !it.is_empty());
        return Ok(Source {
            kind: row(&api::HELM_CHART)?,
            name: format!("{own}-{}", kinds::name(object)),
            namespace: namespace.unwrap_or(own).to_owned(),
        });
    }
    let pointer = if *kind.api == api::HELM_RELEASE { "/spec/chartRef" } else { "/spec/sourceRef" };
    let reference = object.pointer(pointer).unwrap_or(&Value::Null);
    let wanted = text(reference, "/kind");
    let allowed: &[api::Kind] = if *kind.api == api::HELM_RELEASE {
        &[api::HELM_CHART, api::OCI_REPOSITORY]
    } else if *kind.api == api::HELM_CHART {
        &[api::HELM_REPOSITORY, api::GIT_REPOSITORY, api::BUCKET]
    } else {
        &[api::OCI_REPOSITORY, api::GIT_REPOSITORY, api::BUCKET]
    };
    let found = allowed.iter().find(|kind| kind.kind == wanted);
    let found = found.ok_or_else(|| fail!("cannot reconcile source of kind {wanted}"))?;
    let namespace =
        Some(text(reference, "/namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or(own);
    Ok(Source {
        kind: row(found)?,
        name: text(reference, "/name").to_owned(),
        namespace: namespace.to_owned(),
    })
}

fn row(kind: &api::Kind) -> Result<&'static Kind, CliError> {
    kinds::of_api(kind).ok_or_else(|| fail!("cannot reconcile source of kind {}", kind.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_plan_that_is_held_is_released() {
        let object = |message: &str| {
            json!({
                "metadata": {"name": "apps"},
                "status": {"conditions": [{"type": "PruneHeld", "status": "True", "message": message}]},
            })
        };
        let held = object(
            "not deleted: PersistentVolumeClaim/a/data; annotate with fluxcd.rs/release-prune: 12ab, and reconcile",
        );
        assert!(check_plan(&held, "12ab").is_ok());
        assert!(check_plan(&held, "12").unwrap_err().to_string().contains("is plan 12ab, not 12"));
        assert!(check_plan(&object("something else"), "12ab").is_err());
        assert!(check_plan(&json!({"metadata": {"name": "apps"}}), "12ab").is_err());
        let kind = row(&api::KUSTOMIZATION).unwrap();
        let request = request(kind, Extra { release_prune: Some("12ab"), ..Extra::default() });
        assert_eq!(request["metadata"]["annotations"][RELEASE_PRUNE], "12ab");
    }
}
