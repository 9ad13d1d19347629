//! Simulated workloads: ready, finished, bound, or failing on request.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use apiserver::{Server, Simulation};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

async fn client() -> Client {
    let simulation = Simulation::On { delay: Duration::from_millis(20) };
    let server = Server::builder().simulation(simulation).start().await.unwrap();
    Client::new(server.service(), "default")
}

fn template(annotations: Value) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" }, "annotations": annotations },
        "spec": { "containers": [{ "name": "c", "image": "web:1" }] },
    })
}

async fn until<K>(api: &Api<K>, name: &str, holds: impl Fn(&Value) -> bool + Send + Sync) -> Value
where
    K: Clone + std::fmt::Debug + Send + DeserializeOwned + serde::Serialize + kube::Resource + 'static,
{
    let condition =
        |object: Option<&K>| object.is_some_and(|object| holds(&serde_json::to_value(object).unwrap()));
    let found =
        tokio::time::timeout(Duration::from_secs(30), await_condition(api.clone(), name, condition)).await;
    serde_json::to_value(found.unwrap().unwrap().unwrap()).unwrap()
}

fn condition(object: &Value, kind: &str) -> Option<(String, String)> {
    let list = object["status"]["conditions"].as_array()?;
    let found = list.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str()?.to_owned(), found["reason"].as_str().unwrap_or_default().to_owned()))
}

fn deployment(annotations: Value) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": template(annotations) },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_deployment_becomes_ready_and_rolls_over() {
    let client = client().await;
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &deployment(json!({}))).await.unwrap();
    let ready = until(&api, "web", |object| object["status"]["readyReplicas"] == 2).await;
    assert_eq!(condition(&ready, "Available").unwrap().0, "True");

    let image =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "web:2" }] } } } });
    api.patch("web", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    let rolled = until(&api, "web", |object| {
        object["status"]["observedGeneration"] == 2
            && condition(object, "Progressing").is_some_and(|(_, reason)| reason == "NewReplicaSetAvailable")
    })
    .await;
    assert_eq!(rolled["status"]["updatedReplicas"], 2);
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 2);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let images: Vec<String> = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap())
        .collect();
    assert_eq!(images, ["web:2", "web:2"]);

    let uid = rolled["metadata"]["uid"].as_str().unwrap().to_owned();
    api.delete("web", &DeleteParams::foreground()).await.unwrap();
    await_condition(api, "web", kube::runtime::conditions::is_deleted(&uid)).await.unwrap();
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn failures_show_where_users_look_for_them() {
    let client = client().await;
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &deployment(json!({ "testbed/pod": "image-pull" }))).await.unwrap();
    until(&api, "web", |object| condition(object, "Available").is_some_and(|(status, _)| status == "False"))
        .await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let name = pods.list(&ListParams::default()).await.unwrap().items[0].name_any();
    until(&pods, &name, |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    })
    .await;
}

#[tokio::test]
async fn jobs_complete_or_fail_and_claims_are_bound() {
    let client = client().await;
    let api: Api<Job> = Api::default_namespaced(client.clone());
    let job = |name: &str, annotations: Value| -> Job {
        let mut template = template(annotations);
        template["spec"]["restartPolicy"] = "Never".into();
        serde_json::from_value(
            json!({ "metadata": { "name": name }, "spec": { "backoffLimit": 1, "template": template } }),
        )
        .unwrap()
    };
    api.create(&PostParams::default(), &job("good", json!({}))).await.unwrap();
    api.create(&PostParams::default(), &job("bad", json!({ "testbed/pod": "fail" }))).await.unwrap();
    let good = until(&api, "good", |job| condition(job, "Complete").is_some()).await;
    assert_eq!(good["status"]["succeeded"], 1);
    let bad = until(&api, "bad", |job| condition(job, "Failed").is_some()).await;
    assert_eq!(condition(&bad, "Failed").unwrap().1, "BackoffLimitExceeded");

    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    until(&claims, "data", |claim| claim["status"]["phase"] == "Bound").await;

    let services: Api<Service> = Api::default_namespaced(client);
    let service = json!({ "metadata": { "name": "lb" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let service =
        until(&services, "lb", |service| service["status"]["loadBalancer"]["ingress"][0]["ip"].is_string())
            .await;
    assert!(service["spec"]["clusterIP"].is_string() && service["spec"]["ports"][0]["nodePort"].is_number());
}

#[tokio::test]
async fn stateful_and_daemon_sets_become_ready() {
    let client = client().await;
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    let set = json!({
        "metadata": { "name": "db" },
        "spec": {
            "replicas": 2, "serviceName": "db", "selector": { "matchLabels": { "app": "web" } }, "template": template(json!({})),
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }],
        },
    });
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    let ready = until(&sets, "db", |set| set["status"]["readyReplicas"] == 2).await;
    assert_eq!(ready["status"]["currentRevision"], ready["status"]["updateRevision"]);
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    assert_eq!(claims.get("data-db-1").await.unwrap().name_any(), "data-db-1");

    let daemons: Api<DaemonSet> = Api::default_namespaced(client);
    let daemon = json!({ "metadata": { "name": "agent" }, "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template(json!({})) } });
    daemons.create(&PostParams::default(), &serde_json::from_value(daemon).unwrap()).await.unwrap();
    until(&daemons, "agent", |set| set["status"]["numberReady"] == 1).await;
}
