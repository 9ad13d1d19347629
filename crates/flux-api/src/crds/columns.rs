//! What `kubectl get` shows of each kind, in upstream's order.

use serde_json::{Value, json};

use crate::kinds::{self, Kind};

fn column(name: &str, json_path: &str) -> Value {
    json!({ "jsonPath": json_path, "name": name, "type": "string" })
}

/// Only shown with `-o wide`.
fn wide(name: &str, json_path: &str) -> Value {
    json!({ "jsonPath": json_path, "name": name, "priority": 1, "type": "string" })
}

fn age() -> Value {
    json!({ "jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date" })
}

fn ready() -> Value {
    column("Ready", r#".status.conditions[?(@.type=="Ready")].status"#)
}

fn status() -> Value {
    column("Status", r#".status.conditions[?(@.type=="Ready")].message"#)
}

pub(super) fn of(kind: &Kind) -> Vec<Value> {
    let url = || column("URL", ".spec.url");
    match *kind {
        kinds::GIT_REPOSITORY | kinds::HELM_REPOSITORY => vec![url(), age(), ready(), status()],
        kinds::OCI_REPOSITORY => vec![url(), ready(), status(), age()],
        kinds::BUCKET => vec![column("Endpoint", ".spec.endpoint"), age(), ready(), status()],
        kinds::HELM_CHART => vec![
            column("Chart", ".spec.chart"),
            column("Version", ".spec.version"),
            column("Source Kind", ".spec.sourceRef.kind"),
            column("Source Name", ".spec.sourceRef.name"),
            age(),
            ready(),
            status(),
        ],
        kinds::EXTERNAL_ARTIFACT => vec![age(), ready(), status(), column("Source", ".spec.sourceRef.name")],
        kinds::PROVIDER | kinds::ALERT => vec![age()],
        kinds::IMAGE_REPOSITORY => vec![
            column("Image", ".spec.image"),
            column("Tags", ".status.lastScanResult.tagCount"),
            ready(),
            status(),
            wide("Last scan", ".status.lastScanResult.scanTime"),
            age(),
        ],
        kinds::IMAGE_POLICY => vec![
            column("Image", ".status.latestRef.name"),
            column("Tag", ".status.latestRef.tag"),
            ready(),
            status(),
            age(),
        ],
        kinds::IMAGE_UPDATE_AUTOMATION => {
            vec![ready(), status(), wide("Last run", ".status.lastAutomationRunTime"), age()]
        }
        // Kustomization, HelmRelease, Receiver, ArtifactGenerator.
        _ => vec![age(), ready(), status()],
    }
}
