//! What a Provider and its Secrets say, as the settings of one delivery.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::notification::{Provider, ProviderSpec};
use flux_api::secret::SecretString;
use flux_remote::transport::Proxy;
use kube::Client;

use super::provider::{Settings, writes_commit_status};
use crate::reconcile::ObjectKey;
use crate::source::access::{Data, Secrets};

const LONGEST_ADDRESS: usize = 2048;
const TIMEOUT: Duration = Duration::from_secs(15);
/// A burst of events reads its Secrets once.
const FRESH: Duration = Duration::from_secs(2);

/// Settings that were read a moment ago.
#[derive(Default)]
pub struct Remembered(Mutex<HashMap<ObjectKey, (String, Instant, Settings)>>);

impl Remembered {
    pub async fn read(&self, client: &Client, provider: &Provider) -> Result<Settings, String> {
        let key = ObjectKey::new(provider.namespace(), provider.name());
        let version = provider.metadata.resource_version.clone().unwrap_or_default();
        if let Some((of, at, settings)) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key)
            && *of == version
            && at.elapsed() < FRESH
        {
            return Ok(settings.clone());
        }
        let settings = read(client, provider).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, at, _)| at.elapsed() < FRESH);
        known.insert(key, (version, Instant::now(), settings.clone()));
        Ok(settings)
    }
}

async fn read(client: &Client, provider: &Provider) -> Result<Settings, String> {
    let spec = &provider.spec;
    let secrets = Secrets { client, namespace: provider.namespace() };
    let get = async |reference: &flux_api::meta::LocalReference| {
        secrets.get(&reference.name).await.map_err(|error| error.to_string())
    };
    let mut settings = of_spec(provider);
    let secret = match &spec.secret_ref {
        Some(reference) => Some(get(reference).await?),
        None => None,
    };
    if let Some(secret) = &secret {
        add_secret(&mut settings, secret)?;
    }
    if let Some(reference) = &spec.proxy_secret_ref {
        let proxy = get(reference).await?.proxy();
        settings.transport.proxy = Some(proxy.map_err(|error| format!("failed to get proxy URL: {error}"))?);
    }
    let tls = |error: crate::source::access::Error| format!("failed to get TLS config: {error}");
    if let Some(reference) = &spec.cert_secret_ref {
        get(reference).await?.add_tls(&mut settings.transport).map_err(tls)?;
    } else if let Some(secret) =
        secret.filter(Data::has_tls).filter(|_| writes_commit_status(spec.provider_type))
    {
        secret.add_tls(&mut settings.transport).map_err(tls)?;
    }
    Ok(settings)
}

fn of_spec(provider: &Provider) -> Settings {
    let spec: &ProviderSpec = &provider.spec;
    let mut settings = Settings::new(spec.provider_type);
    settings.uid = provider.metadata.uid.clone().unwrap_or_default();
    settings.address = spec.address.clone().unwrap_or_default();
    settings.channel = spec.channel.clone().unwrap_or_default();
    settings.username = spec.username.clone().unwrap_or_default();
    settings.timeout = spec.timeout.map_or(TIMEOUT, |timeout| timeout.to_std());
    settings.transport.proxy = spec.proxy.clone().map(|address| Proxy { address, login: None });
    settings
}

/// The keys that a Provider's Secret may have. Half of a login switches the whole of it off, as upstream.
fn add_secret(settings: &mut Settings, secret: &Data) -> Result<(), String> {
    let told = |error: crate::source::access::Error| error.to_string();
    if let Some(address) = secret.text("address").map_err(told)? {
        if address.len() > LONGEST_ADDRESS {
            let problem = format!("address exceeds maximum length of {LONGEST_ADDRESS} bytes");
            return Err(format!("invalid address in secret: {problem}"));
        }
        settings.address = address.trim().to_owned();
    }
    if let Some(proxy) = secret.text("proxy").map_err(told)? {
        let address = proxy.trim().to_owned();
        settings.transport.proxy = Some(Proxy { address, login: None });
    }
    if let Some(headers) = secret.text("headers").map_err(told)? {
        settings.headers = read_headers(&headers)?;
    }
    let mut tls = Default::default();
    let basic = secret.basic_auth();
    let whole = !secret.has_tls() || secret.add_tls(&mut tls).is_ok();
    match basic.map(|basic| basic.filter(|_| whole)) {
        Ok(basic) if whole => {
            if let Some(token) = secret.text("token").map_err(told)? {
                settings.token = SecretString::new(token);
            }
            if let Some((username, password)) = basic {
                (settings.username, settings.password) = (username, password);
            }
        }
        _ => tracing::warn!(secret = secret.id(), "the login in the secret is incomplete and not used"),
    }
    settings.data = secret
        .keys()
        .filter_map(|(key, value)| {
            Some((key.to_owned(), SecretString::new(String::from_utf8(value.to_vec()).ok()?)))
        })
        .collect();
    Ok(())
}

/// A map of texts in YAML. What is wrong with it is told without what stands in it.
fn read_headers(text: &str) -> Result<BTreeMap<String, String>, String> {
    let wrong =
        || "failed to read headers from secret: key 'headers' must be a map of names to texts".to_owned();
    let Ok(serde_json::Value::Object(map)) = yaml::to_json(text.as_bytes()) else { return Err(wrong()) };
    // sigs.k8s.io/yaml writes numbers and booleans as texts where texts are wanted.
    map.into_iter()
        .map(|(name, value)| match value {
            serde_json::Value::String(text) => Ok((name, text)),
            serde_json::Value::Null => Ok((name, String::new())),
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Ok((name, value.to_string())),
            serde_json::Value::Array(_) | serde_json::Value::Object(_) => Err(wrong()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_api::notification::ProviderType;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;

    fn with(keys: &[(&str, &str)]) -> Result<Settings, String> {
        let data = keys.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        let secret = Secret { data: Some(data.collect()), ..Secret::default() };
        let mut settings = Settings::new(ProviderType::Generic);
        (settings.address, settings.username) = ("https://spec/".to_owned(), "spec".to_owned());
        add_secret(&mut settings, &Data::from(secret)).map(|()| settings)
    }

    fn problem(keys: &[(&str, &str)]) -> String {
        with(keys).err().unwrap_or_default()
    }

    #[test]
    fn the_secret_wins_over_the_spec() {
        let settings =
            with(&[("address", "https://secret/\n"), ("token", "t\n"), ("username", "u"), ("password", "p")]);
        let settings = settings.ok().unwrap();
        assert_eq!((settings.address.as_str(), settings.username.as_str()), ("https://secret/", "u"));
        assert_eq!((settings.token.expose().as_str(), settings.password.expose().as_str()), ("t", "p"));
        let plain = with(&[("other", "x")]).ok().unwrap();
        assert_eq!((plain.address.as_str(), plain.username.as_str()), ("https://spec/", "spec"));
    }

    #[test]
    fn half_a_login_is_none() {
        let settings = with(&[("token", "t"), ("password", "p")]).ok().unwrap();
        assert!(settings.token.expose().is_empty() && settings.password.expose().is_empty());
        let settings = with(&[("token", "t"), ("tls.crt", "x")]).ok().unwrap();
        assert!(settings.token.expose().is_empty());
    }

    #[test]
    fn headers_are_a_map_and_a_long_address_is_refused() {
        let settings = with(&[("headers", "X-A: 1\nAuthorization: Bearer x\n")]).ok().unwrap();
        assert_eq!(
            (settings.headers["Authorization"].as_str(), settings.headers["X-A"].as_str()),
            ("Bearer x", "1")
        );
        for headers in ["- canary", "a: [canary]", "a: {b: canary}", "canary: ]"] {
            let problem = problem(&[("headers", headers)]);
            assert!(
                problem.starts_with("failed to read headers") && !problem.contains("canary"),
                "{problem}"
            );
        }
        let long = format!("https://{}", "a".repeat(LONGEST_ADDRESS));
        assert_eq!(
            problem(&[("address", &long)]),
            "invalid address in secret: address exceeds maximum length of 2048 bytes"
        );
    }
}
