//! Flux at work in a namespace of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use flux_api::kinds::{self, Controller, Kind};
use flux_controllers::manager::{Manager, ManagerOptions};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::git_server::{GitServer, Repository};
use testbed::{Cluster, TemporaryNamespace};

tokio::task_local! {
    /// Set where a story is told with everything as upstream does it.
    pub static AS_UPSTREAM: ();
}

/// The controllers, a namespace they watch, and a repository `fleet` they may fetch from.
pub struct Flux {
    pub namespace: TemporaryNamespace,
    pub server: GitServer,
    pub fleet: Repository,
    client: kube::Client,
    manager: Option<Manager>,
    storage: tempfile::TempDir,
    controllers: BTreeSet<Controller>,
    tune: Tune,
}

type Tune = Box<dyn Fn(&mut ManagerOptions) + Send + Sync>;

impl Flux {
    pub async fn start(cluster: &Cluster, controllers: &[Controller]) -> Self {
        Self::start_with(cluster, controllers, |_| {}).await
    }

    /// The same with other options.
    pub async fn start_with(
        cluster: &Cluster,
        controllers: &[Controller],
        tune: impl Fn(&mut ManagerOptions) + Send + Sync + 'static,
    ) -> Self {
        cluster.provide_crds(flux_api::crds::yaml).await.unwrap();
        let namespace = cluster.namespace("story").await.unwrap().keep();
        let server = GitServer::start().unwrap();
        let fleet = server.create("fleet").unwrap();
        let storage = tempfile::tempdir().unwrap();
        let controllers = controllers.iter().copied().collect();
        let mut flux = Self {
            namespace,
            server,
            fleet,
            client: cluster.client(),
            manager: None,
            storage,
            controllers,
            tune: Box::new(tune),
        };
        flux.resume().await;
        flux
    }

    /// Starts the controllers (again).
    pub async fn resume(&mut self) {
        self.resume_as(self.client.clone()).await;
    }

    /// The same with a client of their own.
    pub async fn resume_as(&mut self, client: kube::Client) {
        let storage = self.storage.path().to_owned();
        let address = ([127, 0, 0, 1], 0).into();
        let mut options = ManagerOptions {
            namespace: Some(self.namespace.name().to_owned()),
            least_retry: Duration::from_millis(200),
            most_retry: Duration::from_secs(2),
            ..ManagerOptions::new(self.controllers.clone(), storage, address)
        };
        if AS_UPSTREAM.try_with(|()| ()).is_ok() {
            options.kustomize.upstream_only = true;
            options.automation.upstream_only = true;
        }
        (self.tune)(&mut options);
        self.manager = Some(Manager::start(client, options).await.unwrap());
    }

    /// Has the controllers speak to the server through another client; takes effect when they resume.
    pub fn through(&mut self, client: kube::Client) {
        self.client = client;
    }

    pub async fn stop(&mut self) {
        if let Some(manager) = self.manager.take() {
            manager.stop().await;
        }
    }

    /// The controllers at work.
    pub fn manager(&self) -> &Manager {
        self.manager.as_ref().expect("they were started")
    }

    /// Where artifacts are kept.
    pub fn storage(&self) -> &std::path::Path {
        self.storage.path()
    }

    pub fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let resource = flux_controllers::reconcile::resource(kind);
        Api::namespaced_with(self.client.clone(), self.namespace.name(), &resource)
    }

    /// Applies an object of one of Flux's kinds.
    pub async fn apply(&self, kind: &Kind, name: &str, spec: Value) {
        self.apply_labelled(kind, name, spec, json!({})).await;
    }

    pub async fn apply_labelled(&self, kind: &Kind, name: &str, spec: Value, labels: Value) {
        let object = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": { "name": name, "namespace": self.namespace.name(), "labels": labels },
            "spec": spec,
        });
        let parameters = PatchParams::apply("story").force();
        self.api(kind).patch(name, &parameters, &Patch::Apply(object)).await.unwrap();
    }

    /// Writes a Secret, anew if it is there.
    pub async fn secret(&self, name: &str, data: &[(&str, &str)]) {
        let data: serde_json::Map<String, Value> =
            data.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let api: Api<k8s_openapi::api::core::v1::Secret> =
            Api::namespaced(self.client.clone(), self.namespace.name());
        let _ = api.delete(name, &Default::default()).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name }, "stringData": data,
        });
        api.create(&Default::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// Reason and message of every Event about the object, so far.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        let api: Api<k8s_openapi::api::core::v1::Event> =
            Api::namespaced(self.client.clone(), self.namespace.name());
        let events = api.list(&Default::default()).await.unwrap().items;
        let about = events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default())).collect()
    }

    /// Waits for an Event about the object.
    pub async fn event(&self, name: &str, reason: &str, text: &str) {
        let limit = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let events = self.events(name).await;
            if events.iter().any(|(why, message)| why == reason && message.contains(text)) {
                return;
            }
            assert!(std::time::Instant::now() < limit, "no {reason} with '{text}' in {events:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A GitRepository of the repository `fleet` at `main`.
    pub async fn git_repository(&self, name: &str) {
        let url = self.server.http_url("fleet");
        let spec = json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } });
        self.apply(&kinds::GIT_REPOSITORY, name, spec).await;
    }

    /// Asks for a reconcile, as `flux reconcile` does.
    pub async fn reconcile(&self, kind: &Kind, name: &str) {
        self.reconcile_as(kind, name, &format!("{:?}", std::time::SystemTime::now())).await;
    }

    /// The same with a token to be recognised by.
    pub async fn reconcile_as(&self, kind: &Kind, name: &str, token: &str) {
        let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until `condition` holds; the object as it is then.
    pub async fn until(
        &self,
        kind: &Kind,
        name: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let seen = |object: &DynamicObject| condition(&serde_json::to_value(object).unwrap());
        // Long enough for a busy machine and for faults that come at random.
        let limit = Duration::from_secs(90);
        let object = testbed::wait::until(&self.api(kind), name, limit, what, seen).await.unwrap();
        serde_json::to_value(object).unwrap()
    }

    /// Waits for an event about `name` whose message contains `text`.
    pub async fn told(&self, name: &str, text: &str) -> Event {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace.name());
        let is_it = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.message.as_deref().unwrap_or_default().contains(text)
        };
        let what = format!("have one about {name} that says '{text}'");
        let limit = Duration::from_secs(30);
        let all =
            testbed::wait::until_all(&events, limit, &what, |events| events.iter().any(|one| is_it(one)));
        all.await.unwrap().into_iter().find(is_it).unwrap()
    }

    /// Waits until the object is ready; its `Ready` message.
    pub async fn ready(&self, kind: &Kind, name: &str) -> Value {
        self.until(kind, name, "is ready", |object| ready(object).0 == "True").await
    }

    pub async fn not_ready(&self, kind: &Kind, name: &str, reason: &str) -> Value {
        let what = format!("is not ready because of {reason}");
        self.until(kind, name, &what, |object| {
            let (status, why, _) = ready(object);
            status == "False" && why == reason
        })
        .await
    }
}

/// Status, reason and message of Ready.
pub fn ready(object: &Value) -> (&str, &str, &str) {
    condition(object, "Ready")
}

/// Status, reason and message of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> (&'a str, &'a str, &'a str) {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|one| one["type"] == kind);
    let text = |key: &str| found.and_then(|found| found.get(key)).and_then(Value::as_str).unwrap_or_default();
    (text("status"), text("reason"), text("message"))
}
