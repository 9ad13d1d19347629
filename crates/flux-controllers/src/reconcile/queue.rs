//! The queue in front of every controller: who is next, who must wait, who is being worked on.
//!
//! An object is never worked on twice at once. A person's request goes before a timer, and namespaces take
//! turns, so that a thousand objects of one team do not stand before the only one of another.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ObjectKey;

/// Why an object is worked on. Earlier variants go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Somebody changed the object or asked for it.
    Request,
    /// Something it depends on changed: a source, a dependency, a referenced Secret.
    Change,
    /// Its interval or retry is due.
    Timer,
}

const LANES: usize = 3;

#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    closed: CancellationToken,
}

#[derive(Default)]
struct State {
    lanes: [Lane; LANES],
    slots: HashMap<ObjectKey, Slot>,
    timers: BTreeMap<(Instant, u64), ObjectKey>,
    sequence: u64,
    adds: u64,
    retries: u64,
}

/// What a queue did and does, for whoever watches it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    pub depth: usize,
    pub adds: u64,
    pub retries: u64,
    pub running: usize,
    /// Seconds spent so far on what is not finished, all together and on the longest.
    pub unfinished: f64,
    pub longest: f64,
}

/// Keys of one cause, by namespace; namespaces take turns.
#[derive(Default)]
struct Lane {
    turns: VecDeque<String>,
    keys: HashMap<String, VecDeque<ObjectKey>>,
}

#[derive(Default)]
struct Slot {
    queued: Option<Cause>,
    queued_at: Option<Instant>,
    timer: Option<(Instant, u64)>,
    running: Option<CancellationToken>,
    running_since: Option<Instant>,
    /// Asked for while it was running.
    again: Option<Cause>,
    failures: u32,
}

/// An object taken from the queue. Tell the queue when it is done.
pub struct Taken {
    pub key: ObjectKey,
    pub cause: Cause,
    /// How long it stood in the queue.
    pub waited: Duration,
    /// Cancelled when something newer than this run arrives: waits end, writes do not.
    pub preempted: CancellationToken,
}

impl Queue {
    /// Asks for `key` now.
    pub fn add(&self, key: ObjectKey, cause: Cause) {
        let mut state = self.lock();
        state.add(key, cause);
        drop(state);
        self.changed.notify_one();
    }

    /// Asks for `key` after `delay`. The latest word counts: an earlier timer is replaced.
    pub fn add_after(&self, key: ObjectKey, delay: Duration) {
        let mut state = self.lock();
        state.cancel_timer(&key);
        state.sequence += 1;
        let due = (Instant::now() + delay, state.sequence);
        state.timers.insert(due, key.clone());
        state.slots.entry(key).or_default().timer = Some(due);
        drop(state);
        self.changed.notify_one();
    }

    /// How long to wait after one more failure of `key` in a row.
    pub fn backoff(&self, key: &ObjectKey, least: Duration, most: Duration) -> Duration {
        let mut state = self.lock();
        state.retries += 1;
        let slot = state.slots.entry(key.clone()).or_default();
        let delay = least.saturating_mul(2_u32.saturating_pow(slot.failures)).min(most);
        slot.failures = slot.failures.saturating_add(1);
        delay
    }

    /// `key` succeeded: its failures are forgotten.
    pub fn forgive(&self, key: &ObjectKey) {
        if let Some(slot) = self.lock().slots.get_mut(key) {
            slot.failures = 0;
        }
    }

    /// The next object to work on; `None` after [`Queue::close`].
    pub async fn next(&self) -> Option<Taken> {
        loop {
            let due = {
                let mut state = self.lock();
                if self.closed.is_cancelled() {
                    return None;
                }
                state.promote(Instant::now());
                if let Some(taken) = state.take() {
                    if state.lanes.iter().any(|lane| !lane.turns.is_empty()) {
                        self.changed.notify_one();
                    }
                    return Some(taken);
                }
                state.timers.keys().next().map(|(due, _)| *due)
            };
            match due {
                Some(due) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(due) => {}
                    () = self.closed() => {}
                },
                None => tokio::select! {
                    () = self.changed.notified() => {}
                    () = self.closed() => {}
                },
            }
        }
    }

    /// The work on `key` ended; what was asked for meanwhile comes now.
    pub fn done(&self, key: &ObjectKey) {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(key) else {
            return;
        };
        slot.running = None;
        slot.running_since = None;
        if let Some(cause) = slot.again.take() {
            state.add(key.clone(), cause);
        } else if slot.timer.is_none() && slot.failures == 0 {
            state.slots.remove(key);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// `key` no longer exists.
    pub fn remove(&self, key: &ObjectKey) {
        let mut state = self.lock();
        state.cancel_timer(key);
        if let Some(slot) = state.slots.get_mut(key) {
            slot.failures = 0;
        }
    }

    pub fn close(&self) {
        let state = self.lock();
        // First, or a run that ends as soon as it hears of this is begun again, and hears of nothing any more.
        self.closed.cancel();
        for slot in state.slots.values() {
            if let Some(running) = &slot.running {
                running.cancel();
            }
        }
    }

    /// Ends when the queue was closed.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Objects that are worked on now.
    pub fn running(&self) -> Vec<ObjectKey> {
        let state = self.lock();
        state.slots.iter().filter(|(_, slot)| slot.running.is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// Objects that wait for a worker now (not those whose time has not come).
    pub fn depth(&self) -> usize {
        self.lock().lanes.iter().flat_map(|lane| lane.keys.values()).map(VecDeque::len).sum()
    }

    pub fn figures(&self) -> Figures {
        let depth = self.depth();
        let (state, now) = (self.lock(), Instant::now());
        let running: Vec<f64> = state
            .slots
            .values()
            .filter_map(|slot| slot.running_since)
            .map(|since| now.duration_since(since).as_secs_f64())
            .collect();
        Figures {
            depth,
            adds: state.adds,
            retries: state.retries,
            running: running.len(),
            unfinished: running.iter().sum(),
            longest: running.iter().copied().fold(0.0, f64::max),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: ObjectKey, cause: Cause) {
        let slot = self.slots.entry(key.clone()).or_default();
        if let Some(running) = &slot.running {
            slot.again = Some(slot.again.map_or(cause, |earlier| earlier.min(cause)));
            if cause != Cause::Timer {
                running.cancel();
            }
            return;
        }
        match slot.queued {
            Some(earlier) if earlier <= cause => return,
            Some(earlier) => self.lanes[earlier as usize].remove(&key),
            None => {
                self.adds += 1;
                slot.queued_at = Some(Instant::now());
            }
        }
        slot.queued = Some(cause);
        self.cancel_timer(&key);
        self.lanes[cause as usize].push(key);
    }

    fn cancel_timer(&mut self, key: &ObjectKey) {
        if let Some(due) = self.slots.get_mut(key).and_then(|slot| slot.timer.take()) {
            self.timers.remove(&due);
        }
    }

    fn promote(&mut self, now: Instant) {
        while let Some((&due, _)) = self.timers.first_key_value() {
            if due.0 > now {
                break;
            }
            if let Some(key) = self.timers.remove(&due) {
                if let Some(slot) = self.slots.get_mut(&key) {
                    slot.timer = None;
                }
                self.add(key, Cause::Timer);
            }
        }
    }

    fn take(&mut self) -> Option<Taken> {
        let key = self.lanes.iter_mut().find_map(Lane::pop)?;
        let slot = self.slots.entry(key.clone()).or_default();
        let cause = slot.queued.take().unwrap_or(Cause::Timer);
        let preempted = CancellationToken::new();
        slot.running = Some(preempted.clone());
        let now = Instant::now();
        let waited = slot.queued_at.take().map(|at| now.duration_since(at)).unwrap_or_default();
        slot.running_since = Some(now);
        Some(Taken { key, cause, waited, preempted })
    }
}

impl Lane {
    fn push(&mut self, key: ObjectKey) {
        let keys = self.keys.entry(key.namespace.clone()).or_default();
        if keys.is_empty() {
            self.turns.push_back(key.namespace.clone());
        }
        keys.push_back(key);
    }

    fn pop(&mut self) -> Option<ObjectKey> {
        let namespace = self.turns.pop_front()?;
        let keys = self.keys.get_mut(&namespace)?;
        let key = keys.pop_front();
        if keys.is_empty() {
            self.keys.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        key
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(keys) = self.keys.get_mut(&key.namespace) else {
            return;
        };
        keys.retain(|other| other != key);
        if keys.is_empty() {
            self.keys.remove(&key.namespace);
            self.turns.retain(|namespace| *namespace != key.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    async fn next(queue: &Queue) -> String {
        let taken = queue.next().await.unwrap();
        format!("{}/{}", taken.key.namespace, taken.key.name)
    }

    #[tokio::test]
    async fn a_request_goes_before_a_timer_and_namespaces_take_turns() {
        let queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.add(key("big", name), Cause::Change);
        }
        queue.add(key("small", "x"), Cause::Change);
        queue.add(key("big", "urgent"), Cause::Request);
        let mut order = Vec::new();
        for _ in 0..5 {
            order.push(next(&queue).await);
        }
        assert_eq!(order, ["big/urgent", "big/a", "small/x", "big/b", "big/c"]);
    }

    #[tokio::test]
    async fn an_object_is_queued_once_under_its_most_urgent_cause() {
        let queue = Queue::default();
        queue.add(key("n", "a"), Cause::Timer);
        queue.add(key("n", "b"), Cause::Change);
        queue.add(key("n", "a"), Cause::Request);
        assert_eq!(queue.depth(), 2);
        assert_eq!(next(&queue).await, "n/a");
    }

    #[tokio::test]
    async fn what_is_asked_for_while_it_runs_comes_afterwards_and_pre_empts_the_run() {
        let queue = Queue::default();
        queue.add(key("n", "a"), Cause::Change);
        let taken = queue.next().await.unwrap();
        queue.add(key("n", "a"), Cause::Timer);
        assert!(!taken.preempted.is_cancelled());
        queue.add(key("n", "a"), Cause::Request);
        assert!(taken.preempted.is_cancelled());
        assert_eq!(queue.depth(), 0);
        queue.done(&taken.key);
        assert_eq!(queue.next().await.unwrap().cause, Cause::Request);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_waits_and_the_latest_word_counts() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.add_after(key("n", "a"), Duration::from_secs(5));
        queue.add_after(key("n", "a"), Duration::from_secs(60));
        queue.add_after(key("n", "b"), Duration::from_secs(30));
        assert_eq!(next(&queue).await, "n/b");
        assert_eq!(next(&queue).await, "n/a");
        assert_eq!(start.elapsed().as_secs(), 60);
    }

    #[tokio::test]
    async fn failures_double_the_wait_until_forgiven() {
        let queue = Queue::default();
        let wait = || {
            queue.backoff(&key("n", "a"), Duration::from_millis(750), Duration::from_secs(900)).as_millis()
        };
        assert_eq!([wait(), wait(), wait()], [750, 1500, 3000]);
        for _ in 0..40 {
            wait();
        }
        assert_eq!(wait(), 900_000);
        queue.forgive(&key("n", "a"));
        assert_eq!(wait(), 750);
    }

    #[tokio::test(start_paused = true)]
    async fn figures_tell_what_waits_and_what_runs() {
        let queue = Queue::default();
        queue.add(key("n", "a"), Cause::Change);
        queue.add(key("n", "b"), Cause::Change);
        tokio::time::advance(Duration::from_secs(2)).await;
        let taken = queue.next().await.unwrap();
        assert_eq!(taken.waited.as_secs(), 2);
        queue.backoff(&taken.key, Duration::from_secs(1), Duration::from_secs(9));
        tokio::time::advance(Duration::from_secs(3)).await;
        let figures = Figures { depth: 1, adds: 2, retries: 1, running: 1, unfinished: 3.0, longest: 3.0 };
        assert_eq!(queue.figures(), figures);
        queue.done(&taken.key);
        assert_eq!(queue.figures().running, 0);
    }

    /// Looks, when it is woken, whether the queue is closed.
    struct Witness {
        queue: Arc<Queue>,
        saw_it_closed: AtomicBool,
    }

    impl std::task::Wake for Witness {
        fn wake(self: Arc<Self>) {
            self.saw_it_closed.store(self.queue.closed.is_cancelled(), Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_run_that_ends_because_the_queue_closes_is_not_begun_again() {
        let queue = Arc::new(Queue::default());
        queue.add(key("a", "one"), Cause::Change);
        let taken = queue.next().await.unwrap();
        let witness = Arc::new(Witness { queue: queue.clone(), saw_it_closed: AtomicBool::new(false) });
        let waker = std::task::Waker::from(witness.clone());
        let mut hears = std::pin::pin!(taken.preempted.cancelled());
        assert!(hears.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        queue.close();
        assert!(witness.saw_it_closed.load(Ordering::SeqCst));
        queue.add(taken.key.clone(), Cause::Change);
        queue.done(&taken.key);
        assert!(queue.next().await.is_none());
    }

    #[tokio::test]
    async fn closing_ends_the_wait_and_pre_empts_what_runs() {
        let queue = Queue::default();
        queue.add(key("n", "a"), Cause::Change);
        let taken = queue.next().await.unwrap();
        let (ended, ()) = tokio::join!(queue.next(), async { queue.close() });
        assert!(ended.is_none());
        assert!(taken.preempted.is_cancelled());
    }
}
