//! Trouble on the way to the API server: a client that breaks at a chosen write, as a crash would, or that is refused at
//! random. In process, so every write of a recorded run can be tried in turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;

/// Which side of a write the connection breaks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The server never sees it.
    Before(usize),
    /// The server does it, and the answer is lost.
    After(usize),
    /// The server refuses this one; the process lives on.
    Refused(usize),
}

/// Breaks a client's connection at one write. Unless that is only refused, nothing passes afterwards, as if the process
/// had died.
#[derive(Clone)]
pub struct Breaker {
    shared: Arc<Shared>,
}

struct Shared {
    cut: Option<Cut>,
    counts: Box<dyn Fn(&str) -> bool + Send + Sync>,
    state: Mutex<State>,
    broke: Notify,
}

#[derive(Default)]
struct State {
    writes: Vec<String>,
    dry_runs: usize,
    reads: usize,
    /// The write to break at has come.
    reached: bool,
    broken: bool,
}

enum Fate {
    Pass,
    /// Send it, then break.
    Last,
    Break,
    Refuse,
}

impl Breaker {
    /// Counts writes whose path `counts` accepts, and never breaks.
    pub fn recorder(counts: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self::new(None, counts)
    }

    /// Breaks at this one of the writes whose path `counts` accepts; the first is 1.
    pub fn at(cut: Cut, counts: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Some(cut), counts)
    }

    fn new(cut: Option<Cut>, counts: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        let shared = Shared { cut, counts: Box::new(counts), state: Mutex::default(), broke: Notify::new() };
        Self { shared: Arc::new(shared) }
    }

    /// A client that meets this trouble on its way to where `inner` leads.
    pub fn client(&self, inner: &Client) -> Client {
        let (shared, inner) = (self.shared.clone(), inner.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (shared, inner) = (shared.clone(), inner.clone());
            async move {
                let broken = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                let fate = shared.fate(&request);
                match fate {
                    Fate::Pass | Fate::Last => {}
                    Fate::Refuse => {
                        shared.reach(false);
                        return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"));
                    }
                    Fate::Break => {
                        shared.reach(true);
                        return Err::<Response<Body>, tower::BoxError>(broken().into());
                    }
                }
                let answer = inner.send(request).await?;
                if matches!(fate, Fate::Last) {
                    shared.reach(true);
                }
                // What was under way when the process died is not heard of either.
                if shared.state().broken { Err(broken().into()) } else { Ok(answer) }
            }
        });
        Client::new(service, "default")
    }

    /// The writes so far, as `METHOD path`.
    pub fn writes(&self) -> Vec<String> {
        self.shared.state().writes.clone()
    }

    /// Writes that were only tried.
    pub fn dry_runs(&self) -> usize {
        self.shared.state().dry_runs
    }

    /// What was read, one by one.
    pub fn reads(&self) -> usize {
        self.shared.state().reads
    }

    /// Waits until the write to break at has come.
    pub async fn reached(&self) {
        loop {
            let broke = self.shared.broke.notified();
            if self.shared.state().reached {
                return;
            }
            broke.await;
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, broken: bool) {
        let mut state = self.state();
        state.reached = true;
        state.broken |= broken;
        drop(state);
        self.broke.notify_waiters();
    }

    fn fate(&self, request: &Request<Body>) -> Fate {
        let mut state = self.state();
        if state.broken {
            return Fate::Break;
        }
        let path = request.uri().path();
        if !(self.counts)(path) {
            return Fate::Pass;
        }
        if !is_write(request) {
            state.dry_runs += usize::from(request.method() == Method::PATCH);
            state.reads += usize::from(request.method() == Method::GET);
            return Fate::Pass;
        }
        state.writes.push(format!("{} {path}", request.method()));
        let number = state.writes.len();
        match self.cut {
            Some(Cut::Before(at)) if at == number => Fate::Break,
            Some(Cut::After(at)) if at == number => Fate::Last,
            Some(Cut::Refused(at)) if at == number => Fate::Refuse,
            _ => Fate::Pass,
        }
    }
}

/// Whether the server would change something.
fn is_write(request: &Request<Body>) -> bool {
    let dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun="));
    request.method() != Method::GET && request.method() != Method::HEAD && !dry_run
}

/// A client whose requests carry this name in the audit log.
pub fn named(inner: &Client, name: &'static str) -> Client {
    let inner = inner.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let inner = inner.clone();
        request.headers_mut().insert(http::header::USER_AGENT, http::HeaderValue::from_static(name));
        async move { inner.send(request).await }
    });
    Client::new(service, "default")
}

/// Refuses requests at random, by a seed that makes a failing run repeatable. Every third trouble is a write that was
/// done although its answer is lost.
pub fn troubled(inner: &Client, seed: u64, percent: u64) -> Client {
    let state = Arc::new(AtomicU64::new(seed.max(1)));
    let inner = inner.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, number) = (inner.clone(), next(&state));
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            if is_watch || number % 100 >= percent {
                return inner.send(request).await.map_err(tower::BoxError::from);
            }
            match (number / 100) % 6 {
                0 => Ok(refusal(StatusCode::CONFLICT, "Conflict")),
                1 => Ok(refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests")),
                2 => Ok(refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
                3 => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
                _ => {
                    inner.send(request).await?;
                    Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
                }
            }
        }
    });
    Client::new(service, "default")
}

/// Knuth's linear congruential generator; its upper bits are good enough to choose troubles by.
fn next(state: &AtomicU64) -> u64 {
    let step =
        |value: u64| value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let before = state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(step(value)));
    before.unwrap_or_default() >> 33
}

fn refusal(status: StatusCode, reason: &str) -> Response<Body> {
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
        "message": format!("trouble on purpose: {reason}"), "code": status.as_u16(),
    });
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = status;
    response
}
