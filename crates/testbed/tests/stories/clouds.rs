//! Logins at clouds, all of them played by one server: registries that images are scanned in, Git hosts that automations push
//! to, services that notifications go to.

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flux_api::kinds::{
    ALERT, Controller, GIT_REPOSITORY, IMAGE_POLICY, IMAGE_REPOSITORY, IMAGE_UPDATE_AUTOMATION,
    KUSTOMIZATION, PROVIDER,
};
use flux_controllers::manager::ManagerOptions;
use flux_controllers::reconcile::FeatureGates;
use flux_remote::cloud::Environment;
use http::StatusCode;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::{Accounts, GitServer};
use testbed::http_server::{HttpServer, Security};
use testbed::webhook_sink::WebhookSink;

use crate::flux::{Flux, ready};
use crate::kustomization::{BOTH, spec};
use crate::notification::{here, listeners};

crate::stories!(
    images_are_scanned_at_every_cloud_and_its_login_goes_before_a_pull_secret,
    an_automation_pushes_with_the_login_of_its_cloud,
    a_commit_status_is_written_with_the_identity_of_a_machine_or_a_service_account,
    a_key_service_is_asked_as_the_machine_and_its_token_is_kept_and_counted,
);

const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// Every service of every cloud below its name, and their registries for those who come through it as a proxy.
fn clouds() -> HttpServer {
    HttpServer::start(Router::new().fallback(answer), Security::Plain).unwrap()
}

async fn answer(request: Request) -> Response {
    let (host, path) = (request.uri().host().unwrap_or_default(), request.uri().path());
    let lent =
        r#"{"AccessKeyId":"AK","SecretAccessKey":"SK","Token":"ST","Expiration":"2099-01-01T00:00:00Z"}"#;
    let ecr = json!({ "authorizationData": [
        { "authorizationToken": STANDARD.encode("AWS:ecr-password"), "expiresAt": 4_070_908_800_u64 },
    ] });
    let text = match path {
        "/entra" => r#"{"access_token":"entra-token","expires_in":3600}"#.to_owned(),
        "/imds" => r#"{"access_token":"imds-token","expires_in":"3600"}"#.to_owned(),
        "/acr" => r#"{"refresh_token":"acr-password"}"#.to_owned(),
        "/ecr" => ecr.to_string(),
        "/imds/api/token" => "session".to_owned(),
        "/imds/meta-data/iam/security-credentials/" => "role\n".to_owned(),
        "/imds/meta-data/iam/security-credentials/role" => lent.to_owned(),
        "/metadata/instance/service-accounts/default/token" => {
            r#"{"access_token":"google-token","expires_in":3600}"#.to_owned()
        }
        "/v2/" | "/v2/org/app/tags/list" => {
            let (user, password) = match host.rsplit('.').next() {
                Some("io") => (NOBODY, "acr-password"),
                Some("com") => ("AWS", "ecr-password"),
                _ => ("oauth2accesstoken", "google-token"),
            };
            let wanted = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
            if request.headers().get("authorization").is_none_or(|given| given != wanted.as_str()) {
                return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Basic realm=\"cloud\"")])
                    .into_response();
            }
            json!({ "name": "org/app", "tags": ["1.0.0"] }).to_string()
        }
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    text.into_response()
}

/// Has a controller meet these clouds, and lets objects name a ServiceAccount.
pub fn at(
    clouds: &HttpServer,
    controller: Controller,
) -> impl Fn(&mut ManagerOptions) + Send + Sync + 'static {
    let environment = Environment::for_tests(&[], &clouds.url());
    move |options| {
        options.cloud = environment.clone();
        let mut tuning = options.tuning(controller);
        let gates = ["ObjectLevelWorkloadIdentity=true".to_owned()];
        tuning.gates = FeatureGates::with(controller, &gates).unwrap();
        options.tuned.insert(controller, tuning);
        here(options);
    }
}

async fn azure_account(cluster: &Cluster, flux: &Flux, name: &str) {
    let api: Api<ServiceAccount> = Api::namespaced(cluster.client(), flux.namespace.name());
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": name, "annotations": {
            "azure.workload.identity/tenant-id": "tenant", "azure.workload.identity/client-id": "client",
        } },
    });
    api.patch(name, &PatchParams::apply("story").force(), &Patch::Apply(object)).await.unwrap();
}

async fn images_are_scanned_at_every_cloud_and_its_login_goes_before_a_pull_secret(cluster: &Cluster) {
    let clouds = clouds();
    let flux =
        Flux::start_with(cluster, &[Controller::ImageReflector], at(&clouds, Controller::ImageReflector))
            .await;
    azure_account(cluster, &flux, "puller").await;
    flux.secret("proxy", &[("address", &clouds.url())]).await;
    let spec = |registry: &str, provider: &str, more: Value| {
        let mut spec = json!({
            "image": format!("{registry}/org/app"), "interval": "1h", "provider": provider, "insecure": true,
            "proxySecretRef": { "name": "proxy" },
        });
        spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        spec
    };
    let ecr = "012345678901.dkr.ecr.eu-west-1.amazonaws.com";
    // The other way round than for an OCIRepository: the pull secret is not even looked at.
    let with_secret = json!({ "secretRef": { "name": "not-there" } });
    let account = json!({ "serviceAccountName": "puller" });
    for (name, registry, provider, more) in [
        ("azure", "fleet.azurecr.io", "azure", json!({})),
        ("azure-account", "fleet.azurecr.io", "azure", account),
        ("aws", ecr, "aws", with_secret),
        ("google", "europe-docker.pkg.dev", "gcp", json!({})),
    ] {
        flux.apply(&IMAGE_REPOSITORY, name, spec(registry, provider, more)).await;
    }
    flux.apply(&IMAGE_REPOSITORY, "elsewhere", spec("registry.invalid", "aws", json!({}))).await;
    flux.apply(&IMAGE_REPOSITORY, "nobody", spec("fleet.azurecr.io", "generic", json!({}))).await;
    for name in ["azure", "azure-account", "aws", "google"] {
        let object = flux.ready(&IMAGE_REPOSITORY, name).await;
        assert_eq!(object["status"]["lastScanResult"]["latestTags"], json!(["1.0.0"]), "{name}");
    }
    let object = flux.not_ready(&IMAGE_REPOSITORY, "elsewhere", "AuthenticationFailed").await;
    assert!(ready(&object).2.contains("invalid AWS registry: 'registry.invalid'"), "{}", ready(&object).2);
    flux.not_ready(&IMAGE_REPOSITORY, "nobody", "ReadOperationFailed").await;
}

async fn an_automation_pushes_with_the_login_of_its_cloud(cluster: &Cluster) {
    let clouds = clouds();
    let flux = Flux::start_with(
        cluster,
        &[Controller::ImageReflector, Controller::ImageAutomation],
        at(&clouds, Controller::ImageAutomation),
    )
    .await;
    let accounts = Accounts { tokens: vec!["imds-token".to_owned()], ..Accounts::default() };
    let server = GitServer::start_with(accounts, Security::Plain).unwrap();
    let fleet = server.create("fleet").unwrap();
    let marker = format!("{{\"$imagepolicy\": \"{}:app:tag\"}}", flux.namespace.name());
    fleet.commit("first", &[("a.yaml", &format!("tag: '1' # {marker}\n"))]).unwrap();
    let registry = testbed::registry::Registry::start().unwrap();
    crate::image_reflector::push(&registry, "2.0.0");
    let image = format!("{}/org/app", registry.host());
    flux.apply(&IMAGE_REPOSITORY, "app", json!({ "image": image, "interval": "1h" })).await;
    let policy = json!({ "imageRepositoryRef": { "name": "app" }, "policy": { "semver": { "range": "*" } } });
    flux.apply(&IMAGE_POLICY, "app", policy).await;
    let source = json!({
        "url": server.http_url("fleet"), "interval": "1h", "ref": { "branch": "main" }, "provider": "azure",
    });
    flux.apply(&GIT_REPOSITORY, "fleet", source).await;
    let automation = json!({
        "sourceRef": { "kind": "GitRepository", "name": "fleet" }, "interval": "1h",
        "git": { "commit": { "author": { "email": "bot@example.com" } } },
    });
    flux.apply(&IMAGE_UPDATE_AUTOMATION, "auto", automation).await;
    flux.until(&IMAGE_UPDATE_AUTOMATION, "auto", "pushed", |object| {
        object["status"]["lastPushCommit"].is_string() && ready(object).0 == "True"
    })
    .await;
    assert!(fleet.read("main", "a.yaml").unwrap().starts_with("tag: '2.0.0'"));
}

async fn a_commit_status_is_written_with_the_identity_of_a_machine_or_a_service_account(cluster: &Cluster) {
    let (clouds, sink) = (clouds(), WebhookSink::start().unwrap());
    let flux =
        Flux::start_with(cluster, &[Controller::Notification], at(&clouds, Controller::Notification)).await;
    azure_account(cluster, &flux, "notifier").await;
    for (name, account) in
        [("machine", Value::Null), ("account", json!("notifier")), ("missing", json!("none"))]
    {
        let mut spec =
            json!({ "type": "azuredevops", "address": format!("{}/{name}/project/_git/repo", sink.url()) });
        if account.is_string() {
            spec["serviceAccountName"] = account;
        }
        flux.apply(&PROVIDER, name, spec).await;
        let has = |object: &Value| object["metadata"]["finalizers"] == json!(["finalizers.fluxcd.io"]);
        flux.until(&PROVIDER, name, "has its finalizer", has).await;
        let sources = json!([{ "kind": "Kustomization", "name": "*" }]);
        flux.apply(&ALERT, name, json!({ "providerRef": { "name": name }, "eventSources": sources })).await;
    }
    let (events, _) = listeners(&flux);
    let post = async |number: usize| {
        let event = json!({
            "involvedObject": {
                "kind": "Kustomization", "namespace": flux.namespace.name(), "name": "apps",
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            },
            "severity": "error", "timestamp": "2026-01-02T03:04:05Z", "message": format!("failed {number}"),
            "reason": "ReconciliationFailed", "reportingController": "kustomize-controller",
            "metadata": {
                "kustomize.toolkit.fluxcd.io/revision": "main@sha1:7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a",
            },
        });
        reqwest::Client::new().post(&events).json(&event).send().await.unwrap();
    };
    // Until the listeners know all of them.
    let told = |name: &str| {
        let own = format!("/{name}/project/_apis/git/repositories/repo/commits/");
        sink.received().into_iter().find(|sent| sent.path.starts_with(&own))
    };
    for number in 0.. {
        assert!(number < 200, "{:?}", sink.received());
        post(number).await;
        if told("machine").is_some() && told("account").is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(told("machine").unwrap().header("authorization"), "Bearer imds-token");
    assert_eq!(told("account").unwrap().header("authorization"), "Bearer entra-token");
    let asked: Vec<String> = clouds.requests().into_iter().map(|one| one.path).collect();
    assert!(
        asked.iter().any(|path| path.starts_with("/imds") && path.contains("499b84ac-1321-427f")),
        "{asked:?}"
    );
    let problem = format!("failed to get service account '{}/none'", flux.namespace.name());
    flux.event("missing", "NotificationDispatchFailed", &problem).await;
}

/// The vault is nowhere, so nothing is opened; the way to it is what counts here.
async fn a_key_service_is_asked_as_the_machine_and_its_token_is_kept_and_counted(cluster: &Cluster) {
    let clouds = clouds();
    let environment = Environment::for_tests(&[], &clouds.url());
    let flux = Flux::start_with(cluster, BOTH, move |options| options.cloud = environment.clone()).await;
    let (head, rest) = include_str!("sops/secret.yaml").split_once("    age:\n").unwrap();
    let (_, tail) = rest.split_once("    encrypted_regex:").unwrap();
    let key = "    azure_kv:\n        - vault_url: https://fleet.vault.invalid\n          name: key\n          version: '1'\n          \
               created_at: '2026-01-01T00:00:00Z'\n          enc: AAAA\n    encrypted_regex:";
    flux.fleet.commit("first", &[("apps/secret.yaml", &format!("{head}{key}{tail}"))]).unwrap();
    flux.git_repository("fleet").await;
    let decryption = json!({ "decryption": { "provider": "sops" } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", decryption)).await;
    flux.not_ready(&KUSTOMIZATION, "apps", "BuildFailed").await;
    flux.reconcile_as(&KUSTOMIZATION, "apps", "once more").await;
    flux.until(&KUSTOMIZATION, "apps", "was tried again", |object| {
        object["status"]["lastHandledReconcileAt"] == "once more"
    })
    .await;
    let logins = clouds.requests().into_iter().filter(|one| one.path.starts_with("/imds")).count();
    assert_eq!(logins, 1, "the token is kept");
    let page = flux.manager().metrics().page();
    for event in ["cache_miss", "cache_hit"] {
        let series = format!(
            "gotk_token_cache_events_total{{event_type=\"{event}\",kind=\"Kustomization\",name=\"apps\",namespace=\"{}\",operation=\"decrypt_with_azure\"}}",
            flux.namespace.name()
        );
        assert!(page.contains(&series), "{series} is missing in\n{page}");
    }
    assert!(page.contains("gotk_token_cached_items 1\n"), "{page}");
}
