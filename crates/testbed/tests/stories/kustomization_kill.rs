//! Kustomization: the process is killed again and again, the API server goes away under load; in the end the cluster is as
//! Git says.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::Cluster;
use testbed::control_plane::Options;
use testbed::git_server::Change;
use testbed::process::Supervised;

use crate::flux::Flux;
use crate::kustomization::{BOTH, applied, config_map, config_maps, spec, value};

const KILLS: u64 = 100;

/// The binary of the same build as this test.
fn flux_binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap();
    let binary = folder.join("flux");
    assert!(binary.exists(), "{} is missing: build it with `cargo build -p flux`", binary.display());
    binary
}

/// Numbers that look like chance and are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn serve(cluster: &Cluster, flux: &Flux) -> Supervised {
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let storage = port();
    let arguments = [
        format!("KUBECONFIG={}", cluster.kubeconfig_path().display()),
        format!("RUNTIME_NAMESPACE={}", flux.namespace.name()),
        flux_binary().display().to_string(),
        "serve".to_owned(),
        "--controllers=source,kustomize".to_owned(),
        format!("--kubeconfig={}", cluster.kubeconfig_path().display()),
        format!("--storage-path={}", flux.storage().display()),
        format!("--storage-addr=127.0.0.1:{storage}"),
        format!("--storage-adv-addr=127.0.0.1:{storage}"),
        format!("--metrics-addr=127.0.0.1:{}", port()),
        format!("--health-addr=127.0.0.1:{}", port()),
        "--enable-leader-election=false".to_owned(),
    ];
    let log = flux.storage().join("flux.log");
    Supervised::start(std::path::Path::new("/usr/bin/env"), arguments, &log).unwrap()
}

/// Nobody but this story is on this control plane, so the process may watch all of it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: kills a hundred processes, for minutes"]
async fn a_hundred_kills_leave_what_git_says() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let mut flux = Flux::start(&cluster, BOTH).await;
    flux.stop().await;
    let stays = config_map("stays", "always");
    flux.fleet
        .commit("first", &[("apps/stays.yaml", &stays), ("apps/n.yaml", &config_map("n", "v0"))])
        .unwrap();
    flux.git_repository("fleet").await;
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", json!({ "wait": true }))).await;
    let maps = config_maps(&cluster, &flux);
    let (mut chance, mut uid, mut starts) = (Chance(42), None, 0);
    for kill in 0..KILLS {
        if kill % 4 == 0 {
            let (path, old) =
                (format!("apps/extra{kill}.yaml"), format!("apps/extra{}.yaml", kill.wrapping_sub(4)));
            let (value, extra) =
                (config_map("n", &format!("v{kill}")), config_map(&format!("extra{kill}"), "x"));
            let mut changes = vec![Change::Write("apps/n.yaml", &value), Change::Write(&path, &extra)];
            if kill >= 4 {
                changes.push(Change::Remove(&old));
            }
            flux.fleet.commit_to("main", "next", &changes).unwrap();
            flux.reconcile(&GIT_REPOSITORY, "fleet").await;
        }
        let mut process = serve(&cluster, &flux);
        tokio::time::sleep(Duration::from_millis(100 + chance.below(2_500))).await;
        assert_eq!(process.failure().unwrap(), None, "it ended by itself");
        process.stop();
        starts += 1;
        let seen = maps.get_opt("stays").await.unwrap().and_then(|map| map.metadata.uid);
        assert!(uid.is_none() || seen == uid, "after kill {kill} what Git holds was deleted or made again");
        uid = uid.or(seen);
    }
    let _process = serve(&cluster, &flux);
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    let object = applied(&flux, "apps", &flux.fleet.resolve("main").unwrap()).await;
    println!("{starts} kills; inventory {}", object["status"]["inventory"]);
    let last = (KILLS - 1) / 4 * 4;
    assert_eq!(value(&maps.get("n").await.unwrap()), format!("v{last}"));
    let mut left: Vec<String> = maps
        .list(&Default::default())
        .await
        .unwrap()
        .into_iter()
        .filter(|map: &ConfigMap| {
            map.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key("kustomize.toolkit.fluxcd.io/name"))
        })
        .filter_map(|map| map.metadata.name)
        .collect();
    left.sort();
    assert_eq!(left, [format!("extra{last}"), "n".to_owned(), "stays".to_owned()]);
    assert_eq!(object["status"]["inventory"]["entries"].as_array().unwrap().len(), 3);
    assert_eq!(maps.get("stays").await.unwrap().metadata.uid, uid);
}

/// A control plane of its own: others would not like theirs to go away.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_goes_away_under_load_is_caught_up_with() {
    const APPS: usize = 8;
    let cluster = Cluster::start(Options::default()).await.unwrap();
    let flux = Flux::start(&cluster, BOTH).await;
    let files = |value: &str| -> Vec<(String, String)> {
        (0..APPS).map(|app| (format!("app{app}/a.yaml"), config_map(&format!("app{app}"), value))).collect()
    };
    let commit = |value: &str| {
        let files = files(value);
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        flux.fleet.commit(value, &files).unwrap()
    };
    commit("one");
    flux.git_repository("fleet").await;
    for app in 0..APPS {
        let name = format!("app{app}");
        flux.apply(&KUSTOMIZATION, &name, spec(&flux, &name, json!({}))).await;
    }
    flux.ready(&KUSTOMIZATION, "app0").await;
    for value in ["two", "three"] {
        let revision = commit(value);
        flux.reconcile(&GIT_REPOSITORY, "fleet").await;
        // In the middle of it.
        cluster.control_plane().unwrap().restart_api_server().await.unwrap();
        for app in 0..APPS {
            applied(&flux, &format!("app{app}"), &revision).await;
        }
    }
    // And what is watched is watched again.
    let maps: Api<ConfigMap> = config_maps(&cluster, &flux);
    let by_hand = json!({ "data": { "key": "hand" } });
    maps.patch("app3", &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    cluster.await_condition(&maps, "app3", "is as in Git", |map| value(map) == "three").await.unwrap();
}
