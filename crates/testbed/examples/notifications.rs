//! `cargo xtask bench notifications`: events at a steady rate to one notification-controller of two threads. First to a
//! chat that takes them, where none may be lost; then to one that does not answer, where what is too much is dropped and
//! counted, and memory stays what it was.
//!
//! There is no peer here: the work is held against fixed bounds, and this fails when one is passed.

mod usage;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::http_server::{HttpServer, Security};
use testbed::process::{Scratch, Supervised};

const NAMESPACE: &str = "default";
const GROUP: &str = "notification.toolkit.fluxcd.io";
const MOST_MEBIBYTES: f64 = 150.0;
/// Connections that events come over, as from a few busy controllers.
const SENDERS: usize = 16;
const DELIVERED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Default)]
struct Chat {
    probes: Arc<AtomicUsize>,
    stalled: Arc<AtomicUsize>,
    /// From the moment of sending to the arrival here, in milliseconds.
    took: Arc<Mutex<Vec<f64>>>,
}

async fn take(State(chat): State<Chat>, body: Bytes) -> StatusCode {
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let message = event["message"].as_str().unwrap_or_default();
    let sent = message.rsplit(' ').next().and_then(|text| text.parse::<u128>().ok());
    match sent.filter(|_| message.starts_with("event ")) {
        None => drop(chat.probes.fetch_add(1, Ordering::Relaxed)),
        Some(sent) => {
            let took = now().saturating_sub(sent) as f64 / 1e6;
            chat.took.lock().unwrap_or_else(PoisonError::into_inner).push(took);
        }
    }
    StatusCode::OK
}

/// Takes everything and says nothing.
async fn stall(State(chat): State<Chat>, _: Bytes) -> StatusCode {
    chat.stalled.fetch_add(1, Ordering::Relaxed);
    std::future::pending().await
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flux, rate, seconds] = arguments.as_slice() else {
        bail!("usage: notifications FLUX EVENTS-A-SECOND SECONDS");
    };
    let (rate, seconds): (usize, usize) = (rate.parse()?, seconds.parse()?);
    let chat = Chat::default();
    let site =
        Router::new().route("/chat", post(take)).route("/stalled", post(stall)).with_state(chat.clone());
    let server = HttpServer::start(site, Security::Plain)?;
    let cluster = Cluster::start_embedded_without_workloads().await?;
    cluster.provide_crds(flux_api::crds::yaml).await?;
    for (name, kind) in [("chat", "Kustomization"), ("stalled", "HelmRelease")] {
        let address = format!("{}/{name}", server.url());
        // The dead one has a long timeout, so that its deliveries pile up.
        let spec = json!({ "type": "generic", "address": address, "timeout": "1m" });
        put(&cluster, "providers", "Provider", name, spec).await?;
        let spec =
            json!({ "providerRef": { "name": name }, "eventSources": [{ "kind": kind, "name": "*" }] });
        put(&cluster, "alerts", "Alert", name, spec).await?;
    }
    let scratch = Scratch::new()?;
    let kubeconfig = cluster.kubeconfig_path().display().to_string();
    let (events, receivers, metrics) = (free_port()?, free_port()?, free_port()?);
    let arguments = [
        "TOKIO_WORKER_THREADS=2".to_owned(),
        flux.clone(),
        "serve".to_owned(),
        "notification-controller".to_owned(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--events-addr=127.0.0.1:{events}"),
        format!("--receiverAddr=127.0.0.1:{receivers}"),
        format!("--metrics-addr=127.0.0.1:{metrics}"),
        "--health-addr=0".to_owned(),
        "--log-level=error".to_owned(),
    ];
    let log = scratch.path().join("flux.log");
    let _controller = Supervised::start(&PathBuf::from("/usr/bin/env"), arguments, &log)?;
    let url = format!("http://127.0.0.1:{events}/");
    let http = reqwest::Client::new();
    let started = Instant::now();
    while chat.probes.load(Ordering::Relaxed) == 0 {
        if started.elapsed() > Duration::from_secs(60) {
            bail!("the controller routes nothing\n{}", testbed::process::last_lines(&log, 20));
        }
        let probe = event("Kustomization", &format!("probe {}", now()));
        let _ = http.post(&url).json(&probe).send().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let total = rate * seconds;
    let first = send(&http, &url, "Kustomization", rate, total).await?;
    let arrived = || chat.took.lock().unwrap_or_else(PoisonError::into_inner).len();
    let waited = Instant::now();
    while arrived() < total && waited.elapsed() < DELIVERED_WITHIN {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let delivered = arrived();
    let (cpu, peak) = usage::of(&kubeconfig)?;
    let took = chat.took.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let latency = Quantiles::of(took);
    println!(
        "{total} events at {rate} a second: {} accepted in {:.1} s ({:.0} a second, the slowest answer after {:.0} ms), \
         {delivered} delivered; from sending to the chat {latency}; CPU {cpu:.1} s, peak {peak:.1} MiB",
        first.accepted,
        first.seconds,
        first.accepted as f64 / first.seconds,
        first.slowest
    );
    let page = |text: String| dropped(&text, "chat");
    let lost = page(scrape(&http, metrics).await?);

    let second = send(&http, &url, "HelmRelease", rate, total).await?;
    let (_, peak_stalled) = usage::of(&kubeconfig)?;
    let dropped = dropped(&scrape(&http, metrics).await?, "stalled");
    println!(
        "{total} more to a chat that does not answer: {} accepted in {:.1} s, {dropped:.0} dropped and counted, {} under way, \
         peak {peak_stalled:.1} MiB",
        second.accepted,
        second.seconds,
        chat.stalled.load(Ordering::Relaxed)
    );
    println!(
        "{}",
        json!({ "bench": "notifications", "events": total, "rate": rate, "accepted": first.accepted,
            "accepted_seconds": first.seconds, "delivered": delivered, "dropped": lost, "median_ms": latency.median,
            "p99_ms": latency.most, "slowest_ms": latency.slowest, "cpu_seconds": cpu, "peak_mebibytes": peak,
            "stalled": { "accepted": second.accepted, "dropped": dropped, "peak_mebibytes": peak_stalled } })
    );
    if first.accepted != total || delivered != total || lost > 0.0 {
        bail!("of {total} events {} were accepted, {delivered} delivered, {lost} dropped", first.accepted);
    }
    if first.seconds > seconds as f64 * 1.1 + 1.0 {
        bail!("{rate} events a second were not accepted: {total} took {:.1} s", first.seconds);
    }
    if second.accepted != total || (total > 8192 && dropped == 0.0) {
        bail!("a chat that does not answer held up events, or what was dropped was not counted");
    }
    if peak_stalled.max(peak) > MOST_MEBIBYTES {
        bail!("{:.1} MiB are more than the {MOST_MEBIBYTES} MiB of the budget", peak_stalled.max(peak));
    }
    Ok(())
}

struct Sent {
    accepted: usize,
    seconds: f64,
    /// Milliseconds until the slowest answer.
    slowest: f64,
}

/// Sends at a steady rate, however long answers take.
async fn send(http: &reqwest::Client, url: &str, kind: &str, rate: usize, total: usize) -> Result<Sent> {
    let (next, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let slowest = Arc::new(Mutex::new(0f64));
    let started = Instant::now();
    let senders = (0..SENDERS).map(|_| {
        let (http, url, kind) = (http.clone(), url.to_owned(), kind.to_owned());
        let (next, accepted, slowest) = (next.clone(), accepted.clone(), slowest.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= total {
                    return;
                }
                let due = started + Duration::from_secs_f64(number as f64 / rate as f64);
                tokio::time::sleep_until(due.into()).await;
                let (body, asked) = (event(&kind, &format!("event {number} {}", now())), Instant::now());
                let answer = http.post(&url).json(&body).send().await;
                if answer.is_ok_and(|answer| answer.status().as_u16() == 202) {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                let took = asked.elapsed().as_secs_f64() * 1000.0;
                let mut slowest = slowest.lock().unwrap_or_else(PoisonError::into_inner);
                *slowest = slowest.max(took);
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await?;
    }
    let slowest = *slowest.lock().unwrap_or_else(PoisonError::into_inner);
    let seconds = started.elapsed().as_secs_f64();
    Ok(Sent { accepted: accepted.load(Ordering::Relaxed), seconds, slowest })
}

struct Quantiles {
    median: f64,
    most: f64,
    slowest: f64,
}

impl Quantiles {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |share: f64| all.get((all.len() as f64 * share) as usize).or(all.last()).copied();
        let at = |share: f64| at(share).unwrap_or_default();
        Self { median: at(0.5), most: at(0.99), slowest: at(1.0) }
    }
}

impl std::fmt::Display for Quantiles {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            to,
            "{:.0} ms (99 of 100 within {:.0} ms, all within {:.0} ms)",
            self.median, self.most, self.slowest
        )
    }
}

async fn scrape(http: &reqwest::Client, port: u16) -> Result<String> {
    let answer = http.get(format!("http://127.0.0.1:{port}/metrics")).send().await?;
    answer.text().await.context("read the metrics")
}

/// What `gotk_notifications_total` says was dropped for a Provider.
fn dropped(page: &str, provider: &str) -> f64 {
    let own = |line: &&str| {
        line.starts_with("gotk_notifications_total{")
            && line.contains("result=\"dropped\"")
            && line.contains(&format!("name=\"{provider}\""))
    };
    let line = page.lines().find(own);
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

fn event(kind: &str, message: &str) -> Value {
    json!({
        "involvedObject": {
            "kind": kind, "namespace": NAMESPACE, "name": "apps", "uid": "9d0cdd51-0c9c-4a3f-9d0c-dd510c9c4a3f",
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "1",
        },
        "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": message, "reason": "ReconciliationSucceeded",
        "metadata": { "kustomize.toolkit.fluxcd.io/revision": "main@sha1:7bf2bf1e7cb1dc1ff4a6b2ac2c7f1d1b4c1b2b3a" },
        "reportingController": "kustomize-controller", "reportingInstance": "kustomize-controller-abc",
    })
}

async fn put(cluster: &Cluster, plural: &str, kind: &str, name: &str, spec: Value) -> Result<()> {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: "v1beta3".to_owned(),
        api_version: format!("{GROUP}/v1beta3"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), NAMESPACE, &resource);
    let object = json!({
        "apiVersion": resource.api_version, "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    api.patch(name, &PatchParams::apply("testbed").force(), &Patch::Apply(object)).await?;
    Ok(())
}
