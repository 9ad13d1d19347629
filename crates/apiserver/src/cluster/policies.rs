//! Checks the types in every new ValidatingAdmissionPolicy and says what it found in the policy's status.

use std::sync::Arc;

use serde_json::json;

use crate::admission::type_check;
use crate::object;
use crate::rest::Call;
use crate::rest::update::{Managers, change};
use crate::server::Inner;

pub const PLACE: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const MANAGER: &str = "kube-controller-manager";

pub async fn run(server: Arc<Inner>) {
    loop {
        let name = server.controllers.policies.next().await;
        look(&server, &name).await;
    }
}

async fn look(server: &Arc<Inner>, name: &str) {
    let registry = server.registry();
    let (Some(resource), Some(stored)) = (registry.stored(PLACE), server.store.get(PLACE, name)) else {
        return;
    };
    let policy = stored.value();
    let generation = object::integer(&policy, "/metadata/generation");
    if object::integer(&policy, "/status/observedGeneration") == generation {
        return;
    }
    let warnings = type_check::warnings(&registry, &policy);
    let call = Call::internal(server, resource, "", name, MANAGER).on("status");
    let outcome = change(&call, Managers::Update, |old| {
        let mut new = old.clone();
        let status = object::child_mut(&mut new, "status");
        status.insert("observedGeneration".into(), generation.unwrap_or(1).into());
        let checked = match warnings.is_empty() {
            true => json!({}),
            false => json!({ "expressionWarnings": warnings.clone() }),
        };
        status.insert("typeChecking".into(), checked);
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(reason = status.reason, "the policy's status was not written");
    }
}
