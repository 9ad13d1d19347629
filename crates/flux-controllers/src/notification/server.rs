//! The two listeners, which anybody who reaches them may call: what a request may be before somebody looks at it.
//!
//! Headers are 256 KiB at most and arrive within 10 seconds, a body is 3 MiB at most and arrives within 30, as upstream.
//! Beyond upstream: connections are limited in number, and so are large bodies that are read at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::reconcile::metrics::{Family, Metrics, WEBHOOK_REQUESTS};

pub const LARGEST_BODY: usize = 3 << 20;
const LARGEST_HEADERS: usize = 256 << 10;
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
const BODY_WITHIN: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 512;
/// A body up to this size is read without asking.
const SMALL_BODY: usize = 64 << 10;
/// How many larger ones are read at once.
const LARGE_BODIES: usize = 32;
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Answers requests whose body was read whole.
pub trait Answer: Send + Sync + 'static {
    fn answer(self: Arc<Self>, head: Parts, body: Bytes) -> BoxFuture<'static, StatusCode>;
}

/// How a listener is called where it is counted.
#[derive(Clone, Copy)]
pub struct Counted {
    pub name: &'static str,
    pub times: &'static Family,
    /// What stands for the path.
    pub handler: &'static str,
    /// Whether the path itself is told. One that nobody knows never is: callers would make up more without end.
    pub paths: bool,
}

/// The longest path that is told.
const LONGEST_PATH: usize = 256;

/// Listens until `stop`; then ends what it is at.
pub async fn serve(
    listener: TcpListener,
    counted: Counted,
    answer: Arc<impl Answer>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let large_bodies = Arc::new(Semaphore::new(LARGE_BODIES));
    let mut running = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = running.join_next() => continue,
            accepted = accept(&listener, &connections) => accepted,
        };
        let (stream, permit) = match accepted {
            Ok(accepted) => accepted,
            // Out of file descriptors, perhaps: give connections time to end.
            Err(error) => {
                tracing::warn!(%error, listener = counted.name, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let site = Site {
            counted,
            answer: answer.clone(),
            metrics: metrics.clone(),
            large_bodies: large_bodies.clone(),
        };
        let stop = stop.clone();
        running.spawn(async move {
            speak(stream, site, stop).await;
            drop(permit);
        });
    }
    while running.join_next().await.is_some() {}
}

async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = connections.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

struct Site<A> {
    counted: Counted,
    answer: Arc<A>,
    metrics: Metrics,
    large_bodies: Arc<Semaphore>,
}

async fn speak<A: Answer>(stream: TcpStream, site: Site<A>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let site = Arc::new(site);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.respond(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        // Bounds what is held before there is a request to look at; the exact limit is below.
        .max_buf_size(LARGEST_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A client that went away or spoke no HTTP is no failure of the server.
        _ = connection.as_mut() => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(STOP_WITHIN, connection).await;
        }
    }
}

impl<A: Answer> Site<A> {
    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let method = known(&head.method);
        let path = self.counted.paths.then(|| head.uri.path().to_owned());
        let status = self.status(head, body).await;
        self.count(method, path.as_deref(), status, started.elapsed());
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        // What was not read of a body cannot be told from the next request.
        if matches!(
            status,
            StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        ) {
            response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
        }
        response
    }

    async fn status(&self, head: Parts, body: Incoming) -> StatusCode {
        let headers: usize =
            head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if headers > LARGEST_HEADERS {
            return StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        }
        let read = tokio::time::timeout(BODY_WITHIN, self.read(body)).await;
        match read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT)) {
            Ok(body) => self.answer.clone().answer(head, body).await,
            Err(status) => status,
        }
    }

    fn count(&self, method: &str, path: Option<&str>, status: StatusCode, took: Duration) {
        let Counted { name, times, handler, .. } = self.counted;
        self.metrics.add(&WEBHOOK_REQUESTS, &[name, status.as_str()], 1.0);
        let is_known = status != StatusCode::NOT_FOUND && status != StatusCode::BAD_REQUEST;
        let told = path.filter(|path| is_known && path.len() <= LONGEST_PATH).unwrap_or(handler);
        self.metrics.observe(times, &[status.as_str(), told, method, ""], took.as_secs_f64());
    }

    async fn read(&self, body: Incoming) -> Result<Bytes, StatusCode> {
        let mut pieces = Body::new(body).into_data_stream();
        let mut whole = BytesMut::new();
        let mut permit = None;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| StatusCode::BAD_REQUEST)?;
            if whole.len() + piece.len() > LARGEST_BODY {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            if permit.is_none() && whole.len() + piece.len() > SMALL_BODY {
                permit = self.large_bodies.acquire().await.ok();
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

/// A method by its name, unless somebody made it up.
fn known(method: &Method) -> &'static str {
    let usual = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    let names = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    usual.iter().position(|known| known == method).map_or("other", |index| names[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::reconcile::metrics::RECEIVER_REQUEST_TIME;

    /// Everything is well but what begins with `/no`, which is not there.
    struct Mostly200;

    impl Answer for Mostly200 {
        fn answer(self: Arc<Self>, head: Parts, _: Bytes) -> BoxFuture<'static, StatusCode> {
            let is_there = !head.uri.path().starts_with("/no");
            Box::pin(async move { if is_there { StatusCode::OK } else { StatusCode::NOT_FOUND } })
        }
    }

    async fn started() -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        started_with(false, Metrics::default()).await
    }

    async fn started_with(
        paths: bool,
        metrics: Metrics,
    ) -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let counted = Counted { name: "test", times: &RECEIVER_REQUEST_TIME, handler: "/hook/", paths };
        let server = serve(listener, counted, Arc::new(Mostly200), metrics, stop.clone());
        (address, stop, tokio::spawn(server))
    }

    #[tokio::test]
    async fn requests_are_counted_with_their_path_only_where_that_is_wanted() {
        for (paths, told) in [(false, "/hook/"), (true, "/hook/x")] {
            let metrics = Metrics::default();
            let (address, stop, server) = started_with(paths, metrics.clone()).await;
            for line in ["POST /hook/x", "GET /nowhere", "BREW /hook/x"] {
                say(address, format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes()).await;
            }
            stop.cancel();
            server.await.unwrap();
            let page = metrics.page();
            let series = |code: &str, handler: &str, method: &str| {
                let labels =
                    format!("code=\"{code}\",handler=\"{handler}\",method=\"{method}\",service=\"\"");
                page.contains(&format!("gotk_receiver_http_request_duration_seconds_count{{{labels}}} 1"))
            };
            assert!(series("200", told, "POST") && series("200", told, "other"), "{page}");
            assert!(series("404", "/hook/", "GET"), "a path that nobody knows is not told: {page}");
        }
    }

    /// Sends bytes and returns the status of the answer, or nothing when the connection was closed without one.
    async fn say(address: std::net::SocketAddr, text: Vec<u8>) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let send = async {
            let _ = writer.write_all(&text).await;
        };
        let mut answer = vec![0; 64];
        let (_, read) = tokio::join!(send, reader.read(&mut answer));
        let answer = String::from_utf8_lossy(&answer[..read.unwrap_or_default()]).into_owned();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_with_the_right_code() {
        let (address, stop, server) = started().await;
        let post = |length: usize| {
            let mut text =
                format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n").into_bytes();
            text.resize(text.len() + length, b'a');
            text
        };
        assert_eq!(say(address, post(LARGEST_BODY)).await, "200");
        assert_eq!(say(address, post(LARGEST_BODY + 1)).await, "413");
        let mut chunked = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for _ in 0..4 {
            chunked.extend_from_slice(b"100000\r\n");
            chunked.resize(chunked.len() + (1 << 20), b'a');
            chunked.extend_from_slice(b"\r\n");
        }
        assert_eq!(say(address, chunked).await, "413");
        let big = format!("GET / HTTP/1.1\r\nhost: x\r\na: {}\r\n\r\n", "b".repeat(LARGEST_HEADERS));
        assert_eq!(say(address, big.into_bytes()).await, "431");
        let many: String = (0..5000).map(|index| format!("x-{index}: y\r\n")).collect();
        assert_eq!(
            say(address, format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n").into_bytes()).await,
            "431"
        );
        assert_eq!(say(address, b"nonsense\r\n\r\n".to_vec()).await, "400");
        assert_eq!(say(address, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec()).await, "200");
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_too_slow_is_let_go() {
        let (address, stop, server) = started().await;
        let mut slow_headers = TcpStream::connect(address).await.unwrap();
        slow_headers.write_all(b"POST / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        let mut slow_body = TcpStream::connect(address).await.unwrap();
        slow_body.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\na").await.unwrap();
        // The clock is paused: it moves on by itself to the next thing that anybody waits for.
        let mut text = Vec::new();
        let _ = slow_headers.read_to_end(&mut text).await;
        let mut text = Vec::new();
        let _ = slow_body.read_to_end(&mut text).await;
        assert!(
            String::from_utf8_lossy(&text).starts_with("HTTP/1.1 408"),
            "{}",
            String::from_utf8_lossy(&text)
        );
        stop.cancel();
        server.await.unwrap();
    }
}
