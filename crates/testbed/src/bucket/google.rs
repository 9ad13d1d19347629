//! Google in memory: Cloud Storage through its JSON API, and the services that hand out tokens for it.
//!
//! Everything is below the name that `Environment::for_tests` gives it. Lists come in pages of two, and a download has to say
//! which generation it is of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::{lock, value};
use crate::http_server::{HttpServer, Security, decode, parameters};

const PAGE: usize = 2;
const FORM_LIMIT: usize = 1 << 20;

/// The token of the machine, of an exchange, of an account that is acted as, and of a key.
pub const MACHINE: &str = "google-machine-token";
pub const EXCHANGED: &str = "google-exchanged-token";
pub const IMPERSONATED: &str = "google-impersonated-token";
pub const KEY: &str = "google-key-token";

/// A running server.
pub struct GoogleServer {
    http: HttpServer,
    site: Arc<Site>,
}

struct Site {
    /// Whose token opens the buckets.
    admitted: Mutex<String>,
    buckets: Mutex<BTreeMap<String, BTreeMap<String, Object>>>,
    asked: Mutex<Vec<(String, String)>>,
}

#[derive(Clone)]
struct Object {
    generation: u64,
    content: Bytes,
}

impl Object {
    /// As Google's: nothing that follows from the content.
    fn etag(&self) -> String {
        format!("CO{}=", self.generation)
    }
}

impl GoogleServer {
    pub fn start(admitted: &str) -> Result<Self> {
        let site = Arc::new(Site {
            admitted: Mutex::new(admitted.to_owned()),
            buckets: Mutex::default(),
            asked: Mutex::default(),
        });
        let http =
            HttpServer::start(Router::new().fallback(answer).with_state(site.clone()), Security::Plain)?;
        Ok(Self { http, site })
    }

    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    /// From now on this token opens the buckets, and no other.
    pub fn admit(&self, token: &str) {
        *lock(&self.site.admitted) = token.to_owned();
    }

    pub fn put(&self, bucket: &str, key: &str, content: &[u8]) {
        let mut buckets = lock(&self.site.buckets);
        let generation =
            buckets.values().flatten().map(|(_, object)| object.generation).max().unwrap_or(0) + 1;
        let object = Object { generation, content: Bytes::copy_from_slice(content) };
        buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), object);
    }

    /// Path and body of every request for a token.
    pub fn asked(&self) -> Vec<(String, String)> {
        lock(&self.site.asked).clone()
    }
}

async fn answer(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if let Some(path) = path.strip_prefix("/google-storage/storage/v1/b/") {
        return site.storage(&parts, path);
    }
    let body = axum::body::to_bytes(body, FORM_LIMIT).await.unwrap_or_default();
    lock(&site.asked).push((path.clone(), String::from_utf8_lossy(&body).into_owned()));
    let granted = |token: &str| json!({ "access_token": token, "expires_in": 3600 }).to_string();
    let text = match path.as_str() {
        "/metadata/instance/service-accounts/default/token" => granted(MACHINE),
        "/metadata/project/project-id" => "project".to_owned(),
        "/metadata/instance/attributes/cluster-name" => "cluster".to_owned(),
        "/metadata/instance/attributes/cluster-location" => "location".to_owned(),
        "/google-sts" => granted(EXCHANGED),
        "/google-iam" => {
            json!({ "accessToken": IMPERSONATED, "expireTime": "2099-01-01T00:00:00Z" }).to_string()
        }
        "/google-token" => granted(KEY),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    text.into_response()
}

impl Site {
    fn storage(&self, parts: &Parts, path: &str) -> Response {
        let wanted = format!("Bearer {}", lock(&self.admitted));
        if parts.headers.get("authorization").is_none_or(|given| given != wanted.as_str()) {
            return refuse(StatusCode::UNAUTHORIZED, "Invalid Credentials", "authError");
        }
        let segments: Vec<String> = path.split('/').map(decode).collect();
        let query = parameters(parts.uri.query().unwrap_or_default());
        let buckets = lock(&self.buckets);
        let Some(objects) = buckets.get(&segments[0]) else {
            return refuse(StatusCode::NOT_FOUND, "The specified bucket does not exist.", "notFound");
        };
        match segments.as_slice() {
            [bucket] => of(&json!({ "kind": "storage#bucket", "name": bucket })),
            [_, o] if o == "o" => of(&page(objects, &query)),
            [_, o, key] if o == "o" => match objects.get(key) {
                Some(object) => read(object, &query),
                None => refuse(StatusCode::NOT_FOUND, &format!("No such object: {key}"), "notFound"),
            },
            _ => refuse(StatusCode::NOT_FOUND, "Not Found", "notFound"),
        }
    }
}

/// The token of a page is the last key of the one before.
fn page(objects: &BTreeMap<String, Object>, query: &[(String, String)]) -> Value {
    let (prefix, after) = (value(query, "prefix"), value(query, "pageToken"));
    let mut found = objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
    let items: Vec<_> = found.by_ref().take(PAGE).collect();
    let listed: Vec<Value> =
        items.iter().map(|(key, object)| json!({ "name": key, "etag": object.etag() })).collect();
    let mut page = json!({ "kind": "storage#objects", "items": listed });
    if let (Some(_), Some((last, _))) = (found.next(), items.last()) {
        page["nextPageToken"] = json!(last);
    }
    page
}

fn read(object: &Object, query: &[(String, String)]) -> Response {
    if value(query, "alt") != "media" {
        let generation = object.generation.to_string();
        return of(&json!({ "etag": object.etag(), "generation": generation }));
    }
    if value(query, "ifGenerationMatch") != object.generation.to_string() {
        return refuse(StatusCode::PRECONDITION_FAILED, "Precondition Failed", "conditionNotMet");
    }
    object.content.clone().into_response()
}

fn of(value: &Value) -> Response {
    value.to_string().into_response()
}

fn refuse(status: StatusCode, message: &str, reason: &str) -> Response {
    let errors = json!([{ "message": message, "domain": "global", "reason": reason }]);
    let error = json!({ "error": { "code": status.as_u16(), "message": message, "errors": errors } });
    (status, error.to_string()).into_response()
}
