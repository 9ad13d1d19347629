//! Receives webhooks and remembers them: what a chat, a Git host or another controller would have been told.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, Method, StatusCode, Uri};
use tokio::sync::Notify;

use crate::http_server::{HttpServer, Security};
use crate::wait;

/// One webhook as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    /// Path with query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: std::time::SystemTime,
}

impl Received {
    /// A header's value, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    pub fn json(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// A running sink; every path is accepted. [`WebhookSink::http`] can be told to fail.
pub struct WebhookSink {
    http: HttpServer,
    record: Arc<Record>,
}

#[derive(Default)]
struct Record {
    received: Mutex<Vec<Received>>,
    changed: Notify,
}

impl WebhookSink {
    pub fn start() -> Result<Self> {
        Self::start_with(Security::Plain)
    }

    pub fn start_with(security: Security<'_>) -> Result<Self> {
        let record = Arc::new(Record::default());
        let router = Router::new().fallback(receive).with_state(record.clone());
        let http = HttpServer::start(router, security)?;
        Ok(Self { http, record })
    }

    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    pub fn url(&self) -> String {
        self.http.url()
    }

    /// Everything received so far.
    pub fn received(&self) -> Vec<Received> {
        self.record.all()
    }

    /// Waits for a webhook that fits; one that is here already counts.
    pub async fn await_request(&self, what: &str, fits: impl Fn(&Received) -> bool) -> Result<Received> {
        let look = || self.record.all().into_iter().find(|received| fits(received));
        let changed = &self.record.changed;
        wait::until_changed(wait::LIMIT, &format!("a webhook arrived that {what}"), changed, look).await
    }
}

impl Record {
    fn all(&self) -> Vec<Received> {
        let received = self.received.lock();
        received.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn receive(
    State(record): State<Arc<Record>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let (method, path, at) = (method.to_string(), path.to_owned(), std::time::SystemTime::now());
    let received = Received { method, path, headers, body, at };
    record.received.lock().unwrap_or_else(PoisonError::into_inner).push(received);
    record.changed.notify_waiters();
    StatusCode::OK
}
