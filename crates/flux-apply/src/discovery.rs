//! Which kinds a cluster serves, asked once and again when something unknown turns up.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::discovery::{Discovery, Scope};
use tokio::sync::Mutex;

use crate::object::ObjectId;

/// A kind that is still unknown after a look is looked for again no sooner than this.
const AGAIN: Duration = Duration::from_secs(1);

type Kinds = HashMap<(String, String, String), (ApiResource, bool)>;

pub struct Mapper {
    client: Client,
    kinds: RwLock<Arc<Kinds>>,
    asked: Mutex<Option<Instant>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no matches for kind \"{kind}\" in version \"{api_version}\"")]
    NoSuchKind { kind: String, api_version: String },
    #[error("discovery failed: {0}")]
    Failed(String),
}

impl Mapper {
    pub fn new(client: Client) -> Self {
        Self { client, kinds: RwLock::default(), asked: Mutex::default() }
    }

    /// The resource behind a kind, and whether it is namespaced.
    pub async fn resource(&self, id: &ObjectId) -> Result<(ApiResource, bool), Error> {
        if let Some(found) = self.known(id) {
            return Ok(found);
        }
        self.refresh().await?;
        self.known(id)
            .ok_or_else(|| Error::NoSuchKind { kind: id.kind.clone(), api_version: id.api_version() })
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
        *self.asked.lock().await = None;
    }

    fn known(&self, id: &ObjectId) -> Option<(ApiResource, bool)> {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone();
        kinds.get(&(id.group.clone(), id.version.clone(), id.kind.clone())).cloned()
    }

    async fn refresh(&self) -> Result<(), Error> {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < AGAIN) {
            return Ok(());
        }
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
        *asked = Some(Instant::now());
        Ok(())
    }
}
