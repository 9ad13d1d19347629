//! Whether a call comes from whom a Receiver expects: signatures and tokens, compared in constant time, and payloads that
//! are what the service sends. Identity tokens are checked elsewhere.

use flux_api::notification::{ReceiverSpec, ReceiverType};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::cdevents;

/// Why a call is refused. For our log: the caller learns nothing but that.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum Refusal {
    #[error("the token of the receiver is empty")]
    EmptyToken,
    #[error("the header '{0}' is missing")]
    NoSignature(&'static str),
    #[error("the signature in header '{0}' is malformed")]
    Malformed(&'static str),
    #[error("the signature in header '{0}' does not fit the payload")]
    Signature(&'static str),
    #[error("the {0} header value does not match the receiver token")]
    Token(&'static str),
    #[error("webhook request has unsupported Content-Type")]
    ContentType,
    #[error("cannot decode {service} webhook payload: {problem}")]
    Payload { service: &'static str, problem: String },
    #[error("the {service} event {event:?} is not authorised")]
    Event { service: &'static str, event: String },
    #[error("unable to validate CDEvent event: {0}")]
    CdEvent(String),
    #[error("{0}")]
    Identity(String),
}

/// Checks a call of any type that needs nothing but the Receiver's token.
pub fn check(spec: &ReceiverSpec, headers: &HeaderMap, body: &[u8], token: &[u8]) -> Result<(), Refusal> {
    match spec.receiver_type {
        ReceiverType::Generic => Ok(()),
        ReceiverType::GenericHmac => signature(headers, "X-Signature", body, token),
        ReceiverType::GitHub => {
            hub_signature(headers, body, token)?;
            event(spec, "GitHub", header(headers, "X-GitHub-Event"))
        }
        ReceiverType::Bitbucket => {
            hub_signature(headers, body, token)?;
            event(spec, "Bitbucket server", header(headers, "X-Event-Key"))
        }
        ReceiverType::GitLab => {
            equal(headers, "X-Gitlab-Token", token)?;
            event(spec, "GitLab", header(headers, "X-Gitlab-Event"))
        }
        ReceiverType::Harbor => equal(headers, AUTHORIZATION_NAME, token),
        ReceiverType::CDEvents => {
            cdevents::validate(body).map_err(Refusal::CdEvent)?;
            event(spec, "CDEvent", header(headers, "Ce-Type"))
        }
        ReceiverType::Quay => decode::<Quay>("Quay", body).map(drop),
        ReceiverType::DockerHub => decode::<DockerHub>("DockerHub", body).map(drop),
        ReceiverType::Acr => decode::<Acr>("ACR", body).map(drop),
        ReceiverType::Nexus => {
            nexus_signature(headers, body, token)?;
            decode::<Nexus>("Nexus", body).map(drop)
        }
        // Their callers are known by identity tokens.
        ReceiverType::Gcr | ReceiverType::GenericOidc => Ok(()),
    }
}

const AUTHORIZATION_NAME: &str = "Authorization";

/// The value of a header, or nothing.
pub fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// `Authorization: Bearer …`
pub fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let found = header(headers, AUTHORIZATION.as_str()).strip_prefix("Bearer ").map(str::trim);
    found
        .filter(|token| !token.is_empty())
        .ok_or_else(|| Refusal::Identity("the Authorization header is missing or malformed".to_owned()))
}

/// Whether the event is among those of the Receiver; without a list every one is.
fn event(spec: &ReceiverSpec, service: &'static str, event: &str) -> Result<(), Refusal> {
    if spec.events.is_empty() || spec.events.iter().any(|known| known.eq_ignore_ascii_case(event)) {
        return Ok(());
    }
    let event: String = event.chars().take(128).collect();
    Err(Refusal::Event { service, event })
}

/// The newer header counts where both are there, as at GitHub. Without a key anybody could sign: upstream accepts
/// everything then, we nothing.
fn hub_signature(headers: &HeaderMap, body: &[u8], token: &[u8]) -> Result<(), Refusal> {
    let content_type = header(headers, CONTENT_TYPE.as_str());
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !["application/json", "application/x-www-form-urlencoded"].contains(&media.as_str()) {
        return Err(Refusal::ContentType);
    }
    let new = "X-Hub-Signature-256";
    let name = if headers.contains_key(new) { new } else { "X-Hub-Signature" };
    signature(headers, name, body, token)
}

/// `sha1=…`, `sha256=…` or `sha512=…`.
fn signature(headers: &HeaderMap, name: &'static str, body: &[u8], token: &[u8]) -> Result<(), Refusal> {
    if token.is_empty() {
        return Err(Refusal::EmptyToken);
    }
    let text = header(headers, name);
    if text.is_empty() {
        return Err(Refusal::NoSignature(name));
    }
    let (algorithm, hex) = text.split_once('=').ok_or(Refusal::Malformed(name))?;
    let signature = from_hex(hex).ok_or(Refusal::Malformed(name))?;
    let fits = match algorithm {
        "sha1" => fits::<Hmac<Sha1>>(token, body, &signature),
        "sha256" => fits::<Hmac<Sha256>>(token, body, &signature),
        "sha512" => fits::<Hmac<Sha512>>(token, body, &signature),
        _ => return Err(Refusal::Malformed(name)),
    };
    if fits { Ok(()) } else { Err(Refusal::Signature(name)) }
}

fn nexus_signature(headers: &HeaderMap, body: &[u8], token: &[u8]) -> Result<(), Refusal> {
    const NAME: &str = "X-Nexus-Webhook-Signature";
    if token.is_empty() {
        return Err(Refusal::EmptyToken);
    }
    let text = header(headers, NAME);
    if text.is_empty() {
        return Err(Refusal::NoSignature(NAME));
    }
    let signature = from_hex(text).ok_or(Refusal::Malformed(NAME))?;
    if fits::<Hmac<Sha1>>(token, body, &signature) { Ok(()) } else { Err(Refusal::Signature(NAME)) }
}

fn fits<M: Mac + KeyInit>(key: &[u8], body: &[u8], signature: &[u8]) -> bool {
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(key) else { return false };
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    // No signature is longer than that of SHA-512.
    if !text.len().is_multiple_of(2) || text.len() > 128 || !text.is_ascii() {
        return None;
    }
    (0..text.len() / 2).map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()).collect()
}

fn equal(headers: &HeaderMap, name: &'static str, token: &[u8]) -> Result<(), Refusal> {
    if token.is_empty() {
        return Err(Refusal::EmptyToken);
    }
    let given = headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
    aws_lc_rs::constant_time::verify_slices_are_equal(given, token).map_err(|_| Refusal::Token(name))
}

/// The first JSON value of a body, which must be an object of this shape.
pub fn decode<T: DeserializeOwned + Default>(service: &'static str, body: &[u8]) -> Result<T, Refusal> {
    let refused = |problem: String| Refusal::Payload { service, problem };
    let first = serde_json::Deserializer::from_slice(body).into_iter::<serde_json::Value>().next();
    match first {
        None => Err(refused("it is empty".to_owned())),
        Some(Err(error)) => Err(refused(error.to_string())),
        Some(Ok(serde_json::Value::Null)) => Ok(T::default()),
        Some(Ok(value @ serde_json::Value::Object(_))) => {
            serde_json::from_value(value).map_err(|error| refused(error.to_string()))
        }
        Some(Ok(_)) => Err(refused("it is no object".to_owned())),
    }
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
struct Quay {
    docker_url: Option<String>,
    updated_tags: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
struct DockerHub {
    push_data: Option<Tag>,
    repository: Option<RepositoryUrl>,
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
struct Tag {
    tag: Option<String>,
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
struct RepositoryUrl {
    repo_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
struct Acr {
    action: Option<String>,
    target: Option<AcrTarget>,
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
struct AcrTarget {
    repository: Option<String>,
    tag: Option<String>,
}

#[derive(Default, Deserialize)]
#[expect(dead_code, reason = "only whether they can be read matters")]
#[serde(rename_all = "camelCase")]
struct Nexus {
    action: Option<String>,
    repository_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &[u8] = b"token";

    fn spec(receiver_type: ReceiverType, events: &[&str]) -> ReceiverSpec {
        let mut spec = ReceiverSpec::new(receiver_type, Vec::new());
        spec.events = events.iter().map(|event| (*event).to_owned()).collect();
        spec
    }

    fn sent(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap())
            })
            .collect()
    }

    fn hex<M: Mac + KeyInit>(body: &[u8]) -> String {
        let mut mac = <M as KeyInit>::new_from_slice(TOKEN).unwrap();
        mac.update(body);
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn generic_hmac_takes_three_algorithms_and_nothing_else() {
        let of = spec(ReceiverType::GenericHmac, &[]);
        let body = b"payload";
        for good in [
            format!("sha1={}", hex::<Hmac<Sha1>>(body)),
            format!("sha256={}", hex::<Hmac<Sha256>>(body)),
            format!("sha512={}", hex::<Hmac<Sha512>>(body)),
        ] {
            assert_eq!(check(&of, &sent(&[("X-Signature", &good)]), body, TOKEN), Ok(()));
            assert_eq!(
                check(&of, &sent(&[("X-Signature", &good)]), b"other", TOKEN),
                Err(Refusal::Signature("X-Signature"))
            );
            assert_eq!(
                check(&of, &sent(&[("X-Signature", &good)]), body, b"wrong"),
                Err(Refusal::Signature("X-Signature"))
            );
            assert_eq!(check(&of, &sent(&[("X-Signature", &good)]), body, b""), Err(Refusal::EmptyToken));
        }
        let right = hex::<Hmac<Sha256>>(body);
        for bad in [
            right.clone(),
            format!("md5={right}"),
            "sha256=".to_owned(),
            "sha256=zz".to_owned(),
            "sha256=abc".to_owned(),
            format!("sha256={}", "a".repeat(10_000)),
            format!("sha1={right}"),
            "=".to_owned(),
        ] {
            assert!(check(&of, &sent(&[("X-Signature", &bad)]), body, TOKEN).is_err(), "{bad}");
        }
        assert_eq!(check(&of, &sent(&[]), body, TOKEN), Err(Refusal::NoSignature("X-Signature")));
    }

    #[test]
    fn github_and_bitbucket_sign_and_name_their_events() {
        let body = br#"{"zen":"x"}"#;
        let (sha256, sha1) =
            (format!("sha256={}", hex::<Hmac<Sha256>>(body)), format!("sha1={}", hex::<Hmac<Sha1>>(body)));
        let json = ("content-type", "application/json; charset=utf-8");
        let of = spec(ReceiverType::GitHub, &["push", "Ping"]);
        let push = ("X-GitHub-Event", "push");
        assert_eq!(check(&of, &sent(&[json, ("X-Hub-Signature-256", &sha256), push]), body, TOKEN), Ok(()));
        assert_eq!(
            check(&of, &sent(&[json, ("X-Hub-Signature", &sha1), ("X-GitHub-Event", "PING")]), body, TOKEN),
            Ok(())
        );
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert_eq!(check(&of, &sent(&[form, ("X-Hub-Signature", &sha1), push]), body, TOKEN), Ok(()));
        let issues = check(
            &of,
            &sent(&[json, ("X-Hub-Signature-256", &sha256), ("X-GitHub-Event", "issues")]),
            body,
            TOKEN,
        );
        assert_eq!(issues, Err(Refusal::Event { service: "GitHub", event: "issues".to_owned() }));
        let downgrade = sent(&[json, ("X-Hub-Signature-256", "sha256=00"), ("X-Hub-Signature", &sha1), push]);
        assert!(check(&of, &downgrade, body, TOKEN).is_err(), "the newer header counts");
        assert_eq!(
            check(&of, &sent(&[("X-Hub-Signature-256", &sha256), push]), body, TOKEN),
            Err(Refusal::ContentType)
        );
        assert_eq!(
            check(&of, &sent(&[json, push]), body, TOKEN),
            Err(Refusal::NoSignature("X-Hub-Signature"))
        );
        let of = spec(ReceiverType::Bitbucket, &["repo:refs_changed"]);
        let event = ("X-Event-Key", "repo:refs_changed");
        assert_eq!(check(&of, &sent(&[json, ("X-Hub-Signature", &sha256), event]), body, TOKEN), Ok(()));
        assert!(check(&of, &sent(&[json, ("X-Hub-Signature", &sha256)]), body, TOKEN).is_err());
        assert!(check(&of, &sent(&[json, event]), body, TOKEN).is_err());
    }

    #[test]
    fn gitlab_and_harbor_send_the_token() {
        let of = spec(ReceiverType::GitLab, &["Push Hook"]);
        let event = ("X-Gitlab-Event", "push hook");
        assert_eq!(check(&of, &sent(&[("X-Gitlab-Token", "token"), event]), b"", TOKEN), Ok(()));
        for bad in ["toke", "tokenx", "Token", ""] {
            assert_eq!(
                check(&of, &sent(&[("X-Gitlab-Token", bad), event]), b"", TOKEN),
                Err(Refusal::Token("X-Gitlab-Token"))
            );
        }
        assert_eq!(check(&of, &sent(&[event]), b"", b""), Err(Refusal::EmptyToken));
        assert!(check(&of, &sent(&[("X-Gitlab-Token", "token")]), b"", TOKEN).is_err());
        let of = spec(ReceiverType::Harbor, &["ignored"]);
        assert_eq!(check(&of, &sent(&[("Authorization", "token")]), b"", TOKEN), Ok(()));
        assert!(check(&of, &sent(&[("Authorization", "Bearer token")]), b"", TOKEN).is_err());
        assert!(check(&of, &sent(&[]), b"", TOKEN).is_err());
    }

    #[test]
    fn nexus_signs_with_sha1() {
        let of = spec(ReceiverType::Nexus, &[]);
        let body = br#"{"action":"CREATED","repositoryName":"r"}"#;
        let right = hex::<Hmac<Sha1>>(body);
        assert_eq!(check(&of, &sent(&[("X-Nexus-Webhook-Signature", &right)]), body, TOKEN), Ok(()));
        assert!(check(&of, &sent(&[("X-Nexus-Webhook-Signature", &right)]), b"{}", TOKEN).is_err());
        assert!(check(&of, &sent(&[]), body, TOKEN).is_err());
        let list = hex::<Hmac<Sha1>>(b"[]");
        assert!(check(&of, &sent(&[("X-Nexus-Webhook-Signature", &list)]), b"[]", TOKEN).is_err());
    }

    #[test]
    fn registries_send_what_they_send() {
        for (receiver_type, good) in [
            (ReceiverType::Quay, r#"{"docker_url":"quay.io/x/y","updated_tags":["latest"],"more":1}"#),
            (ReceiverType::DockerHub, r#"{"push_data":{"tag":"v1"},"repository":{"repo_url":"https://x"}}"#),
            (ReceiverType::Acr, r#"{"action":"push","target":{"repository":"r","tag":"t"}}"#),
        ] {
            let of = spec(receiver_type, &["ignored"]);
            assert_eq!(check(&of, &sent(&[]), good.as_bytes(), TOKEN), Ok(()), "{receiver_type}");
            assert_eq!(check(&of, &sent(&[]), b"{} trailing", TOKEN), Ok(()));
            for bad in [
                &b""[..],
                b"[]",
                b"1",
                b"\"x\"",
                b"{",
                b"\xff\xfe",
                b"{\"action\":1,\"docker_url\":1,\"push_data\":1}",
            ] {
                assert!(
                    check(&of, &sent(&[]), bad, TOKEN).is_err(),
                    "{receiver_type} {}",
                    String::from_utf8_lossy(bad)
                );
            }
            let deep = format!("{}{}", "{\"a\":".repeat(100_000), "1");
            assert!(check(&of, &sent(&[]), deep.as_bytes(), TOKEN).is_err());
        }
        assert_eq!(check(&spec(ReceiverType::Generic, &["x"]), &sent(&[]), b"\xff", TOKEN), Ok(()));
    }

    #[test]
    fn no_type_panics_at_anything() {
        let deep = format!("{}1", "[".repeat(100_000));
        let wide = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
        let bodies: [&[u8]; 9] = [
            b"", b"null", b"[]", b"{}", b"\xff\xfe\x00", deep.as_bytes(), wide.as_bytes(),
            br#"{"refs_changed":null,"push":{"changes":[{}]},"resource":{"refUpdates":[]},"repository":null}"#,
            br#"{"context":{"type":"dev.cdevents."},"subject":0}"#,
        ];
        let values =
            ["", "=", "sha256=", "sha256=é", "Bearer ", "Bearer a.b.c", "application/json;;;", "\u{80}"];
        let names = [
            "x-signature",
            "x-hub-signature",
            "x-hub-signature-256",
            "x-gitlab-token",
            "authorization",
            "x-nexus-webhook-signature",
            "content-type",
            "ce-type",
        ];
        for receiver_type in ReceiverType::ALL {
            for body in bodies {
                for value in values {
                    let value = http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
                    let headers: HeaderMap = names
                        .map(|name| (http::HeaderName::from_static(name), value.clone()))
                        .into_iter()
                        .collect();
                    let _ = check(&spec(*receiver_type, &["push"]), &headers, body, TOKEN);
                    let _ = bearer(&headers);
                }
            }
        }
    }
}
