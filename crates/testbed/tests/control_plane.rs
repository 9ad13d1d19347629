//! The real control plane does what the tests of everything else rely on.

use std::process::Command;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};
use testbed::control_plane::Options;
use testbed::reference::{self, Kubernetes, Tool};
use testbed::{Cluster, wait};

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

#[tokio::test]
async fn applied_documents_arrive_in_a_namespace_of_the_test() -> Result<()> {
    let cluster = Cluster::real().await?;
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

#[tokio::test]
async fn an_unknown_field_is_refused() -> Result<()> {
    let cluster = Cluster::real().await?;
    let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: odd}, dada: {a: b}}";
    let error = cluster.apply_yaml("default", text).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("ConfigMap odd") && text.contains("dada"), "{text}");
    Ok(())
}

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

#[tokio::test]
async fn a_custom_kind_can_be_used_in_the_document_after_its_definition() -> Result<()> {
    let cluster = Cluster::real().await?;
    let namespace = cluster.namespace("custom").await?;
    let applied = cluster.apply_yaml(namespace.name(), CUSTOM).await?;
    assert_eq!(applied[1].data["spec"]["leaves"], "whole");
    let error = cluster.apply_crds(CUSTOM).await.unwrap_err().to_string();
    assert_eq!(error, "Tea green is not a CustomResourceDefinition");
    Ok(())
}

#[tokio::test]
async fn a_dropped_namespace_goes_away() -> Result<()> {
    let cluster = Cluster::real().await?;
    let namespace = cluster.namespace("short").await?;
    let name = namespace.name().to_owned();
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), &name);
    cluster.await_condition(&accounts, "default", "is there", |_| true).await?;
    drop(namespace);
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    cluster.await_gone(&namespaces, &name).await
}

#[tokio::test]
async fn a_condition_that_never_holds_shows_the_object_but_no_secret() -> Result<()> {
    let cluster = Cluster::real().await?;
    let namespace = cluster.namespace("never").await?;
    cluster.apply_yaml(namespace.name(), CONFIG).await?;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(cluster.client(), namespace.name());
    let limit = std::time::Duration::from_millis(800);
    let error = wait::until(&secrets, "garden", limit, "is open", |_| false).await.unwrap_err().to_string();
    assert!(error.contains("garden is open"), "{error}");
    assert!(error.contains("\"type\": \"Opaque\""), "{error}");
    assert!(!error.contains("\"data\""), "{error}");
    Ok(())
}

#[tokio::test]
async fn rbac_is_on_and_the_audit_log_names_who_was_impersonated() -> Result<()> {
    let cluster = Cluster::real().await?;
    let namespace = cluster.namespace("rbac").await?;
    let mark = cluster.audit_log().mark()?;
    let nobody = cluster.client_as("nobody", &["system:authenticated"]).await?;
    let configs: Api<ConfigMap> = Api::namespaced(nobody, namespace.name());
    let error = configs.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 403), "{error}");

    let entries = cluster.audit_log().since(mark)?;
    let refused = entries
        .iter()
        .find(|entry| entry.impersonated_user.is_some())
        .context("the request is in the audit log")?;
    assert_eq!(refused.verb, "list");
    let object = refused.object_ref.as_ref().context("object")?;
    assert_eq!(object.namespace, namespace.name());
    assert_eq!(refused.user.username, "admin");
    let impersonated = refused.impersonated_user.as_ref().context("impersonated")?;
    assert_eq!(impersonated.username, "nobody");
    assert_eq!(refused.response_status.as_ref().context("status")?.code, 403);
    Ok(())
}

#[tokio::test]
async fn kubectl_speaks_to_it() -> Result<()> {
    let cluster = Cluster::real().await?;
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

#[tokio::test]
async fn objects_survive_a_restart_of_the_older_api_server_without_streaming_lists() -> Result<()> {
    let options = Options { version: Kubernetes::V1_35, streaming_lists: false, controller_manager: false };
    let cluster = Cluster::start(options).await?;
    assert_eq!(cluster.client().apiserver_version().await?.minor, "35");
    let refused = streaming_list(&cluster).await;
    assert!(refused.contains("sendInitialEvents"), "{refused}");

    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let config = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}}))?;
    let made = configs.create(&PostParams::default(), &config).await?;
    cluster.control_plane().restart_api_server().await?;
    let found = cluster.await_condition(&configs, "kept", "is there", |_| true).await?;
    assert_eq!(found.metadata.uid, made.metadata.uid);
    Ok(())
}

#[tokio::test]
async fn streaming_lists_are_on_unless_switched_off() -> Result<()> {
    let cluster = Cluster::real().await?;
    let answer = streaming_list(&cluster).await;
    assert!(answer.contains("k8s.io/initial-events-end"), "{answer}");
    Ok(())
}

/// Asks for a list as a watch that ends at once, and returns what the server said.
async fn streaming_list(cluster: &Cluster) -> String {
    let url = "/api/v1/namespaces?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
               &resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let request = http::Request::get(url).body(Vec::new()).expect("a valid request");
    match cluster.client().request_text(request).await {
        Ok(text) => text,
        Err(error) => error.to_string(),
    }
}
