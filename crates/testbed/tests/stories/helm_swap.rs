//! Real helm-controller makes a release, ours takes it over: nothing is released again.

use flux_api::kinds::{HELM_CHART, HELM_RELEASE};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::Cluster;
use testbed::chart_repository::ChartRepository;
use testbed::reference::Controller;
use testbed::upstream::Upstream;

use crate::flux::ready;
use crate::helm_release::{chart, publish, records, spec, start};

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
