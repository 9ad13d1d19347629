//! A value that occurs nowhere else in every credential that sources and appliers take, some of them right, most of
//! them wrong or malformed; then a search for them in everything that people or programs get to see.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use flux_api::kinds::{
    BUCKET, GIT_REPOSITORY, HELM_CHART, HELM_REPOSITORY, KUSTOMIZATION, Kind, OCI_REPOSITORY,
};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::bucket::{BucketServer, Credentials};
use testbed::chart_repository::ChartRepository;
use testbed::git_server::{Accounts, GitServer, Security};
use testbed::registry::Registry;
use testbed::webhook_sink::WebhookSink;

use crate::process::{Fleet, Process};

/// Every value contains it; `+`, `/`, `=` and `&` are what the encodings change.
const CANARY: &str = "c4naryInTheMine";

fn canary(of: &str) -> String {
    format!("{CANARY}+{of}/=&z")
}

/// Values, and which kinds and objects use them.
struct Story<'a> {
    fleet: &'a Fleet,
    objects: Vec<(&'static Kind, String)>,
}

impl Story<'_> {
    async fn secret(&self, name: &str, kind: &str, data: Value) {
        let api: Api<Secret> = Api::namespaced(self.fleet.cluster.client(), self.fleet.namespace.name());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": { "name": name }, "stringData": data,
        });
        api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    async fn object(&mut self, kind: &'static Kind, name: &str, spec: Value) {
        self.fleet.apply(kind, name, json!({}), spec).await;
        self.objects.push((kind, name.to_owned()));
    }

    async fn git(&mut self, name: &str, url: &str, secret: Value, more: Value) {
        self.secret(name, "Opaque", secret).await;
        let mut spec =
            json!({ "url": url, "interval": "1h", "timeout": "5s", "secretRef": { "name": name } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.object(&GIT_REPOSITORY, name, spec).await;
    }
}

pub async fn run(cluster: &Cluster, patience: Duration) {
    let fleet = Fleet::new(cluster).await;
    let sink = WebhookSink::start().unwrap();
    let events = format!("--events-addr={}", sink.url());
    let mut process =
        Process::start(&fleet, &["--controllers=source,kustomize,helm", "--log-level=trace", &events]);
    let mut story = Story { fleet: &fleet, objects: Vec::new() };
    git(&mut story).await;
    others(&mut story).await;
    appliers(&mut story).await;

    for (kind, name) in &story.objects {
        let told = |object: &kube::api::DynamicObject| {
            let conditions = object.data["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] != "Unknown")
        };
        testbed::wait::until(&fleet.api(kind), name, patience, "has been tried", told).await.unwrap();
    }
    let mut seen = vec![("metrics".to_owned(), process.metrics().await)];
    process.terminate();
    seen.push(("log".to_owned(), process.log()));
    for (kind, name) in &story.objects {
        let object = fleet.get(kind, name).await;
        seen.push((format!("status of {} {name}", kind.kind), object["status"].to_string()));
    }
    let api: Api<Event> = Api::namespaced(cluster.client(), fleet.namespace.name());
    for event in api.list(&Default::default()).await.unwrap() {
        seen.push(("an Event".to_owned(), serde_json::to_string(&event).unwrap()));
    }
    for request in sink.received() {
        seen.push(("what is sent to --events-addr".to_owned(), request.json().unwrap().to_string()));
    }
    assert!(seen.len() > 2 * story.objects.len(), "events came");
    let shapes = shapes();
    for (place, text) in &seen {
        for shape in &shapes {
            let at = text.find(shape.as_str());
            let around = at.map(|at| text[..at].chars().rev().take(300).collect::<Vec<_>>());
            let around: Option<String> = around.map(|text| text.into_iter().rev().collect());
            assert!(
                at.is_none(),
                "{place} shows a credential as '{shape}' after: …{}",
                around.unwrap_or_default()
            );
        }
    }
}

async fn git(story: &mut Story<'_>) {
    let password = canary("git");
    let accounts = Accounts { passwords: vec![("user".to_owned(), password.clone())], ..Accounts::default() };
    let open = GitServer::start_with(accounts, Security::Plain).unwrap();
    open.create("fleet").unwrap().commit("first", &[("a.yaml", "a: 1\n")]).unwrap();
    let (url, main) = (open.http_url("fleet"), json!({ "ref": { "branch": "main" } }));
    let secret = json!({ "username": "user", "password": password });
    story.git("right-password", &url, secret, main.clone()).await;
    story.fleet.ready(&GIT_REPOSITORY, "right-password").await;
    let secret = json!({ "username": canary("user"), "password": canary("wrong") });
    story.git("wrong-password", &url, secret, main.clone()).await;
    story.git("half", &url, json!({ "password": canary("half") }), json!({})).await;
    story.git("bearer", &url, json!({ "bearerToken": canary("bearer") }), json!({})).await;
    let in_url = url.replacen("://", &format!("://user:{CANARY}-in-url@"), 1);
    story.git("in-url", &in_url, json!({}), json!({})).await;
    let key = json!({ "identity": canary("identity"), "known_hosts": canary("hosts"), "password": canary("phrase") });
    story.git("ssh", &story.fleet.server.ssh_url("fleet"), key, json!({})).await;
    let app = json!({
        "githubAppID": "1", "githubAppInstallationID": "2", "githubAppPrivateKey": canary("app"),
        "githubAppBaseURL": "http://127.0.0.1:1",
    });
    story.git("app", &url, app, json!({ "provider": "github" })).await;
    let tls = json!({ "tls.crt": canary("certificate"), "tls.key": canary("key"), "ca.crt": canary("ca") });
    story.git("tls", &url, tls, json!({})).await;
    let proxy =
        json!({ "address": "http://127.0.0.1:1", "username": canary("proxy"), "password": canary("proxy") });
    story.secret("proxy", "Opaque", proxy).await;
    let proxied = json!({ "proxySecretRef": { "name": "proxy" }, "ref": { "branch": "main" } });
    story.git("proxied", &url, json!({}), proxied).await;
    story.secret("keys", "Opaque", json!({ "author.asc": canary("pgp") })).await;
    let verified =
        json!({ "ref": { "branch": "main" }, "verify": { "mode": "HEAD", "secretRef": { "name": "keys" } } });
    let secret = json!({ "username": "user", "password": canary("git") });
    story.git("verified", &url, secret, verified).await;
    for name in ["wrong-password", "half", "bearer", "in-url", "ssh", "app", "tls", "proxied", "verified"] {
        story.fleet.until(&GIT_REPOSITORY, name, "False").await;
    }
}

async fn others(story: &mut Story<'_>) {
    let registry = Registry::start_with(
        testbed::registry::Options {
            access: testbed::registry::Access::Basic {
                user: "user".to_owned(),
                password: "right".to_owned(),
            },
            ..Default::default()
        },
        Security::Plain,
    )
    .unwrap();
    let login = json!({ "username": canary("registry-user"), "password": canary("registry") });
    let auth = STANDARD.encode(format!("{}:{}", canary("registry-user"), canary("registry")));
    let config =
        json!({ "auths": { registry.host(): login, "other.example": { "auth": auth } } }).to_string();
    let pull = json!({ ".dockerconfigjson": config });
    story.secret("pull", "kubernetes.io/dockerconfigjson", pull).await;
    let broken = json!({ ".dockerconfigjson": format!("{{\"auths\": {{\"x\": \"{CANARY}-broken\"}}}}") });
    story.secret("broken-pull", "kubernetes.io/dockerconfigjson", broken).await;
    let url = format!("oci://{}/app", registry.host());
    for (name, secret) in [("oci", "pull"), ("oci-broken", "broken-pull")] {
        let spec = json!({ "url": url, "interval": "1h", "insecure": true, "secretRef": { "name": secret } });
        story.object(&OCI_REPOSITORY, name, spec).await;
    }
    let charts = ChartRepository::start_with(Some(("user", "right")), Security::Plain).unwrap();
    story
        .secret("basic", "Opaque", json!({ "username": canary("chart-user"), "password": canary("chart") }))
        .await;
    let spec = json!({ "url": charts.url(), "interval": "1h", "secretRef": { "name": "basic" } });
    story.object(&HELM_REPOSITORY, "charts", spec).await;
    let url = format!("oci://{}/charts", registry.host());
    let spec = json!({ "url": url, "type": "oci", "insecure": true, "secretRef": { "name": "pull" } });
    story.fleet.apply(&HELM_REPOSITORY, "oci-charts", json!({}), spec).await;
    let spec = json!({
        "chart": "app", "version": "1.0.0", "interval": "1h", "sourceRef": { "kind": "HelmRepository", "name": "oci-charts" },
    });
    story.object(&HELM_CHART, "chart", spec).await;
    let keys = Credentials { access_key: "user".to_owned(), secret_key: "right".to_owned() };
    let bucket = BucketServer::start_with(Some(keys), Security::Plain).unwrap();
    bucket.create("fleet");
    story
        .secret("s3", "Opaque", json!({ "accesskey": canary("access"), "secretkey": canary("secret") }))
        .await;
    let azure = json!({ "sasKey": format!("?sv=1&sig={}", canary("sas")) });
    story.secret("azure", "Opaque", azure).await;
    story
        .secret(
            "gcp",
            "Opaque",
            json!({ "serviceaccount": format!("{{\"private_key\": \"{CANARY}-gcp\"}}") }),
        )
        .await;
    let endpoint = bucket.endpoint();
    for (name, provider) in [("s3", "generic"), ("azure", "azure"), ("gcp", "gcp")] {
        let endpoint = if provider == "azure" { format!("http://{endpoint}") } else { endpoint.clone() };
        let spec = json!({
            "provider": provider, "bucketName": "fleet", "endpoint": endpoint, "insecure": true, "interval": "1h",
            "timeout": "5s", "secretRef": { "name": name },
        });
        story.object(&BUCKET, name, spec).await;
    }
    for (kind, name) in story.objects.iter().filter(|(kind, _)| *kind != &GIT_REPOSITORY) {
        story.fleet.until(kind, name, "False").await;
    }
}

async fn appliers(story: &mut Story<'_>) {
    story.fleet.git_repository("fleet").await;
    let spec = |more: Value| {
        let mut spec = json!({
            "interval": "1h", "prune": true, "path": "./", "targetNamespace": story.fleet.namespace.name(),
            "timeout": "5s", "sourceRef": { "kind": "GitRepository", "name": "fleet" },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let kubeconfig = format!(
        "clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: a, user: {{token: '{}'}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\ncurrent-context: a\n",
        canary("token")
    );
    let remote = spec(json!({ "kubeConfig": { "secretRef": { "name": "kubeconfig" } } }));
    let broken = spec(json!({ "kubeConfig": { "secretRef": { "name": "broken-kubeconfig" } } }));
    let decrypted = spec(json!({ "decryption": { "provider": "sops", "secretRef": { "name": "sops" } } }));
    story.secret("kubeconfig", "Opaque", json!({ "value": kubeconfig })).await;
    story
        .secret("broken-kubeconfig", "Opaque", json!({ "value": format!("users: [{CANARY}-yaml: {{") }))
        .await;
    let keys = json!({ "age.agekey": canary("age"), "sops.asc": canary("pgp"), "sops.vault-token": canary("vault") });
    story.secret("sops", "Opaque", keys).await;
    story.object(&KUSTOMIZATION, "remote", remote).await;
    story.object(&KUSTOMIZATION, "broken-remote", broken).await;
    story.object(&KUSTOMIZATION, "decrypted", decrypted).await;
}

/// Any of the values, in plain, base64 (wherever it begins within what was encoded) and URL-encoded.
fn shapes() -> Vec<String> {
    let mut shapes = vec![CANARY.to_owned()];
    for shift in 0..3 {
        let padded = format!("{}{CANARY}", "-".repeat(shift));
        for encoded in [STANDARD.encode(&padded), URL_SAFE.encode(&padded)] {
            // The first and last letters also depend on what stands beside the value.
            let inner = &encoded[usize::from(shift > 0) * 4..padded.len() / 3 * 4];
            shapes.push(inner.to_owned());
        }
    }
    shapes.push(CANARY.bytes().map(|byte| format!("%{byte:02X}")).collect());
    shapes.sort();
    shapes.dedup();
    shapes
}
