//! Tokens of service accounts: signed, bound to an account (and perhaps a pod or secret), and checked against it.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde_json::{Map, Value, json};

use super::User;
use crate::storage::Store;

pub const ISSUER: &str = "https://kubernetes.default.svc";

/// Signs and verifies with one key.
pub struct Signer {
    encoding: EncodingKey,
    decoding: DecodingKey,
    pub private_pem: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the token signing key is not usable: {0}")]
    Key(String),
    #[error("the token could not be signed: {0}")]
    Sign(String),
}

/// What a token says.
#[derive(Debug, Clone)]
pub struct Claims<'a> {
    pub namespace: &'a str,
    pub account: &'a str,
    pub account_uid: &'a str,
    pub audiences: &'a [String],
    /// (`pod` or `secret`, name, uid)
    pub bound_to: Option<(&'a str, &'a str, &'a str)>,
    pub now: i64,
    pub lifetime: i64,
}

impl Signer {
    pub fn generate() -> Result<Signer, Error> {
        let key = rcgen::KeyPair::generate().map_err(|e| Error::Key(e.to_string()))?;
        Signer::from_pem(&key.serialize_pem())
    }

    pub fn from_pem(pem: &str) -> Result<Signer, Error> {
        let key = rcgen::KeyPair::from_pem(pem).map_err(|e| Error::Key(e.to_string()))?;
        Ok(Signer {
            encoding: EncodingKey::from_ec_der(&key.serialize_der()),
            decoding: DecodingKey::from_ec_der(key.public_key_raw()),
            private_pem: pem.to_owned(),
        })
    }

    pub fn sign(&self, claims: &Claims<'_>) -> Result<String, Error> {
        let mut kubernetes = json!({
            "namespace": claims.namespace,
            "serviceaccount": { "name": claims.account, "uid": claims.account_uid },
        });
        if let Some((kind, name, uid)) = claims.bound_to {
            kubernetes[kind] = json!({ "name": name, "uid": uid });
        }
        let body = json!({
            "iss": ISSUER, "aud": claims.audiences, "iat": claims.now, "nbf": claims.now,
            "exp": claims.now + claims.lifetime, "jti": uuid::Uuid::new_v4().to_string(),
            "sub": format!("system:serviceaccount:{}:{}", claims.namespace, claims.account),
            "kubernetes.io": kubernetes,
        });
        jsonwebtoken::encode(&Header::new(Algorithm::ES256), &body, &self.encoding)
            .map_err(|e| Error::Sign(e.to_string()))
    }

    /// The account a token speaks for, if it is ours, in time, for this audience, and the account still exists.
    pub fn verify(&self, token: &str, store: &Store, now: i64, audiences: &[String]) -> Option<User> {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_issuer(&[ISSUER]);
        match audiences {
            [] => validation.set_audience(&[ISSUER]),
            wanted => validation.set_audience(wanted),
        }
        // Times are checked below, by the server's clock instead of the machine's.
        validation.validate_exp = false;
        let claims: Map<String, Value> =
            jsonwebtoken::decode(token, &self.decoding, &validation).ok()?.claims;
        let time = |key: &str| claims.get(key).and_then(Value::as_i64);
        if time("exp")? < now || time("nbf")? > now + 60 {
            return None;
        }
        let about = claims.get("kubernetes.io")?;
        let (namespace, name) = (about["namespace"].as_str()?, about["serviceaccount"]["name"].as_str()?);
        let uid = about["serviceaccount"]["uid"].as_str()?;
        let alive = |place: &str, key: String, uid: &str| {
            store.get(place, &key).is_some_and(|found| &*found.uid == uid)
        };
        if !alive("serviceaccounts", format!("{namespace}/{name}"), uid) {
            return None;
        }
        let mut user = User::new(
            format!("system:serviceaccount:{namespace}:{name}"),
            &[
                "system:serviceaccounts",
                &format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ],
        );
        user.uid = uid.to_owned();
        for (kind, place) in [("pod", "pods"), ("secret", "secrets")] {
            let Some((bound, uid)) = about[kind]["name"].as_str().zip(about[kind]["uid"].as_str()) else {
                continue;
            };
            if !alive(place, format!("{namespace}/{bound}"), uid) {
                return None;
            }
            user.extra.insert(format!("authentication.kubernetes.io/{kind}-name"), vec![bound.to_owned()]);
            user.extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), vec![uid.to_owned()]);
        }
        if let Some(id) = claims.get("jti").and_then(Value::as_str) {
            let key = "authentication.kubernetes.io/credential-id";
            user.extra.insert(key.into(), vec![format!("JTI={id}")]);
        }
        Some(user)
    }
}
