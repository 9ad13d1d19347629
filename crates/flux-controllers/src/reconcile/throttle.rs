//! The way to the API server: how many requests may be under way, how many a second, and a count of all of them.
//!
//! The bound falls by half when the server says 429 and by one when an answer takes long, and rises again slowly.
//! Where priority-and-fairness is on (the server says so in each answer) that is all; where it is off,
//! `--kube-api-qps` and `--kube-api-burst` hold.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::metrics::{API_REQUESTS, Metrics};

/// With priority-and-fairness every answer says which flow it belonged to.
const FLOW_SCHEMA: &str = "x-kubernetes-pf-flowschema-uid";
const MOST: usize = 32;
const LEAST: usize = 4;
/// Slow answers alone do not push the bound below this.
const LEAST_WHEN_SLOW: usize = 16;
const SLOW: Duration = Duration::from_secs(1);
/// So many quick answers raise the bound by one.
const QUICK: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub qps: f64,
    pub burst: f64,
}

/// `client`, with its requests bounded and counted. Watches count until they are answered.
pub fn bounded(client: &Client, limits: Limits, metrics: Metrics) -> Client {
    let (inner, gate) = (client.clone(), Arc::new(Gate::new(limits)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, gate, metrics) = (inner.clone(), gate.clone(), metrics.clone());
        async move {
            let (method, is_watch) = (request.method().clone(), is_watch(&request));
            let permit = gate.enter().await;
            let started = Instant::now();
            let answer = super::leader_change::send(&inner, request).await;
            gate.learn(permit, started.elapsed(), is_watch, answer.as_ref().ok());
            count(&metrics, &method, answer.as_ref().ok());
            answer
        }
    });
    Client::new(service, client.default_namespace())
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::GET
        && query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

fn count(metrics: &Metrics, method: &Method, answer: Option<&Response<Body>>) {
    let code = answer.map_or_else(|| "<error>".to_owned(), |answer| answer.status().as_u16().to_string());
    metrics.add(&API_REQUESTS, &[&code, "kube-apiserver", method.as_str()], 1.0);
}

struct Gate {
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    limits: Limits,
}

struct State {
    bound: usize,
    /// Permits to take away as they come back.
    surplus: usize,
    quick: usize,
    fairness: Fairness,
    tokens: f64,
    filled: Instant,
}

/// Whether the server shares its time out by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fairness {
    /// No answer yet.
    Unknown,
    On,
    Off,
}

impl Gate {
    fn new(limits: Limits) -> Self {
        let state = State {
            bound: MOST,
            surplus: 0,
            quick: 0,
            fairness: Fairness::Unknown,
            tokens: limits.burst,
            filled: Instant::now(),
        };
        Self { permits: Arc::new(Semaphore::new(MOST)), state: Mutex::new(state), limits }
    }

    async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let wait = self.state.lock().unwrap_or_else(PoisonError::into_inner).take_token(self.limits);
        tokio::time::sleep(wait).await;
        permit
    }

    fn learn(
        &self,
        permit: Option<OwnedSemaphorePermit>,
        took: Duration,
        is_watch: bool,
        answer: Option<&Response<Body>>,
    ) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer {
            state.fairness =
                if answer.headers().contains_key(FLOW_SCHEMA) { Fairness::On } else { Fairness::Off };
        }
        let refused = answer.is_some_and(|answer| answer.status().as_u16() == 429);
        let raised = state.adjust(refused, took > SLOW && !is_watch);
        if raised {
            self.permits.add_permits(1);
        }
        if state.surplus > 0
            && let Some(permit) = permit
        {
            state.surplus -= 1;
            permit.forget();
        }
    }
}

impl State {
    /// How long to wait for a token; none where the server is fair by itself.
    fn take_token(&mut self, limits: Limits) -> Duration {
        if self.fairness != Fairness::Off || limits.qps <= 0.0 {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let gained = now.duration_since(self.filled).as_secs_f64() * limits.qps;
        self.tokens = (self.tokens + gained).min(limits.burst) - 1.0;
        self.filled = now;
        Duration::from_secs_f64((-self.tokens / limits.qps).max(0.0))
    }

    /// Moves the bound; says whether there is one permit more.
    fn adjust(&mut self, refused: bool, slow: bool) -> bool {
        let bound = match (refused, slow) {
            (true, _) => (self.bound / 2).max(LEAST),
            (false, true) => (self.bound - 1).max(LEAST_WHEN_SLOW.min(self.bound)),
            (false, false) => {
                self.quick += 1;
                if self.quick < QUICK || self.bound >= MOST {
                    return false;
                }
                self.quick = 0;
                self.bound += 1;
                if self.surplus > 0 {
                    self.surplus -= 1;
                    return false;
                }
                return true;
            }
        };
        self.quick = 0;
        self.surplus += self.bound - bound;
        self.bound = bound;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let gate = Gate::new(Limits { qps: 50.0, burst: 2.0 });
        gate.state.into_inner().unwrap()
    }

    #[test]
    fn a_refusal_halves_the_bound_and_quick_answers_raise_it_again() {
        let mut state = state();
        state.adjust(true, false);
        assert_eq!((state.bound, state.surplus), (16, 16));
        for _ in 0..10 {
            state.adjust(true, false);
        }
        assert_eq!(state.bound, LEAST);
        for _ in 0..QUICK {
            state.adjust(false, false);
        }
        assert_eq!(state.bound, LEAST + 1);
    }

    #[test]
    fn slow_answers_lower_it_a_little() {
        let mut state = state();
        for _ in 0..100 {
            state.adjust(false, true);
        }
        assert_eq!(state.bound, LEAST_WHEN_SLOW);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_a_second_are_bounded_only_where_the_server_is_not_fair() {
        let limits = Limits { qps: 50.0, burst: 2.0 };
        let mut state = state();
        state.fairness = Fairness::On;
        assert!((0..100).all(|_| state.take_token(limits).is_zero()));
        state.fairness = Fairness::Off;
        let waits: Vec<u128> = (0..4).map(|_| state.take_token(limits).as_millis()).collect();
        assert_eq!(waits, [0, 0, 20, 40]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_bound_are_under_way() {
        let gate = Arc::new(Gate::new(Limits { qps: 0.0, burst: 0.0 }));
        let mut held = Vec::new();
        for _ in 0..MOST {
            held.push(gate.enter().await);
        }
        assert!(tokio::time::timeout(Duration::from_secs(1), gate.enter()).await.is_err());
        gate.learn(held.pop().unwrap(), Duration::ZERO, false, None);
        assert!(tokio::time::timeout(Duration::from_secs(1), gate.enter()).await.is_ok());
    }
}
