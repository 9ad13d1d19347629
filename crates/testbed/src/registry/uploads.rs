//! Uploads of blobs: in one request, in chunks, or mounted from another repository.

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{StatusCode, Uri};

use super::{Site, digest, parameter, refuse, set};

impl Site {
    pub(super) fn open_upload(&self, name: &str, uri: &Uri, body: Bytes) -> Response {
        if let (Some(wanted), Some(from)) = (parameter(uri, "mount"), parameter(uri, "from")) {
            let mut held = self.content();
            if let Some(bytes) = held.get_blob(&from, &wanted) {
                held.put_blob(name, bytes);
                return created(name, &wanted);
            }
        }
        if let Some(wanted) = parameter(uri, "digest") {
            return self.store(name, &wanted, body);
        }
        let mut held = self.content();
        held.opened += 1;
        let id = format!("upload-{}", held.opened);
        held.uploads.insert(id.clone(), Vec::new());
        accepted(name, &id, 0)
    }

    pub(super) fn continue_upload(&self, name: &str, id: &str, chunk: &[u8]) -> Response {
        let mut held = self.content();
        let Some(bytes) = held.uploads.get_mut(id) else {
            return refuse(StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN", "no such upload");
        };
        bytes.extend_from_slice(chunk);
        accepted(name, id, bytes.len())
    }

    pub(super) fn close_upload(&self, name: &str, id: &str, uri: &Uri, last: &[u8]) -> Response {
        let Some(mut bytes) = self.content().uploads.remove(id) else {
            return refuse(StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN", "no such upload");
        };
        bytes.extend_from_slice(last);
        let Some(wanted) = parameter(uri, "digest") else {
            return refuse(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "no digest");
        };
        self.store(name, &wanted, Bytes::from(bytes))
    }

    fn store(&self, name: &str, wanted: &str, bytes: Bytes) -> Response {
        if digest(&bytes) != wanted {
            return refuse(StatusCode::BAD_REQUEST, "DIGEST_INVALID", "the digest does not match");
        }
        self.content().put_blob(name, bytes);
        created(name, wanted)
    }
}

fn accepted(name: &str, id: &str, length: usize) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    set(&mut response, "location", &format!("/v2/{name}/blobs/uploads/{id}"));
    set(&mut response, "range", &format!("0-{}", length.saturating_sub(1)));
    set(&mut response, "docker-upload-uuid", id);
    response
}

fn created(name: &str, digest: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::CREATED;
    set(&mut response, "location", &format!("/v2/{name}/blobs/{digest}"));
    set(&mut response, "docker-content-digest", digest);
    response
}
