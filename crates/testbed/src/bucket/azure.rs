//! Azure in memory: a storage account through the Blob service's REST API, and the services that hand out tokens for it.
//!
//! Lists come in pages of two. Signatures with an account's key are checked; of shared access signatures only that they are
//! the one that was given out.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use http::{Request, StatusCode};
use serde_json::json;
use sha2::Sha256;

use super::list::escape;
use super::{lock, value};
use crate::http_server::{HttpServer, Security, decode, parameters as form_parameters};

const PAGE: usize = 2;
const FORM_LIMIT: usize = 1 << 20;

/// The token for a password, for a signed statement, and of the machine.
pub const PASSWORD: &str = "azure-password-token";
pub const STATEMENT: &str = "azure-statement-token";
pub const MACHINE: &str = "azure-machine-token";
/// The password that the application has.
pub const RIGHT: &str = "right";

/// Who may read.
#[derive(Clone)]
pub enum Admission {
    Everybody,
    Token(&'static str),
    /// A key in base64, of the account that the first part of the address names.
    Key(&'static str),
    /// What the parameter `sig` has to be.
    Signature(&'static str),
}

/// A running storage account.
pub struct AzureServer {
    http: HttpServer,
    site: Arc<Site>,
}

struct Site {
    admission: Mutex<Admission>,
    containers: Mutex<BTreeMap<String, BTreeMap<String, Blob>>>,
    asked: Mutex<Vec<(String, String)>>,
}

#[derive(Clone)]
struct Blob {
    version: u64,
    content: Bytes,
}

impl AzureServer {
    pub fn start(admission: Admission) -> Result<Self> {
        let site = Arc::new(Site {
            admission: Mutex::new(admission),
            containers: Mutex::default(),
            asked: Mutex::default(),
        });
        let http =
            HttpServer::start(Router::new().fallback(answer).with_state(site.clone()), Security::Plain)?;
        Ok(Self { http, site })
    }

    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    pub fn admit(&self, admission: Admission) {
        *lock(&self.site.admission) = admission;
    }

    pub fn put(&self, container: &str, key: &str, content: &[u8]) {
        let mut containers = lock(&self.site.containers);
        let version = containers.values().flatten().map(|(_, blob)| blob.version).max().unwrap_or(0) + 1;
        let blob = Blob { version, content: Bytes::copy_from_slice(content) };
        containers.entry(container.to_owned()).or_default().insert(key.to_owned(), blob);
    }

    /// Path (with query) and body of every request for a token.
    pub fn asked(&self) -> Vec<(String, String)> {
        lock(&self.site.asked).clone()
    }
}

async fn answer(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let (entra, machine) = (path == "/entra" || path.ends_with("/oauth2/v2.0/token"), path == "/imds");
    if !entra && !machine {
        return site.blobs(&parts);
    }
    let body = axum::body::to_bytes(body, FORM_LIMIT).await.unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let form = form_parameters(&body);
    lock(&site.asked).push((parts.uri.to_string(), body.clone()));
    let field = |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let token = match (machine, field("client_secret"), field("client_assertion")) {
        (true, _, _) => MACHINE,
        (false, Some(RIGHT), _) => PASSWORD,
        (false, None, Some(_)) => STATEMENT,
        _ => {
            let problem = "AADSTS7000215: Invalid client secret provided.";
            let text = json!({ "error": "invalid_client", "error_description": problem }).to_string();
            return (StatusCode::UNAUTHORIZED, text).into_response();
        }
    };
    json!({ "access_token": token, "expires_in": 3600 }).to_string().into_response()
}

impl Site {
    fn blobs(&self, parts: &Parts) -> Response {
        let query = parameters(parts.uri.query().unwrap_or_default());
        if !self.admits(parts, &query) {
            let problem = "Server failed to authenticate the request.\nRequestId:1\nTime:2026-01-01";
            return refuse(StatusCode::FORBIDDEN, "AuthenticationFailed", problem);
        }
        let path = parts.uri.path().trim_start_matches('/');
        let (container, key) = path.split_once('/').unwrap_or((path, ""));
        let containers = lock(&self.containers);
        let Some(blobs) = containers.get(&decode(container)) else {
            let problem = "The specified container does not exist.\nRequestId:1";
            return refuse(StatusCode::NOT_FOUND, "ContainerNotFound", problem);
        };
        if key.is_empty() {
            return match (value(&query, "restype"), value(&query, "comp")) {
                ("container", "list") => page(blobs, &query).into_response(),
                _ => refuse(StatusCode::BAD_REQUEST, "InvalidQueryParameterValue", "no such operation"),
            };
        }
        match blobs.get(&decode(key)) {
            Some(blob) => {
                let etag = format!("\"0x8D{}\"", blob.version);
                ([("etag", etag)], blob.content.clone()).into_response()
            }
            None => refuse(StatusCode::NOT_FOUND, "BlobNotFound", "The specified blob does not exist."),
        }
    }

    fn admits(&self, parts: &Parts, query: &[(String, String)]) -> bool {
        let given = header(parts, "authorization");
        match &*lock(&self.admission) {
            Admission::Everybody => given.is_empty(),
            Admission::Token(token) => {
                given == format!("Bearer {token}") && !header(parts, "x-ms-version").is_empty()
            }
            Admission::Key(key) => given == shared_key(parts, query, key),
            Admission::Signature(wanted) => given.is_empty() && value(query, "sig") == *wanted,
        }
    }
}

/// What the header has to be, from what Azure's documentation says of it.
fn shared_key(parts: &Parts, query: &[(String, String)], key: &str) -> String {
    let host = header(parts, "host");
    let account = host.split('.').next().unwrap_or_default();
    let standard = [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ];
    let mut text = format!("{}\n", parts.method);
    for name in standard {
        let _ = writeln!(text, "{}", header(parts, name));
    }
    let mut own: Vec<String> = parts
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-ms-"))
        .map(|(name, value)| format!("{name}:{}\n", value.to_str().unwrap_or_default()))
        .collect();
    own.sort();
    text.push_str(&own.concat());
    let _ = write!(text, "/{account}{}", parts.uri.path());
    let mut names: Vec<&String> = query.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    for name in names {
        let mut values: Vec<&str> =
            query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect();
        values.sort_unstable();
        let _ = write!(text, "\n{}:{}", name.to_lowercase(), values.join(","));
    }
    let key = BASE64_STANDARD.decode(key).unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    format!("SharedKey {account}:{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

fn header<'a>(parts: &'a Parts, name: &str) -> &'a str {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The parameters of a query; unlike in a form, a plus is a plus.
fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// The marker of a page is the last key of the one before.
fn page(blobs: &BTreeMap<String, Blob>, query: &[(String, String)]) -> String {
    let (prefix, after) = (value(query, "prefix"), value(query, "marker"));
    let size = value(query, "maxresults").parse().unwrap_or(PAGE).min(PAGE);
    let mut found = blobs.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
    let listed: Vec<_> = found.by_ref().take(size).collect();
    let blobs: String = listed
        .iter()
        .map(|(key, blob)| {
            let (key, version) = (escape(key), blob.version);
            format!("<Blob><Name>{key}</Name><Properties><Etag>0x8D{version}</Etag></Properties><OrMetadata /></Blob>")
        })
        .collect();
    let next = match (found.next(), listed.last()) {
        (Some(_), Some((last, _))) => escape(last),
        _ => String::new(),
    };
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"x\" ContainerName=\"y\">\
         <Blobs>{blobs}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let text = format!("<Error><Code>{code}</Code><Message>{}</Message></Error>", escape(message));
    (status, [("x-ms-error-code", code.to_owned())], text).into_response()
}
