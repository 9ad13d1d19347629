//! Does what a plan of the `helm` crate says, step by step, and keeps what was achieved when a step fails.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_apply::apply::Cause;
use flux_apply::{Cluster, KnownKinds, ObjectId};
use helm::plan::{
    Applying, How, Live, Object, ObjectKey, Patch as HelmPatch, PatchType, Plan, Propagation, Record, Step,
};
use helm::release::{Release, Status};
use kube::api::{
    Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy, ValidationDirective,
};
use serde_json::{Value, json as literal};

use super::MANAGER;
use super::fault::Fault;
use super::storage::{Records, Storage};
use super::wait::{Subject, Waiter};
use crate::reconcile::Worker;

/// What an action works with.
pub struct Executor<'a> {
    pub cluster: &'a Cluster,
    pub kinds: &'a KnownKinds,
    pub storage: &'a Storage,
    pub worker: &'a Worker,
    pub waiter: Waiter<'a>,
    pub timeout: Duration,
    /// How the server treats fields it does not know.
    pub validation: Validation,
    /// Whether something newer ends a wait for readiness.
    pub cancel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    Strict,
    Warn,
}

/// What became of a plan.
pub struct Outcome {
    /// Records in the order they were last written.
    pub written: Vec<Release>,
    pub deleted: Vec<i64>,
    pub fault: Option<Fault>,
}

impl Outcome {
    /// A plan that failed before its first step.
    pub fn refused(fault: Fault) -> Self {
        Self { written: Vec::new(), deleted: Vec::new(), fault: Some(fault) }
    }

    fn wrote(&mut self, release: &Release) {
        self.written.retain(|known| known.version != release.version);
        self.written.push(release.clone());
    }
}

/// A plan under way.
struct Progress<'p> {
    plan: &'p mut Plan,
    records: &'p mut Records,
    live: &'p Live,
    versions: BTreeMap<ObjectKey, String>,
    /// Objects as the server answered: what is ready by then is not asked for again.
    answers: BTreeMap<ObjectKey, Value>,
    outcome: Outcome,
}

impl Executor<'_> {
    pub async fn run(&self, mut plan: Plan, records: &mut Records, live: &Live, known: &[Object]) -> Outcome {
        let mut versions: BTreeMap<ObjectKey, String> =
            known.iter().map(|object| (object.key.clone(), object.api_version.clone())).collect();
        for step in &plan.steps {
            if let Step::Apply(applying) = step {
                versions.insert(applying.object.key.clone(), applying.object.api_version.clone());
            }
        }
        let outcome = Outcome { written: Vec::new(), deleted: Vec::new(), fault: None };
        let mut progress =
            Progress { plan: &mut plan, records, live, versions, answers: BTreeMap::new(), outcome };
        for at in 0..progress.plan.steps.len() {
            let step = progress.plan.steps[at].clone();
            if let Err(fault) = self.step(&step, &mut progress).await {
                let text = fault.message.clone();
                progress.outcome.fault = Some(fault.prefixed(&failed_hooks(&progress, &step)));
                for step in progress.plan.failed(at, &text).steps {
                    // The first problem is the one to report.
                    if let Err(second) = self.step(&step, &mut progress).await {
                        tracing::warn!(problem = second.message, "cleaning up after a failure failed, too");
                    }
                }
                break;
            }
        }
        progress.outcome
    }

    async fn step(&self, step: &Step, progress: &mut Progress<'_>) -> Result<(), Fault> {
        match step {
            Step::CreateNamespace(name) => self.create_namespace(name).await,
            // CRDs are the controller's business, by the policy of the spec, before the plan begins.
            Step::CreateCrds(_) => Ok(()),
            Step::Record(record) => self.record(record, progress).await,
            Step::Hooks(run) => {
                let (plan, records) = (&mut *progress.plan, &mut *progress.records);
                let result = self.hooks(run, &mut plan.release, records).await;
                progress.outcome.wrote(&progress.plan.release);
                result
            }
            Step::Apply(applying) => {
                if let Some(answer) = self.apply(applying, progress.live).await? {
                    progress.answers.insert(applying.object.key.clone(), without_managers(answer));
                }
                Ok(())
            }
            Step::Delete { object, propagation } => {
                let id = self.id(object, &progress.versions);
                self.delete(&id, *propagation).await
            }
            Step::Wait { objects, jobs } => {
                let subjects = self.subjects(objects, progress);
                let wait = self.waiter.until_ready(self.cluster, subjects, *jobs, self.timeout);
                self.worker
                    .outside(async {
                        tokio::select! {
                            result = wait => result,
                            () = self.worker.preempted(), if self.cancel => Err(Fault {
                                message: "health checks canceled".to_owned(),
                                transient: true,
                                canceled: true,
                                ..Fault::default()
                            }),
                        }
                    })
                    .await
            }
            Step::WaitForDeletion(objects) => {
                let ids: Vec<ObjectId> = objects.iter().map(|key| self.id(key, &progress.versions)).collect();
                self.worker.outside(self.waiter.until_gone(self.cluster, &ids, self.timeout)).await
            }
        }
    }

    async fn record(&self, record: &Record, progress: &mut Progress<'_>) -> Result<(), Fault> {
        let stored = |progress: &Progress<'_>, version: i64| progress.records.history.get(version).cloned();
        match record {
            Record::Create => {
                self.storage.create(&progress.plan.release, progress.records).await?;
                progress.records.put(&progress.plan.release);
                progress.outcome.wrote(&progress.plan.release.clone());
            }
            Record::Update => {
                self.storage.update(&progress.plan.release, progress.records).await?;
                progress.records.put(&progress.plan.release);
                progress.outcome.wrote(&progress.plan.release.clone());
            }
            Record::Mark { status, description } => {
                progress.plan.release.info.status = *status;
                if let Some(description) = description {
                    progress.plan.release.info.description.clone_from(description);
                }
            }
            Record::Supersede(version) => {
                let Some(mut release) = stored(progress, *version) else { return Ok(()) };
                release.info.status = Status::Superseded;
                self.storage.update(&release, progress.records).await?;
                progress.records.put(&release);
                progress.outcome.wrote(&release);
            }
            // Stored again unchanged, it would only cost a write.
            Record::Refresh(version) => {
                if let Some(release) = stored(progress, *version) {
                    progress.outcome.wrote(&release);
                }
            }
            Record::Delete(versions) => {
                for version in versions {
                    self.storage.delete(&progress.plan.release.name, *version).await?;
                    progress.records.forget(*version);
                    progress.outcome.deleted.push(*version);
                }
                if progress.plan.release.info.status == Status::Uninstalled {
                    progress.outcome.wrote(&progress.plan.release.clone());
                }
            }
        }
        Ok(())
    }

    async fn create_namespace(&self, name: &str) -> Result<(), Fault> {
        let object = literal!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": { "name": name } },
        });
        let id = ObjectId::of(&object).expect("it has a kind and a name");
        match self.create(&id, &object).await {
            Ok(_) | Err(Cause::Refused { code: 409, .. }) => Ok(()),
            Err(cause) => Err(Fault::of(&cause, format!("create: failed to create: {cause}"))),
        }
    }

    /// Creates or changes one object; how it is then, if the server had to be asked.
    async fn apply(&self, applying: &Applying, live: &Live) -> Result<Option<Value>, Fault> {
        let Applying { object, how } = applying;
        let id = id_of(object);
        let existing = live.get(&object.key);
        let result = match how {
            How::Unchanged => Ok(existing.cloned()),
            How::Create => self.create(&id, &placed(object)).await.map(Some),
            How::ServerSide { force_conflicts, .. } => {
                self.take_and_apply(&id, &placed(object), *force_conflicts).await.map(Some)
            }
            How::Patch(patch) => self.patch(&id, patch).await.map(Some),
            How::Replace => self.replace(&id, &placed(object), existing).await.map(Some),
        };
        result.map_err(|cause| refused(&id, how, &cause))
    }

    pub async fn create(&self, id: &ObjectId, object: &Value) -> Result<Value, Cause> {
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        Ok(json(&self.api(id).await?.create(&parameters, &dynamic(object)?).await?))
    }

    /// Applies, and takes over what was set by updates or by real helm: those fields become ones that were applied, or
    /// they could never be removed. Whether there are any shows in the answer, so most objects cost one request.
    async fn take_and_apply(&self, id: &ObjectId, object: &Value, force: bool) -> Result<Value, Cause> {
        let answer = self.apply_server_side(id, object, force).await?;
        let Some(patch) = super::managers::hand_over(&answer, &[]) else {
            return Ok(answer);
        };
        self.patch_managers(id, patch).await?;
        self.apply_server_side(id, object, force).await
    }

    pub(super) async fn patch_managers(&self, id: &ObjectId, patch: Value) -> Result<(), Cause> {
        let patch: json_patch::Patch =
            serde_json::from_value(patch).map_err(|error| Cause::Unknown(error.to_string()))?;
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.api(id).await?.patch(&id.name, &parameters, &Patch::<()>::Json(patch)).await?;
        Ok(())
    }

    pub async fn apply_server_side(
        &self,
        id: &ObjectId,
        object: &Value,
        force: bool,
    ) -> Result<Value, Cause> {
        if id.name.is_empty() {
            return self.create(id, object).await;
        }
        let parameters = PatchParams {
            force,
            field_manager: Some(MANAGER.to_owned()),
            field_validation: Some(match self.validation {
                Validation::Strict => ValidationDirective::Strict,
                Validation::Warn => ValidationDirective::Warn,
            }),
            ..PatchParams::default()
        };
        Ok(json(&self.api(id).await?.patch(&id.name, &parameters, &Patch::Apply(object)).await?))
    }

    async fn patch(&self, id: &ObjectId, patch: &HelmPatch) -> Result<Value, Cause> {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api(id).await?;
        let answer = match patch.kind {
            PatchType::Strategic => api.patch(&id.name, &parameters, &Patch::Strategic(&patch.body)).await?,
            PatchType::Merge => api.patch(&id.name, &parameters, &Patch::Merge(&patch.body)).await?,
        };
        Ok(json(&answer))
    }

    pub(super) async fn replace(
        &self,
        id: &ObjectId,
        object: &Value,
        existing: Option<&Value>,
    ) -> Result<Value, Cause> {
        let mut object = object.clone();
        if let Some(version) = existing.and_then(|live| live.pointer("/metadata/resourceVersion")) {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        Ok(json(&self.api(id).await?.replace(&id.name, &parameters, &dynamic(&object)?).await?))
    }

    pub async fn delete(&self, id: &ObjectId, propagation: Propagation) -> Result<(), Fault> {
        let policy = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Orphan => PropagationPolicy::Orphan,
        };
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = async {
            self.api(id).await?.delete(&id.name, &parameters).await?;
            Ok(())
        };
        match deleted.await {
            Ok(()) | Err(Cause::Refused { code: 404, .. }) => Ok(()),
            // Its kind is gone, and it with its kind.
            Err(Cause::Unknown(message)) if message.starts_with("no matches for kind") => Ok(()),
            Err(cause) => Err(Fault::of(
                &cause,
                format!(
                    "failed to delete resource namespace={}, name={}, kind={}: {cause}",
                    id.namespace, id.name, id.kind
                ),
            )),
        }
    }

    pub async fn api(&self, id: &ObjectId) -> Result<Api<DynamicObject>, Cause> {
        let found = self.cluster.mapper.api(&self.cluster.client, id).await;
        found.map_err(|error| Cause::Unknown(error.to_string()))
    }

    /// Plans name objects without their version; any that is served will do.
    pub fn id(&self, key: &ObjectKey, versions: &BTreeMap<ObjectKey, String>) -> ObjectId {
        let version = match versions.get(key) {
            Some(api_version) => api_version.rsplit('/').next().unwrap_or_default().to_owned(),
            None => self.kinds.version_of(&key.group, &key.kind).unwrap_or_else(|| "v1".to_owned()),
        };
        ObjectId {
            group: key.group.clone(),
            version,
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
    }

    /// The answers are used up: while waiting, nothing is kept that can be asked for again.
    fn subjects(&self, keys: &[ObjectKey], progress: &mut Progress<'_>) -> Vec<Subject> {
        let mut answers = std::mem::take(&mut progress.answers);
        let applied: BTreeMap<&ObjectKey, &Object> = progress
            .plan
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Apply(applying) => Some((&applying.object.key, &applying.object)),
                _ => None,
            })
            .collect();
        let mut subject = |key: &ObjectKey| {
            let id = self.id(key, &progress.versions);
            let manifest = applied.get(key).map(|object| &object.json);
            (!id.name.is_empty()).then(|| Subject::new(id, manifest).seen(answers.remove(key)))
        };
        keys.iter().filter_map(&mut subject).collect()
    }
}

/// The words Helm puts before what went wrong in hooks; descriptions of records have their own.
fn failed_hooks(progress: &Progress<'_>, step: &Step) -> String {
    let Step::Hooks(run) = step else {
        return String::new();
    };
    match progress.plan.operation {
        helm::plan::Operation::Install => format!("failed {}: ", run.event.name()),
        helm::plan::Operation::Upgrade => format!("{} hooks failed: ", run.event.name()),
        _ => String::new(),
    }
}

pub fn id_of(object: &Object) -> ObjectId {
    ObjectId {
        group: object.key.group.clone(),
        version: object.api_version.rsplit('/').next().unwrap_or_default().to_owned(),
        kind: object.key.kind.clone(),
        namespace: object.key.namespace.clone(),
        name: object.key.name.clone(),
    }
}

/// The object with the namespace it goes to.
pub fn placed(object: &Object) -> Value {
    let mut json = object.json.clone();
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        if object.key.namespace.is_empty() {
            metadata.remove("namespace");
        } else {
            metadata.insert("namespace".to_owned(), Value::String(object.key.namespace.clone()));
        }
    }
    json
}

/// Who set which field is most of an answer, and nothing that readiness depends on.
fn without_managers(mut answer: Value) -> Value {
    if let Some(metadata) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    answer
}

fn dynamic(object: &Value) -> Result<DynamicObject, Cause> {
    serde_json::from_value(object.clone()).map_err(|error| Cause::Unknown(error.to_string()))
}

/// In Helm's words. What the server says of a Secret may quote it, so only the reason is told.
pub fn refused(id: &ObjectId, how: &How, cause: &Cause) -> Fault {
    let place = format!("{}/{} {}/{}, Kind={}", id.namespace, id.name, id.group, id.version, id.kind);
    let said = match cause {
        Cause::Refused { reason, .. } if id.kind == "Secret" && id.group.is_empty() => {
            format!("{reason}: the details are withheld since they may show the Secret")
        }
        cause => cause.to_string(),
    };
    let text = match (how, cause) {
        (How::ServerSide { .. }, Cause::Refused { code: 409, reason, .. }) if reason == "Conflict" => {
            format!("conflict occurred while applying object {place}: {said}")
        }
        (How::ServerSide { .. }, _) => format!("server-side apply failed for object {place}: {said}"),
        (How::Create, _) => format!("failed to create resource: {said}"),
        (How::Replace, _) => format!("failed to replace object: {said}"),
        (How::Patch(_) | How::Unchanged, _) => {
            format!("cannot patch \"{}\" with kind {}: {said}", id.name, id.kind)
        }
    };
    Fault::of(cause, text)
}

fn json(object: &DynamicObject) -> Value {
    // What came in as JSON goes out as JSON.
    serde_json::to_value(object).unwrap_or_default()
}
