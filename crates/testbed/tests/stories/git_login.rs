//! GitRepository: every way to log in, and Secrets that change.

use axum::Json;
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use flux_api::kinds::{Controller, GIT_REPOSITORY};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::{Accounts, GitServer, Security, SshKey};
use testbed::http_server::HttpServer;
use testbed::tls::Authority;

use crate::flux::{Flux, condition, ready};

crate::stories!(
    passwords_tokens_and_certificates_open_the_door,
    an_ssh_key_opens_the_door_of_a_known_host,
    a_rotated_secret_is_used_at_once,
    a_github_app_gets_its_token,
    a_proxy_is_gone_through,
);

fn spec(url: &str, secret: &str) -> Value {
    json!({ "url": url, "interval": "1h", "ref": { "branch": "main" }, "secretRef": { "name": secret } })
}

fn filled(server: &GitServer) {
    server.create("fleet").unwrap().commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
}

fn accounts() -> Accounts {
    Accounts {
        passwords: vec![("ann".to_owned(), "pässword".to_owned())],
        tokens: vec!["t0ken".to_owned()],
        ..Accounts::default()
    }
}

async fn passwords_tokens_and_certificates_open_the_door(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let authority = Authority::new("git").unwrap();
    let plain = GitServer::start_with(accounts(), Security::Plain).unwrap();
    let tls = GitServer::start_with(accounts(), Security::Tls(&authority)).unwrap();
    let mutual = GitServer::start_with(Accounts::default(), Security::MutualTls(&authority)).unwrap();
    [&plain, &tls, &mutual].into_iter().for_each(filled);
    let pair = authority.client("ann", &[]).unwrap();
    let ca = authority.certificate();

    flux.secret("basic", &[("username", "ann"), ("password", "pässword\n")]).await;
    flux.secret("bearer", &[("bearerToken", "t0ken")]).await;
    flux.secret("tls", &[("bearerToken", "t0ken"), ("ca.crt", ca)]).await;
    flux.secret("old-names", &[("username", "ann"), ("password", "pässword"), ("caFile", ca)]).await;
    flux.secret("mutual", &[("ca.crt", ca), ("tls.crt", &pair.certificate), ("tls.key", &pair.key)]).await;
    flux.secret("half", &[("password", "pässword")]).await;
    flux.secret("wrong", &[("username", "ann"), ("password", "wrong")]).await;
    flux.secret("no-ca", &[("bearerToken", "t0ken")]).await;
    flux.secret("app", &[("githubAppID", "1")]).await;
    let good =
        [("basic", &plain), ("bearer", &plain), ("tls", &tls), ("old-names", &tls), ("mutual", &mutual)];
    for (name, server) in good {
        flux.apply(&GIT_REPOSITORY, name, spec(&server.http_url("fleet"), name)).await;
    }
    // User and password may stand in the address, the rest of a login in the Secret.
    let url = plain.http_url("fleet");
    let in_url = url.replace("://", "://ann:p%C3%A4ssword@");
    flux.apply(
        &GIT_REPOSITORY,
        "in-url",
        json!({ "url": in_url, "interval": "1h", "ref": { "branch": "main" } }),
    )
    .await;
    flux.apply(&GIT_REPOSITORY, "user-in-url", spec(&url.replace("://", "://ann@"), "half")).await;
    // Whose identity an object uses at a cloud is for those who run the controller to allow.
    let gated = json!({ "url": url, "interval": "1h", "provider": "azure", "serviceAccountName": "tenant" });
    flux.apply(&GIT_REPOSITORY, "gated", gated).await;
    let bad = [
        ("half", &plain, "AuthenticationFailed", "'password' requires 'username' to be set"),
        ("wrong", &plain, "GitOperationFailed", "authentication required"),
        ("missing", &plain, "AuthenticationFailed", "failed to get secret"),
        ("no-ca", &tls, "GitOperationFailed", ""),
        (
            "app",
            &plain,
            "InvalidProviderConfiguration",
            "has github app data but provider is not set to github",
        ),
    ];
    for (name, server, _, _) in bad {
        flux.apply(&GIT_REPOSITORY, name, spec(&server.http_url("fleet"), name)).await;
    }
    for name in good.iter().map(|(name, _)| *name).chain(["in-url", "user-in-url"]) {
        flux.ready(&GIT_REPOSITORY, name).await;
    }
    let gated = flux.not_ready(&GIT_REPOSITORY, "gated", "FeatureGateDisabled").await;
    assert_eq!(condition(&gated, "Stalled").1, "FeatureGateDisabled");
    for (name, _, reason, text) in bad {
        let object = flux.not_ready(&GIT_REPOSITORY, name, reason).await;
        assert!(ready(&object).2.contains(text), "{name}: {}", ready(&object).2);
        assert_eq!(condition(&object, "FetchFailed").1, reason, "{name}");
    }
}

async fn an_ssh_key_opens_the_door_of_a_known_host(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let (key, stranger) = (SshKey::generate().unwrap(), SshKey::generate().unwrap());
    let keys = vec![key.public().unwrap()];
    let server = GitServer::start_with(Accounts { keys, ..Accounts::default() }, Security::Plain).unwrap();
    filled(&server);
    let (private, known) = (key.private().unwrap(), server.known_hosts().unwrap());
    let other_host = known.replace("[127.0.0.1]", "[10.9.8.7]");
    let other_key = format!("{} {}", known.split(' ').next().unwrap(), stranger.public().unwrap());
    flux.secret(
        "good",
        &[("identity", &private), ("identity.pub", &keys_line(&key)), ("known_hosts", &known)],
    )
    .await;
    flux.secret("no-hosts", &[("identity", &private)]).await;
    flux.secret("no-key", &[("known_hosts", &known)]).await;
    flux.secret("unknown-host", &[("identity", &private), ("known_hosts", &other_host)]).await;
    flux.secret("other-key", &[("identity", &private), ("known_hosts", &other_key)]).await;
    flux.secret("stranger", &[("identity", &stranger.private().unwrap()), ("known_hosts", &known)]).await;
    flux.secret("nonsense", &[("identity", "nonsense"), ("known_hosts", &known)]).await;
    let url = server.ssh_url("fleet");
    let bad = [
        ("no-hosts", "AuthenticationFailed", "'known_hosts' is required"),
        ("no-key", "AuthenticationFailed", "'identity' is required"),
        ("unknown-host", "GitOperationFailed", "key is unknown"),
        ("other-key", "GitOperationFailed", "key mismatch"),
        ("stranger", "GitOperationFailed", "does not accept the key"),
        ("nonsense", "GitOperationFailed", "cannot be read"),
    ];
    flux.apply(&GIT_REPOSITORY, "good", spec(&url, "good")).await;
    for (name, _, _) in bad {
        flux.apply(&GIT_REPOSITORY, name, spec(&url, name)).await;
    }
    let without = json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "without", without).await;
    flux.ready(&GIT_REPOSITORY, "good").await;
    for (name, reason, text) in bad {
        let object = flux.not_ready(&GIT_REPOSITORY, name, reason).await;
        assert!(ready(&object).2.contains(text), "{name}: {}", ready(&object).2);
    }
    let object = flux.not_ready(&GIT_REPOSITORY, "without", "AuthenticationFailed").await;
    assert!(ready(&object).2.contains("'identity' is required"));
}

fn keys_line(key: &SshKey) -> String {
    key.public().unwrap()
}

async fn a_rotated_secret_is_used_at_once(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let server = GitServer::start_with(accounts(), Security::Plain).unwrap();
    filled(&server);
    flux.secret("login", &[("username", "ann"), ("password", "pässword")]).await;
    flux.apply(&GIT_REPOSITORY, "fleet", spec(&server.http_url("fleet"), "login")).await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    flux.secret("login", &[("username", "ann"), ("password", "expired")]).await;
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let object = flux.not_ready(&GIT_REPOSITORY, "fleet", "GitOperationFailed").await;
    assert!(ready(&object).2.contains("unable to list remote for"), "{}", ready(&object).2);
    assert!(object.pointer("/status/artifact").is_some());
    flux.secret("login", &[("bearerToken", "t0ken")]).await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    flux.event("fleet", "Succeeded", "stored artifact for commit 'main@sha1:").await;
}

/// A GitHub that knows one app.
fn github() -> HttpServer {
    async fn token(Path(id): Path<String>) -> Json<Value> {
        assert_eq!(id, "42");
        Json(json!({ "token": "t0ken", "expires_at": "2099-01-01T00:00:00Z" }))
    }
    let not_found = (http::StatusCode::NOT_FOUND, Json(json!({ "message": "Not Found" })));
    let router = Router::new()
        .route("/api/v3/app/installations/{id}/access_tokens", post(token))
        .route("/api/v3/orgs/{owner}/installation", get(move || async move { not_found }))
        .route("/api/v3/users/{owner}/installation", get(|| async { Json(json!({ "id": 42 })) }));
    HttpServer::start(router, Security::Plain).unwrap()
}

async fn a_github_app_gets_its_token(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let server = GitServer::start_with(accounts(), Security::Plain).unwrap();
    filled(&server);
    let github = github();
    let base = format!("{}/api/v3", github.url());
    let key =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../flux-remote/tests/keys/pkcs1-rsa"));
    let key = key.unwrap();
    let common =
        [("githubAppID", "7"), ("githubAppPrivateKey", key.as_str()), ("githubAppBaseURL", base.as_str())];
    flux.secret("by-id", &[&common[..], &[("githubAppInstallationID", "42")]].concat()).await;
    flux.secret("by-owner", &[&common[..], &[("githubAppInstallationOwner", "org")]].concat()).await;
    flux.secret("neither", &common).await;
    flux.secret("no-app", &[("username", "ann")]).await;
    let github_spec = |secret: &str| {
        let mut spec = spec(&server.http_url("fleet"), secret);
        spec["provider"] = json!("github");
        spec
    };
    for name in ["by-id", "by-owner", "neither", "no-app"] {
        flux.apply(&GIT_REPOSITORY, name, github_spec(name)).await;
    }
    let mut without = github_spec("x");
    without.as_object_mut().unwrap().remove("secretRef");
    flux.apply(&GIT_REPOSITORY, "without", without).await;
    flux.ready(&GIT_REPOSITORY, "by-id").await;
    flux.ready(&GIT_REPOSITORY, "by-owner").await;
    let object = flux.not_ready(&GIT_REPOSITORY, "neither", "AuthenticationFailed").await;
    assert!(ready(&object).2.contains("installation owner or ID must be provided"), "{}", ready(&object).2);
    flux.not_ready(&GIT_REPOSITORY, "no-app", "InvalidProviderConfiguration").await;
    let object = flux.not_ready(&GIT_REPOSITORY, "without", "InvalidProviderConfiguration").await;
    assert_eq!(condition(&object, "Stalled").0, "True");
    // The token is kept until it ends, and counted with the others.
    let asked = || github.requests().iter().filter(|one| one.path.ends_with("access_tokens")).count();
    let before = asked();
    flux.reconcile_as(&GIT_REPOSITORY, "by-id", "again").await;
    flux.until(&GIT_REPOSITORY, "by-id", "polled", |object| {
        object["status"]["lastHandledReconcileAt"] == "again"
    })
    .await;
    assert_eq!(asked(), before);
    let page = flux.manager().metrics().page();
    let counted = |event: &str| {
        format!(
            "gotk_token_cache_events_total{{event_type=\"{event}\",kind=\"GitRepository\",name=\"by-id\",namespace=\"{}\",operation=\"reconcile\"}} 1\n",
            flux.namespace.name()
        )
    };
    assert!(page.contains(&counted("cache_miss")) && page.contains(&counted("cache_hit")), "{page}");
}

async fn a_proxy_is_gone_through(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    filled(&flux.server);
    // An HTTP proxy is asked for whole addresses; this one knows the way to one host only.
    let git = flux.server.http().url();
    let forward = move |request: http::Request<axum::body::Body>| {
        let target = format!("{git}{}", request.uri().path_and_query().unwrap());
        async move {
            let (parts, body) = request.into_parts();
            if parts.headers.get("proxy-authorization").is_none() {
                return (http::StatusCode::PROXY_AUTHENTICATION_REQUIRED, Vec::new());
            }
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let mut request = client.request(parts.method, target).body(body.to_vec());
            for name in ["content-type", "git-protocol"] {
                if let Some(value) = parts.headers.get(name) {
                    request = request.header(name, value);
                }
            }
            let answer = request.send().await.unwrap();
            (answer.status(), answer.bytes().await.unwrap().to_vec())
        }
    };
    let proxy = HttpServer::start(Router::new().fallback(forward), Security::Plain).unwrap();
    flux.secret("proxy", &[("address", &proxy.url()), ("username", "u"), ("password", "p")]).await;
    flux.secret("nowhere", &[("username", "u")]).await;
    let through = |secret: &str, url: &str| {
        let mut spec = json!({ "url": url, "interval": "1h", "ref": { "branch": "main" } });
        spec["proxySecretRef"] = json!({ "name": secret });
        spec
    };
    // Nobody but the proxy can resolve this name.
    flux.apply(&GIT_REPOSITORY, "good", through("proxy", "http://git.invalid/fleet.git")).await;
    flux.apply(&GIT_REPOSITORY, "bad", through("nowhere", "http://git.invalid/fleet.git")).await;
    flux.ready(&GIT_REPOSITORY, "good").await;
    assert!(!proxy.requests().is_empty());
    let object = flux.not_ready(&GIT_REPOSITORY, "bad", "AuthenticationFailed").await;
    assert!(ready(&object).2.starts_with("failed to configure proxy options: "), "{}", ready(&object).2);
}
