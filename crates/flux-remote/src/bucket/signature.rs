//! Signature Version 4: a request that says who makes it, and cannot be made into another one.

use flux_api::secret::SecretString;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use url::Url;

/// Who asks.
#[derive(Clone)]
pub struct Keys {
    pub access_key: String,
    pub secret_key: SecretString,
    /// Comes with keys that are lent for a while.
    pub session_token: Option<SecretString>,
}

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The headers that sign a request without body for `service`.
pub fn sign(
    keys: &Keys,
    service: &str,
    region: &str,
    method: &str,
    url: &Url,
    now: Timestamp,
) -> Option<HeaderMap> {
    sign_body(keys, service, region, method, url, &[], &HeaderMap::new(), now)
}

/// The same for a request with a body and headers of its own.
#[expect(clippy::too_many_arguments, reason = "what is signed is all of a request")]
pub fn sign_body(
    keys: &Keys,
    service: &str,
    region: &str,
    method: &str,
    url: &Url,
    body: &[u8],
    own: &HeaderMap,
    now: Timestamp,
) -> Option<HeaderMap> {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &time[..8];
    let payload = if body.is_empty() { EMPTY.to_owned() } else { hex(&Sha256::digest(body)) };
    let mut signed: Vec<(String, String)> = vec![
        ("host".to_owned(), host(url)?),
        ("x-amz-content-sha256".to_owned(), payload.clone()),
        ("x-amz-date".to_owned(), time.clone()),
    ];
    if let Some(token) = &keys.session_token {
        signed.push(("x-amz-security-token".to_owned(), token.expose().clone()));
    }
    for (name, value) in own {
        signed.push((name.as_str().to_owned(), value.to_str().ok()?.trim().to_owned()));
    }
    signed.sort();
    let names = signed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let canonical = format!("{method}\n{}\n{}\n{lines}\n{names}\n{payload}", url.path(), query(url));
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let signature = signature(keys, service, region, &time, &canonical)?;
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        keys.access_key
    );
    let mut headers = own.clone();
    for (name, value) in signed.into_iter().filter(|(name, _)| name != "host") {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(name == "x-amz-security-token");
        headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
    }
    let mut authorization = HeaderValue::from_str(&authorization).ok()?;
    authorization.set_sensitive(true);
    headers.insert(reqwest::header::AUTHORIZATION, authorization);
    Some(headers)
}

/// The signature of a canonical request, as it stands in a header; `time` begins with the day.
pub(crate) fn signature(
    keys: &Keys,
    service: &str,
    region: &str,
    time: &str,
    canonical: &str,
) -> Option<String> {
    let day = time.get(..8)?;
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let mut key = mac(format!("AWS4{}", keys.secret_key.expose()).as_bytes(), day.as_bytes())?;
    for part in [region, service, "aws4_request"] {
        key = mac(&key, part.as_bytes())?;
    }
    Some(hex(&mac(&key, text.as_bytes())?))
}

fn host(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Parameters in order, each encoded as the signature wants it.
fn query(url: &Url) -> String {
    let mut pairs: Vec<(String, String)> =
        url.query_pairs().map(|(key, value)| (encode(&key, false), encode(&value, false))).collect();
    pairs.sort();
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&")
}

/// Everything but letters, digits and `-._~` as `%XX`; slashes stay where they part a path.
pub(super) fn encode(text: &str, keep_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slashes && byte == b'/');
        if plain {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn mac(key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(message);
    Some(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Amazon's documentation: GET of a bucket's objects with max-keys and prefix.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let keys = Keys {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: SecretString::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
            session_token: None,
        };
        let url = Url::parse("https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J").unwrap();
        let now: Timestamp = "2013-05-24T00:00:00Z".parse().unwrap();
        let headers = sign(&keys, "s3", "us-east-1", "GET", &url, now).unwrap();
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(
            authorization
                .ends_with("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
            "{authorization}"
        );
    }
}
