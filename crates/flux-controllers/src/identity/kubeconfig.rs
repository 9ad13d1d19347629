//! Other clusters: a kubeconfig in a Secret, or a ConfigMap that says how to log in with a token of an account here.
//!
//! A kubeconfig comes from a tenant, and is used in the controller's pod: programs, files and unchecked certificates
//! in it are refused unless a flag allows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::meta::KubeConfigReference;
use flux_apply::Cluster;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};

use super::{Asking, NoIdentity, Options, short};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Clients that are kept.
const MOST: usize = 256;
/// How long a token is asked for, and how long it is used.
const TOKEN_SECONDS: i64 = 3600;
const TOKEN_USED: Duration = Duration::from_secs(2880);

/// Clients of other clusters by what they were made from; connections and discovery are worth keeping.
#[derive(Default)]
pub struct Clusters(Mutex<BTreeMap<String, (Instant, Cluster)>>);

impl Clusters {
    fn get(&self, key: &str) -> Option<Cluster> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(made, _)| made.elapsed() < TOKEN_USED).map(|(_, cluster)| cluster.clone())
    }

    fn put(&self, key: String, cluster: &Cluster) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (made, _)| made.elapsed() < TOKEN_USED);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now(), cluster.clone()));
    }
}

impl Asking<'_> {
    /// The cluster of a reference, as its kubeconfig or token sees it.
    pub(super) async fn remote(&self, reference: &KubeConfigReference) -> Result<Cluster, NoIdentity> {
        match (&reference.secret_ref, &reference.config_map_ref) {
            (Some(secret), _) => self.by_secret(&secret.name, secret.key.as_deref()).await,
            (None, Some(map)) => self.by_config_map(&map.name).await,
            (None, None) => {
                Err(NoIdentity::Refused("spec.kubeConfig names neither a Secret nor a ConfigMap".to_owned()))
            }
        }
    }

    async fn by_secret(&self, name: &str, key: Option<&str>) -> Result<Cluster, NoIdentity> {
        let what = format!("Secret '{}/{name}'", self.namespace);
        let api: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        let secret = api.get(name).await.map_err(|error| unavailable(error, &what))?;
        let version = secret.resource_version().unwrap_or_default();
        let cached = format!("{what} {} {version}", key.unwrap_or_default());
        if let Some(cluster) = self.known.get(&cached) {
            return Ok(cluster);
        }
        let data = secret.data.unwrap_or_default();
        let keys: Vec<&str> = key.map_or_else(|| vec!["value", "value.yaml"], |key| vec![key]);
        let text = keys.iter().find_map(|key| data.get(*key)).ok_or_else(|| {
            NoIdentity::Refused(format!("the kubeConfig {what} has no key {}", keys.join(" or ")))
        })?;
        let refused = |problem: String| NoIdentity::Refused(format!("the kubeConfig {what}: {problem}"));
        let text = std::str::from_utf8(&text.0).map_err(|_| refused("is not text".to_owned()))?;
        // The parser's message may quote the file, and with it a key.
        let file = Kubeconfig::from_yaml(text).map_err(|_| refused("is not a kubeconfig".to_owned()))?;
        let file = checked(file, self.options).map_err(refused)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| refused(error.to_string()))?;
        self.connect(cached, config).map_err(refused)
    }

    async fn by_config_map(&self, name: &str) -> Result<Cluster, NoIdentity> {
        let what = format!("ConfigMap '{}/{name}'", self.namespace);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        let map = api.get(name).await.map_err(|error| unavailable(error, &what))?;
        let version = map.resource_version().unwrap_or_default();
        let login = Login::read(map.data.unwrap_or_default(), self.options)
            .map_err(|problem| NoIdentity::Refused(format!("the kubeConfig {what}: {problem}")))?;
        let cached = format!("{what} {version} {}", login.account);
        if let Some(cluster) = self.known.get(&cached) {
            return Ok(cluster);
        }
        let refused = |problem: String| NoIdentity::Refused(format!("the kubeConfig {what}: {problem}"));
        let token = self.token(&login).await?;
        let file = login.kubeconfig(&token).map_err(refused)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| refused(error.to_string()))?;
        self.connect(cached, config).map_err(refused)
    }

    async fn token(&self, login: &Login) -> Result<String, NoIdentity> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: login.audiences.clone(),
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(&login.account, &Default::default(), &request).await;
        let what = format!("token of the ServiceAccount '{}/{}'", self.namespace, login.account);
        let answer = answer.map_err(|error| unavailable(error, &what))?;
        let token = answer.status.map(|status| status.token).filter(|token| !token.is_empty());
        token.ok_or_else(|| NoIdentity::Refused(format!("the {what} is empty")))
    }

    fn connect(&self, cached: String, mut config: Config) -> Result<Cluster, String> {
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        let cluster = Cluster::new(client);
        self.known.put(cached, &cluster);
        Ok(cluster)
    }
}

fn unavailable(error: kube::Error, what: &str) -> NoIdentity {
    match error {
        kube::Error::Api(answer) if answer.code == 404 => {
            NoIdentity::Missing(format!("failed to get the kubeConfig {what}: {}", answer.message))
        }
        error => NoIdentity::Refused(format!("failed to get the kubeConfig {what}: {}", short(&error))),
    }
}

/// What a file from a tenant may hold.
fn checked(file: Kubeconfig, options: &Options) -> Result<Kubeconfig, String> {
    for user in &file.auth_infos {
        let Some(user) = &user.auth_info else { continue };
        if user.exec.is_some() && !options.insecure_kubeconfig_exec {
            return Err("it runs a program (exec); use a token, or allow it with --insecure-kubeconfig-exec"
                .to_owned());
        }
        if user.auth_provider.is_some() {
            return Err("it uses an auth-provider, which is not supported; use a token".to_owned());
        }
        for (field, value) in [
            ("client-certificate", &user.client_certificate),
            ("client-key", &user.client_key),
            ("tokenFile", &user.token_file),
        ] {
            if value.is_some() {
                return Err(format!("{field} is a file; put its content into the kubeconfig"));
            }
        }
    }
    for cluster in &file.clusters {
        let Some(cluster) = &cluster.cluster else { continue };
        if cluster.certificate_authority.is_some() {
            return Err("certificate-authority is a file; use certificate-authority-data".to_owned());
        }
        if cluster.insecure_skip_tls_verify == Some(true) && !options.insecure_kubeconfig_tls {
            return Err(
                "insecure-skip-tls-verify is set; give certificate-authority-data, or allow it with \
                 --insecure-kubeconfig-tls"
                    .to_owned(),
            );
        }
    }
    Ok(file)
}

/// How to log in to a cluster that trusts the accounts of this one.
struct Login {
    address: String,
    authority: Option<String>,
    audiences: Vec<String>,
    account: String,
}

impl Login {
    fn read(mut data: BTreeMap<String, String>, options: &Options) -> Result<Self, String> {
        let provider = data.remove("provider").unwrap_or_default();
        match provider.as_str() {
            "generic" => {}
            "aws" | "azure" | "gcp" => {
                return Err(format!(
                    "provider '{provider}' is not supported yet; use 'generic', or a kubeconfig in a Secret"
                ));
            }
            other => {
                return Err(format!("provider '{other}' is unknown; there are aws, azure, gcp and generic"));
            }
        }
        let address = data.remove("address").filter(|address| !address.is_empty());
        let address = address.ok_or("address is missing, which provider 'generic' needs")?;
        if !address.starts_with("https://") {
            return Err(format!("address '{address}' must begin with https://"));
        }
        let account = data.remove("serviceAccountName").filter(|name| !name.is_empty());
        if account.is_some() && !options.object_level_workload_identity {
            return Err("serviceAccountName needs the feature gate ObjectLevelWorkloadIdentity".to_owned());
        }
        let account = account.or_else(|| options.default_kubeconfig_service_account.clone());
        let account = account.ok_or("serviceAccountName is missing")?;
        let audiences: Vec<String> = data.remove("audiences").map_or_else(Vec::new, |text| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
        });
        let audiences = if audiences.is_empty() { vec![address.clone()] } else { audiences };
        Ok(Self { address, authority: data.remove("ca.crt"), audiences, account })
    }

    fn kubeconfig(&self, token: &str) -> Result<Kubeconfig, String> {
        use base64::Engine;
        use base64::engine::general_purpose::STANDARD;
        let authority = self.authority.as_ref().map(|text| STANDARD.encode(text));
        let file = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "remote",
            "contexts": [{"name": "remote", "context": {"cluster": "remote", "user": "remote"}}],
            "clusters": [{"name": "remote", "cluster":
                {"server": self.address, "certificate-authority-data": authority}}],
            "users": [{"name": "remote", "user": {"token": token}}],
        });
        Kubeconfig::from_yaml(&file.to_string()).map_err(|_| "is not complete".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(user: &str, cluster: &str) -> Result<Kubeconfig, String> {
        let text = format!(
            "users: [{{name: u, user: {{{user}}}}}]\nclusters: [{{name: c, cluster: {{server: 'https://x', {cluster}}}}}]\n"
        );
        checked(Kubeconfig::from_yaml(&text).unwrap(), &Options::default())
    }

    #[test]
    fn what_reaches_into_the_pod_is_refused_by_name() {
        assert!(file("token: t", "").is_ok());
        for (user, cluster, named) in [
            ("exec: {command: sh}", "", "exec"),
            ("client-key: /key", "", "client-key"),
            ("tokenFile: /token", "", "tokenFile"),
            ("client-certificate: /crt", "", "client-certificate"),
            ("token: t", "certificate-authority: /ca", "certificate-authority"),
            ("token: t", "insecure-skip-tls-verify: true", "insecure-skip-tls-verify"),
        ] {
            let error = file(user, cluster).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn flags_allow_programs_and_unchecked_certificates() {
        let text = "users: [{name: u, user: {exec: {command: sh}}}]\nclusters: [{name: c, cluster: {server: 'https://x', insecure-skip-tls-verify: true}}]\n";
        let options =
            Options { insecure_kubeconfig_exec: true, insecure_kubeconfig_tls: true, ..Options::default() };
        assert!(checked(Kubeconfig::from_yaml(text).unwrap(), &options).is_ok());
    }

    #[test]
    fn a_login_needs_an_https_address_and_an_account() {
        let login = |pairs: &[(&str, &str)], options: &Options| {
            let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Login::read(data, options)
        };
        let mut options =
            Options { default_kubeconfig_service_account: Some("sa".to_owned()), ..Options::default() };
        let generic = ("provider", "generic");
        assert!(login(&[generic, ("address", "http://x")], &options).is_err());
        assert!(login(&[("provider", "aws")], &options).is_err());
        let good = login(&[generic, ("address", "https://x")], &options).ok().unwrap();
        assert_eq!((good.audiences, good.account.as_str()), (vec!["https://x".to_owned()], "sa"));
        let named = [generic, ("address", "https://x"), ("serviceAccountName", "own")];
        assert!(login(&named, &options).is_err(), "the gate is off");
        options.object_level_workload_identity = true;
        assert_eq!(login(&named, &options).ok().unwrap().account, "own");
    }
}
