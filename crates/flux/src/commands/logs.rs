//! `flux logs`: what the controllers say, filtered by level, kind, name and namespace.

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use serde_json::Value;

use crate::error::{CliError, fail};
use crate::kinds::text;
use crate::output;
use crate::session::Session;
use crate::tree::Invocation;

use super::version::PART_OF;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let session = Session::open(run).await?;
    let namespace = run.text("flux-namespace");
    let pods = pods(&session, namespace).await?;
    let parameters = parameters(run)?;
    let api: Api<Pod> = Api::namespaced(session.client.clone(), namespace);
    let readers = pods.iter().map(|pod| follow(run, &session, &api, pod, &parameters));
    let results = if run.is("follow") {
        let all = futures::future::join_all(readers);
        // Following ends with the timeout, as every command does; that is no failure.
        tokio::time::timeout(session.timeout, all).await.unwrap_or_default()
    } else {
        let mut results = Vec::new();
        for reader in readers {
            results.push(reader.await);
        }
        results
    };
    if results.into_iter().all(|read| read) {
        Ok(())
    } else {
        Err(fail!("failed to collect logs from all Flux pods"))
    }
}

fn parameters(run: &Invocation) -> Result<LogParams, CliError> {
    let since = run.duration("since").to_std();
    let since_time = run.some("since-time");
    if since_time.is_some() && !since.is_zero() {
        return Err(fail!("at most one of `sinceTime` or `sinceDuration` may be specified"));
    }
    let since_time = since_time
        .map(|text| text.parse::<Timestamp>().map_err(|_| fail!("{text} is not a valid (RFC3339) time")))
        .transpose()?;
    let tail = run.text("tail").parse::<i64>().ok().filter(|lines| *lines > -1);
    let seconds = i64::try_from(since.as_secs_f64().round() as u64).unwrap_or(i64::MAX);
    Ok(LogParams {
        follow: run.is("follow"),
        tail_lines: tail,
        since_time,
        since_seconds: (!since.is_zero()).then_some(seconds),
        ..LogParams::default()
    })
}

/// One Pod of each of Flux's Deployments, a running one if there is any.
async fn pods(session: &Session, namespace: &str) -> Result<Vec<Pod>, CliError> {
    let failed = |error| session.failed(error, None);
    let deployments: Api<Deployment> = Api::namespaced(session.client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(session.client.clone(), namespace);
    let mut found = Vec::new();
    for deployment in deployments.list(&ListParams::default().labels(PART_OF)).await.map_err(failed)? {
        let template =
            deployment.spec.and_then(|spec| spec.template.metadata).and_then(|metadata| metadata.labels);
        let selector: Vec<String> =
            template.unwrap_or_default().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut list =
            pods.list(&ListParams::default().labels(&selector.join(","))).await.map_err(failed)?.items;
        list.sort_by_key(|pod| !is_running(pod));
        found.extend(list.into_iter().next());
    }
    if found.is_empty() { Err(fail!("no Flux pods found in namespace {namespace:?}")) } else { Ok(found) }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Prints a Pod's lines; says so and goes on when they cannot be read.
async fn follow(
    run: &Invocation,
    session: &Session,
    api: &Api<Pod>,
    pod: &Pod,
    parameters: &LogParams,
) -> bool {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let several = pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1);
    let container = several.then(|| "manager".to_owned());
    let parameters = LogParams { container, ..parameters.clone() };
    let lines = match api.log_stream(name, &parameters).await {
        Ok(stream) => stream.lines(),
        Err(error) => {
            output::plain(&format!("failed getting logs: {}\n", session.failed(error, None)));
            return false;
        }
    };
    let mut lines = Box::pin(lines);
    while let Ok(Some(line)) = lines.try_next().await {
        if !line.starts_with('{') {
            continue;
        }
        match serde_json::from_str::<Value>(&line) {
            Ok(entry) if wanted(run, session, &entry) => {
                if output::data(&shown(&entry)).is_err() {
                    return false;
                }
            }
            Ok(_) => {}
            Err(error) => {
                output::failure(&format!("parse error: {error}"));
                break;
            }
        }
    }
    true
}

fn wanted(run: &Invocation, session: &Session, entry: &Value) -> bool {
    let is = |flag: &str, field: &str| {
        run.some(flag).is_none_or(|wanted| text(entry, &format!("/{field}")).eq_ignore_ascii_case(wanted))
    };
    run.some("level").is_none_or(|level| text(entry, "/level") == level)
        && (is("kind", "reconciler kind") || is("kind", "controllerKind"))
        && is("name", "name")
        && (run.is("all-namespaces") || text(entry, "/namespace").eq_ignore_ascii_case(&session.namespace))
}

fn shown(entry: &Value) -> String {
    let field = |name: &str| text(entry, &format!("/{name}"));
    let kind =
        Some(field("reconciler kind")).filter(|kind| !kind.is_empty()).unwrap_or(field("controllerKind"));
    let object = if field("name").is_empty() {
        String::new()
    } else {
        format!("/{}.{}", field("name"), field("namespace"))
    };
    format!("{} {} {kind}{object} - {} {}\n", field("ts"), field("level"), field("msg"), field("error"))
}
