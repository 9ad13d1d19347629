//! Kustomization: what it waits for, in CEL, across kinds, and never in a circle.

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::{Flux, condition, ready};
use crate::kustomization::{BOTH, config_map, spec, start};

crate::stories!(
    an_expression_decides_whether_a_dependency_is_ready,
    a_dependency_that_cannot_be_judged_is_tried_again,
    an_expression_that_cannot_be_compiled_stalls_the_object,
    a_circle_is_named_on_every_member_and_the_others_go_on,
    a_dependency_may_be_of_another_kind,
);

crate::parity!(
    a_dependency_that_cannot_be_judged_is_tried_again,
    an_expression_decides_whether_a_dependency_is_ready,
    an_expression_that_cannot_be_compiled_stalls_the_object,
);

async fn an_expression_decides_whether_a_dependency_is_ready(cluster: &Cluster) {
    let flux = start(
        cluster,
        &[("infra/a.yaml", &config_map("a", "one")), ("apps/b.yaml", &config_map("b", "one"))],
    )
    .await;
    flux.apply(&KUSTOMIZATION, "infra", spec(&flux, "infra", json!({}))).await;
    flux.ready(&KUSTOMIZATION, "infra").await;
    let expression =
        "dep.metadata.?labels['stage'].orValue('') == self.metadata.?labels['stage'].orValue('none')";
    let depends = json!({ "dependsOn": [{ "name": "infra", "readyExpr": expression }] });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", depends)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "DependencyNotReady").await;
    let namespace = flux.namespace.name();
    assert_eq!(
        ready(&object).2,
        format!("dependency '{namespace}/infra' is not ready according to readyExpr eval")
    );
    flux.told("apps", "Dependencies do not meet ready condition, retrying in 30s").await;
    // The usual checks are skipped: a suspended and never applied dependency satisfies an expression.
    let depends = json!({ "dependsOn": [{ "name": "idle", "readyExpr": "dep.spec.suspend" }] });
    flux.apply(&KUSTOMIZATION, "idle", spec(&flux, "infra", json!({ "suspend": true }))).await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", depends)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
}

async fn a_dependency_that_cannot_be_judged_is_tried_again(cluster: &Cluster) {
    let flux = Flux::start_with(cluster, BOTH, |options| {
        options.kustomize.requeue_dependency = std::time::Duration::from_secs(1);
        options.kustomize.gates.additive_cel_dependency_check = true;
    })
    .await;
    let files = [("infra/a.yaml", &*config_map("a", "one")), ("apps/b.yaml", &*config_map("b", "one"))];
    flux.fleet.commit("first", &files).unwrap();
    flux.git_repository("fleet").await;
    let on = |name: &str, expression: Option<&str>| {
        let mut dependency = json!({ "name": name });
        if let Some(expression) = expression {
            dependency["readyExpr"] = json!(expression);
        }
        spec(&flux, "apps", json!({ "dependsOn": [dependency] }))
    };
    let namespace = flux.namespace.name();
    let waits = async |text: &str| {
        let says = |object: &Value| ready(object).1 == "DependencyNotReady" && ready(object).2.contains(text);
        let what = format!("waits with '{text}'");
        let object = flux.until(&KUSTOMIZATION, "apps", &what, says).await;
        assert_eq!(condition(&object, "Stalled"), ("", "", ""), "{text}");
    };
    flux.apply(&KUSTOMIZATION, "apps", on("infra", None)).await;
    let server = "kustomizations.kustomize.toolkit.fluxcd.io \"infra\" not found";
    waits(&format!("dependency '{namespace}/infra' not found: {server}")).await;
    // With the gate an expression is asked besides the usual checks, not instead of them.
    flux.apply(&KUSTOMIZATION, "infra", spec(&flux, "infra", json!({ "suspend": true }))).await;
    flux.apply(&KUSTOMIZATION, "apps", on("infra", Some("true"))).await;
    waits(&format!("dependency '{namespace}/infra' is not ready")).await;
    // What fails when it runs may work the next time.
    flux.apply(&KUSTOMIZATION, "apps", on("infra", Some("dep.metadata.labels['stage'] == 'done'"))).await;
    waits("failed to evaluate the CEL expression").await;
    let labels = json!({ "stage": "done" });
    flux.apply_labelled(&KUSTOMIZATION, "infra", spec(&flux, "infra", json!({})), labels).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
}

async fn an_expression_that_cannot_be_compiled_stalls_the_object(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/b.yaml", &config_map("b", "one"))]).await;
    for (name, expression) in [("syntax", "dep.status. =="), ("type", "'text'"), ("unknown", "nobody.status")]
    {
        let depends = json!({ "dependsOn": [{ "name": "infra", "readyExpr": expression }] });
        flux.apply(&KUSTOMIZATION, name, spec(&flux, "apps", depends)).await;
        let object = flux.not_ready(&KUSTOMIZATION, name, "InvalidCELExpression").await;
        let prefix = "Reconciliation failed terminally due to configuration error: failed to evaluate dependency infra: ";
        assert!(ready(&object).2.starts_with(prefix), "{}", ready(&object).2);
        assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
    }
    let checks = json!({ "wait": true, "healthCheckExprs": [
        { "apiVersion": "v1", "kind": "ConfigMap", "current": "true" },
        { "apiVersion": "v1", "kind": "ConfigMap", "current": "false" },
    ]});
    flux.apply(&KUSTOMIZATION, "twice", spec(&flux, "apps", checks)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "twice", "InvalidCELExpression").await;
    assert!(
        ready(&object).2.contains("duplicate custom health check for GroupKind ConfigMap"),
        "{}",
        ready(&object).2
    );
}

async fn a_circle_is_named_on_every_member_and_the_others_go_on(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    let on = |name: &str| json!({ "dependsOn": [{ "name": name }], "prune": false });
    flux.apply(&KUSTOMIZATION, "free", spec(&flux, "apps", json!({ "prune": false }))).await;
    flux.apply(&KUSTOMIZATION, "a", spec(&flux, "apps", on("b"))).await;
    flux.apply(&KUSTOMIZATION, "b", spec(&flux, "apps", on("c"))).await;
    flux.apply(&KUSTOMIZATION, "c", spec(&flux, "apps", on("a"))).await;
    for (name, circle) in [("a", "a → b → c → a"), ("b", "b → c → a → b"), ("c", "c → a → b → c")]
    {
        let object = flux.not_ready(&KUSTOMIZATION, name, "DependencyCycle").await;
        assert!(ready(&object).2.contains(circle), "{}", ready(&object).2);
    }
    flux.ready(&KUSTOMIZATION, "free").await;
    flux.apply(&KUSTOMIZATION, "c", spec(&flux, "apps", json!({ "prune": false, "dependsOn": [] }))).await;
    for name in ["c", "b", "a"] {
        flux.ready(&KUSTOMIZATION, name).await;
    }
}

async fn a_dependency_may_be_of_another_kind(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/a.yaml", &config_map("a", "one"))]).await;
    let depends = json!({ "dependsOn": [{ "kind": "GitRepository", "name": "second" }] });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", depends)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "apps", "DependencyNotReady").await;
    assert!(ready(&object).2.contains("dependency 'GitRepository/"), "{}", ready(&object).2);
    let started = std::time::Instant::now();
    flux.git_repository("second").await;
    flux.ready(&GIT_REPOSITORY, "second").await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert!(started.elapsed().as_secs() < 20, "it was not woken: {:?}", started.elapsed());
}
