//! A classic Helm chart repository: `index.yaml` and packed charts over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde_json::{Value, json};

use crate::chart::Chart;
use crate::http_server::{HttpServer, Security};
use crate::registry::digest;

/// A running repository.
pub struct ChartRepository {
    http: HttpServer,
    state: Arc<Site>,
}

#[derive(Default)]
struct Site {
    /// User and password, if it asks for them.
    account: Option<(String, String)>,
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    charts: BTreeMap<String, Vec<Value>>,
    packages: BTreeMap<String, Vec<u8>>,
}

impl ChartRepository {
    pub fn start() -> Result<Self> {
        Self::start_with(None, Security::Plain)
    }

    pub fn start_with(account: Option<(&str, &str)>, security: Security<'_>) -> Result<Self> {
        let account = account.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let state = Arc::new(Site { account, content: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(state.clone());
        let http = HttpServer::start(router, security)?;
        Ok(Self { http, state })
    }

    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    pub fn url(&self) -> String {
        self.http.url()
    }

    /// Adds a chart; a version that is there already is replaced.
    pub fn add(&self, chart: &Chart) -> Result<()> {
        let package = chart.package()?;
        let entry = json!({
            "apiVersion": "v2",
            "name": chart.name,
            "version": chart.version,
            "appVersion": chart.version,
            "created": "2026-01-01T00:00:00Z",
            "digest": digest(&package).trim_start_matches("sha256:"),
            // Relative to the index, as `helm repo index` writes it.
            "urls": [chart.file_name()],
        });
        let mut content = self.state.content();
        let versions = content.charts.entry(chart.name.clone()).or_default();
        versions.retain(|known| known["version"] != chart.version.as_str());
        versions.push(entry);
        content.packages.insert(chart.file_name(), package);
        Ok(())
    }
}

impl Site {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(account) = &self.account else {
            return true;
        };
        let offered = headers.get(header::AUTHORIZATION);
        let offered = offered.and_then(|value| value.to_str().ok());
        offered.and_then(crate::http_server::credentials).as_ref() == Some(account)
    }
}

async fn answer(State(site): State<Arc<Site>>, uri: Uri, headers: HeaderMap) -> Response {
    if !site.admits(&headers) {
        let mut response = text(StatusCode::UNAUTHORIZED, b"unauthorized\n".to_vec());
        let challenge = HeaderValue::from_static("Basic realm=\"testbed\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return response;
    }
    let content = site.content();
    let name = uri.path().trim_start_matches('/');
    if name == "index.yaml" {
        // JSON is YAML, and every reader of an index reads YAML.
        let index = json!({
            "apiVersion": "v1",
            "generated": "2026-01-01T00:00:00Z",
            "entries": content.charts,
        });
        return text(StatusCode::OK, index.to_string().into_bytes());
    }
    match content.packages.get(name) {
        Some(package) => text(StatusCode::OK, package.clone()),
        None => text(StatusCode::NOT_FOUND, b"not found\n".to_vec()),
    }
}

fn text(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}
