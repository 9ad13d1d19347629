//! The registry client against a registry: what is pushed is pulled, and what lies is not believed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use flux_api::secret::SecretString;
use flux_remote::oci::{
    ArtifactLayer, Credentials, Digest, Error, FLUX_CONFIG, FLUX_CONTENT, Limits, Registry, Repository,
};
use flux_remote::transport::Transport;
use http::{Request, StatusCode};
use testbed::http_server::{HttpServer, Security};
use testbed::registry::{Access, Options, Registry as Server};

fn client(host: &str, credentials: Option<Credentials>) -> Registry {
    let repository = Repository::parse(&format!("{host}/org/app"), true).unwrap();
    Registry::new(repository, &Transport::default(), credentials).unwrap()
}

fn login(password: &str) -> Option<Credentials> {
    Some(Credentials::Basic { username: "user".to_owned(), password: SecretString::new(password.to_owned()) })
}

fn layer(media_type: &str, bytes: &[u8]) -> ArtifactLayer {
    ArtifactLayer { media_type: media_type.to_owned(), bytes: bytes.to_vec() }
}

async fn push(registry: &Registry, tag: &str, content: &[u8]) -> Result<Digest, Error> {
    let layers = [layer(FLUX_CONTENT, content)];
    registry.push(tag, layer(FLUX_CONFIG, b"{}"), &layers, BTreeMap::new()).await
}

#[tokio::test]
async fn what_is_pushed_is_listed_tagged_and_pulled() {
    let access =
        Access::Token { user: "user".to_owned(), password: "right".to_owned(), anonymous_pull: true };
    let server = Server::start_with(Options { access, page_size: 2 }, Security::Plain).unwrap();
    let registry = client(&server.host(), login("right"));
    for tag in ["a", "b", "c"] {
        push(&registry, tag, tag.as_bytes()).await.unwrap();
    }
    let digest = push(&registry, "d", b"content").await.unwrap();
    let fetched = registry.fetch("d").await.unwrap();
    assert_eq!(fetched.digest, digest);
    registry.tag(&fetched, "e").await.unwrap();
    // Without a login: five tags in three pages.
    let anonymous = client(&server.host(), None);
    assert_eq!(anonymous.tags().await.unwrap(), ["a", "b", "c", "d", "e"]);
    assert_eq!(anonymous.resolve("e").await.unwrap(), digest);
    let manifest = anonymous.image(&digest).await.unwrap();
    assert_eq!(anonymous.blob(&manifest.layers[0], 100).await.unwrap(), b"content");
    assert!(matches!(anonymous.blob(&manifest.layers[0], 3).await, Err(Error::TooLarge { .. })));
    assert!(anonymous.fetch("nope").await.unwrap_err().is_not_found());
    assert!(push(&anonymous, "f", b"x").await.unwrap_err().is_unauthorized());
    let few = client(&server.host(), None).with_limits(Limits { tags: 3, layer: 100 });
    assert!(matches!(few.tags().await, Err(Error::TooMany(_))));
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    for access in [
        Access::Basic { user: "user".to_owned(), password: "right".to_owned() },
        Access::Token { user: "user".to_owned(), password: "right".to_owned(), anonymous_pull: false },
    ] {
        let server = Server::start_with(Options { access, ..Options::default() }, Security::Plain).unwrap();
        push(&client(&server.host(), login("right")), "v1", b"x").await.unwrap();
        let error = client(&server.host(), login("canary")).resolve("v1").await.unwrap_err();
        assert!(error.is_unauthorized() && !error.to_string().contains("canary"), "{error}");
        assert!(client(&server.host(), None).resolve("v1").await.unwrap_err().is_unauthorized());
    }
}

/// Path, status, headers and body of an answer.
type Lie = (&'static str, u16, &'static [(&'static str, &'static str)], &'static str);

/// A registry that answers as it is told.
fn liar(answers: &'static [Lie]) -> HttpServer {
    let router = Router::new().fallback(move |request: Request<Body>| async move {
        let path = request.uri().path().to_owned();
        let found = answers.iter().find(|(known, ..)| path.ends_with(known));
        let (status, headers, body) =
            found.map_or((404, &[][..], ""), |(_, status, headers, body)| (*status, *headers, *body));
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            response.headers_mut().insert(*name, value.parse().unwrap());
        }
        response
    });
    HttpServer::start(router, Security::Plain).unwrap()
}

#[tokio::test]
async fn credentials_are_not_sent_where_a_challenge_points() {
    let server = liar(&[(
        "/v2/",
        401,
        &[("www-authenticate", "Bearer realm=\"https://collector.example.org/token\",service=\"x\"")],
        "",
    )]);
    let registry = client(&server.address().to_string(), login("canary"));
    let error = registry.resolve("v1").await.unwrap_err();
    assert!(
        matches!(&error, Error::ForeignRealm { realm, .. } if realm == "collector.example.org"),
        "{error}"
    );
    assert!(!error.to_string().contains("canary"));
}

#[tokio::test]
async fn pages_of_tags_do_not_lead_elsewhere() {
    let server = liar(&[
        ("/v2/", 200, &[], ""),
        (
            "/tags/list",
            200,
            &[("link", "<http://collector.example.org/v2/org/app/tags/list>; rel=\"next\"")],
            r#"{"tags":["a"]}"#,
        ),
    ]);
    let error = client(&server.address().to_string(), login("canary")).tags().await.unwrap_err();
    assert!(error.to_string().contains("another host"), "{error}");
    let server = liar(&[("/v2/", 200, &[], ""), ("/tags/list", 200, &[], "no json")]);
    assert!(matches!(client(&server.address().to_string(), None).tags().await, Err(Error::Answer { .. })));
}

#[tokio::test]
async fn content_that_is_not_what_its_digest_says_is_refused() {
    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let server = liar(&[
        ("/v2/", 200, &[], ""),
        (
            "/manifests/sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            200,
            &[],
            "{}",
        ),
        ("/blobs/sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 200, &[], "x"),
        // The header may say what it likes; a tag's digest is that of the bytes.
        ("/manifests/tag", 200, &[("docker-content-digest", "md5:x")], "{}"),
    ]);
    let registry = client(&server.address().to_string(), None);
    assert!(matches!(registry.fetch(DIGEST).await, Err(Error::WrongDigest { .. })));
    let descriptor = serde_json::json!({ "mediaType": "x", "digest": DIGEST, "size": 1 });
    let descriptor = serde_json::from_value(descriptor).unwrap();
    assert!(matches!(registry.blob(&descriptor, 100).await, Err(Error::WrongDigest { .. })));
    assert_eq!(registry.resolve("tag").await.unwrap(), Digest::of(b"{}"));
    for bad in ["../x", "a/b", "", "a?b", ".hidden"] {
        assert!(registry.fetch(bad).await.is_err(), "{bad}");
    }
}
