//! Kinds that are questions (access, token and subject reviews) and subresources with a life of their own (tokens,
//! logs, bindings, evictions). Nothing of a review is kept.

mod access;
mod identity;
mod logs;
mod pods;

use http::{Method, StatusCode};
use serde_json::Value;

use crate::media::{Accept, BodyType};
use crate::respond::Answer;
use crate::rest::Call;
use crate::service::Incoming;
use crate::status::Status;

/// The answer to a review; `None` when the resource is an ordinary one.
pub async fn answer(call: &Call, incoming: &Incoming) -> Option<Result<Answer, Status>> {
    if !matches!(&*call.resource.group, "authorization.k8s.io" | "authentication.k8s.io") {
        return match (&*call.resource.storage, &incoming.method) {
            ("componentstatuses", _) => Some(component_statuses(call, incoming)),
            _ => None,
        };
    }
    if incoming.method != Method::POST || !incoming.info.name.is_empty() {
        return Some(Err(Status::method_not_allowed()));
    }
    Some(review(call, incoming, |call, body| match &*call.resource.plural {
        "selfsubjectaccessreviews" => access::own(call, body),
        "subjectaccessreviews" => access::others(call, body, None),
        "localsubjectaccessreviews" => access::others(call, body, Some(&call.namespace)),
        "selfsubjectrulesreviews" => access::rules(call, body),
        "tokenreviews" => Ok(identity::token_review(call, body)),
        "selfsubjectreviews" => Ok(identity::own(call, body)),
        _ => Err(Status::method_not_allowed()),
    }))
}

fn review(
    call: &Call,
    incoming: &Incoming,
    answer: impl FnOnce(&Call, Value) -> Result<Value, Status>,
) -> Result<Answer, Status> {
    let accept = Accept::read(&incoming.headers)?;
    // A review has no metadata that a table or its like could show.
    if accept.form != crate::media::Form::Object {
        let types = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        return Err(Status::not_acceptable(format!("only the following media types are accepted: {types}")));
    }
    let mut body = crate::decode::body(call, BodyType::read(&incoming.headers)?, &incoming.body)?;
    if call.subresource.is_empty() {
        crate::ownership::after_write(call, None, &mut body);
    }
    let answer = answer(call, body)?;
    Ok(Answer::value(StatusCode::CREATED, &answer, accept))
}

/// The old health of parts that are all this one process.
fn component_statuses(call: &Call, incoming: &Incoming) -> Result<Answer, Status> {
    let item = |name: &str| {
        serde_json::json!({
            "metadata": { "name": name },
            "conditions": [{ "type": "Healthy", "status": "True", "message": "ok" }],
        })
    };
    let names = ["etcd-0", "controller-manager", "scheduler"];
    let accept = Accept::read(&incoming.headers)?;
    if incoming.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    if call.name.is_empty() {
        let items: Vec<Value> = names.iter().map(|name| item(name)).collect();
        let list = serde_json::json!({ "kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items });
        return Ok(Answer::value(StatusCode::OK, &list, accept));
    }
    if !names.contains(&call.name.as_str()) {
        return Err(Status::not_found(call.about()));
    }
    let mut one = item(&call.name);
    one["kind"] = "ComponentStatus".into();
    one["apiVersion"] = "v1".into();
    Ok(Answer::value(StatusCode::OK, &one, accept))
}

/// Subresources with a life of their own.
pub async fn subresource(call: &Call, incoming: &Incoming) -> Result<Answer, Status> {
    match (&*call.resource.storage, call.subresource.as_str()) {
        ("serviceaccounts", "token") => review(call, incoming, identity::token_request),
        ("pods", "log") => logs::log(call, incoming),
        ("pods", "binding") => {
            let body = crate::decode::body(call, BodyType::read(&incoming.headers)?, &incoming.body)?;
            let answer = pods::bind_pod(call, &body).await?;
            Ok(Answer::value(StatusCode::CREATED, &answer, Accept::read(&incoming.headers)?))
        }
        ("pods", "eviction") => {
            let answer = pods::evict(call).await?;
            Ok(Answer::value(StatusCode::CREATED, &answer, Accept::read(&incoming.headers)?))
        }
        _ => {
            call.stored()?;
            // exec, attach, port-forward and proxy need a node behind the pod.
            Err(Status::bad_request(format!(
                "{} is not served by the embedded API server: nothing runs behind the object",
                call.subresource
            )))
        }
    }
}
