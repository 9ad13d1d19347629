//! What the process tells about itself over HTTP: `/metrics` on one address, `/healthz` and `/readyz` on another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics::Metrics;

/// Whether requests may be sent here.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    pub fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves until the task is ended.
pub async fn serve_health(listener: TcpListener, readiness: Readiness) {
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready))
        .with_state(readiness);
    report(axum::serve(listener, router).await);
}

pub async fn serve_metrics(listener: TcpListener, metrics: Metrics) {
    let router = Router::new().route("/metrics", get(page)).with_state(metrics);
    report(axum::serve(listener, router).await);
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    match readiness.is() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "standby: another replica holds the lease"),
    }
}

async fn page(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.page())
}

fn report(ended: std::io::Result<()>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a listener stopped");
    }
}
