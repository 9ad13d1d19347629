//! The builtin table of field specs: what kustomize knows about the kinds of Kubernetes.

use std::sync::LazyLock;

use super::{NameReference, Specs};
use crate::kustomization::FieldSpec;

/// The builtin table, sorted and without repetitions.
pub(super) fn builtin() -> &'static Specs {
    static BUILTIN: LazyLock<Specs> = LazyLock::new(|| {
        let raw = Specs {
            name_prefix: vec![spec("", "metadata/name")],
            name_suffix: vec![],
            namespace: namespace(),
            common_labels: common_labels(),
            labels: vec![],
            template_labels: labels(),
            common_annotations: annotations(),
            name_reference: name_references(),
            var_reference: var_references(),
            images: images(),
            replicas: replicas(),
        };
        // The suffix goes where the prefix goes.
        let raw = Specs { name_suffix: raw.name_prefix.clone(), ..raw };
        super::NONE.merged(&raw).expect("the builtin table has no conflicts: a test merges it")
    });
    &BUILTIN
}

/// `kind` is `Kind`, `group/Kind` or `group/version/Kind`; an empty group or version accepts any.
fn spec(kind: &str, path: &str) -> FieldSpec {
    let mut parts = kind.rsplit('/');
    let kind = parts.next().unwrap_or_default().to_owned();
    let (version, group) = match (parts.next(), parts.next()) {
        (Some(version), Some(group)) => (version, group),
        (Some(group), None) => ("", group),
        (None, _) => ("", ""),
    };
    FieldSpec {
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        path: path.to_owned(),
        create: false,
    }
}

fn created(kind: &str, path: &str) -> FieldSpec {
    FieldSpec { create: true, ..spec(kind, path) }
}

fn namespace() -> Vec<FieldSpec> {
    vec![
        created("Namespace", "metadata/name"),
        created("apiregistration.k8s.io/APIService", "spec/service/namespace"),
        spec(
            "apiextensions.k8s.io/CustomResourceDefinition",
            "spec/conversion/webhook/clientConfig/service/namespace",
        ),
    ]
}

fn images() -> Vec<FieldSpec> {
    let inside = ["containers[]/image", "initContainers[]/image", "volumes[]/image/reference"];
    ["spec", "spec/template/spec"]
        .iter()
        .flat_map(|pod| inside.iter().map(move |path| created("", &format!("{pod}/{path}"))))
        .collect()
}

fn replicas() -> Vec<FieldSpec> {
    ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"]
        .iter()
        .map(|kind| created(kind, "spec/replicas"))
        .collect()
}

fn labels() -> Vec<FieldSpec> {
    let template = "spec/template/metadata/labels";
    vec![
        created("", "metadata/labels"),
        created("/v1/ReplicationController", template),
        created("Deployment", template),
        created("ReplicaSet", template),
        created("DaemonSet", template),
        created("apps/StatefulSet", template),
        created("apps/StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels"),
        created("batch/Job", template),
        created("batch/CronJob", "spec/jobTemplate/metadata/labels"),
        created("batch/CronJob", "spec/jobTemplate/spec/template/metadata/labels"),
    ]
}

fn common_labels() -> Vec<FieldSpec> {
    let selector = "spec/selector/matchLabels";
    let mut specs = vec![
        created("/v1/Service", "spec/selector"),
        created("/v1/ReplicationController", "spec/selector"),
        created("Deployment", selector),
        created("ReplicaSet", selector),
        created("DaemonSet", selector),
        created("apps/StatefulSet", selector),
        spec("batch/Job", selector),
        spec("batch/CronJob", "spec/jobTemplate/spec/selector/matchLabels"),
        spec("policy/PodDisruptionBudget", selector),
        spec("networking.k8s.io/NetworkPolicy", "spec/podSelector/matchLabels"),
        spec("networking.k8s.io/NetworkPolicy", "spec/ingress/from/podSelector/matchLabels"),
        spec("networking.k8s.io/NetworkPolicy", "spec/egress/to/podSelector/matchLabels"),
    ];
    for kind in ["apps/Deployment", "apps/StatefulSet"] {
        for affinity in ["podAffinity", "podAntiAffinity"] {
            let during = format!("spec/template/spec/affinity/{affinity}");
            specs.push(spec(
                kind,
                &format!("{during}/preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels"),
            ));
            specs.push(spec(
                kind,
                &format!("{during}/requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels"),
            ));
        }
        specs.push(spec(kind, "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels"));
    }
    specs.extend(labels());
    specs
}

fn annotations() -> Vec<FieldSpec> {
    let template = "spec/template/metadata/annotations";
    vec![
        created("", "metadata/annotations"),
        created("/v1/ReplicationController", template),
        created("Deployment", template),
        created("ReplicaSet", template),
        created("DaemonSet", template),
        created("StatefulSet", template),
        created("batch/Job", template),
        created("batch/CronJob", "spec/jobTemplate/metadata/annotations"),
        created("batch/CronJob", "spec/jobTemplate/spec/template/metadata/annotations"),
    ]
}

/// Where kinds hold a pod: the path of its spec.
const TEMPLATED: [&str; 5] = ["Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job"];
const TEMPLATE: &str = "spec/template/spec";
const CRON_TEMPLATE: &str = "spec/jobTemplate/spec/template/spec";

/// The paths below each pod, for every kind that holds one by a template or is one.
fn in_pods(paths: &[&str]) -> Vec<FieldSpec> {
    let mut places = vec![("/v1/Pod", "spec"), ("PodTemplate", "template/spec")];
    places.extend(TEMPLATED.map(|kind| (kind, TEMPLATE)));
    places.push(("CronJob", CRON_TEMPLATE));
    places
        .iter()
        .flat_map(|(kind, pod)| paths.iter().map(move |path| spec(kind, &format!("{pod}/{path}"))))
        .collect()
}

/// One path below each pod, for the kinds that users write. Replica sets are not among them.
fn in_workloads(path: &str) -> Vec<FieldSpec> {
    let mut specs = vec![spec("Pod", &format!("spec/{path}"))];
    for kind in ["StatefulSet", "Deployment", "ReplicationController", "Job", "DaemonSet"] {
        specs.push(spec(kind, &format!("{TEMPLATE}/{path}")));
    }
    specs.push(spec("CronJob", &format!("{CRON_TEMPLATE}/{path}")));
    specs
}

fn reference(kind: &str, referrers: Vec<FieldSpec>) -> NameReference {
    let FieldSpec { group, version, kind, .. } = spec(kind, "");
    NameReference { group, version, kind, referrers }
}

fn name_references() -> Vec<NameReference> {
    let scaled = || vec![spec("HorizontalPodAutoscaler", "spec/scaleTargetRef/name")];
    let rbac = |kind: &str| format!("rbac.authorization.k8s.io/{kind}");
    let mut references: Vec<NameReference> =
        ["Deployment", "ReplicationController", "ReplicaSet", "StatefulSet"]
            .map(|kind| reference(kind, scaled()))
            .into();
    references.push(reference("/v1/ConfigMap", config_map_referrers()));
    references.push(reference("/v1/Secret", secret_referrers()));
    references.push(reference("/v1/Service", service_referrers()));
    references.push(reference(&rbac("Role"), vec![spec(&rbac("RoleBinding"), "roleRef/name")]));
    references.push(reference(
        &rbac("ClusterRole"),
        vec![spec(&rbac("RoleBinding"), "roleRef/name"), spec(&rbac("ClusterRoleBinding"), "roleRef/name")],
    ));
    let mut accounts =
        vec![spec(&rbac("RoleBinding"), "subjects"), spec(&rbac("ClusterRoleBinding"), "subjects")];
    accounts.extend(in_workloads("serviceAccountName"));
    references.push(reference("/v1/ServiceAccount", accounts));
    references.push(reference(
        "/v1/PersistentVolumeClaim",
        in_workloads("volumes/persistentVolumeClaim/claimName"),
    ));
    references.push(reference(
        "/v1/PersistentVolume",
        vec![spec("PersistentVolumeClaim", "spec/volumeName"), spec("ClusterRole", "rules/resourceNames")],
    ));
    references.push(reference(
        "storage.k8s.io/v1/StorageClass",
        vec![
            spec("PersistentVolume", "spec/storageClassName"),
            spec("PersistentVolumeClaim", "spec/storageClassName"),
            spec("StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName"),
        ],
    ));
    references.push(reference("scheduling.k8s.io/v1/PriorityClass", in_workloads("priorityClassName")));
    // The version stands in the group by mistake, so that no ingress class is ever found: kustomize has it so.
    references.push(NameReference {
        group: "networking.k8s.io/v1".to_owned(),
        version: "v1".to_owned(),
        kind: "IngressClass".to_owned(),
        referrers: vec![spec("Ingress", "spec/ingressClassName")],
    });
    references.push(reference(
        "admissionregistration.k8s.io/ValidatingAdmissionPolicy",
        vec![spec("admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding", "spec/policyName")],
    ));
    references
}

fn config_map_referrers() -> Vec<FieldSpec> {
    let mut specs = in_pods(&[
        "volumes/configMap/name",
        "containers/env/valueFrom/configMapKeyRef/name",
        "initContainers/env/valueFrom/configMapKeyRef/name",
        "containers/envFrom/configMapRef/name",
        "initContainers/envFrom/configMapRef/name",
        "volumes/projected/sources/configMap/name",
    ]);
    specs.push(spec("Node", "spec/configSource/configMap"));
    specs.push(spec("Role", "rules/resourceNames"));
    specs.push(spec("ClusterRole", "rules/resourceNames"));
    specs
        .push(spec("Ingress", r"metadata/annotations/nginx.ingress.kubernetes.io\/fastcgi-params-configmap"));
    specs
}

fn secret_referrers() -> Vec<FieldSpec> {
    let mut specs = in_pods(&[
        "volumes/secret/secretName",
        "containers/env/valueFrom/secretKeyRef/name",
        "initContainers/env/valueFrom/secretKeyRef/name",
        "containers/envFrom/secretRef/name",
        "initContainers/envFrom/secretRef/name",
        "imagePullSecrets/name",
        "volumes/projected/sources/secret/name",
    ]);
    specs.push(spec("Ingress", "spec/tls/secretName"));
    for annotation in [
        r"ingress.kubernetes.io\/auth-secret",
        r"nginx.ingress.kubernetes.io\/auth-secret",
        r"nginx.ingress.kubernetes.io\/auth-tls-secret",
    ] {
        specs.push(spec("Ingress", &format!("metadata/annotations/{annotation}")));
    }
    specs.push(spec("ServiceAccount", "imagePullSecrets/name"));
    for parameter in ["secretName", "adminSecretName", "userSecretName", "secretRef"] {
        specs.push(spec("StorageClass", &format!("parameters/{parameter}")));
    }
    specs.push(spec("Role", "rules/resourceNames"));
    specs.push(spec("ClusterRole", "rules/resourceNames"));
    specs.push(spec(
        "serving.knative.dev/v1/Service",
        "spec/template/spec/containers/env/valueFrom/secretKeyRef/name",
    ));
    specs.push(spec("PersistentVolume", "spec/azureFile/secretName"));
    specs
}

fn service_referrers() -> Vec<FieldSpec> {
    vec![
        spec("apps/StatefulSet", "spec/serviceName"),
        spec("Ingress", "spec/rules/http/paths/backend/serviceName"),
        spec("Ingress", "spec/backend/serviceName"),
        spec("Ingress", "spec/rules/http/paths/backend/service/name"),
        spec("Ingress", "spec/defaultBackend/service/name"),
        spec("apiregistration.k8s.io/APIService", "spec/service/name"),
        spec("admissionregistration.k8s.io/ValidatingWebhookConfiguration", "webhooks/clientConfig/service"),
        spec("admissionregistration.k8s.io/MutatingWebhookConfiguration", "webhooks/clientConfig/service"),
    ]
}

fn var_references() -> Vec<FieldSpec> {
    let mut specs = Vec::new();
    let mut places = vec![("CronJob", CRON_TEMPLATE), ("Pod", "spec")];
    places.extend(TEMPLATED.map(|kind| (kind, TEMPLATE)));
    for (kind, pod) in places {
        for containers in ["containers", "initContainers"] {
            for field in ["args", "command", "env/value", "volumeMounts/mountPath"] {
                specs.push(spec(kind, &format!("{pod}/{containers}/{field}")));
            }
        }
        let server = match kind {
            // Without the last `spec`, as kustomize has it.
            "CronJob" => "spec/jobTemplate/spec/template/volumes/nfs/server".to_owned(),
            "StatefulSet" => "spec/volumeClaimTemplates/spec/nfs/server".to_owned(),
            _ => format!("{pod}/volumes/nfs/server"),
        };
        specs.push(spec(kind, &server));
    }
    specs.push(spec("Deployment", "spec/template/metadata/annotations"));
    for path in ["spec/rules/host", "spec/tls/hosts", "spec/tls/secretName"] {
        specs.push(spec("Ingress", path));
    }
    specs.push(spec("Service", "spec/ports/port"));
    specs.push(spec("Service", "spec/ports/targetPort"));
    specs.push(spec("PersistentVolume", "spec/nfs/server"));
    specs.push(spec("", "metadata/labels"));
    specs.push(spec("", "metadata/annotations"));
    specs
}
