//! Which cluster an object's changes go to, and with whose rights: those of the account that it, or a flag, names; the
//! controller's own only when nobody names one.

mod kubeconfig;

pub use kubeconfig::Clusters;

use flux_api::meta::KubeConfigReference;
use flux_api::secret::SecretString;
use flux_apply::Cluster;
use flux_remote::cloud::CacheEvent;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::reconcile::impersonate;

/// Why there is no identity to act with.
#[derive(Debug)]
pub enum NoIdentity {
    /// The account or the kubeconfig does not exist.
    Missing(String),
    Refused(String),
}

impl NoIdentity {
    pub fn message(&self) -> &str {
        match self {
            NoIdentity::Missing(message) | NoIdentity::Refused(message) => message,
        }
    }
}

/// A token of an account for these audiences; the cluster says how long it lasts where nobody does.
pub async fn token(
    accounts: &Api<ServiceAccount>,
    name: &str,
    audiences: Vec<String>,
    seconds: Option<i64>,
) -> Result<SecretString, kube::Error> {
    let spec = TokenRequestSpec { audiences, expiration_seconds: seconds, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    Ok(SecretString::new(answer.status.map(|status| status.token).unwrap_or_default()))
}

/// What flags and gates say about identities.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Impersonated where an object names nobody.
    pub default_service_account: Option<String>,
    /// The identity that logs in to other clusters where a ConfigMap names nobody.
    pub default_kubeconfig_service_account: Option<String>,
    /// Allow kubeconfig files to run programs.
    pub insecure_kubeconfig_exec: bool,
    /// Allow kubeconfig files to switch off certificate checks.
    pub insecure_kubeconfig_tls: bool,
    pub object_level_workload_identity: bool,
}

/// Who asks, and what an answer is made of.
pub struct Asking<'a> {
    /// The controller's own.
    pub client: &'a Client,
    pub own: &'a Cluster,
    pub known: &'a Clusters,
    pub options: &'a Options,
    pub namespace: &'a str,
    /// `spec.serviceAccountName` as it is written: blank is not the same as absent.
    pub account: Option<&'a str>,
    pub kube_config: Option<&'a KubeConfigReference>,
    /// Hears whether a login to another cluster was at hand.
    pub on_login: Option<&'a (dyn Fn(CacheEvent) + Send + Sync)>,
}

impl Asking<'_> {
    /// The cluster that the object means, as its account sees it.
    pub async fn cluster(&self) -> Result<Cluster, NoIdentity> {
        let account = self.account()?;
        let Some(reference) = self.kube_config else {
            return self.own_cluster(account).await;
        };
        let remote = self.remote(reference).await?;
        match account {
            None => Ok(remote),
            // Whether the account exists there is for that cluster to say.
            Some(account) => self.impersonated(&remote, &account),
        }
    }

    /// This cluster as the account sees it, wherever the object's changes go to.
    pub async fn local(&self) -> Result<Cluster, NoIdentity> {
        self.own_cluster(self.account()?).await
    }

    /// The account that is named. One that is named but blank is a mistake with grave consequences, so it is refused.
    fn account(&self) -> Result<Option<String>, NoIdentity> {
        let default = self.options.default_service_account.as_deref();
        for (name, place) in
            [(self.account, "spec.serviceAccountName"), (default, "--default-service-account")]
        {
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

    async fn own_cluster(&self, account: Option<String>) -> Result<Cluster, NoIdentity> {
        let Some(account) = account else {
            return Ok(self.own.clone());
        };
        // The API server impersonates accounts that do not exist, and whoever may bind roles could have left some for
        // them.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let place = format!("{}/{account}", self.namespace);
        match accounts.get_metadata_opt(&account).await {
            Ok(Some(_)) => self.impersonated(self.own, &account),
            Ok(None) => {
                Err(NoIdentity::Missing(format!("the ServiceAccount '{place}' to act as does not exist")))
            }
            Err(error) => Err(NoIdentity::Refused(format!(
                "the ServiceAccount '{place}' to act as cannot be looked up: {}",
                short(&error)
            ))),
        }
    }

    fn impersonated(&self, cluster: &Cluster, account: &str) -> Result<Cluster, NoIdentity> {
        let client =
            impersonate::service_account(&cluster.client, self.namespace, account).map_err(|_| {
                NoIdentity::Refused(format!("spec.serviceAccountName: '{account}' is not a valid name"))
            })?;
        Ok(cluster.seen_by(client))
    }
}

fn short(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(answer) => answer.message.clone(),
        error => error.to_string(),
    }
}
