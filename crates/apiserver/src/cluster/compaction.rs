//! Forgetting old changes every few minutes, as the real server has etcd do: older watches and pages get 410.

use std::sync::Arc;
use std::time::Duration;

use crate::server::Inner;

const EVERY: Duration = Duration::from_secs(300);

/// What was current at the last look is history at this one.
pub async fn run(server: Arc<Inner>) {
    let mut last = server.store.revision();
    loop {
        tokio::time::sleep(EVERY).await;
        server.store.compact_to(last);
        last = server.store.revision();
    }
}
