//! Pushing: blobs first, then the manifest that names them, then further tags.

use std::collections::BTreeMap;

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use url::Url;

use super::manifest::MANIFEST;
use super::registry::Access;
use super::{ArtifactLayer, Descriptor, Digest, Error, Fetched, Manifest, Registry};
use crate::transport::shown;

impl Registry {
    /// Pushes an artifact of a configuration and layers under `tag`; returns the digest of its manifest.
    pub async fn push(
        &self,
        tag: &str,
        config: ArtifactLayer,
        layers: &[ArtifactLayer],
        annotations: BTreeMap<String, String>,
    ) -> Result<Digest, Error> {
        let config = self.push_blob(&config).await?;
        let mut descriptors = Vec::new();
        for layer in layers {
            descriptors.push(self.push_blob(layer).await?);
        }
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            artifact_type: None,
            config,
            layers: descriptors,
            subject: None,
            annotations,
        };
        let bytes = serde_json::to_vec(&manifest).map_err(|error| Error::Manifest(error.to_string()))?;
        self.put_manifest(tag, MANIFEST, bytes).await
    }

    /// Gives what `fetched` is another tag.
    pub async fn tag(&self, fetched: &Fetched, tag: &str) -> Result<Digest, Error> {
        self.put_manifest(tag, &fetched.media_type, fetched.bytes.clone()).await
    }

    /// Stores a manifest under a tag or its digest.
    pub async fn put_manifest(
        &self,
        reference: &str,
        media_type: &str,
        bytes: Vec<u8>,
    ) -> Result<Digest, Error> {
        let digest = Digest::of(&bytes);
        let url = self.url(&format!("manifests/{reference}")).await?;
        self.send(Method::PUT, &url, typed(media_type)?, Some(bytes), Access::Push).await?;
        Ok(digest)
    }

    /// Uploads a blob, unless the registry has it.
    pub async fn push_blob(&self, layer: &ArtifactLayer) -> Result<Descriptor, Error> {
        let digest = Digest::of(&layer.bytes);
        let descriptor = Descriptor {
            media_type: layer.media_type.clone(),
            digest: digest.to_string(),
            size: layer.bytes.len() as u64,
            ..Descriptor::default()
        };
        let url = self.url(&format!("blobs/{digest}")).await?;
        match self.send(Method::HEAD, &url, HeaderMap::new(), None, Access::Push).await {
            Ok(_) => return Ok(descriptor),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let start = self.url("blobs/uploads/").await?;
        let answer =
            self.send(Method::POST, &start, HeaderMap::new(), Some(Vec::new()), Access::Push).await?;
        let mut target = location(&start, answer.headers())?;
        target.query_pairs_mut().append_pair("digest", digest.as_str());
        let headers = typed("application/octet-stream")?;
        self.send(Method::PUT, &target, headers, Some(layer.bytes.clone()), Access::Push).await?;
        Ok(descriptor)
    }
}

fn location(url: &Url, headers: &HeaderMap) -> Result<Url, Error> {
    let bad = |problem: &str| Error::Answer { url: shown(url), problem: problem.to_owned() };
    let target = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let target = target.ok_or_else(|| bad("no Location for the upload"))?;
    let target = url.join(target).map_err(|_| bad("the Location of the upload is no URL"))?;
    if url.scheme() == "https" && target.scheme() != "https" {
        return Err(bad("the upload would have to go on without TLS; refused"));
    }
    Ok(target)
}

fn typed(media_type: &str) -> Result<HeaderMap, Error> {
    let value = HeaderValue::from_str(media_type)
        .map_err(|_| Error::Manifest(format!("'{media_type}' is no media type")))?;
    Ok(HeaderMap::from_iter([(CONTENT_TYPE, value)]))
}
