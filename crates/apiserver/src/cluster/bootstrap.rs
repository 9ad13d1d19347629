//! What every cluster starts with: namespaces, default roles and bindings, priority classes, flow schemas.
//!
//! The roles are those a real kube-apiserver 1.36 writes, recorded by `examples/record-kinds.rs`.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::object;
use crate::rest::{Call, create};
use crate::server::{Error, Inner};

const MANAGER: &str = "kube-apiserver";
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Writes what is missing; what is there was perhaps changed by the administrator and stays.
pub async fn run(server: &Arc<Inner>) -> Result<(), Error> {
    for name in NAMESPACES {
        ensure(server, json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": name } }))
            .await?;
    }
    ensure(server, own_service()).await?;
    for line in include_str!("bootstrap.jsonl").lines() {
        let object: Value = serde_json::from_str(line).map_err(|e| Error::Bootstrap(e.to_string()))?;
        ensure(server, object).await?;
    }
    Ok(())
}

/// The Service under which the API server itself is found.
fn own_service() -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" },
        },
        "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443, "targetPort": 6443 }] },
    })
}

async fn ensure(server: &Arc<Inner>, object: Value) -> Result<(), Error> {
    let registry = server.registry();
    let resource = registry.by_kind(object::text(&object, "/apiVersion"), object::text(&object, "/kind"));
    let Some(resource) = resource else { return Ok(()) };
    let call = Call::internal(server, resource, object::namespace(&object), object::name(&object), MANAGER);
    if call.stored().is_ok() {
        return Ok(());
    }
    match create::create(&call, object).await {
        Ok(_) => Ok(()),
        Err(status) if status.reason == "AlreadyExists" => Ok(()),
        Err(status) => Err(Error::Bootstrap(status.message)),
    }
}
