//! The loopback HTTP server under every server here: free port, optional TLS, faults, a record of requests.
//!
//! Servers run on a runtime of their own, not the test's: a test may block on `git clone` or `kubectl`
//! without starving the server it talks to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use http::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::fault::{Fault, Faults};
use crate::tls::Authority;

/// Whether a server speaks TLS, and what it asks of its clients.
#[derive(Clone, Copy)]
pub enum Security<'a> {
    Plain,
    Tls(&'a Authority),
    /// Clients need a certificate that the same authority signed.
    MutualTls(&'a Authority),
}

/// One request that was answered, refused or cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub method: String,
    /// Path with query.
    pub path: String,
    /// The status sent; none when the request met a stall or its connection was lost.
    pub status: Option<u16>,
    pub user_agent: Option<String>,
}

/// A running server; it ends, with all its connections, when this value is dropped.
pub struct HttpServer {
    address: SocketAddr,
    secure: bool,
    faults: Faults,
    requests: Arc<Mutex<Vec<Answered>>>,
    accepting: AbortHandle,
}

impl HttpServer {
    pub fn start(router: Router, security: Security<'_>) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("bind a free port")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let tls = match security {
            Security::Plain => None,
            Security::Tls(authority) => Some(authority.server_config(false)?),
            Security::MutualTls(authority) => Some(authority.server_config(true)?),
        };
        let secure = tls.is_some();
        let site = Site { router, faults: Faults::default(), requests: Arc::default() };
        let (faults, requests) = (site.faults.clone(), site.requests.clone());
        let accepting = runtime().spawn(accept(listener, tls, site)).abort_handle();
        Ok(Self { address, secure, faults, requests, accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:port` or `https://…`, without a slash at the end.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The same with user and password in it.
    pub fn url_with_credentials(&self, user: &str, password: &str) -> String {
        self.url().replacen("://", &format!("://{user}:{password}@"), 1)
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Every request so far, in the order of their answers.
    pub fn requests(&self) -> Vec<Answered> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The runtime that all servers of this process share.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("testbed")
            .enable_all()
            .build()
            .expect("a runtime can be made wherever threads can")
    });
    &RUNTIME
}

/// User and password of basic authentication.
pub(crate) fn credentials(authorization: &str) -> Option<(String, String)> {
    let encoded = authorization.strip_prefix("Basic ")?;
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The parameters of a query, decoded.
pub(crate) fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Replaces `%xx`; what is not of that form stays as it is.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes.get(index + 1..index + 3).filter(|_| bytes[index] == b'%');
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(byte.unwrap_or(bytes[index]));
        index += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[derive(Clone)]
struct Site {
    router: Router,
    faults: Faults,
    requests: Arc<Mutex<Vec<Answered>>>,
}

async fn accept(listener: std::net::TcpListener, tls: Option<Arc<ServerConfig>>, site: Site) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    let acceptor = tls.map(TlsAcceptor::from);
    // Dropped with this task: that is what cuts the connections when the server ends.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(connection(stream, acceptor.clone(), site.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, site: Site) {
    match acceptor {
        None => speak(stream, site).await,
        Some(acceptor) => {
            // A client that does not trust us, or that we do not trust, is the test's business.
            if let Ok(stream) = acceptor.accept(stream).await {
                speak(stream, site).await;
            }
        }
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, site: Site) {
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(request.map(Body::new)).await) }
    });
    // An error is a client that went away, or a connection that was cut on request.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}

impl Site {
    async fn answer(self, request: Request<Body>) -> Response {
        let mut record = Answered {
            method: request.method().to_string(),
            path: request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            status: None,
            user_agent: request
                .headers()
                .get(http::header::USER_AGENT)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        };
        let response = match self.faults.take(&record.path) {
            None => self.route(request).await,
            Some(Fault::Status(code)) => {
                let mut response = Response::new(Body::from("told to fail\n"));
                *response.status_mut() =
                    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                response
            }
            Some(Fault::Stall) => {
                self.note(record.clone());
                self.faults.until_cleared().await;
                self.route(request).await
            }
            Some(Fault::CutAfter(limit)) => cut(self.route(request).await, limit),
        };
        record.status = Some(response.status().as_u16());
        self.note(record);
        response
    }

    async fn route(&self, request: Request<Body>) -> Response {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn note(&self, record: Answered) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }
}

/// Keeps the headers as they were, so that the client can tell that something is missing.
fn cut(response: Response, limit: usize) -> Response {
    let (parts, body) = response.into_parts();
    let beginning =
        futures::stream::unfold((body.into_data_stream(), limit), |(mut body, left)| async move {
            if left == 0 {
                return None;
            }
            let chunk = body.next().await?.map_err(std::io::Error::other);
            let part = chunk.map(|chunk| chunk.slice(..chunk.len().min(left)));
            let left = left - part.as_ref().map_or(left, axum::body::Bytes::len);
            Some((part, (body, left)))
        });
    // The error comes after the last byte even if the whole body was within the limit.
    let end = futures::stream::once(async {
        // A pause makes the server write out what it has; without one the error would overtake it.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("told to cut the connection"))
    });
    Response::from_parts(parts, Body::from_stream(beginning.chain(end)))
}
