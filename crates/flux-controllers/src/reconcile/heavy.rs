//! Work for the processor: parsing, compressing, hashing. As many at once as there are processors, on threads where
//! they hold up nobody's waiting.

use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;
use tokio::task::JoinError;

static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get);
    Arc::new(Semaphore::new(processors.max(2)))
});

/// Does `work` when it is its turn. An error means that it panicked.
pub async fn heavy<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    // The semaphore is never closed; without a turn the work is done all the same.
    let turn = TURNS.clone().acquire_owned().await.ok();
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        span.in_scope(work)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_than_the_processors_work_at_once() {
        let most = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get).max(2);
        let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..50).map(|_| {
            let (now, peak) = (now.clone(), peak.clone());
            heavy(move || {
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            })
        });
        futures::future::join_all(tasks).await;
        assert!((1..=most).contains(&peak.load(Ordering::SeqCst)));
    }
}
