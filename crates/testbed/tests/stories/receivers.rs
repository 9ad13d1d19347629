//! Receivers of every type at their open port: the call that is meant, and callers who mean harm.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use flux_api::kinds::{Controller, GIT_REPOSITORY, RECEIVER};
use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::http_server::{HttpServer, Security};

use crate::flux::Flux;
use crate::notification::{listeners, start};

crate::stories!(every_type_takes_its_caller_and_nobody_else, identity_tokens_are_checked_to_the_letter);

const TOKEN: &str = "s3cret";

/// A call: headers and a body.
struct Call {
    headers: Vec<(&'static str, String)>,
    body: String,
}

fn call(headers: &[(&'static str, &str)], body: &str) -> Call {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Call { headers, body: body.to_owned() }
}

fn hex<M: Mac + KeyInit>(token: &str, body: &str) -> String {
    let mut mac = <M as KeyInit>::new_from_slice(token.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As the service's documentation has it, signed with `token`; nothing for what only Google can sign.
fn meant(kind: &str, token: &str) -> Option<Call> {
    let json = ("content-type", "application/json");
    let sha256 = |body: &str| format!("sha256={}", hex::<Hmac<sha2::Sha256>>(token, body));
    let push = r#"{"ref":"refs/heads/main","after":"7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a"}"#;
    Some(match kind {
        "generic" => call(&[json], "{}"),
        "generic-hmac" => call(&[json, ("x-signature", &sha256(push))], push),
        "github" => call(&[json, ("x-github-event", "push"), ("x-hub-signature-256", &sha256(push))], push),
        "gitlab" => call(&[json, ("x-gitlab-event", "Push Hook"), ("x-gitlab-token", token)], push),
        "bitbucket" => {
            let body = r#"{"eventKey":"repo:refs_changed","changes":[{"ref":{"id":"refs/heads/main"}}]}"#;
            call(&[json, ("x-event-key", "repo:refs_changed"), ("x-hub-signature", &sha256(body))], body)
        }
        "harbor" => call(&[json, ("authorization", token)], r#"{"type":"PUSH_ARTIFACT","event_data":{}}"#),
        "dockerhub" => call(
            &[json],
            r#"{"push_data":{"tag":"v1"},"repository":{"repo_url":"https://hub.docker.com/r/a/b"}}"#,
        ),
        "quay" => call(&[json], r#"{"docker_url":"quay.io/a/b","updated_tags":["latest"]}"#),
        "acr" => call(&[json], r#"{"action":"push","target":{"repository":"a/b","tag":"v1"}}"#),
        "nexus" => {
            let body = r#"{"action":"CREATED","repositoryName":"docker"}"#;
            call(&[json, ("x-nexus-webhook-signature", &hex::<Hmac<sha1::Sha1>>(token, body))], body)
        }
        "cdevents" => {
            let body = json!({
                "context": {
                    "version": "0.4.1", "id": "271069a8-fc18-44f1-b38f-9d70a1695819", "source": "/event/source/123",
                    "type": "dev.cdevents.change.merged.0.2.0", "timestamp": "2026-03-20T14:27:05.315384Z",
                },
                "subject": {
                    "id": "mySubject123", "source": "/event/source/123", "type": "change",
                    "content": { "repository": { "id": "TestRepo/TestOrg" } },
                },
            });
            call(&[json, ("ce-type", "dev.cdevents.change.merged.0.2.0")], &body.to_string())
        }
        _ => return None,
    })
}

async fn send(url: &str, call: &Call, body: Option<Vec<u8>>) -> u16 {
    let mut request = reqwest::Client::new().post(url).timeout(Duration::from_secs(30));
    for (name, value) in &call.headers {
        request = request.header(*name, value);
    }
    let body = body.unwrap_or_else(|| call.body.clone().into_bytes());
    request.body(body).send().await.unwrap().status().as_u16()
}

/// Makes a Receiver and waits until its path is known to the listener.
async fn receiver(flux: &Flux, name: &str, spec: Value) -> String {
    flux.apply(&RECEIVER, name, spec).await;
    let object = flux.ready(&RECEIVER, name).await;
    let (_, base) = listeners(flux);
    let url = format!("{base}{}", object["status"]["webhookPath"].as_str().unwrap());
    for tries in 0.. {
        assert!(tries < 100, "{name} never listened");
        let answer = reqwest::Client::new().get(&url).send().await.unwrap().status().as_u16();
        if answer != 404 && answer != 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    url
}

async fn ask_nobody(flux: &Flux) {
    let patch = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": null } } });
    let api = flux.api(&GIT_REPOSITORY);
    api.patch("app", &Default::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
}

async fn was_asked(flux: &Flux) -> bool {
    let object = serde_json::to_value(flux.api(&GIT_REPOSITORY).get("app").await.unwrap()).unwrap();
    object["metadata"]["annotations"].get("reconcile.fluxcd.io/requestedAt").is_some()
}

fn malformed() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        "[]",
        "1",
        "\"x\"",
        "{",
        "}",
        "{\"a\":",
        "nul",
        "{\"a\":1e999999}",
        "\u{feff}{}",
        // What made others panic: parts of a payload that are not there, or of another kind.
        r#"{"repository":null,"push":{"changes":null},"refChanges":[null],"actor":[]}"#,
        r#"{"resource":{"refUpdates":[]},"eventType":"git.push","push_data":1,"target":"x","docker_url":{}}"#,
        r#"{"context":{"version":"0.4.1","type":"dev.cdevents.change.merged.0.2.0"},"subject":[]}"#,
        r#"{"message":{"data":"%%%"},"action":[],"repositoryName":{}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    bodies.push(b"\xff\xfe\x00\x01".to_vec());
    bodies.push("[".repeat(200_000).into_bytes());
    bodies.push("{\"a\":".repeat(100_000).into_bytes());
    bodies.push(format!("{{\"a\":\"{}", "x".repeat(2 << 20)).into_bytes());
    bodies
}

async fn every_type_takes_its_caller_and_nobody_else(cluster: &Cluster) {
    let flux = start(cluster, &[Controller::Notification]).await;
    flux.apply(&GIT_REPOSITORY, "app", json!({ "url": "https://example.com/x", "interval": "1h" })).await;
    flux.secret("hook", &[("token", TOKEN), ("email", "a@example.com"), ("audience", "flux")]).await;
    let resources = json!([{ "kind": "GitRepository", "name": "app" }]);
    // The path alone is what these know their callers by.
    let by_path_only = ["generic", "dockerhub", "quay", "acr", "cdevents"];
    let types = [
        "generic",
        "generic-hmac",
        "github",
        "gitlab",
        "bitbucket",
        "harbor",
        "dockerhub",
        "quay",
        "gcr",
        "nexus",
        "acr",
        "cdevents",
    ];
    let mut urls = Vec::new();
    for kind in types {
        let spec = json!({ "type": kind, "secretRef": { "name": "hook" }, "resources": resources.clone() });
        urls.push((kind, receiver(&flux, kind, spec).await));
    }
    for (kind, url) in &urls {
        // Asking where it listens may have been a good call already.
        ask_nobody(&flux).await;
        let nobody = call(&[("content-type", "application/json")], "{}");
        let good = meant(kind, TOKEN);
        for body in malformed() {
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            let is_object = serde_json::from_slice::<serde_json::Map<String, Value>>(&body).is_ok();
            let answer = send(url, good.as_ref().unwrap_or(&nobody), Some(body)).await;
            // A token in a header says nothing about the body, and neither does a path; of a registry's payload only the
            // parts that are known must be what they are.
            let expected: &[u16] = match *kind {
                "generic" | "gitlab" | "harbor" => &[200],
                "dockerhub" | "quay" | "acr" if is_object => &[200, 400],
                _ => &[400],
            };
            assert!(expected.contains(&answer), "{kind}: {answer} for {shown}");
        }
        if !by_path_only.contains(kind) {
            ask_nobody(&flux).await;
            assert_eq!(send(url, &nobody, None).await, 400, "{kind}: nobody");
            if let Some(wrong) = meant(kind, "other") {
                assert_eq!(send(url, &wrong, None).await, 400, "{kind}: another token");
            }
            assert!(!was_asked(&flux).await, "{kind}");
        }
        assert_eq!(send(url, &nobody, Some(vec![b' '; (3 << 20) + 1])).await, 413, "{kind}");
        let flood = "y".repeat(300 << 10);
        assert_eq!(send(url, &call(&[("x-flood", &flood)], "{}"), None).await, 431, "{kind}");
        if let Some(good) = good {
            ask_nobody(&flux).await;
            assert_eq!(send(url, &good, None).await, 200, "{kind}");
            assert!(was_asked(&flux).await, "{kind}");
        }
    }
    // An expression that would never end ends, and says so to nobody but the log.
    let many = "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]";
    let nested = (0..12).fold("true".to_owned(), |inner, at| format!("{many}.all(x{at}, {inner})"));
    let spec = json!({
        "type": "generic", "secretRef": { "name": "hook" }, "resources": resources, "resourceFilter": nested,
    });
    let url = receiver(&flux, "costly", spec).await;
    let started = std::time::Instant::now();
    assert_eq!(send(&url, &call(&[("content-type", "application/json")], "{}"), None).await, 500);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// Somebody who issues identity tokens.
struct Issuer {
    key: rcgen::KeyPair,
    server: HttpServer,
}

impl Issuer {
    fn start() -> Self {
        use base64::Engine;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let point = key.public_key_raw().to_vec();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(&point[range]);
        let keys = json!({ "keys": [{
            "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "one", "x": part(1..33), "y": part(33..65),
        }] });
        let configuration = |headers: http::HeaderMap| async move {
            let host = headers["host"].to_str().unwrap().to_owned();
            axum::Json(
                json!({ "issuer": format!("http://{host}"), "jwks_uri": format!("http://{host}/keys") }),
            )
        };
        let site = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/keys", get(move || async move { axum::Json(keys) }));
        Self { key, server: HttpServer::start(site, Security::Plain).unwrap() }
    }

    fn claims(&self) -> Value {
        let now = jiff::Timestamp::now().as_second();
        json!({
            "iss": self.server.url(), "aud": "notification-controller", "exp": now + 300, "iat": now, "sub": "repo:org/app",
            "email": "ci@example.com", "email_verified": true,
        })
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some("one".to_owned());
        let key = EncodingKey::from_ec_pem(self.key.serialize_pem().as_bytes()).unwrap();
        jsonwebtoken::encode(&header, claims, &key).unwrap()
    }
}

async fn identity_tokens_are_checked_to_the_letter(cluster: &Cluster) {
    let (issuer, stranger) = (Issuer::start(), Issuer::start());
    let flux = start(cluster, &[Controller::Notification]).await;
    flux.apply(&GIT_REPOSITORY, "app", json!({ "url": "https://example.com/x", "interval": "1h" })).await;
    let spec = json!({
        "type": "generic-oidc", "resources": [{ "kind": "GitRepository", "name": "app" }],
        "resourceFilter": "claims.sub == 'repo:org/' + res.metadata.name",
        "oidcProviders": [{
            "issuerURL": issuer.server.url(),
            "variables": [{ "name": "domain", "expression": "claims.email.split('@')[1]" }],
            "validations": [
                { "expression": "claims.email_verified && vars.domain == 'example.com'", "message": "who are you" },
            ],
        }],
    });
    let url = receiver(&flux, "oidc", spec).await;
    let bearer = |token: &str| {
        call(&[("content-type", "application/json"), ("authorization", &format!("Bearer {token}"))], "{}")
    };
    let changed = |field: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[field] = value;
        claims
    };
    let now = jiff::Timestamp::now().as_second();
    let good = issuer.sign(&issuer.claims());
    let mut parts: Vec<&str> = good.split('.').collect();
    let unsigned = format!("{}.{}.", "eyJhbGciOiJub25lIn0", parts[1]);
    parts[1] = "eyJpc3MiOiJ4In0";
    let swapped = parts.join(".");
    let of_stranger = stranger.sign(&issuer.claims());
    for (what, token) in [
        ("another issuer", issuer.sign(&changed("iss", json!("https://evil.example.com")))),
        (
            "an issuer that only looks alike",
            issuer.sign(&changed("iss", json!(format!("{}/", issuer.server.url())))),
        ),
        ("another's key", of_stranger),
        ("a stranger", stranger.sign(&stranger.claims())),
        ("another audience", issuer.sign(&changed("aud", json!("somebody-else")))),
        ("no audience", issuer.sign(&changed("aud", Value::Null))),
        ("expired", issuer.sign(&changed("exp", json!(now - 600)))),
        ("no end", issuer.sign(&changed("exp", Value::Null))),
        ("not yet", issuer.sign(&changed("nbf", json!(now + 600)))),
        ("another's mail", issuer.sign(&changed("email", json!("ci@evil.example.net")))),
        ("a mail that nobody checked", issuer.sign(&changed("email_verified", json!(false)))),
        ("no mail", issuer.sign(&changed("email", Value::Null))),
        ("no signature", unsigned),
        ("another payload", swapped),
        ("no token at all", "x".to_owned()),
        ("nothing", String::new()),
        ("a very long one", "a.".repeat(50_000)),
    ] {
        ask_nobody(&flux).await;
        assert_eq!(send(&url, &bearer(&token), None).await, 400, "{what}");
        assert!(!was_asked(&flux).await, "{what}");
    }
    assert_eq!(send(&url, &call(&[], "{}"), None).await, 400);
    // Somebody else's object is not asked, which is no error.
    assert_eq!(send(&url, &bearer(&issuer.sign(&changed("sub", json!("repo:org/b")))), None).await, 200);
    assert!(!was_asked(&flux).await);
    assert_eq!(send(&url, &bearer(&good), None).await, 200);
    assert!(was_asked(&flux).await);
}
