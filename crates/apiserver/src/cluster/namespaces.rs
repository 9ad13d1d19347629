//! Namespaces: a new one gets its service account, a deleted one is emptied and then goes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::accounts;
use crate::object;
use crate::rest::Call;
use crate::rest::delete::{DeleteOptions, delete};
use crate::server::Inner;
use crate::storage::WriteError;

const MANAGER: &str = "kube-controller-manager";

pub async fn run(server: Arc<Inner>) {
    loop {
        let name = server.controllers.namespaces.next().await;
        let Some(stored) = server.store.get("namespaces", &name) else { continue };
        if stored.deleting {
            empty(&server, &name).await;
        } else {
            accounts::ensure(&server, &name).await;
        }
    }
}

async fn empty(server: &Arc<Inner>, namespace: &str) {
    let registry = server.registry();
    let prefix = format!("{namespace}/");
    let mut left = Vec::new();
    for resource in registry.all_stored().filter(|resource| resource.namespaced()) {
        for stored in server.store.list(&resource.storage, &prefix).1 {
            if !stored.deleting {
                let call = Call::internal(server, resource, namespace, stored.name(), MANAGER);
                let options = DeleteOptions { grace_period: Some(0), ..DeleteOptions::default() };
                // Another deletion may have been faster; what is left is looked at again below.
                let _ = delete(&call, &options).await;
            }
        }
        let count = server.store.list(&resource.storage, &prefix).1.len();
        if count > 0 {
            left.push((resource.storage.to_string(), count));
        }
    }
    if left.is_empty() {
        finalize(server, namespace).await;
    } else {
        report(server, namespace, &left).await;
    }
}

/// Takes the `kubernetes` finalizer off; the namespace goes when nothing else holds it.
async fn finalize(server: &Arc<Inner>, name: &str) {
    let registry = server.registry();
    let Some(resource) = registry.find("", "v1", "namespaces") else { return };
    for _ in 0..16 {
        let Some(stored) = server.store.get("namespaces", name) else { return };
        let mut value = stored.value();
        object::child_mut(&mut value, "spec").remove("finalizers");
        let outcome = if object::finalizers(&value).is_empty() {
            let outcome = server.store.delete(&resource.storage, name, stored.revision).await;
            if let Ok(last) = &outcome {
                server.removed(resource, last);
            }
            outcome
        } else if stored.value() == value {
            return;
        } else {
            let fields = crate::strategy::field_values(resource, &value);
            server.store.update(&resource.storage, name, stored.revision, value, fields).await
        };
        match outcome {
            Err(WriteError::Raced) => tokio::time::sleep(Duration::from_millis(1)).await,
            _ => return,
        }
    }
}

/// Says in the namespace's conditions what still holds it.
async fn report(server: &Arc<Inner>, name: &str, left: &[(String, usize)]) {
    let registry = server.registry();
    let Some(resource) = registry.find("", "v1", "namespaces") else { return };
    let call = Call::internal(server, resource, "", name, MANAGER).on("status");
    let counts: Vec<String> =
        left.iter().map(|(what, count)| format!("{what} has {count} resource instances")).collect();
    let now = server.now();
    let condition = |kind: &str, status: &str, reason: &str, message: String| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now });
    let conditions = json!([
        condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".into()
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".into()
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".into()
        ),
        condition(
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", counts.join(", "))
        ),
        condition(
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining".into()
        ),
    ]);
    let same = |old: &Value| {
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().map(|c| object::text(c, "/message").to_owned()).collect()
        };
        texts(&old["status"]["conditions"]) == texts(&conditions)
    };
    let outcome = crate::rest::update::change(&call, crate::rest::update::Managers::Update, |old| {
        let mut new = old.clone();
        if !same(old) {
            new["status"]["conditions"] = conditions.clone();
        }
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(namespace = name, reason = status.reason, "namespace conditions not written");
    }
}
