//! Puts the server under load, in process, and measures it:
//!
//! ```text
//! cargo run --release -p apiserver --example load -- [--objects 10000] [--rate 2000] [--seconds 60]
//! ```
//!
//! Fills 200 namespaces with small ConfigMaps, watches each namespace once and everything ten times, then changes
//! objects at the given rate. Every watcher must see every change of its objects, in order. Exits with 1 when an event is
//! lost or out of order, when the rate is not held, or when start or memory pass their bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use apiserver::{Handle, Server, Service};
use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const NAMESPACES: usize = 200;
const WATCH_ALL: usize = 10;

#[derive(Parser)]
struct Args {
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    #[arg(long, default_value_t = 2_000)]
    rate: u64,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

async fn send(service: Service, method: &str, uri: String, body: Value) -> http::Response<apiserver::Body> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(uri).header("content-type", content);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).expect("a request of constants");
    match service.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

struct Seen {
    events: AtomicU64,
    disorder: AtomicU64,
}

/// Reads a watch until it ends; each object's counter must only grow by one.
async fn watch(server: Handle, uri: String, seen: Arc<Seen>) {
    let mut body = send(server.service(), "GET", uri, Value::Null).await.into_body();
    let mut last: HashMap<String, u64> = HashMap::new();
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
            let key = format!(
                "{}/{}",
                event["object"]["metadata"]["namespace"], event["object"]["metadata"]["name"]
            );
            let count = event["object"]["data"]["n"].as_str().and_then(|n| n.parse().ok()).unwrap_or(0);
            let before = last.insert(key, count).unwrap_or(0);
            seen.events.fetch_add(1, Ordering::Relaxed);
            if count != before + 1 {
                seen.disorder.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let started = Instant::now();
    let server = Server::builder().start().await?;
    let ready = started.elapsed();
    println!("ready after {} ms", ready.as_millis());
    for at in 0..NAMESPACES {
        let body = json!({ "metadata": { "name": format!("n{at}") } });
        send(server.service(), "POST", "/api/v1/namespaces".into(), body).await;
    }
    let before = memory();
    let filling = Instant::now();
    for at in 0..args.objects {
        let uri = format!("/api/v1/namespaces/n{}/configmaps", at % NAMESPACES);
        let body = json!({ "metadata": { "name": format!("o{at}") }, "data": { "n": "0", "text": "small" } });
        let answer = send(server.service(), "POST", uri, body).await;
        assert_eq!(answer.status(), 201);
    }
    let spent = filling.elapsed();
    println!(
        "{} objects in {:.1} s ({:.0} a second)",
        args.objects,
        spent.as_secs_f64(),
        args.objects as f64 / spent.as_secs_f64()
    );
    // The log of changes holds the objects too, until it is compacted.
    server.compact();
    let each = memory().saturating_sub(before) / args.objects as u64;
    println!("{each} bytes an object");

    let seen = Arc::new(Seen { events: AtomicU64::new(0), disorder: AtomicU64::new(0) });
    let from = server.revision();
    let query = format!("watch=1&resourceVersion={from}&timeoutSeconds=100000");
    for at in 0..NAMESPACES {
        tokio::spawn(watch(
            server.clone(),
            format!("/api/v1/namespaces/n{at}/configmaps?{query}"),
            seen.clone(),
        ));
    }
    for _ in 0..WATCH_ALL {
        tokio::spawn(watch(server.clone(), format!("/api/v1/configmaps?{query}"), seen.clone()));
    }
    tokio::time::sleep(Duration::from_millis(200)).await;

    let total = args.rate * args.seconds;
    let mut counts = vec![0u64; args.objects];
    let begin = Instant::now();
    for write in 0..total {
        let due = begin + Duration::from_nanos(write * 1_000_000_000 / args.rate);
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            tokio::time::sleep(early).await;
        }
        let at = (write as usize * 7919) % args.objects;
        counts[at] += 1;
        let uri = format!("/api/v1/namespaces/n{}/configmaps/o{at}", at % NAMESPACES);
        let answer =
            send(server.service(), "PATCH", uri, json!({ "data": { "n": counts[at].to_string() } })).await;
        assert_eq!(answer.status(), 200);
    }
    let spent = begin.elapsed().as_secs_f64();
    let expected = total * (1 + WATCH_ALL as u64);
    for _ in 0..100 {
        if seen.events.load(Ordering::Relaxed) >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{total} writes in {spent:.1} s ({:.0} a second)", total as f64 / spent);
    println!(
        "{} of {expected} events seen, {} out of order; {} MiB in all",
        seen.events.load(Ordering::Relaxed),
        seen.disorder.load(Ordering::Relaxed),
        memory() >> 20
    );
    let rate = total as f64 / spent;
    for (holds, what) in [
        (ready < Duration::from_millis(200), "ready within 200 ms"),
        (each < 10_000, "less than 10 KB an object"),
        (rate > 0.98 * args.rate as f64, "the rate held"),
        (seen.events.load(Ordering::Relaxed) == expected, "every event seen"),
        (seen.disorder.load(Ordering::Relaxed) == 0, "all in order"),
    ] {
        println!("{} {what}", if holds { "ok    " } else { "FAILED" });
        if !holds {
            return Err(format!("not held: {what}").into());
        }
    }
    Ok(())
}
