//! Watching: a stream of changes from a revision on, with bookmarks.
//!
//! Yields finished lines. Which form an object takes in them is given by the caller as a function, so that the common
//! case (the object as it is kept) can share one serialisation between all watchers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Call;
use super::read::{ListOptions, wait_for};
use crate::status::Status;
use crate::storage::{
    Change, ChangeKind, RevisionError, Stored, Subscription, WatchScope, event_line, last_state,
};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch sends its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// A watch without a timeout is closed after this long, up to twice as long.
const DEFAULT_TIMEOUT: u64 = 1800;

/// How an object is written into an event; `None` means as it is kept.
pub type Shape = Option<Box<dyn Fn(&Stored) -> Value + Send + Sync>>;

/// Turns a bookmark's revision and annotations into the object the event carries.
pub type BookmarkShape = Box<dyn Fn(Value) -> Value + Send + Sync>;

struct Watch {
    call: Call,
    options: ListOptions,
    shape: Shape,
    bookmark: BookmarkShape,
    backlog: VecDeque<Arc<Change>>,
    subscription: Subscription,
    /// Only changes after this revision are wanted; it may lie in the future.
    since: u64,
    /// The bookmark that ends a streaming list is still to be sent.
    initial_end: bool,
    last_sent: u64,
    deadline: Instant,
    next_bookmark: Instant,
    done: bool,
}

/// Begins a watch. What makes it impossible from the start is an error; what the real server reports inside the
/// stream (a revision too old) is an event in the stream.
pub async fn watch(
    call: Call,
    options: ListOptions,
    shape: Shape,
    bookmark: BookmarkShape,
) -> Result<impl Stream<Item = Bytes> + Send, Status> {
    let asked = options.revision_number()?;
    let initial = options.send_initial_events;
    // "0" and "" both mean: start with what is there, unless the client asked for no initial events.
    let since = match (asked, initial) {
        (_, Some(true)) => None,
        (0, Some(false)) => Some(call.server.store.revision()),
        (0, None) => None,
        (asked, _) => Some(asked),
    };
    if initial == Some(true) {
        wait_for(&call, asked).await?;
    }
    let scope = match call.prefix() {
        prefix if prefix.is_empty() => WatchScope::All,
        _ => WatchScope::namespace(&call.namespace),
    };
    let subscription = match call.server.store.watch(&call.resource.storage, scope, since) {
        Ok(subscription) => subscription,
        Err(RevisionError::Compacted { oldest } | RevisionError::Future { current: oldest }) => {
            let status = Status::expired(format!("too old resource version: {asked} ({oldest})"));
            return Ok(futures::future::Either::Left(futures::stream::iter([error_line(&status)])));
        }
    };
    Ok(futures::future::Either::Right(run(call, options, shape, bookmark, subscription, since)))
}

pub fn error_line(status: &Status) -> Bytes {
    event_line("ERROR", status.to_json().to_string().as_bytes())
}

fn run(
    call: Call,
    options: ListOptions,
    shape: Shape,
    bookmark: BookmarkShape,
    mut subscription: Subscription,
    since: Option<u64>,
) -> impl Stream<Item = Bytes> + Send {
    let timeout = options
        .timeout
        .filter(|seconds| *seconds > 0)
        .unwrap_or_else(|| DEFAULT_TIMEOUT + rand::rng().random_range(0..DEFAULT_TIMEOUT));
    let now = Instant::now();
    let deadline = now + Duration::from_secs(timeout);
    let watch = Watch {
        backlog: std::mem::take(&mut subscription.backlog).into(),
        initial_end: options.send_initial_events == Some(true) && options.bookmarks,
        last_sent: subscription.revision,
        deadline,
        // One bookmark before the end, so that a reconnect starts from fresh ground.
        next_bookmark: (now + BOOKMARK_EVERY)
            .min(deadline.checked_sub(LAST_BOOKMARK).filter(|at| *at > now).unwrap_or(deadline)),
        call,
        options,
        shape,
        bookmark,
        subscription,
        since: since.unwrap_or(0),
        done: false,
    };
    futures::stream::unfold(watch, |mut watch| async move { watch.next().await.map(|line| (line, watch)) })
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.done {
                return None;
            }
            if let Some(change) = self.backlog.pop_front() {
                if let Some(line) = self.line(&change) {
                    return Some(line);
                }
                continue;
            }
            if self.initial_end {
                self.initial_end = false;
                let revision = self.subscription.revision;
                return Some(self.bookmark_line(revision, json!({ "k8s.io/initial-events-end": "true" })));
            }
            match self.wait().await {
                Waited::Change(change) if change.revision() <= self.since => {}
                Waited::Change(change) => {
                    self.last_sent = self.last_sent.max(change.revision());
                    if let Some(line) = self.line(&change) {
                        return Some(line);
                    }
                }
                Waited::Bookmark => return Some(self.bookmark_line(self.last_sent, Value::Null)),
                Waited::Over => return None,
            }
        }
    }

    async fn wait(&mut self) -> Waited {
        let bookmark_at = if self.options.bookmarks { self.next_bookmark } else { self.deadline };
        tokio::select! {
            biased;
            change = self.subscription.queue.recv() => change.map_or(Waited::Over, Waited::Change),
            () = tokio::time::sleep_until(bookmark_at.min(self.deadline)) => self.pause(),
        }
    }

    /// Nothing happened until the next bookmark or the end.
    fn pause(&mut self) -> Waited {
        if Instant::now() >= self.deadline {
            self.done = true;
            return Waited::Over;
        }
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
        // Read before the queue is: whatever is at or below this revision is in the queue by now.
        let revision = self.call.server.store.revision();
        if let Ok(change) = self.subscription.queue.try_recv() {
            self.next_bookmark = Instant::now();
            return Waited::Change(change);
        }
        self.last_sent = self.last_sent.max(revision);
        Waited::Bookmark
    }

    /// The event this client sees, if any: an object that no longer matches its selector was deleted, to it.
    fn line(&self, change: &Change) -> Option<Bytes> {
        let now = change.kind != ChangeKind::Deleted && self.options.matches(&change.object);
        let before = match (&change.previous, change.kind) {
            (Some(previous), _) => self.options.matches(previous),
            (None, ChangeKind::Deleted) => self.options.matches(&change.object),
            (None, _) => false,
        };
        let kind = match (before, now) {
            (false, false) => return None,
            (false, true) => ChangeKind::Added,
            (true, true) => ChangeKind::Modified,
            (true, false) => ChangeKind::Deleted,
        };
        Some(match &self.shape {
            None if kind == change.kind => change.line(),
            None => event_line(kind.name(), &self.gone_or_current(change, kind)),
            Some(shape) => {
                let left =
                    change.previous.as_ref().filter(|_| kind != change.kind && kind == ChangeKind::Deleted);
                let json = match left {
                    Some(previous) => shape(&last_state(previous, change.revision())),
                    None => shape(&change.object),
                };
                event_line(kind.name(), json.to_string().as_bytes())
            }
        })
    }

    /// An object that left the selection is shown as it was when it still matched, at the new revision.
    fn gone_or_current(&self, change: &Change, kind: ChangeKind) -> Bytes {
        match (&change.previous, kind) {
            (Some(previous), ChangeKind::Deleted) if change.kind == ChangeKind::Modified => {
                last_state(previous, change.revision()).json
            }
            _ => change.object.json.clone(),
        }
    }

    fn bookmark_line(&self, revision: u64, annotations: Value) -> Bytes {
        let mut meta = json!({ "resourceVersion": revision.to_string() });
        if !annotations.is_null() {
            meta["annotations"] = annotations;
        }
        // A builtin kind shows the empty structure around it.
        let mut object = crate::ownership::nothing(&self.call);
        object["metadata"] = meta;
        event_line("BOOKMARK", (self.bookmark)(object).to_string().as_bytes())
    }
}

enum Waited {
    Change(Arc<Change>),
    Bookmark,
    Over,
}
