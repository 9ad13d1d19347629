//! The report of `flux test`, as text, JSON, JUnit or Markdown.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use super::diff::ObjectChange;
use super::settle::Settled;
use super::warnings::Warning;
use crate::fleet::{Seen, Verdict, draw};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Junit,
    Markdown,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            "junit" => Ok(Format::Junit),
            "markdown" => Ok(Format::Markdown),
            other => Err(format!("--output '{other}' is not one of text, json, junit, markdown")),
        }
    }
}

/// What is to be concluded, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Fine,
    /// Something that is needed for a verdict is not here.
    Unjudged,
    Wrong,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Outcome::Fine => "fine",
            Outcome::Unjudged => "could not be judged",
            Outcome::Wrong => "something is wrong",
        }
    }
}

#[derive(Default)]
pub(super) struct Report {
    pub(super) fleet: String,
    /// About the files, whichever cluster they are for.
    pub(super) warnings: Vec<Warning>,
    pub(super) clusters: Vec<ClusterReport>,
}

pub(super) struct ClusterReport {
    path: String,
    took: Duration,
    /// Objects of Flux, then workloads.
    objects: Vec<Seen>,
    failures: Vec<Failure>,
    pub(super) warnings: Vec<Warning>,
    pub(super) changes: Option<Vec<ObjectChange>>,
}

/// An object that is not as it should be.
struct Failure {
    object: String,
    reason: String,
    message: String,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// The first broken link of a chain.
    Cause,
    /// What it needs could not be fetched from here.
    Missing,
    /// Waits for, or was told by, something that failed.
    Consequence,
}

impl ClusterReport {
    pub(super) fn new(
        path: &str,
        took: Duration,
        flux: Vec<Seen>,
        workloads: Vec<Seen>,
        settled: Settled,
        warnings: Vec<Warning>,
    ) -> Self {
        let mut failures: Vec<Failure> =
            flux.iter().filter_map(|object| judge(object, &flux, &workloads, settled)).collect();
        failures.sort_by(|a, b| a.why.cmp(&b.why).then_with(|| a.object.cmp(&b.object)));
        let objects = flux.into_iter().chain(workloads).collect();
        Self { path: path.to_owned(), took, objects, failures, warnings, changes: None }
    }

    fn outcome(&self) -> Outcome {
        let cycle = self.warnings.iter().any(Warning::is_wrong);
        let caused = self.failures.iter().any(|failure| failure.why == Why::Cause);
        // Consequences without a cause in sight have one that was not recognised.
        let unexplained = self.failures.iter().all(|failure| failure.why == Why::Consequence);
        match self.failures.is_empty() {
            _ if cycle || caused => Outcome::Wrong,
            false if unexplained => Outcome::Wrong,
            false => Outcome::Unjudged,
            true => Outcome::Fine,
        }
    }
}

fn judge(object: &Seen, all: &[Seen], workloads: &[Seen], settled: Settled) -> Option<Failure> {
    let failure = |why, message: String| Failure {
        object: object.id(),
        reason: if object.reason.is_empty() { "Waiting".to_owned() } else { object.reason.clone() },
        message,
        why,
    };
    match object.verdict {
        Verdict::Ready | Verdict::Suspended => None,
        Verdict::Waiting if settled == Settled::Yes => None,
        // The server may be far away, or not to be reached from here at all.
        Verdict::Waiting if SOURCES.contains(&object.kind.as_str()) => {
            Some(failure(Why::Missing, "nothing could be fetched so far".to_owned()))
        }
        Verdict::Waiting => {
            let owned = |seen: &&Seen| seen.owner().as_deref() == Some(&object.id());
            let unready =
                all.iter().chain(workloads).filter(owned).filter(|seen| seen.verdict != Verdict::Ready);
            // What is of Flux has a line of its own.
            let told = |seen: &Seen| match all.iter().any(|other| other.id() == seen.id()) {
                true => seen.id(),
                false => format!("{} ({})", seen.id(), seen.message.trim()),
            };
            let unready: Vec<String> = unready.map(told).collect();
            let flux_below = all.iter().filter(owned).any(|seen| seen.verdict != Verdict::Ready);
            let why = if flux_below { Why::Consequence } else { Why::Cause };
            let message = match unready.is_empty() {
                true => format!("did not become ready: {}", object.message),
                false => format!("did not become ready; it waits for {}", unready.join(", ")),
            };
            Some(failure(why, message))
        }
        Verdict::Failed if is_missing(object) => Some(failure(Why::Missing, object.message.clone())),
        Verdict::Failed if is_consequence(object, all) => {
            Some(failure(Why::Consequence, object.message.clone()))
        }
        Verdict::Failed => Some(failure(Why::Cause, object.message.clone())),
    }
}

/// The kinds that fetch from elsewhere.
const SOURCES: [&str; 6] =
    ["GitRepository", "OCIRepository", "HelmRepository", "HelmChart", "Bucket", "ImageRepository"];

/// A source whose server cannot be reached from here says nothing about the fleet, nor does another cluster.
fn is_missing(object: &Seen) -> bool {
    if object.object.pointer("/spec/kubeConfig").is_some() && object.message.contains("kubeconfig") {
        return true;
    }
    if object.message.contains("offline: ") && !is_told_by_another(object) {
        return true;
    }
    let unreachable = [
        "dns error",
        "error sending request",
        "connection refused",
        "Connect",
        "no such host",
        "timed out",
        "no answer within",
        "network is unreachable",
        // A local copy that has other versions than the one asked for.
        "what stands for",
    ];
    SOURCES.contains(&object.kind.as_str()) && unreachable.iter().any(|text| object.message.contains(text))
}

/// A release repeats what its source says.
fn is_told_by_another(object: &Seen) -> bool {
    matches!(
        object.reason.as_str(),
        "SourceNotReady" | "DependencyNotReady" | "ArtifactFailed" | "HealthCheckFailed"
    )
}

/// Whether it waits for an object of Flux that is itself not ready.
pub(in crate::commands) fn is_consequence(object: &Seen, all: &[Seen]) -> bool {
    if object.reason == "DependencyNotReady" {
        return object.dependencies().iter().any(|id| all.iter().any(|other| other.id() == *id));
    }
    let named = |path: &str| object.object.pointer(path).and_then(Value::as_str);
    let namespace = named("/spec/sourceRef/namespace").or(named("/spec/chartRef/namespace"));
    let namespace = namespace.unwrap_or(&object.namespace);
    let references = [
        (named("/spec/sourceRef/kind"), named("/spec/sourceRef/name")),
        (named("/spec/chartRef/kind"), named("/spec/chartRef/name")),
    ];
    let mut ids: Vec<String> = references
        .into_iter()
        .filter_map(|(kind, name)| Some(format!("{}/{namespace}/{}", kind?, name?)))
        .collect();
    if object.kind == "HelmRelease" && named("/spec/chart/spec/chart").is_some() {
        ids.extend(named("/status/helmChart").map(|chart| format!("HelmChart/{chart}")));
    }
    let mentioned = |other: &&Seen| {
        let id = other.id();
        object.reason == "HealthCheckFailed" && object.message.contains(&id)
    };
    all.iter().any(|other| {
        other.verdict != Verdict::Ready
            && other.id() != object.id()
            && (ids.contains(&other.id()) || mentioned(&other))
    })
}

impl Report {
    pub(super) fn outcome(&self) -> Outcome {
        self.clusters.iter().map(ClusterReport::outcome).max().unwrap_or(Outcome::Fine)
    }

    pub(super) fn write(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => format!("{:#}\n", self.json()),
            Format::Junit => self.junit(),
            Format::Markdown => self.markdown(),
        }
    }

    fn text(&self) -> String {
        let mut out = format!("► {}\n", self.fleet);
        for cluster in &self.clusters {
            let _ = writeln!(out, "\n{} ({:.1} s)", cluster.path, cluster.took.as_secs_f64());
            for line in draw::tree(&cluster.objects, false, &|_| String::new()) {
                let _ = writeln!(out, "  {line}");
            }
            for failure in &cluster.failures {
                let Failure { object, reason, message, why } = failure;
                let mark = match why {
                    Why::Cause => "✗",
                    Why::Missing => "?",
                    Why::Consequence => "·",
                };
                let _ = writeln!(out, "{mark} {object}: {reason}: {}", message.trim());
            }
            for Warning { reason, message } in &cluster.warnings {
                let _ = writeln!(out, "⚠ {reason}: {message}");
            }
            for change in cluster.changes.iter().flatten() {
                let _ = write!(out, "\n► {} {}\n{}", change.id, change.change.as_str(), change.text);
            }
            if cluster.changes.as_ref().is_some_and(Vec::is_empty) {
                let _ = writeln!(out, "no object changes");
            }
        }
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        for Warning { reason, message } in &self.warnings {
            let _ = writeln!(out, "⚠ {reason}: {message}");
        }
        let mark = if self.outcome() == Outcome::Fine { '✔' } else { '✗' };
        let _ = writeln!(out, "\n{mark} {}", self.outcome().as_str());
        out
    }

    fn json(&self) -> Value {
        let clusters: Vec<Value> = self.clusters.iter().map(cluster_json).collect();
        json!({
            "fleet": self.fleet, "outcome": self.outcome().as_str(), "clusters": clusters,
            "warnings": warnings_json(&self.warnings),
        })
    }

    fn junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        for cluster in &self.clusters {
            let bad = cluster.failures.iter().filter(|failure| failure.why != Why::Missing).count();
            let _ = writeln!(
                out,
                "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{bad}\" skipped=\"{}\" time=\"{:.3}\">",
                escaped(&cluster.path),
                cluster.objects.len(),
                cluster.failures.len() - bad,
                cluster.took.as_secs_f64()
            );
            for object in &cluster.objects {
                let id = object.id();
                let failure = cluster.failures.iter().find(|failure| failure.object == id);
                let (kind, name) = (escaped(&object.kind), escaped(&id));
                let Some(failure) = failure else {
                    let _ = writeln!(out, "    <testcase classname=\"{kind}\" name=\"{name}\"/>");
                    continue;
                };
                let (reason, message) = (escaped(&failure.reason), escaped(&failure.message));
                let element = if failure.why == Why::Missing { "skipped" } else { "failure" };
                let _ = writeln!(out, "    <testcase classname=\"{kind}\" name=\"{name}\">");
                let _ = writeln!(out, "      <{element} message=\"{reason}\">{message}</{element}>");
                let _ = writeln!(out, "    </testcase>");
            }
            for Warning { reason, message } in &cluster.warnings {
                let _ = writeln!(out, "    <system-out>{reason}: {}</system-out>", escaped(message));
            }
            out.push_str("  </testsuite>\n");
        }
        out.push_str("</testsuites>\n");
        out
    }

    fn markdown(&self) -> String {
        let mut out = format!("## flux test: {}\n", self.outcome().as_str());
        for cluster in &self.clusters {
            let ready = cluster.objects.iter().filter(|object| object.verdict == Verdict::Ready).count();
            let _ = writeln!(
                out,
                "\n### `{}`\n\n{ready} of {} objects ready",
                cluster.path,
                cluster.objects.len()
            );
            if !cluster.failures.is_empty() {
                out.push_str("\n| object | reason | message |\n| --- | --- | --- |\n");
            }
            for failure in &cluster.failures {
                let cell = |text: &str| text.trim().replace('|', "\\|").replace('\n', "<br>");
                let _ = writeln!(
                    out,
                    "| `{}` | {} | {} |",
                    failure.object,
                    failure.reason,
                    cell(&failure.message)
                );
            }
            if !cluster.warnings.is_empty() {
                out.push('\n');
            }
            for Warning { reason, message } in &cluster.warnings {
                let _ = writeln!(out, "- ⚠ **{reason}**: {message}");
            }
            match cluster.changes.as_deref() {
                None => {}
                Some([]) => out.push_str("\nNo object changes.\n"),
                Some(changes) => {
                    for change in changes {
                        let _ = write!(
                            out,
                            "\n<details><summary><code>{}</code> {}</summary>\n\n```diff\n{}```\n\n</details>\n",
                            change.id,
                            change.change.as_str(),
                            change.text
                        );
                    }
                }
            }
        }
        if !self.warnings.is_empty() {
            out.push('\n');
        }
        for Warning { reason, message } in &self.warnings {
            let _ = writeln!(out, "- ⚠ **{reason}**: {message}");
        }
        out
    }
}

fn cluster_json(cluster: &ClusterReport) -> Value {
    let objects: Vec<Value> = cluster
        .objects
        .iter()
        .map(|object| {
            json!({
                "kind": object.kind, "namespace": object.namespace, "name": object.name,
                "verdict": object.verdict.as_str(), "reason": object.reason, "message": object.message,
                "owner": object.owner(), "revision": object.revision(),
            })
        })
        .collect();
    let failures: Vec<Value> = cluster
        .failures
        .iter()
        .map(|failure| {
            let why = match failure.why {
                Why::Cause => "cause",
                Why::Missing => "missing",
                Why::Consequence => "consequence",
            };
            json!({ "object": failure.object, "reason": failure.reason, "message": failure.message, "why": why })
        })
        .collect();
    let changes: Option<Vec<Value>> = cluster.changes.as_ref().map(|changes| {
        let each = |change: &ObjectChange| {
            json!({ "object": change.id, "change": change.change.as_str(), "diff": change.text })
        };
        changes.iter().map(each).collect()
    });
    json!({
        "path": cluster.path, "outcome": cluster.outcome().as_str(), "seconds": cluster.took.as_secs_f64(),
        "objects": objects, "failures": failures, "warnings": warnings_json(&cluster.warnings),
        "changes": changes,
    })
}

fn warnings_json(warnings: &[Warning]) -> Value {
    warnings.iter().map(|warning| json!({ "reason": warning.reason, "message": warning.message })).collect()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to say most control characters.
            control if control.is_control() && !matches!(control, '\n' | '\t') => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}
