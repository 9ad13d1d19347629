//! An API that has logs only.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{StatusCode, Uri};
use serde_json::json;
use testbed::http_server::{HttpServer, Security};

type Answer = (StatusCode, [(HeaderName, &'static str); 1], String);

const JSON: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];

/// Serves one Deployment, one Pod and its log.
pub fn log_api(log: String) -> HttpServer {
    let router = Router::new().fallback(logs).with_state(Arc::new(log));
    HttpServer::start(router, Security::Plain).unwrap()
}

async fn logs(State(log): State<Arc<String>>, uri: Uri) -> Answer {
    let place = json!({"name": "ctl", "namespace": "flux-system"});
    let template =
        json!({"metadata": {"labels": {"app": "ctl"}}, "spec": {"containers": [{"name": "manager"}]}});
    let body = match uri.path().rsplit('/').next().unwrap_or_default() {
        "deployments" => json!({"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [{
            "metadata": place, "spec": {"selector": {"matchLabels": {"app": "ctl"}}, "template": template}}]})
        .to_string(),
        "pods" => json!({"kind": "PodList", "apiVersion": "v1", "items": [{
            "metadata": {"name": "ctl-0", "namespace": "flux-system"},
            "spec": {"containers": [{"name": "manager"}]}, "status": {"phase": "Running"}}]})
        .to_string(),
        "log" => return (StatusCode::OK, [(CONTENT_TYPE, "text/plain")], log.as_str().to_owned()),
        _ => return (StatusCode::NOT_FOUND, JSON, "{}".to_owned()),
    };
    (StatusCode::OK, JSON, body)
}
