//! A process that dies at any write, before or after it: the next one carries on, and no person is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use flux_api::kinds::{Controller, HELM_RELEASE};
use flux_controllers::manager::{Manager, ManagerOptions};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::reference::Tool;
use testbed::trouble::{Breaker, Cut};

use crate::flux::{Flux, condition, ready};
use crate::helm_release::{chart, helm_task, publish, records, spec, start, value_of};

// Only on the embedded server: dozens of restarts each, and what is cut is the client, not the server.

#[tokio::test(flavor = "multi_thread")]
async fn an_install_survives_a_crash_or_refusal_at_every_write() {
    install(&Cluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_survives_a_crash_or_refusal_at_every_write() {
    upgrade(&Cluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_survives_a_crash_or_refusal_at_every_write() {
    removal(&Cluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_survives_a_crash_or_refusal_at_every_write() {
    rollback(&Cluster::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_at_any_moment_is_followed_by_one_that_carries_on() {
    if let Some(place) = std::env::var_os(CONTROLLER) {
        return be_the_controller(&place.into_string().unwrap()).await;
    }
    killed(&Cluster::embedded().await.unwrap(), 12).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: a hundred processes are killed"]
async fn a_hundred_killed_processes_leave_nothing_to_do_for_a_person() {
    killed(&Cluster::embedded().await.unwrap(), 100).await;
}

/// The usual chart with hooks around it, so that their records are cut through, too.
fn hooked(version: &str) -> Chart {
    let hook = |name: &str, events: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-{name}\n  annotations:\n    helm.sh/hook: {events}\n"
        )
    };
    // A key that no server takes makes an upgrade fail at once.
    let refused = "{{- if eq .Values.value \"bad\" }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-refused\ndata:\n  \"no such key!\": x\n{{- end }}\n";
    chart(version)
        .file("templates/refused.yaml", refused)
        .file("templates/before.yaml", &hook("before", "pre-install,pre-upgrade"))
        .file("templates/after.yaml", &hook("after", "post-install,post-upgrade,pre-rollback,pre-delete"))
}

fn with(value: &str) -> Value {
    spec(json!({ "values": { "value": value } }))
}

async fn settled(flux: &Flux, name: &str, value: &str) -> Value {
    flux.until(&HELM_RELEASE, name, &format!("ready with {value}"), |object| {
        let generation = &object["metadata"]["generation"];
        ready(object).0 == "True" && object["status"]["observedGeneration"] == *generation
    })
    .await
}

/// One record is deployed, none is pending, and real helm reads them.
async fn in_order(cluster: &Cluster, flux: &Flux, name: &str, value: &str) {
    assert_eq!(value_of(cluster, flux, name, "value").await, value);
    let all = records(cluster, flux).await;
    let own: Vec<&String> = all.iter().filter(|record| record.contains(&format!(".{name}.v"))).collect();
    assert_eq!(own.iter().filter(|record| record.ends_with(" deployed")).count(), 1, "{own:?}");
    assert!(
        !own.iter().any(|record| record.contains(" pending") || record.contains("uninstalling")),
        "{own:?}"
    );
}

/// What is done to a release, and how it must end.
struct Operation<Prepare, Act, Check> {
    name: &'static str,
    prepare: Prepare,
    act: Act,
    check: Check,
}

/// Runs an operation cut off before and after every write at which a process can die, and refused at every one.
async fn for_every_cut(
    cluster: &Cluster,
    flux: &mut Flux,
    mut operation: Operation<
        impl AsyncFnMut(&Flux, &str),
        impl AsyncFnMut(&Flux, &str),
        impl AsyncFnMut(&Flux, &str),
    >,
) {
    let what = operation.name;
    let mut cuts = Vec::new();
    for number in 1.. {
        let before = cuts.len();
        for (side, cut) in
            [("b", Cut::Before(number)), ("a", Cut::After(number)), ("r", Cut::Refused(number))]
        {
            let name = format!("w{number}{side}");
            (operation.prepare)(flux, &name).await;
            flux.stop().await;
            let breaker = Breaker::at(cut, |path| !path.contains("/events"));
            flux.resume_as(breaker.client(&cluster.client())).await;
            (operation.act)(flux, &name).await;
            let reached = tokio::select! {
                () = breaker.reached() => true,
                () = (operation.check)(flux, &name) => false,
            };
            if reached {
                cuts.push(format!("{cut:?}: {}", breaker.writes()[number - 1]));
            }
            // Also when nothing was reached: the end can be seen before the answer to the last write is lost.
            if !matches!(cut, Cut::Refused(_)) {
                flux.stop().await;
                flux.resume().await;
            }
            (operation.check)(flux, &name).await;
            set_aside(flux, &name).await;
        }
        if cuts.len() == before {
            break;
        }
    }
    println!("{what}: {} crash points covered: {cuts:#?}", cuts.len());
    assert!(cuts.len() >= 18, "{what}: only {} crash points: {cuts:#?}", cuts.len());
}

/// Later restarts write nothing for it, so that only the writes of one release are counted.
async fn set_aside(flux: &Flux, name: &str) {
    let suspended = Patch::Merge(json!({ "spec": { "suspend": true } }));
    match flux.api(&HELM_RELEASE).patch(name, &PatchParams::default(), &suspended).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {}
        result => drop(result.unwrap()),
    }
}

async fn installed(flux: &Flux, name: &str) {
    flux.apply(&HELM_RELEASE, name, with("one")).await;
    settled(flux, name, "one").await;
}

async fn install(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    let operation = Operation {
        name: "install",
        prepare: async |_: &Flux, _: &str| {},
        act: async |flux: &Flux, name: &str| flux.apply(&HELM_RELEASE, name, with("one")).await,
        check: async |flux: &Flux, name: &str| {
            settled(flux, name, "one").await;
            in_order(cluster, flux, name, "one").await;
        },
    };
    for_every_cut(cluster, &mut flux, operation).await;
    helm_task(cluster, &flux, Tool::Helm4, &["history", "w1a"]).await;
    helm_task(cluster, &flux, Tool::Helm3, &["history", "w3b"]).await;
}

async fn upgrade(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    let operation = Operation {
        name: "upgrade",
        prepare: installed,
        act: async |flux: &Flux, name: &str| flux.apply(&HELM_RELEASE, name, with("two")).await,
        check: async |flux: &Flux, name: &str| {
            settled(flux, name, "two").await;
            in_order(cluster, flux, name, "two").await;
        },
    };
    for_every_cut(cluster, &mut flux, operation).await;
    helm_task(cluster, &flux, Tool::Helm4, &["history", "w3a"]).await;
}

async fn removal(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    let operation = Operation {
        name: "removal",
        prepare: installed,
        act: async |flux: &Flux, name: &str| {
            flux.api(&HELM_RELEASE).delete(name, &DeleteParams::default()).await.unwrap();
        },
        check: async |flux: &Flux, name: &str| {
            cluster.await_gone(&flux.api(&HELM_RELEASE), name).await.unwrap();
            let all = records(cluster, flux).await;
            assert!(!all.iter().any(|record| record.contains(&format!(".{name}.v"))), "{all:?}");
        },
    };
    for_every_cut(cluster, &mut flux, operation).await;
}

/// An upgrade that fails and is rolled back.
fn failing() -> Value {
    spec(json!({ "values": { "value": "bad" },
        "upgrade": { "remediation": { "retries": 0, "remediateLastFailure": true } } }))
}

async fn rolled_back(cluster: &Cluster, flux: &Flux, name: &str) {
    flux.until(&HELM_RELEASE, name, "rolled back", |object| {
        condition(object, "Remediated").1 == "RollbackSucceeded" && condition(object, "Stalled").0 == "True"
    })
    .await;
    in_order(cluster, flux, name, "one").await;
}

async fn rollback(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    let operation = Operation {
        name: "upgrade that fails, and rollback",
        prepare: installed,
        act: async |flux: &Flux, name: &str| flux.apply(&HELM_RELEASE, name, failing()).await,
        check: async |flux: &Flux, name: &str| rolled_back(cluster, flux, name).await,
    };
    for_every_cut(cluster, &mut flux, operation).await;
    helm_task(cluster, &flux, Tool::Helm4, &["history", "w3a"]).await;
    helm_task(cluster, &flux, Tool::Helm3, &["history", "w2b"]).await;
}

/// Names the kubeconfig, namespace and storage of a process that only runs the controller.
const CONTROLLER: &str = "FLUX_STORY_CONTROLLER";

async fn be_the_controller(place: &str) {
    let [kubeconfig, namespace, storage] = place.split('|').collect::<Vec<_>>()[..] else {
        panic!("{place}")
    };
    let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let options = ManagerOptions {
        namespace: Some(namespace.to_owned()),
        least_retry: std::time::Duration::from_millis(200),
        most_retry: std::time::Duration::from_secs(2),
        ..ManagerOptions::new([Controller::Helm].into(), storage.into(), ([127, 0, 0, 1], 0).into())
    };
    let _manager = Manager::start(kube::Client::try_from(config).unwrap(), options).await.unwrap();
    std::future::pending().await
}

/// A process of this very program that runs the controller and can be killed.
struct Process(std::process::Child);

impl Process {
    fn start(cluster: &Cluster, flux: &Flux) -> Self {
        let this = "helm_crash::a_process_that_is_killed_at_any_moment_is_followed_by_one_that_carries_on";
        let place = format!(
            "{}|{}|{}",
            cluster.kubeconfig_path().display(),
            flux.namespace.name(),
            flux.storage().display()
        );
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this])
            .env(CONTROLLER, place)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: it has no chance to say goodbye.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Follows the records and fails when one release has two operations under way.
fn overlaps(cluster: &Cluster, flux: &Flux) -> (tokio::task::AbortHandle, Arc<Mutex<Vec<String>>>) {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), flux.namespace.name());
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = found.clone();
    let following = tokio::spawn(async move {
        let mut pending: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let events = watcher(secrets, Config::default().labels("owner=helm")).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let (secret, is_there) = match event {
                Ok(Event::Apply(secret) | Event::InitApply(secret)) => (secret, true),
                Ok(Event::Delete(secret)) => (secret, false),
                Ok(Event::Init | Event::InitDone) | Err(_) => continue,
            };
            let labels = secret.metadata.labels.unwrap_or_default();
            let open = pending.entry(labels["name"].clone()).or_default();
            if is_there && labels["status"].starts_with("pending") {
                open.insert(labels["version"].clone());
            } else {
                open.remove(&labels["version"]);
            }
            if open.len() > 1 {
                told.lock().unwrap().push(format!("{}: revisions {open:?} at once", labels["name"]));
            }
        }
    });
    (following.abort_handle(), found)
}

/// Every run kills a process somewhere in an install, upgrade, rollback or removal with hooks, and lets the next carry on.
async fn killed(cluster: &Cluster, runs: usize) {
    let mut flux = start(cluster).await;
    flux.stop().await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    let (following, overlaps) = overlaps(cluster, &flux);
    let mut moments: Vec<u64> = Vec::new();
    let mut process = Process::start(cluster, &flux);
    for run in 0..runs {
        let (name, step) = (format!("k{}", run / 4), run % 4);
        match step {
            0 => flux.apply(&HELM_RELEASE, &name, with("one")).await,
            1 => flux.apply(&HELM_RELEASE, &name, failing()).await,
            2 => flux.apply(&HELM_RELEASE, &name, with("two")).await,
            _ => flux.api(&HELM_RELEASE).delete(&name, &DeleteParams::default()).await.map(|_| ()).unwrap(),
        }
        // Somewhere between the first write and the last: an operation takes a fraction of a second.
        let moment = rand::random_range(0..400);
        moments.push(moment);
        tokio::time::sleep(std::time::Duration::from_millis(moment)).await;
        drop(process);
        process = Process::start(cluster, &flux);
        match step {
            0 => {
                settled(&flux, &name, "one").await;
                in_order(cluster, &flux, &name, "one").await;
            }
            1 => rolled_back(cluster, &flux, &name).await,
            2 => {
                settled(&flux, &name, "two").await;
                in_order(cluster, &flux, &name, "two").await;
                let tool = if run % 8 == 2 { Tool::Helm3 } else { Tool::Helm4 };
                helm_task(cluster, &flux, tool, &["history", &name]).await;
            }
            _ => {
                cluster.await_gone(&flux.api(&HELM_RELEASE), &name).await.unwrap();
                let all = records(cluster, &flux).await;
                assert!(!all.iter().any(|record| record.contains(&format!(".{name}.v"))), "{all:?}");
            }
        }
    }
    following.abort();
    println!("{runs} processes killed, after so many milliseconds: {moments:?}");
    assert_eq!(*overlaps.lock().unwrap(), Vec::<String>::new());
}
