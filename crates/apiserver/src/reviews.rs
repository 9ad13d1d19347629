//! Kinds that are questions: access reviews, token reviews, token requests. Nothing of them is kept.

use serde_json::Value;

use crate::respond::Answer;
use crate::rest::Call;
use crate::service::Incoming;
use crate::status::Status;

/// The answer to a review; `None` when the resource is an ordinary one.
pub async fn answer(call: &Call, _incoming: &Incoming) -> Option<Result<Answer, Status>> {
    match &*call.resource.group {
        "authorization.k8s.io" | "authentication.k8s.io" => Some(Err(Status::method_not_allowed())),
        _ => None,
    }
}

/// Subresources with a life of their own.
pub async fn subresource(call: &Call, _incoming: &Incoming) -> Result<Answer, Status> {
    let _: &Value = &Value::Null;
    call.stored()?;
    Err(Status::method_not_allowed())
}
