//! Health: what a Kustomization that waits can see.

use flux_api::kinds::HELM_RELEASE;
use serde_json::{Value, json};
use testbed::Cluster;

use crate::flux::Flux;

crate::stories!(a_new_object_is_behind_until_its_controller_has_said_something);

/// Otherwise somebody who waits for it would find it healthy before anything has happened.
async fn a_new_object_is_behind_until_its_controller_has_said_something(cluster: &Cluster) {
    let flux = Flux::start(cluster, &[]).await;
    let chart = json!({ "kind": "OCIRepository", "name": "app" });
    flux.apply(&HELM_RELEASE, "app", json!({ "interval": "1h", "chartRef": chart })).await;
    let behind = |object: &Value| object["status"]["observedGeneration"] == -1;
    let object = flux.until(&HELM_RELEASE, "app", "is behind", behind).await;
    let health = flux_apply::health::judge(&object, 0);
    assert_eq!(health.status, flux_apply::health::Status::InProgress, "{}", health.message);
}
