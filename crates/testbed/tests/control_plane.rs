//! The real control plane does what the tests of everything else rely on.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use testbed::Cluster;
use testbed::control_plane::Options;
use testbed::reference::Kubernetes;

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
async fn objects_survive_a_restart_of_the_older_api_server_without_streaming_lists() -> Result<()> {
    let options = Options {
        version: Kubernetes::V1_35,
        streaming_lists: false,
        controller_manager: false,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    assert_eq!(cluster.client().apiserver_version().await?.minor, "35");
    let refused = streaming_list(&cluster).await;
    assert!(refused.contains("sendInitialEvents"), "{refused}");

    let configs: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let config = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}}))?;
    let made = configs.create(&PostParams::default(), &config).await?;
    cluster.control_plane()?.restart_api_server().await?;
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
