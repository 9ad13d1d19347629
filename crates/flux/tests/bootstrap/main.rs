//! `flux bootstrap` at Git hosts with an API: fakes of the APIs, a real Git server behind them, our controllers on the
//! embedded cluster. What counts is the end: repository, key or token, commits, and a cluster that follows them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hosts;

use std::collections::BTreeSet;
use std::process::Command;

use flux_api::kinds::Controller;
use flux_controllers::manager::{Manager, ManagerOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use russh::keys::key::safe_rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use testbed::Cluster;

use hosts::{Dialect, Host, TOKEN};

const NAMESPACE: &str = "flux-system";

/// A cluster with our controllers, and a host.
struct Scene {
    cluster: Cluster,
    host: Host,
    manager: Manager,
    _storage: tempfile::TempDir,
}

impl Scene {
    async fn start(dialect: Dialect) -> Scene {
        let cluster = Cluster::start_embedded().await.unwrap();
        cluster.provide_crds(flux_api::crds::yaml).await.unwrap();
        let storage = tempfile::tempdir().unwrap();
        let controllers = BTreeSet::from([Controller::Source, Controller::Kustomize]);
        let options = ManagerOptions::new(controllers, storage.path().to_owned(), ([127, 0, 0, 1], 0).into());
        let manager = Manager::start(cluster.client(), options).await.unwrap();
        Scene { cluster, host: Host::start(dialect), manager, _storage: storage }
    }

    /// Runs `flux bootstrap …` and returns what it said.
    async fn bootstrap(&self, line: &str) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
        command
            .arg("bootstrap")
            .args(line.split_whitespace())
            .arg(format!("--hostname={}", self.host.url()))
            .args(["--timeout=2m", "--interval=1m", "--components=source-controller,kustomize-controller"])
            .env("KUBECONFIG", self.cluster.kubeconfig_path())
            .env("HOME", "/nonexistent")
            .env(self.host.dialect.token_variable(), TOKEN);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!said.contains(TOKEN), "the token is shown: {said}");
        (output.status.success(), said)
    }

    /// The same, when it must succeed.
    async fn bootstrapped(&self, line: &str) -> String {
        let (fine, said) = self.bootstrap(line).await;
        assert!(fine, "{said}\n{:#?}", self.host.requests());
        said
    }

    async fn secret(&self, key: &str) -> String {
        let api: Api<Secret> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let data = api.get(NAMESPACE).await.unwrap().data.unwrap_or_default();
        data.get(key).map(|bytes| String::from_utf8(bytes.0.clone()).unwrap()).unwrap_or_default()
    }
}

/// A repository of one's own over a token, a second run that changes nothing, and a person's patches that stay.
async fn with_a_token(dialect: Dialect) {
    let scene = Scene::start(dialect).await;
    let line = format!(
        "{} --owner=my-org --repository=fleet-infra --branch=main --path=clusters/production --personal --token-auth",
        dialect.command()
    );
    let said = scene.bootstrapped(&line).await;
    for text in ["repository ", "committed component manifests to \"main\"", "all components are healthy"] {
        assert!(said.contains(text), "{said}");
    }
    assert_eq!(scene.secret("password").await, TOKEN);
    assert!(scene.host.keys().is_empty(), "a token needs no key");
    let repository = scene.host.repository();
    let first = repository.resolve("main").unwrap();
    let sync = repository.read("main", "clusters/production/flux-system/gotk-sync.yaml").unwrap();
    assert!(sync.contains("path: ./clusters/production") && sync.contains("/fleet-infra.git"), "{sync}");

    // A person patches the installation, in Git.
    let own = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- gotk-components.yaml\n- \
               gotk-sync.yaml\npatches:\n- target: {kind: Deployment, name: kustomize-controller}\n  patch: |\n    - op: \
               add\n      path: /spec/template/spec/containers/0/args/-\n      value: --concurrent=20\n";
    repository.commit("patched", &[("clusters/production/flux-system/kustomization.yaml", own)]).unwrap();
    let patched = repository.resolve("main").unwrap();
    assert_ne!(first, patched);
    let said = scene.bootstrapped(&line).await;
    assert!(said.contains("component manifests are up to date"), "{said}");
    assert!(said.contains("sync manifests are up to date"), "{said}");
    assert!(!said.contains("created"), "{said}");
    assert_eq!(repository.resolve("main").unwrap(), patched, "a second run commits nothing");
    let deployments: Api<Deployment> = Api::namespaced(scene.cluster.client(), NAMESPACE);
    let controller = deployments.get("kustomize-controller").await.unwrap();
    let args = controller.spec.unwrap().template.spec.unwrap().containers[0].args.clone().unwrap_or_default();
    assert!(args.iter().any(|argument| argument == "--concurrent=20"), "{args:?}");
    scene.manager.stop().await;
}

/// A repository of an organization that a team may use, with a deploy key that a second run keeps.
async fn with_a_deploy_key(dialect: Dialect) {
    let scene = Scene::start(dialect).await;
    let line = format!(
        "{} --owner=my-org --repository=fleet-infra --path=clusters/production --ssh-hostname={} {}",
        dialect.command(),
        scene.host.ssh_address(),
        dialect.team_flag(),
    );
    let said = scene.bootstrapped(&line).await;
    assert!(
        said.contains("configured deploy key \"flux-system-main-flux-system-./clusters/production\""),
        "{said}"
    );
    assert!(said.contains("granted \"push\" permissions to \"platform\""), "{said}");
    let keys = scene.host.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(!keys[0].write, "reading is enough");
    let public = scene.secret("identity.pub").await;
    let same = |one: &str| one.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    assert_eq!(same(&keys[0].key), same(&public));
    assert!(scene.host.was_fetched_over_ssh(), "the cluster reads with its key");
    assert_eq!(scene.host.granted(), ["platform"]);

    let said = scene.bootstrapped(&line).await;
    assert!(said.contains("source secret up to date"), "{said}");
    assert_eq!(scene.host.keys().len(), 1, "the key stays");
    scene.manager.stop().await;
}

/// A key that a person made beforehand becomes the deploy key, and a second run with it changes nothing.
async fn with_a_given_key(dialect: Dialect) {
    let scene = Scene::start(dialect).await;
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let file = folder.path().join(name);
        let key = PrivateKey::random(&mut safe_rng(), Algorithm::Ed25519).unwrap();
        std::fs::write(&file, key.to_openssh(LineEnding::LF).unwrap().as_bytes()).unwrap();
        (file, key.public_key().to_openssh().unwrap())
    };
    let line = |file: &std::path::Path| {
        format!(
            "{} --owner=my-org --repository=fleet-infra --path=clusters/production --ssh-hostname={} --private-key-file={}",
            dialect.command(),
            scene.host.ssh_address(),
            file.display(),
        )
    };
    let same = |one: &str| one.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let (file, public) = make("first");
    let said = scene.bootstrapped(&line(&file)).await;
    assert!(said.contains("configured deploy key"), "{said}");
    assert_eq!(same(&scene.host.keys()[0].key), same(&public));
    assert_eq!(scene.secret("identity").await, std::fs::read_to_string(&file).unwrap());
    assert!(scene.host.was_fetched_over_ssh(), "the cluster reads with the key it was given");

    let said = scene.bootstrapped(&line(&file)).await;
    assert!(!said.contains("configured deploy key"), "{said}");
    assert_eq!(scene.host.keys().len(), 1);

    let (_, said) = scene.bootstrap(&line(&folder.path().join("nowhere"))).await;
    assert!(said.contains("failed to open private key file") && said.contains("nowhere"), "{said}");
    scene.manager.stop().await;
}

macro_rules! hosts {
    ($($name:ident: $dialect:expr,)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn bootstraps_with_a_token_and_keeps_a_persons_patches() {
                with_a_token($dialect).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn bootstraps_with_a_deploy_key_that_a_second_run_keeps() {
                with_a_deploy_key($dialect).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn bootstraps_with_the_key_of_private_key_file() {
                with_a_given_key($dialect).await;
            }
        }
    )*};
}

hosts! {
    github: Dialect::GitHub,
    gitlab: Dialect::GitLab,
    gitea: Dialect::Gitea,
    bitbucket_server: Dialect::Bitbucket,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gitlab_gives_a_deploy_token_once() {
    let scene = Scene::start(Dialect::GitLab).await;
    let line =
        "gitlab --owner=my-org --repository=fleet-infra --path=clusters/production --deploy-token-auth";
    let said = scene.bootstrapped(line).await;
    assert!(said.contains("configured deploy token"), "{said}");
    assert_eq!(scene.secret("username").await, hosts::DEPLOY_USER);
    let said = scene.bootstrapped(line).await;
    assert!(said.contains("reconciled deploy token for source secret"), "{said}");
    assert_eq!(scene.host.deploy_tokens(), 1);
    scene.manager.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_refuses_is_quoted_and_nothing_is_installed() {
    let scene = Scene::start(Dialect::GitHub).await;
    scene.host.refuse();
    let line = "github --owner=my-org --repository=fleet-infra --path=clusters/production --personal";
    let (fine, said) = scene.bootstrap(line).await;
    assert!(
        !fine && said.contains("failed to get Git repository") && said.contains("Bad credentials"),
        "{said}"
    );
    let deployments: Api<Deployment> = Api::namespaced(scene.cluster.client(), NAMESPACE);
    assert!(deployments.list(&Default::default()).await.unwrap().items.is_empty());
    scene.manager.stop().await;
}
