//! Which cluster a release goes to, as whom, and what is known of that cluster.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flux_api::Object;
use flux_api::helm::HelmRelease;
use flux_apply::Cluster;
use kube::Client;
use tokio::sync::OnceCell;

use super::Context;
use crate::identity::{Asking, NoIdentity};

/// Clusters whose versions are kept.
const KEPT: usize = 64;

type Version = Arc<OnceCell<helm::KubeVersion>>;

/// A cluster and what is known of it.
#[derive(Clone)]
pub struct Target {
    pub cluster: Cluster,
    version: Version,
}

impl Target {
    pub fn new(client: Client) -> Self {
        Self { cluster: Cluster::new(client), version: Arc::default() }
    }

    /// The cluster's version, asked for once.
    pub async fn kube_version(&self) -> Result<&helm::KubeVersion, String> {
        let ask = || async {
            let info = self.cluster.client.apiserver_version().await.map_err(|error| error.to_string())?;
            Ok(helm::KubeVersion::reported(&info.git_version, &info.major, &info.minor, helm::Dialect::Helm4))
        };
        self.version.get_or_try_init(ask).await
    }
}

/// Versions of other clusters. A cluster is known by its kinds, which all who see it share.
#[derive(Default)]
pub struct Remotes {
    pub clusters: crate::identity::Clusters,
    versions: Mutex<VecDeque<(Cluster, Version)>>,
}

impl Remotes {
    fn version(&self, cluster: &Cluster) -> Version {
        let mut kept = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().find(|(known, _)| Arc::ptr_eq(&known.mapper, &cluster.mapper));
        if let Some((_, version)) = known {
            return version.clone();
        }
        let version = Version::default();
        kept.push_front((cluster.clone(), version.clone()));
        kept.truncate(KEPT);
        version
    }
}

impl Context {
    /// This cluster, as the account of the spec sees it, wherever the release goes.
    pub(super) async fn here(&self, object: &HelmRelease) -> Result<Cluster, NoIdentity> {
        Asking { kube_config: None, ..self.asking(object) }.cluster().await
    }

    fn asking<'a>(&'a self, object: &'a HelmRelease) -> Asking<'a> {
        Asking {
            client: &self.client,
            own: &self.local.cluster,
            known: &self.remotes.clusters,
            options: &self.options.identity,
            namespace: Object::namespace(object),
            account: object.spec.service_account_name.as_deref(),
            kube_config: object.spec.kube_config.as_ref(),
            on_login: None,
        }
    }

    /// The cluster of the spec, as the account of the spec sees it; the controller's own view only when nobody names one.
    pub(super) async fn target(&self, object: &HelmRelease) -> Result<Target, NoIdentity> {
        let cluster = self.asking(object).cluster().await?;
        let version = match object.spec.kube_config {
            None => self.local.version.clone(),
            Some(_) => self.remotes.version(&cluster),
        };
        Ok(Target { cluster, version })
    }
}
