//! Git over HTTP and HTTPS.
//!
//! A redirect of the first request moves the whole conversation, as Git does; credentials stay with the
//! scheme, host and port they were given for. Later requests carry content and follow no redirect.

use futures::TryStreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, StatusCode};
use tokio_util::io::StreamReader;
use url::Url;

use super::transport::{Answer, Remote, Reply, Service};
use super::{Error, packet};

const MOST_REDIRECTS: usize = 5;
/// Of an error page.
const LONGEST_COMPLAINT: usize = 1 << 10;

pub struct Http {
    client: Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Http {
    /// `client` brings TLS material and proxy; `authorization` is the whole header value, marked sensitive here.
    pub fn new(client: ClientBuilder, url: &Url, authorization: Option<String>) -> Result<Self, Error> {
        let client = client.redirect(Policy::none()).build().map_err(unreachable)?;
        Self::with_client(client, url, authorization)
    }

    /// The same over a client that others use too, one that follows no redirects.
    pub fn with_client(client: Client, url: &Url, authorization: Option<String>) -> Result<Self, Error> {
        let mut base = url.clone();
        base.set_query(None);
        base.set_fragment(None);
        // Credentials in the URL would show up in errors; callers turn them into a header.
        if !base.username().is_empty() || base.password().is_some() {
            let _ = base.set_username("");
            let _ = base.set_password(None);
        }
        let authorization = match authorization {
            None => None,
            Some(text) => {
                let mut value = HeaderValue::from_str(&text)
                    .map_err(|_| Error::InvalidUrl("credentials hold a line break".to_owned()))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { client, base, authorization })
    }

    fn endpoint(&self, tail: &str) -> String {
        format!("{}/{tail}", self.base.as_str().trim_end_matches('/'))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        // Version 2 is asked for; a server that does not know it answers in version 0.
        let request = request.header("Git-Protocol", "version=2");
        match &self.authorization {
            Some(value) => request.header(AUTHORIZATION, value.clone()),
            None => request,
        }
    }

    /// Takes over the place the server redirected us to.
    fn follow(&mut self, asked: &Url, location: &str, tail: &str) -> Result<(), Error> {
        let refuse = |why: &str| Error::Refused(format!("a redirect {why}"));
        let target = asked.join(location).map_err(|_| refuse("to nowhere"))?;
        if !matches!(target.scheme(), "http" | "https") {
            return Err(refuse("to a scheme other than http and https"));
        }
        if asked.scheme() == "https" && target.scheme() == "http" {
            return Err(refuse("from https to http"));
        }
        let base = target.as_str().strip_suffix(tail).and_then(|text| Url::parse(text).ok());
        let mut base = base.ok_or_else(|| refuse("that is not to a Git repository"))?;
        let _ = base.set_username("");
        let _ = base.set_password(None);
        if base.origin() != self.base.origin() {
            self.authorization = None;
        }
        self.base = base;
        Ok(())
    }
}

impl Remote for Http {
    fn advertisement(&mut self, service: Service) -> Answer<'_> {
        Box::pin(async move {
            let tail = format!("/info/refs?service={}", service.name());
            for _ in 0..=MOST_REDIRECTS {
                let url = self.endpoint(&tail[1..]);
                let response = self.authorized(self.client.get(&url)).send().await.map_err(unreachable)?;
                if response.status().is_redirection() {
                    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
                    let location =
                        location.ok_or_else(|| Error::Http(response.status().as_u16()))?.to_owned();
                    self.follow(&response.url().clone(), &location, &tail)?;
                    continue;
                }
                let mut reader = body(accepted(response).await?);
                return skip_service_banner(&mut reader, service).await;
            }
            Err(Error::Refused("too many redirects".to_owned()))
        })
    }

    fn request(&mut self, service: Service, bytes: Vec<u8>) -> Answer<'_> {
        Box::pin(async move {
            let request = self
                .authorized(self.client.post(self.endpoint(service.name())))
                .header(CONTENT_TYPE, format!("application/x-{}-request", service.name()))
                .header(ACCEPT, format!("application/x-{}-result", service.name()))
                .body(bytes);
            let response = accepted(request.send().await.map_err(unreachable)?).await?;
            Ok(body(response))
        })
    }

    fn is_stateless(&self) -> bool {
        true
    }
}

fn body(response: Response) -> Reply<'static> {
    Box::pin(StreamReader::new(response.bytes_stream().map_err(std::io::Error::other)))
}

/// HTTP servers put `# service=…` and a flush before the advertisement; some leave it out.
async fn skip_service_banner(reader: &mut Reply<'static>, service: Service) -> Result<Reply<'static>, Error> {
    let mut prefix = Vec::new();
    let first = packet::read(&mut *reader).await?;
    match first.text() {
        Some(text) if text == format!("# service={}", service.name()) => {
            packet::read(&mut *reader).await?;
        }
        Some(text) => prefix = packet::Request::default().line(text).into_bytes(),
        None => return Err(Error::Garbage("no advertisement; is this a Git repository?".to_owned())),
    }
    let rest = std::mem::replace(reader, Box::pin(tokio::io::empty()));
    Ok(Box::pin(tokio::io::AsyncReadExt::chain(std::io::Cursor::new(prefix), rest)))
}

async fn accepted(response: Response) -> Result<Response, Error> {
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED => Err(Error::AuthenticationRequired),
        StatusCode::FORBIDDEN => match complaint(response).await {
            Some(text) => Err(Error::Refused(text)),
            None => Err(Error::Forbidden),
        },
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::RepositoryNotFound),
        status => Err(Error::Http(status.as_u16())),
    }
}

/// Why the server says no, where it says so in plain text.
async fn complaint(mut response: Response) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("text/plain") {
        return None;
    }
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk[..chunk.len().min(LONGEST_COMPLAINT - bytes.len())]);
        if bytes.len() >= LONGEST_COMPLAINT {
            break;
        }
    }
    let text: String = String::from_utf8_lossy(&bytes).chars().filter(|one| !one.is_control()).collect();
    Some(format!("authorization failed: {}", text.trim())).filter(|_| !text.trim().is_empty())
}

/// The chain of causes without the URL, which may carry a token.
fn unreachable(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Error::Unreachable(text)
}
