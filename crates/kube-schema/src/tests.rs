//! The committed tables decode and say what the real tools say.

use super::*;
use serde_json::json;

#[test]
fn both_tables_decode_and_hold_their_kinds() {
    let kustomize = Schemas::kustomize();
    assert_eq!(kustomize.kind("apps", "v1", "Deployment").and_then(Kind::namespaced), Some(true));
    assert_eq!(kustomize.kind("", "v1", "Namespace").and_then(Kind::namespaced), Some(false));
    assert_eq!(
        kustomize.kind("policy", "v1beta1", "PodSecurityPolicy").and_then(Kind::namespaced),
        Some(false)
    );
    assert!(kustomize.kind("kustomize.config.k8s.io", "v1beta1", "ConfigMapArgs").is_some());
    assert!(kustomize.kind("toolkit.fluxcd.io", "v1", "Nothing").is_none());
    let kubernetes = Schemas::kubernetes();
    assert!(kubernetes.kind("policy", "v1beta1", "PodSecurityPolicy").is_none());
    assert_eq!(kubernetes.kind_of("v1", "Node").and_then(Kind::namespaced), Some(false));
}

#[test]
fn resources_know_their_names_verbs_and_subresources() {
    let kind = Schemas::kubernetes().kind("apps", "v1", "Deployment").unwrap();
    let resource = kind.resource().unwrap();
    assert_eq!((resource.plural(), resource.singular()), ("deployments", "deployment"));
    assert_eq!(resource.short_names().collect::<Vec<_>>(), ["deploy"]);
    assert_eq!(resource.categories().collect::<Vec<_>>(), ["all"]);
    assert!(resource.verbs().any(|verb| verb == "deletecollection"));
    let scale = resource.subresource("scale").unwrap();
    assert_eq!(scale.answers_with(), ("autoscaling", "v1", "Scale"));
    let status = resource.subresource("status").unwrap();
    assert_eq!(status.answers_with(), ("apps", "v1", "Deployment"));
}

#[test]
fn a_use_may_overrule_its_type() {
    let spec = Schemas::kubernetes().kind("", "v1", "PersistentVolume").unwrap().schema().unwrap();
    let claim = spec.at(&["spec", "claimRef"]).unwrap();
    assert_eq!(claim.map_type(), Some(MapType::Granular));
    let reference = Schemas::kubernetes().definition("io.k8s.api.core.v1.ObjectReference").unwrap();
    assert_eq!(reference.map_type(), Some(MapType::Atomic));
}

#[test]
fn merge_keys_are_kustomizes() {
    let pod = Schemas::kustomize().kind("", "v1", "Pod").unwrap().schema().unwrap();
    let ports = pod.at(&["spec", "containers", "[]", "ports"]).unwrap();
    assert_eq!(ports.merge_keys(), ["containerPort", "protocol"]);
    let containers = pod.at(&["spec", "containers"]).unwrap();
    assert_eq!((containers.patch_strategy(), containers.merge_keys()), (Some("merge"), vec!["name"]));
    let tolerations = pod.at(&["spec", "tolerations"]).unwrap();
    assert_eq!((tolerations.patch_strategy(), tolerations.merge_keys()), (None, vec![]));
    let finalizers = pod.at(&["metadata", "finalizers"]).unwrap();
    assert_eq!((finalizers.patch_strategy(), finalizers.merge_keys()), (Some("merge"), vec![]));
}

#[test]
fn defaults_enums_and_prose_are_kept() {
    let service = Schemas::kubernetes().kind("", "v1", "Service").unwrap().schema().unwrap();
    let protocol = service.at(&["spec", "ports", "[]", "protocol"]).unwrap();
    assert_eq!(protocol.default(), Some(json!("TCP")));
    assert_eq!(protocol.enum_values().collect::<Vec<_>>(), [json!("SCTP"), json!("TCP"), json!("UDP")]);
    assert!(protocol.description().unwrap().starts_with("The IP protocol for this port."));
    let target = service.at(&["spec", "ports", "[]", "targetPort"]).unwrap();
    assert!(target.is_int_or_string());
    assert!(service.type_description().unwrap().starts_with("Service is a named abstraction"));
}

#[test]
fn a_foreign_document_adds_kinds_and_may_point_at_builtin_types() {
    let document = json!({
        "definitions": {
            "com.example.v1.Widget": {
                "type": "object",
                "properties": {
                    "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
                    "parts": {
                        "type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "id",
                        "items": {"type": "object", "properties": {"id": {"type": "string"}}}
                    }
                },
                "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}]
            }
        },
        "paths": {"/apis/example.com/v1/widgets": {"get": {
            "x-kubernetes-group-version-kind": {"group": "example.com", "version": "v1", "kind": "Widget"}}}}
    });
    let schemas = Schemas::kustomize().extended(&document).unwrap();
    let widget = schemas.kind("example.com", "v1", "Widget").unwrap();
    assert_eq!(widget.namespaced(), Some(false));
    let schema = widget.schema().unwrap();
    assert_eq!(schema.field("parts").unwrap().merge_keys(), ["id"]);
    assert!(schema.at(&["metadata", "labels"]).is_some());
    assert!(schemas.kind("apps", "v1", "Deployment").is_some());
    let alone = Schemas::from_openapi(&document).unwrap();
    assert!(alone.kind("apps", "v1", "Deployment").is_none());
    assert!(
        alone
            .kind("example.com", "v1", "Widget")
            .unwrap()
            .schema()
            .unwrap()
            .at(&["metadata", "labels"])
            .is_none()
    );
}

#[test]
fn a_schema_nested_without_end_is_refused() {
    let mut schema = json!({"type": "string"});
    for _ in 0..300 {
        schema = json!({"type": "object", "additionalProperties": schema});
    }
    assert_eq!(Schemas::from_schema(&schema).unwrap_err(), DocumentError::TooDeep("schema".into()));
}

#[test]
fn go_structures_tell_a_pointer_from_a_value() {
    let deployment = Schemas::kubernetes().kind("apps", "v1", "Deployment").unwrap().schema().unwrap();
    let replicas = deployment.at(&["spec", "replicas"]).and_then(Schema::go_field).unwrap();
    assert!(replicas.pointer && replicas.omit_empty);
    assert_eq!((replicas.holds, replicas.type_name), (GoValue::Scalar, "int32"));
    let ready = deployment.at(&["spec", "minReadySeconds"]).and_then(Schema::go_field).unwrap();
    assert!(!ready.pointer && ready.omit_empty);
    let template = deployment.at(&["spec", "template"]).and_then(Schema::go_field).unwrap();
    assert_eq!((template.holds, template.omit_empty), (GoValue::Struct, false));
    let missing: Vec<_> = Schemas::kubernetes()
        .definitions()
        .filter_map(|name| Schemas::kubernetes().definition(name))
        .flat_map(|schema| {
            schema
                .fields()
                .filter(|(_, field)| field.go_field().is_none())
                .map(move |(name, _)| (schema, name))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
