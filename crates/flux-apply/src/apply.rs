//! Staged server-side apply: a whole stage passes dry-run before its first write, and only what drifted is written.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::Value;

use crate::discovery::Mapper;
use crate::drift::has_drifted;
use crate::health::{Status, judge};
use crate::managers;
use crate::object::{ObjectId, is_marked};
use crate::order::{Stage, stages};

const GROUP: &str = "kustomize.toolkit.fluxcd.io";
/// How long a stage waits for its CRDs and namespaces.
const STAGE_WAIT: Duration = Duration::from_secs(60);
const STAGE_POLL: Duration = Duration::from_millis(100);

/// A cluster as one identity sees it.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub mapper: Arc<Mapper>,
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        Self { mapper: Arc::new(Mapper::new(client.clone())), client }
    }

    pub(crate) async fn api(&self, id: &ObjectId) -> Result<Api<DynamicObject>, Cause> {
        self.mapper.api(&self.client, id).await.map_err(|error| Cause::Unknown(error.to_string()))
    }

    /// The object as it is now; `None` when it is not there.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, Cause> {
        match self.api(id).await?.get(&id.name).await {
            Ok(object) => Ok(Some(to_value(&object))),
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(None),
            Err(error) => Err(Cause::from(error)),
        }
    }
}

/// How to apply.
#[derive(Clone, Debug)]
pub struct Options {
    pub manager: String,
    /// Delete and create again what cannot be changed in place.
    pub force: bool,
    /// Dry-runs in flight.
    pub concurrent: usize,
    /// Kinds that get a stage of their own, as (group, kind).
    pub custom_stages: Vec<(String, String)>,
    /// Prefixes of managers whose fields are taken over besides kubectl's.
    pub override_managers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Created,
    Configured,
    Unchanged,
    /// An annotation says to leave it alone.
    Skipped,
    Deleted,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Created => "created",
            Action::Configured => "configured",
            Action::Unchanged => "unchanged",
            Action::Skipped => "skipped",
            Action::Deleted => "deleted",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Change {
    pub id: ObjectId,
    pub action: Action,
}

/// Why the API server would not do something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Cause {
    #[error("{message}")]
    Refused { code: u16, reason: String, message: String },
    #[error("{0}")]
    Unknown(String),
}

impl From<kube::Error> for Cause {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(answer) => Cause::Refused {
                code: answer.code,
                reason: answer.reason.clone(),
                message: answer.message.clone(),
            },
            error => Cause::Unknown(error.to_string()),
        }
    }
}

impl Cause {
    fn is_immutable(&self) -> bool {
        match self {
            Cause::Refused { code, message, .. } => {
                matches!(code, 409 | 422)
                    || message.contains("is immutable")
                    || message.contains("immutable field")
            }
            Cause::Unknown(_) => false,
        }
    }
}

/// An apply that stopped; what was changed before is not undone and not forgotten.
#[derive(Debug, thiserror::Error)]
#[error("{}", .errors.join("\n"))]
pub struct Error {
    /// One line for every object that was refused.
    pub errors: Vec<String>,
    pub changes: Vec<Change>,
}

/// Applies `objects`; says what became of each.
pub async fn apply(cluster: &Cluster, objects: Vec<Value>, options: &Options) -> Result<Vec<Change>, Error> {
    let mut changes = Vec::new();
    let identified = identify(objects).map_err(|errors| Error { errors, changes: Vec::new() })?;
    for stage in stages(identified, &options.custom_stages) {
        if let Err(errors) = apply_stage(cluster, stage, options, &mut changes).await {
            return Err(Error { errors, changes });
        }
    }
    Ok(changes)
}

fn identify(objects: Vec<Value>) -> Result<Vec<(ObjectId, Value)>, Vec<String>> {
    let mut errors = Vec::new();
    let mut identified = Vec::new();
    for object in objects {
        match ObjectId::of(&object) {
            Some(id) => identified.push((id, object)),
            None => errors.push("an object without apiVersion, kind or name cannot be applied".to_owned()),
        }
    }
    if errors.is_empty() { Ok(identified) } else { Err(errors) }
}

/// What a dry-run found out about an object.
enum Verdict {
    Create,
    Configure,
    /// Cannot be changed in place and may be recreated.
    Recreate,
    Unchanged {
        touched: bool,
    },
    Skip,
}

async fn apply_stage(
    cluster: &Cluster,
    stage: Stage,
    options: &Options,
    changes: &mut Vec<Change>,
) -> Result<(), Vec<String>> {
    let examined: Vec<(ObjectId, Value, Result<Verdict, String>)> = futures::stream::iter(stage.objects)
        .map(|(id, object)| async move {
            let verdict = examine(cluster, &id, &object, options).await;
            (id, object, verdict)
        })
        .buffered(options.concurrent.max(1))
        .collect()
        .await;
    // All of a stage's problems at once, and none of its writes before all of it was accepted.
    let errors: Vec<String> =
        examined.iter().filter_map(|(_, _, verdict)| verdict.as_ref().err().cloned()).collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut written = Vec::new();
    for (id, object, verdict) in examined {
        let Ok(verdict) = verdict else { continue };
        let action =
            carry_out(cluster, &id, &object, &verdict, options).await.map_err(|error| vec![error])?;
        changes.push(Change { id: id.clone(), action });
        if matches!(action, Action::Created | Action::Configured) {
            written.push(id);
        }
    }
    if written.iter().any(|id| id.kind == "CustomResourceDefinition") {
        cluster.mapper.invalidate().await;
    }
    if stage.wait && !written.is_empty() {
        wait_for_stage(cluster, &written).await.map_err(|error| vec![error])?;
    }
    Ok(())
}

async fn examine(
    cluster: &Cluster,
    id: &ObjectId,
    object: &Value,
    options: &Options,
) -> Result<Verdict, String> {
    let failed = |cause: Cause| refusal(id, "dry-run failed", &cause);
    let (_, namespaced) =
        cluster.mapper.resource(id).await.map_err(|error| failed(Cause::Unknown(error.to_string())))?;
    if namespaced && id.namespace.is_empty() {
        return Err(format!(
            "{id} namespace not specified: the server could not find the requested resource"
        ));
    }
    let mut live = cluster.get(id).await.map_err(failed)?;
    if is_left_alone(object) || live.as_ref().is_some_and(is_left_alone) {
        return Ok(Verdict::Skip);
    }
    let if_not_present = is_marked(object, &format!("{GROUP}/ssa"), "IfNotPresent");
    if if_not_present && live.is_some() {
        return Ok(Verdict::Skip);
    }
    let mut touched = false;
    if let Some(found) = &live
        && !is_marked(object, &format!("{GROUP}/ssa"), "Merge")
        && let Some(patch) = managers::take_over(found, &options.manager, &options.override_managers)
    {
        live = Some(take_over(cluster, id, &patch, options).await.map_err(failed)?);
        touched = true;
    }
    match (write(cluster, id, object, options, true).await, &live) {
        (Ok(_), None) => Ok(Verdict::Create),
        (Ok(result), Some(live)) if has_drifted(live, &result) => Ok(Verdict::Configure),
        (Ok(_), Some(_)) => Ok(Verdict::Unchanged { touched }),
        (Err(cause), Some(live)) if cause.is_immutable() && may_recreate(object, live, options) => {
            Ok(Verdict::Recreate)
        }
        (Err(cause), _) => Err(failed(cause)),
    }
}

fn is_left_alone(object: &Value) -> bool {
    is_marked(object, &format!("{GROUP}/reconcile"), "disabled")
        || is_marked(object, &format!("{GROUP}/ssa"), "Ignore")
}

fn may_recreate(object: &Value, live: &Value, options: &Options) -> bool {
    let force = format!("{GROUP}/force");
    options.force || is_marked(object, &force, "enabled") || is_marked(live, &force, "enabled")
}

async fn take_over(
    cluster: &Cluster,
    id: &ObjectId,
    patch: &Value,
    options: &Options,
) -> Result<Value, Cause> {
    let patch: json_patch::Patch =
        serde_json::from_value(patch.clone()).map_err(|error| Cause::Unknown(error.to_string()))?;
    let parameters = PatchParams { field_manager: Some(options.manager.clone()), ..PatchParams::default() };
    let taken = cluster.api(id).await?.patch(&id.name, &parameters, &Patch::<()>::Json(patch)).await?;
    Ok(to_value(&taken))
}

async fn carry_out(
    cluster: &Cluster,
    id: &ObjectId,
    object: &Value,
    verdict: &Verdict,
    options: &Options,
) -> Result<Action, String> {
    let failed = |cause: Cause| refusal(id, "apply failed", &cause);
    match verdict {
        Verdict::Skip => Ok(Action::Skipped),
        Verdict::Unchanged { touched: false } => Ok(Action::Unchanged),
        Verdict::Unchanged { touched: true } => Ok(Action::Configured),
        Verdict::Create => {
            write(cluster, id, object, options, false).await.map(|_| Action::Created).map_err(failed)
        }
        Verdict::Configure => {
            write(cluster, id, object, options, false).await.map(|_| Action::Configured).map_err(failed)
        }
        Verdict::Recreate => {
            delete_and_wait(cluster, id).await.map_err(failed)?;
            write(cluster, id, object, options, false).await.map(|_| Action::Created).map_err(failed)
        }
    }
}

async fn write(
    cluster: &Cluster,
    id: &ObjectId,
    object: &Value,
    options: &Options,
    dry_run: bool,
) -> Result<Value, Cause> {
    let parameters = PatchParams {
        dry_run,
        force: true,
        field_manager: Some(options.manager.clone()),
        ..PatchParams::default()
    };
    let result = cluster.api(id).await?.patch(&id.name, &parameters, &Patch::Apply(object)).await?;
    Ok(to_value(&result))
}

async fn delete_and_wait(cluster: &Cluster, id: &ObjectId) -> Result<(), Cause> {
    let api = cluster.api(id).await?;
    match api.delete(&id.name, &DeleteParams::background()).await {
        Err(kube::Error::Api(answer)) if answer.code != 404 => return Err(kube::Error::Api(answer).into()),
        Err(error @ kube::Error::Auth(_)) => return Err(error.into()),
        _ => {}
    }
    let gone = async {
        while cluster.get(id).await?.is_some() {
            tokio::time::sleep(STAGE_POLL).await;
        }
        Ok(())
    };
    let timed_out = || Cause::Unknown("the old object has not gone away".to_owned());
    tokio::time::timeout(STAGE_WAIT, gone).await.map_err(|_| timed_out())?
}

async fn wait_for_stage(cluster: &Cluster, written: &[ObjectId]) -> Result<(), String> {
    let ready = futures::stream::iter(written).map(Ok).try_for_each_concurrent(8, |id| async move {
        loop {
            let live = cluster.get(id).await.map_err(|cause| refusal(id, "could not be read", &cause))?;
            let now = k8s_openapi::jiff::Timestamp::now().as_second();
            match live.map(|live| judge(&live, now)) {
                Some(health) if health.status == Status::Current => return Ok(()),
                Some(health) if health.status == Status::Failed => {
                    return Err(format!("{id} failed: {}", health.message));
                }
                _ => tokio::time::sleep(STAGE_POLL).await,
            }
        }
    });
    match tokio::time::timeout(STAGE_WAIT, ready).await {
        Ok(result) => result,
        Err(_) => {
            let names: Vec<String> = written.iter().map(ToString::to_string).collect();
            Err(format!("timeout waiting for: [{}]", names.join(", ")))
        }
    }
}

/// One line about a refused object. What the server says of a Secret may quote it, so only the reason is told.
fn refusal(id: &ObjectId, what: &str, cause: &Cause) -> String {
    match cause {
        Cause::Refused { reason, .. } if id.kind == "Secret" && id.group.is_empty() => {
            format!("{id} {what} ({reason}): the details are withheld since they may show the Secret")
        }
        Cause::Refused { code: 404, message, .. } => format!("{id} not found: {message}"),
        Cause::Refused { reason, message, .. } if !reason.is_empty() => {
            format!("{id} {what} ({reason}): {message}")
        }
        Cause::Refused { message, .. } => format!("{id} {what}: {message}"),
        Cause::Unknown(message) => format!("{id} {what}: {message}"),
    }
}

pub(crate) fn to_value(object: &DynamicObject) -> Value {
    // What came in as JSON goes out as JSON.
    serde_json::to_value(object).unwrap_or_default()
}
