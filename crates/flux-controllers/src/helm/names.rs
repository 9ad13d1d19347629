//! What a HelmRelease calls its release, and where it keeps it. Pure.

use flux_api::Object;
use flux_api::helm::HelmRelease;
use sha2::{Digest, Sha256};

use crate::reconcile::ObjectKey;

/// Helm's limit for the name of a release.
const LONGEST: usize = 53;
const HASH: usize = 12;

/// The name as the spec says it, however long.
pub fn wanted_name(object: &HelmRelease) -> String {
    let spec = &object.spec;
    match (&spec.release_name, &spec.target_namespace) {
        (Some(name), _) => name.clone(),
        (None, Some(target)) => format!("{target}-{}", object.name()),
        (None, None) => object.name().to_owned(),
    }
}

/// The name of the release in Helm's storage.
pub fn release_name(object: &HelmRelease) -> String {
    shortened(&wanted_name(object))
}

/// Names that are too long end in a piece of their checksum. Go cuts at a byte; a cut character is dropped whole here,
/// and no Kubernetes name holds one.
fn shortened(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let sum: String =
        Sha256::digest(name.as_bytes()).iter().take(HASH / 2).map(|byte| format!("{byte:02x}")).collect();
    let mut end = LONGEST - HASH - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{sum}", &name[..end])
}

/// Where the release's objects go that name no namespace.
pub fn release_namespace(object: &HelmRelease) -> &str {
    object.spec.target_namespace.as_deref().unwrap_or_else(|| Object::namespace(object))
}

/// Where the records of the release are kept.
pub fn storage_namespace(object: &HelmRelease) -> &str {
    object.spec.storage_namespace.as_deref().unwrap_or_else(|| Object::namespace(object))
}

/// The HelmChart made for `spec.chart`.
pub fn helm_chart(object: &HelmRelease) -> Option<ObjectKey> {
    let template = object.spec.chart.as_ref()?;
    let own = Object::namespace(object);
    let namespace = template.spec.source_ref.namespace.as_deref().unwrap_or(own);
    Some(ObjectKey::new(namespace, format!("{own}-{}", object.name())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn release(spec: Value) -> HelmRelease {
        let mut all = json!({"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "apps"}, "spec": all,
        }))
        .unwrap()
    }

    #[test]
    fn the_name_comes_from_the_spec_the_target_or_the_object() {
        assert_eq!(release_name(&release(json!({}))), "web");
        assert_eq!(release_name(&release(json!({"targetNamespace": "prod"}))), "prod-web");
        assert_eq!(release_name(&release(json!({"targetNamespace": "prod", "releaseName": "x"}))), "x");
    }

    #[test]
    fn long_names_end_in_a_checksum() {
        let name = "super-long-target-namespace-that-is-far-too-long-for-helm-web";
        assert_eq!(shortened(name), "super-long-target-namespace-that-is-far--0792a7d474de");
        assert_eq!(shortened(name).len(), LONGEST);
        assert_eq!(shortened(&"a".repeat(53)), "a".repeat(53));
    }

    #[test]
    fn records_stay_with_the_object_and_not_with_the_target() {
        let object = release(json!({"targetNamespace": "prod"}));
        assert_eq!((release_namespace(&object), storage_namespace(&object)), ("prod", "apps"));
        let object = release(json!({"storageNamespace": "records"}));
        assert_eq!((release_namespace(&object), storage_namespace(&object)), ("apps", "records"));
    }

    #[test]
    fn the_chart_object_is_named_after_both() {
        let chart = json!({"chart": {"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "r", "namespace": "repos"}}}});
        let mut object = release(json!({}));
        assert_eq!(helm_chart(&object), None);
        object.spec.chart = serde_json::from_value(chart["chart"].clone()).unwrap();
        assert_eq!(helm_chart(&object), Some(ObjectKey::new("repos", "apps-web")));
    }
}
