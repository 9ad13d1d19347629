//! ArtifactGenerator: files of sources become artifacts that others consume.

use flux_api::kinds::{ARTIFACT_GENERATOR, Controller, EXTERNAL_ARTIFACT, GIT_REPOSITORY, KUSTOMIZATION};
use flux_controllers::manager::ManagerOptions;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::repository::Change;

use crate::flux::{Flux, ready};

crate::stories!(
    a_part_of_a_repository_becomes_an_artifact_and_follows_it,
    each_folder_of_a_pattern_gets_an_artifact_of_its_own,
    what_is_wrong_with_a_generator_is_said_on_it,
    a_lost_file_and_a_deleted_object_are_made_again,
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
