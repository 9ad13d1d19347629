//! Kustomization: what SOPS encrypted arrives decrypted, and nothing else does.

use flux_api::kinds::KUSTOMIZATION;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;
use testbed::Cluster;

use crate::flux::{Flux, ready};
use crate::kustomization::{BOTH, push, spec, start};

crate::parity_stories!(
    encrypted_secrets_and_generator_files_arrive_decrypted,
    without_a_key_the_recipients_are_named_and_without_decryption_the_secret_is_refused,
    a_file_changed_after_encryption_is_warned_about_or_refused,
    a_key_for_all_serves_those_who_name_none,
);

const KEY: &str = include_str!("sops/key.agekey");
const SECRET: &str = include_str!("sops/secret.yaml");
const TAMPERED: &str = include_str!("sops/tampered.yaml");
const GENERATORS: &str = "\
resources: [secret.yaml]
secretGenerator:
- name: generated
  envs: [login.env]
  files: [config.json]
  options: {disableNameSuffixHash: true}
";

async fn key_secret(cluster: &Cluster, namespace: &str, name: &str) {
    let key = KEY.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).unwrap();
    let text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{age.agekey: {key}}}\n"
    );
    cluster.apply_yaml(namespace, &text).await.unwrap();
}

async fn data(cluster: &Cluster, flux: &Flux, name: &str, key: &str) -> String {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let data = secrets.get(name).await.unwrap().data.unwrap();
    String::from_utf8(data[key].0.clone()).unwrap()
}

async fn encrypted_secrets_and_generator_files_arrive_decrypted(cluster: &Cluster) {
    let flux = start(
        cluster,
        &[
            ("apps/kustomization.yaml", GENERATORS),
            ("apps/secret.yaml", SECRET),
            ("apps/login.env", include_str!("sops/login.env")),
            ("apps/config.json", include_str!("sops/config.json")),
        ],
    )
    .await;
    key_secret(cluster, flux.namespace.name(), "keys").await;
    let decryption = json!({ "decryption": { "provider": "sops", "secretRef": { "name": "keys" } } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", decryption)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(data(cluster, &flux, "login", "password").await, "correct horse");
    assert_eq!(data(cluster, &flux, "generated", "USER").await, "anna");
    assert_eq!(data(cluster, &flux, "generated", "TOKEN").await, "s3cret");
    let json: serde_json::Value =
        serde_json::from_str(&data(cluster, &flux, "generated", "config.json").await).unwrap();
    assert_eq!(json, json!({"host": "db", "pass": "hunter2"}));
}

async fn without_a_key_the_recipients_are_named_and_without_decryption_the_secret_is_refused(
    cluster: &Cluster,
) {
    let flux = start(cluster, &[("apps/secret.yaml", SECRET)]).await;
    flux.apply(&KUSTOMIZATION, "plain", spec(&flux, "apps", json!({}))).await;
    let object = flux.not_ready(&KUSTOMIZATION, "plain", "ReconciliationFailed").await;
    let namespace = flux.namespace.name();
    assert_eq!(
        ready(&object).2,
        format!(
            "Secret/{namespace}/login is SOPS encrypted, configuring decryption is required for this secret to be reconciled"
        )
    );
    let decryption = json!({ "decryption": { "provider": "sops" } });
    flux.apply(&KUSTOMIZATION, "keyless", spec(&flux, "apps", decryption)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "keyless", "BuildFailed").await;
    let message = ready(&object).2;
    assert!(message.starts_with("decryption failed for 'Secret.v1.[noGrp]/login'"), "{message}");
    assert!(message.contains("age1t93u0vke60a95fzkcc04wu8e60zj47y3m8h2t54h49ryt2tarpxqf8q8la"), "{message}");
    assert!(message.contains("no identity"), "{message}");
}

async fn a_file_changed_after_encryption_is_warned_about_or_refused(cluster: &Cluster) {
    let flux = start(cluster, &[("apps/secret.yaml", TAMPERED)]).await;
    key_secret(cluster, flux.namespace.name(), "keys").await;
    let decryption = json!({ "decryption": { "provider": "sops", "secretRef": { "name": "keys" } } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", decryption.clone())).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    let told = flux.told("apps", "apps/secret.yaml was changed after it was encrypted").await;
    assert_eq!(told.type_.as_deref(), Some("Warning"));
    assert_eq!(data(cluster, &flux, "login", "password").await, "correct horse");

    let strict = Flux::start_with(cluster, BOTH, |options| options.kustomize.require_sops_mac = true).await;
    strict.fleet.commit("first", &[("apps/secret.yaml", TAMPERED)]).unwrap();
    strict.git_repository("fleet").await;
    key_secret(cluster, strict.namespace.name(), "keys").await;
    strict.apply(&KUSTOMIZATION, "apps", spec(&strict, "apps", decryption)).await;
    let object = strict.not_ready(&KUSTOMIZATION, "apps", "BuildFailed").await;
    assert!(ready(&object).2.contains("MAC mismatch"), "{}", ready(&object).2);
    push(&strict, &[("apps/secret.yaml", SECRET)]).await;
    strict.ready(&KUSTOMIZATION, "apps").await;
}

async fn a_key_for_all_serves_those_who_name_none(cluster: &Cluster) {
    let namespace = cluster.namespace("controllers").await.unwrap();
    key_secret(cluster, namespace.name(), "global").await;
    let runtime = namespace.name().to_owned();
    let flux = Flux::start_with(cluster, BOTH, move |options| {
        options.kustomize.sops_age_secret = Some("global".to_owned());
        options.kustomize.runtime_namespace = Some(runtime.clone());
    })
    .await;
    flux.fleet.commit("first", &[("apps/secret.yaml", SECRET)]).unwrap();
    flux.git_repository("fleet").await;
    let decryption = json!({ "decryption": { "provider": "sops" } });
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", decryption)).await;
    flux.ready(&KUSTOMIZATION, "apps").await;
    assert_eq!(data(cluster, &flux, "login", "password").await, "correct horse");
    // An account for key services is another matter, and needs its gate.
    let account = json!({ "decryption": { "provider": "sops", "serviceAccountName": "kms" } });
    flux.apply(&KUSTOMIZATION, "gated", spec(&flux, "apps", account)).await;
    let object = flux.not_ready(&KUSTOMIZATION, "gated", "FeatureGateDisabled").await;
    let stalled =
        object["status"]["conditions"].as_array().unwrap().iter().any(|one| one["type"] == "Stalled");
    assert!(stalled, "{object}");
}
