//! What can be done to a pod besides changing it: bind it, evict it.

use serde_json::{Value, json};

use crate::object::text;
use crate::rest::Call;
use crate::rest::delete::{DeleteOptions, delete};
use crate::rest::update::{Managers, change};
use crate::status::Status;

pub(super) async fn bind_pod(call: &Call, binding: &Value) -> Result<Value, Status> {
    let node = text(binding, "/target/name").to_owned();
    let pod = Call::internal(
        &call.server,
        &call.resource,
        &call.namespace,
        &call.name,
        &call.options.field_manager,
    );
    change(&pod, Managers::Update, |old| {
        let current = text(old, "/spec/nodeName");
        if !current.is_empty() {
            let why = format!("pod {} is already assigned to node \"{current}\"", call.name);
            return Err(Status::conflict(
                crate::status::About { group: "", kind: "pods/binding", name: &call.name },
                &why,
            ));
        }
        let mut new = old.clone();
        new["spec"]["nodeName"] = node.as_str().into();
        Ok(new)
    })
    .await?;
    Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
}

pub(super) async fn evict(call: &Call) -> Result<Value, Status> {
    let pod = Call::internal(
        &call.server,
        &call.resource,
        &call.namespace,
        &call.name,
        &call.options.field_manager,
    );
    delete(&pod, &DeleteOptions::default()).await?;
    Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
}
