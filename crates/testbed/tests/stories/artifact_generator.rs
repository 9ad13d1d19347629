//! ArtifactGenerator: files of sources become artifacts that others consume.

use std::time::Duration;

use flux_api::kinds::{ARTIFACT_GENERATOR, Controller, EXTERNAL_ARTIFACT, GIT_REPOSITORY, KUSTOMIZATION};
use flux_controllers::manager::ManagerOptions;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::repository::Change;

use crate::flux::{Flux, ready};

crate::stories!(
    a_part_of_a_repository_becomes_an_artifact_and_follows_it,
    each_folder_of_a_pattern_gets_an_artifact_of_its_own,
    what_is_wrong_with_a_generator_is_said_on_it,
    a_lost_file_and_a_deleted_object_are_made_again,
    an_artifact_has_the_revision_and_the_metadata_it_is_told_to_have,
    an_annotation_disables_a_generator,
    files_of_several_sources_are_merged_and_overwritten_into_several_artifacts,
    a_source_that_never_comes_is_given_up_in_time,
);

const ALL: &[Controller] = &[Controller::Source, Controller::Kustomize, Controller::SourceWatcher];

fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: {value}\n")
}

fn generator(artifacts: Value) -> Value {
    json!({ "sources": [{ "alias": "fleet", "kind": "GitRepository", "name": "fleet" }], "artifacts": artifacts })
}

fn copy(name: &str, from: &str) -> Value {
    json!({ "name": name, "originRevision": "@fleet", "copy": [{ "from": from, "to": "@artifact/" }] })
}

async fn start(cluster: &Cluster, files: &[(&str, &str)]) -> Flux {
    let open_gate = |options: &mut ManagerOptions| options.kustomize.gates.external_artifact = true;
    let flux = Flux::start_with(cluster, ALL, open_gate).await;
    flux.fleet.commit("first", files).unwrap();
    flux.git_repository("fleet").await;
    flux
}

async fn a_part_of_a_repository_becomes_an_artifact_and_follows_it(cluster: &Cluster) {
    let flux =
        start(cluster, &[("apps/a.yaml", &config_map("a", "one")), ("other/b.yaml", &config_map("b", "x"))])
            .await;
    flux.apply(&ARTIFACT_GENERATOR, "parts", generator(json!([copy("apps", "@fleet/apps/**")]))).await;
    let object = flux.ready(&ARTIFACT_GENERATOR, "parts").await;
    let message = "reconciliation succeeded, generated 1 artifact(s)";
    assert_eq!(ready(&object), ("True", "Succeeded", message));
    let published = flux.ready(&EXTERNAL_ARTIFACT, "apps").await;
    let artifact = &published["status"]["artifact"];
    let commit = flux.fleet.resolve("main").unwrap();
    let digest = artifact["digest"].as_str().unwrap();
    assert_eq!(artifact["revision"], format!("latest@{digest}"));
    assert_eq!(artifact["metadata"]["org.opencontainers.image.revision"], format!("main@sha1:{commit}"));
    assert_eq!(published["metadata"]["labels"]["app.kubernetes.io/managed-by"], "source-watcher");
    assert_eq!(published["spec"]["sourceRef"]["kind"], "ArtifactGenerator");

    let namespace = flux.namespace.name();
    let spec = json!({
        "interval": "1h", "retryInterval": "1s", "prune": true, "path": "./", "targetNamespace": namespace,
        "sourceRef": { "kind": "ExternalArtifact", "name": "apps" },
    });
    flux.apply(&KUSTOMIZATION, "apps", spec).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace);
    assert!(maps.get("a").await.is_ok() && maps.get_opt("b").await.unwrap().is_none());

    flux.fleet.commit("next", &[("apps/a.yaml", &config_map("a", "two"))]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let applied =
        |object: &Value| object["status"]["lastAppliedRevision"] != format!("latest@{digest}").as_str();
    flux.until(&KUSTOMIZATION, "apps", "has applied another artifact", applied).await;
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["key"], "two");

    // The generator takes along what it made.
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..Default::default() };
    flux.api(&ARTIFACT_GENERATOR).delete("parts", &foreground).await.unwrap();
    cluster.await_gone(&flux.api(&ARTIFACT_GENERATOR), "parts").await.unwrap();
    cluster.await_gone(&flux.api(&EXTERNAL_ARTIFACT), "apps").await.unwrap();
}

async fn each_folder_of_a_pattern_gets_an_artifact_of_its_own(cluster: &Cluster) {
    let flux = start(
        cluster,
        &[
            ("apps/Web/a.yaml", &config_map("a", "1")),
            ("apps/api/a.yaml", &config_map("a", "2")),
            ("x.yaml", ""),
        ],
    )
    .await;
    let mut spec = generator(json!([copy("app-{app}", "@fleet/apps/{app}/**")]));
    spec["pathPattern"] = json!("@fleet/apps/{app}");
    flux.apply(&ARTIFACT_GENERATOR, "each", spec).await;
    let object = flux.ready(&ARTIFACT_GENERATOR, "each").await;
    let made: Vec<&str> = object["status"]["inventory"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(made, ["app-web", "app-api"]);
    let web = flux.ready(&EXTERNAL_ARTIFACT, "app-web").await;
    assert_eq!(web["metadata"]["labels"]["app"], "web");

    // A folder that goes takes its artifact along.
    flux.fleet.commit_to("main", "gone", &[Change::Remove("apps/api/a.yaml")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    cluster.await_gone(&flux.api(&EXTERNAL_ARTIFACT), "app-api").await.unwrap();
}

async fn what_is_wrong_with_a_generator_is_said_on_it(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&ARTIFACT_GENERATOR, "wrong", generator(json!([copy("apps", "@fleet/nowhere/**")]))).await;
    let object = flux.not_ready(&ARTIFACT_GENERATOR, "wrong", "BuildFailed").await;
    let message = ready(&object).2;
    assert!(message.starts_with("apps build failed: ") && message.contains("no files match"), "{message}");

    let mut spec = generator(json!([copy("apps", "@fleet/apps")]));
    spec["sources"] = json!([{ "alias": "fleet", "kind": "OCIRepository", "name": "nobody" }]);
    flux.apply(&ARTIFACT_GENERATOR, "waits", spec).await;
    let object = flux.not_ready(&ARTIFACT_GENERATOR, "waits", "SourceFetchFailed").await;
    assert!(ready(&object).2.contains("\"nobody\" not found"), "{object}");

    let twice = json!([copy("apps", "@fleet/apps"), copy("apps", "@fleet/apps")]);
    flux.apply(&ARTIFACT_GENERATOR, "twice", generator(twice)).await;
    let object = flux.not_ready(&ARTIFACT_GENERATOR, "twice", "ValidationFailed").await;
    assert_eq!(ready(&object).2, "duplicate artifact name 'apps' found");
    let stalled =
        object["status"]["conditions"].as_array().unwrap().iter().any(|one| one["type"] == "Stalled");
    assert!(stalled, "{object}");
}

async fn a_lost_file_and_a_deleted_object_are_made_again(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&ARTIFACT_GENERATOR, "parts", generator(json!([copy("apps", "@fleet/apps/**")]))).await;
    let object = flux.ready(&ARTIFACT_GENERATOR, "parts").await;
    let file = object["status"]["inventory"][0]["filename"].as_str().unwrap().to_owned();
    let path = flux.storage().join("externalartifact").join(flux.namespace.name()).join("apps").join(file);
    std::fs::remove_file(&path).unwrap();
    flux.reconcile_as(&ARTIFACT_GENERATOR, "parts", "again").await;
    let handled =
        |object: &Value| object["status"]["lastHandledReconcileAt"] == "again" && ready(object).0 == "True";
    flux.until(&ARTIFACT_GENERATOR, "parts", "has looked again", handled).await;
    assert!(path.exists(), "the file was not made again");

    let first = flux.ready(&EXTERNAL_ARTIFACT, "apps").await;
    flux.api(&EXTERNAL_ARTIFACT).delete("apps", &DeleteParams::default()).await.unwrap();
    let again =
        |object: &Value| object["metadata"]["uid"] != first["metadata"]["uid"] && ready(object).0 == "True";
    flux.until(&EXTERNAL_ARTIFACT, "apps", "is there again", again).await;
}

async fn an_artifact_has_the_revision_and_the_metadata_it_is_told_to_have(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/web/a.yaml", &config_map("a", "one"))]).await;
    let commit = flux.fleet.resolve("main").unwrap();
    // Named like the alias of its source: upstream would put all files of the source into it.
    let mut artifact = copy("fleet", "@fleet/apps/{app}/**");
    artifact["revision"] = json!("@fleet");
    let mut spec = generator(json!([artifact]));
    spec["pathPattern"] = json!("@fleet/apps/{app}");
    spec["commonMetadata"] = json!({
        "labels": { "team": "a", "app": "common", "app.kubernetes.io/managed-by": "common" },
        "annotations": { "note": "hello" },
    });
    flux.apply(&ARTIFACT_GENERATOR, "parts", spec.clone()).await;
    flux.ready(&ARTIFACT_GENERATOR, "parts").await;
    let published = flux.ready(&EXTERNAL_ARTIFACT, "fleet").await;
    let revision = format!("main@sha1:{commit}");
    assert_eq!(published["status"]["artifact"]["revision"], revision);
    let metadata = &published["metadata"];
    // Captures win over common labels, and the two of the generator over all.
    assert_eq!((&metadata["labels"]["team"], &metadata["labels"]["app"]), (&json!("a"), &json!("web")));
    assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "source-watcher");
    assert_eq!(metadata["annotations"]["note"], "hello");
    assert_eq!(published["metadata"].get("ownerReferences"), None);
    let files = crate::sources::files(&published).await;
    assert_eq!(files.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["a.yaml"]);

    // Metadata that is no longer wished for goes.
    spec.as_object_mut().unwrap().remove("commonMetadata");
    flux.apply(&ARTIFACT_GENERATOR, "parts", spec).await;
    let bare = |object: &Value| object["metadata"]["labels"].get("team").is_none();
    let published = flux.until(&EXTERNAL_ARTIFACT, "fleet", "has no common metadata", bare).await;
    assert_eq!(published["metadata"].get("annotations"), None);

    // Two aliases that are not there.
    let mut unknown = copy("other", "@fleet/apps/**");
    unknown["revision"] = json!("@nobody");
    flux.apply(&ARTIFACT_GENERATOR, "unknown", generator(json!([unknown]))).await;
    let object = flux.not_ready(&ARTIFACT_GENERATOR, "unknown", "ValidationFailed").await;
    assert!(ready(&object).2.contains("nobody"), "{}", ready(&object).2);
}

async fn an_annotation_disables_a_generator(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    let annotated = |value: &str| {
        let spec = generator(json!([copy("apps", "@fleet/apps/**")]));
        let object = json!({
            "apiVersion": ARTIFACT_GENERATOR.api_version(), "kind": ARTIFACT_GENERATOR.kind,
            "metadata": { "name": "parts", "annotations": { "source.extensions.fluxcd.io/reconcile": value } },
            "spec": spec,
        });
        let api = flux.api(&ARTIFACT_GENERATOR);
        async move {
            let parameters = kube::api::PatchParams::apply("story").force();
            api.patch("parts", &parameters, &kube::api::Patch::Apply(object)).await.unwrap();
        }
    };
    // The case does not matter.
    annotated("Disabled").await;
    let object = flux.ready(&ARTIFACT_GENERATOR, "parts").await;
    let message = "Initialized with reconciliation suspended";
    assert_eq!(ready(&object), ("True", "ReconciliationDisabled", message));
    flux.reconcile_as(&ARTIFACT_GENERATOR, "parts", "now").await;
    let handled = |object: &Value| object["status"]["lastHandledReconcileAt"] == "now";
    flux.until(&ARTIFACT_GENERATOR, "parts", "has noted the request", handled).await;
    assert!(flux.api(&EXTERNAL_ARTIFACT).get_opt("apps").await.unwrap().is_none(), "nothing was made");

    annotated("enabled").await;
    let made = |object: &Value| ready(object).1 == "Succeeded";
    flux.until(&ARTIFACT_GENERATOR, "parts", "made its artifact", made).await;
    let first = flux.ready(&EXTERNAL_ARTIFACT, "apps").await["status"]["artifact"]["digest"].clone();

    // Disabled later, it keeps what it made and makes nothing new.
    annotated("disabled").await;
    flux.fleet.commit("next", &[("apps/a.yaml", &config_map("a", "two"))]).unwrap();
    let source = flux.fleet.resolve("main").unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let fetched = |object: &Value| object["status"]["artifact"]["revision"] == format!("main@sha1:{source}");
    flux.until(&GIT_REPOSITORY, "fleet", "has fetched", fetched).await;
    flux.reconcile_as(&ARTIFACT_GENERATOR, "parts", "later").await;
    let handled = |object: &Value| object["status"]["lastHandledReconcileAt"] == "later";
    let object = flux.until(&ARTIFACT_GENERATOR, "parts", "has noted the request", handled).await;
    assert_eq!(ready(&object).1, "Succeeded", "Ready stays what it was");
    assert_eq!(flux.ready(&EXTERNAL_ARTIFACT, "apps").await["status"]["artifact"]["digest"], first);
    flux.event("parts", "ReconciliationDisabled", "Reconciliation is disabled").await;
    annotated("enabled").await;
    let newer = |object: &Value| object["status"]["artifact"]["digest"] != first;
    flux.until(&EXTERNAL_ARTIFACT, "apps", "is made again", newer).await;
}

async fn files_of_several_sources_are_merged_and_overwritten_into_several_artifacts(cluster: &Cluster) {
    let base = "image:\n  tag: v1\n  name: web\nargs: [a, b]\n";
    let flux = start(cluster, &[("chart/values.yaml", base), ("chart/Chart.yaml", "name: x\n")]).await;
    let other = flux.server.create("overlay").unwrap();
    other
        .commit("first", &[("prod.yaml", "image:\n  tag: v2\nargs: [c]\n"), ("dev.yaml", "debug: true\n")])
        .unwrap();
    let spec =
        json!({ "url": flux.server.http_url("overlay"), "interval": "1h", "ref": { "branch": "main" } });
    flux.apply(&GIT_REPOSITORY, "overlay", spec).await;
    let made = |name: &str, from: &str, strategy: &str| {
        json!({ "name": name, "copy": [
            { "from": "@fleet/chart/**", "to": "@artifact/", "exclude": ["*.md"] },
            { "from": from, "to": "@artifact/values.yaml", "strategy": strategy },
        ] })
    };
    let spec = json!({
        "sources": [
            { "alias": "fleet", "kind": "GitRepository", "name": "fleet" },
            { "alias": "overlay", "kind": "GitRepository", "name": "overlay" },
        ],
        "artifacts": [made("prod", "@overlay/prod.yaml", "Merge"), made("dev", "@overlay/dev.yaml", "Overwrite")],
    });
    flux.apply(&ARTIFACT_GENERATOR, "charts", spec).await;
    let object = flux.ready(&ARTIFACT_GENERATOR, "charts").await;
    let inventory = object["status"]["inventory"].as_array().unwrap();
    assert_eq!(inventory.len(), 2);
    assert!(object["status"]["observedSourcesDigest"].as_str().unwrap().starts_with("sha256:"));
    let values = async |name: &str| {
        let published = flux.ready(&EXTERNAL_ARTIFACT, name).await;
        let files = crate::sources::files(&published).await;
        assert_eq!(files.len(), 2, "{files:?}");
        files.into_iter().find(|(path, _)| path == "values.yaml").unwrap().1
    };
    assert_eq!(values("prod").await, "args:\n- c\nimage:\n  name: web\n  tag: v2\n");
    assert_eq!(values("dev").await, "debug: true\n");
    let digest = inventory[0]["digest"].as_str().unwrap();
    let line = format!("{}/prod ({digest})", flux.namespace.name());
    flux.event("charts", "Ready", &format!("external artifacts reconciled: {line}")).await;

    // One source moves: what both are made of is built again, and the event tells of what changed only.
    other.commit("next", &[("dev.yaml", "debug: false\n")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "overlay").await;
    let digest = |object: &Value, at: usize| object["status"]["inventory"][at]["digest"].clone();
    let before = digest(&object, 1);
    let after = flux
        .until(&ARTIFACT_GENERATOR, "charts", "made another dev", |object| {
            digest(object, 1) != before && ready(object).0 == "True"
        })
        .await;
    assert_eq!(digest(&after, 0), digest(&object, 0), "what did not change keeps its digest");
    let changed = after["status"]["inventory"][1]["digest"].as_str().unwrap();
    let line = format!("external artifacts reconciled: {}/dev ({changed})", flux.namespace.name());
    flux.event("charts", "Ready", &line).await;
}

async fn a_source_that_never_comes_is_given_up_in_time(cluster: &Cluster) {
    let hurry = |options: &mut ManagerOptions| {
        options.watcher.reconciliation_timeout = Duration::from_millis(300);
    };
    let flux = Flux::start_with(cluster, &[Controller::SourceWatcher], hurry).await;
    // It takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    flux.git_repository("fleet").await;
    let artifact = json!({
        "path": "gitrepository/x/fleet/1.tar.gz", "revision": "main@sha1:1", "lastUpdateTime": "2026-01-01T00:00:00Z",
        "url": format!("http://{}/1.tar.gz", silent.local_addr().unwrap()),
        "digest": format!("sha256:{}", "0".repeat(64)),
    });
    let status = Patch::Merge(json!({ "status": { "artifact": artifact } }));
    flux.api(&GIT_REPOSITORY).patch_status("fleet", &PatchParams::default(), &status).await.unwrap();
    flux.apply(&ARTIFACT_GENERATOR, "parts", generator(json!([copy("apps", "@fleet/apps/**")]))).await;
    // Before the source is seen it is another problem.
    let object = flux
        .until(&ARTIFACT_GENERATOR, "parts", "gave up", |object| {
            ready(object).2.starts_with("fetch sources failed")
        })
        .await;
    assert_eq!(ready(&object), ("False", "SourceFetchFailed", "fetch sources failed: not done within 300ms"));
}
