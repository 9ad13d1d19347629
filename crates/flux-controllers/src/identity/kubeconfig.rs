//! Other clusters: a kubeconfig in a Secret, or a ConfigMap that says how to log in with a token of an account here, or with
//! the identity that it or this pod has at a cloud.
//!
//! A kubeconfig comes from a tenant, and is used in the controller's pod: programs, files and unchecked certificates
//! in it are refused unless a flag allows them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::meta::KubeConfigReference;
use flux_api::secret::SecretString;
use flux_apply::Cluster;
use flux_remote::cloud::{Account, AccountToken, CacheEvent, Cloud, ClusterPlace, Environment, Provider};
use flux_remote::transport::Transport;
use jiff::Timestamp;
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

/// Clients of other clusters by what they were made from; connections and discovery are worth keeping. Each until its
/// token runs out.
pub struct Clusters {
    known: Mutex<BTreeMap<String, (Instant, Cluster)>>,
    cloud: Cloud,
}

impl Default for Clusters {
    fn default() -> Self {
        Self::with(Cloud::new(Environment::of_this_process(), MOST, TOKEN_USED))
    }
}

impl Clusters {
    fn with(cloud: Cloud) -> Self {
        Self { known: Mutex::default(), cloud }
    }

    fn get(&self, key: &str) -> Option<Cluster> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(until, _)| Instant::now() < *until).map(|(_, cluster)| cluster.clone())
    }

    fn put(&self, key: String, cluster: &Cluster, used: Duration) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (until, _)| Instant::now() < *until);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now() + used, cluster.clone()));
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
        self.connect(cached, config, TOKEN_USED).map_err(refused)
    }

    async fn by_config_map(&self, name: &str) -> Result<Cluster, NoIdentity> {
        let what = format!("ConfigMap '{}/{name}'", self.namespace);
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        let map = api.get(name).await.map_err(|error| unavailable(error, &what))?;
        let version = map.resource_version().unwrap_or_default();
        let refused = |problem: String| NoIdentity::Refused(format!("the kubeConfig {what}: {problem}"));
        let login = Login::read(map.data.unwrap_or_default(), self.options).map_err(refused)?;
        let cached = format!("{what} {version} {}", login.account.as_deref().unwrap_or_default());
        let known = self.known.get(&cached);
        if let Some(heard) = self.on_login {
            heard(if known.is_some() { CacheEvent::Hit } else { CacheEvent::Miss });
        }
        if let Some(cluster) = known {
            return Ok(cluster);
        }
        let (file, used) = self.log_in(&login).await?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        let config = config.map_err(|error| refused(error.to_string()))?;
        self.connect(cached, config, used).map_err(refused)
    }

    /// A kubeconfig with a token, and how long it is used.
    async fn log_in(&self, login: &Login) -> Result<(Kubeconfig, Duration), NoIdentity> {
        let refused =
            |problem: String| NoIdentity::Refused(format!("the kubeConfig cannot be made: {problem}"));
        let Some(provider) = login.provider else {
            let account = login.account.as_deref().unwrap_or_default();
            let token = self.token(account, login.audiences.clone()).await?;
            let address = login.address.as_deref().unwrap_or_default();
            let file = kubeconfig(address, login.authority.as_deref(), token.expose()).map_err(refused)?;
            return Ok((file, TOKEN_USED));
        };
        let (transport, now) = (Transport::default(), Timestamp::now());
        let account = match &login.account {
            Some(name) => Some(self.cloud_account(provider, name, login, &transport).await?),
            None => None,
        };
        let place = ClusterPlace {
            cluster: &login.cluster,
            address: login.address.as_deref(),
            authority: login.authority.as_deref(),
        };
        let found = self.known.cloud.cluster(provider, place, account.as_ref(), &transport, now).await;
        let found = found.map_err(|error| refused(error.to_string()))?;
        let file =
            kubeconfig(&found.address, Some(&found.authority), found.token.expose()).map_err(refused)?;
        // Somebody may be using the last of it while another is fetched.
        let lasts =
            u64::try_from(found.expires.as_second().saturating_sub(now.as_second())).unwrap_or_default();
        Ok((file, Duration::from_secs(lasts * 4 / 5).min(TOKEN_USED)))
    }

    /// The account as the cloud gets to know it.
    async fn cloud_account(
        &self,
        provider: Provider,
        name: &str,
        login: &Login,
        transport: &Transport,
    ) -> Result<Account, NoIdentity> {
        let what = format!("ServiceAccount '{}/{name}'", self.namespace);
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let found = accounts.get(name).await.map_err(|error| unavailable(error, &what))?;
        let annotations = found.metadata.annotations.unwrap_or_default();
        let audiences = if login.audiences.is_empty() {
            let audience = self.known.cloud.audience(provider, &annotations, transport).await;
            vec![audience.map_err(|error| NoIdentity::Refused(format!("the {what}: {error}")))?]
        } else {
            login.audiences.clone()
        };
        // What is made of it is kept with the client of the cluster, so it is wanted whenever we come here.
        let token = self.token(name, audiences).await?;
        let token = AccountToken::by(move || std::future::ready(Ok(token.clone())));
        Ok(Account { namespace: self.namespace.to_owned(), name: name.to_owned(), annotations, token })
    }

    async fn token(&self, account: &str, audiences: Vec<String>) -> Result<SecretString, NoIdentity> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let what = format!("token of the ServiceAccount '{}/{account}'", self.namespace);
        let token = super::token(&accounts, account, audiences, Some(TOKEN_SECONDS)).await;
        let token = token.map_err(|error| unavailable(error, &what))?;
        if token.expose().is_empty() {
            return Err(NoIdentity::Refused(format!("the {what} is empty")));
        }
        Ok(token)
    }

    fn connect(&self, cached: String, mut config: Config, used: Duration) -> Result<Cluster, String> {
        config.connect_timeout = Some(TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        let client = Client::try_from(config).map_err(|error| error.to_string())?;
        let cluster = Cluster::new(client);
        self.known.put(cached, &cluster, used);
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

/// How to log in to a cluster that trusts the accounts of this one, or those of a cloud.
struct Login {
    /// `None` is generic: a token of the account is enough.
    provider: Option<Provider>,
    /// As the cloud names it.
    cluster: String,
    address: Option<String>,
    authority: Option<String>,
    audiences: Vec<String>,
    /// `None` is the identity of this pod, which only clouds know.
    account: Option<String>,
}

impl Login {
    fn read(mut data: BTreeMap<String, String>, options: &Options) -> Result<Self, String> {
        let mut given = |key: &str| data.remove(key).filter(|value| !value.is_empty());
        let provider = match given("provider").unwrap_or_default().as_str() {
            "generic" => None,
            "aws" => Some(Provider::Aws),
            "azure" => Some(Provider::Azure),
            "gcp" => Some(Provider::Gcp),
            other => {
                return Err(format!("provider '{other}' is unknown; there are aws, azure, gcp and generic"));
            }
        };
        let address = given("address");
        let account = given("serviceAccountName");
        if account.is_some() && !options.object_level_workload_identity {
            return Err("serviceAccountName needs the feature gate ObjectLevelWorkloadIdentity".to_owned());
        }
        let account = account.or_else(|| options.default_kubeconfig_service_account.clone());
        let text = given("audiences").unwrap_or_default();
        let mut audiences: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        if provider.is_none() {
            let address = address.as_ref().ok_or("address is missing, which provider 'generic' needs")?;
            if !address.starts_with("https://") {
                return Err(format!("address '{address}' must begin with https://"));
            }
            if account.is_none() {
                return Err("serviceAccountName is missing".to_owned());
            }
            if audiences.is_empty() {
                audiences.push(address.clone());
            }
        }
        let cluster = given("cluster").unwrap_or_default();
        Ok(Self { provider, cluster, address, authority: given("ca.crt"), audiences, account })
    }
}

fn kubeconfig(address: &str, authority: Option<&str>, token: &str) -> Result<Kubeconfig, String> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let authority = authority.map(|text| STANDARD.encode(text));
    let file = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "remote",
        "contexts": [{"name": "remote", "context": {"cluster": "remote", "user": "remote"}}],
        "clusters": [{"name": "remote", "cluster":
            {"server": address, "certificate-authority-data": authority}}],
        "users": [{"name": "remote", "user": {"token": token}}],
    });
    Kubeconfig::from_yaml(&file.to_string()).map_err(|_| "it is not complete".to_owned())
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
        assert!(login(&[("provider", "nimbus")], &options).is_err());
        let good = login(&[generic, ("address", "https://x")], &options).ok().unwrap();
        assert_eq!((good.audiences, good.account.as_deref()), (vec!["https://x".to_owned()], Some("sa")));
        let named = [generic, ("address", "https://x"), ("serviceAccountName", "own")];
        assert!(login(&named, &options).is_err(), "the gate is off");
        options.object_level_workload_identity = true;
        assert_eq!(login(&named, &options).ok().unwrap().account.as_deref(), Some("own"));
    }

    /// This cluster, with an account that a cloud knows; and the clouds, all at one address.
    #[tokio::test]
    async fn clusters_of_clouds_are_looked_up_and_logged_in_to() {
        use base64::Engine;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
        let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
        let ca = STANDARD.encode(pem);
        let aks = serde_json::json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k"}}],
            "clusters": [{"name": "k", "cluster": {"server": "https://aks.example.org:443", "certificate-authority-data": ca}}],
        });
        let answers = [
            ("/sts", "<a><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey><SessionToken>ST</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></a>".to_owned()),
            ("/eks/clusters/prod", serde_json::json!({"cluster": {"endpoint": "https://EKS.example.org", "certificateAuthority": {"data": ca}}}).to_string()),
            ("/entra", serde_json::json!({"access_token": "entra-token", "expires_in": 3600}).to_string()),
            ("/arm", String::new()),
            ("/google-sts", serde_json::json!({"access_token": "google-token", "expires_in": 3600}).to_string()),
            ("/gke/v1/projects/p/locations/l/clusters/c", serde_json::json!({"endpoint": "10.1.2.3", "masterAuth": {"clusterCaCertificate": ca}}).to_string()),
        ];
        let listed =
            serde_json::json!({"kubeconfigs": [{"value": STANDARD.encode(aks.to_string())}]}).to_string();
        let router = axum::Router::new().fallback(move |uri: axum::http::Uri| {
            let found = answers.iter().find(|(path, _)| uri.path() == *path).map(|(_, text)| text.clone());
            let found = match uri.path() {
                path if path.ends_with("/listClusterUserCredential") => Some(listed.clone()),
                path if path.ends_with("/managedClusters/c") => {
                    Some(r#"{"properties":{"aadProfile":{}}}"#.to_owned())
                }
                _ => found,
            };
            async move { found.ok_or(axum::http::StatusCode::FORBIDDEN) }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });

        let here = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let object = match request.method().as_str() {
                "POST" => {
                    serde_json::json!({"spec": {"audiences": []}, "status": {"token": "account-token", "expirationTimestamp": "2099-01-01T00:00:00Z"}})
                }
                _ => serde_json::json!({"metadata": {"name": "sa", "annotations": {
                    "eks.amazonaws.com/role-arn": "arn:aws:iam::012345678901:role/flux",
                    "azure.workload.identity/tenant-id": "tenant", "azure.workload.identity/client-id": "client",
                    "gcp.auth.fluxcd.io/workload-identity-provider": "projects/1/locations/global/workloadIdentityPools/pool/providers/name",
                }}}),
            };
            let body = kube::client::Body::from(object.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::new(body))
        });
        let client = Client::new(here, "team");
        let own = Cluster::new(client.clone());
        let known = Clusters::with(Cloud::new(Environment::for_tests(&[], &base), 10, TOKEN_USED));
        let options = Options { object_level_workload_identity: true, ..Options::default() };
        let asking = Asking {
            client: &client,
            own: &own,
            known: &known,
            options: &options,
            namespace: "team",
            account: None,
            kube_config: None,
            on_login: None,
        };
        let log_in = async |pairs: &[(&str, &str)]| {
            let mut data: BTreeMap<String, String> =
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            data.insert("serviceAccountName".to_owned(), "sa".to_owned());
            let login = Login::read(data, &options)?;
            let (file, used) = asking.log_in(&login).await.map_err(|error| error.message().to_owned())?;
            let cluster = file.clusters[0].cluster.clone().unwrap_or_default();
            assert_eq!(cluster.certificate_authority_data.as_deref(), Some(ca.as_str()));
            let token = serde_json::to_value(&file.auth_infos[0].auth_info).unwrap_or_default();
            Ok::<_, String>((
                cluster.server.unwrap_or_default(),
                token["token"].as_str().unwrap_or_default().to_owned(),
                used,
            ))
        };
        let arn = "arn:aws:eks:eu-west-1:012345678901:cluster/prod";
        let (address, token, used) = log_in(&[("provider", "aws"), ("cluster", arn)]).await.unwrap();
        assert_eq!(address, "https://eks.example.org:443");
        let url = URL_SAFE_NO_PAD.decode(token.strip_prefix("k8s-aws-v1.").unwrap()).unwrap();
        assert!(String::from_utf8(url).unwrap().contains("X-Amz-Credential=AK%2F"));
        assert_eq!(used, Duration::from_secs(720));

        let id = format!(
            "/subscriptions/{}/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c",
            "0".repeat(36)
        );
        let azure = [("provider", "azure"), ("cluster", id.as_str())];
        let (address, token, _) = log_in(&azure).await.unwrap();
        assert_eq!((address.as_str(), token.as_str()), ("https://aks.example.org:443", "entra-token"));
        let other = [azure[0], azure[1], ("address", "https://other.example.org")];
        assert!(log_in(&other).await.unwrap_err().contains("'https://aks.example.org:443'"));

        let (address, token, _) =
            log_in(&[("provider", "gcp"), ("cluster", "projects/p/locations/l/clusters/c")]).await.unwrap();
        assert_eq!((address.as_str(), token.as_str()), ("https://10.1.2.3:443", "google-token"));
        assert!(
            log_in(&[("provider", "gcp"), ("cluster", "c")])
                .await
                .unwrap_err()
                .contains("invalid GKE cluster ID")
        );
        // What is given is not asked for, and goes before what is found.
        let given = [("provider", "gcp"), ("address", "https://10.9.9.9"), ("ca.crt", pem)];
        assert_eq!(log_in(&given).await.unwrap().0, "https://10.9.9.9:443");
    }
}
