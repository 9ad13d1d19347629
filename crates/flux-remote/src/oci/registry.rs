//! One repository of a registry: the requests, who they are made as, and what of the answers is believed.

use std::time::Duration;

use flux_api::secret::SecretString;
use futures::StreamExt;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LINK, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OnceCell};
use url::Url;

use super::challenge::{self, Challenge};
use super::manifest::{DOCKER_INDEX, DOCKER_MANIFEST, INDEX, MANIFEST};
use super::{Credentials, Descriptor, Digest, Error, Index, Manifest, Repository, token};
use crate::transport::{Transport, causes, shown};

const TRIES: u32 = 4;
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const LARGEST_MANIFEST: usize = 4 << 20;
const LARGEST_PAGE: usize = 16 << 20;
const LARGEST_COMPLAINT: usize = 64 << 10;

/// How much a repository may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub tags: usize,
    /// Bytes of one layer.
    pub layer: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tags: 500_000, layer: 4 << 30 }
    }
}

/// A manifest or index as it came.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub digest: Digest,
    pub media_type: String,
    pub bytes: Vec<u8>,
}

impl Fetched {
    pub fn is_index(&self) -> bool {
        matches!(self.media_type.as_str(), INDEX | DOCKER_INDEX)
    }

    pub fn manifest(&self) -> Result<Manifest, Error> {
        serde_json::from_slice(&self.bytes)
            .map_err(|error| Error::Manifest(format!("{}: {error}", self.digest)))
    }

    pub fn index(&self) -> Result<Index, Error> {
        serde_json::from_slice(&self.bytes)
            .map_err(|error| Error::Manifest(format!("{}: {error}", self.digest)))
    }
}

/// A repository to be read or written.
pub struct Registry {
    client: reqwest::Client,
    repository: Repository,
    credentials: Option<Credentials>,
    limits: Limits,
    door: OnceCell<Door>,
    token: Mutex<Option<(Access, HeaderValue)>>,
}

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Pull,
    Push,
}

/// How a registry is reached and what it asks for.
struct Door {
    base: Url,
    challenge: Option<Challenge>,
}

impl Registry {
    pub fn new(
        repository: Repository,
        transport: &Transport,
        credentials: Option<Credentials>,
    ) -> Result<Self, Error> {
        Ok(Self {
            client: transport.client()?,
            repository,
            credentials,
            limits: Limits::default(),
            door: OnceCell::new(),
            token: Mutex::new(None),
        })
    }

    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Whether the registry answers and accepts the credentials.
    pub async fn ping(&self) -> Result<(), Error> {
        self.authorization(Access::Pull, false).await.map(|_| ())
    }

    /// Every tag, in the registry's order.
    pub async fn tags(&self) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            tags: Option<Vec<String>>,
        }
        let mut next = Some(self.url("tags/list?n=1000").await?);
        let mut tags = Vec::new();
        let mut pages = 0;
        while let Some(url) = next {
            let response = self.get(&url, HeaderMap::new()).await?;
            next = next_page(&url, response.headers())?;
            let bytes = body(response, LARGEST_PAGE, "a page of tags").await?;
            let page: Page = serde_json::from_slice(&bytes)
                .map_err(|error| Error::Answer { url: shown(&url), problem: error.to_string() })?;
            tags.extend(page.tags.unwrap_or_default());
            pages += 1;
            if tags.len() > self.limits.tags || pages > self.limits.tags {
                let most = self.limits.tags;
                return Err(Error::TooMany(format!("'{}' has more than {most} tags", self.repository)));
            }
        }
        Ok(tags)
    }

    /// The digest that a tag stands for now.
    pub async fn resolve(&self, tag: &str) -> Result<Digest, Error> {
        let url = self.manifest_url(tag).await?;
        let head = self.send(Method::HEAD, &url, manifest_types(), None, Access::Pull).await;
        if let Ok(response) = head
            && let Some(digest) = response.headers().get("docker-content-digest")
            && let Ok(digest) = digest.to_str().unwrap_or_default().parse()
        {
            return Ok(digest);
        }
        Ok(self.fetch(tag).await?.digest)
    }

    /// The manifest or index of a tag or digest.
    pub async fn fetch(&self, reference: &str) -> Result<Fetched, Error> {
        let url = self.manifest_url(reference).await?;
        let response = self.get(&url, manifest_types()).await?;
        let told = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let told = told.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        let bytes = body(response, LARGEST_MANIFEST, "a manifest").await?;
        let digest = match reference.parse::<Digest>() {
            Ok(wanted) => {
                let found = wanted.hasher().update(&bytes).finish();
                if found != wanted {
                    return Err(wrong_digest(&url, &wanted, &found));
                }
                wanted
            }
            Err(_) => Digest::of(&bytes),
        };
        Ok(Fetched { digest, media_type: media_type(told, &bytes), bytes })
    }

    /// The image of a digest; of an index, the one for the default platform.
    pub async fn image(&self, digest: &Digest) -> Result<Manifest, Error> {
        let fetched = self.fetch(digest.as_str()).await?;
        if !fetched.is_index() {
            return fetched.manifest();
        }
        let index = fetched.index()?;
        let entry = index.default_platform().ok_or_else(|| {
            Error::Manifest(format!(
                "no child with platform linux/amd64 in index {}",
                self.repository.with_digest(digest)
            ))
        })?;
        let inner = self.fetch(entry.digest.parse::<Digest>()?.as_str()).await?;
        if inner.is_index() {
            return Err(Error::Manifest(format!("{digest} is an index of indexes")));
        }
        inner.manifest()
    }

    /// A blob in memory.
    pub async fn blob(&self, descriptor: &Descriptor, largest: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.copy_blob(descriptor, largest, &mut bytes).await?;
        Ok(bytes)
    }

    /// Writes a blob to `out`; what was written counts only if this succeeds.
    pub async fn copy_blob(
        &self,
        descriptor: &Descriptor,
        largest: u64,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Error> {
        let wanted: Digest = descriptor.digest.parse()?;
        let largest = largest.min(self.limits.layer);
        let what = || format!("blob {wanted}");
        if descriptor.size > largest {
            return Err(Error::TooLarge { what: what(), limit: largest });
        }
        let url = self.url(&format!("blobs/{wanted}")).await?;
        let response = self.get(&url, HeaderMap::new()).await?;
        let (mut hash, mut seen) = (wanted.hasher(), 0_u64);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| Error::Unreachable {
                method: "GET",
                url: shown(&url),
                cause: causes(error),
            })?;
            seen += chunk.len() as u64;
            // A blob that is longer than its descriptor says is not the one that was meant.
            let limit = if descriptor.size > 0 { descriptor.size } else { largest };
            if seen > limit {
                return Err(Error::TooLarge { what: what(), limit });
            }
            hash = hash.update(&chunk);
            out.write_all(&chunk).await?;
        }
        out.flush().await?;
        let found = hash.finish();
        if found != wanted {
            return Err(wrong_digest(&url, &wanted, &found));
        }
        Ok(())
    }

    /// What was pushed to stand beside `digest`: signatures, attestations.
    pub async fn referrers(
        &self,
        digest: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, Error> {
        let mut url = self.url(&format!("referrers/{digest}")).await?;
        if let Some(artifact_type) = artifact_type {
            url.query_pairs_mut().append_pair("artifactType", artifact_type);
        }
        let mut found = Vec::new();
        let mut next = Some(url);
        for _ in 0..100 {
            let Some(url) = next.take() else { break };
            match self.get(&url, HeaderMap::new()).await {
                Ok(response) => {
                    next = next_page(&url, response.headers())?;
                    let bytes = body(response, LARGEST_MANIFEST, "a list of referrers").await?;
                    let index: Index = serde_json::from_slice(&bytes)
                        .map_err(|error| Error::Answer { url: shown(&url), problem: error.to_string() })?;
                    found.extend(index.manifests);
                }
                Err(error) if error.is_not_found() => {
                    return self.referrers_by_tag(digest, artifact_type).await;
                }
                Err(error) => return Err(error),
            }
        }
        found.retain(|entry| is_of_type(entry, artifact_type));
        Ok(found)
    }

    /// Registries without the referrers API keep the list under a tag.
    async fn referrers_by_tag(
        &self,
        digest: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, Error> {
        let tag = digest.as_str().replacen(':', "-", 1);
        let mut found = match self.fetch(&tag).await {
            Ok(fetched) if fetched.is_index() => fetched.index()?.manifests,
            Ok(_) => Vec::new(),
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error),
        };
        found.retain(|entry| is_of_type(entry, artifact_type));
        Ok(found)
    }

    async fn manifest_url(&self, reference: &str) -> Result<Url, Error> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-:".contains(c);
        if reference.is_empty()
            || reference.len() > 255
            || !reference.chars().all(allowed)
            || reference.starts_with('.')
        {
            return Err(Error::Manifest(format!("'{reference}' is no tag and no digest")));
        }
        self.url(&format!("manifests/{reference}")).await
    }

    /// The address of something in this repository.
    pub(super) async fn url(&self, tail: &str) -> Result<Url, Error> {
        let base = &self.door().await?.base;
        base.join(&format!("v2/{}/{tail}", self.repository.name()))
            .map_err(|error| Error::Answer { url: shown(base), problem: error.to_string() })
    }

    pub(super) async fn get(&self, url: &Url, headers: HeaderMap) -> Result<Response, Error> {
        self.send(Method::GET, url, headers, None, Access::Pull).await
    }

    /// Sends a request, as often as it takes, and returns only a good answer.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        content: Option<Vec<u8>>,
        access: Access,
    ) -> Result<Response, Error> {
        let name = method_name(&method);
        // Elsewhere, such as where an upload is to go, our credentials are nobody's business.
        let ours = url.origin() == self.door().await?.base.origin();
        let (mut wait, mut renewed) = (FIRST_WAIT, false);
        for attempt in 1.. {
            let mut request = self.client.request(method.clone(), url.clone()).headers(headers.clone());
            if ours && let Some(authorization) = self.authorization(access, false).await? {
                request = request.header(AUTHORIZATION, authorization);
            }
            if let Some(content) = &content {
                request = request.body(content.clone());
            }
            let pause = match request.send().await {
                Ok(response)
                    if response.status().is_success() || response.status() == StatusCode::ACCEPTED =>
                {
                    return Ok(response);
                }
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && ours && !renewed => {
                    renewed = true;
                    self.renew(&response, access).await?;
                    continue;
                }
                Ok(response) if is_passing(response.status()) && attempt < TRIES => {
                    retry_after(&response).unwrap_or(wait)
                }
                Ok(response) => return Err(refused(name, url, response).await),
                Err(error) if attempt < TRIES && (error.is_connect() || error.is_request()) => {
                    tracing::debug!(error = %causes(error), "registry did not answer, trying again");
                    wait
                }
                Err(error) => {
                    return Err(Error::Unreachable { method: name, url: shown(url), cause: causes(error) });
                }
            };
            tokio::time::sleep(pause.min(LONGEST_WAIT)).await;
            wait *= 3;
        }
        unreachable!("the last try returns")
    }

    /// The token ran out, or does not cover this: the registry has just said what it wants.
    async fn renew(&self, response: &Response, access: Access) -> Result<(), Error> {
        let header = challenge_of(response);
        let door = self.door().await?;
        if let Some(Challenge::Bearer { realm, service, .. }) = header.as_ref().or(door.challenge.as_ref()) {
            let fresh = self.bearer(&door.base, realm, service.as_deref(), access).await?;
            *self.token.lock().await = Some((access, fresh));
        } else {
            *self.token.lock().await = None;
        }
        Ok(())
    }

    async fn authorization(&self, access: Access, fresh: bool) -> Result<Option<HeaderValue>, Error> {
        let door = self.door().await?;
        match (&door.challenge, &self.credentials) {
            (None, _) => Ok(None),
            (Some(_), Some(Credentials::Bearer(token))) => {
                Ok(Some(token::header(&format!("Bearer {}", token.expose()))?))
            }
            (Some(Challenge::Basic), Some(Credentials::Basic { username, password })) => {
                token::basic(username, password).map(Some)
            }
            // Nothing to log in with: the registry will say what it thinks of that.
            (Some(Challenge::Basic), None) => Ok(None),
            (Some(Challenge::Basic), Some(Credentials::Identity(_))) => Err(Error::UnknownChallenge {
                registry: self.repository.registry().to_owned(),
                scheme: "Basic, where only an identity token is known".to_owned(),
            }),
            (Some(Challenge::Unknown(scheme)), _) => Err(Error::UnknownChallenge {
                registry: self.repository.registry().to_owned(),
                scheme: scheme.clone(),
            }),
            (Some(Challenge::Bearer { realm, service, .. }), _) => {
                let mut token = self.token.lock().await;
                if let Some((covers, value)) = token.as_ref().filter(|_| !fresh)
                    && (*covers == access || *covers == Access::Push)
                {
                    return Ok(Some(value.clone()));
                }
                let value = self.bearer(&door.base, realm, service.as_deref(), access).await?;
                *token = Some((access, value.clone()));
                Ok(Some(value))
            }
        }
    }

    async fn bearer(
        &self,
        base: &Url,
        realm: &str,
        service: Option<&str>,
        access: Access,
    ) -> Result<HeaderValue, Error> {
        let actions = match access {
            Access::Pull => "pull",
            Access::Push => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", self.repository.name());
        let wanted = token::Wanted { realm, service, scope };
        let token: SecretString =
            token::fetch(&self.client, base, &self.repository, self.credentials.as_ref(), wanted).await?;
        token::header(&format!("Bearer {}", token.expose()))
    }

    /// How the registry is reached; asked once.
    async fn door(&self) -> Result<&Door, Error> {
        self.door.get_or_try_init(|| self.knock()).await
    }

    async fn knock(&self) -> Result<Door, Error> {
        let mut failures: Vec<Error> = Vec::new();
        for scheme in self.repository.schemes() {
            let base = format!("{scheme}://{}/", self.repository.registry());
            let base =
                Url::parse(&base).map_err(|error| Error::Answer { url: base, problem: error.to_string() })?;
            match self.knock_at(&base).await {
                Ok(challenge) => return Ok(Door { base, challenge }),
                Err(error) => failures.push(error),
            }
        }
        // What the last scheme said is about the registry; before it stands only that it has no TLS.
        Err(failures.pop().unwrap_or_else(|| Error::Manifest("no way to reach the registry".to_owned())))
    }

    async fn knock_at(&self, base: &Url) -> Result<Option<Challenge>, Error> {
        let url = base
            .join("v2/")
            .map_err(|error| Error::Answer { url: shown(base), problem: error.to_string() })?;
        let mut wait = FIRST_WAIT;
        let may_be_plain = self.repository.schemes().len() > 1 && base.scheme() == "https";
        for attempt in 1.. {
            match self.client.get(url.clone()).send().await {
                Ok(response) if response.status().is_success() => return Ok(None),
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED => {
                    return Ok(Some(challenge_of(&response).unwrap_or(Challenge::Basic)));
                }
                Ok(response) if is_passing(response.status()) && attempt < TRIES => {
                    let pause = retry_after(&response).unwrap_or(wait);
                    tokio::time::sleep(pause.min(LONGEST_WAIT)).await;
                }
                // Some registries answer a knock with 404 or 403 and their repositories all the same.
                Ok(response) if matches!(response.status().as_u16(), 403 | 404) => {
                    return Ok(challenge_of(&response));
                }
                Ok(response) => return Err(refused("GET", &url, response).await),
                Err(error) if may_be_plain || attempt >= TRIES || !error.is_connect() => {
                    return Err(Error::Unreachable { method: "GET", url: shown(&url), cause: causes(error) });
                }
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait *= 3;
        }
        unreachable!("the last try returns")
    }
}

fn challenge_of(response: &Response) -> Option<Challenge> {
    let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
    challenge::parse(headers.filter_map(|value| value.to_str().ok()))
}

fn is_of_type(entry: &Descriptor, artifact_type: Option<&str>) -> bool {
    artifact_type.is_none_or(|wanted| entry.artifact_type.as_deref() == Some(wanted))
}

/// What will be well again without anybody doing something.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

async fn refused(method: &'static str, url: &Url, response: Response) -> Error {
    let status = response.status();
    let body = body(response, LARGEST_COMPLAINT, "an error").await.unwrap_or_default();
    let problem = super::error::problem(status, &body);
    Error::Refused { method, url: shown(url), status: status.as_u16(), problem }
}

fn wrong_digest(url: &Url, wanted: &Digest, found: &Digest) -> Error {
    Error::WrongDigest { what: shown(url), expected: wanted.to_string(), found: found.to_string() }
}

/// The whole body, if it is not larger than it may be.
pub(crate) async fn body(response: Response, largest: usize, what: &str) -> Result<Vec<u8>, Error> {
    let url = shown(response.url());
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Error::Unreachable {
            method: "GET",
            url: url.clone(),
            cause: causes(error),
        })?;
        if bytes.len() + chunk.len() > largest {
            return Err(Error::TooLarge { what: what.to_owned(), limit: largest as u64 });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// `Link: </v2/…>; rel="next"`, which has to lead to the same registry.
fn next_page(url: &Url, headers: &HeaderMap) -> Result<Option<Url>, Error> {
    let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    let Some(link) =
        links.flat_map(|value| value.split(',')).find(|link| link.replace(' ', "").contains("rel=\"next\""))
    else {
        return Ok(None);
    };
    let target = link.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(target, _)| target);
    let bad = |problem: &str| Error::Answer { url: shown(url), problem: problem.to_owned() };
    let target = target.ok_or_else(|| bad("the Link header has no target"))?;
    let next = url.join(target).map_err(|_| bad("the Link header is no URL"))?;
    if next.origin() != url.origin() {
        return Err(bad("the Link header leads to another host; refused"));
    }
    if next == *url {
        return Err(bad("the Link header leads to the same page"));
    }
    Ok(Some(next))
}

fn manifest_types() -> HeaderMap {
    let accepted = [MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_INDEX].join(", ");
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(&accepted) {
        headers.insert(ACCEPT, value);
    }
    headers
}

/// What the content says of itself counts when the registry does not know better.
fn media_type(told: String, bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        #[serde(default)]
        media_type: String,
    }
    if [MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_INDEX].contains(&told.as_str()) {
        return told;
    }
    match serde_json::from_slice::<Typed>(bytes) {
        Ok(typed) if !typed.media_type.is_empty() => typed.media_type,
        _ => told,
    }
}

fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        _ => "GET",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(link: &str) -> Result<Option<String>, Error> {
        let url = Url::parse("https://r.io/v2/a/tags/list?n=2").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(LINK, HeaderValue::from_str(link).unwrap());
        Ok(next_page(&url, &headers)?.map(|url| url.to_string()))
    }

    #[test]
    fn the_next_page_is_on_the_same_registry() {
        assert_eq!(
            next("</v2/a/tags/list?n=2&last=b>; rel=\"next\"").unwrap().as_deref(),
            Some("https://r.io/v2/a/tags/list?n=2&last=b")
        );
        assert_eq!(next("</x>; rel=\"prev\"").unwrap(), None);
        for bad in [
            "<https://evil.io/x>; rel=\"next\"",
            "<http://r.io/x>; rel=\"next\"",
            "x; rel=\"next\"",
            "</v2/a/tags/list?n=2>; rel=\"next\"",
        ] {
            assert!(next(bad).is_err(), "{bad}");
        }
    }
}
