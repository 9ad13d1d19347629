//! Notifications: from a push to a chat, events from plain HTTP clients, webhooks that are and are not who they should be.

use std::time::Instant;

use flux_api::kinds::{ALERT, Controller, GIT_REPOSITORY, KUSTOMIZATION, PROVIDER, RECEIVER};
use flux_controllers::manager::ManagerOptions;
use hmac::{Hmac, KeyInit, Mac};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use serde_json::{Value, json};
use sha2::Sha256;
use testbed::Cluster;
use testbed::git_server::Change;
use testbed::otlp_collector::OtlpCollector;
use testbed::webhook_sink::{Received, WebhookSink};

use crate::flux::{Flux, condition, ready};

crate::stories!(
    a_push_calls_the_webhook_and_the_chat_hears_of_it,
    events_of_any_http_client_are_routed,
    a_dead_endpoint_is_told_on_the_provider_and_the_alert,
    a_receiver_says_where_it_is_and_takes_only_its_callers,
    a_commit_gets_a_status_and_a_provider_leaves_nothing_behind,
    a_problem_is_told_when_it_starts_and_when_it_is_over,
    a_trace_leads_from_the_source_to_what_was_applied,
    a_thousand_events_arrive_and_none_is_lost,
    what_happens_reaches_the_chat_in_a_moment,
    other_namespaces_can_be_out_of_reach,
);

const ALL: &[Controller] = &[Controller::Source, Controller::Kustomize, Controller::Notification];
const ALONE: &[Controller] = &[Controller::Notification];

pub async fn start(cluster: &Cluster, controllers: &[Controller]) -> Flux {
    Flux::start_with(cluster, controllers, here).await
}

/// The listeners on any free port of this machine.
pub fn here(options: &mut ManagerOptions) {
    options.notification.events_addr = ([127, 0, 0, 1], 0).into();
    options.notification.receiver_addr = ([127, 0, 0, 1], 0).into();
    options.notification.first_retry = std::time::Duration::from_millis(20);
}

pub fn listeners(flux: &Flux) -> (String, String) {
    let notification = flux.manager().notification().unwrap();
    (format!("http://{}", notification.events_addr), format!("http://{}", notification.receiver_addr))
}

async fn provider(flux: &Flux, name: &str, kind: &str, address: &str) {
    flux.apply(&PROVIDER, name, json!({ "type": kind, "address": address })).await;
}

async fn alert(flux: &Flux, name: &str, provider: &str, sources: Value) {
    flux.apply(&ALERT, name, json!({ "providerRef": { "name": provider }, "eventSources": sources })).await;
}

/// Waits until the listeners know all Providers and Alerts so far: the one that is made last is heard of by the sink.
async fn routed(flux: &Flux, events: &str, sink: &WebhookSink) {
    provider(flux, "probe", "generic", &format!("{}/probe", sink.url())).await;
    let has = |object: &Value| object["metadata"]["finalizers"] == json!(["finalizers.fluxcd.io"]);
    flux.until(&PROVIDER, "probe", "has its finalizer", has).await;
    alert(flux, "probe", "probe", json!([{ "kind": "Bucket", "name": "probe" }])).await;
    for tries in 0.. {
        assert!(tries < 200, "the probe was never routed");
        post(events, &event(flux, "Bucket", "probe", &format!("probe {tries}"))).await;
        if sink.received().iter().any(|sent| sent.path == "/probe") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn signed(token: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

fn event(flux: &Flux, kind: &str, name: &str, message: &str) -> Value {
    json!({
        "involvedObject": {
            "kind": kind, "namespace": flux.namespace.name(), "name": name, "uid": "9d0cdd51",
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "1",
        },
        "severity": "error", "timestamp": "2026-01-02T03:04:05Z", "message": message, "reason": "ReconciliationFailed",
        "metadata": {
            "kustomize.toolkit.fluxcd.io/revision": "main@sha1:7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a",
            "kustomize.toolkit.fluxcd.io/token": "secret", "kustomize.toolkit.fluxcd.io/digest": "d", "foreign/x": "y",
            "event.toolkit.fluxcd.io/team": "a",
        },
        "reportingController": "kustomize-controller", "reportingInstance": "kustomize-controller-abc",
    })
}

async fn post(url: &str, body: &Value) -> u16 {
    reqwest::Client::new().post(url).json(body).send().await.unwrap().status().as_u16()
}

fn says(received: &Received, text: &str) -> bool {
    String::from_utf8_lossy(&received.body).contains(text)
}

async fn a_push_calls_the_webhook_and_the_chat_hears_of_it(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = start(cluster, ALL).await;
    let (_, receiver_url) = listeners(&flux);
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: {value}\n")
    };
    flux.fleet.commit("first", &[("a.yaml", &map("one"))]).unwrap();
    provider(&flux, "chat", "slack", &format!("{}/services/T/B/x", sink.url())).await;
    let sources = json!([{ "kind": "GitRepository", "name": "*" }, { "kind": "Kustomization", "name": "*" }]);
    alert(&flux, "all", "chat", sources).await;
    flux.secret("hook", &[("token", "github-token")]).await;
    let resources = json!([{ "kind": "GitRepository", "name": "fleet" }]);
    let spec = json!({ "type": "github", "events": ["push"], "secretRef": { "name": "hook" }, "resources": resources });
    flux.apply(&RECEIVER, "push", spec).await;
    let receiver = flux.ready(&RECEIVER, "push").await;
    let path = receiver["status"]["webhookPath"].as_str().unwrap().to_owned();
    flux.git_repository("fleet").await;
    let spec = json!({
        "interval": "1h", "prune": true, "path": "./", "targetNamespace": flux.namespace.name(),
        "sourceRef": { "kind": "GitRepository", "name": "fleet" },
    });
    flux.apply(&KUSTOMIZATION, "apps", spec).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    sink.await_request("tells of the first apply", |sent| says(sent, "kustomization/apps")).await.unwrap();

    let commit = flux.fleet.commit("second", &[("a.yaml", &map("two"))]).unwrap();
    let body = json!({ "ref": "refs/heads/main", "after": commit }).to_string();
    let started = Instant::now();
    let answer = reqwest::Client::new()
        .post(format!("{receiver_url}{path}"))
        .header("content-type", "application/json")
        .header("x-github-event", "push")
        .header("x-hub-signature-256", signed("github-token", &body))
        .body(body)
        .send();
    assert_eq!(answer.await.unwrap().status().as_u16(), 200);
    let told = sink.await_request("tells of the second apply", |sent| {
        says(sent, "kustomization/apps") && says(sent, &commit)
    });
    let told = told.await.unwrap();
    println!("from the webhook to the chat: {:?}", started.elapsed());
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    let message = told.json().unwrap();
    assert_eq!(
        (told.path.as_str(), &message["username"]),
        ("/services/T/B/x", &json!("kustomize-controller"))
    );
    assert_eq!(message["attachments"][0]["color"], "good");

    // What fails is told too.
    flux.fleet.commit("broken", &[("a.yaml", "kind: [")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    sink.await_request("tells of the failure", |sent| {
        says(sent, "\"danger\"") && says(sent, "kustomization/apps")
    })
    .await
    .unwrap();
}

async fn events_of_any_http_client_are_routed(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = start(cluster, ALONE).await;
    let (events, _) = listeners(&flux);
    flux.secret("hmac", &[("token", "key"), ("headers", "X-Team: a\n")]).await;
    let spec = json!({ "type": "generic-hmac", "address": format!("{}/hmac", sink.url()), "secretRef": { "name": "hmac" } });
    flux.apply(&PROVIDER, "hmac", spec).await;
    provider(&flux, "am", "alertmanager", &format!("{}/api/v2/alerts", sink.url())).await;
    let spec = json!({
        "providerRef": { "name": "hmac" }, "eventSeverity": "error", "eventMetadata": { "cluster": "one" },
        "inclusionList": ["failed"], "exclusionList": ["ignored"],
        "eventSources": [{ "kind": "Kustomization", "name": "*" }],
    });
    flux.apply(&ALERT, "hmac", spec).await;
    // Only objects with the label, as they are in the cluster now.
    let labelled = json!([{ "kind": "Kustomization", "name": "*", "matchLabels": { "team": "a" } }]);
    alert(&flux, "labelled", "am", labelled).await;
    let spec = json!({ "interval": "1h", "prune": false, "path": "./", "suspend": true, "sourceRef": { "kind": "GitRepository", "name": "x" } });
    flux.apply_labelled(&KUSTOMIZATION, "labelled", spec, json!({ "team": "a" })).await;
    routed(&flux, &events, &sink).await;

    assert_eq!(post(&events, &event(&flux, "Kustomization", "apps", "apply failed")).await, 202);
    assert_eq!(post(&events, &event(&flux, "Kustomization", "apps", "apply failed")).await, 429);
    let sent = sink.await_request("is for the generic one", |sent| sent.path == "/hmac").await.unwrap();
    let body = sent.json().unwrap();
    let expected = json!({ "cluster": "one", "revision": "main@sha1:7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a", "team": "a" });
    assert_eq!(body["metadata"], expected);
    assert_eq!((sent.header("gotk-component"), sent.header("x-team")), ("kustomize-controller", "a"));
    assert_eq!(sent.header("x-signature"), signed("key", std::str::from_utf8(&sent.body).unwrap()));

    for (message, name) in [("all fine", "apps"), ("failed, ignored", "apps")] {
        assert_eq!(post(&events, &event(&flux, "Kustomization", name, message)).await, 202);
    }
    assert_eq!(post(&events, &event(&flux, "GitRepository", "apps", "failed elsewhere")).await, 202);
    assert_eq!(post(&events, &event(&flux, "Kustomization", "labelled", "failed with a label")).await, 202);
    sink.await_request("is for Alertmanager", |sent| {
        sent.path == "/api/v2/alerts" && says(sent, "failed with a label")
    })
    .await
    .unwrap();
    sink.await_request("is for the generic one too", |sent| {
        sent.path == "/hmac" && says(sent, "failed with a label")
    })
    .await
    .unwrap();
    // Everything was sent to somebody or nobody by now: what is for nobody did not arrive in between.
    assert!(
        !sink
            .received()
            .iter()
            .any(|sent| says(sent, "all fine") || says(sent, "ignored") || says(sent, "elsewhere"))
    );
    flux.event("labelled", "SourceFetchFailed", "error getting source object Kustomization/").await;

    let http = reqwest::Client::new();
    for (body, code) in [("[]", 400), ("nonsense", 400), ("", 400), ("null", 202)] {
        assert_eq!(http.post(&events).body(body).send().await.unwrap().status().as_u16(), code, "{body}");
    }
    let large = http.post(&events).body("x".repeat((3 << 20) + 1)).send().await;
    assert!(large.is_err() || large.unwrap().status().as_u16() == 413);
}

async fn a_dead_endpoint_is_told_on_the_provider_and_the_alert(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = start(cluster, ALONE).await;
    let (events, _) = listeners(&flux);
    provider(&flux, "dead", "slack", "http://127.0.0.1:1/services/canary").await;
    alert(&flux, "to-dead", "dead", json!([{ "kind": "Kustomization", "name": "*" }])).await;
    alert(&flux, "to-none", "missing", json!([{ "kind": "Kustomization", "name": "*" }])).await;
    let secret = json!({ "type": "generic-hmac", "address": sink.url(), "secretRef": { "name": "none" } });
    flux.apply(&PROVIDER, "no-secret", secret).await;
    alert(&flux, "to-no-secret", "no-secret", json!([{ "kind": "Kustomization", "name": "*" }])).await;
    routed(&flux, &events, &sink).await;
    assert_eq!(post(&events, &event(&flux, "Kustomization", "apps", "failed")).await, 202);
    let failed = "NotificationDispatchFailed";
    flux.event("to-dead", failed, "failed to send notification for Kustomization/").await;
    flux.event("dead", failed, "failed to send notification for Kustomization/").await;
    flux.event(
        "to-none",
        failed,
        "failed to read provider: providers.notification.toolkit.fluxcd.io \"missing\" not found",
    )
    .await;
    flux.event("to-no-secret", failed, "failed to initialize notifier for provider 'no-secret': secret")
        .await;
    let shown = format!("{:?} {:?}", flux.events("dead").await, flux.events("to-dead").await);
    assert!(!shown.contains("canary"), "{shown}");

    // It comes to life.
    provider(&flux, "dead", "slack", &format!("{}/services/canary", sink.url())).await;
    let is_there = |object: &Value| object["metadata"]["generation"] == 2;
    flux.until(&PROVIDER, "dead", "has another address", is_there).await;
    let mut tries = 0;
    while !sink.received().iter().any(|sent| sent.path == "/services/canary") {
        tries += 1;
        assert!(tries < 50, "the new address was never used");
        post(&events, &event(&flux, "Kustomization", "apps", &format!("failed {tries}"))).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    flux.event("dead", "NotificationDispatchRecovered", "delivered again").await;
}

async fn a_receiver_says_where_it_is_and_takes_only_its_callers(cluster: &Cluster) {
    let flux = start(cluster, ALONE).await;
    let (_, receivers) = listeners(&flux);
    let source = json!({ "url": "https://example.com/x", "interval": "1h" });
    for (name, team) in [("one", "a"), ("two", "a"), ("three", "b")] {
        flux.apply_labelled(&GIT_REPOSITORY, name, source.clone(), json!({ "team": team })).await;
    }
    let spec = |filter: &str, resources: Value| json!({ "type": "generic-hmac", "secretRef": { "name": "hook" }, "resourceFilter": filter, "resources": resources });
    let labelled = json!([{ "kind": "GitRepository", "name": "*", "matchLabels": { "team": "a" } }]);
    flux.apply(&RECEIVER, "hook", spec("req.name == res.metadata.name", labelled)).await;
    let waiting = flux.not_ready(&RECEIVER, "hook", "TokenNotFound").await;
    assert_eq!(condition(&waiting, "Reconciling").1, "ProgressingWithRetry");
    assert!(waiting["status"].get("webhookPath").is_none());

    flux.secret("hook", &[("token", "key")]).await;
    let object = flux.ready(&RECEIVER, "hook").await;
    let path = object["status"]["webhookPath"].as_str().unwrap().to_owned();
    let digest = sha2_hex(&format!("keyhook{}", flux.namespace.name()));
    assert_eq!(path, format!("/hook/{digest}"));
    assert_eq!(
        ready(&object),
        ("True", "Succeeded", format!("Receiver initialized for path: {path}").as_str())
    );
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);

    let http = reqwest::Client::new();
    let call = async |path: &str, token: &str, body: &str| {
        let request = http.post(format!("{receivers}{path}")).header("content-type", "application/json");
        let answer = request.header("x-signature", signed(token, body)).body(body.to_owned()).send();
        answer.await.unwrap().status().as_u16()
    };
    // The listener may see the status a moment later than we do.
    let mut code = 404;
    for _ in 0..100 {
        code = call(&path, "key", r#"{"name":"one"}"#).await;
        if code == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(code, 200);
    let asked =
        |object: &Value| object["metadata"]["annotations"].get("reconcile.fluxcd.io/requestedAt").is_some();
    let one = flux.until(&GIT_REPOSITORY, "one", "was asked to reconcile", asked).await;
    let value = one["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].as_str().unwrap();
    assert!(value.ends_with(" +0000 UTC"), "{value}");
    assert_eq!(call(&path, "wrong", r#"{"name":"two"}"#).await, 400);
    assert_eq!(call(&format!("{path}?x=1"), "key", "{}").await, 404);
    assert_eq!(call("/hook/00", "key", "{}").await, 404);
    assert_eq!(call("/", "key", "{}").await, 404);
    assert_eq!(call(&path, "key", r#"{"name":1}"#).await, 200);
    assert_eq!(call(&path, "key", "[]").await, 500);
    assert_eq!(call(&path, "key", "{}").await, 500);
    for name in ["two", "three"] {
        let object = serde_json::to_value(flux.api(&GIT_REPOSITORY).get(name).await.unwrap()).unwrap();
        assert!(!asked(&object), "{name} was not meant");
    }

    // One entry that cannot be asked does not stop the others.
    let resources =
        json!([{ "kind": "GitRepository", "name": "none" }, { "kind": "GitRepository", "name": "two" }]);
    flux.apply(&RECEIVER, "hook", spec("true", resources)).await;
    flux.until(&RECEIVER, "hook", "was looked at again", |object| {
        object["status"]["observedGeneration"] == 2
    })
    .await;
    let mut tries = 0;
    while call(&path, "key", "{}").await != 500 {
        tries += 1;
        assert!(tries < 100);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    flux.until(&GIT_REPOSITORY, "two", "was asked to reconcile", asked).await;

    flux.apply(&RECEIVER, "hook", spec("req.", json!([{ "kind": "GitRepository", "name": "two" }]))).await;
    let stalled = flux.not_ready(&RECEIVER, "hook", "InvalidCELExpression").await;
    assert_eq!(condition(&stalled, "Stalled").0, "True");
    let mut suspended = spec("true", json!([{ "kind": "GitRepository", "name": "two" }]));
    suspended["suspend"] = json!(true);
    flux.apply(&RECEIVER, "hook", suspended).await;
    let mut tries = 0;
    while call(&path, "key", "{}").await != 503 {
        tries += 1;
        assert!(tries < 100);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    flux.api(&RECEIVER).delete("hook", &Default::default()).await.unwrap();
    testbed::wait::until_gone(&flux.api(&RECEIVER), "hook", testbed::wait::LIMIT).await.unwrap();
}

fn sha2_hex(text: &str) -> String {
    use sha2::Digest;
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn a_commit_gets_a_status_and_a_provider_leaves_nothing_behind(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = start(cluster, ALONE).await;
    let (events, _) = listeners(&flux);
    flux.secret("git", &[("token", "t")]).await;
    let spec = json!({
        "type": "bitbucketserver", "address": format!("{}/scm/proj/repo.git", sink.url()), "secretRef": { "name": "git" },
        "commitStatusExpr": "'flux/' + event.involvedObject.name + '/' + alert.metadata.name",
    });
    flux.apply(&PROVIDER, "git", spec).await;
    alert(&flux, "git", "git", json!([{ "kind": "Kustomization", "name": "*" }])).await;
    routed(&flux, &events, &sink).await;
    assert_eq!(post(&events, &event(&flux, "Kustomization", "apps", "failed")).await, 202);
    // To the sink's empty answers nothing is written yet, so it is.
    let commit = "7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a";
    let builds = format!("/rest/api/latest/projects/proj/repos/repo/commits/{commit}/builds");
    let look =
        sink.await_request("looks the status up", |sent| sent.path.starts_with(&format!("{builds}?key=")));
    assert_eq!(look.await.unwrap().header("authorization"), "Bearer t");
    let written =
        sink.await_request("writes the status", |sent| sent.method == "POST" && sent.path == builds);
    let status = written.await.unwrap().json().unwrap();
    assert_eq!(
        (&status["state"], &status["name"]),
        (&json!("FAILED"), &json!("kustomization/apps [reconciliation failed]"))
    );
    // `printf flux/apps/git | sha1sum`: the key is a hash of what the expression says.
    assert_eq!(status["key"], "1d982131c4762ed8fd618edfb9d37141ea2d8be4");
    flux.api(&PROVIDER).delete("git", &Default::default()).await.unwrap();
    testbed::wait::until_gone(&flux.api(&PROVIDER), "git", testbed::wait::LIMIT).await.unwrap();
}

async fn a_problem_is_told_when_it_starts_and_when_it_is_over(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = start(cluster, ALONE).await;
    let (events, _) = listeners(&flux);
    provider(&flux, "am", "alertmanager", &format!("{}/am", sink.url())).await;
    let object = json!({
        "apiVersion": ALERT.api_version(), "kind": "Alert",
        "metadata": {
            "name": "incidents", "namespace": flux.namespace.name(),
            "annotations": { "fluxcd.rs/incidents": "enabled", "fluxcd.rs/message": "event.involvedObject.name + ' ' + incident.phase" },
        },
        "spec": {
            "providerRef": { "name": "am" }, "eventSeverity": "error",
            "eventSources": [{ "kind": "GitRepository", "name": "*" }, { "kind": "Kustomization", "name": "*" }],
        },
    });
    flux.api(&ALERT).create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let spec = json!({ "interval": "1h", "prune": false, "path": "./", "suspend": true, "sourceRef": { "kind": "GitRepository", "name": "fleet" } });
    flux.apply(&KUSTOMIZATION, "apps", spec).await;
    routed(&flux, &events, &sink).await;
    let success = |kind: &str, name: &str| {
        let mut event = event(&flux, kind, name, "finished");
        (event["severity"], event["reason"]) = (json!("info"), json!("ReconciliationSucceeded"));
        event
    };
    // Told before the trouble: the same success later must still end it, although it is a duplicate.
    assert_eq!(post(&events, &success("GitRepository", "fleet")).await, 202);
    for message in ["first", "second", "third"] {
        assert_eq!(post(&events, &event(&flux, "GitRepository", "fleet", message)).await, 202);
    }
    // It is made from the source that is broken.
    assert_eq!(post(&events, &event(&flux, "Kustomization", "apps", "no artifact")).await, 202);
    assert_eq!(post(&events, &success("GitRepository", "fleet")).await, 429);
    let resolved = sink
        .await_request("tells of the end", |sent| sent.path == "/am" && says(sent, "\"resolved\""))
        .await
        .unwrap();
    let told: Vec<Received> = sink.received().into_iter().filter(|sent| sent.path == "/am").collect();
    assert_eq!(told.len(), 2, "one start and one end");
    let (start, end) = (told[0].json().unwrap()[0].clone(), resolved.json().unwrap()[0].clone());
    assert_eq!(
        (&start["status"], &start["annotations"]["message"]),
        (&json!("firing"), &json!("fleet started"))
    );
    assert_eq!(start["labels"], end["labels"]);
    assert_eq!(end["annotations"]["message"], "fleet resolved");
    assert_eq!(end["annotations"]["folded"], format!("Kustomization/{}/apps", flux.namespace.name()));
}

/// Fetched and applied for real, told by real controllers, read by a collector as the specification has it.
async fn a_trace_leads_from_the_source_to_what_was_applied(cluster: &Cluster) {
    let (collector, sink) = (OtlpCollector::start().unwrap(), WebhookSink::start().unwrap());
    let flux = start(cluster, ALL).await;
    let (events, _) = listeners(&flux);
    flux.secret("otel", &[("token", "t0ken"), ("headers", "X-Tenant: a\n")]).await;
    let spec = json!({ "type": "otel", "address": collector.url(), "secretRef": { "name": "otel" } });
    flux.apply(&PROVIDER, "traces", spec).await;
    let sources = json!([
        { "kind": "GitRepository", "name": "*" }, { "kind": "Kustomization", "name": "*" },
        { "kind": "HelmRelease", "name": "*" }, { "kind": "HelmRepository", "name": "*" },
    ]);
    alert(&flux, "traces", "traces", sources).await;
    routed(&flux, &events, &sink).await;
    let map = |value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: {value}\n")
    };
    let first = flux.fleet.commit("first", &[("a.yaml", &map("one"))]).unwrap();
    flux.git_repository("fleet").await;
    let spec = json!({
        "interval": "1h", "prune": true, "path": "./", "targetNamespace": flux.namespace.name(),
        "sourceRef": { "kind": "GitRepository", "name": "fleet" },
    });
    flux.apply(&KUSTOMIZATION, "apps", spec).await;
    let of = |span: &Span, key: &str| {
        let found = span.attributes.iter().find(|one| one.key == key);
        let value = found.and_then(|one| one.value.as_ref()?.value.clone());
        match value {
            Some(any_value::Value::StringValue(text)) => text,
            _ => String::new(),
        }
    };
    let (namespace, own) =
        (flux.namespace.name(), |kind: &str, name: &str| format!("{kind}: {}/{name}", flux.namespace.name()));
    let span = async |name: String, revision: &str| {
        let fits = |span: &Span| span.name == name && of(span, "revision").contains(revision);
        collector.await_span(&format!("is {name} at {revision}"), fits).await.unwrap()
    };
    let root = span(own("GitRepository", "fleet"), &first).await;
    let child = span(own("Kustomization", "apps"), &first).await;
    assert!(root.parent_span_id.is_empty(), "a source is a root");
    assert_eq!((&child.trace_id, &child.parent_span_id), (&root.trace_id, &root.span_id));
    assert_ne!(child.span_id, root.span_id);
    assert_eq!(child.status.as_ref().map(|status| status.code), Some(StatusCode::Ok as i32));
    assert!(child.start_time_unix_nano > 0 && child.end_time_unix_nano >= child.start_time_unix_nano);
    assert_eq!(
        (of(&child, "object.kind").as_str(), of(&child, "object.namespace").as_str()),
        ("Kustomization", namespace)
    );

    // The next commit is another trace, and a failure is one in it. An upstream's release joins by its revision.
    let second = flux.fleet.commit("second", &[("a.yaml", "kind: [")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let (next, failed) = (
        span(own("GitRepository", "fleet"), &second).await,
        span(own("Kustomization", "apps"), &second).await,
    );
    assert_ne!(next.trace_id, root.trace_id);
    assert_eq!((&failed.trace_id, &failed.parent_span_id), (&next.trace_id, &next.span_id));
    assert_eq!(failed.status.as_ref().map(|status| status.code), Some(StatusCode::Error as i32));
    let mut release = event(&flux, "HelmRelease", "web", "Helm install succeeded");
    release["involvedObject"]["apiVersion"] = json!("helm.toolkit.fluxcd.io/v2");
    release["metadata"] = json!({ "helm.toolkit.fluxcd.io/revision": format!("main@sha1:{second}") });
    // An index is no source of anything.
    let mut index = release.clone();
    (index["involvedObject"]["kind"], index["severity"]) = (json!("HelmRepository"), json!("info"));
    assert_eq!((post(&events, &index).await, post(&events, &release).await), (202, 202));
    let release = span(own("HelmRelease", "web"), &second).await;
    assert_eq!((&release.trace_id, &release.parent_span_id), (&next.trace_id, &next.span_id));
    assert!(!collector.spans().iter().any(|span| span.name.starts_with("HelmRepository")));
    assert_eq!(collector.refused(), Vec::<String>::new());
    assert!(collector.logins().iter().all(|login| login == "Bearer t0ken"), "{:?}", collector.logins());
}

async fn a_thousand_events_arrive_and_none_is_lost(cluster: &Cluster) {
    const EVENTS: usize = 1000;
    let sink = WebhookSink::start().unwrap();
    let mut flux = start(cluster, ALONE).await;
    let (events, _) = listeners(&flux);
    provider(&flux, "many", "generic", &format!("{}/many", sink.url())).await;
    alert(&flux, "many", "many", json!([{ "kind": "Kustomization", "name": "*" }])).await;
    routed(&flux, &events, &sink).await;
    let http = reqwest::Client::new();
    let started = Instant::now();
    let senders = (0..20).map(|sender| {
        let (http, url) = (http.clone(), events.clone());
        let bodies: Vec<Value> = (0..EVENTS / 20)
            .map(|number| event(&flux, "Kustomization", "apps", &format!("event {sender}-{number}.")))
            .collect();
        async move {
            for body in bodies {
                assert_eq!(http.post(&url).json(&body).send().await.unwrap().status().as_u16(), 202);
            }
        }
    });
    futures::future::join_all(senders).await;
    println!("{EVENTS} events accepted in {:?}", started.elapsed());
    let arrived = || sink.received().iter().filter(|sent| sent.path == "/many").count();
    while arrived() < EVENTS {
        assert!(started.elapsed().as_secs() < 60, "{} of {EVENTS} arrived", arrived());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    println!("{EVENTS} events delivered in {:?}", started.elapsed());

    // What was accepted is delivered before the process ends.
    for number in 0..50 {
        let body = event(&flux, "Kustomization", "apps", &format!("late {number}."));
        assert_eq!(http.post(&events).json(&body).send().await.unwrap().status().as_u16(), 202);
    }
    flux.stop().await;
    let late = sink.received().iter().filter(|sent| says(sent, "\"late ")).count();
    assert_eq!(late, 50, "accepted and lost at the end");
    assert!(http.post(&events).body("{}").send().await.is_err(), "nobody listens any more");
}

/// From the moment that an event says it happened to the moment that it arrives: a fetch, an apply, a prune, a failure and
/// a recovery. Events tell the time in seconds, so up to one of what is measured is rounding.
async fn what_happens_reaches_the_chat_in_a_moment(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = start(cluster, ALL).await;
    let (events, _) = listeners(&flux);
    provider(&flux, "chat", "generic", &format!("{}/chat", sink.url())).await;
    let sources = json!([{ "kind": "GitRepository", "name": "*" }, { "kind": "Kustomization", "name": "*" }]);
    alert(&flux, "all", "chat", sources).await;
    routed(&flux, &events, &sink).await;
    let map = |name: &str, value: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {value}\n")
    };
    let first =
        flux.fleet.commit("first", &[("a.yaml", &map("a", "one")), ("b.yaml", &map("b", "one"))]).unwrap();
    flux.git_repository("fleet").await;
    let spec = json!({
        "interval": "1h", "retryInterval": "1s", "prune": true, "path": "./", "targetNamespace": flux.namespace.name(),
        "sourceRef": { "kind": "GitRepository", "name": "fleet" },
    });
    flux.apply(&KUSTOMIZATION, "apps", spec).await;
    let told = async |what: &str, kind: &str, severity: &str, text: &str, commit: &str| {
        let fits = |sent: &Received| {
            let Ok(body) = sent.json() else { return false };
            let says = |pointer: &str, text: &str| {
                body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().contains(text)
            };
            sent.path == "/chat"
                && body["involvedObject"]["kind"] == kind
                && body["severity"] == severity
                && says("/message", text)
                && says("/metadata/revision", commit)
        };
        let Ok(sent) = sink.await_request(&format!("tells of {what}"), fits).await else {
            let bodies: Vec<String> =
                sink.received().iter().map(|sent| String::from_utf8_lossy(&sent.body).into_owned()).collect();
            panic!("nothing tells of {what}:\n{}", bodies.join("\n"));
        };
        let happened =
            sent.json().unwrap()["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let took = jiff::Timestamp::try_from(sent.at).unwrap().duration_since(happened);
        println!("{what}: {:.3} s after it happened", took.as_secs_f64());
        // A second on a machine of its own; this one compiles beside it.
        assert!(took.as_secs_f64() < 5.0, "{what} took {took:?}");
    };
    told("the fetch", "GitRepository", "info", "stored artifact", &first).await;
    told("the apply", "Kustomization", "info", "created", &first).await;
    let second = flux.fleet.commit_to("main", "less", &[Change::Remove("b.yaml")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    told("the prune", "Kustomization", "info", "deleted", &second).await;
    let third = flux.fleet.commit("broken", &[("a.yaml", "kind: [")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    told("the failure", "Kustomization", "error", "", &third).await;
    let fourth = flux.fleet.commit("mended", &[("a.yaml", &map("a", "two"))]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    told("the recovery", "Kustomization", "info", "Reconciliation finished", &fourth).await;
}

async fn other_namespaces_can_be_out_of_reach(cluster: &Cluster) {
    let sink = WebhookSink::start().unwrap();
    let flux = Flux::start_with(cluster, ALONE, |options: &mut ManagerOptions| {
        here(options);
        options.notification.no_cross_namespace_refs = true;
    })
    .await;
    let (events, receivers) = listeners(&flux);
    let other = cluster.namespace("other").await.unwrap();
    provider(&flux, "chat", "generic", &format!("{}/chat", sink.url())).await;
    let sources = json!([
        { "kind": "Kustomization", "name": "*", "namespace": other.name() },
        { "kind": "Kustomization", "name": "*" },
    ]);
    alert(&flux, "all", "chat", sources).await;
    routed(&flux, &events, &sink).await;
    let mut foreign = event(&flux, "Kustomization", "apps", "failed over there");
    foreign["involvedObject"]["namespace"] = json!(other.name());
    assert_eq!(post(&events, &foreign).await, 202);
    let denied = "can't process event from 'Kustomization/";
    flux.event("all", "NotificationDispatchFailed", denied).await;
    flux.event("all", "NotificationDispatchFailed", "cross-namespace references have been blocked").await;
    assert_eq!(post(&events, &event(&flux, "Kustomization", "apps", "failed here")).await, 202);
    sink.await_request("is of the own namespace", |sent| says(sent, "failed here")).await.unwrap();
    assert!(!sink.received().iter().any(|sent| says(sent, "failed over there")));

    // And in: the one here is asked, the one over there is not.
    let source = json!({ "url": "https://example.com/x", "interval": "1h" });
    flux.apply(&GIT_REPOSITORY, "own", source).await;
    flux.secret("hook", &[("token", "key")]).await;
    let resources = json!([
        { "kind": "GitRepository", "name": "own", "namespace": other.name() }, { "kind": "GitRepository", "name": "own" },
    ]);
    let spec = json!({ "type": "generic", "secretRef": { "name": "hook" }, "resources": resources });
    flux.apply(&RECEIVER, "hook", spec).await;
    let ready = flux.ready(&RECEIVER, "hook").await;
    let url = format!("{receivers}{}", ready["status"]["webhookPath"].as_str().unwrap());
    let mut tries = 0;
    while post(&url, &json!({})).await != 500 {
        tries += 1;
        assert!(tries < 100, "the entry of the other namespace is an error");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let asked =
        |object: &Value| object["metadata"]["annotations"].get("reconcile.fluxcd.io/requestedAt").is_some();
    flux.until(&GIT_REPOSITORY, "own", "was asked to reconcile", asked).await;
}
