//! Requests to an object store: sent again when trouble may pass, and answers that have a limit.

use std::time::Duration;

use futures::StreamExt;
use reqwest::{RequestBuilder, Response, StatusCode};

use super::Error;
use crate::transport::{causes, shown};

pub(super) const LARGEST_PAGE: usize = 16 << 20;
pub(super) const LARGEST_COMPLAINT: usize = 64 << 10;
pub(super) const MOST_OBJECTS: usize = 1_000_000;
pub(super) const TRIES: u32 = 4;
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(250);

pub(super) fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// Sends what `make` makes, up to [`TRIES`] times; a refusal is read by `refused`.
pub(super) async fn send(
    url: &url::Url,
    make: impl Fn() -> Result<RequestBuilder, Error>,
    refused: impl Fn(StatusCode, &str) -> Error,
) -> Result<Response, Error> {
    let mut wait = FIRST_WAIT;
    for attempt in 1.. {
        match make()?.send().await {
            Ok(response) if response.status().is_success() => return Ok(response),
            Ok(response) => {
                let status = response.status();
                let complaint = body(response, LARGEST_COMPLAINT, "an error").await.unwrap_or_default();
                if attempt >= TRIES || !may_pass(status) {
                    return Err(refused(status, &String::from_utf8_lossy(&complaint)));
                }
            }
            Err(error) if attempt >= TRIES || !error.is_connect() => {
                return Err(Error::Unreachable { url: shown(url), cause: causes(error) });
            }
            Err(_) => {}
        }
        tokio::time::sleep(wait).await;
        wait *= 3;
    }
    unreachable!("the last try returns")
}

pub(super) async fn body(response: Response, largest: usize, key: &str) -> Result<Vec<u8>, Error> {
    let too_large = || Error::TooLarge { key: key.to_owned(), limit: largest as u64 };
    let url = shown(response.url());
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Error::Unreachable { url: url.clone(), cause: causes(error) })?;
        if bytes.len() + chunk.len() > largest {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A bucket's name as one part of a path; two names would lead elsewhere.
pub(super) fn segment(bucket: &str) -> Result<String, Error> {
    if bucket.is_empty() || bucket == "." || bucket == ".." {
        return Err(Error::Endpoint(format!("'{bucket}' is no name of a bucket")));
    }
    Ok(super::signature::encode(bucket, false))
}

/// Counts what a listing brings, and ends one that does not.
#[derive(Default)]
pub(super) struct Pages {
    seen: usize,
    token: Option<String>,
}

impl Pages {
    /// Where the next page begins; nothing for the first.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether there is another page behind one of `count` objects.
    pub(super) fn turn(&mut self, count: usize, next: Option<String>) -> Result<bool, Error> {
        self.seen += count;
        if self.seen > MOST_OBJECTS {
            return Err(Error::TooMany(MOST_OBJECTS));
        }
        let Some(next) = next.filter(|next| !next.is_empty()) else { return Ok(false) };
        if self.token.as_ref() == Some(&next) {
            return Err(Error::Answer("the list of objects does not end".to_owned()));
        }
        self.token = Some(next);
        Ok(true)
    }
}
