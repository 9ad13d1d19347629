//! Workloads become ready or fail on a control plane without nodes.

use anyhow::Result;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::Api;
use testbed::Cluster;

fn workload(kind: &str, name: &str, annotation: &str) -> String {
    let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    let selector = if kind == "Job" {
        "backoffLimit: 0".to_owned()
    } else {
        format!("replicas: 2\n  selector: {{matchLabels: {{app: {name}}}}}")
    };
    let policy = if kind == "Job" { "restartPolicy: Never" } else { "" };
    format!(
        "apiVersion: {api}
kind: {kind}
metadata: {{name: {name}}}
spec:
  {selector}
  template:
    metadata:
      labels: {{app: {name}}}
      annotations: {{testbed/pod: {annotation}}}
    spec:
      containers: [{{name: app, image: 'app:1'}}]
      {policy}
---
"
    )
}

#[tokio::test]
async fn deployments_and_stateful_sets_become_ready() -> Result<()> {
    let cluster = Cluster::real().await?;
    let _workloads = cluster.simulate_workloads().await?;
    let namespace = cluster.namespace("ready").await?;
    let text = workload("Deployment", "web", "ready") + &workload("StatefulSet", "db", "ready");
    cluster.apply_yaml(namespace.name(), &text).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace.name());
    cluster
        .await_condition(&deployments, "web", "has two available replicas", |web| {
            web.status.as_ref().is_some_and(|status| status.available_replicas == Some(2))
        })
        .await?;
    let sets: Api<StatefulSet> = Api::namespaced(cluster.client(), namespace.name());
    cluster
        .await_condition(&sets, "db", "has two ready replicas", |db| {
            db.status.as_ref().is_some_and(|status| status.ready_replicas == Some(2))
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn jobs_complete_or_fail_as_their_annotation_says() -> Result<()> {
    let cluster = Cluster::real().await?;
    let _workloads = cluster.simulate_workloads().await?;
    let namespace = cluster.namespace("jobs").await?;
    let text = workload("Job", "good", "ready") + &workload("Job", "bad", "fail");
    cluster.apply_yaml(namespace.name(), &text).await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), namespace.name());
    let ended = |name: &'static str, kind: &'static str| {
        cluster.await_condition(&jobs, name, kind, move |job| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|list| list.iter().any(|c| c.type_ == kind && c.status == "True"))
        })
    };
    ended("good", "Complete").await?;
    ended("bad", "Failed").await?;
    Ok(())
}

#[tokio::test]
async fn a_crashing_pod_says_why_and_its_deployment_stays_unavailable() -> Result<()> {
    let cluster = Cluster::real().await?;
    let _workloads = cluster.simulate_workloads().await?;
    let namespace = cluster.namespace("crash").await?;
    let text = workload("Deployment", "web", "crash");
    cluster.apply_yaml(namespace.name(), &text).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace.name());
    cluster
        .eventually(&pods, "two Pods are in CrashLoopBackOff", |pods| {
            let crashing = pods
                .iter()
                .filter(|pod| serde_json::to_string(pod).is_ok_and(|text| text.contains("CrashLoopBackOff")));
            crashing.count() == 2
        })
        .await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), namespace.name());
    let web = deployments.get("web").await?;
    assert_eq!(web.status.and_then(|status| status.available_replicas), None);
    Ok(())
}

#[tokio::test]
async fn claims_are_bound_and_load_balancers_get_an_address() -> Result<()> {
    let cluster = Cluster::real().await?;
    let _workloads = cluster.simulate_workloads().await?;
    let namespace = cluster.namespace("infra").await?;
    let text = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 2Gi}}
---
apiVersion: v1
kind: Service
metadata: {name: entry}
spec: {type: LoadBalancer, ports: [{port: 80}]}
";
    cluster.apply_yaml(namespace.name(), text).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.client(), namespace.name());
    cluster
        .await_condition(&claims, "data", "is bound", |claim| {
            let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Bound")
        })
        .await?;
    let services: Api<Service> = Api::namespaced(cluster.client(), namespace.name());
    cluster
        .await_condition(&services, "entry", "has an address", |service| {
            serde_json::to_string(service).is_ok_and(|text| text.contains("192.0.2.1"))
        })
        .await?;
    Ok(())
}
