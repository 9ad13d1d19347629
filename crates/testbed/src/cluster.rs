//! A cluster to run a story on, whatever stands behind it.
//!
//! A story is an `async fn story(cluster: &Cluster)`; it cannot tell which kind it got and must not try.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use apiserver::Simulation;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{GroupVersionKind, ObjectMeta, Resource, TypeMeta};
use kube::discovery::Scope;
use kube::{Api, Client, Config};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, OnceCell};

use crate::control_plane::{ControlPlane, Options, audit};
use crate::embedded::{Embedded, PLAYED};
use crate::wait;
use crate::workloads::Workloads;

/// The field manager of everything a test applies.
pub const FIELD_MANAGER: &str = "testbed";

/// A cluster and an administrator's client to it. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    backend: Backend,
    kubeconfig: PathBuf,
    // Belongs to the runtime of the test that asked for it: a client cannot outlive its runtime,
    // the servers behind it can.
    client: Client,
}

#[derive(Clone)]
enum Backend {
    Real(Arc<ControlPlane>),
    Embedded(Arc<Embedded>),
}

impl Cluster {
    /// A real control plane, started once and shared by all tests of this process.
    pub async fn real() -> Result<Self> {
        static SHARED: OnceCell<Arc<ControlPlane>> = OnceCell::const_new();
        let start = || async { ControlPlane::start(Options::default()).await.map(Arc::new) };
        let shared = SHARED.get_or_try_init(start).await?;
        Self::on_control_plane(shared.clone()).await
    }

    /// A real control plane of its own, for tests that choose its options or restart it.
    pub async fn start(options: Options) -> Result<Self> {
        Self::on_control_plane(Arc::new(ControlPlane::start(options).await?)).await
    }

    async fn on_control_plane(plane: Arc<ControlPlane>) -> Result<Self> {
        let kubeconfig = plane.kubeconfig().to_owned();
        let client = client_from(&kubeconfig).await?;
        Ok(Self { backend: Backend::Real(plane), kubeconfig, client })
    }

    /// The embedded API server, started once and shared by all tests of this process.
    pub async fn embedded() -> Result<Self> {
        static SHARED: OnceCell<Arc<Embedded>> = OnceCell::const_new();
        let start = || async { Embedded::start(PLAYED).await.map(Arc::new) };
        let shared = SHARED.get_or_try_init(start).await?;
        Ok(Self::on_embedded(shared.clone()))
    }

    /// An embedded API server of its own, for tests that change what others would see.
    pub async fn start_embedded() -> Result<Self> {
        Ok(Self::on_embedded(Arc::new(Embedded::start(PLAYED).await?)))
    }

    /// An embedded API server of its own on which nobody touches workloads but the test.
    pub async fn start_embedded_without_workloads() -> Result<Self> {
        Ok(Self::on_embedded(Arc::new(Embedded::start(Simulation::Off).await?)))
    }

    fn on_embedded(server: Arc<Embedded>) -> Self {
        let (kubeconfig, client) = (server.kubeconfig(), server.client());
        Self { backend: Backend::Embedded(server), kubeconfig, client }
    }

    /// What only a real control plane has: its processes can be stopped and their logs read.
    pub fn control_plane(&self) -> Result<&ControlPlane> {
        match &self.backend {
            Backend::Real(plane) => Ok(plane),
            Backend::Embedded(_) => bail!("this cluster is embedded: it has no control plane of its own"),
        }
    }

    /// The administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client that acts as someone else.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let mut config = config_from(self.kubeconfig_path()).await?;
        config.auth_info.impersonate = Some(user.to_owned());
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        config.auth_info.impersonate_groups = Some(groups);
        Ok(Client::try_from(config)?)
    }

    /// A kubeconfig file for commands such as kubectl.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Who asked for what. The embedded server records only what may have changed something.
    pub fn audit_log(&self) -> audit::Log {
        match &self.backend {
            Backend::Real(plane) => plane.audit_log(),
            Backend::Embedded(server) => audit::Log::at(&server.audit_log()),
        }
    }

    /// Plays Pods, volumes and load balancers until the returned value is dropped. The embedded server plays them by itself.
    pub async fn simulate_workloads(&self) -> Result<Option<Workloads>> {
        match &self.backend {
            Backend::Real(_) => Ok(Some(Workloads::start(config_from(self.kubeconfig_path()).await?)?)),
            Backend::Embedded(_) => Ok(None),
        }
    }

    /// A namespace of the test's own, deleted when the returned value is dropped.
    pub async fn namespace(&self, prefix: &str) -> Result<TemporaryNamespace> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let wanted = Namespace {
            metadata: ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let made = namespaces
            .create(&PostParams::default(), &wanted)
            .await
            .with_context(|| format!("create a namespace {prefix}-…"))?;
        let name = made.metadata.name.context("the namespace has a name")?;
        let config = config_from(self.kubeconfig_path()).await?;
        Ok(TemporaryNamespace { name, config, kept: false })
    }

    /// Applies every document of `text` (server-side, strict about unknown fields) and returns the objects.
    ///
    /// Namespaced objects without a namespace go to `namespace`. After a CustomResourceDefinition its kind can be used
    /// at once, also by the next document.
    pub async fn apply_yaml(&self, namespace: &str, text: &str) -> Result<Vec<DynamicObject>> {
        self.apply_documents(namespace, documents(text)?).await
    }

    async fn apply_documents(
        &self,
        namespace: &str,
        documents: Vec<DynamicObject>,
    ) -> Result<Vec<DynamicObject>> {
        let mut applied = Vec::new();
        for document in documents {
            let object = self.apply(namespace, &document).await;
            let object = object.with_context(|| format!("apply {}", title(&document)))?;
            if is_definition(&object) {
                self.await_served(&object).await?;
            }
            applied.push(object);
        }
        Ok(applied)
    }

    async fn apply(&self, namespace: &str, document: &DynamicObject) -> Result<DynamicObject> {
        let types = document.types.as_ref().context("no apiVersion and kind")?;
        let name = document.metadata.name.as_deref().context("no name")?;
        let namespace = document.metadata.namespace.as_deref().unwrap_or(namespace);
        let api = self.dynamic(types, namespace).await?;
        let params = PatchParams::apply(FIELD_MANAGER).force().validation(ValidationDirective::Strict);
        Ok(api.patch(name, &params, &Patch::Apply(document)).await?)
    }

    /// An API for a kind that is known by its name only.
    pub async fn dynamic(&self, types: &TypeMeta, namespace: &str) -> Result<Api<DynamicObject>> {
        let kind = GroupVersionKind::try_from(types)?;
        let (resource, capabilities) = kube::discovery::pinned_kind(&self.client, &kind)
            .await
            .with_context(|| format!("find {} {}", types.api_version, types.kind))?;
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client(), namespace, &resource),
        })
    }

    /// Waits until `condition` holds for the object `name`; `what` completes the sentence "`name` …".
    pub async fn await_condition<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        condition: impl Fn(&K) -> bool,
    ) -> Result<K>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug + Send + 'static,
    {
        wait::until(api, name, wait::LIMIT, what, condition).await
    }

    /// Waits until the object `name` is gone.
    pub async fn await_gone<K>(&self, api: &Api<K>, name: &str) -> Result<()>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug + Send + 'static,
    {
        wait::until_gone(api, name, wait::LIMIT).await
    }

    /// Waits until `condition` holds for all objects of the API together.
    pub async fn eventually<K>(
        &self,
        api: &Api<K>,
        what: &str,
        condition: impl Fn(&[&K]) -> bool,
    ) -> Result<Vec<K>>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug + Send + 'static,
    {
        wait::until_all(api, wait::LIMIT, what, condition).await
    }

    /// Applies CustomResourceDefinitions and waits until their kinds can be used; nothing else may be in `text`.
    pub async fn apply_crds(&self, text: &str) -> Result<()> {
        let documents = documents(text)?;
        if let Some(other) = documents.iter().find(|document| !is_definition(document)) {
            bail!("{} is not a CustomResourceDefinition", title(other));
        }
        self.apply_documents("default", documents).await?;
        Ok(())
    }

    /// Applies the definitions if this process has not yet provided any to this server: hundreds of stories share one,
    /// and to write, read and apply a megabyte of schema would be most of their work.
    pub async fn provide_crds(&self, definitions: fn() -> Vec<(String, String)>) -> Result<()> {
        static PROVIDED: Mutex<BTreeSet<PathBuf>> = Mutex::const_new(BTreeSet::new());
        let mut provided = PROVIDED.lock().await;
        if provided.contains(&self.kubeconfig) {
            return Ok(());
        }
        for (file, text) in definitions() {
            self.apply_crds(&text).await.with_context(|| file)?;
        }
        provided.insert(self.kubeconfig.clone());
        Ok(())
    }

    /// Waits until a CustomResourceDefinition is accepted and its kinds are served.
    async fn await_served(&self, definition: &DynamicObject) -> Result<()> {
        let types = definition.types.as_ref().context("no apiVersion and kind")?;
        let name = definition.metadata.name.as_deref().context("no name")?;
        let definitions = self.dynamic(types, "").await?;
        let established = |crd: &DynamicObject| has_condition(crd, "Established", "True");
        self.await_condition(&definitions, name, "is established", established).await?;
        let spec = &definition.data["spec"];
        let versions = spec["versions"].as_array().into_iter().flatten();
        for version in versions.filter(|version| version["served"] == true) {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let kind = GroupVersionKind::gvk(
                &text(&spec["group"]),
                &text(&version["name"]),
                &text(&spec["names"]["kind"]),
            );
            let deadline = tokio::time::Instant::now() + wait::LIMIT;
            // Established says that the name is free; discovery follows a moment later, and cannot be watched.
            while let Err(error) = kube::discovery::pinned_kind(&self.client, &kind).await {
                if tokio::time::Instant::now() > deadline {
                    return Err(error).with_context(|| format!("{name} is not served"));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// The names of all namespaces, for tests that look for leftovers.
    pub async fn namespaces(&self) -> Result<Vec<String>> {
        let namespaces: Api<Namespace> = Api::all(self.client());
        let list = namespaces.list(&ListParams::default()).await?;
        let names = list.items.into_iter().filter_map(|item| item.metadata.name);
        Ok(names.collect())
    }
}

/// Whether the object's status has the condition `kind` with `status`.
pub fn has_condition(object: &DynamicObject, kind: &str, status: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == status)
    })
}

/// A namespace that is deleted when this value is dropped. Deletion is started, not awaited.
pub struct TemporaryNamespace {
    name: String,
    config: Config,
    kept: bool,
}

impl TemporaryNamespace {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// It stays for as long as its cluster does.
    ///
    /// For what holds objects with finalizers that nobody will look at any more: such a namespace never goes, and
    /// Kubernetes asks for every kind in it again and again.
    pub fn keep(mut self) -> Self {
        self.kept = true;
        self
    }
}

impl Drop for TemporaryNamespace {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let (name, config) = (self.name.clone(), self.config.clone());
        // The test's runtime may be going away with the test, so the request gets one of its own.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let namespaces: Api<Namespace> = Api::all(Client::try_from(config)?);
                let params = DeleteParams::default();
                let delete = namespaces.delete(&name, &params);
                tokio::time::timeout(Duration::from_secs(10), delete).await??;
                anyhow::Ok(())
            })
        });
        // A cluster that is already gone took the namespace along.
        let _ = thread.join();
    }
}

pub(crate) async fn client_from(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

async fn config_from(kubeconfig: &Path) -> Result<Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

fn documents(text: &str) -> Result<Vec<DynamicObject>> {
    let values: Vec<Option<serde_json::Value>> = serde_saphyr::from_multiple(text).context("read YAML")?;
    values
        .into_iter()
        .flatten()
        .map(|value| serde_json::from_value(value).context("read an object"))
        .collect()
}

fn is_definition(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "CustomResourceDefinition")
}

fn title(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("?", |types| &types.kind);
    let name = object.metadata.name.as_deref().unwrap_or("?");
    format!("{kind} {name}")
}
