//! What every story may rely on, on both kinds of cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::Api;
use kube::api::ListParams;
use testbed::reference::{self, Kubernetes, Tool};
use testbed::{Cluster, wait};

testbed::stories! {
    applied_documents_arrive_in_a_namespace_of_the_test,
    an_unknown_field_is_refused,
    a_custom_kind_can_be_used_in_the_document_after_its_definition,
    a_dropped_namespace_goes_away,
    a_condition_that_never_holds_shows_the_object_but_no_secret,
    someone_without_rights_is_refused,
    a_write_is_in_the_audit_log_with_who_was_impersonated,
    kubectl_speaks_to_it,
}

const CONFIG: &str = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: colours
data:
  sky: blue
---
# An empty document is no object.
---
apiVersion: v1
kind: Secret
metadata:
  name: garden
stringData:
  key: under the mat
";

const CUSTOM: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teas.example.com}
spec:
  group: example.com
  names: {kind: Tea, plural: teas}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {leaves: {type: string}}}
---
apiVersion: example.com/v1
kind: Tea
metadata: {name: green}
spec: {leaves: whole}
";

async fn applied_documents_arrive_in_a_namespace_of_the_test(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("apply").await?;
    let applied = cluster.apply_yaml(namespace.name(), CONFIG).await?;
    assert_eq!(applied.len(), 2);

    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace.name());
    let found = cluster
        .await_condition(&configs, "colours", "is blue", |config| {
            config.data.as_ref().is_some_and(|data| data["sky"] == "blue")
        })
        .await?;
    let managers = found.metadata.managed_fields.context("managed fields")?;
    assert_eq!(managers[0].manager.as_deref(), Some("testbed"));
    Ok(())
}

async fn an_unknown_field_is_refused(cluster: &Cluster) -> Result<()> {
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: odd}, dada: {a: b}}";
    let error = cluster.apply_yaml("default", text).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("ConfigMap odd") && text.contains("dada"), "{text}");
    Ok(())
}

async fn a_custom_kind_can_be_used_in_the_document_after_its_definition(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("custom").await?;
    let applied = cluster.apply_yaml(namespace.name(), CUSTOM).await?;
    assert_eq!(applied[1].data["spec"]["leaves"], "whole");
    let error = cluster.apply_crds(CUSTOM).await.unwrap_err().to_string();
    assert_eq!(error, "Tea green is not a CustomResourceDefinition");
    Ok(())
}

async fn a_dropped_namespace_goes_away(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("short").await?;
    let name = namespace.name().to_owned();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), &name);
    cluster.await_condition(&accounts, "default", "is there", |_| true).await?;
    drop(namespace);
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    cluster.await_gone(&namespaces, &name).await
}

async fn a_condition_that_never_holds_shows_the_object_but_no_secret(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("never").await?;
    cluster.apply_yaml(namespace.name(), CONFIG).await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace.name());
    let limit = std::time::Duration::from_millis(800);
    let error = wait::until(&secrets, "garden", limit, "is open", |_| false).await.unwrap_err().to_string();
    assert!(error.contains("garden is open"), "{error}");
    assert!(error.contains("\"type\": \"Opaque\""), "{error}");
    assert!(!error.contains("\"data\""), "{error}");
    Ok(())
}

async fn kubectl_speaks_to_it(cluster: &Cluster) -> Result<()> {
    let kubectl =
        tokio::task::spawn_blocking(|| reference::binary(Tool::Kubernetes(Kubernetes::V1_36), "kubectl"))
            .await??;
    let output = Command::new(kubectl)
        .args(["get", "namespace", "kube-system", "-o", "name"])
        .env("KUBECONFIG", cluster.kubeconfig_path())
        .output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "namespace/kube-system\n");
    Ok(())
}

async fn someone_without_rights_is_refused(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("rights").await?;
    let nobody = cluster.client_as("nobody", &["system:authenticated"]).await?;
    let configs: Api<ConfigMap> = Api::namespaced(nobody, namespace.name());
    let error = configs.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{error}");
    Ok(())
}

async fn a_write_is_in_the_audit_log_with_who_was_impersonated(cluster: &Cluster) -> Result<()> {
    let namespace = cluster.namespace("audit").await?;
    let mark = cluster.audit_log().mark()?;
    let boss = cluster.client_as("boss", &["system:masters", "system:authenticated"]).await?;
    let configs: Api<ConfigMap> = Api::namespaced(boss, namespace.name());
    let config = serde_json::from_value(serde_json::json!({"metadata": {"name": "order"}}))?;
    configs.create(&kube::api::PostParams::default(), &config).await?;
    let entries = cluster.audit_log().since(mark)?;
    let by_boss = |entry: &&testbed::control_plane::audit::Entry| {
        entry.impersonated_user.as_ref().is_some_and(|user| user.username == "boss")
    };
    let entry = entries.iter().find(by_boss).context("the request is in the audit log")?;
    let object = entry.object_ref.as_ref().context("object")?;
    assert_eq!((entry.verb.as_str(), object.namespace.as_str()), ("create", namespace.name()));
    assert_eq!(entry.response_status.as_ref().context("status")?.code, 201);
    Ok(())
}
