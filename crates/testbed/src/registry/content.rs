//! What the registry holds, and the requests that read it.

use std::collections::{BTreeMap, HashMap};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::{Site, digest, json_answer, parameter, refuse, set};

#[derive(Default)]
pub(super) struct Content {
    repositories: BTreeMap<String, Repository>,
    pub(super) uploads: HashMap<String, Vec<u8>>,
    pub(super) opened: usize,
}

#[derive(Default)]
struct Repository {
    blobs: HashMap<String, Bytes>,
    manifests: BTreeMap<String, Manifest>,
    tags: BTreeMap<String, String>,
}

#[derive(Clone)]
struct Manifest {
    media_type: String,
    bytes: Bytes,
}

impl Content {
    fn repository(&mut self, name: &str) -> &mut Repository {
        self.repositories.entry(name.to_owned()).or_default()
    }

    pub(super) fn put_blob(&mut self, name: &str, bytes: Bytes) -> String {
        let digest = digest(&bytes);
        self.repository(name).blobs.insert(digest.clone(), bytes);
        digest
    }

    pub(super) fn get_blob(&self, name: &str, digest: &str) -> Option<Bytes> {
        self.repositories.get(name)?.blobs.get(digest).cloned()
    }

    pub(super) fn put_manifest(&mut self, name: &str, tag: &str, media_type: &str, bytes: Bytes) -> String {
        let digest = digest(&bytes);
        let repository = self.repository(name);
        let manifest = Manifest { media_type: media_type.to_owned(), bytes };
        repository.manifests.insert(digest.clone(), manifest);
        if tag != digest {
            repository.tags.insert(tag.to_owned(), digest.clone());
        }
        digest
    }

    /// The digest that a tag or digest stands for.
    pub(super) fn resolve(&self, name: &str, reference: &str) -> Option<String> {
        let repository = self.repositories.get(name)?;
        if reference.contains(':') {
            let known = repository.manifests.contains_key(reference);
            return known.then(|| reference.to_owned());
        }
        repository.tags.get(reference).cloned()
    }

    pub(super) fn tags(&self, name: &str) -> Option<Vec<String>> {
        Some(self.repositories.get(name)?.tags.keys().cloned().collect())
    }
}

impl Site {
    pub(super) fn blob(&self, method: &Method, name: &str, digest: &str, headers: &HeaderMap) -> Response {
        let Some(bytes) = self.content().get_blob(name, digest) else {
            return refuse(StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "no such blob");
        };
        let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
        let (status, part, range) = match range.and_then(|text| slice(text, bytes.len())) {
            Some((first, last)) => {
                let text = format!("bytes {first}-{last}/{}", bytes.len());
                (StatusCode::PARTIAL_CONTENT, bytes.slice(first..=last), Some(text))
            }
            None => (StatusCode::OK, bytes, None),
        };
        let mut response = content(method, part, "application/octet-stream", digest);
        *response.status_mut() = status;
        set(&mut response, "accept-ranges", "bytes");
        if let Some(range) = range {
            set(&mut response, "content-range", &range);
        }
        response
    }

    pub(super) fn manifest(&self, method: &Method, name: &str, reference: &str) -> Response {
        let held = self.content();
        let found = held.resolve(name, reference).and_then(|digest| {
            let manifest = held.repositories.get(name)?.manifests.get(&digest)?;
            Some((manifest.clone(), digest))
        });
        match found {
            Some((manifest, digest)) => content(method, manifest.bytes, &manifest.media_type, &digest),
            None => refuse(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "no such manifest"),
        }
    }

    pub(super) fn store_manifest(
        &self,
        name: &str,
        reference: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Response {
        let Ok(manifest) = serde_json::from_slice::<Value>(&body) else {
            return refuse(StatusCode::BAD_REQUEST, "MANIFEST_INVALID", "not JSON");
        };
        if reference.contains(':') && reference != digest(&body) {
            return refuse(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "the digest does not match");
        }
        let mut held = self.content();
        if let Some(missing) = missing_blob(&held, name, &manifest) {
            return refuse(StatusCode::BAD_REQUEST, "MANIFEST_BLOB_UNKNOWN", &missing);
        }
        let media_type = headers.get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or(super::MANIFEST).to_owned();
        let digest = held.put_manifest(name, reference, &media_type, body);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::CREATED;
        set(&mut response, "location", &format!("/v2/{name}/manifests/{digest}"));
        set(&mut response, "docker-content-digest", &digest);
        if let Some(subject) = manifest["subject"]["digest"].as_str() {
            set(&mut response, "oci-subject", subject);
        }
        response
    }

    /// A tag is taken away, or a manifest with all its tags.
    pub(super) fn delete_manifest(&self, name: &str, reference: &str) -> Response {
        let mut held = self.content();
        let repository = held.repository(name);
        let existed = if reference.contains(':') {
            repository.tags.retain(|_, digest| digest != reference);
            repository.manifests.remove(reference).is_some()
        } else {
            repository.tags.remove(reference).is_some()
        };
        if !existed {
            return refuse(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN", "no such manifest");
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    }

    pub(super) fn tag_list(&self, name: &str, uri: &Uri) -> Response {
        let Some(tags) = self.content().tags(name) else {
            return refuse(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "no such repository");
        };
        let (tags, next) = self.page(tags, uri);
        let mut response = json_answer(&json!({"name": name, "tags": tags}));
        if let Some(next) = next {
            set(&mut response, "link", &format!("</v2/{name}/tags/list?{next}>; rel=\"next\""));
        }
        response
    }

    pub(super) fn catalog(&self, uri: &Uri) -> Response {
        let names = self.content().repositories.keys().cloned().collect();
        let (names, next) = self.page(names, uri);
        let mut response = json_answer(&json!({"repositories": names}));
        if let Some(next) = next {
            set(&mut response, "link", &format!("</v2/_catalog?{next}>; rel=\"next\""));
        }
        response
    }

    /// One page of a sorted list, and the query of the next page if there is one.
    fn page(&self, mut entries: Vec<String>, uri: &Uri) -> (Vec<String>, Option<String>) {
        if let Some(last) = parameter(uri, "last") {
            entries.retain(|entry| *entry > last);
        }
        let asked = parameter(uri, "n").and_then(|text| text.parse().ok());
        let size = asked.unwrap_or(usize::MAX).min(self.options.page_size);
        if entries.len() <= size {
            return (entries, None);
        }
        entries.truncate(size);
        let next = entries.last().map(|last| format!("n={size}&last={last}"));
        (entries, next)
    }

    pub(super) fn referrers(&self, name: &str, digest: &str, uri: &Uri) -> Response {
        let wanted = parameter(uri, "artifactType");
        let held = self.content();
        let mut found = Vec::new();
        if let Some(repository) = held.repositories.get(name) {
            for (own, manifest) in &repository.manifests {
                found.extend(referrer(own, manifest, digest));
            }
        }
        let filtered = wanted.is_some();
        found.retain(|entry| wanted.as_deref().is_none_or(|wanted| entry["artifactType"] == wanted));
        let mut response = json_answer(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": found,
        }));
        set(&mut response, "content-type", "application/vnd.oci.image.index.v1+json");
        if filtered {
            set(&mut response, "oci-filters-applied", "artifactType");
        }
        response
    }
}

fn referrer(digest: &str, manifest: &Manifest, subject: &str) -> Option<Value> {
    let value: Value = serde_json::from_slice(&manifest.bytes).ok()?;
    if value["subject"]["digest"] != subject {
        return None;
    }
    let kind = value.get("artifactType").unwrap_or(&value["config"]["mediaType"]);
    Some(json!({
        "mediaType": manifest.media_type,
        "digest": digest,
        "size": manifest.bytes.len(),
        "artifactType": kind,
        "annotations": value["annotations"],
    }))
}

/// A manifest may only name blobs that are there.
fn missing_blob(held: &Content, name: &str, manifest: &Value) -> Option<String> {
    let layers = manifest["layers"].as_array().into_iter().flatten();
    let mut named = layers.chain([&manifest["config"]]).filter_map(|part| part["digest"].as_str());
    let missing = named.find(|digest| held.get_blob(name, digest).is_none())?;
    Some(format!("blob {missing} is not in {name}"))
}

fn content(method: &Method, bytes: Bytes, media_type: &str, digest: &str) -> Response {
    let length = bytes.len().to_string();
    let body = if *method == Method::HEAD { Body::empty() } else { Body::from(bytes) };
    let mut response = Response::new(body);
    set(&mut response, "content-type", media_type);
    set(&mut response, "content-length", &length);
    set(&mut response, "docker-content-digest", digest);
    response
}

/// Reads `bytes=first-last` and `bytes=first-`, the forms that resuming clients send.
pub(crate) fn slice(range: &str, length: usize) -> Option<(usize, usize)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let last = last.parse().unwrap_or(usize::MAX).min(length.checked_sub(1)?);
    (first <= last).then_some((first, last))
}
