//! `flux uninstall`: takes Flux away and leaves what it deployed alone.
//!
//! Controllers go first, so that nobody is left to prune when finalizers and definitions go.

use flux_api::kinds as api;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::error::{CliError, fail};
use crate::output;
use crate::session::{Session, resource};
use crate::tree::Invocation;

use super::delete::confirmed;
use super::install::Installation;
use super::version::PART_OF;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let dry_run = run.is("dry-run");
    if !dry_run && !run.is("silent") {
        let found = Installation::find(&session).await;
        let found = found.map_err(|error| fail!("cluster info unavailable: {error}"))?;
        let question = match found.filter(|found| !found.is_ours()) {
            Some(found) => format!(
                "Flux is managed by {}! Are you sure you want to delete Flux and its CRDs using Flux CLI",
                found.managed_by
            ),
            None => "Are you sure you want to delete Flux and its custom resource definitions".to_owned(),
        };
        if !confirmed(&question) {
            return Err(fail!("aborting"));
        }
    }
    let removal = Removal { session: &session, dry_run };
    let namespace = Some(session.namespace.as_str());
    output::action(&format!("deleting components in {} namespace", session.namespace));
    for (group, version, kind, plural) in [
        ("apps", "v1", "Deployment", "deployments"),
        ("", "v1", "Service", "services"),
        ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
        ("", "v1", "ServiceAccount", "serviceaccounts"),
    ] {
        removal.labelled(&described(group, version, kind, plural), namespace).await;
    }
    for (kind, plural) in [("ClusterRole", "clusterroles"), ("ClusterRoleBinding", "clusterrolebindings")] {
        removal.labelled(&described("rbac.authorization.k8s.io", "v1", kind, plural), None).await;
    }
    output::action("deleting toolkit.fluxcd.io finalizers in all namespaces");
    for kind in FINALIZED {
        removal.finalizers(kind).await;
    }
    output::action("deleting toolkit.fluxcd.io custom resource definitions");
    let definitions =
        described("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    removal.labelled(&definitions, None).await;
    if !run.is("keep-namespace") {
        let namespaces = described("", "v1", "Namespace", "namespaces");
        removal.delete(&namespaces, None, &session.namespace).await;
    }
    output::success("uninstall finished");
    Ok(())
}

/// In upstream's order.
const FINALIZED: [&api::Kind; 14] = [
    &api::GIT_REPOSITORY,
    &api::OCI_REPOSITORY,
    &api::HELM_REPOSITORY,
    &api::HELM_CHART,
    &api::BUCKET,
    &api::KUSTOMIZATION,
    &api::HELM_RELEASE,
    &api::ALERT,
    &api::PROVIDER,
    &api::RECEIVER,
    &api::IMAGE_POLICY,
    &api::IMAGE_REPOSITORY,
    &api::IMAGE_UPDATE_AUTOMATION,
    &api::ARTIFACT_GENERATOR,
];

fn described(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// What cannot be removed is told and does not stop the rest.
struct Removal<'a> {
    session: &'a Session,
    dry_run: bool,
}

impl Removal<'_> {
    fn api(&self, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.session.client.clone();
        namespace.map_or_else(
            || Api::all_with(client.clone(), kind),
            |namespace| Api::namespaced_with(client.clone(), namespace, kind),
        )
    }

    fn suffix(&self) -> &'static str {
        if self.dry_run { "(dry run)" } else { "" }
    }

    async fn labelled(&self, kind: &ApiResource, namespace: Option<&str>) {
        let Ok(found) = self.api(kind, namespace).list(&ListParams::default().labels(PART_OF)).await else {
            return;
        };
        for name in found.items.into_iter().filter_map(|object| object.metadata.name) {
            self.delete(kind, namespace, &name).await;
        }
    }

    async fn delete(&self, kind: &ApiResource, namespace: Option<&str>, name: &str) {
        let shown = match namespace {
            Some(namespace) => format!("{}/{namespace}/{name}", kind.kind),
            None => format!("{}/{name}", kind.kind),
        };
        let parameters = DeleteParams { dry_run: self.dry_run, ..DeleteParams::background() };
        match self.api(kind, namespace).delete(name, &parameters).await {
            Ok(_) => output::success(&format!("{shown} deleted {}", self.suffix())),
            Err(error) => {
                let cause = self.session.failed(error, None);
                output::failure(&format!("{shown} deletion failed: {cause}"));
            }
        }
    }

    async fn finalizers(&self, kind: &api::Kind) {
        let Ok(found) = self.session.objects_everywhere(kind).list(&ListParams::default()).await else {
            return;
        };
        for object in found.items {
            let (namespace, name) =
                (object.metadata.namespace.unwrap_or_default(), object.metadata.name.unwrap_or_default());
            let shown = format!("{}/{namespace}/{name}", kind.kind);
            let parameters = PatchParams { dry_run: self.dry_run, ..PatchParams::default() };
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.session.client.clone(), &namespace, &resource(kind));
            match api.patch(&name, &parameters, &patch).await {
                Ok(_) => output::success(&format!("{shown} finalizers deleted {}", self.suffix())),
                Err(error) => {
                    let cause = self.session.failed(error, None);
                    output::failure(&format!("{shown} removing finalizers failed: {cause}"));
                }
            }
        }
    }
}
