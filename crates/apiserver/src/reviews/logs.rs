//! `pods/log`: the lines of one container, from the embedder's source or as the played container wrote them.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use crate::logs::{Log, LogLine, LogOf};
use crate::object::text;
use crate::request::Query;
use crate::respond::Answer;
use crate::rest::Call;
use crate::service::Incoming;
use crate::status::{About, Cause, Status};
use crate::storage::{ChangeKind, WatchScope};

/// What of a log is asked for.
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<usize>,
    limit: Option<usize>,
}

impl Options {
    fn read(call: &Call, query: &Query) -> Result<Options, Status> {
        let mut causes = Vec::new();
        let mut number = |field: &str, least: i64, words: &str| -> Result<Option<i64>, Status> {
            let value = query.integer(field)?;
            if let Some(value) = value.filter(|value| *value < least) {
                causes.push(Cause::invalid(field, &Value::from(value), words));
            }
            Ok(value)
        };
        let tail = number("tailLines", 0, "must be greater than or equal to 0")?;
        let limit = number("limitBytes", 1, "must be greater than 0")?;
        let since_seconds = number("sinceSeconds", 1, "must be greater than 0")?;
        let since_time = match query.get("sinceTime").filter(|text| !text.is_empty()) {
            Some(text) => {
                Some(text.parse::<Timestamp>().map_err(|error| Status::bad_request(error.to_string()))?)
            }
            None => None,
        };
        if since_seconds.is_some() && since_time.is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            causes.push(Cause::forbidden("", why));
        }
        if !causes.is_empty() {
            let about = About { group: "", kind: "PodLogOptions", name: &call.name };
            return Err(Status::invalid(about, &causes));
        }
        let now = call.server.time();
        let since_seconds = since_seconds.map(|seconds| {
            Timestamp::from_second(now.as_second().saturating_sub(seconds)).unwrap_or(Timestamp::MIN)
        });
        Ok(Options {
            follow: query.is_true("follow"),
            previous: query.is_true("previous"),
            timestamps: query.is_true("timestamps"),
            since: since_time.or(since_seconds),
            tail: tail.and_then(|tail| usize::try_from(tail).ok()),
            limit: limit.and_then(|limit| usize::try_from(limit).ok()),
        })
    }

    fn wants(&self, line: &LogLine) -> bool {
        self.since.is_none_or(|since| line.time >= since)
    }

    fn show(&self, line: &LogLine) -> Bytes {
        if self.timestamps {
            // Nine digits, as container runtimes write them.
            return format!("{} {}\n", line.time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ"), line.text).into();
        }
        format!("{}\n", line.text).into()
    }

    /// The part of what is written that was asked for.
    fn selected(&self, written: &[LogLine]) -> Vec<Bytes> {
        let wanted: Vec<&LogLine> = written.iter().filter(|line| self.wants(line)).collect();
        let skipped = self.tail.map_or(0, |tail| wanted.len().saturating_sub(tail));
        wanted[skipped..].iter().map(|line| self.show(line)).collect()
    }
}

pub(super) fn log(call: &Call, incoming: &Incoming) -> Result<Answer, Status> {
    let options = Options::read(call, &incoming.info.query)?;
    let pod = call.stored()?.value();
    let container = container(call, &pod, incoming.info.query.get("container").unwrap_or_default())?;
    if options.previous {
        let message =
            format!("previous terminated container \"{container}\" in pod \"{}\" not found", call.name);
        return Err(Status::bad_request(message));
    }
    let of = LogOf { namespace: &call.namespace, pod: &call.name, container: &container };
    let offered = call.server.logs.as_ref().and_then(|source| source.open(&of));
    let Log { written, coming } = match offered {
        Some(log) => log,
        None => played(call, &pod, &container)?,
    };
    let selected = options.selected(&written);
    if !options.follow {
        let whole: Vec<u8> = selected.concat();
        let length = options.limit.map_or(whole.len(), |limit| limit.min(whole.len()));
        return Ok(Answer::text(StatusCode::OK, Bytes::from(whole).slice(..length)).of_type("text/plain"));
    }
    let limit = options.limit.unwrap_or(usize::MAX);
    let coming = coming.filter_map(move |line| {
        let shown = options.wants(&line).then(|| options.show(&line));
        async move { shown }
    });
    Ok(Answer::stream(limited(stream::iter(selected).chain(coming), limit)).of_type("text/plain"))
}

/// Ends a stream after `limit` bytes, in the middle of a line if need be.
fn limited(
    lines: impl Stream<Item = Bytes> + Send + 'static,
    limit: usize,
) -> impl Stream<Item = Bytes> + Send {
    lines
        .scan(limit, |left, line| {
            let shown = (*left > 0).then(|| line.slice(..line.len().min(*left)));
            *left = left.saturating_sub(line.len());
            async move { shown }
        })
        .boxed()
}

/// The container that is meant; it must exist and have started.
fn container(call: &Call, pod: &Value, asked: &str) -> Result<String, Status> {
    let names = |key: &str| {
        let list = pod["spec"][key].as_array().into_iter().flatten();
        list.map(|container| text(container, "/name").to_owned()).collect::<Vec<_>>()
    };
    let containers = names("containers");
    if asked.is_empty() && containers.len() > 1 {
        let chosen = crate::object::annotation(pod, "kubectl.kubernetes.io/default-container");
        if let Some(name) = chosen.filter(|name| containers.iter().any(|known| known == name)) {
            return Ok(name.to_owned());
        }
        return Err(Status::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            call.name,
            containers.join(" ")
        )));
    }
    let known = containers.iter().chain(&names("initContainers")).any(|name| name == asked);
    match containers.into_iter().next() {
        Some(first) if asked.is_empty() => Ok(first),
        _ if known => Ok(asked.to_owned()),
        _ => Err(Status::bad_request(format!("container {asked} is not valid for pod {}", call.name))),
    }
}

fn container_status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let mut statuses = lists.iter().flat_map(|list| pod["status"][*list].as_array()).flatten();
    statuses.find(|status| text(status, "/name") == container)
}

/// What a played container wrote: that it started, and how it ended.
fn played(call: &Call, pod: &Value, container: &str) -> Result<Log, Status> {
    let nothing = Log { written: Vec::new(), coming: stream::empty().boxed() };
    let Some(status) = container_status(pod, container) else { return Ok(nothing) };
    let reason = text(status, "/state/waiting/reason");
    if !reason.is_empty() && reason != "CrashLoopBackOff" {
        return Err(Status::bad_request(format!(
            "container \"{container}\" in pod \"{}\" is waiting to start: {reason}",
            call.name
        )));
    }
    let time = |path: &str| text(status, path).parse::<Timestamp>().ok();
    let image = text(status, "/image");
    let mut written = Vec::new();
    let started = time("/state/running/startedAt").or(time("/state/terminated/startedAt"));
    if let Some(time) = started {
        written.push(LogLine { time, text: format!("{container}: {image} is simulated, nothing runs here") });
    }
    if let Some(time) = time("/state/terminated/finishedAt") {
        let code = crate::object::integer(status, "/state/terminated/exitCode").unwrap_or(0);
        written.push(LogLine { time, text: format!("{container}: exit code {code}") });
    }
    if reason == "CrashLoopBackOff" {
        let time = text(pod, "/status/startTime").parse().unwrap_or(Timestamp::UNIX_EPOCH);
        written
            .push(LogLine { time, text: format!("{container}: {image} is simulated and was told to crash") });
    }
    let running = status.pointer("/state/running").is_some();
    let coming = if running { until_over(call, container).boxed() } else { stream::empty().boxed() };
    Ok(Log { written, coming })
}

/// Yields nothing, and ends when the container or its pod does.
fn until_over(call: &Call, container: &str) -> impl Stream<Item = LogLine> + Send + use<> {
    let scope = WatchScope::namespace(&call.namespace);
    let since = call.server.store.revision();
    let subscription = call.server.store.watch(&Arc::from("pods"), scope, Some(since)).ok();
    let (key, container) = (format!("{}/{}", call.namespace, call.name), container.to_owned());
    stream::once(async move {
        let Some(mut subscription) = subscription else { return };
        while let Some(change) = subscription.queue.recv().await {
            let gone = change.kind == ChangeKind::Deleted;
            let ended = || {
                let pod = change.object.value();
                container_status(&pod, &container)
                    .is_none_or(|status| status.pointer("/state/running").is_none())
            };
            if *change.object.key == *key && (gone || ended()) {
                return;
            }
        }
    })
    .filter_map(|()| async { None })
}
