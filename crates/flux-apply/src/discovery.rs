//! Which kinds a cluster serves, asked once and again when something unknown turns up.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::discovery::{Discovery, Scope};
use tokio::sync::Mutex;

use crate::object::ObjectId;

/// A kind that a look did not find is looked for again no sooner than this.
const AGAIN: Duration = Duration::from_secs(1);

type Kinds = HashMap<(String, String, String), (ApiResource, bool)>;

pub struct Mapper {
    client: Client,
    kinds: RwLock<Arc<Kinds>>,
    asked: Mutex<Option<Instant>>,
    /// Kinds that a look did not find, and when. Another kind is looked for at once: it may have come since.
    missing: RwLock<HashMap<(String, String, String), Instant>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no matches for kind \"{kind}\" in version \"{api_version}\"")]
    NoSuchKind { kind: String, api_version: String },
    #[error("discovery failed: {0}")]
    Failed(String),
}

/// The kinds of one answer.
#[derive(Clone)]
pub struct KnownKinds(Arc<Kinds>);

impl KnownKinds {
    pub fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        self.0.get(&key).map(|(_, namespaced)| *namespaced)
    }

    /// `apps/v1` and `apps/v1/Deployment` of everything, in order.
    pub fn api_versions(&self) -> Vec<String> {
        let mut found = std::collections::BTreeSet::new();
        for (resource, _) in self.0.values() {
            found.insert(resource.api_version.clone());
            found.insert(format!("{}/{}", resource.api_version, resource.kind));
        }
        found.into_iter().collect()
    }

    /// A version in which a kind is served, stable ones first.
    pub fn version_of(&self, group: &str, kind: &str) -> Option<String> {
        let versions =
            self.0.keys().filter(|(g, _, k)| g == group && k == kind).map(|(_, version, _)| version);
        versions
            .min_by_key(|version| {
                (
                    version.contains("alpha"),
                    version.contains("beta"),
                    version.len(),
                    std::cmp::Reverse((*version).clone()),
                )
            })
            .cloned()
    }
}

impl Mapper {
    pub fn new(client: Client) -> Self {
        Self { client, kinds: RwLock::default(), asked: Mutex::default(), missing: RwLock::default() }
    }

    /// The resource behind a kind, and whether it is namespaced.
    pub async fn resource(&self, id: &ObjectId) -> Result<(ApiResource, bool), Error> {
        if let Some(found) = self.known(id) {
            return Ok(found);
        }
        let key = (id.group.clone(), id.version.clone(), id.kind.clone());
        let looked = self.missing.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if looked.is_none_or(|at| at.elapsed() >= AGAIN) {
            self.refresh(Instant::now()).await?;
        }
        if let Some(found) = self.known(id) {
            return Ok(found);
        }
        let mut missing = self.missing.write().unwrap_or_else(PoisonError::into_inner);
        missing.retain(|_, at| at.elapsed() < AGAIN);
        missing.entry(key).or_insert_with(Instant::now);
        Err(Error::NoSuchKind { kind: id.kind.clone(), api_version: id.api_version() })
    }

    /// A way to the object's API.
    pub async fn api(&self, client: &Client, id: &ObjectId) -> Result<Api<DynamicObject>, Error> {
        let (resource, namespaced) = self.resource(id).await?;
        if !namespaced {
            return Ok(Api::all_with(client.clone(), &resource));
        }
        // A namespaced object without a namespace is refused by name when it is written; `default` is never meant.
        Ok(Api::namespaced_with(client.clone(), &id.namespace, &resource))
    }

    /// Forgets the answer: a CRD was applied.
    pub async fn invalidate(&self) {
        self.missing.write().unwrap_or_else(PoisonError::into_inner).clear();
        *self.asked.lock().await = None;
    }

    /// Every kind the cluster serves, by an answer no older than `age`.
    pub async fn all(&self, age: Duration) -> Result<KnownKinds, Error> {
        let fresh = self.asked.lock().await.is_some_and(|at| at.elapsed() < age);
        if !fresh {
            self.refresh(Instant::now()).await?;
        }
        Ok(KnownKinds(self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    fn known(&self, id: &ObjectId) -> Option<(ApiResource, bool)> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone();
        kinds.get(&(id.group.clone(), id.version.clone(), id.kind.clone())).cloned()
    }

    /// Asks the server, unless somebody else began to after `since`.
    async fn refresh(&self, since: Instant) -> Result<(), Error> {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at > since) {
            return Ok(());
        }
        let now = Instant::now();
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await;
        let discovery = discovery.map_err(|error| Error::Failed(error.to_string()))?;
        let mut kinds = Kinds::new();
        for group in discovery.groups() {
            for version in group.versions() {
                for (resource, capabilities) in group.versioned_resources(version) {
                    let key = (resource.group.clone(), resource.version.clone(), resource.kind.clone());
                    kinds.insert(key, (resource, capabilities.scope == Scope::Namespaced));
                }
            }
        }
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kinds);
        *asked = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn id(kind: &str) -> ObjectId {
        ObjectId {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "n".to_owned(),
            name: "a".to_owned(),
        }
    }

    /// A server whose second answer has a kind that the first has not.
    fn client(asked: Arc<AtomicUsize>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_groups = request.uri().path() == "/apis";
            let time = if is_groups { asked.fetch_add(1, Ordering::SeqCst) } else { 0 };
            let resource = json!({
                "resource": "widgets", "singularResource": "widget", "scope": "Namespaced", "verbs": ["get"],
                "responseKind": { "group": "example.com", "version": "v1", "kind": "Widget" },
            });
            let resources = if time > 0 { vec![resource] } else { Vec::new() };
            let groups = json!([{ "metadata": { "name": "example.com" }, "versions": [{ "version": "v1", "resources": resources }] }]);
            let list = json!({
                "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
                "items": if is_groups { groups } else { json!([]) },
            });
            let body = Body::from(list.to_string().into_bytes());
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_kind_that_came_a_moment_ago_is_found() {
        let asked = Arc::new(AtomicUsize::new(0));
        let mapper = Mapper::new(client(asked.clone()));
        // Somebody looks for something else, just before the kind comes.
        assert!(mapper.resource(&id("Gadget")).await.is_err());
        assert!(mapper.resource(&id("Widget")).await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        // What was not found is not asked for again at once, however often it is wanted.
        for _ in 0..10 {
            assert!(mapper.resource(&id("Gadget")).await.is_err());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
