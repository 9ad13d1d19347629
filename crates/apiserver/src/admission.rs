//! What a write must pass beyond its own validity: is its namespace open, may this be deleted, what does the cluster
//! fill in (cluster IPs, tokens, service accounts).

use serde_json::Value;

use crate::object;
use crate::rest::Call;
use crate::status::{About, Status};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// A namespaced object needs a namespace that exists and is not going away.
pub fn namespace_is_open(call: &Call, object: &Value) -> Result<(), Status> {
    if !call.resource.namespaced() {
        return Ok(());
    }
    let Some(stored) = call.server.store.get("namespaces", &call.namespace) else {
        return Err(Status::not_found(About { group: "", kind: "namespaces", name: &call.namespace }));
    };
    if stored.deleting {
        return Err(Status::namespace_terminating(call.about_name(object::name(object)), &call.namespace));
    }
    Ok(())
}

/// Changes the cluster makes to an object on its way in.
pub fn mutate(call: &Call, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
    if &*call.resource.storage == "namespaces" && call.subresource.is_empty() {
        namespace(old, new);
    }
    Ok(())
}

/// Checks that need to see more than the object.
pub fn validate(_call: &Call, _old: Option<&Value>, _new: &Value) -> Result<(), Status> {
    Ok(())
}

pub fn delete(call: &Call, object: &Value) -> Result<(), Status> {
    let name = object::name(object);
    if &*call.resource.storage == "namespaces" && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(call.about(), "this namespace may not be deleted"));
    }
    Ok(())
}

/// A namespace carries its own name as a label, the finalizer that empties it, and its phase.
fn namespace(old: Option<&Value>, new: &mut Value) {
    let name = object::name(new).to_owned();
    let labels = object::map_in(object::meta_mut(new), "labels");
    labels.insert("kubernetes.io/metadata.name".into(), name.into());
    match old {
        None => {
            let spec = object::child_mut(new, "spec");
            spec.entry("finalizers").or_insert_with(|| serde_json::json!(["kubernetes"]));
            object::child_mut(new, "status").insert("phase".into(), "Active".into());
        }
        Some(old) => {
            // Only the finalize subresource may change them.
            let finalizers = old.pointer("/spec/finalizers").cloned();
            let spec = object::child_mut(new, "spec");
            match finalizers {
                Some(finalizers) => drop(spec.insert("finalizers".into(), finalizers)),
                None => drop(spec.remove("finalizers")),
            }
        }
    }
}
