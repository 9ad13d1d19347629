//! Defaults that Kubernetes fills into builtin kinds, so that an object reads back as it would from a real cluster.
//!
//! Drift detection compares what was applied with what is there: a default that a real server sets and we do not (or
//! the other way round) would show as a difference.

mod config;
mod network;
mod pod;
mod policy;
mod workload;

use serde_json::{Map, Value, json};

pub(crate) use workload::job_selector;

use crate::kinds::Resource;
use crate::object;

/// Fills in what the writer left out, and leaves the object as Kubernetes would encode it.
pub fn apply(resource: &Resource, value: &mut Value) {
    if let Some(custom) = &resource.custom {
        return crate::custom::fill_defaults(custom, value);
    }
    by_kind(resource, value);
    let kind = kube_schema::Schemas::kubernetes().kind_of(&resource.api_version(), &resource.kind);
    if let Some(schema) = kind.and_then(|kind| kind.schema()) {
        let managed = object::meta(value).get("managedFields").cloned();
        *value = crate::structural::builtin::round_trip(value, schema);
        // An empty entry asks to forget all owners: the round trip would lose it.
        if managed.is_some() {
            object::set_meta(value, "managedFields", managed);
        }
    }
}

fn by_kind(resource: &Resource, value: &mut Value) {
    match &*resource.storage {
        "pods" => pod::pod(value),
        "podtemplates" => pod::template(child(value, "template")),
        "replicationcontrollers" => workload::replication_controller(value),
        "deployments.apps" => workload::deployment(value),
        "replicasets.apps" => workload::replica_set(value),
        "statefulsets.apps" => workload::stateful_set(value),
        "daemonsets.apps" => workload::daemon_set(value),
        "jobs.batch" => workload::job(value),
        "cronjobs.batch" => workload::cron_job(value),
        "services" => network::service(value),
        "endpoints" => network::endpoints(value),
        "endpointslices.discovery.k8s.io" => network::endpoint_slice(value),
        "networkpolicies.networking.k8s.io" => network::network_policy(value),
        "horizontalpodautoscalers.autoscaling" => workload::autoscaler(&resource.version, value),
        "namespaces" => {
            let name = object::name(value).to_owned();
            let labels = child_of(object::meta_mut(value), "labels");
            if !name.is_empty() {
                labels.insert("kubernetes.io/metadata.name".into(), name.into());
            }
        }
        "secrets" => config::secret(value),
        "persistentvolumeclaims" => config::claim(value),
        "persistentvolumes" => config::volume(value),
        "storageclasses.storage.k8s.io" => config::storage_class(value),
        "csidrivers.storage.k8s.io" => config::csi_driver(value),
        "limitranges" => config::limit_range(value),
        "priorityclasses.scheduling.k8s.io" => {
            set(fields(value), "preemptionPolicy", json!("PreemptLowerPriority"))
        }
        "customresourcedefinitions.apiextensions.k8s.io" => config::definition(value),
        "apiservices.apiregistration.k8s.io" => config::api_service(value),
        "roles.rbac.authorization.k8s.io" | "clusterroles.rbac.authorization.k8s.io" => {
            // An empty list does not survive the real server's storage.
            let fields = fields(value);
            if fields.get("rules").and_then(Value::as_array).is_none_or(Vec::is_empty) {
                fields.insert("rules".into(), Value::Null);
            }
        }
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            policy::binding(value);
        }
        "mutatingwebhookconfigurations.admissionregistration.k8s.io" => policy::webhooks(value, true),
        "validatingwebhookconfigurations.admissionregistration.k8s.io" => policy::webhooks(value, false),
        "validatingadmissionpolicies.admissionregistration.k8s.io" => policy::admission_policy(value),
        "mutatingadmissionpolicies.admissionregistration.k8s.io" => policy::admission_policy(value),
        "validatingadmissionpolicybindings.admissionregistration.k8s.io"
        | "mutatingadmissionpolicybindings.admissionregistration.k8s.io" => policy::policy_binding(value),
        "flowschemas.flowcontrol.apiserver.k8s.io" => policy::flow_schema(value),
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => policy::priority_level(value),
        _ => {}
    }
}

/// The object's own fields.
fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("made an object above")
}

/// The value under `key`, an object when it was missing.
fn child<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    fields(value).entry(key).or_insert_with(|| json!({}))
}

/// The same of a map.
fn child_of<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    object::map_in(map, key)
}

/// Sets a field that is missing.
fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), value);
    }
}

fn set_all<const N: usize>(map: &mut Map<String, Value>, defaults: [(&str, Value); N]) {
    for (key, value) in defaults {
        set(map, key, value);
    }
}

/// The objects in the list under `key`.
fn each<'a>(map: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object under `key`, if it is there.
fn get<'a>(map: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(key).and_then(Value::as_object_mut)
}
