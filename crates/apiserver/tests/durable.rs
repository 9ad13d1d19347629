//! What was acknowledged survives `kill -9`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;

/// The example beside this test's own binary: cargo builds examples before it runs tests.
fn example() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/apiserver")
}

fn start(data: &Path, kubeconfig: &Path) -> Child {
    let child = Command::new(example())
        .args(["--no-simulation", "--data"])
        .arg(data)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .stderr(Stdio::null())
        .spawn()
        .expect("`cargo test` builds the example `apiserver`");
    let began = Instant::now();
    while !kubeconfig.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the server did not become ready");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap())
        .unwrap()
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, kubeconfig) = (folder.path().join("data"), folder.path().join("kubeconfig"));
    let mut child = start(&data, &kubeconfig);
    let api: Api<ConfigMap> = Api::default_namespaced(client(&kubeconfig).await);
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for at in 0.. {
                    let name = format!("w{writer}-{at}");
                    let object =
                        serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "k": "v" } }))
                            .unwrap();
                    match api.create(&PostParams::default(), &object).await {
                        Ok(made) => acknowledged.push((name, made.resource_version().unwrap())),
                        Err(_) => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(700)).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    assert!(!acknowledged.is_empty(), "something was written before the end");

    std::fs::remove_file(&kubeconfig).unwrap();
    let mut child = start(&data, &kubeconfig);
    let api: Api<ConfigMap> = Api::default_namespaced(client(&kubeconfig).await);
    let list = api.list(&ListParams::default()).await.unwrap();
    let newest = list.metadata.resource_version.clone().unwrap().parse::<u64>().unwrap();
    for (name, revision) in &acknowledged {
        let found = list.items.iter().find(|object| object.name_any() == *name);
        assert_eq!(
            found.unwrap_or_else(|| panic!("{name} is lost")).resource_version().as_ref(),
            Some(revision)
        );
        assert!(revision.parse::<u64>().unwrap() < newest, "no revision is used twice");
    }
    println!("{} acknowledged writes, all there after kill -9", acknowledged.len());
    child.kill().unwrap();
    child.wait().unwrap();
}
