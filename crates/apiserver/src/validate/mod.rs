//! What values an object may hold: first what all kinds share (names, labels, owners), then rules of builtin kinds, or
//! the schema of a custom kind.

mod config;
mod definition;
mod metadata;
pub mod names;
mod pod;
mod service;
mod workload;

use serde_json::Value;

use crate::object;
use crate::rest::Call;
use crate::status::{Cause, Status};

pub fn create(call: &Call, object: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    metadata::check(call, object, &mut causes);
    content(call, None, object, &mut causes);
    verdict(call, object, causes)
}

pub fn update(call: &Call, old: &Value, new: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    metadata::check(call, new, &mut causes);
    metadata::unchanged(old, new, &mut causes);
    content(call, Some(old), new, &mut causes);
    verdict(call, new, causes)
}

fn verdict(call: &Call, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(call.invalid(object::name(object), &causes)) }
}

fn content(call: &Call, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    if let Some(custom) = &call.resource.custom {
        causes.extend(crate::custom::validate(custom, new, old));
        return;
    }
    if call.subresource == "status" && &*call.resource.storage == "deployments.apps" {
        return workload::deployment_status(new, causes);
    }
    if !call.subresource.is_empty() && call.subresource != "scale" {
        return;
    }
    match &*call.resource.storage {
        "configmaps" => config::config_map(old, new, causes),
        "secrets" => config::secret(old, new, causes),
        "persistentvolumeclaims" => config::claim(old, new, causes),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            config::binding(old, new, causes);
        }
        "pods" => pod::pod(old, new, causes),
        "deployments.apps" | "replicasets.apps" | "daemonsets.apps" | "statefulsets.apps" => {
            workload::selected(&call.resource.storage, old, new, causes);
        }
        "jobs.batch" => workload::job(old, new, causes),
        "cronjobs.batch" => workload::cron_job(new, causes),
        "services" => service::service(old, new, causes),
        "customresourcedefinitions.apiextensions.k8s.io" => definition::definition(old, new, causes),
        _ => {}
    }
}
