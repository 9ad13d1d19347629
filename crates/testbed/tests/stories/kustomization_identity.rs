//! Kustomization: whose rights it has, and where it applies to.

use flux_api::kinds::KUSTOMIZATION;
use serde_json::json;
use testbed::Cluster;
use testbed::control_plane::audit::{Entry, ObjectReference};
use testbed::git_server::Change;

use crate::flux::{Flux, ready};
use crate::kustomization::{BOTH, config_map, config_maps, spec, start, value};

crate::parity_stories!(
    an_account_that_is_blank_or_missing_is_refused,
    a_tenant_does_what_its_account_may_and_no_more,
    with_a_default_account_nobody_acts_as_the_controller,
    a_kubeconfig_in_a_secret_leads_to_another_cluster,
    references_across_namespaces_can_be_blocked,
);

async fn an_account_that_is_blank_or_missing_is_refused(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    for (name, account, text) in [
        ("blank", " ", "spec.serviceAccountName is blank"),
        ("missing", "nobody", "/nobody' to act as does not exist"),
    ] {
        flux.apply(&KUSTOMIZATION, name, spec(&flux, "apps", json!({ "serviceAccountName": account }))).await;
        let object = flux.not_ready(&KUSTOMIZATION, name, "ReconciliationFailed").await;
        assert!(ready(&object).2.contains(text), "{}", ready(&object).2);
    }
    assert!(config_maps(cluster, &flux).get_opt("a").await.unwrap().is_none());
}

/// An account that may look after ConfigMaps called `a` and list nothing.
async fn tenant(cluster: &Cluster, namespace: &str) {
    let text = format!(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: tenant}}\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: tenant}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [get, create, patch, delete]}}]\n---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: tenant}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}\n\
         subjects: [{{kind: ServiceAccount, name: tenant, namespace: {namespace}}}]\n"
    );
    cluster.apply_yaml(namespace, &text).await.unwrap();
}

async fn a_tenant_does_what_its_account_may_and_no_more(cluster: &Cluster) {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: stolen}\n";
    let flux = start(
        cluster,
        &[
            ("apps/a.yaml", &config_map("a", "one")),
            ("evil/s.yaml", secret),
            ("evil/a.yaml", &config_map("b", "x")),
        ],
    )
    .await;
    let namespace = flux.namespace.name();
    tenant(cluster, namespace).await;
    let account = json!({ "serviceAccountName": "tenant" });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", account.clone())).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    flux.apply(&KUSTOMIZATION, "evil", spec(&flux, "evil", account)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "evil", "ReconciliationFailed").await;
    assert!(
        ready(&object).2.contains("Secret/") && ready(&object).2.contains("Forbidden"),
        "{}",
        ready(&object).2
    );
    assert!(
        config_maps(cluster, &flux).get_opt("b").await.unwrap().is_none(),
        "the stage was refused as a whole"
    );
}

/// On the real server only: the embedded one does not write down who read what.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_touches_nothing_outside_its_rights_in_any_stage() {
    let cluster = Cluster::real().await.unwrap();
    let evil = "apiVersion: v1\nkind: Namespace\nmetadata: {name: stolen}\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: stolen}\nrules: []\n";
    let elsewhere = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stolen, namespace: kube-system}\n";
    let mut flux = start(
        &cluster,
        &[
            ("apps/a.yaml", &config_map("a", "one")),
            ("apps/b.yaml", &config_map("b", "one")),
            ("evil/all.yaml", evil),
            ("elsewhere/all.yaml", elsewhere),
        ],
    )
    .await;
    let namespace = flux.namespace.name().to_owned();
    tenant(&cluster, &namespace).await;
    flux.stop().await;
    flux.through(testbed::trouble::named(&cluster.client(), "tenant-story"));
    flux.resume().await;
    flux.through(cluster.client());
    let mark = cluster.audit_log().mark().unwrap();
    let with = |extra: serde_json::Value| {
        let mut all = json!({ "serviceAccountName": "tenant" });
        all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        all
    };
    // Install, upgrade, prune, health and deletion, all within its rights.
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", with(json!({ "wait": true })))).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let changes = [Change::Write("apps/a.yaml", &config_map("a", "two")), Change::Remove("apps/b.yaml")];
    let commit = flux.fleet.commit_to("main", "second", &changes).unwrap();
    flux.reconcile(&flux_api::kinds::GIT_REPOSITORY, "fleet").await;
    crate::kustomization::applied(&flux, "apps", &commit).await;
    // And what it may not, in every way there is to ask.
    let mut anywhere = spec(&flux, "evil", with(json!({})));
    anywhere.as_object_mut().unwrap().remove("targetNamespace");
    flux.apply(&KUSTOMIZATION, "evil", anywhere.clone()).await;
    anywhere["path"] = json!("elsewhere");
    flux.apply(&KUSTOMIZATION, "elsewhere", anywhere).await;
    let peek = with(
        json!({ "dependsOn": [{ "apiVersion": "v1", "kind": "Secret", "name": "x", "namespace": "kube-system" }] }),
    );
    flux.apply(&KUSTOMIZATION, "peek", spec(&flux, "apps", peek)).await;
    flux.not_ready(&KUSTOMIZATION, "evil", "ReconciliationFailed").await;
    flux.not_ready(&KUSTOMIZATION, "elsewhere", "ReconciliationFailed").await;
    flux.not_ready(&KUSTOMIZATION, "peek", "DependencyNotReady").await;
    // One that waits may still take something over, and deletions would wait for it.
    flux.api(&KUSTOMIZATION).delete("peek", &Default::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "peek").await.unwrap();
    flux.api(&KUSTOMIZATION).delete("apps", &Default::default()).await.unwrap();
    cluster.await_gone(&flux.api(&KUSTOMIZATION), "apps").await.unwrap();
    flux.stop().await;
    let account = format!("system:serviceaccount:{namespace}:tenant");
    let mut seen = 0;
    for entry in cluster.audit_log().since(mark).unwrap() {
        let Some(object) = &entry.object_ref else { continue };
        if entry.user_agent.as_deref() != Some("tenant-story") || is_the_controllers_own(&entry, object) {
            continue;
        }
        let user = entry.impersonated_user.as_ref().map(|user| user.username.as_str());
        assert_eq!(user, Some(account.as_str()), "not as the tenant: {entry:?}");
        let allowed =
            entry.response_status.as_ref().is_some_and(|status| status.code < 400 || status.code == 404);
        assert!(!allowed || (object.namespace == namespace && object.resource == "configmaps"), "{entry:?}");
        seen += 1;
    }
    assert!(seen >= 15, "only {seen} requests of the tenant were seen");
}

/// Flux's objects and events, the look at the account, and the watch of ConfigMaps and Secrets by their metadata.
fn is_the_controllers_own(entry: &Entry, object: &ObjectReference) -> bool {
    object.api_group.ends_with("toolkit.fluxcd.io")
        || object.resource == "events"
        || (object.resource == "serviceaccounts" && entry.verb == "get")
        || (matches!(object.resource.as_str(), "configmaps" | "secrets")
            && matches!(entry.verb.as_str(), "list" | "watch"))
}

async fn with_a_default_account_nobody_acts_as_the_controller(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, BOTH, |options| {
        options.kustomize.default_service_account = Some("tenant".to_owned());
    })
    .await;
    flux.fleet.commit("first", &[("apps/a.yaml", &config_map("a", "one"))]).unwrap();
    flux.git_repository("fleet").await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    flux.not_ready(&KUSTOMIZATION, "apps", "ReconciliationFailed").await;
    tenant(cluster, flux.namespace.name()).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
}

async fn a_kubeconfig_in_a_secret_leads_to_another_cluster(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "remote"))]).await;
    let namespace = flux.namespace.name();
    let file = std::fs::read_to_string(cluster.kubeconfig_path()).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file)
        .or_else(|_| serde_saphyr::from_str::<serde_json::Value>(&file).map_err(|_| ()))
        .unwrap();
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "remote" },
        "stringData": { "value": file.to_string(), "exec": "users: [{name: u, user: {exec: {command: sh}}}]" } });
    cluster.apply_yaml(namespace, &secret.to_string()).await.unwrap();
    let remote =
        |key: Option<&str>| json!({ "kubeConfig": { "secretRef": { "name": "remote", "key": key } } });
    flux.apply(
        &KUSTOMIZATION,
        "apps",
        spec(&flux, "apps", json!({ "kubeConfig": { "secretRef": { "name": "remote" } } })),
    )
    .await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(value(&config_maps(cluster, &flux).get("a").await.unwrap()), "remote");
    flux.apply(&KUSTOMIZATION, "exec", spec(&flux, "apps", remote(Some("exec")))).await;
    let object = flux.not_ready(&KUSTOMIZATION, "exec", "ReconciliationFailed").await;
    assert!(ready(&object).2.contains("runs a program (exec)"), "{}", ready(&object).2);
    let missing = json!({ "kubeConfig": { "secretRef": { "name": "nothing" } } });
    flux.apply(&KUSTOMIZATION, "missing", spec(&flux, "apps", missing)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "missing", "ReconciliationFailed").await;
    assert!(ready(&object).2.contains("secrets \"nothing\" not found"), "{}", ready(&object).2);
}

async fn references_across_namespaces_can_be_blocked(cluster: &Cluster) {
    let flux =
        Flux::start_with(cluster, BOTH, |options| options.kustomize.no_cross_namespace_refs = true).await;
    let foreign =
        json!({ "sourceRef": { "kind": "GitRepository", "name": "fleet", "namespace": "elsewhere" } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", foreign)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "AccessDenied").await;
    let text = "can't access 'GitRepository/elsewhere/fleet', cross-namespace references have been blocked";
    assert_eq!(ready(&object).2, text);
    let external = json!({ "sourceRef": { "kind": "ExternalArtifact", "name": "fleet" } });
    flux.apply(&KUSTOMIZATION, "external", spec(&flux, "apps", external)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "external", "AccessDenied").await;
    assert!(ready(&object).2.ends_with("ExternalArtifact feature gate is disabled"), "{}", ready(&object).2);
}
