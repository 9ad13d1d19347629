//! Azure Key Vault, as a service principal with a client secret or certificate, or as a managed identity of the machine.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use sops::KeyPart;

use super::{read_yaml, send};

const PUBLIC: &str = "https://login.microsoftonline.com/";
/// Where a machine learns who it is.
const MACHINE: &str = "http://169.254.169.254/metadata/identity/oauth2/token";
/// How long an assertion is good for, in seconds.
const ASSERTION: i64 = 600;

/// A service principal, or an identity of the machine. It cannot be printed.
pub(super) struct Credentials {
    client: String,
    proof: Proof,
}

enum Proof {
    Secret { authority: String, tenant: String, secret: String },
    Certificate { authority: String, tenant: String, key: Box<EncodingKey>, header: Box<Header> },
    Managed,
}

impl Credentials {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value = read_yaml(&utf8(bytes))?;
        let text = |keys: [&str; 2]| {
            let found = keys.iter().find_map(|key| value.get(*key)?.as_str()).filter(|text| !text.is_empty());
            found.map(str::to_owned)
        };
        let client = text(["clientId", "appId"]).ok_or("clientId is missing")?;
        let (secret, certificate) =
            (text(["clientSecret", "password"]), text(["clientCertificate", "clientCertificate"]));
        if secret.is_none() && certificate.is_none() {
            return Ok(Self { client, proof: Proof::Managed });
        }
        let tenant = text(["tenantId", "tenant"]).ok_or("tenantId is missing")?;
        let authority = text(["authorityHost", "authorityHost"]).unwrap_or_else(|| PUBLIC.to_owned());
        let proof = match (secret, certificate) {
            (Some(secret), _) => Proof::Secret { authority, tenant, secret },
            (None, certificate) => {
                let sends_chain =
                    value.get("clientCertificateSendChain").and_then(Value::as_bool) == Some(true);
                let (key, header) = certified(&certificate.unwrap_or_default(), sends_chain)?;
                Proof::Certificate { authority, tenant, key: Box::new(key), header: Box::new(header) }
            }
        };
        Ok(Self { client, proof })
    }

    pub(super) fn name(&self) -> String {
        match self.proof {
            Proof::Managed => format!("Azure managed identity {}", self.client),
            Proof::Secret { .. } | Proof::Certificate { .. } => format!("Azure application {}", self.client),
        }
    }
}

/// A key that signs, and the head of what it signs: which certificate it belongs to.
fn certified(pem: &str, sends_chain: bool) -> Result<(EncodingKey, Header), String> {
    let key = EncodingKey::from_rsa_pem(pem.as_bytes());
    let key = block(pem, "PRIVATE KEY")
        .and_then(|text| EncodingKey::from_rsa_pem(text.as_bytes()).ok())
        .or(key.ok());
    let key = key.ok_or("clientCertificate holds no RSA key in PEM; PKCS#12 has to be converted")?;
    let chain: Vec<Vec<u8>> = pem
        .split("-----BEGIN CERTIFICATE-----")
        .skip(1)
        .filter_map(|rest| {
            let body: String = rest.split("-----END").next()?.split_whitespace().collect();
            STANDARD.decode(body).ok()
        })
        .collect();
    let first = chain.first().ok_or("clientCertificate holds no certificate in PEM")?;
    let mut header = Header::new(Algorithm::RS256);
    header.x5t = Some(URL_SAFE_NO_PAD.encode(Sha1::digest(first)));
    header.x5c = sends_chain.then(|| chain.iter().map(|one| STANDARD.encode(one)).collect());
    Ok((key, header))
}

/// The first block whose label ends with `label`.
fn block(pem: &str, label: &str) -> Option<String> {
    let start = pem.match_indices("-----BEGIN ").find(|(at, _)| {
        let line = pem[*at..].lines().next().unwrap_or_default();
        line.trim_end().trim_end_matches('-').ends_with(label)
    })?;
    let rest = &pem[start.0..];
    let end = rest.find("-----END ")?;
    let line = rest[end..].lines().next().unwrap_or_default();
    Some(format!("{}{line}\n", &rest[..end]))
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
    let now = jiff::Timestamp::now().as_second();
    let request = request(http, credentials, vault, MACHINE, now)?;
    let answer = send(request).await?;
    let token = answer.get("access_token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| "the answer holds no access_token".to_owned())
}

fn request(
    http: &reqwest::Client,
    credentials: &Credentials,
    vault: &str,
    machine: &str,
    now: i64,
) -> Result<reqwest::RequestBuilder, String> {
    let client = credentials.client.as_str();
    let at = |authority: &str, tenant: &str| {
        format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'))
    };
    let form = |proof: &[(&str, &str)]| {
        let mut form =
            vec![("grant_type", "client_credentials"), ("client_id", client), ("scope", scope(vault))];
        form.extend(proof);
        form.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    Ok(match &credentials.proof {
        Proof::Secret { authority, tenant, secret } => {
            http.post(at(authority, tenant)).form(&form(&[("client_secret", secret)]))
        }
        Proof::Certificate { authority, tenant, key, header } => {
            let url = at(authority, tenant);
            let claims = json!({
                "aud": url, "iss": client, "sub": client, "jti": uuid::Uuid::new_v4().to_string(),
                "nbf": now, "iat": now, "exp": now + ASSERTION,
            });
            let assertion = jsonwebtoken::encode(header, &claims, key)
                .map_err(|_| "the key of the client certificate cannot sign".to_owned())?;
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            http.post(url).form(&form(&[("client_assertion_type", kind), ("client_assertion", &assertion)]))
        }
        Proof::Managed => {
            let resource = scope(vault).trim_end_matches("/.default");
            let query = [("api-version", "2018-02-01"), ("resource", resource), ("client_id", client)];
            http.get(machine).query(&query).header("metadata", "true")
        }
    })
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
        assert_eq!(Credentials::read(b"clientId: c").unwrap().name(), "Azure managed identity c");
        assert!(
            Credentials::read(b"clientId: c\ntenantId: t\nclientCertificate: x")
                .err()
                .unwrap()
                .contains("PEM")
        );
    }

    #[tokio::test]
    async fn a_managed_identity_is_asked_of_the_machine_by_its_id() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken"})).await;
        let credentials = Credentials::read(b"clientId: c").unwrap();
        let http = super::super::client().unwrap();
        let vault = "https://v.vault.azure.net";
        send(request(&http, &credentials, vault, &address, 0).unwrap()).await.unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0, "/?api-version=2018-02-01&resource=https%3A%2F%2Fvault.azure.net&client_id=c");
        assert_eq!(seen[0].1["metadata"], "true");
    }

    #[tokio::test]
    async fn a_certificate_signs_for_its_token() {
        let (address, seen) = fake(200, json!({"access_token": "t0ken"})).await;
        let key = include_str!("../../../../flux-remote/tests/keys/pkcs8-rsa");
        let der = b"not a certificate, but bytes";
        let certificate =
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der));
        let file = json!({
            "tenantId": "T", "clientId": "C", "clientCertificate": format!("{certificate}{key}"),
            "clientCertificateSendChain": true, "authorityHost": address,
        });
        let credentials = Credentials::read(file.to_string().as_bytes()).unwrap();
        let http = super::super::client().unwrap();
        assert_eq!(token(&http, &credentials, &address).await.unwrap(), "t0ken");
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0, "/T/oauth2/v2.0/token");
        let assertion = seen[0].2.split("client_assertion=").nth(1).unwrap();
        let header: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(assertion.split('.').next().unwrap()).unwrap())
                .unwrap();
        assert_eq!(header["x5t"], URL_SAFE_NO_PAD.encode(Sha1::digest(der)));
        assert_eq!(header["x5c"][0], STANDARD.encode(der));
        let claims: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(assertion.split('.').nth(1).unwrap()).unwrap())
                .unwrap();
        assert_eq!(
            (&claims["iss"], &claims["aud"]),
            (&json!("C"), &json!(format!("{address}/T/oauth2/v2.0/token")))
        );
    }
}
