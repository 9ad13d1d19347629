//! Releases change hands between the real helm, 3 and 4, and `helm::plan`: the same objects, records that both read, histories that
//! both continue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod executor;
mod real;
mod shop;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use helm::plan::{self, Builtin, Install, Propagation, Rollback, Uninstall, Upgrade, Waiting};
use helm::release::Release;
use helm::{Dialect, Values};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::core::TypeMeta;
use serde_json::{Value as Json, json};
use testbed::Cluster;

use executor::{Executor, comparable};
use real::RealHelm;

testbed::stories! {
    helm_4_and_we_make_the_same_objects_and_records,
    helm_3_and_we_make_the_same_objects_and_records,
    helm_4_works_on_what_we_stored,
    helm_3_works_on_what_we_stored,
    we_continue_what_helm_4_stored,
    we_continue_what_helm_3_stored,
}

async fn helm_4_and_we_make_the_same_objects_and_records(cluster: &Cluster) -> Result<()> {
    the_same_objects_and_records(cluster, Dialect::Helm4).await
}

async fn helm_3_and_we_make_the_same_objects_and_records(cluster: &Cluster) -> Result<()> {
    the_same_objects_and_records(cluster, Dialect::Helm3).await
}

async fn helm_4_works_on_what_we_stored(cluster: &Cluster) -> Result<()> {
    the_real_helm_works_on_what_we_stored(cluster, Dialect::Helm4).await
}

async fn helm_3_works_on_what_we_stored(cluster: &Cluster) -> Result<()> {
    the_real_helm_works_on_what_we_stored(cluster, Dialect::Helm3).await
}

async fn we_continue_what_helm_4_stored(cluster: &Cluster) -> Result<()> {
    we_continue_what_the_real_helm_stored(cluster, Dialect::Helm4).await
}

async fn we_continue_what_helm_3_stored(cluster: &Cluster) -> Result<()> {
    we_continue_what_the_real_helm_stored(cluster, Dialect::Helm3).await
}

async fn the_same_objects_and_records(cluster: &Cluster, dialect: Dialect) -> Result<()> {
    let (theirs, ours) = (cluster.namespace("theirs").await?, cluster.namespace("ours").await?);
    let real = RealHelm::new(cluster, &theirs, dialect).await?;
    let executor = Executor { cluster, namespace: ours.name(), dialect };
    let reader = Executor { cluster, namespace: theirs.name(), dialect };
    for (revision, verb) in [(1, "install"), (2, "upgrade")] {
        real.apply(verb, revision).await?;
        apply(&executor, revision, shop::values(revision)).await?;
        let (made, wanted) = (objects(cluster, ours.name()).await?, objects(cluster, theirs.name()).await?);
        assert_eq!(made.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "revision {revision}");
        for (key, wanted) in &wanted {
            assert_eq!(pretty(&made[key]), pretty(wanted), "{key}, revision {revision}");
        }
    }
    let (made, wanted) = (executor.history("shop").await?, reader.history("shop").await?);
    assert_eq!(made.revisions().len(), 2);
    for (made, wanted) in made.revisions().iter().zip(wanted.revisions()) {
        let made = timeless(made, ours.name(), dialect)?;
        assert_eq!(pretty(&made), pretty(&timeless(wanted, theirs.name(), dialect)?));
    }
    Ok(())
}

async fn the_real_helm_works_on_what_we_stored(cluster: &Cluster, dialect: Dialect) -> Result<()> {
    let namespace = cluster.namespace("helm").await?;
    let real = RealHelm::new(cluster, &namespace, dialect).await?;
    let executor = Executor { cluster, namespace: namespace.name(), dialect };
    apply(&executor, 1, shop::values(1)).await?;
    let first = objects(cluster, namespace.name()).await?;
    apply(&executor, 2, shop::values(2)).await?;

    let list = real.json(&["list"]).await?;
    let entry = &list[0];
    assert_eq!(
        (&entry["name"], &entry["revision"], &entry["status"], &entry["chart"], &entry["app_version"]),
        (&json!("shop"), &json!("2"), &json!("deployed"), &json!("shop-1.4.0"), &json!("2.0"))
    );
    assert_eq!(
        real.history().await?,
        [entry_of(1, "superseded", "Install complete"), entry_of(2, "deployed", "Upgrade complete")]
    );
    let release = executor.history("shop").await?.last().context("stored")?.clone();
    let all = real.run(&["get", "all", "shop"]).await?;
    for part in ["NAME: shop\n", "STATUS: deployed\nREVISION: 2\n", "greeting: good night", &release.manifest]
    {
        assert!(all.contains(part), "{part:?} is not in\n{all}");
    }
    assert!(all.contains("NOTES:\ngood night from shop"), "{all}");
    assert!(all.contains("# Source: shop/templates/hooks.yaml"), "{all}");
    assert_eq!(real.json(&["get", "values", "shop"]).await?, json!(shop::values(2).as_map()));
    let computed = real.json(&["get", "values", "shop", "--all"]).await?;
    assert_eq!((&computed["limit"], &computed["desk"]["price"]), (&json!(12_345_678), &json!(1.5)));

    real.run(&["rollback", "shop", "1"]).await?;
    let mut back = objects(cluster, namespace.name()).await?;
    // Hooks that ran before the upgrade stay as they ran.
    back.insert("ConfigMap shop-before".to_owned(), first["ConfigMap shop-before"].clone());
    for (key, wanted) in &first {
        assert_eq!(
            pretty(&without_managers(&back[key])),
            pretty(&without_managers(wanted)),
            "{key} after rollback"
        );
    }
    assert_eq!(real.history().await?[2], entry_of(3, "deployed", "Rollback to 1"));

    real.run(&["uninstall", "shop"]).await?;
    assert_eq!(real.json(&["list"]).await?, json!([]));
    assert!(executor.history("shop").await?.is_empty());
    let left = objects(cluster, namespace.name()).await?;
    let left: Vec<_> =
        left.iter().filter(|(_, object)| object["metadata"]["deletionTimestamp"].is_null()).collect();
    let names: Vec<&str> = left.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(names, ["ConfigMap shop-before", "ConfigMap shop-kept"]);
    Ok(())
}

async fn we_continue_what_the_real_helm_stored(cluster: &Cluster, dialect: Dialect) -> Result<()> {
    let namespace = cluster.namespace("helm").await?;
    let real = RealHelm::new(cluster, &namespace, dialect).await?;
    let executor = Executor { cluster, namespace: namespace.name(), dialect };
    real.apply("install", 1).await?;
    let first = objects(cluster, namespace.name()).await?;

    apply(&executor, 2, shop::values(2)).await?;
    let second = objects(cluster, namespace.name()).await?;
    assert_eq!(second["ConfigMap shop-settings"]["data"]["greeting"], "good night");
    assert!(!second.contains_key("ServiceAccount shop-extra"), "what the chart no longer has is gone");
    assert_eq!(second["Box shop"]["spec"], json!({"size": 10, "label": "good night"}));

    roll_back(&executor, 1).await?;
    let third = objects(cluster, namespace.name()).await?;
    for (key, wanted) in first.iter().filter(|(key, _)| *key != "ConfigMap shop-before") {
        assert_eq!(
            pretty(&without_managers(&third[key])),
            pretty(&without_managers(wanted)),
            "{key} after rollback"
        );
    }
    assert_eq!(
        real.history().await?,
        [
            entry_of(1, "superseded", "Install complete"),
            entry_of(2, "superseded", "Upgrade complete"),
            entry_of(3, "deployed", "Rollback to 1"),
        ]
    );
    assert_eq!(real.json(&["list"]).await?[0]["revision"], "3");
    assert!(real.run(&["get", "all", "shop"]).await?.contains("good day from shop"));

    // And the real one goes on from there, without being asked for values again.
    real.run(&["upgrade", "shop", "shop", "--reuse-values", "--set", "greeting=welcome"]).await?;
    let fourth = objects(cluster, namespace.name()).await?;
    assert_eq!(fourth["ConfigMap shop-settings"]["data"]["greeting"], "welcome");
    assert_eq!(fourth["ConfigMap shop-settings"]["data"]["limit"], "2e+07");
    assert_eq!(executor.history("shop").await?.last().map(|release| release.version), Some(4));

    uninstall(&executor).await?;
    assert_eq!(real.json(&["list"]).await?, json!([]));
    let left = objects(cluster, namespace.name()).await?;
    let left = left.iter().filter(|(_, object)| object["metadata"]["deletionTimestamp"].is_null());
    let names: Vec<&str> = left.map(|(key, _)| key.as_str()).collect();
    assert_eq!(names, ["ConfigMap shop-before", "ConfigMap shop-kept"]);
    Ok(())
}

fn entry_of(revision: i64, status: &str, description: &str) -> (i64, String, String) {
    (revision, status.to_owned(), description.to_owned())
}

const NO_WAITING: Waiting = Waiting { wait: false, wait_for_jobs: false, disable_hooks: false };

/// Installs or upgrades, as the real helm of the executor's dialect would by default.
async fn apply(executor: &Executor<'_>, revision: i64, values: Values) -> Result<()> {
    let Executor { cluster, namespace, dialect } = *executor;
    let (release, crds) = shop::render(cluster, namespace, &values, revision, dialect).await?;
    let history = executor.history("shop").await?;
    let old = history.last().map(|release| release.manifest.clone()).unwrap_or_default();
    let live = executor.live(&[&release.manifest, &old]).await?;
    let plan = if history.is_empty() {
        let options = Install {
            create_namespace: false,
            skip_crds: false,
            replace: false,
            take_ownership: false,
            server_side: dialect == Dialect::Helm4,
            force_conflicts: false,
            force_replace: false,
            waiting: NO_WAITING,
            description: String::new(),
            labels: BTreeMap::new(),
            max_history: 0,
        };
        plan::install(release, &crds, &history, &live, &Builtin, &options)?
    } else {
        let options = Upgrade {
            take_ownership: false,
            server_side: None,
            force_conflicts: false,
            force_replace: false,
            cleanup_on_fail: false,
            waiting: NO_WAITING,
            description: String::new(),
            labels: BTreeMap::new(),
            max_history: 10,
        };
        plan::upgrade(release, &history, &live, &Builtin, &options)?
    };
    executor.run(plan).await
}

async fn roll_back(executor: &Executor<'_>, to: i64) -> Result<()> {
    let history = executor.history("shop").await?;
    let manifests: Vec<&str> = history.revisions().iter().map(|release| release.manifest.as_str()).collect();
    let live = executor.live(&manifests).await?;
    let options = Rollback {
        to,
        server_side: None,
        force_conflicts: false,
        force_replace: false,
        cleanup_on_fail: false,
        waiting: NO_WAITING,
        description: String::new(),
        max_history: 10,
    };
    executor.run(plan::rollback(&history, &live, &Builtin, &options, jiff::Timestamp::now())?).await
}

async fn uninstall(executor: &Executor<'_>) -> Result<()> {
    let history = executor.history("shop").await?;
    let last = history.last().context("something to uninstall")?;
    let live = executor.live(&[&last.manifest]).await?;
    let options = Uninstall {
        keep_history: false,
        propagation: Propagation::Background,
        waiting: NO_WAITING,
        description: String::new(),
    };
    let uninstalling = plan::uninstall(&history, &live, &Builtin, &options, jiff::Timestamp::now())?;
    assert_eq!(
        uninstalling.kept,
        "These resources were kept due to the resource policy:\n[ConfigMap] shop-kept\n"
    );
    executor.run(uninstalling.plan).await
}

/// All objects of the shop, by kind and name.
async fn objects(cluster: &Cluster, namespace: &str) -> Result<BTreeMap<String, Json>> {
    const KINDS: [(&str, &str); 7] = [
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "Service"),
        ("v1", "ServiceAccount"),
        ("apps/v1", "Deployment"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("shop.example.com/v1", "Box"),
    ];
    let mut found = BTreeMap::new();
    for (version, kind) in KINDS {
        let types = TypeMeta { api_version: version.to_owned(), kind: kind.to_owned() };
        let api: Api<DynamicObject> = cluster.dynamic(&types, namespace).await?;
        for object in api.list(&ListParams::default()).await?.items {
            let name = object.metadata.name.clone().unwrap_or_default();
            let ours = match kind {
                "ClusterRole" => name == format!("{namespace}-reader"),
                _ => name.starts_with("shop"),
            };
            if ours {
                let object = comparable(&serde_json::to_value(object)?, namespace)?;
                found.insert(format!("{kind} {}", name.replace(namespace, "NAMESPACE")), object);
            }
        }
    }
    Ok(found)
}

fn without_managers(object: &Json) -> Json {
    let mut object = object.clone();
    object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    object
}

/// A record without times and without the name of its namespace, as its kind of helm would write it.
fn timeless(release: &Release, namespace: &str, dialect: Dialect) -> Result<Json> {
    fn strip(value: &mut Json) {
        match value {
            Json::Object(fields) => {
                for (key, value) in fields.iter_mut() {
                    let time = ["first_deployed", "last_deployed", "started_at", "completed_at"]
                        .contains(&key.as_str());
                    if time && value.as_str().is_some_and(|text| !text.is_empty()) {
                        *value = json!("TIME");
                    }
                    strip(value);
                }
                fields.retain(|key, _| key != "modtime" && key != "schemamodtime");
            }
            Json::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let text = helm::release::encode(release, dialect)?;
    let mut value = serde_json::to_value(helm::release::decode(text.as_bytes())?)?;
    strip(&mut value);
    Ok(serde_json::from_str(&value.to_string().replace(namespace, "NAMESPACE"))?)
}

fn pretty(value: &Json) -> String {
    serde_json::to_string_pretty(value).unwrap()
}
