//! Buckets in memory, at three clouds. Here the one that S3 clients take for theirs: list by pages, get (also in part), head, put, delete; signatures are checked.
//!
//! Paths are `/<bucket>/<key>`. There is no versioning, no multipart upload and no streaming signature, and every
//! object was last modified at the same moment: clients tell versions apart by ETag.

pub mod azure;
pub mod google;
mod list;
mod signature;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, header};

use crate::http_server::{HttpServer, Security, decode, parameters};
use crate::registry::digest;

const BODY_LIMIT: usize = 256 << 20;
const LAST_MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// Access key and secret key.
#[derive(Clone)]
pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
}

/// A running server with one or more buckets.
pub struct BucketServer {
    http: HttpServer,
    state: Arc<Site>,
}

struct Site {
    /// Without credentials everyone may read and write.
    credentials: Option<Credentials>,
    buckets: Mutex<Buckets>,
}

type Buckets = BTreeMap<String, BTreeMap<String, Bytes>>;

impl BucketServer {
    pub fn start() -> Result<Self> {
        Self::start_with(None, Security::Plain)
    }

    pub fn start_with(credentials: Option<Credentials>, security: Security<'_>) -> Result<Self> {
        let state = Arc::new(Site { credentials, buckets: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(state.clone());
        let http = HttpServer::start(router, security)?;
        Ok(Self { http, state })
    }

    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    /// `127.0.0.1:port`, as it stands in a Bucket's `spec.endpoint`.
    pub fn endpoint(&self) -> String {
        self.http.address().to_string()
    }

    pub fn create(&self, bucket: &str) {
        self.state.buckets().entry(bucket.to_owned()).or_default();
    }

    /// Stores an object, in a bucket that is made if it is not there.
    pub fn put(&self, bucket: &str, key: &str, content: &[u8]) {
        let mut buckets = self.state.buckets();
        let objects = buckets.entry(bucket.to_owned()).or_default();
        objects.insert(key.to_owned(), Bytes::copy_from_slice(content));
    }

    pub fn get(&self, bucket: &str, key: &str) -> Option<Bytes> {
        self.state.buckets().get(bucket)?.get(key).cloned()
    }

    pub fn remove(&self, bucket: &str, key: &str) {
        if let Some(objects) = self.state.buckets().get_mut(bucket) {
            objects.remove(key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parameter of this name; nothing where there is none.
fn value<'a>(query: &'a [(String, String)], name: &str) -> &'a str {
    query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
}

async fn answer(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "EntityTooLarge", "too large");
    };
    if let Some(credentials) = &site.credentials
        && let Err(problem) = signature::verify(&parts, &body, credentials)
    {
        return refuse(StatusCode::FORBIDDEN, problem.code(), &problem.to_string());
    }
    site.answer(&parts, body)
}

impl Site {
    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        lock(&self.buckets)
    }

    fn answer(&self, parts: &Parts, body: Bytes) -> Response {
        let path = parts.uri.path().trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let (bucket, key) = (decode(bucket), decode(key));
        let mut buckets = self.buckets();
        let Some(objects) = buckets.get_mut(&bucket) else {
            let problem = "The specified bucket does not exist";
            return refuse(StatusCode::NOT_FOUND, "NoSuchBucket", problem);
        };
        if key.is_empty() {
            return of_bucket(parts, &bucket, objects);
        }
        match parts.method {
            Method::GET | Method::HEAD => read(parts, objects.get(&key)),
            Method::PUT => {
                let tag = etag(&body);
                objects.insert(key, body);
                with_etag(Response::new(Body::empty()), &tag)
            }
            Method::DELETE => {
                objects.remove(&key);
                status(StatusCode::NO_CONTENT)
            }
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "not supported here"),
        }
    }
}

fn of_bucket(parts: &Parts, bucket: &str, objects: &BTreeMap<String, Bytes>) -> Response {
    let query = parameters(parts.uri.query().unwrap_or_default());
    let asks = |name: &str| query.iter().any(|(key, _)| key == name);
    match parts.method {
        Method::HEAD => status(StatusCode::OK),
        Method::GET if asks("location") => xml(
            "<LocationConstraint xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">us-east-1</LocationConstraint>",
        ),
        Method::GET => xml(&list::page(bucket, objects, &query)),
        _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "not supported here"),
    }
}

fn read(parts: &Parts, object: Option<&Bytes>) -> Response {
    let Some(bytes) = object else {
        return refuse(StatusCode::NOT_FOUND, "NoSuchKey", "The specified key does not exist.");
    };
    let tag = etag(bytes);
    let text = |name: header::HeaderName| {
        let value = parts.headers.get(name);
        value.and_then(|value| value.to_str().ok())
    };
    if text(header::IF_NONE_MATCH) == Some(&tag) {
        return with_etag(status(StatusCode::NOT_MODIFIED), &tag);
    }
    if text(header::IF_MATCH)
        .is_some_and(|wanted| wanted != tag && wanted.trim_matches('"') != tag.trim_matches('"'))
    {
        return refuse(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "the object has changed");
    }
    let range = text(header::RANGE).and_then(|range| crate::registry::slice(range, bytes.len()));
    let part = range.map_or_else(|| bytes.clone(), |(first, last)| bytes.slice(first..=last));
    let length = part.len();
    let body = if parts.method == Method::HEAD { Body::empty() } else { Body::from(part) };
    let mut response = Response::new(body);
    if let Some((first, last)) = range {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        set(&mut response, header::CONTENT_RANGE, &format!("bytes {first}-{last}/{}", bytes.len()));
    }
    set(&mut response, header::CONTENT_LENGTH, &length.to_string());
    set(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    set(&mut response, header::LAST_MODIFIED, LAST_MODIFIED);
    with_etag(response, &tag)
}

/// With quotes, as the protocol wants it. S3 promises no particular hash.
fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", &digest(bytes)["sha256:".len()..][..32])
}

fn with_etag(mut response: Response, tag: &str) -> Response {
    set(&mut response, header::ETAG, tag);
    response
}

fn set(response: &mut Response, name: header::HeaderName, value: &str) {
    // Tags, numbers and dates are all visible ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn status(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn xml(body: &str) -> Response {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
    let mut response = Response::new(Body::from(text));
    set(&mut response, header::CONTENT_TYPE, "application/xml");
    response
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let message = list::escape(message);
    let mut response = xml(&format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>"));
    *response.status_mut() = status;
    response
}
