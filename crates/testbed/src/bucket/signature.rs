//! Checks AWS Signature Version 4 in the `Authorization` header.
//!
//! The age of a signature is not checked, and presigned URLs and streaming signatures are not known.

use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::Credentials;
use crate::http_server::{decode, parameters};

/// Why a request may not come in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Missing,
    Malformed(&'static str),
    UnknownKey,
    WrongSignature,
    WrongContent,
}

impl Problem {
    /// S3's name for it.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Problem::Missing => "AccessDenied",
            Problem::Malformed(_) => "AuthorizationHeaderMalformed",
            Problem::UnknownKey => "InvalidAccessKeyId",
            Problem::WrongSignature => "SignatureDoesNotMatch",
            Problem::WrongContent => "XAmzContentSHA256Mismatch",
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Missing => write!(f, "the request is not signed"),
            Problem::Malformed(what) => write!(f, "the authorization header has no {what}"),
            Problem::UnknownKey => write!(f, "the access key is not known"),
            Problem::WrongSignature => write!(f, "the signature does not match"),
            Problem::WrongContent => write!(f, "the content does not match its signed hash"),
        }
    }
}

pub(super) fn verify(parts: &Parts, body: &[u8], credentials: &Credentials) -> Result<(), Problem> {
    let authorization = header(parts, "authorization");
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or(Problem::Missing)?;
    let field = |name: &'static str| {
        let mut fields = fields.split(',').map(str::trim);
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).ok_or(Problem::Malformed(name))
    };
    let (key, scope) = field("Credential")?.split_once('/').ok_or(Problem::Malformed("scope"))?;
    if key != credentials.access_key {
        return Err(Problem::UnknownKey);
    }
    let content_hash = header(parts, "x-amz-content-sha256");
    if content_hash != "UNSIGNED-PAYLOAD" && content_hash != hex(&Sha256::digest(body)) {
        return Err(Problem::WrongContent);
    }
    let signed_headers = field("SignedHeaders")?;
    let request = canonical_request(parts, signed_headers, &content_hash);
    let date = header(parts, "x-amz-date");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(request.as_bytes())));
    if sign(&credentials.secret_key, scope, &text) != field("Signature")? {
        return Err(Problem::WrongSignature);
    }
    Ok(())
}

fn canonical_request(parts: &Parts, signed_headers: &str, content_hash: &str) -> String {
    let mut query: Vec<String> = parameters(parts.uri.query().unwrap_or_default())
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name, false), encode(value, false)))
        .collect();
    query.sort();
    let headers: String =
        signed_headers.split(';').map(|name| format!("{name}:{}\n", header(parts, name).trim())).collect();
    format!(
        "{}\n{}\n{}\n{headers}\n{signed_headers}\n{content_hash}",
        parts.method,
        encode(&decode(parts.uri.path()), true),
        query.join("&"),
    )
}

fn sign(secret: &str, scope: &str, text: &str) -> String {
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = mac(&key, part.as_bytes());
    }
    hex(&mac(&key, text.as_bytes()))
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// Percent-encodes all but the unreserved characters; in a path the slash stays.
pub(super) fn encode(text: &str, keep_slash: bool) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            b'/' if keep_slash => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn header(parts: &Parts, name: &str) -> String {
    let value = parts.headers.get(name);
    let value = value.and_then(|value| value.to_str().ok());
    // HTTP/2 carries the host in the address.
    match (value, name) {
        (Some(value), _) => value.to_owned(),
        (None, "host") => parts.uri.authority().map(ToString::to_string).unwrap_or_default(),
        (None, _) => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// The key that Amazon's documentation of the algorithm uses in its examples.
    fn credentials() -> Credentials {
        Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        }
    }

    fn request(path: &str, range: Option<&str>, headers: &str, signature: &str) -> Parts {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders={headers},Signature={signature}"
        );
        let mut request = http::Request::get(path)
            .header("host", "examplebucket.s3.amazonaws.com")
            .header("x-amz-content-sha256", EMPTY)
            .header("x-amz-date", "20130524T000000Z")
            .header("authorization", authorization);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_examples_of_the_documentation_are_accepted() {
        let object = request(
            "/test.txt",
            Some("bytes=0-9"),
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        assert_eq!(verify(&object, b"", &credentials()), Ok(()));
        let list = request(
            "/?max-keys=2&prefix=J",
            None,
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
        assert_eq!(verify(&list, b"", &credentials()), Ok(()));
    }

    #[test]
    fn another_path_another_key_and_other_content_are_refused() {
        let headers = "host;x-amz-content-sha256;x-amz-date";
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        let path = request("/?max-keys=3&prefix=J", None, headers, signature);
        assert_eq!(verify(&path, b"", &credentials()), Err(Problem::WrongSignature));
        let right = request("/?max-keys=2&prefix=J", None, headers, signature);
        assert_eq!(verify(&right, b"x", &credentials()), Err(Problem::WrongContent));
        let stranger = Credentials { access_key: "other".to_owned(), ..credentials() };
        assert_eq!(verify(&right, b"", &stranger), Err(Problem::UnknownKey));
        let unsigned = http::Request::get("/").body(()).unwrap().into_parts().0;
        assert_eq!(verify(&unsigned, b"", &credentials()), Err(Problem::Missing));
    }
}
