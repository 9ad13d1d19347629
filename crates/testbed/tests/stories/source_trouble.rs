//! Sources on servers that refuse, fail and break off at random: late, but whole.

use flux_api::kinds::{BUCKET, Controller, HELM_CHART, HELM_REPOSITORY, Kind, OCI_REPOSITORY};
use serde_json::json;
use testbed::Cluster;
use testbed::bucket::BucketServer;
use testbed::chart::Chart;
use testbed::chart_repository::ChartRepository;
use testbed::fault::{Fault, Faults, Times};
use testbed::registry::{Artifact, Blob, Registry, digest};

use crate::flux::Flux;
use crate::sources::artifact;

crate::stories!(sources_come_through_random_refusals_and_broken_connections);

fn trouble(faults: &Faults) {
    faults.inject("", Times::OneIn(5), Fault::Status(429));
    faults.inject("", Times::OneIn(5), Fault::Status(503));
    faults.inject("", Times::OneIn(7), Fault::Status(500));
    faults.inject("", Times::OneIn(7), Fault::CutAfter(20));
}

async fn sources_come_through_random_refusals_and_broken_connections(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[Controller::Source]).await;
    let (registry, bucket) = (Registry::start().unwrap(), BucketServer::start().unwrap());
    let charts = ChartRepository::start().unwrap();
    for server in [registry.http(), bucket.http(), charts.http()] {
        trouble(server.faults());
    }
    publish(&registry, &bucket, &charts, "1.0.0");
    let url = format!("oci://{}/app", registry.host());
    let copied = json!({ "operation": "copy" });
    let spec = json!({ "url": url, "interval": "1h", "insecure": true, "layerSelector": copied });
    flux.apply(&OCI_REPOSITORY, "app", spec).await;
    let spec =
        json!({ "endpoint": bucket.endpoint(), "bucketName": "app", "interval": "1h", "insecure": true });
    flux.apply(&BUCKET, "app", spec).await;
    flux.apply(&HELM_REPOSITORY, "app", json!({ "url": charts.url(), "interval": "1h" })).await;
    let source = json!({ "kind": "HelmRepository", "name": "app" });
    flux.apply(&HELM_CHART, "app", json!({ "chart": "app", "interval": "1h", "sourceRef": source })).await;

    let mut before: Vec<String> = vec![String::new(); KINDS.len()];
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        publish(&registry, &bucket, &charts, version);
        for (kind, last) in KINDS.iter().zip(&mut before) {
            flux.reconcile(kind, "app").await;
            let object = flux
                .until(kind, "app", "has the new version", |object| {
                    let status = &object["status"];
                    let found = status["artifact"]["revision"].as_str().unwrap_or_default();
                    found != last && crate::flux::ready(object).0 == "True"
                })
                .await;
            *last = object["status"]["artifact"]["revision"].as_str().unwrap().to_owned();
            // What is served is whole, whatever became of the first tries.
            assert_eq!(object["status"]["artifact"]["digest"], digest(&artifact(&object).await));
        }
        assert_eq!(before[3], version);
    }
}

const KINDS: [&Kind; 4] = [&OCI_REPOSITORY, &BUCKET, &HELM_REPOSITORY, &HELM_CHART];

fn publish(registry: &Registry, bucket: &BucketServer, charts: &ChartRepository, version: &str) {
    let chart = Chart::new("app", version);
    charts.add(&chart).unwrap();
    bucket.put("app", "a.yaml", version.as_bytes());
    bucket.put("app", "b.yaml", b"b: 1\n");
    let layer = chart.package().unwrap();
    let layer = Blob { media_type: "application/vnd.cncf.flux.content.v1.tar+gzip", bytes: &layer };
    let config = Blob { media_type: "application/vnd.cncf.flux.config.v1+json", bytes: b"{}" };
    let image = Artifact { config, layers: &[layer], annotations: &[] };
    registry.put("app", "latest", &image).unwrap();
}
