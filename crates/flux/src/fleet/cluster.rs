//! A cluster in this process: the API server, the controllers, and what bootstrap would have left on it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use flux_api::kinds::{self, Controller};
use flux_controllers::manager::{Manager, ManagerOptions};
use flux_controllers::source::{Depot, StandIn};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::LogBook;
use super::files::{EntryPoint, Fleet};
use super::overheard::{Overheard, Said};
use crate::commands::install::installation;

pub(crate) const NAMESPACE: &str = "flux-system";
const MANAGER: &str = "flux-up";

pub(crate) struct Settings {
    pub(crate) fleet: Fleet,
    pub(crate) entry: EntryPoint,
    /// What there is instead of the network.
    pub(crate) depot: Depot,
    /// Where artifacts, the kubeconfig and the objects are kept.
    pub(crate) state: PathBuf,
    /// Whether the objects outlive the process.
    pub(crate) durable: bool,
    /// There are no nodes here: Pods pretend to have started after this long.
    pub(crate) workloads_ready_after: Duration,
    /// Listen for others on this port; any free one when 0, none when `None`.
    pub(crate) port: Option<u16>,
    /// The controllers show as the Deployments they would be, with these logs.
    pub(crate) shown: Option<Arc<LogBook>>,
}

pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Where the server listens, and the kubeconfig that leads there.
    pub(crate) listening: Option<(String, PathBuf)>,
    /// What the server warned of.
    pub(crate) said: Said,
    server: apiserver::Handle,
    manager: Manager,
}

/// What runs in `flux up` and `flux test`: everything but image automation, since a fleet that is tried out must
/// neither depend on what a registry holds at the moment nor push commits.
pub(crate) fn controllers() -> BTreeSet<Controller> {
    let is_tried = |controller: &Controller| {
        !matches!(controller, Controller::ImageReflector | Controller::ImageAutomation)
    };
    flux_controllers::manager::AVAILABLE.iter().copied().filter(is_tried).collect()
}

impl Cluster {
    pub(crate) async fn start(settings: &Settings) -> Result<Cluster> {
        std::fs::create_dir_all(&settings.state)?;
        let simulation = apiserver::Simulation::On { delay: settings.workloads_ready_after };
        let mut builder = apiserver::Server::builder().simulation(simulation);
        if settings.durable {
            builder = builder.data_dir(settings.state.join("objects"));
        }
        if let Some(book) = &settings.shown {
            builder = builder.logs(book.clone());
        }
        let server = builder.start().await?;
        let listening = match settings.port {
            None => None,
            Some(port) => {
                let listening = server.serve(([127, 0, 0, 1], port).into()).await?;
                let kubeconfig = settings.state.join("kubeconfig");
                listening.write_kubeconfig(&kubeconfig)?;
                Some((listening.url().to_owned(), kubeconfig))
            }
        };
        let (service, said) = Overheard::new(server.service());
        let client = Client::new(service, NAMESPACE);
        match settings.shown {
            None => install(&client).await?,
            Some(_) => install_shown(&client).await?,
        }
        let manager = Manager::start(client.clone(), options(settings)).await?;
        bootstrap(&client, settings).await?;
        Ok(Cluster { client, listening, said, server, manager })
    }

    pub(crate) async fn stop(self) {
        self.manager.stop().await;
        self.server.shutdown();
    }
}

fn options(settings: &Settings) -> ManagerOptions {
    let storage: &Path = &settings.state.join("artifacts");
    let mut options = ManagerOptions::new(controllers(), storage.to_owned(), ([127, 0, 0, 1], 0).into());
    let mut urls = settings.fleet.urls.clone();
    urls.extend(settings.entry.url.clone());
    let mut depot = settings.depot.clone();
    // A clone is for looking at; the source fetches for itself.
    if settings.fleet.clone.is_none() {
        depot.stand_ins.insert(0, StandIn { place: settings.fleet.place.clone(), urls });
    }
    options.kustomize.depot = Some(depot.clone());
    options.depot = Some(depot);
    options.most_retry = Duration::from_secs(10);
    // A fleet that is tried out writes to nobody's chat and sets no commit's status.
    options.notification.deliver = false;
    options.notification.events_addr = ([127, 0, 0, 1], 0).into();
    options.notification.receiver_addr = ([127, 0, 0, 1], 0).into();
    // As an installation with source-watcher has it.
    options.kustomize.gates.external_artifact = true;
    options.helm.external_artifact = true;
    options
}

fn api(client: &Client, kind: &kinds::Kind) -> Api<DynamicObject> {
    let resource = flux_controllers::reconcile::resource(kind);
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

async fn apply(api: &Api<DynamicObject>, object: &Value) -> Result<()> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// The kinds of Flux and the namespace they live in.
async fn install(client: &Client) -> Result<()> {
    let resource = |group: &str, kind: &str, plural: &str| ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let crd = resource("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &crd);
    for definition in flux_api::crds::all() {
        apply(&crds, &definition).await?;
    }
    established(&crds).await?;
    let namespaces: Api<DynamicObject> =
        Api::all_with(client.clone(), &resource("", "Namespace", "namespaces"));
    apply(
        &namespaces,
        &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
    )
    .await?;
    let accounts = resource("", "ServiceAccount", "serviceaccounts");
    let accounts: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &accounts);
    let mut subjects = Vec::new();
    // Kustomizations name them; with the rights that an installation gives them.
    for name in ["kustomize-controller", "helm-controller"] {
        let metadata = json!({ "name": name, "namespace": NAMESPACE });
        apply(&accounts, &json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }))
            .await?;
        subjects.push(json!({ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }));
    }
    let binding = resource("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings");
    let bindings: Api<DynamicObject> = Api::all_with(client.clone(), &binding);
    let admins = json!({
        "apiVersion": binding.api_version, "kind": binding.kind,
        "metadata": { "name": format!("cluster-reconciler-{NAMESPACE}") },
        "roleRef": { "apiGroup": binding.group, "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": subjects,
    });
    apply(&bindings, &admins).await
}

/// The same as `flux install` leaves it: with the Deployments, so that commands about an installation find one.
async fn install_shown(client: &Client) -> Result<()> {
    let options = flux_apply::Options::new(MANAGER);
    flux_apply::apply(
        &flux_apply::Cluster::new(client.clone()),
        installation(NAMESPACE, &controllers()),
        &options,
    )
    .await?;
    Ok(())
}

/// Waits until every kind is served.
async fn established(crds: &Api<DynamicObject>) -> Result<()> {
    let is_established = |crd: &DynamicObject| {
        let conditions = crd.data.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|one| one["type"] == "Established" && one["status"] == "True")
    };
    for _ in 0..1_000 {
        if crds.list(&Default::default()).await?.iter().all(is_established) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("the API server does not serve the kinds of Flux")
}

/// The source and the Kustomization that `flux bootstrap` leaves behind.
async fn bootstrap(client: &Client, settings: &Settings) -> Result<()> {
    let source = json!({
        "apiVersion": kinds::GIT_REPOSITORY.api_version(), "kind": "GitRepository",
        "metadata": { "name": NAMESPACE, "namespace": NAMESPACE },
        "spec": { "url": settings.fleet.url, "interval": "1m", "ref": { "branch": settings.fleet.branch } },
    });
    apply(&api(client, &kinds::GIT_REPOSITORY), &source).await?;
    let sync = json!({
        "apiVersion": kinds::KUSTOMIZATION.api_version(), "kind": "Kustomization",
        "metadata": { "name": NAMESPACE, "namespace": NAMESPACE },
        "spec": {
            "interval": "10m", "retryInterval": "5s", "prune": true, "path": format!("./{}", settings.entry.path),
            "sourceRef": { "kind": "GitRepository", "name": NAMESPACE },
        },
    });
    apply(&api(client, &kinds::KUSTOMIZATION), &sync).await
}
