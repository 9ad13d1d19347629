//! Whose rights a Kustomization has: those of the account that it, or a flag, names; the controller's own only when
//! nobody names one.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use serde_json::Value;

use super::failure::Failure;
use super::kubeconfig;
use super::kustomization::short;
use super::run::Run;
use crate::reconcile::impersonate;

/// Why there is no identity to act with.
pub(super) enum NoIdentity {
    /// The account or the kubeconfig does not exist.
    Missing(String),
    Refused(String),
}

impl NoIdentity {
    pub(super) fn message(&self) -> &str {
        match self {
            NoIdentity::Missing(message) | NoIdentity::Refused(message) => message,
        }
    }
}

/// The cluster that the Kustomization means, as its account sees it.
pub(super) async fn cluster(run: &Run<'_>) -> Result<flux_apply::Cluster, NoIdentity> {
    let account = account(run)?;
    let Some(reference) = &run.object.spec.kube_config else {
        return own_cluster(run, account).await;
    };
    let remote = kubeconfig::cluster(run, reference).await?;
    match account {
        None => Ok(remote),
        // Whether the account exists there is for that cluster to say.
        Some(account) => impersonated(run, &remote, &account),
    }
}

/// This cluster as the account sees it, wherever the Kustomization applies to.
pub(super) async fn local(run: &Run<'_>) -> Result<flux_apply::Cluster, Failure> {
    let refused = |error: NoIdentity| Failure::Apply(error.message().to_owned());
    let account = account(run).map_err(refused)?;
    own_cluster(run, account).await.map_err(refused)
}

/// The account that is named. One that is named but blank is a mistake with grave consequences, so it is refused.
fn account(run: &Run<'_>) -> Result<Option<String>, NoIdentity> {
    let written = run.raw.data.pointer("/spec/serviceAccountName").and_then(Value::as_str);
    let default = run.ctx.options.default_service_account.as_deref();
    for (name, place) in [(written, "spec.serviceAccountName"), (default, "--default-service-account")] {
        let Some(name) = name else { continue };
        if name.trim().is_empty() {
            return Err(NoIdentity::Refused(format!(
                "{place} is blank; name an account, or leave it out to act as the controller"
            )));
        }
        return Ok(Some(name.to_owned()));
    }
    Ok(None)
}

async fn own_cluster(run: &Run<'_>, account: Option<String>) -> Result<flux_apply::Cluster, NoIdentity> {
    let Some(account) = account else {
        return Ok(run.ctx.cluster.clone());
    };
    // The API server impersonates accounts that do not exist, and whoever may bind roles could have left some for them.
    let accounts: Api<ServiceAccount> = Api::namespaced(run.ctx.client.clone(), run.namespace());
    match accounts.get_metadata_opt(&account).await {
        Ok(Some(_)) => impersonated(run, &run.ctx.cluster, &account),
        Ok(None) => Err(NoIdentity::Missing(format!(
            "the ServiceAccount '{}/{account}' to act as does not exist",
            run.namespace()
        ))),
        Err(error) => Err(NoIdentity::Refused(format!(
            "the ServiceAccount '{}/{account}' to act as cannot be looked up: {}",
            run.namespace(),
            short(&error)
        ))),
    }
}

fn impersonated(
    run: &Run<'_>,
    cluster: &flux_apply::Cluster,
    account: &str,
) -> Result<flux_apply::Cluster, NoIdentity> {
    let client = impersonate::service_account(&cluster.client, run.namespace(), account).map_err(|_| {
        NoIdentity::Refused(format!("spec.serviceAccountName: '{account}' is not a valid name"))
    })?;
    Ok(cluster.seen_by(client))
}
