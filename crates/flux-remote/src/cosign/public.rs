//! The trust root of a Sigstore instance, fetched: of the public one, unless somebody runs their own.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use super::tuf::Repository;
use super::{Error, TrustRoot};

/// Keys that the public instance's maintainers published: where trust in all that follows begins.
pub(super) const ROOT: &[u8] = include_bytes!("public_root.json");
const MIRROR: &str = "https://tuf-repo-cdn.sigstore.dev";
const FILE: &str = "trusted_root.json";
/// How long a trust root is good for, and how long a failure.
const FRESH: SignedDuration = SignedDuration::from_hours(24);
const RETRY: SignedDuration = SignedDuration::from_secs(60);

/// Where a trust root is fetched from, and the last one that was.
pub struct Sigstore {
    mirror: String,
    first: Vec<u8>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    repository: Option<Repository>,
    known: Option<Arc<TrustRoot>>,
    failure: Option<String>,
    /// When to ask again.
    next: Option<Timestamp>,
}

impl std::fmt::Debug for Sigstore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sigstore").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}

impl Sigstore {
    /// The public instance.
    pub fn public() -> Self {
        Self::at(MIRROR.to_owned(), ROOT.to_vec())
    }

    /// Another one, whose keys `root` names.
    pub fn at(mirror: String, root: Vec<u8>) -> Self {
        Self { mirror, first: root, state: Mutex::default() }
    }

    /// As cosign's variables say: `TUF_MIRROR`, and with another mirror than the public one `TUF_ROOT_JSON`.
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (variable("TUF_MIRROR"), variable("TUF_ROOT_JSON")) {
            (Some(mirror), path) if mirror.trim_end_matches('/') != MIRROR => {
                // A mirror of one's own is not trusted with the keys of the public one; without any, nothing is.
                let root = path.and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
                Self::at(mirror, root)
            }
            _ => Self::public(),
        }
    }

    /// The trust root as it is today. What was fetched stays good while a newer one cannot be had.
    pub async fn trust_root(&self, now: Timestamp) -> Result<Arc<TrustRoot>, Error> {
        let mut state = self.state.lock().await;
        if state.next.is_none_or(|next| next <= now) {
            match self.fetch(&mut state, now).await {
                Ok(root) => {
                    (state.known, state.failure) = (Some(Arc::new(root)), None);
                    state.next = now.checked_add(FRESH).ok();
                }
                Err(problem) => {
                    tracing::warn!(mirror = self.mirror, problem, "the trust root could not be fetched");
                    state.failure = Some(problem);
                    state.next = now.checked_add(RETRY).ok();
                }
            }
        }
        match (&state.known, &state.failure) {
            (Some(root), _) => Ok(root.clone()),
            (None, failure) => Err(Error::Unavailable(failure.clone().unwrap_or_default())),
        }
    }

    async fn fetch(&self, state: &mut State, now: Timestamp) -> Result<TrustRoot, String> {
        let mut repository = match state.repository.take() {
            Some(repository) => repository,
            None if self.first.is_empty() => {
                return Err("TUF_MIRROR is set, and TUF_ROOT_JSON names no file that can be read".to_owned());
            }
            None => Repository::new(&self.mirror, &self.first)?,
        };
        let bytes = repository.fetch(FILE, now).await;
        state.repository = Some(repository);
        TrustRoot::from_json(&bytes?).map_err(|error| error.to_string())
    }
}
