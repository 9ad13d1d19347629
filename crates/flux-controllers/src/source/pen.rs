//! Writes the status of a source: the end of a run at once, what comes before it only when the run lasts.
//!
//! Most runs are over before anybody could read what they are at.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flux_api::kinds::Kind;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::skeleton::{MANAGER, Status};
use crate::reconcile::{ObjectKey, status};

const WORTH_TELLING: Duration = Duration::from_secs(1);

/// What is written about one object in one run.
pub(super) struct Pen<T> {
    client: kube::Client,
    kind: &'static Kind,
    key: ObjectKey,
    started: Instant,
    /// What the server has. Held while something is written: one write follows the other.
    written: tokio::sync::Mutex<T>,
    /// What the run is at and nobody was told yet.
    noted: Mutex<Option<T>>,
}

impl<T: Status> Pen<T> {
    pub(super) fn new(client: kube::Client, kind: &'static Kind, key: ObjectKey, written: T) -> Arc<Self> {
        let (written, noted) = (tokio::sync::Mutex::new(written), Mutex::default());
        Arc::new(Self { client, kind, key, started: Instant::now(), written, noted })
    }

    /// To be told once the run has lasted a while.
    pub(super) fn note(&self, status: &T) {
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(status.clone());
    }

    fn noted(&self) -> Option<T> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Tells what the run is at when it lasts, unless the guard is gone by then.
    pub(super) fn tell_what_lasts(self: &Arc<Self>) -> DropGuard {
        let (pen, over) = (self.clone(), CancellationToken::new());
        let ended = over.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep_until(pen.started + WORTH_TELLING) => {}
                () = ended.cancelled() => return,
            }
            // Once begun, a write is carried through: the last word is compared with what it wrote.
            pen.write_what_lasts().await;
        });
        over.drop_guard()
    }

    /// Writes what was noted, if the run has lasted long enough.
    pub(super) async fn write_what_lasts(&self) {
        if self.started.elapsed() < WORTH_TELLING {
            return;
        }
        let mut written = self.written.lock().await;
        let Some(now) = self.noted() else { return };
        match status::write(&self.client, self.kind, &self.key, MANAGER, &*written, &now).await {
            Ok(_) => *written = now,
            Err(error) => tracing::warn!(%error, "progress could not be written"),
        }
    }

    /// The last word of a run.
    pub(super) async fn write(&self, last: &T) -> Result<(), kube::Error> {
        let mut written = self.written.lock().await;
        let _ = self.noted();
        status::write(&self.client, self.kind, &self.key, MANAGER, &*written, last).await?;
        *written = last.clone();
        Ok(())
    }
}
