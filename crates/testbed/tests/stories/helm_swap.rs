//! Real helm-controller makes a release, ours takes it over: nothing is released again.

use flux_api::kinds::{HELM_CHART, HELM_RELEASE};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testbed::Cluster;
use testbed::chart_repository::ChartRepository;
use testbed::reference::{Controller, Tool};
use testbed::upstream::Upstream;

use crate::flux::ready;
use crate::helm_release::{chart, handled, helm_task, publish, records, spec, start};

crate::stories!(a_record_in_helm_controllers_shape_is_taken_over_without_a_new_revision);

fn sha256(text: &str) -> String {
    let sum: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{sum}")
}

/// What helm-controller notes of a release in the status: its digest is of JSON in the order of Go's fields, with a line
/// break at the end. Spelled out here, so that it cannot be wrong in the same way as what it is compared with.
fn snapshot(record: &helm::release::Release) -> Value {
    let info = &record.info;
    let text = |text: &str| serde_json::to_string(text).unwrap();
    let observed = format!(
        concat!(
            r#"{{"name":{name},"version":1,"#,
            r#""info":{{"first_deployed":{first},"last_deployed":{last},"description":{description},"status":"deployed"}},"#,
            r#""chartMetadata":{{"name":"app","version":"1.0.0","apiVersion":"v2","appVersion":"1.0.0"}},"#,
            r#""config":{{"value":"one"}},"manifest":{manifest},"hooks":null,"namespace":{namespace}}}"#,
            "\n"
        ),
        name = text(&record.name),
        first = text(&info.first_deployed),
        last = text(&info.last_deployed),
        description = text(&info.description),
        manifest = text(&record.manifest),
        namespace = text(&record.namespace),
    );
    json!({
        "apiVersion": "v2", "digest": sha256(&observed), "name": record.name, "namespace": record.namespace,
        "version": 1, "status": "deployed", "action": "install", "chartName": "app", "chartVersion": "1.0.0",
        "appVersion": "1.0.0", "configDigest": sha256("value: one\n"),
        "firstDeployed": "2026-01-01T00:00:00Z", "lastDeployed": "2026-01-01T00:00:00Z",
    })
}

async fn a_record_in_helm_controllers_shape_is_taken_over_without_a_new_revision(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    flux.stop().await;
    let archive = flux.storage().join("app.tgz");
    std::fs::write(&archive, chart("1.0.0").package().unwrap()).unwrap();
    let archive = archive.to_str().unwrap();
    helm_task(cluster, &flux, Tool::Helm4, &["install", "web", archive, "--set", "value=one"]).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let secret = secrets.get("sh.helm.release.v1.web.v1").await.unwrap();
    let record = helm::release::from_storage(&serde_json::to_value(&secret).unwrap()).unwrap();
    publish(&flux, "app", &chart("1.0.0")).await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "one" } }))).await;
    let message =
        format!("Helm install succeeded for release {}/web.v1 with chart app@1.0.0", record.namespace);
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": "InstallSucceeded", "message": message,
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let status = json!({ "status": {
        "observedGeneration": 1, "storageNamespace": record.namespace, "history": [snapshot(&record)],
        "lastAttemptedGeneration": 1, "lastAttemptedRevision": "1.0.0", "lastAttemptedReleaseAction": "install",
        "lastAttemptedConfigDigest": sha256("value: one\n"), "conditions": [condition("Ready"), condition("Released")],
    } });
    let web = flux.api(&HELM_RELEASE);
    web.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    flux.resume().await;
    flux.reconcile_as(&HELM_RELEASE, "web", "ours").await;
    let object = handled(&flux, "web", "ours").await;
    assert_eq!(object["status"]["history"], status["status"]["history"]);
    assert_eq!(ready(&object), ("True", "InstallSucceeded", message.as_str()));
    assert_eq!(records(cluster, &flux).await, ["sh.helm.release.v1.web.v1 deployed"]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: runs upstream's helm-controller"]
async fn a_release_of_real_helm_controller_is_taken_over_without_a_new_revision() {
    let cluster = Cluster::real().await.unwrap();
    let mut flux = start(&cluster).await;
    flux.stop().await;
    let chart = chart("1.0.0")
        .file("templates/NOTES.txt", "Thank you for <installing> & enjoying {{ .Release.Name }}\n")
        .file(
            "templates/hook.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\n    helm.sh/hook-weight: \"3\"\n",
        );
    publish(&flux, "app", &chart).await;
    let repository = ChartRepository::start().unwrap();
    repository.add(&chart).unwrap();
    let url = format!("{}/{}", repository.url(), chart.file_name());
    let patch = json!({ "status": { "artifact": { "url": url } } });
    flux.api(&HELM_CHART).patch_status("app", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let patch = "[{\"op\": \"add\", \"path\": \"/data/more\", \"value\": \"<&>\"}]";
    let with = spec(json!({
        "values": {
            "value": "one", "number": 3, "share": 0.25, "large": 12_345_678_901_i64, "on": true, "nothing": null,
            "list": [1, "two", { "three": 3 }], "text": "line\nline\n", "y": "yes", "quoted": "007", "empty": {},
        },
        "postRenderers": [{ "kustomize": { "patches": [{ "target": { "kind": "ConfigMap", "name": "web" }, "patch": patch }] } }],
        "commonMetadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } },
    }));
    flux.apply(&HELM_RELEASE, "web", with).await;

    let helm = [Controller::Helm];
    let real =
        tokio::task::block_in_place(|| Upstream::start(&cluster, flux.namespace.name(), &helm)).unwrap();
    // It writes conditions before the rest of the status.
    let is_ready = |object: &kube::api::DynamicObject| {
        let object = serde_json::to_value(object).unwrap();
        let status = &object["status"];
        ready(&object).0 == "True" && status["observedGeneration"] == 1 && status["history"].is_array()
    };
    let limit = std::time::Duration::from_secs(120);
    let theirs =
        testbed::wait::until(&flux.api(&HELM_RELEASE), "web", limit, "is ready", is_ready).await.unwrap();
    let theirs = serde_json::to_value(theirs).unwrap();
    real.stop();

    flux.resume().await;
    flux.reconcile_as(&HELM_RELEASE, "web", "ours").await;
    let ours = flux
        .until(&HELM_RELEASE, "web", "was seen by us", |object| {
            object["status"]["lastHandledReconcileAt"] == "ours"
        })
        .await;
    assert_eq!(ours["status"]["history"], theirs["status"]["history"]);
    assert_eq!(ready(&ours), ready(&theirs));
    for field in [
        "observedPostRenderersDigest",
        "observedCommonMetadataDigest",
        "lastAttemptedConfigDigest",
        "inventory",
    ] {
        assert_eq!(ours["status"][field], theirs["status"][field], "{field}");
    }
    assert_eq!(records(&cluster, &flux).await, ["sh.helm.release.v1.web.v1 deployed"]);
}
