//! How objects of a kind behave when they are written: which part a writer owns, when `generation` moves, whether an
//! update needs a resourceVersion, what a delete answers, which fields can be selected.
//!
//! A table for builtin kinds; custom kinds follow their CRD. What values are allowed is `validate`'s business, which
//! values are filled in is `defaults`'.

use serde_json::Value;

use crate::kinds::Resource;
use crate::object;

/// What a writer of this kind may rely on.
#[derive(Debug, Clone, Copy)]
pub struct Strategy {
    /// Status is written through its subresource only.
    pub status: bool,
    pub generation: bool,
    /// An update may leave out resourceVersion.
    pub unconditional_update: bool,
    /// An update of what is not there creates it.
    pub create_on_update: bool,
    /// A delete answers with the object instead of a Status.
    pub returns_deleted: bool,
}

const GENERATION: [&str; 26] = [
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "daemonsets.apps",
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "cronjobs.batch",
    "jobs.batch",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "endpointslices.discovery.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "ingresses.networking.k8s.io",
    "ingressclasses.networking.k8s.io",
    "networkpolicies.networking.k8s.io",
    "poddisruptionbudgets.policy",
    "deviceclasses.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "priorityclasses.scheduling.k8s.io",
];

const NEEDS_REVISION: [&str; 15] = [
    "runtimeclasses.node.k8s.io",
    "poddisruptionbudgets.policy",
    "csidrivers.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "leases.coordination.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "apiservices.apiregistration.k8s.io",
];

const CREATES_ON_UPDATE: [&str; 10] = [
    "runtimeclasses.node.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "leases.coordination.k8s.io",
    "limitranges",
    "events",
    "services",
    "endpoints",
];

const RETURNS_DELETED: [&str; 17] = [
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "resourcequotas",
    "services",
    "serviceaccounts",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

/// How this resource behaves.
pub fn of(resource: &Resource) -> Strategy {
    let name = &*resource.storage;
    match &resource.custom {
        Some(custom) => Strategy {
            status: custom.status,
            generation: true,
            unconditional_update: false,
            create_on_update: false,
            returns_deleted: false,
        },
        None => Strategy {
            status: resource.subresource("status").is_some(),
            generation: GENERATION.contains(&name),
            unconditional_update: !NEEDS_REVISION.contains(&name),
            create_on_update: CREATES_ON_UPDATE.contains(&name),
            returns_deleted: RETURNS_DELETED.contains(&name),
        },
    }
}

/// Everything but metadata and (where it has its own door) status: a change there is a new generation.
pub fn desired_state_changed(strategy: Strategy, old: &Value, new: &Value) -> bool {
    let fields = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "apiVersion" | "kind"))
            .filter(|(key, _)| !(strategy.status && key.as_str() == "status"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    // Rollbacks were once asked for by annotation, so a Deployment counts those, too.
    let annotations = |value: &Value| match object::text(value, "/kind") {
        "Deployment" => object::meta(value).get("annotations").cloned(),
        _ => None,
    };
    fields(old) != fields(new) || annotations(old) != annotations(new)
}

/// Fields that selectors of this kind may name, beyond `metadata.name` and `metadata.namespace`.
pub fn selectable(resource: &Resource) -> Vec<String> {
    if let Some(custom) = &resource.custom {
        return custom.selectable.iter().map(|path| path.trim_start_matches('.').to_owned()).collect();
    }
    builtin_fields(&resource.storage).iter().map(|field| (*field).to_owned()).collect()
}

fn builtin_fields(storage: &str) -> &'static [&'static str] {
    match storage {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "secrets" => &["type"],
        "namespaces" => &["status.phase"],
        "nodes" => &["spec.unschedulable"],
        "replicationcontrollers" | "replicasets.apps" => &["status.replicas"],
        "jobs.batch" => &["status.successful"],
        "services" => &["spec.clusterIP", "spec.type"],
        "certificatesigningrequests.certificates.k8s.io" => &["spec.signerName"],
        "resourceslices.resource.k8s.io" => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// The values of those fields, as text.
pub fn field_values(resource: &Resource, value: &Value) -> Vec<(Box<str>, Box<str>)> {
    let fields = selectable(resource);
    fields
        .into_iter()
        .map(|field| (field.as_str().into(), field_text(&resource.storage, value, &field).into()))
        .collect()
}

fn field_text(storage: &str, value: &Value, field: &str) -> String {
    let pointer = match (storage, field) {
        ("jobs.batch", "status.successful") => "/status/succeeded".to_owned(),
        ("events", "source") => {
            let source = object::text(value, "/source/component");
            return if source.is_empty() { object::text(value, "/reportingComponent") } else { source }
                .to_owned();
        }
        _ => format!("/{}", field.replace('.', "/")),
    };
    let found = value.pointer(&pointer);
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => match field {
            "spec.hostNetwork" | "spec.unschedulable" => "false".into(),
            "status.replicas" | "status.successful" => "0".into(),
            _ => String::new(),
        },
        Some(other) => other.to_string(),
    }
}
