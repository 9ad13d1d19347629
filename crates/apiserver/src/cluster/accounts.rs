//! The `default` ServiceAccount and the cluster's CA that every namespace gets, and gets back when they are deleted.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::rest::update::{Managers, change};
use crate::rest::{Call, create};
use crate::server::Inner;
use crate::status::Status;

const MANAGER: &str = "kube-controller-manager";
/// The ConfigMap that holds the CA; pods have it mounted beside their token.
pub const ROOT_CA: &str = "kube-root-ca.crt";

/// Makes sure that the namespace has them.
pub async fn ensure(server: &Arc<Inner>, namespace: &str) {
    let outcome = ensure_account(server, namespace).await;
    let outcome = outcome.and(ensure_root_ca(server, namespace).await);
    if let Err(status) = outcome {
        // The namespace may be on its way out.
        tracing::debug!(namespace, reason = status.reason, "namespace not furnished");
    }
}

async fn ensure_account(server: &Arc<Inner>, namespace: &str) -> Result<(), Status> {
    let registry = server.registry();
    let Some(resource) = registry.find("", "v1", "serviceaccounts") else { return Ok(()) };
    let call = Call::internal(server, resource, namespace, "default", MANAGER);
    if call.stored().is_ok() {
        return Ok(());
    }
    let account = json!({ "kind": "ServiceAccount", "apiVersion": "v1", "metadata": { "name": "default", "namespace": namespace } });
    create::create(&call, account).await?;
    Ok(())
}

async fn ensure_root_ca(server: &Arc<Inner>, namespace: &str) -> Result<(), Status> {
    let registry = server.registry();
    let (Some(resource), Some(ca)) = (registry.find("", "v1", "configmaps"), &server.root_ca) else {
        return Ok(());
    };
    let call = Call::internal(server, resource, namespace, ROOT_CA, MANAGER);
    let data = json!({ "ca.crt": ca });
    match call.stored() {
        Ok(stored) if stored.value()["data"] == data => {}
        Ok(_) => {
            let restore = |old: &Value| {
                let mut new = old.clone();
                new["data"] = data.clone();
                Ok(new)
            };
            change(&call, Managers::Update, restore).await?;
        }
        Err(_) => {
            let about = "The certificate authority of the API server, for clients inside the cluster.";
            let map = json!({
                "kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {
                    "name": ROOT_CA, "namespace": namespace,
                    "annotations": { "kubernetes.io/description": about },
                },
                "data": data,
            });
            create::create(&call, map).await?;
        }
    }
    Ok(())
}
