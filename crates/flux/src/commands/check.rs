//! `flux check`: whether the cluster can run Flux, and whether the Flux that runs there is well.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams};

use crate::error::{CliError, fail};
use crate::output;
use crate::readiness;
use crate::session::Session;
use crate::tree::Invocation;

use super::version::{PART_OF, containers, distribution};

/// The oldest Kubernetes that Flux 2.9 runs on.
const OLDEST: (u64, u64) = (1, 33);

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    output::action("checking prerequisites");
    let session = Session::open(run).await?;
    let mut fine = kubernetes(&session).await;
    if run.is("pre") {
        if !fine {
            return Err(fail!("prerequisites checks failed"));
        }
        output::success("prerequisites checks passed");
        return Ok(());
    }
    output::action("checking version in cluster");
    fine &= installed(&session).await;
    output::action("checking controllers");
    fine &= controllers(&session).await;
    output::action("checking crds");
    fine &= crds(&session).await;
    if !fine {
        return Err(fail!("check failed"));
    }
    output::success("all checks passed");
    Ok(())
}

async fn kubernetes(session: &Session) -> bool {
    let version = match session.client.apiserver_version().await {
        Ok(info) => info.git_version.trim_start_matches('v').to_owned(),
        Err(error) => {
            output::failure(&format!("Kubernetes API call failed: {}", session.failed(error, None)));
            return false;
        }
    };
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u64>().ok());
    let (Some(Some(major)), Some(Some(minor))) = (parts.next(), parts.next()) else {
        output::failure("Kubernetes version can't be determined");
        return false;
    };
    let range = format!(">={}.{}.0-0", OLDEST.0, OLDEST.1);
    if (major, minor) < OLDEST {
        output::failure(&format!("Kubernetes version v{version} does not match {range}"));
        return false;
    }
    output::success(&format!("Kubernetes {version} {range}"));
    true
}

async fn installed(session: &Session) -> bool {
    let api: Api<CustomResourceDefinition> = Api::all(session.client.clone());
    let labels = match api.get("gitrepositories.source.toolkit.fluxcd.io").await {
        Ok(crd) => crd.metadata.labels.unwrap_or_default(),
        Err(error) => {
            output::failure(&format!("checking failed: {}", session.failed(error, None)));
            return false;
        }
    };
    let distribution = distribution(&labels);
    if !distribution.is_empty() {
        output::success(&format!("distribution: {distribution}"));
    }
    let bootstrapped = labels.contains_key(flux_api::names::KUSTOMIZATION_NAMESPACE_LABEL);
    output::success(&format!("bootstrapped: {bootstrapped}"));
    true
}

async fn controllers(session: &Session) -> bool {
    let api: Api<Deployment> = Api::namespaced(session.client.clone(), &session.namespace);
    let Ok(deployments) = api.list(&ListParams::default().labels(PART_OF)).await else { return true };
    if deployments.items.is_empty() {
        output::failure(&format!(
            "no controllers found in the '{}' namespace with the label selector '{PART_OF}'",
            session.namespace
        ));
        return false;
    }
    let mut fine = true;
    for deployment in &deployments.items {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        if ready(session, &api, name).await {
            output::success(&format!("{name}: deployment ready"));
        } else {
            fine = false;
            output::failure(&format!("{name}: deployment not ready"));
        }
        for image in containers(deployment) {
            output::action(&image);
        }
    }
    fine
}

/// Waits for it until the timeout: a rollout may be under way.
async fn ready(session: &Session, api: &Api<Deployment>, name: &str) -> bool {
    let waiting = async {
        loop {
            if let Ok(deployment) = api.get(name).await {
                let mut object = serde_json::to_value(&deployment).unwrap_or_default();
                object["apiVersion"] = "apps/v1".into();
                object["kind"] = "Deployment".into();
                match readiness::is_current(&object) {
                    Ok(true) => return true,
                    Ok(false) => {}
                    Err(_) => return false,
                }
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(session.timeout, waiting).await.unwrap_or(false)
}

async fn crds(session: &Session) -> bool {
    let api: Api<CustomResourceDefinition> = Api::all(session.client.clone());
    let Ok(crds) = api.list(&ListParams::default().labels(PART_OF)).await else { return true };
    if crds.items.is_empty() {
        output::failure(&format!("no crds found with the label selector '{PART_OF}'"));
        return false;
    }
    let mut fine = true;
    for crd in &crds.items {
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        let stored = crd.status.as_ref().and_then(|status| status.stored_versions.as_ref()?.last());
        match stored {
            Some(version) => {
                output::success(&format!("{name}/{version}"));
                tell_of_pruned_fields(crd);
            }
            None => {
                fine = false;
                output::failure(&format!("no stored versions for {name}"));
            }
        }
    }
    fine
}

/// Definitions of another Flux may lack fields of ours; what is written there would be lost in silence.
fn tell_of_pruned_fields(crd: &CustomResourceDefinition) {
    let name = crd.metadata.name.as_deref().unwrap_or_default();
    let known = flux_api::kinds::ALL.iter().find(|kind| format!("{}.{}", kind.plural, kind.group) == name);
    let (Some(kind), Ok(theirs)) = (known, serde_json::to_value(crd)) else { return };
    let dropped = super::pruned::dropped(&flux_api::crds::definition(kind), &theirs);
    if !dropped.is_empty() {
        output::warning(&format!(
            "{name}: the cluster's definition drops {}; `flux install` writes ours",
            dropped.join(", ")
        ));
    }
}
