//! Staged server-side apply: a whole stage passes dry-run before its first write, and only what drifted is written.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::Value;

use crate::authors::{self, ForeignField};
use crate::changes::Changes;
use crate::discovery::{self, Mapper};
use crate::drift::{self, has_drifted};
use crate::fingerprint::{Fingerprint, Ours};
use crate::health::{Status, judge};
use crate::ignore::{self, IgnoreRules};
use crate::managers;
use crate::object::{ObjectId, is_marked};
use crate::order::{Stage, apply_order, stages};

const GROUP: &str = "kustomize.toolkit.fluxcd.io";
/// How long a stage waits for its CRDs and namespaces.
const STAGE_WAIT: Duration = Duration::from_secs(60);
const STAGE_POLL: Duration = Duration::from_millis(100);

/// A cluster as one identity sees it.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub mapper: Arc<Mapper>,
    /// Word of changes, whoever looks.
    pub changes: Arc<Changes>,
}

impl Cluster {
    pub fn new(client: Client) -> Self {
        let mapper = Arc::new(Mapper::new(client.clone()));
        let changes = Arc::new(Changes::new(client.clone(), mapper.clone()));
        Self { client, mapper, changes }
    }

    /// The same cluster, as somebody else sees it.
    pub fn seen_by(&self, client: Client) -> Self {
        Self { client, mapper: self.mapper.clone(), changes: self.changes.clone() }
    }

    pub(crate) async fn api(&self, id: &ObjectId) -> Result<Api<DynamicObject>, Cause> {
        self.mapper.api(&self.client, id).await.map_err(|error| match error {
            discovery::Error::NoSuchKind { .. } => Cause::NoSuchKind(error.to_string()),
            discovery::Error::Failed(_) => Cause::Unknown(error.to_string()),
        })
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
    /// Fields that somebody else looks after.
    pub ignore: IgnoreRules,
    /// Rewrite managed fields to the version that is applied, before anything else.
    pub migrate_api_version: bool,
    /// What need not be looked at again.
    pub verified: Verified,
    /// Also what is verified is tried: somebody asked how things are.
    pub try_all: bool,
    /// Nothing is written unless all of the set passes dry-run, as far as that can be known beforehand.
    pub all_or_nothing: bool,
}

/// What is known of an object in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub fingerprint: Fingerprint,
    /// Of all that can drift.
    pub content: u64,
}

impl Known {
    fn of(object: &Value, ours: &Ours<'_>) -> Option<Self> {
        let fingerprint = Fingerprint::of_value(object, ours)?;
        Some(Self { fingerprint, content: drift::content(object) })
    }

    /// Whether this answer to a dry-run says that the object is the one that is known, and would stay as it is. The
    /// version of an answer is that of the object which is there.
    fn is_confirmed_by(&self, dry_run: &Value) -> bool {
        let version = dry_run.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        version.and_then(|version| version.parse().ok()) == Some(self.fingerprint.version)
            && drift::content(dry_run) == self.content
    }
}

type IsVerified = dyn Fn(&ObjectId, &Value) -> Option<Known> + Send + Sync;

/// Tells of an object and its manifest whether the cluster is known to hold just that: then it is not even tried.
#[derive(Clone, Default)]
pub struct Verified(Option<Arc<IsVerified>>);

impl Verified {
    pub fn by(is_verified: impl Fn(&ObjectId, &Value) -> Option<Known> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_verified)))
    }

    fn of(&self, id: &ObjectId, manifest: &Value) -> Option<Known> {
        self.0.as_ref()?(id, manifest)
    }
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Verified({})", self.0.is_some())
    }
}

impl Options {
    /// As `manager`, with nothing special.
    pub fn new(manager: impl Into<String>) -> Self {
        Self {
            manager: manager.into(),
            force: false,
            concurrent: 4,
            custom_stages: Vec::new(),
            override_managers: Vec::new(),
            ignore: IgnoreRules::default(),
            migrate_api_version: false,
            verified: Verified::default(),
            try_all: false,
            all_or_nothing: false,
        }
    }

    fn ours(&self) -> Ours<'_> {
        Ours { manager: &self.manager, override_managers: &self.override_managers, labels: GROUP }
    }
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
    /// What the object is like now; not for what was skipped or deleted.
    pub known: Option<Known>,
    /// What was there before it was configured.
    pub found: Option<Found>,
}

impl Change {
    pub fn new(id: ObjectId, action: Action) -> Self {
        Self { id, action, known: None, found: None }
    }
}

/// An object as it was before an apply changed it.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Namespace and name of the Kustomization that its labels named.
    pub owner: Option<(String, String)>,
    pub fields: Vec<ForeignField>,
    /// Fields that are not named one by one.
    pub more: usize,
}

/// Why the API server would not do something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Cause {
    #[error("{message}")]
    Refused { code: u16, reason: String, message: String },
    #[error("{0}")]
    NoSuchKind(String),
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
            Cause::NoSuchKind(_) | Cause::Unknown(_) => false,
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
    if options.all_or_nothing {
        let mut identified = identified.clone();
        // Namespaces before what is in them.
        identified.sort_by(|(a, _), (b, _)| apply_order(a, b));
        let errors = rehearse(cluster, &identified, options).await;
        if !errors.is_empty() {
            return Err(Error { errors, changes });
        }
    }
    // A HelmRelease may bring the kinds that others in the set are of, but only after it was applied.
    let may_bring_kinds = identified.iter().any(|(id, _)| id.kind == "HelmRelease");
    let mut deferred = Vec::new();
    for mut stage in stages(identified, &options.custom_stages) {
        if may_bring_kinds {
            deferred.append(&mut set_aside_unknown(cluster, &mut stage).await);
        }
        if let Err(errors) = apply_stage(cluster, stage, options, &mut changes).await {
            return Err(Error { errors, changes });
        }
    }
    if deferred.is_empty() {
        return Ok(changes);
    }
    Err(Error { errors: deferred, changes })
}

/// Tries the whole set. What only its own CRDs and Namespaces make possible cannot be tried yet.
async fn rehearse(cluster: &Cluster, set: &[(ObjectId, Value)], options: &Options) -> Vec<String> {
    let mut coming = BTreeSet::new();
    let mut errors = Vec::new();
    for (id, object) in set {
        let is_namespace = id.kind == "Namespace" && id.group.is_empty();
        if is_namespace && matches!(cluster.get(id).await, Ok(None)) {
            coming.insert(id.name.clone());
        }
        let unknown = matches!(cluster.mapper.resource(id).await, Err(discovery::Error::NoSuchKind { .. }));
        let is_defined = unknown && set.iter().any(|(_, other)| defines_kind(other, id));
        if is_defined || coming.contains(&id.namespace) {
            continue;
        }
        if let Err(error) = examine(cluster, &mut id.clone(), object, options).await {
            errors.push(error);
        }
    }
    errors
}

/// Takes objects out of the stage whose kind the server does not know; a line about each.
async fn set_aside_unknown(cluster: &Cluster, stage: &mut Stage) -> Vec<String> {
    let (mut known, mut lines) = (Vec::new(), Vec::new());
    for (id, object) in std::mem::take(&mut stage.objects) {
        match cluster.mapper.resource(&id).await {
            Err(discovery::Error::NoSuchKind { .. }) => lines.push(format!(
                "{id} deferred: no matches for kind \"{}\" in version \"{}\"; a HelmRelease of the same set may bring it",
                id.kind,
                id.api_version()
            )),
            _ => known.push((id, object)),
        }
    }
    stage.objects = known;
    lines
}

/// The ids under which `objects` will be known: an object of the whole cluster has no namespace, whatever its
/// manifest says. Kinds that the server does not know yet are looked up among the CRDs in the set.
pub async fn identities(cluster: &Cluster, objects: &[Value]) -> Vec<ObjectId> {
    let mut ids: Vec<ObjectId> = objects.iter().filter_map(ObjectId::of).collect();
    for id in ids.iter_mut().filter(|id| !id.namespace.is_empty()) {
        let namespaced = match cluster.mapper.resource(id).await {
            Ok((_, namespaced)) => namespaced,
            Err(_) => !objects.iter().any(|object| defines_cluster_kind(object, id)),
        };
        if !namespaced {
            id.namespace = String::new();
        }
    }
    ids
}

fn defines_cluster_kind(object: &Value, id: &ObjectId) -> bool {
    let scope = object.pointer("/spec/scope").and_then(Value::as_str);
    defines_kind(object, id) && scope == Some("Cluster")
}

fn defines_kind(object: &Value, id: &ObjectId) -> bool {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    text("/kind") == "CustomResourceDefinition"
        && text("/spec/group") == id.group
        && text("/spec/names/kind") == id.kind
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
    Configure {
        /// Patches to metadata that come first: fields taken over, stale annotations.
        patches: Vec<Value>,
        /// What is applied instead of the manifest, where fields are ignored.
        payload: Option<Value>,
        found: Found,
    },
    /// Cannot be changed in place and may be recreated.
    Recreate,
    Unchanged(Option<Known>),
    Skip,
}

async fn apply_stage(
    cluster: &Cluster,
    stage: Stage,
    options: &Options,
    changes: &mut Vec<Change>,
) -> Result<(), Vec<String>> {
    let examined: Vec<(ObjectId, Value, Result<Verdict, String>)> = futures::stream::iter(stage.objects)
        .map(|(mut id, object)| async move {
            let verdict = examine(cluster, &mut id, &object, options).await;
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
        let (action, known) =
            carry_out(cluster, &id, &object, &verdict, options).await.map_err(|error| vec![error])?;
        let found = match verdict {
            Verdict::Configure { found, .. } => Some(found),
            _ => None,
        };
        changes.push(Change { id: id.clone(), action, known, found });
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

/// Finds out what is to be done with an object, without a write. `id` loses a namespace that its kind has not.
async fn examine(
    cluster: &Cluster,
    id: &mut ObjectId,
    object: &Value,
    options: &Options,
) -> Result<Verdict, String> {
    let (_, namespaced) = cluster
        .mapper
        .resource(id)
        .await
        .map_err(|error| refusal(id, "dry-run failed", &Cause::Unknown(error.to_string())))?;
    if namespaced && id.namespace.is_empty() {
        return Err(format!(
            "{id} namespace not specified: the server could not find the requested resource"
        ));
    }
    if !namespaced {
        id.namespace = String::new();
    }
    let id = &*id;
    if is_left_alone(object) {
        return Ok(Verdict::Skip);
    }
    let known = options.verified.of(id, object);
    if known.is_some() && !options.try_all {
        return Ok(Verdict::Unchanged(known));
    }
    // The answer to a dry-run says whether the object exists, so what is new needs no look beforehand.
    let dry_run = write(cluster, id, object, options, true).await;
    if let Ok(result) = &dry_run
        && result.pointer("/metadata/resourceVersion").is_none()
    {
        return Ok(Verdict::Create);
    }
    // The answer says as well whether it is still what is known of it, so that need not be read again.
    if let (Some(known), Ok(result)) = (known, &dry_run)
        && known.is_confirmed_by(result)
    {
        return Ok(Verdict::Unchanged(Some(known)));
    }
    let failed = |cause: Cause| refusal(id, "dry-run failed", &cause);
    let live = match (cluster.get(id).await, &dry_run) {
        (Ok(Some(live)), _) => live,
        (Ok(None), Ok(_)) => return Ok(Verdict::Create),
        (Ok(None), Err(cause)) => return Err(failed(cause.clone())),
        (Err(_), Err(cause)) => return Err(failed(cause.clone())),
        (Err(cause), Ok(_)) => return Err(failed(cause)),
    };
    judge_existing(cluster, id, object, &live, dry_run, options).await
}

async fn judge_existing(
    cluster: &Cluster,
    id: &ObjectId,
    object: &Value,
    live: &Value,
    dry_run: Result<Value, Cause>,
    options: &Options,
) -> Result<Verdict, String> {
    if is_left_alone(live) || is_for_once(object) {
        return Ok(Verdict::Skip);
    }
    let ssa = format!("{GROUP}/ssa");
    let failed = |cause: Cause| refusal(id, "dry-run failed", &cause);
    let migration = managers::migrate(live, &id.api_version()).filter(|_| options.migrate_api_version);
    let dry_run = match (dry_run, &migration) {
        // The old entries may be why it failed; it is tried again after they were rewritten.
        (Err(_), Some(patch)) => {
            patch_metadata(cluster, id, patch, options).await.map_err(failed)?;
            write(cluster, id, object, options, true).await
        }
        (dry_run, _) => dry_run,
    };
    let dry_run = match dry_run {
        Ok(dry_run) => dry_run,
        Err(cause) if cause.is_immutable() && may_recreate(object, live, options) => {
            return Ok(Verdict::Recreate);
        }
        Err(cause) => return Err(failed(cause)),
    };
    let mut patches: Vec<Value> = migration.into_iter().collect();
    if !is_marked(object, &ssa, "Merge") && !is_marked(live, &ssa, "Merge") {
        patches.extend(managers::take_over(live, &options.manager, &options.override_managers));
    }
    let ignored = options.ignore.of(&dry_run);
    let drifted = if ignored.is_empty() {
        has_drifted(live, &dry_run)
    } else {
        has_drifted(&ignore::without(live, &ignored), &ignore::without(&dry_run, &ignored))
    };
    if patches.is_empty() && !drifted {
        return Ok(Verdict::Unchanged(Known::of(live, &options.ours())));
    }
    let payload =
        (!ignored.is_empty()).then(|| ignore::adopted(object, live, &dry_run, &ignored, &options.manager));
    let found = found(live, &dry_run, drifted, options);
    Ok(Verdict::Configure { patches, payload, found })
}

fn found(live: &Value, dry_run: &Value, drifted: bool, options: &Options) -> Found {
    let label = |name: &str| {
        live.get("metadata")?.get("labels")?.get(format!("{GROUP}/{name}"))?.as_str().map(str::to_owned)
    };
    let (mut fields, more) =
        if drifted { authors::foreign_fields(live, dry_run, &options.manager) } else { (Vec::new(), 0) };
    if fields.is_empty() {
        let also = &options.override_managers;
        fields = authors::taken_over(live, |name, operation| {
            managers::takes_over_from(name, operation, &options.manager, also)
        });
    }
    Found { owner: label("namespace").zip(label("name")), fields, more }
}

fn is_left_alone(object: &Value) -> bool {
    is_marked(object, &format!("{GROUP}/reconcile"), "disabled")
        || is_marked(object, &format!("{GROUP}/ssa"), "Ignore")
}

/// Such an object is ours only while it is made.
fn is_for_once(object: &Value) -> bool {
    is_marked(object, &format!("{GROUP}/ssa"), "IfNotPresent")
}

fn may_recreate(object: &Value, live: &Value, options: &Options) -> bool {
    let force = format!("{GROUP}/force");
    options.force || is_marked(object, &force, "enabled") || is_marked(live, &force, "enabled")
}

async fn patch_metadata(
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
) -> Result<(Action, Option<Known>), String> {
    let failed = |cause: Cause| refusal(id, "apply failed", &cause);
    let made = |action: Action, result: &Value| {
        (action, Known::of(result, &options.ours()).filter(|_| !is_for_once(object)))
    };
    match verdict {
        Verdict::Skip => Ok((Action::Skipped, None)),
        Verdict::Unchanged(known) => Ok((Action::Unchanged, *known)),
        Verdict::Create => {
            let result = write(cluster, id, object, options, false).await.map_err(failed)?;
            Ok(made(Action::Created, &result))
        }
        Verdict::Configure { patches, payload, .. } => {
            clean_metadata(cluster, id, patches, options)
                .await
                .map_err(|cause| refusal(id, "metadata.managedFields cleanup failed", &cause))?;
            let payload = payload.as_ref().unwrap_or(object);
            let result = write(cluster, id, payload, options, false).await.map_err(failed)?;
            Ok(made(Action::Configured, &result))
        }
        Verdict::Recreate => {
            delete_and_wait(cluster, id).await.map_err(failed)?;
            let result = write(cluster, id, object, options, false).await.map_err(failed)?;
            Ok(made(Action::Created, &result))
        }
    }
}

/// Each patch names the resource version it was made for; the second is made anew for what the first left.
async fn clean_metadata(
    cluster: &Cluster,
    id: &ObjectId,
    patches: &[Value],
    options: &Options,
) -> Result<(), Cause> {
    let Some(first) = patches.first() else { return Ok(()) };
    let live = patch_metadata(cluster, id, first, options).await?;
    if patches.len() > 1
        && let Some(next) = managers::take_over(&live, &options.manager, &options.override_managers)
    {
        patch_metadata(cluster, id, &next, options).await?;
    }
    Ok(())
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
        Cause::NoSuchKind(message) | Cause::Unknown(message) => format!("{id} {what}: {message}"),
    }
}

pub(crate) fn to_value(object: &DynamicObject) -> Value {
    // What came in as JSON goes out as JSON.
    serde_json::to_value(object).unwrap_or_default()
}
