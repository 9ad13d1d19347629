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
    content: Mutex<Content>,
}

#[derive(Default)]
struct Content {
    /// User and password, if it asks for them.
    account: Option<(String, String)>,
    /// Served instead of an index made from the charts.
    index: Option<Vec<u8>>,
    /// What chart addresses in the index begin with; relative when empty.
    chart_base: String,
    charts: BTreeMap<String, Vec<Value>>,
    packages: BTreeMap<String, Vec<u8>>,
}

impl ChartRepository {
    pub fn start() -> Result<Self> {
        Self::start_with(None, Security::Plain)
    }

    pub fn start_with(account: Option<(&str, &str)>, security: Security<'_>) -> Result<Self> {
        let account = account.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let state = Arc::new(Site::default());
        state.content().account = account;
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

    /// From now on it asks for this user and password.
    pub fn set_account(&self, user: &str, password: &str) {
        self.state.content().account = Some((user.to_owned(), password.to_owned()));
    }

    /// From now on this is the index, whatever charts there are.
    pub fn set_index(&self, text: impl Into<Vec<u8>>) {
        self.state.content().index = Some(text.into());
    }

    /// From now on the index says that charts lie at this address.
    pub fn set_chart_base(&self, base: &str) {
        self.state.content().chart_base = base.to_owned();
    }

    /// The index as it is served.
    pub fn index(&self) -> Vec<u8> {
        self.state.content().index()
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

impl Content {
    fn index(&self) -> Vec<u8> {
        if let Some(index) = &self.index {
            return index.clone();
        }
        let mut charts = self.charts.clone();
        for version in charts.values_mut().flatten() {
            // Relative to the index, as `helm repo index` writes it, unless told otherwise.
            let url = format!("{}{}", self.chart_base, version["urls"][0].as_str().unwrap_or_default());
            version["urls"] = json!([url]);
        }
        // JSON is YAML, and every reader of an index reads YAML.
        let index = json!({"apiVersion": "v1", "generated": "2026-01-01T00:00:00Z", "entries": charts});
        index.to_string().into_bytes()
    }
}

impl Site {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(account) = self.content().account.clone() else {
            return true;
        };
        let offered = headers.get(header::AUTHORIZATION);
        let offered = offered.and_then(|value| value.to_str().ok());
        offered.and_then(crate::http_server::credentials).as_ref() == Some(&account)
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
        let index = content.index();
        let etag = format!("\"{}\"", digest(&index));
        if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == etag.as_bytes()) {
            return text(StatusCode::NOT_MODIFIED, Vec::new());
        }
        let mut response = text(StatusCode::OK, index);
        if let Ok(value) = etag.parse() {
            response.headers_mut().insert(header::ETAG, value);
        }
        return response;
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
