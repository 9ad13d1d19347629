//! `cargo xtask bench images`: a thousand ImageRepositories of a thousand tags, each with a policy, under one
//! image-reflector-controller of two threads; the registry answers 429 and 5xx at random.
//!
//! There is no peer here: the work is held against fixed bounds, and this fails when one is passed.

mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::Cluster;
use testbed::http_server::{HttpServer, Security};
use testbed::process::{Scratch, Supervised};

const NAMESPACE: &str = "default";
const LIMIT: Duration = Duration::from_secs(15 * 60);
const MOST_MEBIBYTES: f64 = 150.0;
/// A scan is a greeting and a page; a storm would be many times that.
const MOST_REQUESTS_FOR_EACH: usize = 6;

#[derive(Clone)]
struct Site {
    page: Arc<String>,
    asked: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    chance: Arc<AtomicU64>,
}

impl Site {
    /// One in ten requests is one too many, one in twenty finds the registry down.
    fn trouble(&self) -> Option<Response> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let drawn = self.chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let drawn = (drawn ^ (drawn >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
        let status = match drawn % 100 {
            0..10 => StatusCode::TOO_MANY_REQUESTS,
            10..13 => StatusCode::SERVICE_UNAVAILABLE,
            13..15 => StatusCode::BAD_GATEWAY,
            _ => return None,
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some((status, [("retry-after", "1")]).into_response())
    }
}

async fn greeting() -> StatusCode {
    StatusCode::OK
}

async fn tags(State(site): State<Site>, Path(_): Path<String>) -> Response {
    site.trouble().unwrap_or_else(|| site.page.as_str().to_owned().into_response())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flux, repositories, count] = arguments.as_slice() else {
        bail!("usage: images FLUX REPOSITORIES TAGS");
    };
    let (repositories, count): (usize, usize) = (repositories.parse()?, count.parse()?);
    let page: Vec<String> = (0..count).map(|number| format!("1.{}.{}", number / 100, number % 100)).collect();
    let newest = page.last().context("at least one tag")?.clone();
    let site = Site {
        page: Arc::new(json!({ "tags": page }).to_string()),
        asked: Arc::default(),
        refused: Arc::default(),
        chance: Arc::default(),
    };
    let router = Router::new()
        .route("/v2/", get(greeting))
        .route("/v2/org/{name}/tags/list", get(tags))
        .with_state(site.clone());
    let registry = HttpServer::start(router, Security::Plain)?;

    let cluster = Cluster::start_embedded_without_workloads().await?;
    cluster.provide_crds(flux_api::crds::yaml).await?;
    for number in 0..repositories {
        let image = format!("{}/org/app-{number}", registry.address());
        put(
            &cluster,
            "imagerepositories",
            "ImageRepository",
            number,
            json!({ "image": image, "interval": "1h" }),
        )
        .await?;
        let policy = json!({
            "imageRepositoryRef": { "name": format!("app-{number}") },
            "policy": { "semver": { "range": ">=1.0.0" } },
            "filterTags": { "pattern": "^(?P<version>1\\..*)$", "extract": "$version" },
        });
        put(&cluster, "imagepolicies", "ImagePolicy", number, policy).await?;
    }

    let scratch = Scratch::new()?;
    let kubeconfig = cluster.kubeconfig_path().display().to_string();
    let arguments = [
        "TOKIO_WORKER_THREADS=2".to_owned(),
        flux.clone(),
        "serve".to_owned(),
        "image-reflector-controller".to_owned(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--storage-path={}", scratch.path().display()),
        "--metrics-addr=0".to_owned(),
        "--health-addr=0".to_owned(),
    ];
    let started = Instant::now();
    let _controller =
        Supervised::start(&PathBuf::from("/usr/bin/env"), arguments, &scratch.path().join("flux.log"))?;
    let api = objects(&cluster, "imagepolicies", "ImagePolicy");
    let picked = |object: &DynamicObject| object.data["status"]["latestRef"]["tag"] == newest.as_str();
    testbed::wait::until_all(&api, LIMIT, "have picked the newest tag", |objects: &[&DynamicObject]| {
        objects.iter().filter(|object| picked(object)).count() >= repositories
    })
    .await
    .with_context(|| testbed::process::last_lines(&scratch.path().join("flux.log"), 20))?;
    let wall = started.elapsed().as_secs_f64();
    let (cpu, peak) = usage::of(&kubeconfig)?;
    let (asked, refused) = (site.asked.load(Ordering::Relaxed), site.refused.load(Ordering::Relaxed));
    println!(
        "{repositories} repositories of {count} tags: wall {wall:.1} s, CPU {cpu:.1} s, peak {peak:.1} MiB, \
         {asked} lists asked for, {refused} of them refused"
    );
    println!(
        "{}",
        json!({ "bench": "images", "repositories": repositories, "tags": count, "wall_seconds": wall,
            "cpu_seconds": cpu, "peak_mebibytes": peak, "requests": asked, "refused": refused })
    );
    if peak > MOST_MEBIBYTES {
        bail!("{peak:.1} MiB are more than the {MOST_MEBIBYTES} MiB of the budget");
    }
    if asked > repositories * MOST_REQUESTS_FOR_EACH {
        bail!("{asked} requests for {repositories} lists are a storm");
    }
    Ok(())
}

fn objects(cluster: &Cluster, plural: &str, kind: &str) -> Api<DynamicObject> {
    let group = "image.toolkit.fluxcd.io";
    let resource = ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    Api::namespaced_with(cluster.client(), NAMESPACE, &resource)
}

async fn put(cluster: &Cluster, plural: &str, kind: &str, number: usize, spec: Value) -> Result<()> {
    let name = format!("app-{number}");
    let object = json!({
        "apiVersion": "image.toolkit.fluxcd.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    let parameters = PatchParams::apply("testbed").force();
    objects(cluster, plural, kind).patch(&name, &parameters, &Patch::Apply(object)).await?;
    Ok(())
}
