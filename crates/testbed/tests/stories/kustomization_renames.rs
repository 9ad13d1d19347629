//! Kustomization: what was renamed or split is not deleted, in whatever order the controllers hear of it; and what is held
//! back when it is.

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::git_server::Change;

use crate::flux::{Flux, condition, ready};
use crate::kustomization::{applied, config_map, config_maps, push, spec, start};

crate::stories!(
    renaming_a_folder_deletes_nothing_in_any_order,
    renaming_a_kustomization_in_git_deletes_nothing,
    splitting_a_kustomization_in_git_deletes_nothing,
    a_definition_with_instances_and_a_namespace_of_others_are_held,
    the_namespace_of_a_preview_goes_without_the_brake,
);

async fn uid(cluster: &Cluster, flux: &Flux, name: &str) -> Option<String> {
    config_maps(cluster, flux).get_opt(name).await.unwrap().and_then(|map| map.metadata.uid)
}

async fn commit(flux: &Flux, changes: &[Change<'_>]) -> String {
    let commit = flux.fleet.commit_to("main", "change", changes).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    commit
}

/// A Kustomization as a file.
fn file(flux: &Flux, name: &str, path: &str, extra: Value) -> String {
    let object = json!({
        "apiVersion": KUSTOMIZATION.api_version(), "kind": "Kustomization",
        "metadata": {"name": name}, "spec": spec(flux, path, extra),
    });
    format!("{object}\n")
}

async fn renaming_a_folder_deletes_nothing_in_any_order(cluster: &Cluster) {
    let names = ["files-first", "spec-first", "together"];
    let old = names.map(|name| (format!("old-{name}/a.yaml"), config_map(name, "x")));
    let flux = start(cluster, &old.each_ref().map(|(path, text)| (path.as_str(), text.as_str()))).await;
    let itself = |path: &str| file(&flux, "together", path, json!({}));
    push(&flux, &[("clusters/together.yaml", &itself("old-together"))]).await;
    flux.apply(&KUSTOMIZATION, "parent", spec(&flux, "clusters", json!({}))).await;
    for name in ["files-first", "spec-first"] {
        flux.apply(&KUSTOMIZATION, name, spec(&flux, &format!("old-{name}"), json!({}))).await;
    }
    let mut before = Vec::new();
    for name in names {
        flux.ready(&KUSTOMIZATION, name).await;
        before.push(uid(cluster, &flux, name).await);
    }
    // The spec names a folder that is not there yet.
    flux.apply(&KUSTOMIZATION, "spec-first", spec(&flux, "new-spec-first", json!({}))).await;
    flux.not_ready(&KUSTOMIZATION, "spec-first", "ArtifactFailed").await;
    let moved =
        names.map(|name| (format!("old-{name}/a.yaml"), format!("new-{name}/a.yaml"), config_map(name, "x")));
    let mut changes: Vec<Change<'_>> = Vec::new();
    for (from, to, text) in &moved {
        changes.extend([Change::Remove(from), Change::Write(to, text)]);
    }
    let new = itself("new-together");
    changes.push(Change::Write("clusters/together.yaml", &new));
    let revision = commit(&flux, &changes).await;
    // Its files are gone and the spec does not know where to.
    flux.not_ready(&KUSTOMIZATION, "files-first", "ArtifactFailed").await;
    flux.apply(&KUSTOMIZATION, "files-first", spec(&flux, "new-files-first", json!({}))).await;
    for (name, before) in names.iter().zip(before) {
        applied(&flux, name, &revision).await;
        assert_eq!(uid(cluster, &flux, name).await, before, "{name} was deleted on the way");
    }
}

async fn renaming_a_kustomization_in_git_deletes_nothing(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "x"))]).await;
    push(&flux, &[("clusters/old.yaml", &file(&flux, "old", "apps", json!({})))]).await;
    flux.apply(&KUSTOMIZATION, "parent", spec(&flux, "clusters", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "old").await;
    let before = uid(cluster, &flux, "a").await;
    let new = file(&flux, "new", "apps", json!({}));
    let changes = [Change::Remove("clusters/old.yaml"), Change::Write("clusters/new.yaml", &new)];
    let revision = commit(&flux, &changes).await;
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "old").await.unwrap();
    applied(&flux, "new", &revision).await;
    assert_eq!(uid(cluster, &flux, "a").await, before, "it was deleted on the way");
}

/// The half that loses the object may see the commit before its other half exists.
async fn splitting_a_kustomization_in_git_deletes_nothing(cluster: &Cluster) {
    let moved = config_map("moved", "x");
    let flux = start(cluster, &[("one/a.yaml", &config_map("a", "x")), ("one/moved.yaml", &moved)]).await;
    push(&flux, &[("clusters/one.yaml", &file(&flux, "one", "one", json!({})))]).await;
    flux.apply(&KUSTOMIZATION, "parent", spec(&flux, "clusters", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "one").await;
    let before = uid(cluster, &flux, "moved").await;
    let two = file(&flux, "two", "two", json!({}));
    let changes = [
        Change::Remove("one/moved.yaml"),
        Change::Write("two/moved.yaml", &moved),
        Change::Write("clusters/two.yaml", &two),
    ];
    let revision = commit(&flux, &changes).await;
    applied(&flux, "two", &revision).await;
    flux.until(&KUSTOMIZATION, "one", "has let it go", |object| {
        object["status"]["inventory"]["entries"].as_array().is_some_and(|entries| entries.len() == 1)
    })
    .await;
    assert_eq!(uid(cluster, &flux, "moved").await, before, "it was deleted on the way");
}

/// Without a namespace of its own for everything, which would rename Namespaces.
fn plain(path: &str) -> Value {
    json!({
        "interval": "1h", "retryInterval": "1s", "prune": true, "path": path,
        "sourceRef": {"kind": "GitRepository", "name": "fleet"},
    })
}

async fn release(flux: &Flux, name: &str, message: &str) {
    let plan = message.split("fluxcd.rs/release-prune: ").nth(1).unwrap().split(',').next().unwrap();
    assert!(
        message.contains(&format!("reconcile kustomization {name} --release-prune {plan}`")),
        "{message}"
    );
    let release = json!({ "metadata": { "annotations": { "fluxcd.rs/release-prune": plan } } });
    flux.api(&KUSTOMIZATION).patch(name, &PatchParams::default(), &Patch::Merge(release)).await.unwrap();
    flux.reconcile(&KUSTOMIZATION, name).await;
}

async fn a_definition_with_instances_and_a_namespace_of_others_are_held(cluster: &Cluster) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let own = flux.namespace.name().to_owned();
    let (group, other) = (format!("{own}.example.org"), format!("{own}-other"));
    let definition = format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.{group}}}\n\
         spec:\n  group: {group}\n  scope: Namespaced\n  names: {{kind: Thing, plural: things, singular: thing, listKind: ThingList}}\n  \
         versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]\n"
    );
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {other}}}\n");
    push(
        &flux,
        &[
            ("base/crd.yaml", &definition),
            ("base/ns.yaml", &namespace),
            ("base/a.yaml", &in_namespace("kept", &own)),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "base", plain("base")).await;
    flux.ready(&KUSTOMIZATION, "base").await;
    // Somebody else uses both.
    cluster
        .apply_yaml(&own, &format!("apiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: theirs}}\n"))
        .await
        .unwrap();
    cluster.apply_yaml(&other, &config_map("theirs", "x")).await.unwrap();
    let revision = commit(&flux, &[Change::Remove("base/crd.yaml"), Change::Remove("base/ns.yaml")]).await;
    let object = applied(&flux, "base", &revision).await;
    let held = flux
        .until(&KUSTOMIZATION, "base", "holds a prune", |object| condition(object, "PruneHeld").0 == "True")
        .await;
    assert_eq!(ready(&object).0, "True");
    let message = condition(&held, "PruneHeld").2;
    for text in [
        format!("things.{group} (there is Thing {own}/theirs)"),
        format!("Namespace/{other} (it holds ConfigMap/{other}/theirs"),
    ] {
        assert!(message.contains(&text), "{text} is not in: {message}");
    }
    let (definitions, namespaces): (Api<CustomResourceDefinition>, Api<Namespace>) =
        (Api::all(cluster.client()), Api::all(cluster.client()));
    assert!(definitions.get(&format!("things.{group}")).await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(namespaces.get(&other).await.unwrap().metadata.deletion_timestamp.is_none());
    release(&flux, "base", message).await;
    cluster.await_gone(&definitions, &format!("things.{group}")).await.unwrap();
    cluster.await_gone(&namespaces, &other).await.unwrap();
}

fn in_namespace(name: &str, namespace: &str) -> String {
    config_map(name, "x").replace("metadata:\n", &format!("metadata:\n  namespace: {namespace}\n"))
}

async fn the_namespace_of_a_preview_goes_without_the_brake(cluster: &Cluster) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let preview = format!("{}-pr-17", flux.namespace.name());
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {preview}}}\n");
    let app = in_namespace("app", &preview);
    let keep = in_namespace("keep", flux.namespace.name());
    push(
        &flux,
        &[("previews/ns.yaml", &namespace), ("previews/app.yaml", &app), ("previews/keep.yaml", &keep)],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "previews", plain("previews")).await;
    flux.ready(&KUSTOMIZATION, "previews").await;
    let gone = [Change::Remove("previews/ns.yaml"), Change::Remove("previews/app.yaml")];
    let revision = commit(&flux, &gone).await;
    let object = applied(&flux, "previews", &revision).await;
    assert_eq!(condition(&object, "PruneHeld"), ("", "", ""));
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    cluster.await_gone(&namespaces, &preview).await.unwrap();
}
