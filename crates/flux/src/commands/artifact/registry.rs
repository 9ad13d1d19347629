//! A registry over HTTP: manifests, blobs, tags. Asks for a token where it is told to.
//!
//! Credentials come from `--creds` or docker's configuration and only ever go to the registry and to the token service that it names.
//! Cloud providers' own logins are not spoken here.

use std::collections::BTreeMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::{Client, Method, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::Invocation;

use super::first_layer;
use super::reference::Reference;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const ACCEPTED: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
const LAYER: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
/// Manifests and lists of tags are small.
const MOST_JSON: usize = 16 << 20;
/// A layer is held in memory while it is unpacked.
const MOST_LAYER: usize = 2 << 30;
/// Pages of a list of tags.
const MOST_PAGES: usize = 1000;

pub(in crate::commands) struct Registry {
    http: Client,
    scheme: &'static str,
    login: Option<Login>,
    token: Mutex<Option<String>>,
}

/// Not to be shown: no `Debug`, no `Display`.
enum Login {
    Basic(String),
    Bearer(String),
}

struct Answer {
    status: StatusCode,
    headers: header::HeaderMap,
    body: Vec<u8>,
}

impl Registry {
    pub(in crate::commands) fn open(run: &Invocation, reference: &Reference) -> Result<Registry, CliError> {
        let provider = run.text("provider");
        if provider != "generic" {
            output::action("logging in to registry with provider credentials");
            return Err(fail!(
                "error during login with provider: could not login to provider {provider} with url {}: \
                 this build has no login of its own for {provider}; log in with the provider's tool and use --creds",
                reference.given()
            ));
        }
        let login = match run.some("creds") {
            Some(given) => {
                output::action("logging in to registry with credentials");
                Some(given.split_once(':').map_or_else(
                    || Login::Bearer(given.to_owned()),
                    |(user, password)| Login::Basic(BASE64_STANDARD.encode(format!("{user}:{password}"))),
                ))
            }
            None => docker_login(reference.host()),
        };
        let plain = run.given("insecure-registry") && run.is("insecure-registry") || reference.is_local();
        let timeout = run.duration("timeout").to_std();
        let http = Client::builder().timeout(timeout).build().map_err(|error| fail!("{error}"))?;
        Ok(Registry { http, scheme: if plain { "http" } else { "https" }, login, token: Mutex::new(None) })
    }

    fn url(&self, reference: &Reference, rest: &str) -> String {
        format!("{}://{}/v2/{}/{rest}", self.scheme, reference.host(), reference.repository())
    }

    /// The manifest and its digest.
    pub(in crate::commands) async fn manifest(
        &self,
        reference: &Reference,
    ) -> Result<(String, Value), CliError> {
        let (bytes, _) = self.manifest_bytes(reference).await?;
        let manifest =
            serde_json::from_slice(&bytes).map_err(|error| fail!("parsing manifest failed: {error}"))?;
        Ok((digest(&bytes), manifest))
    }

    async fn manifest_bytes(&self, reference: &Reference) -> Result<(Vec<u8>, String), CliError> {
        let url = self.url(reference, &format!("manifests/{}", reference.identifier()));
        let answer =
            self.send(Method::GET, &url, &[(header::ACCEPT, ACCEPTED)], Vec::new(), MOST_JSON).await?;
        let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or(MANIFEST).to_owned();
        if reference.identifier().starts_with("sha256:") && digest(&answer.body) != reference.identifier() {
            return Err(fail!("{url}: the manifest is not what its digest says"));
        }
        Ok((answer.body, kind))
    }

    /// The bytes of the first layer, which is what Flux takes as an artifact's content.
    pub(in crate::commands) async fn first_layer(
        &self,
        reference: &Reference,
        manifest: &Value,
    ) -> Result<Vec<u8>, CliError> {
        let wanted = first_layer(manifest).ok_or_else(|| fail!("no layers found in artifact"))?;
        let url = self.url(reference, &format!("blobs/{wanted}"));
        let answer = self.send(Method::GET, &url, &[], Vec::new(), MOST_LAYER).await?;
        if digest(&answer.body) != wanted {
            return Err(fail!("{url}: the layer is not what its digest says"));
        }
        Ok(answer.body)
    }

    pub(in crate::commands) async fn tags(&self, reference: &Reference) -> Result<Vec<String>, CliError> {
        let mut url = self.url(reference, "tags/list?n=1000");
        let mut tags = Vec::new();
        for _ in 0..MOST_PAGES {
            let answer = self.send(Method::GET, &url, &[], Vec::new(), MOST_JSON).await?;
            let page: Value =
                serde_json::from_slice(&answer.body).map_err(|error| fail!("{url}: {error}"))?;
            let listed = page.get("tags").and_then(Value::as_array).into_iter().flatten();
            tags.extend(listed.filter_map(Value::as_str).map(str::to_owned));
            match next_page(&answer.headers) {
                // Only a path: credentials must not follow a list to another host.
                Some(path) => url = format!("{}://{}{path}", self.scheme, reference.host()),
                None => return Ok(tags),
            }
        }
        Err(fail!("{url}: more than {MOST_PAGES} pages of tags"))
    }

    /// Gives the artifact another tag.
    pub(in crate::commands) async fn tag(&self, reference: &Reference, tag: &str) -> Result<(), CliError> {
        let (bytes, kind) = self.manifest_bytes(reference).await?;
        self.put_manifest(&reference.with_tag(tag), bytes, &kind).await
    }

    /// Uploads the layer, a configuration that says nothing, and the manifest that ties them. Returns its digest.
    pub(in crate::commands) async fn push(
        &self,
        reference: &Reference,
        layer: &[u8],
        annotations: &BTreeMap<String, String>,
    ) -> Result<String, CliError> {
        let created = annotations.get(super::CREATED).cloned().unwrap_or_default();
        let unpacked = unzipped_digest(layer)?;
        let config = json!({
            "architecture": "", "created": created, "history": [{"created": "0001-01-01T00:00:00Z"}], "os": "",
            "rootfs": {"type": "layers", "diff_ids": [unpacked]}, "config": {},
        })
        .to_string()
        .into_bytes();
        self.put_blob(reference, layer).await?;
        self.put_blob(reference, &config).await?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": config.len(), "digest": digest(&config)},
            "layers": [{"mediaType": LAYER, "size": layer.len(), "digest": digest(layer)}],
            "annotations": annotations,
        });
        let manifest = manifest.to_string().into_bytes();
        let own = digest(&manifest);
        self.put_manifest(reference, manifest, MANIFEST).await?;
        Ok(own)
    }

    async fn put_manifest(&self, reference: &Reference, bytes: Vec<u8>, kind: &str) -> Result<(), CliError> {
        let url = self.url(reference, &format!("manifests/{}", reference.identifier()));
        self.send(Method::PUT, &url, &[(header::CONTENT_TYPE, kind)], bytes, MOST_JSON).await.map(|_| ())
    }

    async fn put_blob(&self, reference: &Reference, bytes: &[u8]) -> Result<(), CliError> {
        let digest = digest(bytes);
        let url = self.url(reference, &format!("blobs/{digest}"));
        if self.send(Method::HEAD, &url, &[], Vec::new(), MOST_JSON).await.is_ok() {
            return Ok(());
        }
        let start = self.url(reference, "blobs/uploads/");
        let answer = self.send(Method::POST, &start, &[], Vec::new(), MOST_JSON).await?;
        let place = answer.headers.get(header::LOCATION).and_then(|place| place.to_str().ok());
        let place = place.ok_or_else(|| fail!("POST {start}: the registry says no place to upload to"))?;
        let place = self.same_host(reference, place)?;
        let sign = if place.contains('?') { '&' } else { '?' };
        let url = format!("{place}{sign}digest={digest}");
        let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
        self.send(Method::PUT, &url, &kind, bytes.to_vec(), MOST_JSON).await.map(|_| ())
    }

    /// Where to upload, on the registry's own host.
    fn same_host(&self, reference: &Reference, place: &str) -> Result<String, CliError> {
        let own = format!("{}://{}", self.scheme, reference.host());
        if place.starts_with('/') {
            return Ok(format!("{own}{place}"));
        }
        let rest = place.strip_prefix(&own).filter(|rest| rest.starts_with('/'));
        rest.map(|_| place.to_owned()).ok_or_else(|| {
            fail!("{} wants the upload at another host; credentials are not sent there", reference.host())
        })
    }

    /// One request; a second one with a token where the registry asks for it.
    async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(header::HeaderName, &str)],
        body: Vec<u8>,
        limit: usize,
    ) -> Result<Answer, CliError> {
        let first = self.once(&method, url, headers, body.clone(), limit).await?;
        let answer = match challenge(&first) {
            Some(asked) if first.status == StatusCode::UNAUTHORIZED => {
                let token = self.fetch_token(&asked).await?;
                *self.token.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(token);
                self.once(&method, url, headers, body, limit).await?
            }
            _ => first,
        };
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(refused(&method, url, &answer))
    }

    async fn once(
        &self,
        method: &Method,
        url: &str,
        headers: &[(header::HeaderName, &str)],
        body: Vec<u8>,
        limit: usize,
    ) -> Result<Answer, CliError> {
        let mut request = self.http.request(method.clone(), url).body(body);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let token = self.token.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        request = match (token, &self.login) {
            (Some(token), _) => request.bearer_auth(token),
            (None, Some(Login::Basic(encoded))) => {
                request.header(header::AUTHORIZATION, format!("Basic {encoded}"))
            }
            (None, Some(Login::Bearer(token))) => request.bearer_auth(token),
            (None, None) => request,
        };
        let failed = |error: reqwest::Error| fail!("{method} {url}: {}", crate::session::innermost(&error));
        let mut answer = request.send().await.map_err(failed)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > limit {
                return Err(fail!("{method} {url}: the answer is longer than {limit} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body: bytes })
    }

    async fn fetch_token(&self, asked: &Challenge) -> Result<String, CliError> {
        let mut query = vec![("service", asked.service.clone())];
        query.extend(
            asked.scope.split(' ').filter(|scope| !scope.is_empty()).map(|scope| ("scope", scope.to_owned())),
        );
        let mut request = self.http.get(&asked.realm).query(&query);
        if let Some(Login::Basic(encoded)) = &self.login {
            request = request.header(header::AUTHORIZATION, format!("Basic {encoded}"));
        }
        let failed =
            |error: reqwest::Error| fail!("GET {}: {}", asked.realm, crate::session::innermost(&error));
        let answer = request.send().await.map_err(failed)?;
        if !answer.status().is_success() {
            return Err(fail!(
                "GET {}: the registry refused the credentials: {}",
                asked.realm,
                answer.status()
            ));
        }
        let answer: Value = answer.json().await.map_err(failed)?;
        let token = ["token", "access_token"].iter().find_map(|field| answer.get(field)?.as_str());
        token.map(str::to_owned).ok_or_else(|| fail!("GET {}: the answer holds no token", asked.realm))
    }
}

/// `Bearer realm="…",service="…",scope="…"`
struct Challenge {
    realm: String,
    service: String,
    scope: String,
}

fn challenge(answer: &Answer) -> Option<Challenge> {
    let text = answer.headers.get(header::WWW_AUTHENTICATE)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let field = |name: &str| {
        let start = rest.find(&format!("{name}=\""))? + name.len() + 2;
        let end = rest[start..].find('"')?;
        Some(rest[start..start + end].to_owned())
    };
    Some(Challenge {
        realm: field("realm")?,
        service: field("service").unwrap_or_default(),
        scope: field("scope").unwrap_or_default(),
    })
}

/// The path of `Link: </v2/…>; rel="next"`.
fn next_page(headers: &header::HeaderMap) -> Option<String> {
    let link = headers.get(header::LINK)?.to_str().ok()?;
    let (address, kind) = link.trim_start_matches('<').split_once('>')?;
    if !kind.contains("next") {
        return None;
    }
    match address.split_once("://") {
        Some((_, rest)) => rest.find('/').map(|at| rest[at..].to_owned()),
        None => Some(address.to_owned()),
    }
}

/// `GET https://…: MANIFEST_UNKNOWN: Unknown manifest`
fn refused(method: &Method, url: &str, answer: &Answer) -> CliError {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let errors = body.get("errors").and_then(Value::as_array).cloned().unwrap_or_default();
    let text =
        |error: &Value, field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let told: Vec<String> =
        errors.iter().map(|error| format!("{}: {}", text(error, "code"), text(error, "message"))).collect();
    if told.is_empty() {
        return fail!("{method} {url}: unexpected status code {}", answer.status);
    }
    fail!("{method} {url}: {}", told.join("; "))
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn unzipped_digest(bytes: &[u8]) -> Result<String, CliError> {
    let mut plain = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(bytes), &mut plain).map_err(|error| fail!("{error}"))?;
    Ok(digest(&plain))
}

/// What `docker login` left behind, for this host.
fn docker_login(host: &str) -> Option<Login> {
    let folder = std::env::var_os("DOCKER_CONFIG")
        .map(std::path::PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| std::path::Path::new(&home).join(".docker")))?;
    let config: Value = serde_json::from_slice(&std::fs::read(folder.join("config.json")).ok()?).ok()?;
    let auths = config.get("auths")?;
    let names = [
        host.to_owned(),
        format!("https://{host}"),
        format!("https://{host}/v1/"),
        format!("https://{host}/v2/"),
    ];
    let entry = names.iter().find_map(|name| auths.get(name))?;
    if let Some(encoded) = entry.get("auth").and_then(Value::as_str).filter(|encoded| !encoded.is_empty()) {
        return Some(Login::Basic(encoded.to_owned()));
    }
    if let Some(token) = entry.get("registrytoken").and_then(Value::as_str) {
        return Some(Login::Bearer(token.to_owned()));
    }
    let (user, password) = (entry.get("username")?.as_str()?, entry.get("password")?.as_str()?);
    Some(Login::Basic(BASE64_STANDARD.encode(format!("{user}:{password}"))))
}
