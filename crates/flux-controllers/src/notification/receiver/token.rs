//! Identity tokens (JWT): who issued one, and whether it is signed by them, meant for us and still good.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Map, Value};

/// A clock that is behind ours is forgiven this much, as go-oidc forgives it.
const NOT_BEFORE_LEEWAY: i64 = 300;

/// Claims of a token that was verified.
pub type Claims = Map<String, Value>;

/// What `iss` says, before anything is verified: only to find out whose keys are needed.
pub fn unverified_issuer(token: &str) -> Result<String, String> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, payload, _] = parts[..] else { return Err("token is not a JWT".to_owned()) };
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| "failed to decode token payload".to_owned())?;
    let claims: Claims =
        serde_json::from_slice(&payload).map_err(|_| "failed to parse token payload".to_owned())?;
    match claims.get("iss").and_then(Value::as_str) {
        Some(issuer) if !issuer.is_empty() => Ok(issuer.to_owned()),
        _ => Err("token is missing the 'iss' claim".to_owned()),
    }
}

/// The id of the key that a token says it is signed with.
pub fn key_id(token: &str) -> Option<String> {
    jsonwebtoken::decode_header(token).ok()?.kid
}

/// Verifies with the keys of the issuer; only asymmetric signatures count, since the keys are public.
pub fn verify(
    token: &str,
    keys: &JwkSet,
    issuers: &[&str],
    audience: &str,
    now: i64,
) -> Result<Claims, String> {
    let header =
        jsonwebtoken::decode_header(token).map_err(|_| "the token has no valid header".to_owned())?;
    if matches!(header.alg, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
        return Err("the token is signed with a shared key".to_owned());
    }
    let mut validation = Validation::new(header.alg);
    validation.leeway = 0;
    validation.validate_nbf = false;
    validation.set_audience(&[audience]);
    validation.set_issuer(issuers);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    let candidates = keys.keys.iter().filter(|key| match (&header.kid, &key.common.key_id) {
        (Some(wanted), Some(known)) => wanted == known,
        (Some(_), None) | (None, _) => true,
    });
    let mut problem = "no key of the issuer fits".to_owned();
    for key in candidates {
        let Ok(decoding) = DecodingKey::from_jwk(key) else { continue };
        match jsonwebtoken::decode::<Claims>(token, &decoding, &validation) {
            Ok(verified) => return not_before(verified.claims, now),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(problem)
}

fn not_before(claims: Claims, now: i64) -> Result<Claims, String> {
    match claims.get("nbf").and_then(Value::as_f64) {
        Some(from) if from > (now + NOT_BEFORE_LEEWAY) as f64 => Err("the token is not valid yet".to_owned()),
        _ => Ok(claims),
    }
}

/// What a token of Google's Pub/Sub must also say: for whom it was issued, and that this is certain.
pub fn check_email(claims: &Claims, expected: &str) -> Result<(), String> {
    let email = claims.get("email").and_then(Value::as_str).unwrap_or_default();
    if email != expected {
        return Err(format!("token email is '{email}', want '{expected}'"));
    }
    match claims.get("email_verified") {
        Some(Value::Bool(true)) => Ok(()),
        _ => Err(format!("token email '{email}' is not verified")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::json;

    /// An issuer of tokens with one key.
    pub(in crate::notification) struct Issuer {
        key: Vec<u8>,
        pub keys: Value,
    }

    impl Issuer {
        pub fn new() -> Self {
            let key =
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref()).unwrap();
            let public = pair.public_key().as_ref().to_vec();
            let (x, y) = (URL_SAFE_NO_PAD.encode(&public[1..33]), URL_SAFE_NO_PAD.encode(&public[33..65]));
            let keys = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one", "x": x, "y": y }] });
            Self { key: key.as_ref().to_vec(), keys }
        }

        pub fn sign(&self, claims: &Value) -> String {
            let mut header = Header::new(Algorithm::ES256);
            header.kid = Some("one".to_owned());
            jsonwebtoken::encode(&header, claims, &EncodingKey::from_ec_der(&self.key)).unwrap()
        }

        pub fn set(&self) -> JwkSet {
            serde_json::from_value(self.keys.clone()).unwrap()
        }
    }

    pub(in crate::notification) fn claims() -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({ "iss": "https://issuer", "aud": "notification-controller", "exp": now + 300, "sub": "repo:x", "email": "a@b", "email_verified": true })
    }

    fn try_with(issuer: &Issuer, token: &str) -> Result<Claims, String> {
        let now = jiff::Timestamp::now().as_second();
        verify(token, &issuer.set(), &["https://issuer"], "notification-controller", now)
    }

    fn changed(field: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[field] = value;
        claims
    }

    #[test]
    fn a_good_token_gives_its_claims() {
        let issuer = Issuer::new();
        let found = try_with(&issuer, &issuer.sign(&claims())).unwrap();
        assert_eq!(found["sub"], "repo:x");
        assert_eq!(unverified_issuer(&issuer.sign(&claims())).as_deref(), Ok("https://issuer"));
        assert!(
            try_with(&issuer, &issuer.sign(&changed("aud", json!(["x", "notification-controller"])))).is_ok()
        );
        let now = jiff::Timestamp::now().as_second();
        assert!(try_with(&issuer, &issuer.sign(&changed("nbf", json!(now + 200)))).is_ok());
    }

    #[test]
    fn a_wrong_issuer_audience_time_or_key_is_refused() {
        let issuer = Issuer::new();
        let now = jiff::Timestamp::now().as_second();
        for (field, value) in [
            ("iss", json!("https://issuer.evil")),
            ("iss", json!("https://issuer/")),
            ("iss", json!(null)),
            ("aud", json!("other")),
            ("aud", json!(null)),
            ("aud", json!([])),
            ("exp", json!(now - 1)),
            ("exp", json!("never")),
            ("nbf", json!(now + 1000)),
        ] {
            assert!(
                try_with(&issuer, &issuer.sign(&changed(field, value.clone()))).is_err(),
                "{field} {value}"
            );
        }
        let mut without = claims();
        without.as_object_mut().unwrap().remove("exp");
        assert!(try_with(&issuer, &issuer.sign(&without)).is_err());
        assert!(try_with(&issuer, &Issuer::new().sign(&claims())).is_err(), "somebody else's key");
    }

    #[test]
    fn tricks_with_algorithms_do_not_work() {
        let issuer = Issuer::new();
        let payload = URL_SAFE_NO_PAD.encode(claims().to_string());
        let none = format!("{}.{payload}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#));
        assert!(try_with(&issuer, &none).is_err());
        let public = issuer.keys["keys"][0]["x"].as_str().unwrap();
        let shared = jsonwebtoken::encode(
            &Header::new(Algorithm::HS256),
            &claims(),
            &EncodingKey::from_secret(public.as_bytes()),
        );
        assert_eq!(
            try_with(&issuer, &shared.unwrap()),
            Err("the token is signed with a shared key".to_owned())
        );
        for bad in ["", "a.b", "a.b.c", "...", "é.é.é", &"a.".repeat(1000)] {
            assert!(try_with(&issuer, bad).is_err() && unverified_issuer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_email_must_be_the_right_one_and_certain() {
        let of = |value: Value| -> Claims { value.as_object().unwrap().clone() };
        assert!(check_email(&of(claims()), "a@b").is_ok());
        assert!(check_email(&of(claims()), "x@b").is_err());
        assert!(check_email(&of(changed("email_verified", json!(false))), "a@b").is_err());
        assert!(check_email(&of(changed("email_verified", json!("true"))), "a@b").is_err());
        assert!(check_email(&of(json!({})), "a@b").is_err());
    }
}
