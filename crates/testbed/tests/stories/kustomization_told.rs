//! Kustomization: what is told in events, what is not, and what is counted.

use flux_api::kinds::{EXTERNAL_ARTIFACT, GIT_REPOSITORY, KUSTOMIZATION};
use kube::api::Patch;
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::{Flux, condition, ready};
use crate::kustomization::{BOTH, applied, config_map, config_maps, push, spec, start};

crate::parity_stories!(
    a_source_that_is_not_there_yet_makes_no_noise,
    every_run_tells_what_it_did_and_that_it_is_done,
    what_refuses_to_go_is_told_and_tried_again,
    a_wait_that_ends_for_something_newer_is_told_with_its_gate,
    logins_to_other_clusters_are_counted,
);

async fn a_source_that_is_not_there_yet_makes_no_noise(cluster: &Cluster) {
    let flux =
        Flux::start_with(cluster, BOTH, |options| options.kustomize.gates.external_artifact = true).await;
    flux.fleet.commit("first", &[("apps/a.yaml", &config_map("a", "one"))]).unwrap();
    let says = async |text: &str| {
        let what = format!("says '{text}'");
        flux.until(&KUSTOMIZATION, "apps", &what, |object| ready(object).2 == text).await
    };
    let source = json!({ "sourceRef": { "kind": "ExternalArtifact", "name": "made" } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", source)).await;
    says("ExternalArtifact.source.toolkit.fluxcd.io \"made\" not found").await;
    flux.apply(&EXTERNAL_ARTIFACT, "made", json!({})).await;
    says("Source artifact not found, retrying in 30s").await;
    let publish = async |artifact: &Value| {
        let status = Patch::Merge(json!({ "status": { "artifact": artifact } }));
        flux.api(&EXTERNAL_ARTIFACT).patch_status("made", &Default::default(), &status).await.unwrap();
    };
    flux.git_repository("fleet").await;
    let mut artifact = flux.ready(&GIT_REPOSITORY, "fleet").await["status"]["artifact"].clone();
    artifact["path"] = json!("elsewhere/a.tar.gz");
    let mut gone = artifact.clone();
    gone["digest"] = json!(format!("sha256:{}", "0".repeat(64)));
    gone["url"] = json!(format!("{}.gone", artifact["url"].as_str().unwrap()));
    gone["revision"] = json!("gone@sha256:0");
    publish(&gone).await;
    let object = says("Source is not ready, artifact not found, retrying in 30s").await;
    assert_eq!(ready(&object).1, "ArtifactFailed");
    publish(&artifact).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    // By now everything that was told stands among the events.
    flux.told("apps", "Reconciliation finished in ").await;
    let events = flux.events("apps").await;
    assert!(events.iter().all(|(reason, _)| reason != "ArtifactFailed"), "{events:?}");
}

async fn every_run_tells_what_it_did_and_that_it_is_done(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({}))).await;
    let commit = flux.fleet.resolve("main").unwrap();
    applied(&flux, "apps", &commit).await;
    let created = format!("ConfigMap/{}/a created", flux.namespace.name());
    let told = flux.told("apps", &created).await;
    assert_eq!((told.message.as_deref(), told.reason.as_deref()), (Some(&*created), Some("Progressing")));
    let done = flux.told("apps", "Reconciliation finished in ").await;
    assert!(done.message.as_deref().is_some_and(|text| text.ends_with(", next run in 1h0m0s")), "{done:?}");
    assert_eq!(done.reason.as_deref(), Some("ReconciliationSucceeded"));
    assert_eq!(done.type_.as_deref(), Some("Normal"));
    let annotations = done.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["kustomize.toolkit.fluxcd.io/commit_status"], "update");
    assert_eq!(annotations["kustomize.toolkit.fluxcd.io/revision"], format!("main@sha1:{commit}"));
    // A run that fails says why, and the generation counts as observed only when one succeeded.
    push(&flux, &[("apps/broken.yaml", "kind: [1\n")]).await;
    let broken = flux.not_ready(&KUSTOMIZATION, "apps", "BuildFailed").await;
    assert_eq!(condition(&broken, "Reconciling").1, "ProgressingWithRetry");
    let warned = flux.told("apps", "apps/broken.yaml").await;
    assert_eq!((warned.reason.as_deref(), warned.type_.as_deref()), (Some("BuildFailed"), Some("Warning")));
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "timeout": "2m" }))).await;
    let failed = |object: &Value| {
        let ready = object["status"]["conditions"].as_array().into_iter().flatten();
        let ready = ready.into_iter().find(|one| one["type"] == "Ready");
        ready.is_some_and(|ready| ready["status"] == "False" && ready["observedGeneration"] == 2)
    };
    let object = flux.until(&KUSTOMIZATION, "apps", "failed with its new spec", failed).await;
    assert_eq!(object["status"]["observedGeneration"], 1);
}

async fn what_refuses_to_go_is_told_and_tried_again(cluster: &Cluster) {
    let both = format!("{}---\n{}", config_map("a", "one"), config_map("b", "one"));
    let flux = start(cluster, &[("apps/all.yaml", &both)]).await;
    let namespace = flux.namespace.name();
    let account = |verbs: &str| {
        format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: tenant}}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: tenant}}\n\
             rules: [{{apiGroups: [''], resources: [configmaps], verbs: [{verbs}]}}]\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: tenant}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}}\n\
             subjects: [{{kind: ServiceAccount, name: tenant, namespace: {namespace}}}]\n"
        )
    };
    cluster.apply_yaml(namespace, &account("get, create, patch")).await.unwrap();
    // What variables come from is read with the controller's rights, not with the tenant's.
    flux.secret("variables", &[("UNUSED", "x")]).await;
    let tenant = json!({
        "serviceAccountName": "tenant",
        "postBuild": { "substituteFrom": [{ "kind": "Secret", "name": "variables" }] },
    });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", tenant)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    push(&flux, &[("apps/all.yaml", &config_map("a", "one"))]).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "PruneFailed").await;
    let start = format!("delete failed, errors: ConfigMap/{namespace}/b delete failed: ");
    assert!(ready(&object).2.starts_with(&start), "{}", ready(&object).2);
    let history = &object["status"]["history"];
    assert_eq!(history[0]["lastReconciledStatus"], "PruneFailed", "{history}");
    let id = format!("{namespace}_b__ConfigMap");
    let entries = object["status"]["inventory"]["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["id"] == id), "it is not forgotten: {entries:?}");
    cluster.apply_yaml(namespace, &account("get, create, patch, delete")).await.unwrap();
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert!(config_maps(cluster, &flux).get_opt("b").await.unwrap().is_none());
}

async fn a_wait_that_ends_for_something_newer_is_told_with_its_gate(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, BOTH, |options| {
        options.kustomize.gates.cancel_health_check_on_new_revision = true;
    })
    .await;
    flux.fleet.commit("first", &[("apps/a.yaml", &config_map("a", "never"))]).unwrap();
    flux.git_repository("fleet").await;
    let checks = json!({ "wait": true, "timeout": "10m", "healthCheckExprs": [{
        "apiVersion": "v1", "kind": "ConfigMap", "current": "data.key == 'good'",
    }]});
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", checks)).await;
    let revision = format!("main@sha1:{}", flux.fleet.resolve("main").unwrap());
    let waiting = flux
        .until(&KUSTOMIZATION, "apps", "waits for health", |object| {
            condition(object, "Healthy").0 == "Unknown"
        })
        .await;
    let message = format!("Running health checks for revision {revision} with a timeout of 10m0s");
    assert_eq!(condition(&waiting, "Healthy"), ("Unknown", "Progressing", &*message));
    assert_eq!(condition(&waiting, "Reconciling"), ("True", "Progressing", &*message));
    push(&flux, &[("apps/a.yaml", &config_map("a", "good"))]).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let trigger = format!("GitRepository/{}/fleet", flux.namespace.name());
    let text = format!("Health checks canceled due to new reconciliation triggered by {trigger}");
    let told = flux.told("apps", &text).await;
    assert_eq!(
        (told.reason.as_deref(), told.type_.as_deref()),
        (Some("HealthCheckCanceled"), Some("Normal"))
    );
}

async fn logins_to_other_clusters_are_counted(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, BOTH, |options| {
        options.kustomize.gates.object_level_workload_identity = true;
    })
    .await;
    flux.fleet.commit("first", &[("apps/a.yaml", &config_map("a", "one"))]).unwrap();
    flux.git_repository("fleet").await;
    // Nobody is there, but the way in is known.
    let login = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: tenant}\n---\n\
                 apiVersion: v1\nkind: ConfigMap\nmetadata: {name: remote}\n\
                 data: {provider: generic, address: 'https://127.0.0.1:1', serviceAccountName: tenant}\n";
    cluster.apply_yaml(flux.namespace.name(), login).await.unwrap();
    let remote = json!({ "kubeConfig": { "configMapRef": { "name": "remote" } } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", remote)).await;
    flux.not_ready(&KUSTOMIZATION, "apps", "ReconciliationFailed").await;
    let counted = |event: &str, page: &str| {
        let series = format!(
            "gotk_token_cache_events_total{{event_type=\"{event}\",kind=\"Kustomization\",name=\"apps\",namespace=\"{}\",operation=\"fetch_kubeconfig\"}} ",
            flux.namespace.name()
        );
        let line = page.lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned));
        line.and_then(|count| count.parse::<u64>().ok())
    };
    flux.reconcile_as(&KUSTOMIZATION, "apps", "once more").await;
    flux.until(&KUSTOMIZATION, "apps", "was tried again", |object| {
        object["status"]["lastHandledReconcileAt"] == "once more"
    })
    .await;
    let page = flux.manager().metrics().page();
    assert_eq!(counted("cache_miss", &page), Some(1), "{page}");
    assert!(counted("cache_hit", &page).is_some_and(|count| count >= 1), "{page}");
}
