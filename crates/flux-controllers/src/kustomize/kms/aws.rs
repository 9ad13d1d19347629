//! AWS KMS: one call, `Decrypt`, signed with version 4 of AWS' scheme.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sops::KeyPart;

use super::{read_yaml, send};

/// An access key. It cannot be printed.
pub(super) struct Credentials {
    id: String,
    secret: String,
    session: Option<String>,
}

impl From<flux_remote::bucket::Keys> for Credentials {
    fn from(keys: flux_remote::bucket::Keys) -> Self {
        Self {
            id: keys.access_key,
            secret: keys.secret_key.expose().to_owned(),
            session: keys.session_token.map(|token| token.expose().to_owned()),
        }
    }
}

impl Credentials {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value = read_yaml(bytes)?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        Ok(Self {
            id: text("aws_access_key_id").ok_or("aws_access_key_id is missing")?.to_owned(),
            secret: text("aws_secret_access_key").ok_or("aws_secret_access_key is missing")?.to_owned(),
            session: text("aws_session_token").map(str::to_owned),
        })
    }

    pub(super) fn name(&self) -> String {
        format!("AWS access key {}", self.id)
    }
}

pub(super) async fn decrypt(
    http: &reqwest::Client,
    credentials: &Credentials,
    arn: &str,
    context: &BTreeMap<String, String>,
    wrapped: &str,
) -> Result<KeyPart, String> {
    let region = region(arn)?;
    let host = host("kms", region);
    decrypt_at(http, &format!("https://{host}/"), &host, credentials, region, (arn, context, wrapped)).await
}

/// `arn:aws:kms:<region>:<account>:key/<id>`
pub(super) fn region(arn: &str) -> Result<&str, String> {
    let region = arn.split(':').nth(3).filter(|region| is_region(region));
    region.ok_or_else(|| "its ARN names no region".to_owned())
}

fn host(service: &str, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("{service}.{region}.{suffix}")
}

/// The keys of a role that these ones may assume, as sops writes it beside the key.
pub(super) async fn assume(
    http: &reqwest::Client,
    credentials: &Credentials,
    region: &str,
    role: &str,
) -> Result<Credentials, String> {
    let host = host("sts", region);
    assume_at(http, &format!("https://{host}/"), &host, credentials, region, role).await
}

async fn assume_at(
    http: &reqwest::Client,
    url: &str,
    host: &str,
    credentials: &Credentials,
    region: &str,
    role: &str,
) -> Result<Credentials, String> {
    let body = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("Action", "AssumeRole")
        .append_pair("Version", "2011-06-15")
        .append_pair("RoleArn", role)
        .append_pair("RoleSessionName", "sops@flux")
        .finish();
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut headers = BTreeMap::from([
        ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ("host", host.to_owned()),
        ("x-amz-date", now.clone()),
    ]);
    if let Some(session) = &credentials.session {
        headers.insert("x-amz-security-token", session.clone());
    }
    let authorization = authorization(credentials, (region, "sts"), &now, &headers, &body);
    let mut request = http.post(url).body(body).header("authorization", authorization);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.without_url().to_string())?;
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value.to_owned())
    };
    if !status.is_success() {
        let said: String = field("Message").unwrap_or_default().chars().take(200).collect();
        return Err(format!("the role could not be assumed: HTTP {}: {said}", status.as_u16()));
    }
    let need = |name: &str| field(name).ok_or_else(|| format!("the role came without {name}"));
    Ok(Credentials {
        id: need("AccessKeyId")?,
        secret: need("SecretAccessKey")?,
        session: Some(need("SessionToken")?),
    })
}

/// What stands in a host name must not be able to leave it.
fn is_region(region: &str) -> bool {
    !region.is_empty()
        && region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

async fn decrypt_at(
    http: &reqwest::Client,
    url: &str,
    host: &str,
    credentials: &Credentials,
    region: &str,
    (arn, context, wrapped): (&str, &BTreeMap<String, String>, &str),
) -> Result<KeyPart, String> {
    let mut body = json!({ "CiphertextBlob": wrapped, "KeyId": arn });
    if !context.is_empty() {
        body["EncryptionContext"] = json!(context);
    }
    let body = body.to_string();
    let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut headers = BTreeMap::from([
        ("content-type", "application/x-amz-json-1.1".to_owned()),
        ("host", host.to_owned()),
        ("x-amz-date", now.clone()),
        ("x-amz-target", "TrentService.Decrypt".to_owned()),
    ]);
    if let Some(session) = &credentials.session {
        headers.insert("x-amz-security-token", session.clone());
    }
    let authorization = authorization(credentials, (region, "kms"), &now, &headers, &body);
    let mut request = http.post(url).body(body).header("authorization", authorization);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let answer = send(request).await?;
    let text = answer.get("Plaintext").and_then(Value::as_str).ok_or("the answer holds no Plaintext")?;
    STANDARD.decode(text).map(KeyPart::new).map_err(|_| "the answer is no base64".to_owned())
}

fn authorization(
    credentials: &Credentials,
    (region, service): (&str, &str),
    now: &str,
    headers: &BTreeMap<&str, String>,
    body: &str,
) -> String {
    let signed: Vec<&str> = headers.keys().copied().collect();
    let signed = signed.join(";");
    let listed: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("POST\n/\n\n{listed}\n{signed}\n{}", hex(&Sha256::digest(body)));
    let day = &now[..8];
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let mut key = format!("AWS4{}", credentials.secret).into_bytes();
    for part in [day, region, service, "aws4_request"] {
        key = sign(&key, part);
    }
    let signature = hex(&sign(&key, &text));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
        credentials.id
    )
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fake, fake_text};
    use super::*;

    fn credentials() -> Credentials {
        Credentials::read(
            b"aws_access_key_id: AKID\naws_secret_access_key: wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n",
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_wrapped_key_is_decrypted_with_its_context() {
        let (address, seen) = fake(200, json!({"Plaintext": "a2V5"})).await;
        let http = super::super::client().unwrap();
        let context = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let what = ("arn:aws:kms:eu-west-1:1:key/x", &context, "d3JhcHBlZA==");
        let part =
            decrypt_at(&http, &address, "kms.eu-west-1.amazonaws.com", &credentials(), "eu-west-1", what)
                .await;
        assert!(part.is_ok());
        let seen = seen.lock().unwrap();
        let (_, headers, body) = &seen[0];
        assert_eq!(headers["x-amz-target"], "TrentService.Decrypt");
        let signed = headers["authorization"].to_str().unwrap();
        assert!(
            signed.contains(
                "/eu-west-1/kms/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target"
            ),
            "{signed}"
        );
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["EncryptionContext"]["team"], "a");
        assert_eq!(body["CiphertextBlob"], "d3JhcHBlZA==");
    }

    #[tokio::test]
    async fn a_role_is_assumed_with_the_keys_at_hand() {
        let answer = "<AssumeRoleResponse><Credentials><AccessKeyId>LENT</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                      <SessionToken>t</SessionToken></Credentials></AssumeRoleResponse>";
        let (address, seen) = fake_text(200, answer).await;
        let http = super::super::client().unwrap();
        let role = "arn:aws:iam::1:role/sops";
        let (own, host) = (credentials(), "sts.eu-west-1.amazonaws.com");
        let lent = assume_at(&http, &address, host, &own, "eu-west-1", role).await.unwrap();
        assert_eq!((lent.name().as_str(), lent.session.as_deref()), ("AWS access key LENT", Some("t")));
        let (_, headers, body) = seen.lock().unwrap()[0].clone();
        assert!(
            body.contains("Action=AssumeRole")
                && body.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fsops")
        );
        assert!(headers["authorization"].to_str().unwrap().contains("/eu-west-1/sts/aws4_request"));
        let (address, _) = fake_text(403, "<Error><Message>not you</Message></Error>").await;
        let refused =
            assume_at(&http, &address, "sts.x", &credentials(), "eu-west-1", role).await.err().unwrap();
        assert_eq!(refused, "the role could not be assumed: HTTP 403: not you");
    }

    /// The example of AWS' documentation for deriving a signing key.
    #[test]
    fn the_signing_key_is_that_of_the_documentation() {
        let mut key = b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec();
        for part in ["20120215", "us-east-1", "iam", "aws4_request"] {
            key = sign(&key, part);
        }
        assert_eq!(hex(&key), "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d");
    }

    #[test]
    fn credentials_need_both_parts_and_a_region_stays_in_the_host_name() {
        assert!(Credentials::read(b"aws_access_key_id: x").is_err());
        assert!(is_region("eu-central-1") && !is_region("evil.example/") && !is_region(""));
    }
}
