//! Fetching from a chart repository. Credentials go only to the host they are for, unless the owner says otherwise.

use std::fs::File;
use std::io::{Seek, Write};

use flux_api::secret::SecretString;
use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, ETAG, HeaderValue, IF_NONE_MATCH};
use reqwest::{Response, StatusCode};
use sha2::{Digest, Sha256};
use url::Url;

use super::{Error, address};
use crate::transport::{Transport, causes, shown};

/// How to log in to a repository.
#[derive(Clone, Default)]
pub struct Login {
    /// The whole value of the `Authorization` header.
    pub authorization: Option<SecretString>,
    /// Whether other hosts that the index names get it too.
    pub pass_credentials: bool,
}

/// A chart repository over HTTP.
pub struct Repository {
    client: reqwest::Client,
    address: Url,
    login: Login,
}

/// An index that came, with the digest of its bytes.
pub struct Downloaded {
    pub file: File,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    pub etag: Option<String>,
}

impl Repository {
    pub fn new(address: &str, transport: &Transport, login: Login) -> Result<Self, Error> {
        let address = address::parse(address)?;
        if !matches!(address.scheme(), "http" | "https") {
            return Err(Error::Address(format!("scheme \"{}\" not supported", address.scheme())));
        }
        Ok(Self { client: transport.client()?, address, login })
    }

    /// The index, unless it is still the one with this `etag`.
    pub async fn index(&self, etag: Option<&str>, largest: u64) -> Result<Option<Downloaded>, Error> {
        let url = address::index(self.address.as_str())?;
        let mut request = self.request(&url)?;
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let response = self.send(request, &url).await?;
        if response.status() == StatusCode::NOT_MODIFIED && etag.is_some() {
            return Ok(None);
        }
        let response = accepted(response, &url)?;
        let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut hash = Sha256::new();
        let file = tempfile::tempfile()?;
        let mut out = std::io::BufWriter::new(file);
        let too_large = || Error::IndexTooLarge(largest);
        each_chunk(response, &url, largest, too_large, |chunk| {
            hash.update(chunk);
            out.write_all(chunk)
        })
        .await?;
        let mut file = out.into_inner().map_err(|error| Error::Io(error.into_error()))?;
        file.rewind()?;
        let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Downloaded { file, sha256, etag }))
    }

    /// The archive at `reference`, which an index gave.
    pub async fn chart(&self, name: &str, reference: &str, largest: u64) -> Result<Vec<u8>, Error> {
        let url = address::resolve(self.address.as_str(), reference)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Address(format!("scheme \"{}\" not supported", url.scheme())));
        }
        let response = self.send(self.request(&url)?, &url).await?;
        let response = accepted(response, &url)?;
        let mut bytes = Vec::new();
        let too_large = || Error::ChartTooLarge { name: name.to_owned(), limit: largest };
        each_chunk(response, &url, largest, too_large, |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        })
        .await?;
        Ok(bytes)
    }

    fn request(&self, url: &Url) -> Result<reqwest::RequestBuilder, Error> {
        let request = self.client.get(url.clone());
        let ours = url.origin() == self.address.origin();
        match &self.login.authorization {
            Some(authorization) if ours || self.login.pass_credentials => {
                let mut value = HeaderValue::from_str(authorization.expose())
                    .map_err(|_| Error::Address("credentials hold a line break".to_owned()))?;
                value.set_sensitive(true);
                Ok(request.header(AUTHORIZATION, value))
            }
            _ => Ok(request),
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder, url: &Url) -> Result<Response, Error> {
        request.send().await.map_err(|error| Error::Unreachable { url: shown(url), cause: causes(error) })
    }
}

fn accepted(response: Response, url: &Url) -> Result<Response, Error> {
    match response.status() {
        StatusCode::OK => Ok(response),
        status => Err(Error::Status { url: shown(url), status: status.to_string() }),
    }
}

async fn each_chunk(
    response: Response,
    url: &Url,
    largest: u64,
    too_large: impl Fn() -> Error,
    mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<(), Error> {
    if response.content_length().is_some_and(|length| length > largest) {
        return Err(too_large());
    }
    let mut seen = 0;
    let mut body = response.bytes_stream();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| Error::Unreachable { url: shown(url), cause: causes(error) })?;
        seen += chunk.len() as u64;
        if seen > largest {
            return Err(too_large());
        }
        each(&chunk)?;
    }
    Ok(())
}
