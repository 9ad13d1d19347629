//! Kustomization: in which order things go, what may not go at once, and what a target namespace may not do.

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::Cluster;
use testbed::git_server::Change;

use crate::flux::{Flux, condition, ready};
use crate::kustomization::{applied, config_map, config_maps, push, spec, start};

crate::stories!(
    an_account_stays_until_the_child_that_acts_as_it_is_gone,
    a_dependency_goes_after_those_that_depend_on_it,
    a_prune_of_too_much_at_once_is_held_where_that_was_asked_for,
    whoever_waits_for_a_dependency_holds_up_no_prune_of_others,
    a_target_namespace_that_would_swallow_namespaces_is_refused,
    a_broken_set_of_the_system_itself_writes_nothing_and_the_fix_is_taken,
);

const RIGHTS: &str = "\
apiVersion: v1
kind: ServiceAccount
metadata: {name: deployer}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: deployer}
rules: [{apiGroups: [''], resources: [configmaps], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: deployer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer}
subjects: [{kind: ServiceAccount, name: deployer}]
";

fn child(flux: &Flux, name: &str, extra: &str) -> String {
    let namespace = flux.namespace.name();
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}}}\nspec:\n  interval: 1h\n  \
         retryInterval: 1s\n  prune: true\n  path: {name}\n  targetNamespace: {namespace}\n  \
         sourceRef: {{kind: GitRepository, name: fleet}}\n{extra}"
    )
}

async fn an_account_stays_until_the_child_that_acts_as_it_is_gone(cluster: &Cluster) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let tenant = child(&flux, "tenant", "  serviceAccountName: deployer\n");
    push(
        &flux,
        &[
            ("root/rights.yaml", RIGHTS),
            ("root/tenant.yaml", &tenant),
            ("tenant/a.yaml", &config_map("a", "x")),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "root", spec(&flux, "root", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "tenant").await;
    assert!(config_maps(cluster, &flux).get_opt("a").await.unwrap().is_some());
    flux.api(&KUSTOMIZATION).delete("root", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "root").await.unwrap();
    // With the account gone first, what the child applied would have been left behind.
    assert!(flux.api(&KUSTOMIZATION).get_opt("tenant").await.unwrap().is_none());
    assert!(config_maps(cluster, &flux).get_opt("a").await.unwrap().is_none());
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), flux.namespace.name());
    assert!(accounts.get_opt("deployer").await.unwrap().is_none());
}

async fn a_dependency_goes_after_those_that_depend_on_it(cluster: &Cluster) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let apps = child(&flux, "apps", "  dependsOn: [{name: infra}]\n");
    push(
        &flux,
        &[
            ("root/infra.yaml", &child(&flux, "infra", "")),
            ("root/apps.yaml", &apps),
            ("infra/a.yaml", &config_map("a", "x")),
            ("apps/b.yaml", &config_map("b", "x")),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "root", spec(&flux, "root", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    // Whatever holds up the dependent holds up the dependency.
    let hold = json!({ "metadata": { "finalizers": ["finalizers.fluxcd.io", "story.example.org/hold"] } });
    flux.api(&KUSTOMIZATION).patch("apps", &PatchParams::default(), &Patch::Merge(hold)).await.unwrap();
    flux.api(&KUSTOMIZATION).delete("root", &DeleteParams::default()).await.unwrap();
    flux.until(&KUSTOMIZATION, "apps", "is done with its objects", |object| {
        object["metadata"]["finalizers"] == json!(["story.example.org/hold"])
    })
    .await;
    let maps = config_maps(cluster, &flux);
    assert!(maps.get_opt("b").await.unwrap().is_none());
    assert!(flux.api(&KUSTOMIZATION).get_opt("infra").await.unwrap().is_some());
    assert!(maps.get_opt("a").await.unwrap().is_some(), "the dependency is torn down under its dependents");
    let free = json!({ "metadata": { "finalizers": null } });
    flux.api(&KUSTOMIZATION).patch("apps", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "root").await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

async fn a_prune_of_too_much_at_once_is_held_where_that_was_asked_for(cluster: &Cluster) {
    let maps: Vec<(String, String)> =
        (0..4).map(|n| (format!("apps/{n}.yaml"), config_map(&format!("m{n}"), "x"))).collect();
    let files: Vec<(&str, &str)> = maps.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let flux = start(cluster, &files).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    let brake = json!({ "metadata": { "annotations": { "fluxcd.rs/prune-brake": "50%" } } });
    flux.api(&KUSTOMIZATION).patch("apps", &PatchParams::default(), &Patch::Merge(brake)).await.unwrap();
    flux.ready(&KUSTOMIZATION, "apps").await;
    let commit = |removed: &[&str]| {
        let changes: Vec<Change<'_>> = removed.iter().map(|path| Change::Remove(path)).collect();
        flux.fleet.commit_to("main", "fewer", &changes).unwrap()
    };
    // One of four may go.
    let revision = commit(&["apps/3.yaml"]);
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    applied(&flux, "apps", &revision).await;
    let live = config_maps(cluster, &flux);
    assert!(live.get_opt("m3").await.unwrap().is_none());
    // Two of three may not.
    let revision = commit(&["apps/1.yaml", "apps/2.yaml"]);
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let object = applied(&flux, "apps", &revision).await;
    let held = condition(&object, "PruneHeld").2.to_owned();
    assert!(held.contains("2 of 3 objects would go, and more than 50% are held"), "{held}");
    assert!(live.get_opt("m1").await.unwrap().is_some() && live.get_opt("m2").await.unwrap().is_some());
    let plan = held.split("fluxcd.rs/release-prune: ").nth(1).unwrap().split(',').next().unwrap();
    let release = json!({ "metadata": { "annotations": { "fluxcd.rs/release-prune": plan } } });
    flux.api(&KUSTOMIZATION).patch("apps", &PatchParams::default(), &Patch::Merge(release)).await.unwrap();
    flux.reconcile(&KUSTOMIZATION, "apps").await;
    flux.until(&KUSTOMIZATION, "apps", "holds nothing", |object| {
        condition(object, "PruneHeld").0.is_empty()
            && object["status"]["inventory"]["entries"].as_array().is_some_and(|entries| entries.len() == 1)
    })
    .await;
    assert!(live.get_opt("m1").await.unwrap().is_none() && live.get_opt("m2").await.unwrap().is_none());
}

async fn whoever_waits_for_a_dependency_holds_up_no_prune_of_others(cluster: &Cluster) {
    let moved = config_map("moved", "x");
    let flux = start(
        cluster,
        &[
            ("one/a.yaml", &config_map("a", "x")),
            ("one/gone.yaml", &config_map("gone", "x")),
            ("one/moved.yaml", &moved),
            ("stuck/b.yaml", &config_map("b", "x")),
        ],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "one", spec(&flux, "one", json!({}))).await;
    let depends = json!({ "dependsOn": [{ "name": "never" }] });
    flux.apply(&KUSTOMIZATION, "stuck", spec(&flux, "stuck", depends)).await;
    flux.ready(&KUSTOMIZATION, "one").await;
    flux.not_ready(&KUSTOMIZATION, "stuck", "DependencyNotReady").await;
    let started = std::time::Instant::now();
    let revision = flux.fleet.commit_to("main", "drop", &[Change::Remove("one/gone.yaml")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    applied(&flux, "one", &revision).await;
    let maps = config_maps(cluster, &flux);
    cluster.await_gone(&maps, "gone").await.unwrap();
    assert!(
        started.elapsed().as_secs() < 60,
        "the prune waited {:?} for somebody who wants none of it",
        started.elapsed()
    );
    // What the one that waits is going to take over is not deleted, though.
    let uid = maps.get("moved").await.unwrap().metadata.uid;
    let changes = [Change::Remove("one/moved.yaml"), Change::Write("stuck/moved.yaml", &moved)];
    let revision = flux.fleet.commit_to("main", "move", &changes).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    applied(&flux, "one", &revision).await;
    flux.apply(&KUSTOMIZATION, "stuck", spec(&flux, "stuck", json!({}))).await;
    applied(&flux, "stuck", &revision).await;
    flux.until(&KUSTOMIZATION, "one", "has let it go", |object| {
        object["status"]["inventory"]["entries"].as_array().is_some_and(|entries| entries.len() == 1)
    })
    .await;
    assert_eq!(maps.get("moved").await.unwrap().metadata.uid, uid);
}

async fn a_target_namespace_that_would_swallow_namespaces_is_refused(cluster: &Cluster) {
    let namespace = |name: &str| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
    let flux = start(
        cluster,
        &[
            ("one/ns.yaml", &namespace("web")),
            ("two/ns.yaml", &format!("{}---\n{}", namespace("web"), namespace("db"))),
        ],
    )
    .await;
    let into = |target: &str, path: &str| spec(&flux, path, json!({ "targetNamespace": target }));
    flux.apply(&KUSTOMIZATION, "system", into("kube-system", "one")).await;
    let object = flux.not_ready(&KUSTOMIZATION, "system", "BuildFailed").await;
    assert!(
        ready(&object).2.contains("renames the Namespace 'web' to 'kube-system'"),
        "{}",
        ready(&object).2
    );
    flux.apply(&KUSTOMIZATION, "both", into("swallowed", "two")).await;
    let object = flux.not_ready(&KUSTOMIZATION, "both", "BuildFailed").await;
    println!("{}", ready(&object).2);
    // A plain rename is done, and told.
    let target = format!("{}-renamed", flux.namespace.name());
    flux.apply(&KUSTOMIZATION, "plain", into(&target, "one")).await;
    flux.ready(&KUSTOMIZATION, "plain").await;
    flux.told("plain", &format!("renames the Namespace 'web' to '{target}'")).await;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    assert!(namespaces.get_opt(&target).await.unwrap().is_some());
    flux.api(&KUSTOMIZATION).delete("plain", &DeleteParams::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "plain").await.unwrap();
}

/// A CRD of the toolkit and a Deployment of it stand in different stages: without the guard the first would be written.
async fn a_broken_set_of_the_system_itself_writes_nothing_and_the_fix_is_taken(cluster: &Cluster) {
    let flux = start(cluster, &[("README.md", "x")]).await;
    let group = format!("{}.toolkit.fluxcd.io", flux.namespace.name());
    let name = format!("things.{group}");
    let components = |note: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {name}, annotations: {{note: {note}}}}}\n\
             spec:\n  group: {group}\n  scope: Namespaced\n  names: {{kind: Thing, plural: things, singular: thing, listKind: ThingList}}\n  \
             versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]\n---\n\
             apiVersion: {group}/v1\nkind: Thing\nmetadata: {{name: first}}\n"
        )
    };
    let widget = "apiVersion: example.org/v1\nkind: Nothing\nmetadata: {name: x}\n";
    push(&flux, &[("system/all.yaml", &components("one"))]).await;
    flux.apply(&KUSTOMIZATION, "system", spec(&flux, "system", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "system").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let note = || async {
        let definition = definitions.get(&name).await.unwrap();
        definition.metadata.annotations.unwrap_or_default().get("note").cloned().unwrap_or_default()
    };
    assert_eq!(note().await, "one");
    push(&flux, &[("system/all.yaml", &components("two")), ("system/bad.yaml", widget)]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "system", "ReconciliationFailed").await;
    assert!(ready(&object).2.contains("Nothing"), "{}", ready(&object).2);
    assert_eq!(note().await, "one", "half of a broken set was written");
    let revision = flux.fleet.commit_to("main", "fix", &[Change::Remove("system/bad.yaml")]).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    applied(&flux, "system", &revision).await;
    assert_eq!(note().await, "two");
    definitions.delete(&name, &DeleteParams::default()).await.unwrap();
}
