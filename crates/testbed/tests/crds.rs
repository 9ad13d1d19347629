//! The real API server takes our CustomResourceDefinitions, what users write for them, and nothing else.

use std::path::PathBuf;

use anyhow::{Context, Result};
use flux_api::kustomize::Kustomization;
use flux_api::{Object, crds, kinds};
use kube::Api;
use kube::api::DynamicObject;
use kube::core::TypeMeta;
use serde_json::{Value, json};
use testbed::Cluster;
use tokio::sync::OnceCell;

/// The shared cluster with the CRDs in it.
async fn cluster() -> Result<Cluster> {
    static APPLIED: OnceCell<()> = OnceCell::const_new();
    let cluster = Cluster::real().await?;
    APPLIED
        .get_or_try_init(|| async {
            for (file, text) in crds::yaml() {
                cluster.apply_crds(&text).await.with_context(|| file)?;
            }
            anyhow::Ok(())
        })
        .await?;
    Ok(cluster)
}

/// What the server says to an object; empty when it takes it.
async fn answer(cluster: &Cluster, namespace: &str, object: &Value) -> String {
    match cluster.apply_yaml(namespace, &object.to_string()).await {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name }, "spec": spec })
}

#[tokio::test]
async fn every_version_of_every_kind_is_served() -> Result<()> {
    let cluster = cluster().await?;
    for kind in kinds::ALL {
        for version in kind.versions() {
            let types =
                TypeMeta { api_version: format!("{}/{version}", kind.group), kind: kind.kind.to_owned() };
            cluster.dynamic(&types, "default").await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_manifest_of_the_seed_documents_is_accepted() -> Result<()> {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    if !shared.is_dir() {
        eprintln!("skipped: no corpus");
        return Ok(());
    }
    let cluster = cluster().await?;
    let mut accepted = 0;
    for entry in std::fs::read_dir(shared.join("seeds/manifests"))? {
        let text = std::fs::read_to_string(entry?.path())?;
        for document in serde_saphyr::from_multiple::<Value>(&text)? {
            if let Some(namespace) = document["metadata"]["namespace"].as_str() {
                let namespace =
                    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
                cluster.apply_yaml("default", &namespace.to_string()).await?;
            }
            cluster.apply_yaml("default", &document.to_string()).await?;
            accepted += 1;
        }
    }
    println!("{accepted} manifests accepted");
    assert!(accepted > 0);
    Ok(())
}

#[tokio::test]
async fn a_field_that_is_gone_is_refused_with_what_to_write_instead() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("old").await?;
    let source = json!({ "kind": "GitRepository", "name": "fleet" });
    let kustomization = |field: &str, value: Value| {
        let mut spec = json!({ "interval": "1m", "prune": true, "sourceRef": source });
        spec[field] = value;
        object("kustomize.toolkit.fluxcd.io/v1beta2", "Kustomization", "apps", spec)
    };
    let chart = |field: &str, value: Value| {
        let mut spec = json!({ "chart": "podinfo", "interval": "1m", "sourceRef": source });
        spec[field] = value;
        object("source.toolkit.fluxcd.io/v1beta2", "HelmChart", "podinfo", spec)
    };
    let release = |spec: Value| object("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease", "podinfo", spec);
    let repository = |field: &str, value: Value| {
        let mut spec = json!({ "interval": "1m", "url": "https://example.com/fleet" });
        spec[field] = value;
        object("source.toolkit.fluxcd.io/v1beta2", "GitRepository", "fleet", spec)
    };
    let patch = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "b": "c" } }]);
    let operations = json!([{ "target": { "kind": "ConfigMap", "name": "a" }, "patch": [{ "op": "remove", "path": "/data" }] }]);
    let rendered = |field: &str, value: &Value| {
        let chart = json!({ "spec": { "chart": "podinfo", "sourceRef": source } });
        release(
            json!({ "interval": "1m", "chart": chart, "postRenderers": [{ "kustomize": { field: value } }] }),
        )
    };
    let values_file =
        json!({ "spec": { "chart": "podinfo", "sourceRef": source, "valuesFile": "prod.yaml" } });
    let cases = [
        (kustomization("patchesStrategicMerge", patch.clone()), "spec.patchesStrategicMerge", "spec.patches"),
        (kustomization("patchesJson6902", operations.clone()), "spec.patchesJson6902", "spec.patches"),
        (kustomization("validation", json!("client")), "spec.validation", "remove it"),
        (chart("valuesFile", json!("prod.yaml")), "spec.valuesFile", "spec.valuesFiles"),
        (
            release(json!({ "interval": "1m", "chart": values_file })),
            "spec.chart.spec.valuesFile",
            "valuesFiles",
        ),
        (
            rendered("patchesStrategicMerge", &patch),
            "spec.postRenderers[0].kustomize.patchesStrategicMerge",
            "patches[].patch",
        ),
        (
            rendered("patchesJson6902", &operations),
            "spec.postRenderers[0].kustomize.patchesJson6902",
            "patches[].patch",
        ),
        (repository("gitImplementation", json!("libgit2")), "spec.gitImplementation", "remove it"),
        (repository("accessFrom", json!({ "namespaceSelectors": [{}] })), "spec.accessFrom", "remove it"),
    ];
    for (object, field, instead) in cases {
        let said = answer(&cluster, namespace.name(), &object).await;
        assert!(said.contains(&format!("{field}: Forbidden")) && said.contains(instead), "{object}\n{said}");
    }
    Ok(())
}

#[tokio::test]
async fn an_old_version_is_stored_as_the_current_one_with_nothing_lost() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("stored").await?;
    let spec = json!({
        "interval": "1m", "prune": true, "path": "./apps", "sourceRef": { "kind": "GitRepository", "name": "fleet" },
        "patches": [{ "patch": "- op: remove\n  path: /data", "target": { "kind": "ConfigMap" } }],
    });
    let old = object("kustomize.toolkit.fluxcd.io/v1beta2", "Kustomization", "apps", spec.clone());
    cluster.apply_yaml(namespace.name(), &old.to_string()).await?;
    let types = TypeMeta { api_version: Kustomization::KIND.api_version(), kind: "Kustomization".into() };
    let stored: Api<DynamicObject> = cluster.dynamic(&types, namespace.name()).await?;
    let mut found = stored.get("apps").await?.data["spec"].take();
    assert_eq!(found["force"].take(), json!(false), "the API's default");
    found.as_object_mut().context("a spec")?.remove("force");
    assert_eq!(found, spec);
    let typed: Api<Kustomization> = Api::namespaced(cluster.client(), namespace.name());
    assert_eq!(typed.get("apps").await?.spec.path.as_deref(), Some("./apps"));
    Ok(())
}

#[tokio::test]
async fn several_sources_need_folders_of_their_own() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("sources").await?;
    let with = |spec: Value| {
        let mut all = json!({ "interval": "1m", "prune": true });
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "apps", all)
    };
    let git = |mount: Option<&str>| match mount {
        Some(mount) => json!({ "kind": "GitRepository", "name": "a", "as": mount }),
        None => json!({ "kind": "GitRepository", "name": "a" }),
    };
    let refs = |sources: Vec<Value>| with(json!({ "sourceRefs": sources }));
    for (object, expected) in [
        (with(json!({})), "exactly one of sourceRef or sourceRefs"),
        (
            with(json!({ "sourceRef": git(None), "sourceRefs": [git(None)] })),
            "exactly one of sourceRef or sourceRefs",
        ),
        (refs(vec![]), "should have at least 1 items"),
        (refs(vec![git(None), git(None)]), "as is required on every source but the first"),
        (refs(vec![git(Some("a")), git(None)]), "as is required on every source but the first"),
        (refs(vec![git(Some("a")), git(Some("a"))]), "no two sources can be mounted at the same folder"),
        (refs(vec![git(None), git(Some("../up"))]), "spec.sourceRefs[1].as"),
        (refs(vec![git(None), git(Some("/root"))]), "spec.sourceRefs[1].as"),
        (refs(vec![git(None)]), ""),
        (refs(vec![git(None), git(Some("base")), git(Some("base/x"))]), ""),
        (with(json!({ "sourceRef": git(None), "dependsOn": [{ "kind": "HelmRelease", "name": "b" }] })), ""),
    ] {
        let said = answer(&cluster, namespace.name(), &object).await;
        let fits = if expected.is_empty() { said.is_empty() } else { said.contains(expected) };
        assert!(fits, "{object}\n{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_malformed_object_of_each_kind_is_refused_by_field() -> Result<()> {
    let cluster = cluster().await?;
    let namespace = cluster.namespace("malformed").await?;
    for (kind, spec, field) in [
        ("GitRepository", json!({ "url": "git@host:path", "interval": "1m" }), "spec.url"),
        ("OCIRepository", json!({ "url": "oci://x", "interval": "1m", "timeout": "1h" }), "spec.timeout"),
        (
            "Bucket",
            json!({ "bucketName": "a", "endpoint": "b", "interval": "1m", "provider": "ibm" }),
            "spec.provider",
        ),
        ("HelmRepository", json!({ "url": "https://x", "interval": "1d" }), "spec.interval"),
        ("HelmChart", json!({ "chart": "x", "interval": "1m" }), "spec.sourceRef"),
        ("ExternalArtifact", json!({ "sourceRef": { "kind": "X" } }), "spec.sourceRef.name"),
        ("Kustomization", json!({ "interval": "-1m", "prune": true, "sourceRef": {} }), "spec.interval"),
        ("HelmRelease", json!({ "interval": "1m" }), "either chart or chartRef must be set"),
        ("Provider", json!({ "type": "pigeon" }), "spec.type"),
        (
            "Alert",
            json!({ "providerRef": { "name": "x" }, "eventSources": [{ "kind": "Pod", "name": "x" }] }),
            "spec.eventSources[0].kind",
        ),
        ("Receiver", json!({ "type": "github", "resources": [] }), "secretRef is required"),
        ("ImageRepository", json!({ "image": "x", "interval": "1ns" }), "spec.interval"),
        (
            "ImagePolicy",
            json!({ "imageRepositoryRef": { "name": "x" }, "policy": {}, "interval": "1m" }),
            "spec.interval is only accepted",
        ),
        (
            "ImageUpdateAutomation",
            json!({ "interval": "1m", "sourceRef": { "kind": "Bucket", "name": "x" } }),
            "spec.sourceRef.kind",
        ),
        ("ArtifactGenerator", json!({ "sources": [], "artifacts": [] }), "spec.sources"),
    ] {
        let row = kinds::by_kind(kind).context(kind)?;
        let said = answer(&cluster, namespace.name(), &object(&row.api_version(), kind, "bad", spec)).await;
        assert!(said.contains(field), "{kind}: {said}");

        let mut large = object(&row.api_version(), kind, "large", json!({}));
        large["metadata"]["annotations"] = json!({ "note": "x".repeat(2 << 20) });
        let said = answer(&cluster, namespace.name(), &large).await;
        assert!(said.contains("metadata.annotations: Too long"), "{kind}: {}", &said[..said.len().min(300)]);

        let mut deep = json!("bottom");
        for _ in 0..60 {
            deep = json!([deep]);
        }
        let said = answer(
            &cluster,
            namespace.name(),
            &object(&row.api_version(), kind, "deep", json!({ "deep": deep })),
        )
        .await;
        assert!(said.contains("deep"), "{kind}: {said}");
    }
    Ok(())
}
