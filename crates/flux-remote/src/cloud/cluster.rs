//! Clusters of clouds: where the API server of one is, whom to trust there, and a token for it. EKS, AKS and GKE are each
//! asked for what is not given; what is given is not asked for.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flux_api::secret::SecretString;
use jiff::Timestamp;
use regex::Regex;
use reqwest::header::HeaderMap;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use super::{Account, Cloud, Environment, Error, Provider, aws, azure, gcp, json};
use crate::bucket::{Keys, sign_body, signature};
use crate::transport::Transport;

const EKS: &str = r"^arn:aws[\w-]*:eks:([^:]{1,100}):[0-9]{1,30}:cluster/(.{1,200})$";
const AKS: &str = r"(?i)^/subscriptions/([^/]{36})/resourceGroups/([^/]{1,200})/providers/Microsoft\.ContainerService/managedClusters/([^/]{1,200})$";
const GKE: &str = r"^projects/[^/]{1,200}/locations/[^/]{1,200}/clusters/[^/]{1,200}$";
/// The service that every AKS is.
const AKS_SCOPE: &str = "6dae42f8-4368-4678-94ff-3960e28e3630/.default";
const AKS_VERSION: &str = "2024-09-01";
/// How long EKS takes a signed token, in seconds.
const EKS_TOKEN: u64 = 900;
/// Kubeconfigs that Azure may list.
const MOST: usize = 20;

/// What is known of a cluster beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterPlace<'a> {
    /// ARN, resource id or name.
    pub cluster: &'a str,
    pub address: Option<&'a str>,
    /// PEM.
    pub authority: Option<&'a str>,
}

/// How to reach a cluster.
pub struct ClusterLogin {
    pub address: String,
    /// PEM.
    pub authority: String,
    pub token: SecretString,
    pub expires: Timestamp,
}

/// What a cloud says of a cluster.
struct Found {
    address: String,
    authority: Vec<u8>,
}

impl ClusterPlace<'_> {
    fn is_complete(&self) -> bool {
        self.address.is_some() && self.authority.is_some()
    }

    /// What was given goes before what was found.
    fn login(
        &self,
        found: Option<Found>,
        token: SecretString,
        expires: Timestamp,
    ) -> Result<ClusterLogin, Error> {
        let (address, authority) = match found {
            Some(found) => {
                let authority = String::from_utf8(found.authority)
                    .map_err(|_| Error::Configuration("the cluster's certificate is not PEM".to_owned()))?;
                (found.address, authority)
            }
            None => (String::new(), String::new()),
        };
        let address = canonical(self.address.unwrap_or(&address))?;
        let authority = self.authority.map_or(authority, str::to_owned);
        Ok(ClusterLogin { address, authority, token, expires })
    }
}

impl Cloud {
    /// The address, the certificate and a token of a cluster, for the account or the pod we run in.
    pub async fn cluster(
        &self,
        provider: Provider,
        place: ClusterPlace<'_>,
        account: Option<&Account>,
        transport: &Transport,
        now: Timestamp,
    ) -> Result<ClusterLogin, Error> {
        let asking = Asking { env: &self.environment, place, account, transport, now };
        match provider {
            Provider::Aws => asking.eks().await,
            Provider::Azure => asking.aks().await,
            Provider::Gcp => asking.gke().await,
        }
    }
}

/// Which cluster is asked for, by whom and how.
#[derive(Clone, Copy)]
struct Asking<'a> {
    env: &'a Environment,
    place: ClusterPlace<'a>,
    account: Option<&'a Account>,
    transport: &'a Transport,
    now: Timestamp,
}

impl Asking<'_> {
    async fn eks(self) -> Result<ClusterLogin, Error> {
        let Asking { env, place, account, transport, now } = self;
        // The region stands nowhere else.
        let parts = matched(EKS, place.cluster);
        let Some([region, name]) = parts.as_deref() else {
            return Err(invalid("EKS cluster ARN", place.cluster, EKS));
        };
        if region.bytes().any(|byte| !byte.is_ascii_alphanumeric() && byte != b'-') {
            return Err(invalid("EKS cluster ARN", place.cluster, EKS));
        }
        let (keys, _) = aws::keys(env, Some(region), None, account, transport, now).await?;
        let found = match place.is_complete() {
            true => None,
            false => Some(self.describe_eks(&keys, region, name).await?),
        };
        let token = eks_token(&keys, region, name, now)
            .ok_or_else(|| Error::Configuration("the keys cannot be used to sign".to_owned()))?;
        place.login(found, token, now + std::time::Duration::from_secs(EKS_TOKEN))
    }

    async fn describe_eks(self, keys: &Keys, region: &str, name: &str) -> Result<Found, Error> {
        let what = "describing the EKS cluster";
        let host = format!("https://eks.{region}.{}/clusters/", aws_domain(region));
        let mut url = parsed(&self.env.url("eks/clusters/", host))?;
        url.path_segments_mut()
            .map_err(|()| Error::Configuration("no address".to_owned()))?
            .pop_if_empty()
            .push(name);
        let headers = sign_body(keys, "eks", region, "GET", &url, b"", &HeaderMap::new(), self.now)
            .ok_or_else(|| {
                Error::Configuration("the keys hold a character that no header may have".to_owned())
            })?;
        let answer: Value = json(client(self.transport)?.get(url).headers(headers), what).await?;
        let address =
            answer.pointer("/cluster/endpoint").and_then(Value::as_str).unwrap_or_default().to_owned();
        let authority =
            decoded(answer.pointer("/cluster/certificateAuthority/data").and_then(Value::as_str), what)?;
        Ok(Found { address, authority })
    }

    async fn aks(self) -> Result<ClusterLogin, Error> {
        let Asking { env, place, account, transport, now } = self;
        let token = azure::token(env, AKS_SCOPE, account, transport, now).await?;
        let found = match place.is_complete() {
            true => None,
            false => Some(self.describe_aks().await?),
        };
        place.login(found, token.value, token.expires)
    }

    async fn describe_aks(self) -> Result<Found, Error> {
        let Asking { env, place, account, transport, now } = self;
        let cluster = place.cluster;
        let parts = matched(AKS, cluster);
        let is_plain = |part: &String| {
            part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.()".contains(c)) && part != ".."
        };
        let Some([subscription, group, name]) = parts.as_deref().filter(|parts| parts.iter().all(is_plain))
        else {
            return Err(invalid("AKS cluster ID", cluster, AKS));
        };
        let host = match env.get("AZURE_AUTHORITY_HOST").unwrap_or_default() {
            host if host.contains("chinacloudapi.cn") => "https://management.chinacloudapi.cn",
            host if host.contains("microsoftonline.us") => "https://management.usgovcloudapi.net",
            _ => "https://management.azure.com",
        };
        let manager = azure::token(env, &format!("{host}/.default"), account, transport, now).await?;
        let base = format!(
            "{}/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.ContainerService/managedClusters/{name}",
            env.url("arm", host.to_owned())
        );
        let what = "describing the AKS cluster";
        let http = client(transport)?;
        let version = [("api-version", AKS_VERSION)];
        let described: Value =
            json(http.get(&base).query(&version).bearer_auth(manager.value.expose()), what).await?;
        if described.pointer("/properties/aadProfile").is_none_or(Value::is_null) {
            return Err(Error::Configuration(format!(
                "AKS cluster {cluster} does not have Microsoft Entra ID integration enabled"
            )));
        }
        let listing = http
            .post(format!("{base}/listClusterUserCredential"))
            .query(&version)
            .header("content-length", "0");
        let listed: Value =
            json(listing.bearer_auth(manager.value.expose()), "listing the credentials of the AKS cluster")
                .await?;
        let wanted = place.address.map(canonical).transpose()?;
        let mut addresses = Vec::new();
        for one in listed.pointer("/kubeconfigs").and_then(Value::as_array).into_iter().flatten().take(MOST) {
            let found = kubeconfig(one.pointer("/value").and_then(Value::as_str))?;
            let address = canonical(&found.address)?;
            if wanted.as_ref().is_none_or(|wanted| *wanted == address) {
                return Ok(found);
            }
            addresses.push(format!("'{}'", found.address));
        }
        Err(Error::Configuration(match place.address {
            None => format!("no kubeconfig found for AKS cluster {cluster}"),
            Some(address) => format!(
                "no kubeconfig found for AKS cluster {cluster} matching the specified address '{address}'. cluster addresses: [{}]",
                addresses.join(", ")
            ),
        }))
    }

    async fn gke(self) -> Result<ClusterLogin, Error> {
        let Asking { env, place, account, transport, now } = self;
        let token = gcp::token(env, account, transport, now).await?;
        let found = match place.is_complete() {
            true => None,
            false => {
                let what = "describing the GKE cluster";
                let is_plain = |part: &str| {
                    part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)) && part != ".."
                };
                if matched(GKE, place.cluster).is_none() || !place.cluster.split('/').all(is_plain) {
                    return Err(invalid("GKE cluster ID", place.cluster, GKE));
                }
                let host = env.url("gke", "https://container.googleapis.com".to_owned());
                let request = client(transport)?.get(format!("{host}/v1/{}", place.cluster));
                let answer: Value = json(request.bearer_auth(token.value.expose()), what).await?;
                let address =
                    answer.pointer("/endpoint").and_then(Value::as_str).unwrap_or_default().to_owned();
                let authority = answer.pointer("/masterAuth/clusterCaCertificate").and_then(Value::as_str);
                Some(Found { address, authority: decoded(authority, what)? })
            }
        };
        place.login(found, token.value, token.expires)
    }
}

fn invalid(kind: &str, cluster: &str, pattern: &str) -> Error {
    Error::Configuration(format!("invalid {kind}: '{cluster}'. must match {pattern}"))
}

fn matched(pattern: &str, text: &str) -> Option<Vec<String>> {
    let found = Regex::new(pattern).ok()?.captures(text)?;
    Some(found.iter().skip(1).flatten().map(|part| part.as_str().to_owned()).collect())
}

/// `https://host:port`, in lower case.
fn canonical(address: &str) -> Result<String, Error> {
    let bad =
        |problem: &str| Error::Configuration(format!("the address '{address}' of the API server {problem}"));
    let text = if address.starts_with("http") { address.to_owned() } else { format!("https://{address}") };
    let url = Url::parse(&text).map_err(|_| bad("is no address"))?;
    if url.scheme() != "https" {
        return Err(bad("must use https"));
    }
    let host = url.host_str().ok_or_else(|| bad("has no host"))?.to_lowercase();
    Ok(format!("https://{host}:{}", url.port().unwrap_or(443)))
}

fn decoded(text: Option<&str>, what: &'static str) -> Result<Vec<u8>, Error> {
    let missing = || Error::Answer { what, problem: "an answer without certificate".to_owned() };
    STANDARD.decode(text.ok_or_else(missing)?).map_err(|_| missing())
}

fn client(transport: &Transport) -> Result<reqwest::Client, Error> {
    transport.client().map_err(|error| Error::Configuration(error.to_string()))
}

fn parsed(address: &str) -> Result<Url, Error> {
    Url::parse(address).map_err(|error| Error::Configuration(error.to_string()))
}

fn aws_domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// A request to STS, signed and not sent: whoever sends it learns who signed it.
fn eks_token(keys: &Keys, region: &str, name: &str, now: Timestamp) -> Option<SecretString> {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let host = format!("sts.{region}.{}", aws_domain(region));
    let credential = format!("{}/{}/{region}/sts/aws4_request", keys.access_key, time.get(..8)?);
    let mut query = vec![
        ("Action", "GetCallerIdentity".to_owned()),
        ("Version", "2011-06-15".to_owned()),
        ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
        ("X-Amz-Credential", credential),
        ("X-Amz-Date", time.clone()),
        ("X-Amz-Expires", EKS_TOKEN.to_string()),
    ];
    if let Some(token) = &keys.session_token {
        query.push(("X-Amz-Security-Token", token.expose().to_owned()));
    }
    query.push(("X-Amz-SignedHeaders", "host;x-k8s-aws-id".to_owned()));
    let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    let query = query.join("&");
    let empty: String = Sha256::digest(b"").iter().map(|byte| format!("{byte:02x}")).collect();
    let canonical =
        format!("GET\n/\n{query}\nhost:{host}\nx-k8s-aws-id:{name}\n\nhost;x-k8s-aws-id\n{empty}");
    let signed = signature(keys, "sts", region, &time, &canonical)?;
    let url = format!("https://{host}/?{query}&X-Amz-Signature={signed}");
    Some(SecretString::new(format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(url))))
}

/// As Amazon wants it in a query: all but letters, digits and `-._~`.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// Server and certificate of the cluster that a kubeconfig is about; whatever else it holds is left alone.
fn kubeconfig(text: Option<&str>) -> Result<Found, Error> {
    let what = "listing the credentials of the AKS cluster";
    let bad = || Error::Answer { what, problem: "a kubeconfig that cannot be read".to_owned() };
    let bytes = STANDARD.decode(text.ok_or_else(bad)?).map_err(|_| bad())?;
    let value = yaml::to_json(&bytes).map_err(|_| bad())?;
    let named = |list: &str, name: &str| -> Option<Value> {
        value.get(list)?.as_array()?.iter().find(|one| one["name"] == name).cloned()
    };
    let current = value.get("current-context").and_then(Value::as_str).unwrap_or_default();
    let context = named("contexts", current).ok_or_else(bad)?;
    let cluster =
        named("clusters", context["context"]["cluster"].as_str().unwrap_or_default()).ok_or_else(bad)?;
    let address = cluster["cluster"]["server"].as_str().ok_or_else(bad)?.to_owned();
    Ok(Found {
        address,
        authority: decoded(cluster["cluster"]["certificate-authority-data"].as_str(), what)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_in_one_form() {
        assert_eq!(canonical("10.0.0.1").unwrap(), "https://10.0.0.1:443");
        assert_eq!(canonical("https://ABC.eks.amazonaws.com").unwrap(), "https://abc.eks.amazonaws.com:443");
        assert_eq!(canonical("https://aks.example.org:8443/").unwrap(), "https://aks.example.org:8443");
        assert!(canonical("http://10.0.0.1").is_err());
        assert!(canonical("").is_err());
    }

    /// The parts of a token in the order in which they were signed, which is that of their names.
    #[test]
    fn a_token_of_eks_is_a_signed_question() {
        let keys = Keys {
            access_key: "AKIDEXAMPLE".to_owned(),
            secret_key: SecretString::new("secret".to_owned()),
            session_token: Some(SecretString::new("a+b/c=".to_owned())),
        };
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let token = eks_token(&keys, "eu-west-1", "prod", now).unwrap();
        let text = token.expose().strip_prefix("k8s-aws-v1.").unwrap();
        let url = String::from_utf8(URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
        let expected = "https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&\
                        X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20231114%2Feu-west-1%2Fsts%2Faws4_request&\
                        X-Amz-Date=20231114T221320Z&X-Amz-Expires=900&X-Amz-Security-Token=a%2Bb%2Fc%3D&\
                        X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=";
        assert!(url.starts_with(expected), "{url}");
        assert_eq!(url.len(), expected.len() + 64);
        assert_ne!(eks_token(&keys, "eu-west-1", "other", now).unwrap().expose(), token.expose());
    }

    #[test]
    fn names_of_clusters_are_names_and_no_paths() {
        assert!(matched(EKS, "arn:aws:eks:eu-west-1:012345678901:cluster/prod").is_some());
        assert!(matched(EKS, "arn:aws:iam::012345678901:role/prod").is_none());
        let id = format!(
            "/subscriptions/{}/resourcegroups/g/providers/microsoft.containerservice/managedclusters/c",
            "0".repeat(36)
        );
        assert_eq!(matched(AKS, &id).map(|parts| parts.len()), Some(3));
        assert!(matched(GKE, "projects/p/locations/l/clusters/c").is_some());
        assert!(matched(GKE, "projects/p/locations/l/clusters/c/d").is_none());
    }
}
