//! Objects as users write them: those of the seed documents parse, and a malformed one of each kind gives an error that names the field.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads files, and fails by panicking"
)]

use std::path::PathBuf;

use flux_api::{Object, extensions, helm, image, kustomize, notification, parse, source};
use serde_json::{Value, json};

fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    folder.is_dir().then_some(folder)
}

/// Reads as its own kind and writes back; an error comes as text.
fn round_trip(value: Value) -> Result<Value, String> {
    fn through<K: Object + serde::Serialize>(value: Value) -> Result<Value, String> {
        let object: K = parse::object(value).map_err(|error| error.to_string())?;
        Ok(serde_json::to_value(object).unwrap())
    }
    let kind = parse::kind_of(&value).ok_or_else(|| format!("not a kind of Flux: {value}"))?;
    match kind.kind {
        "GitRepository" => through::<source::GitRepository>(value),
        "OCIRepository" => through::<source::OCIRepository>(value),
        "Bucket" => through::<source::Bucket>(value),
        "HelmRepository" => through::<source::HelmRepository>(value),
        "HelmChart" => through::<source::HelmChart>(value),
        "ExternalArtifact" => through::<source::ExternalArtifact>(value),
        "Kustomization" => through::<kustomize::Kustomization>(value),
        "HelmRelease" => through::<helm::HelmRelease>(value),
        "Provider" => through::<notification::Provider>(value),
        "Alert" => through::<notification::Alert>(value),
        "Receiver" => through::<notification::Receiver>(value),
        "ImageRepository" => through::<image::ImageRepository>(value),
        "ImagePolicy" => through::<image::ImagePolicy>(value),
        "ImageUpdateAutomation" => through::<image::ImageUpdateAutomation>(value),
        "ArtifactGenerator" => through::<extensions::ArtifactGenerator>(value),
        other => panic!("no type for {other}"),
    }
}

#[test]
fn every_flux_object_of_the_seed_documents_survives_a_round_trip() {
    let Some(shared) = shared() else {
        eprintln!("skipped: no corpus");
        return;
    };
    let (mut passed, mut others) = (0, 0);
    for entry in std::fs::read_dir(shared.join("seeds/manifests")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if parse::kind_of(&document).is_none() {
                others += 1;
                continue;
            }
            let mut written = round_trip(document.clone()).unwrap();
            written["apiVersion"] = document["apiVersion"].clone();
            // Durations are written as Go writes them.
            assert_eq!(normal(document), normal(written));
            passed += 1;
        }
    }
    println!("{passed} Flux objects passed, {others} of other kinds");
    assert!(passed > 0);
}

fn normal(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(entries) => {
                for (key, entry) in entries.iter_mut() {
                    match entry.as_str().map(str::parse::<flux_api::duration::GoDuration>) {
                        Some(Ok(duration))
                            if ["interval", "timeout", "retryInterval"].contains(&key.as_str()) =>
                        {
                            *entry = json!(duration.to_string());
                        }
                        _ => walk(entry),
                    }
                }
                entries.retain(|_, entry| *entry != json!(false));
            }
            Value::Array(entries) => entries.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[test]
fn a_malformed_object_of_each_kind_names_its_field() {
    let cases = [
        (
            "source.toolkit.fluxcd.io/v1",
            "GitRepository",
            json!({ "url": "https://x", "interval": "1d" }),
            "spec.interval",
        ),
        (
            "source.toolkit.fluxcd.io/v1",
            "OCIRepository",
            json!({ "url": "oci://x", "interval": "1m", "verify": { "provider": "gpg" } }),
            "spec.verify.provider",
        ),
        (
            "source.toolkit.fluxcd.io/v1",
            "Bucket",
            json!({ "bucketName": 7, "endpoint": "x", "interval": "1m" }),
            "spec.bucketName",
        ),
        (
            "source.toolkit.fluxcd.io/v1",
            "HelmRepository",
            json!({ "url": "https://x", "type": "git" }),
            "spec.type",
        ),
        (
            "source.toolkit.fluxcd.io/v1",
            "HelmChart",
            json!({ "chart": "x", "interval": "1m" }),
            "missing field `sourceRef`",
        ),
        (
            "source.toolkit.fluxcd.io/v1",
            "ExternalArtifact",
            json!({ "sourceRef": { "kind": "K" } }),
            "missing field `name`",
        ),
        (
            "kustomize.toolkit.fluxcd.io/v1",
            "Kustomization",
            json!({ "interval": "1m", "prune": "yes" }),
            "spec.prune",
        ),
        (
            "helm.toolkit.fluxcd.io/v2",
            "HelmRelease",
            json!({ "interval": "1m", "upgrade": { "remediation": { "retries": "3" } } }),
            "spec.upgrade.remediation.retries",
        ),
        ("notification.toolkit.fluxcd.io/v1beta3", "Provider", json!({ "type": "pigeon" }), "spec.type"),
        (
            "notification.toolkit.fluxcd.io/v1beta3",
            "Alert",
            json!({ "providerRef": { "name": "x" }, "eventSources": [{ "kind": "Pod", "name": "*" }] }),
            "spec.eventSources[0].kind",
        ),
        (
            "notification.toolkit.fluxcd.io/v1",
            "Receiver",
            json!({ "type": "github", "resources": {} }),
            "spec.resources",
        ),
        (
            "image.toolkit.fluxcd.io/v1",
            "ImageRepository",
            json!({ "image": "x", "interval": "" }),
            "spec.interval",
        ),
        (
            "image.toolkit.fluxcd.io/v1",
            "ImagePolicy",
            json!({ "imageRepositoryRef": { "name": "x" }, "policy": { "alphabetical": { "order": "up" } } }),
            "spec.policy.alphabetical.order",
        ),
        (
            "image.toolkit.fluxcd.io/v1",
            "ImageUpdateAutomation",
            json!({ "interval": "1m", "sourceRef": { "kind": "Bucket", "name": "x" } }),
            "spec.sourceRef.kind",
        ),
        (
            "source.extensions.fluxcd.io/v1beta1",
            "ArtifactGenerator",
            json!({ "sources": [], "artifacts": [{ "name": "a", "copy": [{ "from": "@a/**" }] }] }),
            "spec.artifacts[0].copy[0]: missing field `to`",
        ),
    ];
    assert_eq!(cases.len(), flux_api::kinds::ALL.len());
    for (api_version, kind, spec, field) in cases {
        let metadata = json!({ "name": "bad", "namespace": "apps" });
        let value = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
        let error = round_trip(value).unwrap_err();
        assert!(error.starts_with(&format!("{kind} apps/bad: spec")) && error.contains(field), "{error}");
    }
}
