//! One row per kind the command line speaks of: its words, its columns, what it says when it is done. Every verb reads it.

use flux_api::kinds::{self, Kind as ApiKind};
use flux_api::names::{SUSPEND_REASON, SUSPEND_UNTIL};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::output::short_digests;

/// One kind.
pub(crate) struct Kind {
    pub(crate) api: &'static ApiKind,
    /// Its words behind every verb but `get`.
    pub(crate) words: &'static str,
    /// Its words behind `get`.
    pub(crate) get_words: &'static str,
    /// As progress lines say it.
    pub(crate) human: &'static str,
    columns: &'static [Column],
    /// What is told when it has reconciled.
    done: Done,
    /// Has no reconciler: what `get` shows as its Ready message.
    always: Option<&'static str>,
}

/// What `get` shows about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    ArtifactRevision,
    ChartRevision,
    AppliedRevision,
    ReleaseRevision,
    /// Only with `--show-source`.
    SourceRef,
    ExternalSource,
    LastScan,
    LastRun,
    Image,
    Tag,
    Suspended,
}

#[derive(Debug, Clone, Copy)]
enum Done {
    Fetched,
    Applied,
    Released,
    Scanned,
    Selected,
    ReadyMessage,
    Completed,
}

const SOURCE: &[Column] = &[Column::ArtifactRevision, Column::Suspended];

macro_rules! kind {
    ($api:ident, $words:literal, $get:literal, $human:literal, $columns:expr, $done:ident) => {
        kind!($api, $words, $get, $human, $columns, $done, None)
    };
    ($api:ident, $words:literal, $get:literal, $human:literal, $columns:expr, $done:ident, $always:expr) => {
        Kind {
            api: &kinds::$api,
            words: $words,
            get_words: $get,
            human: $human,
            columns: $columns,
            done: Done::$done,
            always: $always,
        }
    };
}

/// In the order of `get all`.
pub(crate) static ALL: &[Kind] = &[
    kind!(OCI_REPOSITORY, "source oci", "sources oci", "source oci", SOURCE, Fetched),
    kind!(BUCKET, "source bucket", "sources bucket", "source bucket", SOURCE, Fetched),
    kind!(GIT_REPOSITORY, "source git", "sources git", "source git", SOURCE, Fetched),
    kind!(HELM_REPOSITORY, "source helm", "sources helm", "source helm", SOURCE, Fetched),
    kind!(
        HELM_CHART,
        "source chart",
        "sources chart",
        "source chart",
        &[Column::ChartRevision, Column::Suspended],
        Fetched
    ),
    kind!(
        EXTERNAL_ARTIFACT,
        "source external",
        "sources external",
        "source external-artifact",
        &[Column::ArtifactRevision, Column::ExternalSource],
        Fetched
    ),
    kind!(
        IMAGE_REPOSITORY,
        "image repository",
        "images repository",
        "image repository",
        &[Column::LastScan, Column::Suspended],
        Scanned
    ),
    kind!(
        IMAGE_POLICY,
        "image policy",
        "images policy",
        "image policy",
        &[Column::Image, Column::Tag],
        Selected
    ),
    kind!(
        IMAGE_UPDATE_AUTOMATION,
        "image update",
        "images update",
        "image update automation",
        &[Column::LastRun, Column::Suspended],
        ReadyMessage
    ),
    kind!(
        HELM_RELEASE,
        "helmrelease",
        "helmreleases",
        "helmrelease",
        &[Column::SourceRef, Column::ReleaseRevision, Column::Suspended],
        Released
    ),
    kind!(
        KUSTOMIZATION,
        "kustomization",
        "kustomizations",
        "kustomization",
        &[Column::SourceRef, Column::AppliedRevision, Column::Suspended],
        Applied
    ),
    kind!(RECEIVER, "receiver", "receivers", "receiver", &[Column::Suspended], Completed),
    kind!(
        PROVIDER,
        "alert-provider",
        "alert-providers",
        "alert provider",
        &[],
        Completed,
        Some("Provider is Ready")
    ),
    kind!(ALERT, "alert", "alerts", "alert", &[Column::Suspended], Completed, Some("Alert is Ready")),
    kind!(
        ARTIFACT_GENERATOR,
        "artifact generator",
        "artifacts generators",
        "artifactgenerator",
        &[Column::Suspended],
        ReadyMessage
    ),
];

/// The kind a command's path ends with: `reconcile source git`, `get sources git`.
pub(crate) fn of_path(path: &str) -> Option<&'static Kind> {
    let (verb, words) = path.split_once(' ')?;
    ALL.iter().find(|kind| if verb == "get" { kind.get_words == words } else { kind.words == words })
}

/// The kind that a person calls `ks`, `kustomization`, `Kustomization` or `kustomizations`.
pub(crate) fn by_word(word: &str) -> Option<&'static Kind> {
    let word = word.to_lowercase();
    ALL.iter().find(|kind| {
        let api = kind.api;
        api.kind.to_lowercase() == word
            || api.singular == word
            || api.plural == word
            || api.short_names.contains(&word.as_str())
    })
}

/// The row of an API kind.
pub(crate) fn of_api(api: &ApiKind) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.api == api)
}

/// What `get` is asked to show.
pub(crate) struct View {
    pub(crate) namespace: bool,
    /// `gitrepository/app` instead of `app`, where several kinds are listed.
    pub(crate) with_kind: bool,
    pub(crate) source: bool,
}

impl Kind {
    pub(crate) fn headers(&self, view: &View) -> Vec<String> {
        let mut headers: Vec<&str> = Vec::new();
        if view.namespace {
            headers.push("Namespace");
        }
        headers.push("Name");
        headers.extend(self.columns(view).map(Column::header));
        headers.extend(["Ready", "Message"]);
        headers.into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn row(&self, object: &Value, view: &View) -> Vec<String> {
        let mut row = Vec::new();
        if view.namespace {
            row.push(namespace(object).to_owned());
        }
        let name = name(object);
        row.push(if view.with_kind { format!("{}/{name}", self.api.singular) } else { name.to_owned() });
        row.extend(self.columns(view).map(|column| column.cell(object)));
        let (status, message) = self.status(object);
        row.extend([status, message]);
        row
    }

    fn columns<'a>(&'a self, view: &'a View) -> impl Iterator<Item = Column> + 'a {
        self.columns.iter().copied().filter(|column| *column != Column::SourceRef || view.source)
    }

    fn status(&self, object: &Value) -> (String, String) {
        if let Some(message) = self.always {
            return ("True".to_owned(), message.to_owned());
        }
        if self.is_static(object) {
            return ("True".to_owned(), "Helm repository is Ready".to_owned());
        }
        let Some(ready) = condition(object, "Ready") else {
            return ("False".to_owned(), "waiting to be reconciled".to_owned());
        };
        let message = text(ready, "/message");
        let message = if self.shortens() { short_digests(message) } else { message.to_owned() };
        (text(ready, "/status").to_owned(), message)
    }

    /// Sources and Kustomizations cut digests in what they say; the others never did.
    fn shortens(&self) -> bool {
        self.api.group == kinds::SOURCE_GROUP || self.api.group == kinds::KUSTOMIZE_GROUP
    }

    /// Nothing reconciles it: alerts, providers, and Helm repositories that are registries.
    pub(crate) fn is_static(&self, object: &Value) -> bool {
        self.always.is_some() || (*self.api == kinds::HELM_REPOSITORY && text(object, "/spec/type") == "oci")
    }

    /// Whether a condition has the status, case aside. Kinds without conditions count as ready.
    pub(crate) fn matches(&self, object: &Value, kind: &str, status: &str) -> bool {
        if self.always.is_some() {
            return kind.eq_ignore_ascii_case("ready") && status.eq_ignore_ascii_case("true");
        }
        let found =
            conditions(object).filter(|condition| text(condition, "/type").eq_ignore_ascii_case(kind)).last();
        found.is_some_and(|condition| text(condition, "/status").eq_ignore_ascii_case(status))
    }

    /// What is told when it has reconciled.
    pub(crate) fn success(&self, object: &Value) -> String {
        let ready = || condition(object, "Ready").map(|ready| text(ready, "/message").to_owned());
        match self.done {
            Done::Fetched if self.is_static(object) => ready().unwrap_or_default(),
            Done::Fetched => format!("fetched revision {}", text(object, "/status/artifact/revision")),
            Done::Applied => format!("applied revision {}", text(object, "/status/lastAppliedRevision")),
            Done::Released => format!("applied revision {}", release_revision(object)),
            Done::Scanned => {
                let count = object.pointer("/status/lastScanResult/tagCount").and_then(Value::as_i64);
                format!("scan fetched {} tags", count.unwrap_or_default())
            }
            Done::Selected => format!("selected ref {}", latest_ref(object)),
            Done::ReadyMessage => ready().unwrap_or_else(|| "automation not yet run".to_owned()),
            Done::Completed => format!("{} reconciliation completed", self.api.kind),
        }
    }
}

impl Column {
    fn header(self) -> &'static str {
        match self {
            Column::ArtifactRevision
            | Column::ChartRevision
            | Column::AppliedRevision
            | Column::ReleaseRevision => "Revision",
            Column::SourceRef | Column::ExternalSource => "Source",
            Column::LastScan => "Last scan",
            Column::LastRun => "Last run",
            Column::Image => "Image",
            Column::Tag => "Tag",
            Column::Suspended => "Suspended",
        }
    }

    fn cell(self, object: &Value) -> String {
        match self {
            Column::ArtifactRevision => short_digests(text(object, "/status/artifact/revision")),
            // A chart's revision is a version, whatever it may look like.
            Column::ChartRevision => text(object, "/status/artifact/revision").to_owned(),
            Column::AppliedRevision => short_digests(text(object, "/status/lastAppliedRevision")),
            Column::ReleaseRevision => release_revision(object).to_owned(),
            Column::SourceRef => source_ref(object),
            Column::ExternalSource => external_source(object),
            Column::LastScan => local_time(text(object, "/status/lastScanResult/scanTime")),
            Column::LastRun => local_time(text(object, "/status/lastAutomationRunTime")),
            Column::Image => text(object, "/status/latestRef/name").to_owned(),
            Column::Tag => text(object, "/status/latestRef/tag").to_owned(),
            Column::Suspended => suspended(object),
        }
    }
}

/// Whether an object is suspended; behind it until when and why, where somebody has said so.
fn suspended(object: &Value) -> String {
    if !is_suspended(object) {
        return "False".to_owned();
    }
    let (reason, until) = (annotation(object, SUSPEND_REASON), annotation(object, SUSPEND_UNTIL));
    let until = if until.is_empty() { String::new() } else { format!("until {}", local_time(until)) };
    let notes: Vec<&str> = [until.as_str(), reason].into_iter().filter(|note| !note.is_empty()).collect();
    if notes.is_empty() { "True".to_owned() } else { format!("True ({})", notes.join(": ")) }
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(name)).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a JSON pointer, or nothing.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).find(|condition| text(condition, "/type") == kind)
}

pub(crate) fn is_suspended(object: &Value) -> bool {
    let annotation = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(flux_api::names::ARTIFACT_GENERATOR_RECONCILE))
        .and_then(Value::as_str);
    object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false)
        || annotation.is_some_and(|value| value.eq_ignore_ascii_case(flux_api::names::DISABLED))
}

/// The newest version in the history, else the last one tried.
pub(crate) fn release_revision(object: &Value) -> &str {
    match object.pointer("/status/history/0") {
        Some(newest) => text(newest, "/chartVersion"),
        None => text(object, "/status/lastAttemptedRevision"),
    }
}

fn latest_ref(object: &Value) -> String {
    let (name, tag, digest) = (
        text(object, "/status/latestRef/name"),
        text(object, "/status/latestRef/tag"),
        text(object, "/status/latestRef/digest"),
    );
    if digest.is_empty() { format!("{name}:{tag}") } else { format!("{name}:{tag}@{digest}") }
}

fn source_ref(object: &Value) -> String {
    let reference = ["/spec/sourceRef", "/spec/chartRef", "/spec/chart/spec/sourceRef"]
        .iter()
        .find_map(|pointer| object.pointer(pointer));
    let Some(reference) = reference else { return String::new() };
    let own = namespace(object);
    let namespace =
        Some(text(reference, "/namespace")).filter(|namespace| !namespace.is_empty()).unwrap_or(own);
    format!("{}/{namespace}/{}", text(reference, "/kind"), text(reference, "/name"))
}

fn external_source(object: &Value) -> String {
    object.pointer("/spec/sourceRef").map_or_else(String::new, |reference| {
        format!("{}/{}/{}", text(reference, "/kind"), text(reference, "/namespace"), text(reference, "/name"))
    })
}

/// A time of the API in the zone of whoever reads it.
pub(crate) fn local_time(text: &str) -> String {
    let Ok(moment) = text.parse::<Timestamp>() else { return text.to_owned() };
    let local = moment.to_zoned(TimeZone::system());
    let zone = if local.offset().is_zero() { "Z".to_owned() } else { local.strftime("%:z").to_string() };
    format!("{}{zone}", local.strftime("%Y-%m-%dT%H:%M:%S"))
}
