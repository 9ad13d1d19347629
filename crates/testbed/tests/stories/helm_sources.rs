//! Where a release gets its chart: images, artifacts of others, and HelmCharts of its own; and what it says when it does not.

use flux_api::kinds::{
    Controller, EXTERNAL_ARTIFACT, HELM_CHART, HELM_RELEASE, HELM_REPOSITORY, Kind, OCI_REPOSITORY,
};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;

use crate::flux::{Flux, condition, ready};
use crate::helm_release::{chart, event, events, handled, publish, released, spec, start, value_of};

crate::stories!(
    a_chart_comes_as_an_image_and_a_moved_tag_is_released,
    an_external_artifact_is_released_where_its_gate_is_on,
    other_namespaces_are_refused_where_forbidden,
    a_release_waits_for_its_source_and_says_what_is_wrong_with_it,
    a_helm_chart_of_its_own_follows_the_spec_and_stays_when_suspended,
    a_chart_of_a_repository_is_released_by_both_controllers,
);

/// Plays the controller of `kind`: an object whose artifact is `chart`.
async fn serve(flux: &Flux, kind: &Kind, name: &str, spec: Value, chart: &Chart, revision: &str) {
    let bytes = chart.package().unwrap();
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("{}/{name}/{digest}.tgz", kind.plural);
    let file = flux.storage().join(&path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, bytes).unwrap();
    flux.apply(kind, name, spec).await;
    let generation = flux.api(kind).get(name).await.unwrap().metadata.generation;
    let status = json!({ "status": {
        "observedGeneration": generation,
        "artifact": {
            "url": format!("http://127.0.0.1:9/{path}"), "path": path, "revision": revision,
            "digest": format!("sha256:{digest}"), "lastUpdateTime": "2026-01-01T00:00:00Z",
        },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    } });
    let status = match kind.kind {
        // It has no such field.
        "ExternalArtifact" => {
            let mut status = status;
            status["status"].as_object_mut().unwrap().remove("observedGeneration");
            status
        }
        _ => status,
    };
    flux.api(kind).patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn image(flux: &Flux, chart: &Chart, revision: &str) {
    let spec = json!({ "interval": "1h", "url": "oci://nowhere.invalid/app" });
    serve(flux, &OCI_REPOSITORY, "app", spec, chart, revision).await;
}

fn digest(of: char) -> String {
    format!("sha256:{}", of.to_string().repeat(64))
}

fn from(kind: &str) -> Value {
    json!({ "interval": "1h", "chartRef": { "kind": kind, "name": "app" } })
}

async fn a_chart_comes_as_an_image_and_a_moved_tag_is_released(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let (first, second) = (digest('a'), digest('b'));
    image(&flux, &chart("1.0.0"), &format!("1.0.0@{first}")).await;
    flux.apply(&HELM_RELEASE, "web", from("OCIRepository")).await;
    let object = released(&flux, "web", 1).await;
    let status = &object["status"];
    assert_eq!(status["lastAttemptedRevision"], "1.0.0+aaaaaaaaaaaa");
    assert_eq!(status["lastAttemptedRevisionDigest"], first.as_str());
    assert_eq!(status["history"][0]["chartVersion"], "1.0.0+aaaaaaaaaaaa");
    assert_eq!(status["history"][0]["ociDigest"], first.as_str());
    let message =
        format!("Helm install succeeded for release {namespace}/web.v1 with chart app@1.0.0+aaaaaaaaaaaa");
    assert_eq!(ready(&object).2, message);
    let told = flux.told("web", &message).await;
    let about = told.metadata.annotations.unwrap_or_default();
    let of = |key: &str| about.get(&format!("helm.toolkit.fluxcd.io/{key}")).map(String::as_str);
    assert_eq!(of("revision"), Some("1.0.0+aaaaaaaaaaaa"));
    assert_eq!(of("oci-digest"), Some(first.as_str()));
    assert_eq!(of("app-version"), Some("1.0.0"));
    assert_eq!(of("token"), status["history"][0]["configDigest"].as_str());
    // The same tag, another image.
    image(&flux, &chart("1.0.0"), &format!("1.0.0@{second}")).await;
    let object = released(&flux, "web", 2).await;
    assert_eq!(object["status"]["lastAttemptedRevision"], "1.0.0+bbbbbbbbbbbb");
    assert_eq!(object["status"]["lastAttemptedRevisionDigest"], second.as_str());
    assert_eq!(object["status"]["history"][1]["ociDigest"], first.as_str());
    // A tag that promises another version than the chart has.
    image(&flux, &chart("1.0.0"), &format!("1.2.0@{}", digest('c'))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "ChartMutateError").await;
    assert_eq!(ready(&object).2, "artifact revision 1.2.0 does not match chart version 1.0.0");
    image(&flux, &chart("1.2.0"), &format!("1.2.0@{}", digest('c'))).await;
    // The same revision is no news; asking is.
    flux.reconcile(&HELM_RELEASE, "web").await;
    released(&flux, "web", 3).await;
    assert_eq!(value_of(cluster, &flux, "web", "version").await, "1.2.0+cccccccccccc");
}

async fn an_external_artifact_is_released_where_its_gate_is_on(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    flux.apply(&HELM_RELEASE, "web", from("ExternalArtifact")).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "AccessDenied").await;
    let denied =
        format!("can't access 'ExternalArtifact/{namespace}/app', ExternalArtifact feature gate is disabled");
    assert_eq!(ready(&object).2, denied);
    assert_eq!(condition(&object, "Stalled"), ("True", "AccessDenied", denied.as_str()));
    assert_eq!(condition(&object, "Reconciling").0, "");
    assert_eq!(object["status"]["observedGeneration"], 1);
    assert_eq!(event(cluster, &flux, "AccessDenied").await, denied);
    flux.stop().await;
    let gated =
        |options: &mut flux_controllers::manager::ManagerOptions| options.helm.external_artifact = true;
    let flux = Flux::start_with(cluster, &[Controller::Helm], gated).await;
    let namespace = flux.namespace.name().to_owned();
    flux.apply(&EXTERNAL_ARTIFACT, "app", json!({})).await;
    flux.apply(&HELM_RELEASE, "web", from("ExternalArtifact")).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "SourceNotReady").await;
    let waits = format!("ExternalArtifact '{namespace}/app' is not ready: does not have an artifact");
    assert_eq!(ready(&object).2, waits);
    // A version is taken as it is, a digest makes it more precise.
    serve(&flux, &EXTERNAL_ARTIFACT, "app", json!({}), &chart("1.0.0"), "1.0.0").await;
    let object = released(&flux, "web", 1).await;
    assert_eq!(object["status"]["lastAttemptedRevision"], "1.0.0");
    assert_eq!(object["status"].get("lastAttemptedRevisionDigest"), None);
    serve(&flux, &EXTERNAL_ARTIFACT, "app", json!({}), &chart("1.1.0"), &digest('d')).await;
    let object = released(&flux, "web", 2).await;
    assert_eq!(object["status"]["lastAttemptedRevision"], "1.1.0+dddddddddddd");
    // What stands before the digest need not be a version.
    let revision = format!("latest@{}", digest('e'));
    serve(&flux, &EXTERNAL_ARTIFACT, "app", json!({}), &chart("1.1.0"), &revision).await;
    let object = released(&flux, "web", 3).await;
    assert_eq!(object["status"]["lastAttemptedRevision"], "1.1.0+eeeeeeeeeeee");
}

async fn other_namespaces_are_refused_where_forbidden(cluster: &Cluster) {
    let closed =
        |options: &mut flux_controllers::manager::ManagerOptions| options.helm.no_cross_namespace_refs = true;
    let flux = Flux::start_with(cluster, &[Controller::Helm], closed).await;
    let by_reference = json!({ "interval": "1h", "chartRef": { "kind": "HelmChart", "name": "app", "namespace": "elsewhere" } });
    flux.apply(&HELM_RELEASE, "reference", by_reference).await;
    let source = json!({ "kind": "HelmRepository", "name": "charts", "namespace": "elsewhere" });
    let by_template =
        json!({ "interval": "1h", "chart": { "spec": { "chart": "app", "sourceRef": source } } });
    flux.apply(&HELM_RELEASE, "template", by_template).await;
    let own = format!("{}-template", flux.namespace.name());
    for (name, key) in [("reference", "elsewhere/app".to_owned()), ("template", format!("elsewhere/{own}"))] {
        let object = flux.not_ready(&HELM_RELEASE, name, "AccessDenied").await;
        let denied = format!("cross-namespace references are not allowed: cannot access HelmChart {key}");
        assert_eq!(ready(&object).2, denied);
        assert_eq!(condition(&object, "Stalled").1, "AccessDenied");
    }
}

async fn a_release_waits_for_its_source_and_says_what_is_wrong_with_it(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "ArtifactFailed").await;
    let missing = "could not get Source object: helmcharts.source.toolkit.fluxcd.io \"app\" not found";
    assert_eq!(ready(&object).2, missing);
    let source = json!({ "kind": "HelmRepository", "name": "none" });
    flux.apply(&HELM_CHART, "app", json!({ "chart": "app", "interval": "1h", "sourceRef": source })).await;
    flux.reconcile(&HELM_RELEASE, "web").await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "SourceNotReady").await;
    let waits = "is not ready: latest generation of object has not been reconciled";
    assert_eq!(ready(&object).2, format!("HelmChart '{namespace}/app' {waits}"));
    assert_eq!(object["status"]["observedGeneration"], -1, "nothing was reconciled yet");
    assert_eq!(condition(&object, "Reconciling"), ("True", "Progressing", "Fulfilling prerequisites"));
    assert!(flux.events("web").await.is_empty(), "waiting is not worth an event");
    // The artifact is gone from its server: whoever serves it will say what is there instead.
    let repository = ChartRepository::start().unwrap();
    let charts = flux.api(&HELM_CHART);
    let generation = charts.get("app").await.unwrap().metadata.generation;
    let point_to = async |file: &str, revision: &str| {
        let artifact = json!({ "path": "nothing/here.tgz", "url": format!("{}/{file}", repository.url()),
            "revision": revision, "digest": digest('0'), "lastUpdateTime": "2026-01-01T00:00:00Z" });
        let status = json!({ "status": { "observedGeneration": generation, "artifact": artifact } });
        charts.patch_status("app", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    };
    point_to("gone.tgz", "0.9.0").await;
    flux.until(&HELM_RELEASE, "web", "waits for the artifact", |object| {
        ready(object).2 == "Source not ready: artifact not found. Retrying in 30s"
    })
    .await;
    // It is there and something else than its digest says.
    repository.add(&chart("0.9.0")).unwrap();
    point_to(&chart("0.9.0").file_name(), "0.9.1").await;
    let text = "Could not load chart: failed to verify artifact: computed digest doesn't match";
    flux.until(&HELM_RELEASE, "web", "refuses another file", |object| ready(object).2.starts_with(text))
        .await;
    let told = event(cluster, &flux, "ArtifactFailed").await;
    assert!(told.contains("computed digest doesn't match"), "{told}");
    // A chart of an API that Helm does not install.
    let newer = Chart::new("app", "1.0.0").file("Chart.yaml", "apiVersion: v3\nname: app\nversion: 1.0.0\n");
    publish(&flux, "app", &newer).await;
    let refused = "Could not load chart: invalid chart apiVersion";
    flux.until(&HELM_RELEASE, "web", "refuses the chart's API", |object| ready(object).2 == refused).await;
    // Values are looked at before the chart is loaded.
    let missing = json!({ "valuesFrom": [{ "kind": "ConfigMap", "name": "missing" }] });
    flux.apply(&HELM_RELEASE, "web", spec(missing)).await;
    flux.not_ready(&HELM_RELEASE, "web", "ValuesError").await;
    flux.apply(&HELM_RELEASE, "web", spec(json!({}))).await;
    flux.until(&HELM_RELEASE, "web", "refuses the chart's API again", |object| ready(object).2 == refused)
        .await;
    publish(&flux, "app", &chart("1.0.1")).await;
    released(&flux, "web", 1).await;
    // A source that is in trouble and has an artifact is used all the same.
    let troubled = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "x",
        "message": "the repository is down", "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
    charts.patch_status("app", &PatchParams::default(), &Patch::Merge(troubled)).await.unwrap();
    flux.apply(&HELM_RELEASE, "web", spec(json!({ "values": { "value": "new" } }))).await;
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "value").await, "new");
}

async fn a_helm_chart_of_its_own_follows_the_spec_and_stays_when_suspended(cluster: &Cluster) {
    let flux = start(cluster).await;
    let namespace = flux.namespace.name().to_owned();
    let of = |kind: &str, version: &str, suspend: bool| {
        json!({ "interval": "1h", "suspend": suspend, "chart": {
            "metadata": { "labels": { "sharding.fluxcd.io/shard": "one" }, "annotations": { "note": "n" } },
            "spec": { "chart": "app", "version": version, "interval": "7m", "reconcileStrategy": "Revision",
                "valuesFiles": ["a.yaml"], "ignoreMissingValuesFiles": true,
                "verify": { "provider": "cosign", "secretRef": { "name": "key" } },
                "sourceRef": { "kind": kind, "name": "fleet" } } } })
    };
    let with = |version: &str, suspend: bool| of("HelmRepository", version, suspend);
    // What the API server does not take is said where it was asked for.
    flux.apply(&HELM_RELEASE, "web", of("GitRepository", "1.x", false)).await;
    let object = flux.not_ready(&HELM_RELEASE, "web", "HelmChartSyncErr").await;
    assert!(ready(&object).2.starts_with("failed to run server-side apply: "), "{}", ready(&object).2);
    assert_eq!(event(cluster, &flux, "HelmChartSyncErr").await, ready(&object).2);
    flux.apply(&HELM_RELEASE, "web", with("1.x", false)).await;
    flux.not_ready(&HELM_RELEASE, "web", "SourceNotReady").await;
    let (charts, name) = (flux.api(&HELM_CHART), format!("{namespace}-web"));
    let made = serde_json::to_value(charts.get(&name).await.unwrap()).unwrap();
    assert_eq!(
        made["spec"],
        json!({ "chart": "app", "version": "1.x", "interval": "7m0s", "reconcileStrategy": "Revision",
            "valuesFiles": ["a.yaml"], "ignoreMissingValuesFiles": true,
            "verify": { "provider": "cosign", "secretRef": { "name": "key" } },
            "sourceRef": { "kind": "HelmRepository", "name": "fleet" } })
    );
    assert_eq!(made["metadata"]["labels"]["sharding.fluxcd.io/shard"], "one");
    assert_eq!(made["metadata"]["annotations"]["note"], "n");
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "helm-controller");
    assert_eq!(made["metadata"].get("ownerReferences"), None);
    let told = event(cluster, &flux, "HelmChartCreated").await;
    assert_eq!(
        told,
        format!("Created HelmChart/{namespace}/{name} with SourceRef 'HelmRepository/{namespace}/fleet'")
    );
    flux.apply(&HELM_RELEASE, "web", with("2.x", false)).await;
    let follows = |chart: &kube::api::DynamicObject| chart.data["spec"]["version"] == "2.x";
    cluster.await_condition(&charts, &name, "follows", follows).await.unwrap();
    event(cluster, &flux, "HelmChartConfigured").await;
    // With a reference instead, nobody needs it any more.
    publish(&flux, "app", &chart("1.0.0")).await;
    let web = flux.api(&HELM_RELEASE);
    let patch = json!({ "spec": { "chart": null, "chartRef": { "kind": "HelmChart", "name": "app" } } });
    web.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let object = released(&flux, "web", 1).await;
    assert_eq!(object["status"].get("helmChart"), None);
    assert!(charts.get_opt(&name).await.unwrap().is_none());
    let told = event(cluster, &flux, "HelmChartDeleted").await;
    assert_eq!(told, format!("deleted HelmChart '{namespace}/{name}'"));
    // A release that goes while it is suspended leaves its HelmChart behind.
    flux.apply(&HELM_RELEASE, "kept", with("1.x", false)).await;
    flux.not_ready(&HELM_RELEASE, "kept", "SourceNotReady").await;
    flux.apply(&HELM_RELEASE, "kept", with("1.x", true)).await;
    web.delete("kept", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&web, "kept").await.unwrap();
    assert!(charts.get_opt(&format!("{namespace}-kept")).await.unwrap().is_some());
}

async fn a_chart_of_a_repository_is_released_by_both_controllers(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source, Controller::Helm]).await;
    let repository = ChartRepository::start().unwrap();
    repository.add(&chart("1.0.0")).unwrap();
    flux.apply(&HELM_REPOSITORY, "charts", json!({ "url": repository.url(), "interval": "1h" })).await;
    let template = json!({ "spec": { "chart": "app", "version": "1.x", "interval": "1h",
        "sourceRef": { "kind": "HelmRepository", "name": "charts" } } });
    flux.apply(&HELM_RELEASE, "web", json!({ "interval": "1h", "chart": template })).await;
    released(&flux, "web", 1).await;
    repository.add(&chart("1.1.0")).unwrap();
    flux.reconcile(&HELM_REPOSITORY, "charts").await;
    released(&flux, "web", 2).await;
    assert_eq!(value_of(cluster, &flux, "web", "version").await, "1.1.0");
    // One event for each release, none for a run that finds everything in order.
    flux.reconcile_as(&HELM_RELEASE, "web", "again").await;
    handled(&flux, "web", "again").await;
    assert_eq!(events(cluster, &flux, "InstallSucceeded").await.len(), 1);
    assert_eq!(events(cluster, &flux, "UpgradeSucceeded").await.len(), 1);
    let all: Api<Event> = Api::namespaced(cluster.client(), flux.namespace.name());
    let all = all.list(&ListParams::default()).await.unwrap();
    let about = all.iter().filter(|one| one.involved_object.kind.as_deref() == Some("HelmRelease"));
    let mut reasons: Vec<&str> = about.filter_map(|one| one.reason.as_deref()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["HelmChartCreated", "InstallSucceeded", "UpgradeSucceeded"]);
}
