//! May someone do something: SelfSubjectAccessReview and its relatives.

use serde_json::{Value, json};

use crate::auth::{Attributes, User};
use crate::object::text;
use crate::rest::Call;
use crate::status::{Cause, Status};

pub(super) fn own(call: &Call, review: Value) -> Result<Value, Status> {
    check(call, &review)?;
    let user = call.user.clone();
    Ok(decided(call, review, &user))
}

/// A review about another user; in a local one everything is asked of its namespace.
pub(super) fn others(call: &Call, review: Value, namespace: Option<&str>) -> Result<Value, Status> {
    check(call, &review)?;
    let spec = &review["spec"];
    if text(spec, "/user").is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty) {
        let cause =
            Cause::invalid("spec.user", &Value::from(""), "at least one of user or group must be specified");
        return Err(unnamed(call, cause));
    }
    if let Some(namespace) = namespace
        && text(spec, "/resourceAttributes/namespace") != namespace
    {
        let asked = Value::from(text(spec, "/resourceAttributes/namespace"));
        let detail = "must match metadata.namespace";
        return Err(unnamed(call, Cause::invalid("spec.resourceAttributes.namespace", &asked, detail)));
    }
    let user = User {
        name: text(spec, "/user").to_owned(),
        uid: text(spec, "/uid").to_owned(),
        groups: spec["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        extra: Default::default(),
    };
    Ok(decided(call, review, &user))
}

/// Reviews are refused without naming their kind.
fn unnamed(call: &Call, cause: Cause) -> Status {
    Status::invalid(crate::status::About { group: &call.resource.group, kind: "", name: "" }, &[cause])
}

fn check(call: &Call, review: &Value) -> Result<(), Status> {
    let spec = &review["spec"];
    let (resource, path) = (!spec["resourceAttributes"].is_null(), !spec["nonResourceAttributes"].is_null());
    let invalid = |detail: &str| {
        let cause = Cause::invalid("spec.resourceAttributes", &Value::Null, detail);
        Err(unnamed(call, cause))
    };
    match (resource, path) {
        (true, true) => invalid("cannot be specified in combination with nonResourceAttributes"),
        (false, false) => {
            invalid("exactly one of nonResourceAttributes or resourceAttributes must be specified")
        }
        _ => Ok(()),
    }
}

fn decided(call: &Call, mut review: Value, user: &User) -> Value {
    let spec = review["spec"].clone();
    let resource = &spec["resourceAttributes"];
    let path = spec["nonResourceAttributes"]["path"].as_str();
    let asked = match path {
        Some(path) => Attributes {
            verb: text(&spec, "/nonResourceAttributes/verb"),
            path: Some(path),
            ..Attributes::default()
        },
        None => Attributes {
            verb: text(resource, "/verb"),
            group: text(resource, "/group"),
            resource: text(resource, "/resource"),
            subresource: text(resource, "/subresource"),
            namespace: text(resource, "/namespace"),
            name: text(resource, "/name"),
            path: None,
        },
    };
    let allowed = call.server.rbac().allows(user, &asked);
    review["status"] = json!({ "allowed": allowed });
    review
}

/// All rules the caller has in a namespace.
pub(super) fn rules(call: &Call, mut review: Value) -> Result<Value, Status> {
    let namespace = text(&review, "/spec/namespace").to_owned();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (mut resource_rules, mut path_rules) = (Vec::new(), Vec::new());
    if call.user.is_master() {
        resource_rules.push(json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }));
        path_rules.push(json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }));
    }
    let rbac = call.server.rbac();
    for rule in rbac.rules_for(&call.user, &namespace) {
        if !rule.paths.is_empty() {
            path_rules.push(json!({ "verbs": rule.verbs, "nonResourceURLs": rule.paths }));
        }
        if !rule.resources.is_empty() {
            let mut shown =
                json!({ "verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources });
            if !rule.names.is_empty() {
                shown["resourceNames"] = json!(rule.names);
            }
            resource_rules.push(shown);
        }
    }
    review["spec"] = json!({});
    review["status"] =
        json!({ "resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": false });
    Ok(review)
}
