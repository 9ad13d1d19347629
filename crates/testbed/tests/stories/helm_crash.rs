//! A process that dies at any write, before or after it: the next one carries on, and no person is needed.

use flux_api::kinds::HELM_RELEASE;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::chart::Chart;
use testbed::reference::Tool;
use testbed::trouble::{Breaker, Cut};

use crate::flux::{Flux, ready};
use crate::helm_release::{chart, helm_task, publish, records, spec, start, value_of};

/// No operation here writes more often.
const MOST: usize = 16;

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

/// The usual chart with hooks around it, so that their records are cut through, too.
fn hooked(version: &str) -> Chart {
    let hook = |name: &str, events: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{{{ .Release.Name }}}}-{name}\n  annotations:\n    helm.sh/hook: {events}\n"
        )
    };
    chart(version)
        .file("templates/before.yaml", &hook("before", "pre-install,pre-upgrade"))
        .file("templates/after.yaml", &hook("after", "post-install,post-upgrade,pre-delete"))
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

/// A release for every cut that may come.
async fn install_all(flux: &Flux) {
    let names: Vec<String> =
        (1..=MOST).flat_map(|number| ["a", "b", "r"].map(|side| format!("w{number}{side}"))).collect();
    for name in &names {
        flux.apply(&HELM_RELEASE, name, with("one")).await;
    }
    for name in &names {
        settled(flux, name, "one").await;
    }
}

/// Runs `act` cut off at every write before and after which a process can die, and refused at every one; `points` says how many there are.
async fn for_every_cut(
    cluster: &Cluster,
    flux: &mut Flux,
    what: &str,
    mut act: impl AsyncFnMut(&Flux, &str),
    mut check: impl AsyncFnMut(&Flux, &str),
) {
    let mut points = 0;
    for number in 1..=MOST {
        let mut reached = false;
        for (side, cut) in
            [("b", Cut::Before(number)), ("a", Cut::After(number)), ("r", Cut::Refused(number))]
        {
            let name = format!("w{number}{side}");
            flux.stop().await;
            let breaker = Breaker::at(cut, |path| !path.contains("/events"));
            flux.resume_as(breaker.client(&cluster.client())).await;
            act(flux, &name).await;
            let ended = async {
                tokio::select! {
                    () = breaker.reached() => true,
                    () = check(flux, &name) => false,
                }
            };
            if ended.await {
                reached = true;
                points += 1;
                if !matches!(cut, Cut::Refused(_)) {
                    flux.stop().await;
                    flux.resume().await;
                }
                check(flux, &name).await;
            }
        }
        if !reached {
            break;
        }
    }
    println!("{what}: {points} crash points covered");
    assert!(points >= 8, "{what}: only {points} crash points");
}

async fn install(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    for_every_cut(
        cluster,
        &mut flux,
        "install",
        async |flux, name| flux.apply(&HELM_RELEASE, name, with("one")).await,
        async |flux, name| {
            settled(flux, name, "one").await;
            in_order(cluster, flux, name, "one").await;
        },
    )
    .await;
    helm_task(cluster, &flux, Tool::Helm4, &["history", "w1a"]).await;
    helm_task(cluster, &flux, Tool::Helm3, &["history", "w3b"]).await;
}

async fn upgrade(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    install_all(&flux).await;
    for_every_cut(
        cluster,
        &mut flux,
        "upgrade",
        async |flux, name| flux.apply(&HELM_RELEASE, name, with("two")).await,
        async |flux, name| {
            settled(flux, name, "two").await;
            in_order(cluster, flux, name, "two").await;
        },
    )
    .await;
    helm_task(cluster, &flux, Tool::Helm4, &["history", "w3a"]).await;
}

async fn removal(cluster: &Cluster) {
    let mut flux = start(cluster).await;
    publish(&flux, "app", &hooked("1.0.0")).await;
    install_all(&flux).await;
    for_every_cut(
        cluster,
        &mut flux,
        "removal",
        async |flux, name| {
            flux.api(&HELM_RELEASE).delete(name, &DeleteParams::default()).await.unwrap();
        },
        async |flux, name| {
            cluster.await_gone(&flux.api(&HELM_RELEASE), name).await.unwrap();
            let all = records(cluster, flux).await;
            assert!(!all.iter().any(|record| record.contains(&format!(".{name}.v"))), "{all:?}");
        },
    )
    .await;
}
