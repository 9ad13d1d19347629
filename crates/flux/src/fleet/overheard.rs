//! What the API server says beside its answers: warnings of old versions and of fields that nobody knows.
//!
//! Controllers do not pass them on, so they are listened to on the way.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use tower::Service;

/// Warnings that are remembered; a fleet with more has other problems.
const MOST: usize = 1_000;

/// The object that a request was about, and what the server said about it.
pub(crate) type Said = Arc<Mutex<BTreeSet<(String, String)>>>;

/// A way to the API server that listens.
#[derive(Clone)]
pub(crate) struct Overheard<S> {
    inner: S,
    said: Said,
}

impl<S> Overheard<S> {
    pub(crate) fn new(inner: S) -> (Self, Said) {
        let said = Said::default();
        (Self { inner, said: said.clone() }, said)
    }
}

impl<S, B> Service<Request<Body>> for Overheard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let about = match *request.method() {
            Method::POST | Method::PUT | Method::PATCH => about(request.uri().path()),
            _ => None,
        };
        let (answer, said) = (self.inner.call(request), self.said.clone());
        Box::pin(async move {
            let answer = answer.await?;
            if let Some(about) = about {
                let warnings = answer.headers().get_all(http::header::WARNING).iter();
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                for warning in warnings.filter_map(|value| text(value.to_str().ok()?)) {
                    if said.len() < MOST {
                        said.insert((about.clone(), warning));
                    }
                }
            }
            Ok(answer)
        })
    }
}

/// `deployments/web in apps` of `/apis/apps/v1/namespaces/apps/deployments/web`; nothing of what controllers write
/// about themselves.
fn about(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = match &parts[..] {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return None,
    };
    match rest {
        ["namespaces", namespace, plural, name] => Some(format!("{plural}/{name} in {namespace}")),
        [plural, name] => Some(format!("{plural}/{name}")),
        _ => None,
    }
}

/// The text of `299 - "text"`.
fn text(header: &str) -> Option<String> {
    let quoted = header.split_once('"')?.1.rsplit_once('"')?.0;
    Some(quoted.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_told_from_its_address() {
        let told = |path: &str| about(path).unwrap_or_default();
        assert_eq!(told("/apis/apps/v1/namespaces/apps/deployments/web"), "deployments/web in apps");
        assert_eq!(told("/api/v1/namespaces/apps"), "namespaces/apps");
        assert_eq!(told("/apis/x.io/v1/namespaces/apps/widgets/a/status"), "");
        assert_eq!(told("/healthz"), "");
        assert_eq!(
            text("299 - \"unknown field \\\"spec.a\\\"\"").as_deref(),
            Some("unknown field \"spec.a\"")
        );
    }
}
