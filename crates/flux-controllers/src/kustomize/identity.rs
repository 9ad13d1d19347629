//! Whose rights a Kustomization has.

use flux_apply::Cluster;
use serde_json::Value;

use super::failure::Failure;
use super::run::Run;
use crate::identity::{Asking, Options};

pub(super) use crate::identity::NoIdentity;

/// The cluster that the Kustomization means, as its account sees it.
pub(super) async fn cluster(run: &Run<'_>) -> Result<Cluster, NoIdentity> {
    let count = |event| run.ctx.identity.count_in("fetch_kubeconfig", run.asker(), event);
    let options = options(run);
    let asking = Asking { on_login: Some(&count), ..asking(run, &options) };
    asking.cluster().await
}

/// This cluster as the account sees it, wherever the Kustomization applies to.
pub(super) async fn local(run: &Run<'_>) -> Result<Cluster, Failure> {
    let local = asking(run, &options(run)).local().await;
    local.map_err(|error| Failure::Apply(error.message().to_owned()))
}

fn options(run: &Run<'_>) -> Options {
    let options = &run.ctx.options;
    Options {
        default_service_account: options.default_service_account.clone(),
        default_kubeconfig_service_account: options.default_kubeconfig_service_account.clone(),
        insecure_kubeconfig_exec: options.insecure_kubeconfig_exec,
        insecure_kubeconfig_tls: options.insecure_kubeconfig_tls,
        object_level_workload_identity: options.gates.object_level_workload_identity,
    }
}

fn asking<'a>(run: &'a Run<'_>, options: &'a Options) -> Asking<'a> {
    Asking {
        client: &run.ctx.client,
        own: &run.ctx.cluster,
        known: &run.ctx.memory.remote_clusters,
        options,
        namespace: run.namespace(),
        account: run.raw.data.pointer("/spec/serviceAccountName").and_then(Value::as_str),
        kube_config: run.object.spec.kube_config.as_ref(),
        on_login: None,
    }
}
