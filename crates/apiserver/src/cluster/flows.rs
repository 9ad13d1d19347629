//! Says in every FlowSchema whether the priority level it names is there.

use std::sync::Arc;

use serde_json::json;

use super::crds::set_condition;
use crate::auth::flow::{LEVELS, SCHEMAS};
use crate::object::{self, text};
use crate::rest::Call;
use crate::rest::update::{Managers, change};
use crate::server::Inner;

const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

pub async fn run(server: Arc<Inner>) {
    loop {
        server.controllers.flows.next().await;
        for stored in server.store.list(SCHEMAS, "").1 {
            look(&server, stored.name()).await;
        }
    }
}

async fn look(server: &Arc<Inner>, name: &str) {
    let registry = server.registry();
    let Some(resource) = registry.stored(SCHEMAS) else { return };
    let call = Call::internal(server, resource, "", name, MANAGER).on("status");
    let now = server.now();
    let outcome = change(&call, Managers::Update, |old| {
        let level = text(old, "/spec/priorityLevelConfiguration/name");
        let about =
            format!("This FlowSchema references the PriorityLevelConfiguration object named \"{level}\"");
        let condition = match server.store.get(LEVELS, level) {
            Some(_) => {
                json!({ "type": "Dangling", "status": "False", "reason": "Found", "message": format!("{about} and it exists") })
            }
            None => {
                json!({ "type": "Dangling", "status": "True", "reason": "NotFound", "message": format!("{about} but there is no such object") })
            }
        };
        let mut new = old.clone();
        set_condition(object::child_mut(&mut new, "status"), condition, &now);
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(reason = status.reason, "FlowSchema condition not written");
    }
}
