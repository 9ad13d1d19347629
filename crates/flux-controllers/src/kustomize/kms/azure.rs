//! Azure Key Vault, as a service principal with a client secret.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sops::KeyPart;

use super::{read_yaml, send};

const PUBLIC: &str = "https://login.microsoftonline.com/";

/// A service principal. It cannot be printed.
pub(super) struct Credentials {
    authority: String,
    tenant: String,
    client: String,
    secret: String,
}

impl Credentials {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value = read_yaml(&utf8(bytes))?;
        let text = |keys: [&str; 2]| {
            let found = keys.iter().find_map(|key| value.get(*key)?.as_str()).filter(|text| !text.is_empty());
            found.map(str::to_owned)
        };
        let client = text(["clientId", "appId"]).ok_or("clientId is missing")?;
        let Some(secret) = text(["clientSecret", "password"]) else {
            return Err(if value.get("clientCertificate").is_some() {
                "a client certificate is not supported yet; use clientSecret".to_owned()
            } else {
                "clientSecret is missing; a managed identity is not supported yet".to_owned()
            });
        };
        let tenant = text(["tenantId", "tenant"]).ok_or("tenantId is missing")?;
        let authority = text(["authorityHost", "authorityHost"]).unwrap_or_else(|| PUBLIC.to_owned());
        Ok(Self { authority, tenant, client, secret })
    }

    pub(super) fn name(&self) -> String {
        format!("Azure application {}", self.client)
    }
}

/// Windows writes such files in UTF-16, with a mark in front.
fn utf8(bytes: &[u8]) -> Vec<u8> {
    let decode = |unit: fn([u8; 2]) -> u16, rest: &[u8]| {
        let units: Vec<u16> = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units).into_bytes()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => decode(u16::from_le_bytes, rest),
        [0xfe, 0xff, rest @ ..] => decode(u16::from_be_bytes, rest),
        [0xef, 0xbb, 0xbf, rest @ ..] => rest.to_vec(),
        _ => bytes.to_vec(),
    }
}

pub(super) async fn decrypt(
    http: &reqwest::Client,
    token: &str,
    [vault, name, version]: [&str; 3],
    wrapped: &str,
) -> Result<KeyPart, String> {
    let url = format!("{}/keys/{name}/{version}/decrypt?api-version=7.4", vault.trim_end_matches('/'));
    let body = json!({ "alg": "RSA-OAEP-256", "value": wrapped });
    let answer = send(http.post(url).bearer_auth(token).json(&body)).await?;
    let text = answer.get("value").and_then(Value::as_str).ok_or("the answer holds no value")?;
    URL_SAFE_NO_PAD.decode(text).map(KeyPart::new).map_err(|_| "the answer is no base64".to_owned())
}

pub(super) async fn token(
    http: &reqwest::Client,
    credentials: &Credentials,
    vault: &str,
) -> Result<String, String> {
    let url =
        format!("{}/{}/oauth2/v2.0/token", credentials.authority.trim_end_matches('/'), credentials.tenant);
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", &credentials.client),
        ("client_secret", &credentials.secret),
        ("scope", scope(vault)),
    ];
    let answer = send(http.post(url).form(&form)).await?;
    let token = answer.get("access_token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| "the answer holds no access_token".to_owned())
}

pub(super) fn scope(vault: &str) -> &'static str {
    if vault.contains(".vault.azure.cn") {
        "https://vault.azure.cn/.default"
    } else if vault.contains(".vault.usgovcloudapi.net") {
        "https://vault.usgovcloudapi.net/.default"
    } else {
        "https://vault.azure.net/.default"
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake;
    use super::*;

    #[tokio::test]
    async fn a_principal_logs_in_and_decrypts() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken", "value": "a2V5"})).await;
        let text = format!(
            "{{\"tenantId\": \"T\", \"clientId\": \"C\", \"clientSecret\": \"S\", \"authorityHost\": \"{address}\"}}"
        );
        let credentials = Credentials::read(text.as_bytes()).unwrap();
        let http = super::super::client().unwrap();
        let token = token(&http, &credentials, &address).await.unwrap();
        assert!(decrypt(&http, &token, [&address, "key", "1"], "d3JhcHBlZA").await.is_ok());
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0, "/T/oauth2/v2.0/token");
        assert!(seen[0].2.contains("client_id=C"), "{}", seen[0].2);
        assert_eq!(seen[1].0, "/keys/key/1/decrypt?api-version=7.4");
        assert_eq!(seen[1].1["authorization"], "Bearer t0ken");
    }

    #[test]
    fn files_of_both_tools_and_of_windows_are_read() {
        for text in ["tenantId: t\nclientId: c\nclientSecret: s\n", "tenant: t\nappId: c\npassword: s\n"] {
            assert_eq!(Credentials::read(text.as_bytes()).unwrap().name(), "Azure application c");
            let mut wide = vec![0xff, 0xfe];
            wide.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
            assert!(Credentials::read(&wide).is_ok());
        }
        assert!(Credentials::read(b"clientId: c").err().unwrap().contains("managed identity"));
    }
}
