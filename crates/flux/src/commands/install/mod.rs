//! `flux install`: puts this Flux on a cluster, in the shape people's patches know.

mod component;
mod manifests;
mod rbac;
#[cfg(test)]
mod tests;
mod verify;

pub(super) use component::Component;
pub(super) use manifests::{Manifests, Options};
pub(super) use verify::{Installation, deployments_ready};

use std::collections::BTreeSet;

use flux_api::kinds::Controller;
use flux_apply::{Cluster, Options as ApplyOptions};
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::output;
use crate::session::{self, FIELD_MANAGER, Session};
use crate::tree::Invocation;

use super::delete::confirmed;
use super::version::CLIENT;

/// Where images come from unless told otherwise.
const REGISTRY: &str = "ghcr.io/fluxcd";

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let options = options(run)?;
    let credentials = registry_credentials(run)?;
    check_version(run.text("version"))?;
    let export = run.is("export");
    if !export {
        output::generating("generating manifests");
    }
    let manifests = match run.some("manifests") {
        Some(folder) => Manifests::from_folder(folder)?,
        None => options.manifests(),
    };
    if export {
        return output::data(&manifests.text(&options)?);
    }
    if run.is("verbose") {
        output::data(&manifests.text(&options)?)?;
    }
    output::success("manifests build completed");
    output::action(&format!("installing components in {} namespace", options.namespace));
    let session = Session::open(run).await?;
    let found =
        Installation::find(&session).await.map_err(|error| fail!("cluster info unavailable: {error}"))?;
    if let Some(found) = &found {
        may_replace(found, run.is("force"))?;
    }
    let applied =
        apply(&session, manifests.objects).await.map_err(|error| fail!("install failed: {error}"))?;
    output::data(&applied)?;
    if let Some((user, password)) = credentials {
        let name = run.text("image-pull-secret");
        output::action(&format!("generating image pull secret {name}"));
        let secret =
            super::create::registry_secret(name, &options.namespace, &options.registry, &user, &password);
        super::create::apply_secret(&session, &secret)
            .await
            .map_err(|error| fail!("install failed: {error}"))?;
    }
    output::waiting("verifying installation");
    let names: Vec<&str> = options.components.iter().map(|component| component.name()).collect();
    if !deployments_ready(&session, &names).await {
        return Err(fail!("install failed"));
    }
    output::success("install finished");
    Ok(())
}

/// Everything that an installation with `install`'s defaults has, with Deployments of these controllers only.
pub(crate) fn installation(namespace: &str, running: &BTreeSet<Controller>) -> Vec<Value> {
    let options = Options {
        namespace: namespace.to_owned(),
        components: Component::ALL.to_vec(),
        registry: REGISTRY.to_owned(),
        image_pull_secret: None,
        watch_all_namespaces: true,
        network_policy: true,
        log_level: "info".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        toleration_keys: Vec::new(),
        single: false,
    };
    let runs =
        |object: &Value| running.iter().any(|controller| object["metadata"]["name"] == controller.as_str());
    let mut objects = options.manifests().objects;
    objects.retain(|object| object["kind"] != "Deployment" || runs(object));
    objects
}

/// What the flags of `install` and `bootstrap` say.
pub(super) fn options(run: &Invocation) -> Result<Options, CliError> {
    let mut components = Vec::new();
    for name in run.list("components").iter().chain(&run.list("components-extra")) {
        let found = Component::by_name(name).ok_or_else(|| fail!("component {name} is not available"))?;
        if !components.contains(&found) {
            components.push(found);
        }
    }
    Ok(Options {
        namespace: session::namespace(run)?,
        components,
        registry: run.text("registry").to_owned(),
        image_pull_secret: run.some("image-pull-secret").map(str::to_owned),
        watch_all_namespaces: run.is("watch-all-namespaces"),
        network_policy: run.is("network-policy"),
        log_level: run.text("log-level").to_owned(),
        cluster_domain: run.text("cluster-domain").to_owned(),
        toleration_keys: run.list("toleration-keys"),
        single: run.row.flags.iter().any(|flag| flag.name == "single") && run.is("single"),
    })
}

/// `user:password`, which only makes sense with a name for the Secret.
pub(super) fn registry_credentials(run: &Invocation) -> Result<Option<(String, String)>, CliError> {
    let Some(given) = run.some("registry-creds") else { return Ok(None) };
    if run.some("image-pull-secret").is_none() {
        return Err(fail!("--registry-creds requires --image-pull-secret to be set"));
    }
    match given.split(':').collect::<Vec<_>>()[..] {
        [user, password] => Ok(Some((user.to_owned(), password.to_owned()))),
        _ => Err(fail!("invalid --registry-creds format, expected 'user:password'")),
    }
}

/// This binary installs itself: there is nothing to download, so only its own version can be asked for.
pub(super) fn check_version(wanted: &str) -> Result<(), CliError> {
    if wanted.is_empty() || wanted == "latest" || wanted == format!("v{CLIENT}") {
        return Ok(());
    }
    if !wanted.starts_with('v') {
        return Err(fail!("targeted version '{wanted}' must be prefixed with 'v'"));
    }
    Err(fail!(
        "targeted version '{wanted}' is not in this binary, which installs v{CLIENT} without a download"
    ))
}

fn may_replace(found: &Installation, force: bool) -> Result<(), CliError> {
    if found.bootstrapped {
        let version = &found.version;
        return Err(fail!(
            "this cluster has already been bootstrapped with Flux {version}! Please use 'flux bootstrap' to upgrade"
        ));
    }
    if force || found.is_ours() {
        return Ok(());
    }
    let (version, manager) = (&found.version, &found.managed_by);
    output::plain(&format!("Flux {version} has been installed on this cluster with {manager}!\n"));
    if !confirmed(&format!("Are you sure you want to override the {manager} installation? Y/N")) {
        return Err(fail!("installation cancelled"));
    }
    Ok(())
}

/// Applies the objects, definitions first. Returns a line for each.
pub(super) async fn apply(session: &Session, objects: Vec<Value>) -> Result<String, CliError> {
    let options = ApplyOptions::new(FIELD_MANAGER);
    let cluster = Cluster::new(session.client.clone());
    let changes = flux_apply::apply(&cluster, objects, &options).await.map_err(|error| fail!("{error}"))?;
    Ok(changes.iter().map(|change| format!("{} {}\n", change.id, change.action.as_str())).collect())
}
