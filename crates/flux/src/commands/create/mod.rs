//! `flux create`: makes or changes an object, or prints it with `--export`.
//!
//! Each kind turns its flags into a spec; writing it, waiting for it and the lines in between are here, once.

mod applier;
mod image;
mod key_pair;
mod labels;
mod notification;
mod secret;
mod source;
mod tenant;

pub(super) use secret::{apply as apply_secret, key_secret, registry_secret, untyped as plain_secret};

use flux_api::duration::GoDuration;
use flux_api::kinds as api;
use serde_json::{Map, Value, json};

use crate::error::{CliError, fail};
use crate::kinds::{self, Kind, text};
use crate::output;
use crate::readiness;
use crate::session::{self, Session};
use crate::tree::Invocation;

pub(crate) async fn run(run: &Invocation) -> Result<(), CliError> {
    let name = run.name().ok_or_else(|| fail!("name is required"))?;
    if !is_object_name(name) {
        return Err(fail!(
            "name '{name}' is invalid, it should adhere to standard defined in RFC 1123, the name can only contain alphanumeric characters or '-'"
        ));
    }
    match run.row.path {
        "create tenant" => tenant::run(run).await,
        path if path.starts_with("create secret ") => secret::run(run).await,
        path => {
            let kind = kinds::of_path(path).ok_or_else(|| fail!("`flux {path}` is not available"))?;
            create(run, kind, name).await
        }
    }
}

/// Two to 63 of `a-z0-9-`, not starting or ending with a hyphen.
fn is_object_name(name: &str) -> bool {
    name.len() >= 2 && session::is_dns_label(name)
}

async fn create(run: &Invocation, kind: &'static Kind, name: &str) -> Result<(), CliError> {
    let words = Words::of(kind);
    let export = run.is("export");
    let spec = spec(run, kind)?;
    if !export && words.generates {
        output::generating(&format!("generating {}", words.noun));
    }
    let mut object = object(run, kind, name, spec)?;
    if export {
        return output::export(&object);
    }
    let session = Session::open(run).await?;
    if let Some(secret) = source::credentials(run, kind, name).await? {
        output::action(&format!("applying secret with {}", words.credentials));
        secret::apply(&session, &secret).await?;
        object["spec"]["secretRef"] = json!({ "name": secret["metadata"]["name"] });
        if run.is("pass-credentials") {
            object["spec"]["passCredentials"] = true.into();
        }
        output::success("authentication configured");
    }
    output::action(&format!("applying {}", words.noun));
    let created = session.upsert(kind.api, &object).await?;
    output::success(&format!("{} {}", words.written, if created { "created" } else { "updated" }));
    output::waiting(&format!("waiting for {} reconciliation", words.noun));
    let ready = if kind.is_static(&object) { readiness::is_current } else { readiness::is_ready };
    let object = readiness::until(&session, kind, name, ready).await?;
    done(kind, &words, name, &object)
}

fn spec(run: &Invocation, kind: &Kind) -> Result<Value, CliError> {
    let mut spec = match kind.words {
        "source git" => source::git(run),
        "source oci" => source::oci(run),
        "source helm" => source::helm(run),
        "source chart" => source::chart(run),
        "source bucket" => source::bucket(run),
        "kustomization" => applier::kustomization(run),
        "helmrelease" => applier::helm_release(run),
        "alert" => notification::alert(run),
        "alert-provider" => notification::provider(run),
        "receiver" => notification::receiver(run),
        "image repository" => image::repository(run),
        "image policy" => image::policy(run),
        "image update" => image::update(run),
        words => Err(fail!("`flux create {words}` is not available")),
    }?;
    // In values a null says something: it takes a chart's default away.
    let values = spec.get_mut("values").map(Value::take).filter(|values| !values.is_null());
    let mut spec = without_nulls(spec);
    if let Some(values) = values {
        spec["values"] = values;
    }
    Ok(spec)
}

fn object(run: &Invocation, kind: &Kind, name: &str, spec: Value) -> Result<Value, CliError> {
    let labels = labels::of(run)?;
    let mut metadata = json!({"name": name, "namespace": session::namespace(run)?});
    if !labels.is_empty() {
        metadata["labels"] = labels.into();
    }
    Ok(json!({
        "apiVersion": kind.api.api_version(),
        "kind": kind.api.kind,
        "metadata": metadata,
        "spec": spec,
    }))
}

/// How each kind is spoken of; the differences are upstream's.
struct Words {
    noun: String,
    written: String,
    credentials: &'static str,
    generates: bool,
}

impl Words {
    fn of(kind: &Kind) -> Words {
        let name = kind.api.kind;
        let is_source = kind.api.group == api::SOURCE_GROUP && *kind.api != api::OCI_REPOSITORY;
        let noun = if is_source { format!("{name} source") } else { name.to_owned() };
        let written = if [api::HELM_REPOSITORY, api::HELM_CHART].contains(kind.api) {
            "source".to_owned()
        } else {
            noun.clone()
        };
        let credentials =
            if *kind.api == api::BUCKET { "the bucket credentials" } else { "repository credentials" };
        // One says nothing, the others have said it on the way, before all was checked.
        let silent = [api::OCI_REPOSITORY, api::HELM_CHART, api::KUSTOMIZATION, api::HELM_RELEASE];
        let generates = !silent.contains(kind.api);
        Words { noun, written, credentials, generates }
    }
}

/// The last lines: that it is done, and what came of it.
fn done(kind: &Kind, words: &Words, name: &str, object: &Value) -> Result<(), CliError> {
    if kind.api.group == api::SOURCE_GROUP {
        output::success(&format!("{} reconciliation completed", words.noun));
        return fetched(kind, words, object);
    }
    if kind.api.group == api::IMAGE_GROUP {
        output::success(&format!("{} reconciliation completed", words.noun));
        return Ok(());
    }
    output::success(&format!("{} {name} is ready", words.noun));
    match kind.words {
        "kustomization" | "helmrelease" => output::success(&kind.success(object)),
        "receiver" => {
            output::success(&format!("generated webhook URL {}", text(object, "/status/webhookPath")))
        }
        _ => {}
    }
    Ok(())
}

fn fetched(kind: &Kind, words: &Words, object: &Value) -> Result<(), CliError> {
    if kind.is_static(object) {
        return Ok(());
    }
    match object.pointer("/status/artifact/revision").and_then(Value::as_str) {
        Some(revision) => output::success(&format!("fetched revision: {revision}")),
        None if *kind.api == api::OCI_REPOSITORY => return Err(fail!("no artifact was found")),
        None => return Err(fail!("{} reconciliation completed but no artifact was found", words.noun)),
    }
    Ok(())
}

/// The text of a flag; null when empty, so that the field is left out.
fn text_of(run: &Invocation, flag: &str) -> Value {
    run.some(flag).map_or(Value::Null, Into::into)
}

/// True, or nothing.
fn true_of(run: &Invocation, flag: &str) -> Value {
    if run.is(flag) { true.into() } else { Value::Null }
}

/// A duration, or nothing when it is zero.
fn duration_of(run: &Invocation, flag: &str) -> Value {
    let duration = run.duration(flag);
    if duration.to_std().is_zero() { Value::Null } else { duration.to_string().into() }
}

/// The same where upstream writes down also what is less than nothing.
fn signed_duration_of(run: &Invocation, flag: &str) -> Value {
    let duration = run.duration(flag);
    if duration == GoDuration::ZERO { Value::Null } else { duration.to_string().into() }
}

/// `{name: …}`, or nothing.
fn reference_of(run: &Invocation, flag: &str) -> Value {
    run.some(flag).map_or(Value::Null, |name| json!({ "name": name }))
}

/// The list, or nothing when it is empty.
fn list_of(run: &Invocation, flag: &str) -> Value {
    let list = run.list(flag);
    if list.is_empty() { Value::Null } else { list.into() }
}

/// `[namespace/]name` references.
fn depends_on(run: &Invocation) -> Value {
    let list: Vec<Value> = run
        .list("depends-on")
        .iter()
        .map(|text| match text.split_once('/') {
            Some((namespace, name)) => json!({"name": name, "namespace": namespace}),
            None => json!({ "name": text }),
        })
        .collect();
    if list.is_empty() { Value::Null } else { list.into() }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn read(file: &str, what: &str) -> Result<String, CliError> {
    std::fs::read_to_string(file).map_err(|error| fail!("{what}: open {file}: {}", go_error(&error)))
}

/// As Go tells it, without the number.
pub(super) fn go_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}
