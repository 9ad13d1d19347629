//! HTTP in and out: who asks, may they, which verb, and how the answer is written.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;

use crate::auth::authenticate::Peer;
use crate::auth::{Attributes, User, impersonate};
use crate::request::RequestInfo;
use crate::respond::{self, Answer, Body};
use crate::server::Inner;
use crate::status::Status;
use crate::verbs;

/// The largest body that is read: as etcd's limit on a request makes the real server's.
const MAX_BODY: usize = 3 << 20;

/// The API server as a tower service: any body in, [`Body`] out, never an error.
#[derive(Clone)]
pub struct Service {
    server: Arc<Inner>,
    user: Option<User>,
    /// Controllers run as long as a service or a handle is there.
    alive: Arc<tokio::sync::watch::Sender<bool>>,
}

impl Service {
    pub(crate) fn new(
        server: Arc<Inner>,
        user: Option<User>,
        alive: Arc<tokio::sync::watch::Sender<bool>>,
    ) -> Service {
        Service { server, user, alive }
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.server.clone();
        let user = self.user.clone();
        let alive = self.alive.clone();
        Box::pin(async move {
            let response = handle(server, user, request).await;
            drop(alive);
            Ok(response)
        })
    }
}

/// A request whose caller is known and whose body was read.
pub struct Incoming {
    pub method: Method,
    pub headers: http::HeaderMap,
    pub info: RequestInfo,
    pub user: User,
    pub body: Bytes,
}

async fn handle<B>(server: Arc<Inner>, known: Option<User>, request: Request<B>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    let (parts, body) = request.into_parts();
    let info = RequestInfo::read(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
    let audit_id = uuid::Uuid::new_v4().to_string();
    let peer = known.map(Peer).or_else(|| parts.extensions.get::<Peer>().cloned());
    let head = parts.method == Method::HEAD;
    let gzip = respond::accepts_gzip(&parts.headers);
    let answer = answer(&server, &parts.method, parts.headers, info, peer, body, &audit_id).await;
    let mut response = respond::write(answer, gzip);
    let headers = response.headers_mut();
    headers.insert("audit-id", audit_id.parse().expect("a uuid is a header value"));
    headers.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    if head {
        *response.body_mut() = respond::full(Bytes::new());
    }
    response
}

async fn answer<B>(
    server: &Arc<Inner>,
    method: &Method,
    headers: http::HeaderMap,
    info: RequestInfo,
    peer: Option<Peer>,
    body: B,
    audit_id: &str,
) -> Answer
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    let now = server.time().as_second();
    let caller = match server.auth.identify(&headers, peer.as_ref(), &server.store, now) {
        Ok(caller) => caller,
        Err(status) => return Answer::status(&status),
    };
    let asked = Attributes::of(&info);
    let rbac = server.rbac();
    let user = match impersonate::acting_user(&headers, &asked, caller.clone(), &rbac) {
        Ok(user) => user,
        Err(status) => return Answer::status(&status),
    };
    let flow = server.flows().classify(&user, &asked).cloned();
    if !rbac.allows(&user, &asked) {
        return Answer::status(&asked.forbidden(&user)).with_flow(flow);
    }
    if let Err(status) = check_timeout(&info) {
        return Answer::status(&status).with_flow(flow);
    }
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(status) => return Answer::status(&status),
    };
    let audited = server.audit.is_some().then(|| (info.clone(), user.clone()));
    let incoming = Incoming { method: method.clone(), headers: headers.clone(), info, user, body };
    let answer =
        verbs::dispatch(server, incoming).await.unwrap_or_else(|status| Answer::failure(&status, &headers));
    if let (Some(log), Some((info, user))) = (&server.audit, audited) {
        log.write(&info, &caller, &user, audit_id, answer.code().as_u16(), &server.time().to_string());
    }
    answer.with_flow(flow)
}

/// The time a client gives a request must be a duration; requests here end long before any. Watches have their own.
fn check_timeout(info: &RequestInfo) -> Result<(), Status> {
    let Some(text) = info.query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(()) };
    if info.verb == "watch" || kube_cel::parse_duration(text).is_some() {
        return Ok(());
    }
    let quoted = serde_json::Value::from(text);
    Err(Status::bad_request(format!(
        "invalid timeout specified in the request URL - time: invalid duration {quoted}"
    )))
}

async fn read_body<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body + Send + 'static,
    B::Error: std::fmt::Display,
{
    let too_large = || Status::too_large(format!("Request entity too large: limit is {MAX_BODY}"));
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    let mut read = Vec::new();
    let mut body = std::pin::pin!(body);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Status::bad_request(format!("reading the body: {error}")))?;
        let Ok(mut data) = frame.into_data() else { continue };
        if read.len() + data.remaining() > MAX_BODY {
            return Err(too_large());
        }
        while data.has_remaining() {
            let chunk = data.chunk();
            let length = chunk.len();
            read.extend_from_slice(chunk);
            data.advance(length);
        }
    }
    Ok(read.into())
}

/// Text for paths that are no API.
pub fn not_found_text() -> Answer {
    Answer::text(StatusCode::NOT_FOUND, "404 page not found\n")
}
