//! The `default` ServiceAccount and the cluster's CA that every namespace gets.

use std::sync::Arc;

use serde_json::json;

use crate::rest::{Call, create};
use crate::server::Inner;

const MANAGER: &str = "kube-controller-manager";

/// Makes sure that the namespace has them.
pub async fn ensure(server: &Arc<Inner>, namespace: &str) {
    let registry = server.registry();
    let Some(resource) = registry.find("", "v1", "serviceaccounts") else { return };
    let call = Call::internal(server, resource, namespace, "default", MANAGER);
    if call.stored().is_ok() {
        return;
    }
    let account = json!({ "kind": "ServiceAccount", "apiVersion": "v1", "metadata": { "name": "default", "namespace": namespace } });
    if let Err(status) = create::create(&call, account).await {
        tracing::debug!(namespace, reason = status.reason, "default service account not made");
    }
}
