//! Git over HTTP and HTTPS.
//!
//! A redirect of the first request moves the whole conversation, as Git does; credentials stay with the
//! host they were given for.

use futures::TryStreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use tokio_util::io::StreamReader;
use url::Url;

use super::transport::{Answer, Remote, Reply, Service};
use super::{Error, packet};

pub struct Http {
    client: Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

impl Http {
    /// `authorization` is the whole header value, marked sensitive here.
    pub fn new(client: Client, url: &Url, authorization: Option<String>) -> Result<Self, Error> {
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
    fn follow(&mut self, landed: &Url) {
        let Some(base) = landed.as_str().split("/info/refs").next().and_then(|text| Url::parse(text).ok())
        else {
            return;
        };
        let same_origin = base.origin() == self.base.origin();
        if !same_origin {
            self.authorization = None;
        }
        self.base = base;
    }
}

impl Remote for Http {
    fn advertisement(&mut self, service: Service) -> Answer<'_> {
        Box::pin(async move {
            let url = self.endpoint(&format!("info/refs?service={}", service.name()));
            let response = self.authorized(self.client.get(url)).send().await.map_err(unreachable)?;
            let response = accepted(response)?;
            let landed = response.url().clone();
            self.follow(&landed);
            let mut reader = body(response);
            skip_service_banner(&mut reader, service).await
        })
    }

    fn request(&mut self, service: Service, bytes: Vec<u8>) -> Answer<'_> {
        Box::pin(async move {
            let request = self
                .authorized(self.client.post(self.endpoint(service.name())))
                .header(CONTENT_TYPE, format!("application/x-{}-request", service.name()))
                .header(ACCEPT, format!("application/x-{}-result", service.name()))
                .body(bytes);
            let response = accepted(request.send().await.map_err(unreachable)?)?;
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

fn accepted(response: Response) -> Result<Response, Error> {
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED => Err(Error::AuthenticationRequired),
        StatusCode::FORBIDDEN => Err(Error::Forbidden),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(Error::RepositoryNotFound),
        status => Err(Error::Http(status.as_u16())),
    }
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
