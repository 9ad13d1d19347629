//! Who is it: TokenReview, SelfSubjectReview, and new tokens for service accounts.

use serde_json::{Value, json};

use crate::auth::User;
use crate::auth::tokens::{Claims, ISSUER};
use crate::object::{self, integer, text};
use crate::rest::Call;
use crate::status::{Cause, Status};

const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

fn user_info(user: &User) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

pub(super) fn own(call: &Call, mut review: Value) -> Value {
    object::set_meta(&mut review, "creationTimestamp", Some(call.now().into()));
    review["status"] = json!({ "userInfo": user_info(&call.user) });
    review
}

pub(super) fn token_review(call: &Call, mut review: Value) -> Value {
    let audiences: Vec<String> = review["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let now = call.server.time().as_second();
    let found =
        call.server.auth.token_user(text(&review, "/spec/token"), &call.server.store, now, &audiences);
    review["status"] = match found {
        Some(user) => {
            let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
            json!({ "authenticated": true, "user": user_info(&user), "audiences": audiences })
        }
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    };
    review
}

pub(super) fn token_request(call: &Call, mut request: Value) -> Result<Value, Status> {
    let account = call.stored()?;
    let lifetime = integer(&request, "/spec/expirationSeconds").unwrap_or(3600);
    let detail = match lifetime {
        ..SHORTEST => Some("may not specify a duration less than 10 minutes"),
        LONGEST.. => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(detail) = detail {
        let cause = Cause::invalid("spec.expirationSeconds", &Value::from(lifetime), detail);
        let about = crate::status::About { group: "authentication.k8s.io", kind: "TokenRequest", name: "" };
        return Err(Status::invalid(about, &[cause]));
    }
    let mut audiences: Vec<String> = request["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let bound = bound_object(call, &request["spec"]["boundObjectRef"])?;
    let now = call.server.time().as_second();
    let token = call.server.auth.signer.sign(&Claims {
        namespace: &call.namespace,
        account: &call.name,
        account_uid: &account.uid,
        audiences: &audiences,
        bound_to: bound.as_ref().map(|(kind, name, uid)| (*kind, name.as_str(), uid.as_str())),
        now,
        lifetime,
    });
    let token = token.map_err(Status::internal)?;
    for (key, value) in [("name", call.name.as_str()), ("namespace", &call.namespace)] {
        object::set_meta(&mut request, key, Some(value.into()));
    }
    object::set_meta(&mut request, "creationTimestamp", Some(call.now().into()));
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = lifetime.into();
    if request["spec"]["boundObjectRef"].is_null() {
        request["spec"]["boundObjectRef"] = Value::Null;
    }
    request["status"] = json!({ "token": token, "expirationTimestamp": call.server.time_after(lifetime) });
    Ok(request)
}

/// The pod or secret the token dies with.
fn bound_object(call: &Call, reference: &Value) -> Result<Option<(&'static str, String, String)>, Status> {
    let (kind, place) = match text(reference, "/kind") {
        "" => return Ok(None),
        "Pod" => ("pod", "pods"),
        "Secret" => ("secret", "secrets"),
        other => {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount to type {other:?}"
            )));
        }
    };
    let name = text(reference, "/name");
    let found = call.server.store.get(place, &format!("{}/{name}", call.namespace));
    let Some(found) = found else {
        return Err(Status::not_found(crate::status::About { group: "", kind: place, name }));
    };
    let wanted = text(reference, "/uid");
    if !wanted.is_empty() && *wanted != *found.uid {
        let about = crate::status::About { group: "", kind: place, name };
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(about, &why));
    }
    Ok(Some((kind, name.to_owned(), found.uid.to_string())))
}
