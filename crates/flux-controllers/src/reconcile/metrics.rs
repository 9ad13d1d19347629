//! Metrics in Prometheus' text format, under the names that Flux's users have alerts and dashboards for.
//!
//! Counters and histograms are recorded as things happen. What an object says about itself (its conditions, whether
//! it is suspended, its revision) is read from the cache when somebody asks, so it can neither be forgotten nor
//! outlive the object.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use flux_remote::cloud::CacheCounts;

/// A metric: its name, what it means, and the labels its series differ in.
pub struct Family {
    pub name: &'static str,
    pub help: &'static str,
    pub labels: &'static [&'static str],
    pub shape: Shape,
}

#[derive(Clone, Copy)]
pub enum Shape {
    Counter,
    Gauge,
    Histogram(fn() -> &'static [f64]),
}

const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Family {
    Family { name, help, labels, shape: Shape::Counter }
}

const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Family {
    Family { name, help, labels, shape: Shape::Gauge }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    buckets: fn() -> &'static [f64],
) -> Family {
    Family { name, help, labels, shape: Shape::Histogram(buckets) }
}

const OBJECT: &[&str] = &["kind", "name", "namespace"];
const CONTROLLER: &[&str] = &["controller"];
const QUEUE: &[&str] = &["controller", "name"];

pub static RECONCILE_DURATION: Family = histogram(
    "gotk_reconcile_duration_seconds",
    "The duration in seconds of a GitOps Toolkit resource reconciliation.",
    OBJECT,
    reconcile_buckets,
);
pub static RECONCILE_ERRORS: Family = counter(
    "gotk_reconcile_error_total",
    "The number of reconciliations of a GitOps Toolkit resource that failed.",
    OBJECT,
);
pub static RECONCILE_CONDITION: Family = gauge(
    "gotk_reconcile_condition",
    "The current condition status of a GitOps Toolkit resource reconciliation.",
    &["kind", "name", "namespace", "type", "status"],
);
pub static SUSPEND_STATUS: Family =
    gauge("gotk_suspend_status", "The current suspend status of a GitOps Toolkit resource.", OBJECT);
pub static RESOURCE_INFO: Family = gauge(
    "gotk_resource_info",
    "The current state of a GitOps Toolkit resource.",
    &[
        "name",
        "exported_namespace",
        "customresource_group",
        "customresource_version",
        "customresource_kind",
        "ready",
        "suspended",
        "revision",
        "source_name",
        "url",
    ],
);
pub static TOKEN_CACHE_EVENTS: Family = counter(
    "gotk_token_cache_events_total",
    "Total number of cache retrieval events for a Gitops Toolkit resource reconciliation.",
    &["event_type", "kind", "name", "namespace", "operation"],
);
/// What tokens are asked for in.
pub const TOKEN_OPERATION: &str = "reconcile";
pub static TOKENS_CACHED: Family =
    gauge("gotk_token_cached_items", "Total number of items in the cache.", &[]);
pub static TOKEN_CACHE_REQUESTS: Family = counter(
    "gotk_token_cache_requests_total",
    "Total number of cache requests partitioned by success or failure.",
    &["status"],
);
pub static TOKEN_CACHE_EVICTIONS: Family =
    counter("gotk_token_cache_evictions_total", "Total number of cache evictions.", &[]);
pub static INDEX_CACHE_EVENTS: Family = counter(
    "gotk_cache_events_total",
    "Total number of cache retrieval events for a Gitops Toolkit resource reconciliation.",
    &["event_type", "name", "namespace"],
);
pub static EVENTS_DROPPED: Family =
    gauge("gotk_events_dropped", "Events that were not sent because too many were waiting.", CONTROLLER);

pub static NOTIFICATIONS: Family = counter(
    "gotk_notifications_total",
    "Notifications by Provider and what became of them: sent, failed, or dropped because too many were waiting.",
    &["name", "namespace", "result"],
);
pub static WEBHOOK_REQUESTS: Family = counter(
    "gotk_webhook_requests_total",
    "Requests to the event and webhook listeners by answer.",
    &["listener", "code"],
);
const HTTP: &[&str] = &["code", "handler", "method", "service"];
pub static EVENT_REQUEST_TIME: Family = histogram(
    "gotk_event_http_request_duration_seconds",
    "The latency of the HTTP requests.",
    HTTP,
    request_buckets,
);
pub static RECEIVER_REQUEST_TIME: Family = histogram(
    "gotk_receiver_http_request_duration_seconds",
    "The latency of the HTTP requests.",
    HTTP,
    request_buckets,
);

pub static RECONCILES: Family = counter(
    "controller_runtime_reconcile_total",
    "Total number of reconciliations per controller",
    &["controller", "result"],
);
pub static RECONCILE_FAILURES: Family = counter(
    "controller_runtime_reconcile_errors_total",
    "Total number of reconciliation errors per controller",
    CONTROLLER,
);
pub static RECONCILE_PANICS: Family = counter(
    "controller_runtime_reconcile_panics_total",
    "Total number of reconciliation panics per controller",
    CONTROLLER,
);
pub static RECONCILE_TIME: Family = histogram(
    "controller_runtime_reconcile_time_seconds",
    "Length of time per reconciliation per controller",
    CONTROLLER,
    runtime_buckets,
);
pub static MOST_WORKERS: Family = gauge(
    "controller_runtime_max_concurrent_reconciles",
    "Maximum number of concurrent reconciles per controller",
    CONTROLLER,
);
pub static ACTIVE_WORKERS: Family =
    gauge("controller_runtime_active_workers", "Number of currently used workers per controller", CONTROLLER);

pub static QUEUE_DEPTH: Family = gauge("workqueue_depth", "Current depth of workqueue", QUEUE);
pub static QUEUE_ADDS: Family =
    counter("workqueue_adds_total", "Total number of adds handled by workqueue", QUEUE);
pub static QUEUE_RETRIES: Family =
    counter("workqueue_retries_total", "Total number of retries handled by workqueue", QUEUE);
pub static QUEUE_WAIT: Family = histogram(
    "workqueue_queue_duration_seconds",
    "How long in seconds an item stays in workqueue before being requested",
    QUEUE,
    queue_buckets,
);
pub static QUEUE_WORK: Family = histogram(
    "workqueue_work_duration_seconds",
    "How long in seconds processing an item from workqueue takes.",
    QUEUE,
    queue_buckets,
);
pub static QUEUE_UNFINISHED: Family = gauge(
    "workqueue_unfinished_work_seconds",
    "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
    QUEUE,
);
pub static QUEUE_LONGEST: Family = gauge(
    "workqueue_longest_running_processor_seconds",
    "How many seconds has the longest running processor for workqueue been running",
    QUEUE,
);

pub static API_REQUESTS: Family = counter(
    "rest_client_requests_total",
    "Number of HTTP requests, partitioned by status code, method, and host.",
    &["code", "host", "method"],
);
pub static LEADER: Family = gauge(
    "leader_election_master_status",
    "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease.",
    &["name"],
);
pub static RESIDENT_MEMORY: Family =
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", &[]);
pub static CPU_SECONDS: Family =
    counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", &[]);

/// Ten steps from a hundredth of a second to half an hour, each the same factor above the last.
fn reconcile_buckets() -> &'static [f64] {
    static BUCKETS: LazyLock<Vec<f64>> = LazyLock::new(|| {
        let factor = (1800.0_f64 / 0.01).powf(1.0 / 9.0);
        (0..10).map(|step| 0.01 * factor.powi(step)).collect()
    });
    &BUCKETS
}

fn runtime_buckets() -> &'static [f64] {
    &[
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
        1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0,
        40.0, 50.0, 60.0,
    ]
}

fn request_buckets() -> &'static [f64] {
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
}

fn queue_buckets() -> &'static [f64] {
    &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0]
}

type Collector = Box<dyn Fn(&mut Page) + Send + Sync>;

/// Everything that is counted in one process.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    recorded: Mutex<BTreeMap<&'static str, Recorded>>,
    collectors: Mutex<Vec<Collector>>,
}

struct Recorded {
    family: &'static Family,
    series: BTreeMap<Vec<String>, Value>,
}

enum Value {
    Number(f64),
    Buckets { counts: Vec<u64>, sum: f64, count: u64 },
}

impl Metrics {
    pub fn add(&self, family: &'static Family, labels: &[&str], by: f64) {
        self.change(family, labels, |number| *number += by);
    }

    pub fn set(&self, family: &'static Family, labels: &[&str], to: f64) {
        self.change(family, labels, |number| *number = to);
    }

    /// Records one observation of a histogram.
    pub fn observe(&self, family: &'static Family, labels: &[&str], seen: f64) {
        let Shape::Histogram(buckets) = family.shape else { return };
        let bounds = buckets();
        self.with(family, labels, |value| {
            let empty = || Value::Buckets { counts: vec![0; bounds.len()], sum: 0.0, count: 0 };
            if let Value::Buckets { counts, sum, count } = value.get_or_insert_with(empty) {
                if let Some(bucket) = bounds.iter().position(|bound| seen <= *bound) {
                    counts[bucket] += 1;
                }
                *sum += seen;
                *count += 1;
            }
        });
    }

    /// Forgets the series of an object that is gone.
    pub fn forget(&self, family: &'static Family, labels: &[&str]) {
        let mut recorded = self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recorded) = recorded.get_mut(family.name) {
            recorded.series.retain(|known, _| known.iter().zip(labels).any(|(known, label)| known != label));
        }
    }

    /// Has `collector` add to every page.
    pub fn collect(&self, collector: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.0.collectors.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(collector));
    }

    /// Everything as text.
    pub fn page(&self) -> String {
        let mut page = Page::default();
        for collector in self.0.collectors.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            collector(&mut page);
        }
        page.tell_of_tokens();
        for recorded in self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner).values() {
            for (labels, value) in &recorded.series {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                page.value(recorded.family, &labels, value);
            }
        }
        page.text()
    }

    fn change(&self, family: &'static Family, labels: &[&str], change: impl FnOnce(&mut f64)) {
        self.with(family, labels, |value| {
            if let Value::Number(number) = value.get_or_insert(Value::Number(0.0)) {
                change(number);
            }
        });
    }

    fn with(&self, family: &'static Family, labels: &[&str], change: impl FnOnce(&mut Option<Value>)) {
        let mut recorded = self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded =
            recorded.entry(family.name).or_insert_with(|| Recorded { family, series: BTreeMap::new() });
        let key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        let mut value = recorded.series.remove(&key);
        change(&mut value);
        if let Some(value) = value {
            recorded.series.insert(key, value);
        }
    }
}

/// What is shown to whoever asks, family by family.
#[derive(Default)]
pub struct Page {
    families: BTreeMap<&'static str, (&'static Family, String)>,
    tokens: Option<CacheCounts>,
}

impl Page {
    /// What a cache of tokens says about itself. Each controller has its own; the page tells of them together.
    pub fn tokens(&mut self, counts: CacheCounts) {
        self.tokens = Some(self.tokens.unwrap_or_default() + counts);
    }

    /// Every request succeeds, found or not, as upstream counts them.
    fn tell_of_tokens(&mut self) {
        let Some(counts) = self.tokens else { return };
        self.number(&TOKENS_CACHED, &[], counts.items as f64);
        self.number(&TOKEN_CACHE_EVICTIONS, &[], counts.evictions as f64);
        self.number(&TOKEN_CACHE_REQUESTS, &["success"], (counts.hits + counts.misses) as f64);
    }

    pub fn number(&mut self, family: &'static Family, labels: &[&str], number: f64) {
        self.value(family, labels, &Value::Number(number));
    }

    fn value(&mut self, family: &'static Family, labels: &[&str], value: &Value) {
        let (_, text) = self.families.entry(family.name).or_insert_with(|| (family, String::new()));
        let pairs = pairs(family.labels, labels);
        match value {
            Value::Number(number) => line(text, family.name, "", &pairs, *number),
            Value::Buckets { counts, sum, count } => {
                let Shape::Histogram(buckets) = family.shape else { return };
                let mut below = 0;
                for (bound, count) in buckets().iter().zip(counts) {
                    below += count;
                    let bound = with_label(&pairs, "le", &bound.to_string());
                    line(text, family.name, "_bucket", &bound, below as f64);
                }
                line(text, family.name, "_bucket", &with_label(&pairs, "le", "+Inf"), *count as f64);
                line(text, family.name, "_sum", &pairs, *sum);
                line(text, family.name, "_count", &pairs, *count as f64);
            }
        }
    }

    fn text(self) -> String {
        let mut out = String::new();
        for (name, (family, lines)) in self.families {
            let shape = match family.shape {
                Shape::Counter => "counter",
                Shape::Gauge => "gauge",
                Shape::Histogram(_) => "histogram",
            };
            let _ = write!(out, "# HELP {name} {}\n# TYPE {name} {shape}\n{lines}", family.help);
        }
        out
    }
}

fn pairs(names: &[&str], values: &[&str]) -> String {
    let mut text = String::new();
    for (name, value) in names.iter().zip(values) {
        text = with_label(&text, name, value);
    }
    text
}

fn with_label(pairs: &str, name: &str, value: &str) -> String {
    let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    let comma = if pairs.is_empty() { "" } else { "," };
    format!("{pairs}{comma}{name}=\"{value}\"")
}

fn line(text: &mut String, name: &str, suffix: &str, pairs: &str, number: f64) {
    let braces = if pairs.is_empty() { String::new() } else { format!("{{{pairs}}}") };
    let _ = writeln!(text, "{name}{suffix}{braces} {number}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_what_was_recorded_and_what_is_collected() {
        let metrics = Metrics::default();
        metrics.add(&API_REQUESTS, &["200", "api:443", "GET"], 1.0);
        metrics.add(&API_REQUESTS, &["200", "api:443", "GET"], 1.0);
        metrics.collect(|page| page.number(&SUSPEND_STATUS, &["Kustomization", "a\"b", "apps"], 1.0));
        let page = metrics.page();
        assert!(page.contains("# TYPE rest_client_requests_total counter\n"), "{page}");
        assert!(
            page.contains("rest_client_requests_total{code=\"200\",host=\"api:443\",method=\"GET\"} 2\n")
        );
        assert!(
            page.contains(
                "gotk_suspend_status{kind=\"Kustomization\",name=\"a\\\"b\",namespace=\"apps\"} 1\n"
            )
        );
    }

    #[test]
    fn tokens_of_several_controllers_are_told_of_together() {
        let metrics = Metrics::default();
        assert!(!metrics.page().contains("gotk_token"));
        for (hits, items) in [(3, 1), (4, 2)] {
            let counts = CacheCounts { hits, misses: 1, evictions: 5, items };
            metrics.collect(move |page| page.tokens(counts));
        }
        let page = metrics.page();
        for line in [
            "gotk_token_cached_items 3\n",
            "gotk_token_cache_evictions_total 10\n",
            "gotk_token_cache_requests_total{status=\"success\"} 9\n",
        ] {
            assert!(page.contains(line), "{line} is missing in\n{page}");
        }
        // Whatever it was asked for in, what was counted goes with the object.
        for operation in [TOKEN_OPERATION, "decrypt_with_aws"] {
            let labels = ["cache_hit", "Kustomization", "apps", "flux-system", operation];
            metrics.add(&TOKEN_CACHE_EVENTS, &labels, 1.0);
        }
        assert_eq!(metrics.page().matches("gotk_token_cache_events_total{").count(), 2);
        metrics.forget(&TOKEN_CACHE_EVENTS, &["cache_hit", "Kustomization", "apps", "flux-system"]);
        assert_eq!(metrics.page().matches("gotk_token_cache_events_total{").count(), 0);
    }

    #[test]
    fn buckets_count_everything_below_and_go_with_their_object() {
        let metrics = Metrics::default();
        let labels = ["GitRepository", "fleet", "flux-system"];
        metrics.observe(&RECONCILE_DURATION, &labels, 0.02);
        metrics.observe(&RECONCILE_DURATION, &labels, 5000.0);
        let page = metrics.page();
        let named = "kind=\"GitRepository\",name=\"fleet\",namespace=\"flux-system\"";
        assert!(
            page.contains(&format!("gotk_reconcile_duration_seconds_bucket{{{named},le=\"0.01\"}} 0\n")),
            "{page}"
        );
        assert!(page.contains(&format!("gotk_reconcile_duration_seconds_bucket{{{named},le=\"+Inf\"}} 2\n")));
        assert!(page.contains(&format!("gotk_reconcile_duration_seconds_sum{{{named}}} 5000.02\n")));
        assert_eq!(page.matches("_bucket{").count(), 11);
        metrics.forget(&RECONCILE_DURATION, &labels);
        assert_eq!(metrics.page(), "");
    }

    #[test]
    fn the_steps_are_those_of_upstream() {
        let buckets = reconcile_buckets();
        assert_eq!(buckets.len(), 10);
        assert!((buckets[9] - 1800.0).abs() < 1e-6 && (buckets[1] / buckets[0] - 3.8364).abs() < 1e-3);
    }
}
