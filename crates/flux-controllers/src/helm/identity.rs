//! Which cluster a release goes to, and as whom.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use flux_api::Object;
use flux_api::helm::HelmRelease;
use flux_api::meta::SecretKeyReference;
use flux_apply::Cluster;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use tokio::sync::OnceCell;

use super::Context;
use crate::reconcile::impersonate;

/// Remote clusters whose clients are kept.
const KEPT: usize = 64;
/// Where a kubeconfig stands in its Secret, unless told otherwise.
const KEYS: [&str; 2] = ["value", "value.yaml"];

/// A cluster and what is known of it.
#[derive(Clone)]
pub struct Target {
    pub cluster: Cluster,
    version: Arc<OnceCell<helm::KubeVersion>>,
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

    /// The same cluster, seen by a ServiceAccount.
    fn seen_by(&self, namespace: &str, account: &str) -> Result<Self, Error> {
        let client = impersonate::service_account(&self.cluster.client, namespace, account)
            .map_err(|_| Error::Account(account.to_owned()))?;
        let cluster = self.cluster.seen_by(client);
        Ok(Self { cluster, version: self.version.clone() })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("spec.serviceAccountName: '{0}' is not a valid name")]
    Account(String),
    #[error("could not get KubeConfig secret '{namespace}/{name}': secrets \"{name}\" not found")]
    NoSecret { namespace: String, name: String },
    #[error("could not get KubeConfig secret '{namespace}/{name}': {cause}")]
    Unreadable { namespace: String, name: String, cause: String },
    #[error("KubeConfig secret '{namespace}/{name}' does not contain a '{key}' key with a kubeconfig")]
    NoKey { namespace: String, name: String, key: String },
    /// What is wrong with a kubeconfig is told without quoting it.
    #[error("KubeConfig secret '{namespace}/{name}': {problem}")]
    Invalid { namespace: String, name: String, problem: String },
    #[error("spec.kubeConfig.configMapRef: cloud providers are not supported by this build; use secretRef")]
    Provider,
}

/// Clients of remote clusters, by the version of the Secret they were made from.
#[derive(Default)]
pub struct Remotes(Mutex<VecDeque<(String, Target)>>);

impl Remotes {
    fn get(&self, key: &str) -> Option<Target> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == key).map(|(_, target)| target.clone())
    }

    fn put(&self, key: String, target: Target) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, target));
        kept.truncate(KEPT);
    }
}

impl Context {
    /// The cluster of the spec, as the account of the spec sees it; the controller's own view only when nobody names one.
    pub(super) async fn target(&self, object: &HelmRelease) -> Result<Target, Error> {
        let namespace = Object::namespace(object);
        let target = match &object.spec.kube_config {
            None => self.local.clone(),
            Some(config) => match &config.secret_ref {
                Some(reference) => self.remote(namespace, reference).await?,
                None => return Err(Error::Provider),
            },
        };
        // A default account is for this cluster: nobody knows the accounts of another.
        let default =
            self.options.default_service_account.as_ref().filter(|_| object.spec.kube_config.is_none());
        match object.spec.service_account_name.as_ref().or(default) {
            Some(account) => target.seen_by(namespace, account),
            None => Ok(target),
        }
    }

    async fn remote(&self, namespace: &str, reference: &SecretKeyReference) -> Result<Target, Error> {
        let name = reference.name.clone();
        let namespace = namespace.to_owned();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let secret = match api.get_opt(&name).await {
            Ok(Some(secret)) => secret,
            Ok(None) => return Err(Error::NoSecret { namespace, name }),
            Err(error) => return Err(Error::Unreadable { namespace, name, cause: error.to_string() }),
        };
        let key = format!(
            "{}/{}/{}",
            secret.uid().unwrap_or_default(),
            secret.resource_version().unwrap_or_default(),
            reference.key.as_deref().unwrap_or_default()
        );
        if let Some(known) = self.remotes.get(&key) {
            return Ok(known);
        }
        let data = secret.data.unwrap_or_default();
        let bytes = match &reference.key {
            Some(key) => data.get(key),
            None => KEYS.iter().find_map(|key| data.get(*key)),
        };
        let Some(bytes) = bytes else {
            let key = reference.key.clone().unwrap_or_else(|| KEYS[0].to_owned());
            return Err(Error::NoKey { namespace, name, key });
        };
        let invalid = |problem: &str| Error::Invalid {
            namespace: namespace.clone(),
            name: name.clone(),
            problem: problem.to_owned(),
        };
        let text = std::str::from_utf8(&bytes.0).map_err(|_| invalid("is no text"))?;
        let config = Kubeconfig::from_yaml(text).map_err(|_| invalid("is no kubeconfig"))?;
        let config = Config::from_custom_kubeconfig(harmless(config), &KubeConfigOptions::default())
            .await
            .map_err(|_| invalid("names no cluster and user that can be used"))?;
        let client =
            Client::try_from(config).map_err(|_| invalid("holds certificates that cannot be used"))?;
        let target = Target::new(client);
        self.remotes.put(key, target.clone());
        Ok(target)
    }
}

/// A kubeconfig comes from a tenant: it must not run programs here, read files of this machine, or do without
/// certificates.
fn harmless(mut config: Kubeconfig) -> Kubeconfig {
    for user in &mut config.auth_infos {
        if let Some(user) = &mut user.auth_info {
            user.exec = None;
            user.auth_provider = None;
            user.token_file = None;
            user.client_certificate = None;
            user.client_key = None;
        }
    }
    for cluster in &mut config.clusters {
        if let Some(cluster) = &mut cluster.cluster {
            cluster.certificate_authority = None;
            cluster.insecure_skip_tls_verify = None;
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_neither_runs_programs_nor_reads_files() {
        let text = "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: 'https://x', certificate-authority: /etc/passwd, insecure-skip-tls-verify: true}\nusers:\n- name: u\n  user:\n    tokenFile: /var/run/secrets/token\n    client-key: /etc/shadow\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n";
        let config = harmless(Kubeconfig::from_yaml(text).unwrap());
        let user = config.auth_infos[0].auth_info.as_ref().unwrap();
        assert!(user.exec.is_none() && user.token_file.is_none() && user.client_key.is_none());
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert!(cluster.certificate_authority.is_none() && cluster.insecure_skip_tls_verify.is_none());
    }
}
