//! The shape of an installation: what people's patches and images count on.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Component, Options};
use crate::kinds::{name, text};
use crate::output;

fn options(components: &[Component]) -> Options {
    Options {
        namespace: "flux-system".to_owned(),
        components: components.to_vec(),
        registry: "ghcr.io/fluxcd".to_owned(),
        image_pull_secret: None,
        watch_all_namespaces: true,
        network_policy: true,
        log_level: "info".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        toleration_keys: Vec::new(),
        single: false,
    }
}

fn repository() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).to_owned()
}

fn find<'a>(objects: &'a [Value], kind: &str, wanted: &str) -> &'a Value {
    let found = objects.iter().find(|object| text(object, "/kind") == kind && name(object) == wanted);
    found.unwrap_or_else(|| panic!("no {kind} {wanted}"))
}

#[test]
fn every_component_is_a_deployment_with_a_manager_and_its_own_image() {
    let objects = options(&Component::ALL).manifests().objects;
    for component in Component::ALL {
        let deployment = find(&objects, "Deployment", component.name());
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["name"], "manager");
        let image = format!("ghcr.io/fluxcd/{}:", component.name());
        assert!(text(container, "/image").starts_with(&image), "{container}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        find(&objects, "ServiceAccount", component.name());
        assert_eq!(deployment["metadata"]["labels"]["app.kubernetes.io/component"], component.name());
    }
    for role in ["crd-controller", "flux-edit", "flux-view"] {
        find(&objects, "ClusterRole", &format!("{role}-flux-system"));
    }
    let admin = find(&objects, "ClusterRoleBinding", "cluster-reconciler-flux-system");
    let subjects: Vec<&str> =
        admin["subjects"].as_array().unwrap().iter().map(|one| text(one, "/name")).collect();
    assert_eq!(subjects, ["kustomize-controller", "helm-controller"]);
    for policy in ["allow-egress", "allow-scraping", "allow-webhooks"] {
        find(&objects, "NetworkPolicy", policy);
    }
}

#[test]
fn single_is_one_deployment_and_the_same_services() {
    let objects = Options { single: true, ..options(&Component::ALL) }.manifests().objects;
    let deployments: Vec<&str> =
        objects.iter().filter(|object| text(object, "/kind") == "Deployment").map(name).collect();
    assert_eq!(deployments, ["flux"]);
    assert_eq!(find(&objects, "Service", "webhook-receiver")["spec"]["selector"]["app"], "flux");
}

/// Of one replica a quarter is none when rounded down, and one when rounded up: what the API server makes of no strategy.
/// Those who serve artifacts write to one volume; kustomize-controller brings them back when they do not come up.
#[test]
fn deployments_roll_without_an_unavailable_replica() {
    let objects = options(&Component::ALL).manifests().objects;
    for component in Component::ALL {
        let deployment = find(&objects, "Deployment", component.name());
        let strategy = text(deployment, "/spec/strategy/type");
        assert_eq!(
            strategy,
            if component.serves_artifacts() { "Recreate" } else { "" },
            "{}",
            component.name()
        );
        assert_eq!(deployment["spec"]["replicas"], 1);
    }
    let objects = Options { single: true, ..options(&Component::ALL) }.manifests().objects;
    let deployment = find(&objects, "Deployment", "flux");
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let probe = deployment.pointer("/spec/template/spec/containers/0/readinessProbe/httpGet/path");
    assert_eq!(probe.and_then(|path| path.as_str()), Some("/healthz"));
}

#[test]
fn the_dockerfile_has_a_target_for_every_image() {
    let text = std::fs::read_to_string(repository().join("Dockerfile")).unwrap();
    for component in Component::ALL {
        let name = component.name();
        let target = format!("FROM base AS {name}\nENTRYPOINT [\"/usr/local/bin/{name}\"]\n");
        assert!(text.contains(&target), "{name}");
        let words = crate::tree::serve::by_own_name(vec![format!("/usr/local/bin/{name}")]);
        assert_eq!(words.first().map(String::as_str), Some("serve"), "{name} does not know what it is");
    }
}

/// `manifests/install` is a kustomize base. `FLUX_WRITE=1` writes it anew.
#[test]
fn the_kustomize_base_is_what_install_writes() {
    let objects = options(&Component::ALL).manifests().objects;
    let own = objects.iter().filter(|object| text(object, "/kind") != "CustomResourceDefinition");
    let documents: Vec<String> = own.map(|object| output::yaml_text(object).unwrap()).collect();
    let mut kustomization =
        "# Everything `flux install --components-extra=…` installs, as a base for overlays.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
            .to_owned();
    let mut crds: Vec<String> = std::fs::read_dir(repository().join("manifests/crds"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.ends_with(".yaml") && file != "kustomization.yaml")
        .collect();
    crds.sort();
    for crd in &crds {
        kustomization.push_str(&format!("- ../crds/{crd}\n"));
    }
    kustomization.push_str("- components.yaml\n");
    let folder = repository().join("manifests/install");
    for (file, content) in
        [("components.yaml", documents.join("---\n")), ("kustomization.yaml", kustomization)]
    {
        if std::env::var_os("FLUX_WRITE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(file), &content).unwrap();
        }
        let kept = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(
            kept == content,
            "manifests/install/{file} is not what install writes; FLUX_WRITE=1 writes it"
        );
    }
    assert_eq!(crds.len(), flux_api::kinds::ALL.len());
}
