//! Google Cloud Storage through its JSON API.
//!
//! There is one address for everybody, so a Bucket's `spec.endpoint` is not looked at, as upstream does it.

use flux_api::secret::SecretString;
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::http::{self, LARGEST_PAGE, Pages, body, segment};
use super::signature::encode;
use super::{Error, Object};
use crate::transport::Transport;

/// How often an object may change between a look at it and its download.
const CHANGES: usize = 4;
/// What Google gives at most.
const PAGE: &str = "1000";

/// Buckets at Google, seen by whoever the token is for.
pub struct Google {
    client: reqwest::Client,
    address: Url,
    token: SecretString,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    items: Vec<Attributes>,
    #[serde(default, rename = "nextPageToken")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Attributes {
    #[serde(default)]
    name: String,
    #[serde(default)]
    etag: String,
    #[serde(default)]
    generation: String,
}

impl Google {
    pub fn new(address: &str, token: SecretString, transport: &Transport) -> Result<Self, Error> {
        let address =
            Url::parse(address).map_err(|error| Error::Endpoint(format!("endpoint '{address}': {error}")))?;
        Ok(Self { client: transport.client()?, address, token })
    }

    pub(super) async fn bucket_exists(&self, bucket: &str) -> Result<bool, Error> {
        match self.send(&self.url(bucket, &[], &[])?).await {
            Ok(_) => Ok(true),
            Err(Error::Refused { status: 404, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn list(
        &self,
        bucket: &str,
        prefix: &str,
        mut each: impl FnMut(String, String),
    ) -> Result<(), Error> {
        let mut pages = Pages::default();
        loop {
            let mut query = vec![("maxResults", PAGE), ("fields", "items(name,etag),nextPageToken")];
            query.extend((!prefix.is_empty()).then_some(("prefix", prefix)));
            query.extend(pages.token().map(|token| ("pageToken", token)));
            let response = self.send(&self.url(bucket, &["o"], &query)?).await?;
            let page: Page = read(response, "a list of objects").await?;
            let count = page.items.len();
            page.items.into_iter().for_each(|object| each(object.name, object.etag));
            if !pages.turn(count, page.next)? {
                return Ok(());
            }
        }
    }

    /// An object in one version: what is looked at is what is downloaded.
    pub(super) async fn get(&self, bucket: &str, key: &str, largest: u64) -> Result<Option<Object>, Error> {
        for _ in 0..CHANGES {
            let fields = [("fields", "etag,generation")];
            let attributes: Attributes = match self.send(&self.url(bucket, &["o", key], &fields)?).await {
                Ok(response) => read(response, key).await?,
                Err(Error::Refused { status: 404, .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let version = [("alt", "media"), ("ifGenerationMatch", attributes.generation.as_str())];
            match self.send(&self.url(bucket, &["o", key], &version)?).await {
                Ok(response) => {
                    let limit = usize::try_from(largest).unwrap_or(usize::MAX);
                    let bytes = body(response, limit, key).await?;
                    return Ok(Some(Object { etag: attributes.etag, bytes }));
                }
                Err(Error::Refused { status: 404, .. }) => return Ok(None),
                Err(Error::Refused { status: 412, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Answer(format!("object '{key}' does not stop changing")))
    }

    /// `/storage/v1/b/<bucket>/o/<key>`, with the slashes of a key encoded.
    fn url(&self, bucket: &str, rest: &[&str], query: &[(&str, &str)]) -> Result<Url, Error> {
        let mut path =
            format!("{}/storage/v1/b/{}", self.address.path().trim_end_matches('/'), segment(bucket)?);
        for part in rest {
            path = format!("{path}/{}", encode(part, false));
        }
        let mut url = self.address.clone();
        url.set_path(&path);
        url.set_query(None);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn send(&self, url: &Url) -> Result<Response, Error> {
        let request = || Ok(self.client.get(url.clone()).bearer_auth(self.token.expose()));
        http::send(url, request, refused).await
    }
}

async fn read<T: DeserializeOwned>(response: Response, what: &str) -> Result<T, Error> {
    let bytes = body(response, LARGEST_PAGE, what).await?;
    serde_json::from_slice(&bytes)
        .map_err(|_| Error::Answer(format!("{what} that is no JSON or was cut off")))
}

/// In the words of Google's own client.
fn refused(status: StatusCode, complaint: &str) -> Error {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Answer {
        error: Problem,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Problem {
        message: String,
        errors: Vec<Detail>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Detail {
        reason: String,
    }
    let Problem { message, errors } = serde_json::from_str::<Answer>(complaint).unwrap_or_default().error;
    let code = errors.into_iter().next().map(|detail| detail.reason).unwrap_or_default();
    let message: String = match message.is_empty() {
        true => status.canonical_reason().unwrap_or("refused").to_owned(),
        false => message.chars().take(500).collect(),
    };
    let reason = if code.is_empty() { String::new() } else { format!(", {code}") };
    let problem = format!("googleapi: Error {}: {message}{reason}", status.as_u16());
    Error::Refused { status: status.as_u16(), code, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_are_one_part_of_the_path() {
        let google =
            Google::new("https://storage.googleapis.com", SecretString::default(), &Transport::default())
                .unwrap();
        let url = google.url("fleet", &["o", "a b/../c#?"], &[("alt", "media")]).unwrap();
        assert_eq!(
            url.as_str(),
            "https://storage.googleapis.com/storage/v1/b/fleet/o/a%20b%2F..%2Fc%23%3F?alt=media"
        );
        for bucket in ["", ".", ".."] {
            assert!(google.url(bucket, &[], &[]).is_err(), "{bucket}");
        }
        assert_eq!(google.url("a/b", &[], &[]).unwrap().path(), "/storage/v1/b/a%2Fb");
    }

    #[test]
    fn a_refusal_is_told_as_google_tells_it() {
        let answer = r#"{"error":{"code":403,"message":"no access","errors":[{"reason":"forbidden"}]}}"#;
        let told = |status, text: &str| refused(status, text).to_string();
        assert_eq!(told(StatusCode::FORBIDDEN, answer), "googleapi: Error 403: no access, forbidden");
        assert_eq!(told(StatusCode::BAD_GATEWAY, "<html>"), "googleapi: Error 502: Bad Gateway");
    }
}
