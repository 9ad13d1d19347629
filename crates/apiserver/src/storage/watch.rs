//! Handing changes to watchers: by namespace, through bounded queues.
//!
//! A watcher that does not keep up is cut off: its queue ends, its client reconnects from the last revision it saw.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::Change;

/// How many changes may wait for one watcher before it is cut off.
const QUEUE: usize = 4096;

/// Which keys a watcher wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchScope {
    All,
    Namespace(String),
}

impl WatchScope {
    pub fn prefix(&self) -> &str {
        match self {
            WatchScope::All => "",
            // Kept with its slash: see `namespace`.
            WatchScope::Namespace(prefix) => prefix,
        }
    }

    pub fn namespace(name: &str) -> WatchScope {
        WatchScope::Namespace(format!("{name}/"))
    }

    pub fn covers(&self, key: &str) -> bool {
        key.starts_with(self.prefix())
    }
}

/// What a watch reads: first the backlog, then the queue.
#[derive(Debug)]
pub struct Subscription {
    pub backlog: Vec<Arc<Change>>,
    pub queue: mpsc::Receiver<Arc<Change>>,
    /// The store's revision when the subscription began: the backlog is complete up to here.
    pub revision: u64,
}

#[derive(Debug, Default)]
pub(super) struct Watchers {
    all: Vec<mpsc::Sender<Arc<Change>>>,
    by_namespace: HashMap<Box<str>, Vec<mpsc::Sender<Arc<Change>>>>,
}

impl Watchers {
    pub(super) fn subscribe(
        &mut self,
        scope: WatchScope,
        backlog: Vec<Arc<Change>>,
        revision: u64,
    ) -> Subscription {
        let (sender, queue) = mpsc::channel(QUEUE);
        match scope {
            WatchScope::All => {
                self.all.retain(|sender| !sender.is_closed());
                self.all.push(sender);
            }
            WatchScope::Namespace(prefix) => {
                let list = self.by_namespace.entry(prefix.into()).or_default();
                list.retain(|sender| !sender.is_closed());
                list.push(sender);
            }
        }
        Subscription { backlog, queue, revision }
    }

    pub(super) fn send(&mut self, change: &Arc<Change>) {
        deliver(&mut self.all, change);
        let Some(slash) = change.object.key.find('/') else { return };
        let prefix = &change.object.key[..=slash];
        if let Some(list) = self.by_namespace.get_mut(prefix) {
            deliver(list, change);
            if list.is_empty() {
                self.by_namespace.remove(prefix);
            }
        }
    }
}

/// Full or closed: dropped, which ends the watcher's queue after what it already holds.
fn deliver(list: &mut Vec<mpsc::Sender<Arc<Change>>>, change: &Arc<Change>) {
    list.retain(|sender| sender.try_send(change.clone()).is_ok());
}
