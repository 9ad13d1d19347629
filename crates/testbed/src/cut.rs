//! A client whose process dies at its n-th write: nothing gets through after that, in either direction.
//!
//! ```text
//! let (client, cut) = Cut::at(&cluster.client(), 3, When::After);   // the third write is done, its answer is lost
//! ```
//!
//! Events do not count: nobody's state depends on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;

/// On which side of the write the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

/// Where a client is cut off, and whether it was.
#[derive(Debug)]
pub struct Cut {
    at: usize,
    when: When,
    writes: AtomicUsize,
    dead: AtomicBool,
    died: Notify,
}

impl Cut {
    /// A client that is cut off at its `at`-th write; one that only counts when that never comes.
    pub fn at(client: &Client, at: usize, when: When) -> (Client, Arc<Cut>) {
        let cut = Arc::new(Cut {
            at,
            when,
            writes: AtomicUsize::new(0),
            dead: AtomicBool::new(false),
            died: Notify::new(),
        });
        let (inner, shared) = (client.clone(), cut.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, cut) = (inner.clone(), shared.clone());
            async move { cut.send(inner, request).await }
        });
        (Client::new(service, client.default_namespace()), cut)
    }

    /// How many writes there were.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Waits until the process has died.
    pub async fn died(&self) {
        let died = self.died.notified();
        if !self.is_dead() {
            died.await;
        }
    }

    async fn send(
        &self,
        inner: Client,
        request: Request<Body>,
    ) -> Result<http::Response<Body>, tower::BoxError> {
        if self.is_dead() {
            return Err("the process is dead".into());
        }
        let counts = is_write(&request);
        let number = if counts { self.writes.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        if number == self.at && self.when == When::Before {
            return self.die();
        }
        let answer = inner.send(request).await.map_err(tower::BoxError::from);
        if number == self.at {
            return self.die();
        }
        if self.is_dead() { self.die() } else { answer }
    }

    fn die<T>(&self) -> Result<T, tower::BoxError> {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_waiters();
        Err("the process is dead".into())
    }
}

fn is_write(request: &Request<Body>) -> bool {
    let writes = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
    let query = request.uri().query().unwrap_or_default();
    writes && !request.uri().path().contains("/events") && !query.contains("dryRun")
}
