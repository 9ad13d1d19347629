//! Amazon: keys from a role, and a registry's login from keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::secret::SecretString;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::{Account, Environment, Error, GitLogin, json, text};
use crate::bucket::{Keys, sign_body, signature, xml_text};
use crate::oci::Credentials;
use crate::transport::Transport;

const PATTERN: &str = r"([0-9+]*).dkr[.-]ecr(?:-fips)?\.([^/.]*)\.(amazonaws\.com[.cn]*|amazonaws\.eu|sc2s\.sgov\.gov|c2s\.ic\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov|on\.aws)";
const PUBLIC: &str = "public.ecr.aws";
const ROLE: &str = "eks.amazonaws.com/role-arn";

pub(super) async fn registry(
    env: &Environment,
    registry: &str,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<(Credentials, Timestamp), Error> {
    let region = region(registry)?;
    let (keys, _) = keys(env, Some(&region), None, account, transport, now).await?;
    let (service, target, host) = match registry {
        PUBLIC => (
            "ecr-public",
            "SpencerFrontendService.GetAuthorizationToken",
            format!("https://api.ecr-public.{region}.amazonaws.com/"),
        ),
        _ => (
            "ecr",
            "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
            format!("https://api.ecr.{region}.{}/", domain(registry)),
        ),
    };
    let what = "logging in to the registry";
    let url = Url::parse(&env.url(service, host)).map_err(|error| Error::Configuration(error.to_string()))?;
    let own = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.1")),
        (HeaderName::from_static("x-amz-target"), HeaderValue::from_static(target)),
    ]);
    let headers = sign_body(&keys, service, &region, "POST", &url, b"{}", &own, now).ok_or_else(|| {
        Error::Configuration("the keys hold a character that no header may have".to_owned())
    })?;
    let client = client(transport)?;
    let answer: serde_json::Value = json(client.post(url).headers(headers).body("{}"), what).await?;
    // A list for private registries, one entry for the public one.
    let data = answer.pointer("/authorizationData/0").unwrap_or(&answer["authorizationData"]);
    let missing = |problem: &str| Error::Answer { what, problem: problem.to_owned() };
    let token =
        data["authorizationToken"].as_str().ok_or_else(|| missing("no authorization data returned"))?;
    let token = STANDARD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let token = token.ok_or_else(|| missing("failed to parse authorization token"))?;
    let (username, password) =
        token.split_once(':').ok_or_else(|| missing("invalid authorization token format"))?;
    let expires = data["expiresAt"].as_f64().and_then(|seconds| Timestamp::from_second(seconds as i64).ok());
    let password = SecretString::new(password.to_owned());
    let credentials = Credentials::Basic { username: username.to_owned(), password };
    Ok((credentials, expires.unwrap_or(now)))
}

/// `<account>.dkr.ecr.<region>.amazonaws.com`
fn region(registry: &str) -> Result<String, Error> {
    if registry == PUBLIC {
        return Ok("us-east-1".to_owned());
    }
    let invalid = || Error::Registry { provider: "AWS", registry: registry.to_owned(), pattern: PATTERN };
    let expression = regex::Regex::new(&format!("^(?:{PATTERN})$")).map_err(|_| invalid())?;
    let found = expression.captures(registry).ok_or_else(invalid)?;
    Ok(found.get(2).map(|region| region.as_str().to_owned()).unwrap_or_default())
}

fn domain(registry: &str) -> &'static str {
    if registry.ends_with(".cn") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// How long CodeCommit takes a signed password.
const GIT_PASSWORD: std::time::Duration = std::time::Duration::from_secs(15 * 60);

/// The region of a repository at CodeCommit: `https://git-codecommit.<region>.amazonaws.com/…`.
pub(super) fn git_region(url: &Url) -> Result<String, Error> {
    if url.scheme() != "https" {
        return Err(Error::Configuration(
            "AWS CodeCommit authentication requires an HTTPS Git URL".to_owned(),
        ));
    }
    let host = url.host_str().unwrap_or_default();
    let service = host.strip_prefix("git-codecommit.").or_else(|| host.strip_prefix("git-codecommit-fips."));
    let region = service.and_then(|rest| {
        rest.strip_suffix(".amazonaws.com").or_else(|| rest.strip_suffix(".amazonaws.com.cn"))
    });
    region
        .filter(|region| !region.is_empty() && !region.contains('.'))
        .map(str::to_owned)
        .ok_or_else(|| Error::Configuration(format!("invalid AWS CodeCommit Git URL: {host}")))
}

/// A user and password for CodeCommit: the password is a signature of the address, with the time it was made.
pub(super) fn git_login(
    keys: &Keys,
    expires: Timestamp,
    url: &Url,
    now: Timestamp,
) -> Result<(GitLogin, Timestamp), Error> {
    let region = git_region(url)?;
    let time = now.strftime("%Y%m%dT%H%M%S").to_string();
    let host = url.host_str().unwrap_or_default();
    // There is no payload, not even the digest of an empty one.
    let canonical = format!("GIT\n{}\n\nhost:{host}\n\nhost\n", url.path());
    let signed = signature(keys, "codecommit", &region, &time, &canonical)
        .ok_or_else(|| Error::Configuration("the keys cannot be used to sign".to_owned()))?;
    let username = match &keys.session_token {
        Some(token) => format!("{}%{}", keys.access_key, token.expose()),
        None => keys.access_key.clone(),
    };
    let password = SecretString::new(format!("{time}Z{signed}"));
    Ok((
        GitLogin::Password { username: SecretString::new(username), password },
        expires.min(now + GIT_PASSWORD),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Lent {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

impl Lent {
    fn keys(self, now: Timestamp) -> (Keys, Timestamp) {
        let expires = self.expiration.and_then(|text| text.parse().ok()).unwrap_or(now);
        let keys = Keys {
            access_key: self.access_key_id,
            secret_key: SecretString::new(self.secret_access_key),
            session_token: self.token.map(SecretString::new),
        };
        (keys, expires)
    }
}

/// Keys for the role of the account, or of the pod we run in.
pub(super) async fn keys(
    env: &Environment,
    region: Option<&str>,
    sts: Option<&str>,
    account: Option<&Account>,
    transport: &Transport,
    now: Timestamp,
) -> Result<(Keys, Timestamp), Error> {
    if let Some(account) = account {
        let region = region.ok_or_else(|| {
            Error::Configuration(
                "an AWS region is required for authenticating with a service account. please configure one in the object spec".to_owned(),
            )
        })?;
        let role = account.annotations.get(ROLE).ok_or_else(|| {
            Error::Configuration(format!("invalid {ROLE} annotation: '' is no role of Amazon"))
        })?;
        if !is_role(role) {
            return Err(Error::Configuration(format!(
                "invalid {ROLE} annotation: '{role}' is no role of Amazon"
            )));
        }
        let session = session_name(account, region);
        let token = account.token.ask().await?;
        return assume(env, region, sts, role, &session, &token, transport, now).await;
    }
    let region = region.or_else(|| env.get("AWS_REGION")).ok_or_else(|| {
        Error::Configuration(
            "AWS_REGION environment variable is not set in the Flux controller. if you have properly configured IAM Roles for Service Accounts (IRSA) or EKS Pod Identity, please delete/replace the controller pod so the EKS admission controllers can inject this environment variable, or set it manually if the cluster is not EKS".to_owned(),
        )
    })?;
    if let (Some(access_key), Some(secret_key)) =
        (env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY"))
    {
        let keys = Keys {
            access_key: access_key.to_owned(),
            secret_key: SecretString::new(secret_key.to_owned()),
            session_token: env.get("AWS_SESSION_TOKEN").map(|token| SecretString::new(token.to_owned())),
        };
        return Ok((keys, now + std::time::Duration::from_secs(900)));
    }
    if let (Some(role), Some(token)) = (env.get("AWS_ROLE_ARN"), env.file("AWS_WEB_IDENTITY_TOKEN_FILE")?) {
        let session = env.get("AWS_ROLE_SESSION_NAME").unwrap_or("flux");
        return assume(env, region, sts, role, session, &token, transport, now).await;
    }
    if let Some(address) = env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        let mut request = client(transport)?.get(env.url("pod-identity", address.to_owned()));
        if let Some(token) = env.file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")? {
            request = request.header("authorization", token.expose());
        }
        let lent: Lent = json(request, "asking for the pod's identity").await?;
        return Ok(lent.keys(now));
    }
    machine_keys(env, transport, now).await
}

#[expect(clippy::too_many_arguments, reason = "a role is assumed by somebody, somewhere, under a name")]
async fn assume(
    env: &Environment,
    region: &str,
    sts: Option<&str>,
    role: &str,
    session: &str,
    token: &SecretString,
    transport: &Transport,
    now: Timestamp,
) -> Result<(Keys, Timestamp), Error> {
    let what = "assuming the role";
    let url = match sts {
        Some(endpoint) => endpoint.to_owned(),
        None => env.url("sts", format!("https://sts.{region}.amazonaws.com/")),
    };
    let form = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role),
        ("RoleSessionName", session),
        ("WebIdentityToken", token.expose()),
    ];
    let answer = text(client(transport)?.post(url).form(&form), what).await?;
    lent_keys(&answer, what, now)
}

/// Keys for somebody of a directory, from a store that asks it (MinIO's `AssumeRoleWithLDAPIdentity`).
pub async fn ldap_keys(
    endpoint: &str,
    username: &str,
    password: &SecretString,
    transport: &Transport,
    now: Timestamp,
) -> Result<Keys, Error> {
    let what = "asking for keys with a directory's login";
    let form = [
        ("Action", "AssumeRoleWithLDAPIdentity"),
        ("Version", "2011-06-15"),
        ("LDAPUsername", username),
        ("LDAPPassword", password.expose()),
    ];
    let answer = text(client(transport)?.post(endpoint).form(&form), what).await?;
    lent_keys(&answer, what, now).map(|(keys, _)| keys)
}

fn lent_keys(answer: &str, what: &'static str, now: Timestamp) -> Result<(Keys, Timestamp), Error> {
    let field = |name: &str| {
        xml_text(answer, name)
            .ok_or_else(|| Error::Answer { what, problem: format!("credentials without {name}") })
    };
    let keys = Keys {
        access_key: field("AccessKeyId")?,
        secret_key: SecretString::new(field("SecretAccessKey")?),
        session_token: Some(SecretString::new(field("SessionToken")?)),
    };
    Ok((keys, field("Expiration")?.parse().unwrap_or(now)))
}

/// The machine's own role, from its metadata server.
async fn machine_keys(
    env: &Environment,
    transport: &Transport,
    now: Timestamp,
) -> Result<(Keys, Timestamp), Error> {
    let what = "asking the metadata server";
    // No proxy stands between a machine and itself.
    let direct = Transport { proxy: None, ..transport.clone() };
    let client = client(&direct)?;
    let at = |path: &str| {
        let path = path.to_owned();
        match &env.base {
            Some(base) => format!("{base}/imds/{path}"),
            None => format!("http://169.254.169.254/latest/{path}"),
        }
    };
    let token = client.put(at("api/token")).header("x-aws-ec2-metadata-token-ttl-seconds", "300");
    let token = text(token, what).await?;
    let get = |path: &str| client.get(at(path)).header("x-aws-ec2-metadata-token", &token);
    let role = text(get("meta-data/iam/security-credentials/"), what).await?;
    let role = role.lines().next().unwrap_or_default();
    let lent: Lent = json(get(&format!("meta-data/iam/security-credentials/{role}")), what).await?;
    Ok(lent.keys(now))
}

fn client(transport: &Transport) -> Result<reqwest::Client, Error> {
    transport.client().map_err(|error| Error::Configuration(error.to_string()))
}

fn is_role(role: &str) -> bool {
    let parts: Vec<&str> = role.splitn(6, ':').collect();
    matches!(parts.as_slice(), ["arn", _, "iam", _, account, name]
        if account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()) && name.starts_with("role/"))
}

/// `<account>.<namespace>.<region>.fluxcd.io`, at most 64 characters, as Amazon wants it.
fn session_name(account: &Account, region: &str) -> String {
    let name = format!("{}.{}.{region}.fluxcd.io", account.name, account.namespace);
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_of_amazon_are_told_by_their_names() {
        assert_eq!(region("012345678901.dkr.ecr.eu-west-1.amazonaws.com").unwrap(), "eu-west-1");
        assert_eq!(region("012345678901.dkr-ecr.us-east-2.on.aws").unwrap(), "us-east-2");
        assert_eq!(region("012345678901.dkr.ecr.cn-north-1.amazonaws.com.cn").unwrap(), "cn-north-1");
        assert_eq!(region("public.ecr.aws").unwrap(), "us-east-1");
        for other in [
            "ghcr.io",
            "012345678901.dkr.ecr.eu-west-1.amazonaws.com.evil.org",
            "evil.org/012345678901.dkr.ecr.eu-west-1.amazonaws.com",
        ] {
            assert!(region(other).is_err(), "{other}");
        }
    }

    #[test]
    fn roles_are_roles() {
        assert!(is_role("arn:aws:iam::012345678901:role/flux"));
        for other in [
            "",
            "flux",
            "arn:aws:iam::012345678901:user/flux",
            "arn:aws:sts::012345678901:role/flux",
            "arn:aws:iam::x:role/flux",
        ] {
            assert!(!is_role(other), "{other}");
        }
    }
}
