//! An OCI registry in memory: push, pull, tags by pages, referrers, deletion, and the usual ways to be refused.
//!
//! It implements the OCI distribution specification as far as clients of charts and artifacts go; it keeps
//! no layers on disk and collects no garbage. Faults and requests are [`Registry::http`]'s.

mod access;
mod content;
mod uploads;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use serde_json::json;
use sha2::{Digest, Sha256};

pub use access::Access;
use content::Content;
pub(crate) use content::slice;

use crate::http_server::{HttpServer, Security};

/// No test pushes more than this in one request.
const BODY_LIMIT: usize = 256 << 20;

/// A running registry.
pub struct Registry {
    http: HttpServer,
    state: Arc<Site>,
}

/// What can be chosen about a registry.
#[derive(Clone, Debug)]
pub struct Options {
    pub access: Access,
    /// Lists are cut after this many entries even if the client asks for more, as hosted registries do.
    pub page_size: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { access: Access::Open, page_size: 1000 }
    }
}

struct Site {
    options: Options,
    access: Mutex<Access>,
    secure: bool,
    tokens: access::Tokens,
    content: Mutex<Content>,
}

impl Registry {
    /// Starts an open registry without TLS.
    pub fn start() -> Result<Self> {
        Self::start_with(Options::default(), Security::Plain)
    }

    pub fn start_with(options: Options, security: Security<'_>) -> Result<Self> {
        let state = Arc::new(Site {
            access: Mutex::new(options.access.clone()),
            options,
            secure: !matches!(security, Security::Plain),
            tokens: access::Tokens::default(),
            content: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(state.clone());
        let http = HttpServer::start(router, security)?;
        Ok(Self { http, state })
    }

    /// The server's address, faults and requests.
    pub fn http(&self) -> &HttpServer {
        &self.http
    }

    /// `127.0.0.1:port`, as it stands in an image reference.
    pub fn host(&self) -> String {
        self.http.address().to_string()
    }

    /// Puts a manifest with its blobs into the registry without going through HTTP; returns its digest.
    pub fn put(&self, repository: &str, tag: &str, artifact: &Artifact<'_>) -> Result<String> {
        let mut content = self.state.content();
        let descriptor = |content: &mut Content, blob: &Blob<'_>| {
            let digest = content.put_blob(repository, Bytes::copy_from_slice(blob.bytes));
            json!({"mediaType": blob.media_type, "digest": digest, "size": blob.bytes.len()})
        };
        let config = descriptor(&mut content, &artifact.config);
        let layers: Vec<_> = artifact.layers.iter().map(|layer| descriptor(&mut content, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": layers,
            "annotations": artifact.annotations.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
        });
        let bytes = Bytes::from(serde_json::to_vec(&manifest)?);
        Ok(content.put_manifest(repository, tag, MANIFEST, bytes))
    }

    /// From now on it lets in only these; tokens given out before are void.
    pub fn set_access(&self, access: Access) {
        *self.state.access.lock().unwrap_or_else(PoisonError::into_inner) = access;
        self.state.tokens.revoke();
    }

    /// The digest that a tag points to.
    pub fn digest(&self, repository: &str, tag: &str) -> Result<String> {
        let content = self.state.content();
        let digest = content.resolve(repository, tag);
        digest.with_context(|| format!("there is no {repository}:{tag}"))
    }

    /// The tags of a repository, sorted.
    pub fn tags(&self, repository: &str) -> Vec<String> {
        self.state.content().tags(repository).unwrap_or_default()
    }
}

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What [`Registry::put`] stores.
pub struct Artifact<'a> {
    pub config: Blob<'a>,
    pub layers: &'a [Blob<'a>],
    pub annotations: &'a [(&'a str, &'a str)],
}

pub struct Blob<'a> {
    pub media_type: &'a str,
    pub bytes: &'a [u8],
}

/// `sha256:…`
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// What a path asks for.
enum Target<'a> {
    Version,
    Token,
    Catalog,
    Blob(&'a str, &'a str),
    /// The second is empty when an upload is being opened.
    Upload(&'a str, &'a str),
    Manifest(&'a str, &'a str),
    Tags(&'a str),
    Referrers(&'a str, &'a str),
}

impl<'a> Target<'a> {
    /// Repository names contain slashes, so paths are read from their end.
    fn of(path: &'a str) -> Option<Self> {
        if path == "/token" {
            return Some(Target::Token);
        }
        let rest = path.strip_prefix("/v2")?.trim_start_matches('/');
        if rest.is_empty() {
            return Some(Target::Version);
        }
        if rest == "_catalog" {
            return Some(Target::Catalog);
        }
        if let Some(name) = rest.strip_suffix("/tags/list") {
            return Some(Target::Tags(name));
        }
        if let Some((name, id)) = rest.split_once("/blobs/uploads") {
            return Some(Target::Upload(name, id.trim_start_matches('/')));
        }
        let (front, last) = rest.rsplit_once('/')?;
        let (name, kind) = front.rsplit_once('/')?;
        match kind {
            "blobs" => Some(Target::Blob(name, last)),
            "manifests" => Some(Target::Manifest(name, last)),
            "referrers" => Some(Target::Referrers(name, last)),
            _ => None,
        }
    }

    fn repository(&self) -> Option<&'a str> {
        match self {
            Target::Version | Target::Token | Target::Catalog => None,
            Target::Blob(name, _)
            | Target::Upload(name, _)
            | Target::Manifest(name, _)
            | Target::Tags(name)
            | Target::Referrers(name, _) => Some(name),
        }
    }
}

async fn answer(State(site): State<Arc<Site>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID", "too large");
    };
    site.answer(&parts.method, &parts.uri, &parts.headers, body)
}

impl Site {
    fn access(&self) -> Access {
        self.access.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Response {
        let Some(target) = Target::of(uri.path()) else {
            return refuse(StatusCode::NOT_FOUND, "UNSUPPORTED", "no such endpoint");
        };
        if let Target::Token = target {
            return self.token(uri, headers);
        }
        let writes = !matches!(*method, Method::GET | Method::HEAD);
        if let Some(refusal) = self.refusal(target.repository(), writes, headers) {
            return refusal;
        }
        match (method.as_str(), target) {
            (_, Target::Version) => json_answer(&json!({})),
            ("GET", Target::Catalog) => self.catalog(uri),
            ("GET", Target::Tags(name)) => self.tag_list(name, uri),
            ("GET" | "HEAD", Target::Blob(name, digest)) => self.blob(method, name, digest, headers),
            ("GET" | "HEAD", Target::Manifest(name, reference)) => self.manifest(method, name, reference),
            ("PUT", Target::Manifest(name, reference)) => self.store_manifest(name, reference, headers, body),
            ("DELETE", Target::Manifest(name, reference)) => self.delete_manifest(name, reference),
            ("GET", Target::Referrers(name, digest)) => self.referrers(name, digest, uri),
            ("POST", Target::Upload(name, "")) => self.open_upload(name, uri, body),
            ("PATCH", Target::Upload(name, id)) => self.continue_upload(name, id, &body),
            ("PUT", Target::Upload(name, id)) => self.close_upload(name, id, uri, &body),
            _ => refuse(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "not supported here"),
        }
    }
}

/// The value of a query parameter, with `%xx` and `+` decoded.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    crate::http_server::parameters(uri.query().unwrap_or_default())
        .into_iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value)
}

fn json_answer(value: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error in the registry's own form.
fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    let errors = json!({"errors": [{"code": code, "message": message}]});
    let mut response = json_answer(&errors);
    *response.status_mut() = status;
    response
}

fn set(response: &mut Response, name: &'static str, value: &str) {
    // Digests, tags, paths and sizes are all visible ASCII.
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
}
