//! What can be done to a pod besides changing it: read its log, bind it, evict it.

use http::StatusCode;
use serde_json::{Value, json};

use crate::object::text;
use crate::respond::Answer;
use crate::rest::Call;
use crate::rest::delete::{DeleteOptions, delete};
use crate::rest::update::{Managers, change};
use crate::service::Incoming;
use crate::status::Status;

/// Simulated containers say little; but the containers must exist.
pub(super) fn log(call: &Call, incoming: &Incoming) -> Result<Answer, Status> {
    let pod = call.stored()?.value();
    let list = |key: &str| {
        let list = pod["spec"][key].as_array().into_iter().flatten();
        list.map(|container| text(container, "/name").to_owned()).collect::<Vec<_>>()
    };
    let containers: Vec<String> = list("containers");
    let all: Vec<String> = containers.iter().cloned().chain(list("initContainers")).collect();
    let asked = incoming.info.query.get("container").unwrap_or_default();
    if asked.is_empty() && containers.len() > 1 {
        return Err(Status::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            call.name,
            containers.join(" ")
        )));
    }
    if !asked.is_empty() && !all.iter().any(|name| name == asked) {
        return Err(Status::bad_request(format!("container {asked} is not valid for pod {}", call.name)));
    }
    let name =
        if asked.is_empty() { containers.first().map(String::as_str).unwrap_or_default() } else { asked };
    let waiting = pod["status"]["containerStatuses"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|s| text(s, "/name") == name);
    if let Some(reason) =
        waiting.map(|status| text(status, "/state/waiting/reason")).filter(|reason| !reason.is_empty())
    {
        return Err(Status::bad_request(format!(
            "container \"{name}\" in pod \"{}\" is waiting to start: {reason}",
            call.name
        )));
    }
    Ok(Answer::text(StatusCode::OK, "").of_type("text/plain"))
}

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
