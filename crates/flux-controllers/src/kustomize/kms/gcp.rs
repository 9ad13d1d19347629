//! Google Cloud KMS: one call, `decrypt`, with a token of a service account's key, of a user, or of the identity that the
//! Kustomization or this pod has.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sops::KeyPart;

use super::send;

pub(super) use flux_remote::cloud::GoogleKey as Credentials;

pub(super) const SERVICE: &str = "https://cloudkms.googleapis.com";
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloudkms";

pub(super) async fn decrypt(
    http: &reqwest::Client,
    service: &str,
    token: &str,
    resource: &str,
    wrapped: &str,
) -> Result<KeyPart, String> {
    if !is_key(resource) {
        return Err("its resource_id is not projects/…/locations/…/keyRings/…/cryptoKeys/…".to_owned());
    }
    let url = format!("{service}/v1/{resource}:decrypt");
    let answer = send(http.post(url).bearer_auth(token).json(&json!({ "ciphertext": wrapped }))).await?;
    let text = answer.get("plaintext").and_then(Value::as_str).ok_or("the answer holds no plaintext")?;
    STANDARD.decode(text).map(KeyPart::new).map_err(|_| "the answer is no base64".to_owned())
}

/// What stands in an address must not be able to leave it.
fn is_key(resource: &str) -> bool {
    let parts: Vec<&str> = resource.split('/').collect();
    let plain = |part: &&str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
            && !part.contains("..")
    };
    parts.iter().all(plain)
        && matches!(
            parts[..],
            ["projects", _, "locations", _, "keyRings", _, "cryptoKeys", _]
                | ["projects", _, "locations", _, "keyRings", _, "cryptoKeys", _, "cryptoKeyVersions", _]
        )
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake;
    use super::*;

    const KEY: &str = "projects/p/locations/global/keyRings/r/cryptoKeys/k";

    #[tokio::test]
    async fn a_user_gets_a_token_and_decrypts() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken", "plaintext": "a2V5"})).await;
        let file = format!(
            "{{\"type\": \"authorized_user\", \"client_id\": \"C\", \"client_secret\": \"S\", \"refresh_token\": \"R\", \
             \"token_uri\": \"{address}/token\"}}"
        );
        let credentials = Credentials::read(file.as_bytes()).unwrap();
        let http = super::super::client().unwrap();
        let token = credentials.token(&http, SCOPE, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
        assert!(decrypt(&http, &address, token.expose(), KEY, "d3JhcHBlZA==").await.is_ok());
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0, "/token");
        assert!(seen[0].2.contains("refresh_token=R"), "{}", seen[0].2);
        assert_eq!(seen[1].0, format!("/v1/{KEY}:decrypt"));
        assert_eq!(seen[1].1["authorization"], "Bearer t0ken");
        assert_eq!(seen[1].2, r#"{"ciphertext":"d3JhcHBlZA=="}"#);
    }

    #[tokio::test]
    async fn a_service_account_signs_for_its_token() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken"})).await;
        let key = include_str!("../../../../flux-remote/tests/keys/pkcs8-rsa");
        let file = json!({"type": "service_account", "client_email": "flux@p.iam", "private_key": key,
            "private_key_id": "1", "token_uri": format!("{address}/token")});
        let credentials = Credentials::read(file.to_string().as_bytes()).unwrap();
        assert_eq!(credentials.name(), "Google service account flux@p.iam");
        let http = super::super::client().unwrap();
        let token = credentials.token(&http, SCOPE, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(token.expose(), "t0ken");
        let seen = seen.lock().unwrap();
        assert!(seen[0].2.contains("assertion=eyJ"), "{}", seen[0].2);
    }

    #[test]
    fn other_types_and_places_are_refused_by_name() {
        let error = |text: &str| Credentials::read(text.as_bytes()).err().unwrap().to_string();
        assert!(error("{\"type\": \"gdch_service_account\"}").contains("gdch_service_account"));
        assert!(error("{\"type\": \"external_account\"}").contains("credential_source.file"));
        assert!(
            error("{\"type\": \"authorized_user\", \"token_uri\": \"http://evil.example\"}")
                .contains("https")
        );
        assert!(error("{}").contains("type is missing"));
        assert!(
            is_key(KEY)
                && !is_key("projects/../x")
                && !is_key("projects/p/locations/l/keyRings/r/cryptoKeys/k?x")
        );
    }

    #[tokio::test]
    async fn an_external_account_exchanges_the_token_of_a_file_at_google_only() {
        let (address, seen) = fake(200, json!({"access_token": "first", "accessToken": "second"})).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "subject\n").unwrap();
        let file = |tokens: &str, source: Value| {
            json!({
                "type": "external_account", "audience": "//iam.googleapis.com/pool",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": tokens,
                "service_account_impersonation_url": format!("{address}/impersonate"), "credential_source": source,
            })
            .to_string()
        };
        let credentials =
            Credentials::read(file(&format!("{address}/token"), json!({"file": path})).as_bytes()).unwrap();
        let http = super::super::client().unwrap();
        let token = credentials.token(&http, SCOPE, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
        assert_eq!(token.expose(), "second");
        let seen = seen.lock().unwrap();
        assert!(seen[0].2.contains("subject_token=subject"), "{}", seen[0].2);
        assert_eq!(seen[1].1["authorization"], "Bearer first");
        for (tokens, source) in [
            ("https://evil.example.org/token", json!({"file": path})),
            ("https://sts.googleapis.com.evil.example.org/token", json!({"file": path})),
            ("https://sts.googleapis.com/v1/token", json!({"executable": {"command": "sh"}})),
            ("https://sts.googleapis.com/v1/token", json!({"url": "http://169.254.169.254/"})),
        ] {
            assert!(Credentials::read(file(tokens, source).as_bytes()).is_err(), "{tokens}");
        }
    }
}
