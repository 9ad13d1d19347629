//! The public keys of issuers, fetched from where they publish them and kept for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flux_remote::transport::{Transport, causes};
use jsonwebtoken::jwk::JwkSet;
use serde::Deserialize;
use serde::de::DeserializeOwned;

const WITHIN: Duration = Duration::from_secs(10);
const LARGEST: usize = 1 << 20;
const FRESH: Duration = Duration::from_secs(300);
/// A token with an unknown key makes us look again, though not for every such token.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const KEPT: usize = 256;
/// Where Google says which keys its tokens are signed with.
const GOOGLE: &str = "https://www.googleapis.com/oauth2/v3/certs";

/// Keys by issuer.
pub struct Keys {
    known: Mutex<HashMap<String, (Arc<JwkSet>, Instant)>>,
    google: String,
}

impl Default for Keys {
    fn default() -> Self {
        Self { known: Mutex::default(), google: GOOGLE.to_owned() }
    }
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Keys {
    /// With Google's keys somewhere else.
    pub fn with_google_at(url: &str) -> Self {
        Self { google: url.to_owned(), ..Self::default() }
    }

    /// The keys of an issuer of OpenID Connect, found by its configuration.
    pub async fn of_issuer(&self, issuer: &str, key: Option<&str>) -> Result<Arc<JwkSet>, String> {
        if let Some(known) = self.known(issuer, key) {
            return Ok(known);
        }
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let discovery: Discovery = get(&url).await?;
        if discovery.issuer != issuer {
            return Err(format!("the issuer at {issuer:?} calls itself {:?}", discovery.issuer));
        }
        let keys = get::<JwkSet>(&discovery.jwks_uri).await?;
        Ok(self.keep(issuer, keys))
    }

    pub async fn of_google(&self, key: Option<&str>) -> Result<Arc<JwkSet>, String> {
        if let Some(known) = self.known(&self.google, key) {
            return Ok(known);
        }
        let keys = get::<JwkSet>(&self.google).await?;
        Ok(self.keep(&self.google.clone(), keys))
    }

    fn known(&self, issuer: &str, key: Option<&str>) -> Option<Arc<JwkSet>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, at) = known.get(issuer)?;
        let has_it = key.is_none_or(|key| keys.find(key).is_some());
        let age = at.elapsed();
        (age < AGAIN_AFTER || (age < FRESH && has_it)).then(|| keys.clone())
    }

    fn keep(&self, issuer: &str, keys: JwkSet) -> Arc<JwkSet> {
        let keys = Arc::new(keys);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(issuer.to_owned(), (keys.clone(), Instant::now()));
        keys
    }
}

async fn get<T: DeserializeOwned>(url: &str) -> Result<T, String> {
    let client = Transport::default().client().map_err(|error| error.to_string())?;
    let failed = |error: reqwest::Error| format!("the issuer cannot be asked: {}", causes(error));
    let mut answer = client.get(url).timeout(WITHIN).send().await.map_err(failed)?;
    if !answer.status().is_success() {
        return Err(format!("the issuer answered with status code {}", answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(failed)? {
        body.extend_from_slice(&piece);
        if body.len() > LARGEST {
            return Err("the issuer's answer is too large".to_owned());
        }
    }
    serde_json::from_slice(&body).map_err(|error| format!("the issuer's answer is not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::receiver::token::tests::Issuer;
    use serde_json::json;

    #[tokio::test]
    async fn keys_are_found_by_the_issuers_configuration() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let keys = Issuer::new().keys;
        let (own, jwks) = (base.clone(), format!("{base}/jwks"));
        let evil = json!({ "issuer": own, "jwks_uri": jwks });
        let router = axum::Router::new()
            .route(
                "/.well-known/openid-configuration",
                axum::routing::get({
                    let answer = json!({ "issuer": own, "jwks_uri": jwks });
                    async move || axum::Json(answer)
                }),
            )
            .route(
                "/evil/.well-known/openid-configuration",
                axum::routing::get(async move || axum::Json(evil)),
            )
            .route("/jwks", axum::routing::get(async move || axum::Json(keys)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let known = Keys::default();
        assert_eq!(known.of_issuer(&base, Some("one")).await.unwrap().keys.len(), 1);
        assert_eq!(
            known.of_issuer(&base, Some("two")).await.unwrap().keys.len(),
            1,
            "asked again soon, it is not fetched again"
        );
        let error = known.of_issuer(&format!("{base}/evil"), None).await.unwrap_err();
        assert!(error.contains("calls itself"), "{error}");
        assert!(known.of_issuer("http://127.0.0.1:1", None).await.is_err());
        assert!(Keys::with_google_at(&format!("{base}/jwks")).of_google(Some("one")).await.is_ok());
    }
}
