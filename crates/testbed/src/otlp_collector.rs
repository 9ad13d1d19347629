//! A collector of traces: OTLP over HTTP as the specification has it, read by OpenTelemetry's own messages.
//!
//! It takes protobuf and JSON on `/v1/traces`, refuses what is neither, and keeps every span.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::sync::Notify;

use crate::http_server::{HttpServer, Security};
use crate::wait;

/// A running collector.
pub struct OtlpCollector {
    http: HttpServer,
    record: Arc<Record>,
}

#[derive(Default)]
struct Record {
    /// With the `authorization` each came with.
    spans: Mutex<Vec<(String, Span)>>,
    refused: Mutex<Vec<String>>,
    changed: Notify,
}

impl OtlpCollector {
    pub fn start() -> Result<Self> {
        Self::start_with(Security::Plain)
    }

    pub fn start_with(security: Security<'_>) -> Result<Self> {
        let record = Arc::new(Record::default());
        let router = Router::new().route("/v1/traces", post(take)).with_state(record.clone());
        Ok(Self { http: HttpServer::start(router, security)?, record })
    }

    /// The base of its address; exporters add `/v1/traces`.
    pub fn url(&self) -> String {
        self.http.url()
    }

    pub fn spans(&self) -> Vec<Span> {
        let spans = self.record.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().map(|(_, span)| span.clone()).collect()
    }

    /// The `authorization` headers so far, one for each span.
    pub fn logins(&self) -> Vec<String> {
        let spans = self.record.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().map(|(login, _)| login.clone()).collect()
    }

    /// What was sent and could not be read.
    pub fn refused(&self) -> Vec<String> {
        self.record.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a span that fits; one that is here already counts.
    pub async fn await_span(&self, what: &str, fits: impl Fn(&Span) -> bool) -> Result<Span> {
        let look = || self.spans().into_iter().find(|span| fits(span));
        let what = format!("a span arrived that {what}");
        wait::until_changed(wait::LIMIT, &what, &self.record.changed, look).await
    }
}

async fn take(State(record): State<Arc<Record>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = text("content-type").split(';').next().unwrap_or_default().trim().to_owned();
    let read: Result<ExportTraceServiceRequest, String> = match content_type.as_str() {
        "application/x-protobuf" => {
            ExportTraceServiceRequest::decode(body).map_err(|error| error.to_string())
        }
        "application/json" => serde_json::from_slice(&body).map_err(|error| error.to_string()),
        _ => {
            record.refuse(format!("content type {content_type:?}"));
            return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
        }
    };
    let request = match read {
        Ok(request) => request,
        Err(problem) => {
            record.refuse(problem);
            return StatusCode::BAD_REQUEST.into_response();
        }
    };
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    for span in scopes.flat_map(|scope| scope.spans) {
        // The specification: such spans are to be thrown away.
        let is_id = |bytes: &[u8], length| bytes.len() == length && bytes.iter().any(|byte| *byte != 0);
        if !is_id(&span.trace_id, 16) || !is_id(&span.span_id, 8) {
            record.refuse(format!("the ids of span {:?} are none", span.name));
            continue;
        }
        let mut spans = record.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push((text("authorization").to_owned(), span));
    }
    record.changed.notify_waiters();
    let answer = ExportTraceServiceResponse { partial_success: None };
    match content_type.as_str() {
        "application/json" => ([("content-type", "application/json")], "{}").into_response(),
        _ => ([("content-type", "application/x-protobuf")], answer.encode_to_vec()).into_response(),
    }
}

impl Record {
    fn refuse(&self, problem: String) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
        self.changed.notify_waiters();
    }
}
