//! Kustomization: build what the source holds, apply it, prune what is gone, check its health.
//!
//! Reads and writes await; decisions do not. What was achieved is kept in `status` even when a later step
//! fails, so the next run picks up from the truth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use file_tree::Files;
use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::condition::{self, ConditionStatus, HEALTHY, READY, RECONCILING, STALLED};
use flux_api::duration::GoDuration;
use flux_api::kinds::{self, Kind};
use flux_api::kustomize::{DeletionPolicy, Kustomization, KustomizationStatus};
use flux_api::meta::{ConfigKind, Inventory as StatusInventory, InventoryEntry};
use flux_api::names::{FINALIZER, RECONCILE_REQUEST};
use flux_api::revision::Revision;
use flux_api::time::Time;
use flux_apply::health::{Status as Health, judge};
use flux_apply::{Action, Change, Inventory, ObjectId, Owner};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::history::{self, Outcome};
use super::observe::{NotReady, SourceKey, artifact, dependents_care_about, unready_dependency};
use super::{Context, manifests};
use crate::artifact::fetch;
use crate::reconcile::events::Happening;
use crate::reconcile::{
    Cache, Cause, Conditions, Next, ObjectKey, Queue, Reconcile, Severity, Worker, impersonate, jittered,
    status,
};

const KIND: &Kind = &kinds::KUSTOMIZATION;
const MANAGER: &str = "kustomize-controller";
const STATUS_MANAGER: &str = "gotk-kustomize-controller";
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a wait looks at an object before it looks again.
const HEALTH_POLL: Duration = Duration::from_millis(500);

pub struct Kustomizations {
    pub ctx: Arc<Context>,
}

/// Why a reconcile stopped, one variant for each reason users see.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("Source '{0}' not found")]
    SourceMissing(SourceKey),
    #[error("Source artifact not found, retrying in {0}")]
    NoArtifact(GoDuration),
    #[error("Source is not ready, artifact not found, retrying in {0}")]
    ArtifactGone(GoDuration),
    #[error("{0}")]
    Fetch(String),
    #[error("can't access '{0}', cross-namespace references have been blocked")]
    AccessDenied(String),
    #[error("{0}")]
    Dependency(NotReady),
    #[error("{0}")]
    Build(String),
    #[error("{0}")]
    Apply(String),
    #[error("{0}")]
    Prune(String),
    #[error("{0}")]
    Unhealthy(String),
    #[error("New reconciliation triggered")]
    Preempted,
}

impl Failure {
    fn reason(&self) -> &'static str {
        match self {
            Failure::SourceMissing(_)
            | Failure::NoArtifact(_)
            | Failure::ArtifactGone(_)
            | Failure::Fetch(_) => "ArtifactFailed",
            Failure::AccessDenied(_) => "AccessDenied",
            Failure::Dependency(_) => "DependencyNotReady",
            Failure::Build(_) => "BuildFailed",
            Failure::Apply(_) => "ReconciliationFailed",
            Failure::Prune(_) => "PruneFailed",
            Failure::Unhealthy(_) => "HealthCheckFailed",
            Failure::Preempted => "HealthCheckCanceled",
        }
    }

    fn is_final(&self) -> bool {
        matches!(self, Failure::AccessDenied(_))
    }

    /// The results that `.status.history` keeps.
    fn is_remembered(&self) -> bool {
        matches!(self, Failure::Apply(_) | Failure::Prune(_) | Failure::Unhealthy(_))
    }
}

impl Reconcile for Kustomizations {
    fn kind(&self) -> &'static Kind {
        KIND
    }

    fn reconcile(self: Arc<Self>, raw: Arc<DynamicObject>, worker: Worker) -> BoxFuture<'static, Next> {
        Box::pin(async move {
            let object: Kustomization = match crate::reconcile::decode(&raw) {
                Ok(object) => object,
                Err(problem) => {
                    self.tell(
                        &raw,
                        Severity::Error,
                        "Failed",
                        format!("the object cannot be read: {problem}"),
                        None,
                    );
                    return Next::OnChange;
                }
            };
            if object.is_deleting() {
                return self.finalize(&raw, &object, &worker).await;
            }
            if !raw.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
                return self.add_finalizer(&raw).await;
            }
            self.work(&raw, &object, &worker).await
        })
    }
}

/// Wakes Kustomizations when their source has another artifact and when what they depend on becomes ready.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    for kind in [&kinds::GIT_REPOSITORY, &kinds::OCI_REPOSITORY, &kinds::BUCKET, &kinds::EXTERNAL_ARTIFACT] {
        let (queue, lookup) = (queue.clone(), Arc::downgrade(cache));
        cache.listen(kind, move |change| {
            let revision = |object: &Option<Arc<DynamicObject>>| {
                object.as_deref().and_then(artifact).map(|a| a.revision)
            };
            let new = revision(&change.new);
            if new.is_none() || new == revision(&change.old) {
                return;
            }
            let Some(cache) = lookup.upgrade() else { return };
            wake(&cache, &queue, |object| {
                SourceKey::primary(object)
                    .is_some_and(|source| source.key == change.key && source.kind.as_str() == kind.kind)
            });
        });
    }
    let (queue, lookup) = (queue.clone(), Arc::downgrade(cache));
    cache.listen(KIND, move |change| {
        let Some(new) = &change.new else { return };
        let before = change.old.as_deref().map(dependents_care_about);
        if before == Some(dependents_care_about(new)) {
            return;
        }
        let Some(cache) = lookup.upgrade() else { return };
        wake(&cache, &queue, |object| {
            object.spec.depends_on.iter().any(|dependency| {
                let namespace = dependency.namespace.as_deref().unwrap_or_else(|| Object::namespace(object));
                dependency.name == change.key.name && namespace == change.key.namespace
            }) && waits_for_dependency(object)
        });
    });
}

fn waits_for_dependency(object: &Kustomization) -> bool {
    condition::find(object.conditions(), READY).is_none_or(|ready| ready.reason == "DependencyNotReady")
}

fn wake(cache: &Cache, queue: &Queue, wanted: impl Fn(&Kustomization) -> bool) {
    for raw in cache.list(KIND) {
        if let Ok(object) = crate::reconcile::decode::<Kustomization>(&raw)
            && wanted(&object)
        {
            queue.add(ObjectKey::of(&raw), Cause::Change);
        }
    }
}

/// One run: the object, what it looked like, what it becomes.
struct Run<'a> {
    raw: &'a DynamicObject,
    object: &'a Kustomization,
    worker: &'a Worker,
    /// What the server has.
    written: KustomizationStatus,
    status: KustomizationStatus,
    started: Instant,
    /// Digest of what was built, once it was.
    digest: Option<String>,
    artifact: Option<Artifact>,
}

impl Run<'_> {
    fn conditions(&mut self) -> Conditions<'_> {
        Conditions { generation: self.object.generation(), list: &mut self.status.conditions }
    }

    fn retry(&self) -> GoDuration {
        self.object.spec.retry_interval.unwrap_or(self.object.spec.interval)
    }

    fn timeout(&self) -> Duration {
        let spec = &self.object.spec;
        let limit = spec.timeout.unwrap_or(spec.interval).to_std();
        let limit =
            if spec.timeout.is_some() { limit } else { limit.saturating_sub(Duration::from_secs(30)) };
        limit.max(LEAST_TIMEOUT)
    }

    fn owner(&self) -> Owner {
        Owner {
            prefix: kinds::KUSTOMIZE_GROUP,
            name: self.object.name().to_owned(),
            namespace: Object::namespace(self.object).to_owned(),
        }
    }

    fn inventory(&self) -> Inventory {
        let entries = self.status.inventory.iter().flat_map(|inventory| &inventory.entries);
        Inventory::from_entries(entries.map(|entry| (entry.id.clone(), entry.version.clone())))
    }

    fn set_inventory(&mut self, inventory: &Inventory) {
        let entries = inventory
            .entries()
            .map(|(id, version)| InventoryEntry { id: id.to_owned(), version: version.to_owned() })
            .collect();
        self.status.inventory = Some(StatusInventory { entries });
    }
}

impl Kustomizations {
    async fn work(&self, raw: &DynamicObject, object: &Kustomization, worker: &Worker) -> Next {
        let written = object.status.clone().unwrap_or_default();
        let status = written.clone();
        let started = Instant::now();
        let mut run = Run { raw, object, worker, written, status, started, digest: None, artifact: None };
        if object.spec.suspend {
            self.note_request(&mut run);
            self.write(&mut run).await;
            return Next::OnChange;
        }
        let result = self.bring_about(&mut run).await;
        let next = self.conclude(&mut run, result);
        self.note_request(&mut run);
        self.write(&mut run).await;
        next
    }

    async fn bring_about(&self, run: &mut Run<'_>) -> Result<(), Failure> {
        let artifact = self.source(run)?;
        run.artifact = Some(artifact.clone());
        if let Some(waiting) = unready_dependency(&self.ctx.cache, run.object, &artifact.revision) {
            return Err(Failure::Dependency(waiting));
        }
        self.announce(run, &artifact).await;
        let objects = self.build(run, &artifact).await?;
        self.apply(run, objects).await?;
        run.status.last_applied_revision = Some(artifact.revision.clone());
        run.status.last_applied_origin_revision = artifact.origin_revision();
        Ok(())
    }

    fn source(&self, run: &Run<'_>) -> Result<Artifact, Failure> {
        let source =
            SourceKey::primary(run.object).ok_or_else(|| Failure::Fetch("no source is given".to_owned()))?;
        let foreign = source.key.namespace != Object::namespace(run.object);
        if foreign && self.ctx.options.no_cross_namespace_refs {
            return Err(Failure::AccessDenied(source.to_string()));
        }
        let found = self.ctx.cache.get(source.kind_row(), &source.key);
        let found = found.ok_or_else(|| Failure::SourceMissing(source.clone()))?;
        artifact(&found).ok_or_else(|| Failure::NoArtifact(run.retry()))
    }

    /// Dependents read Ready, so that it is in doubt must be known before anything is applied.
    async fn announce(&self, run: &mut Run<'_>, artifact: &Artifact) {
        let is_new = run.status.last_applied_revision.as_ref() != Some(&artifact.revision)
            || run.object.observed_generation() != Some(run.object.generation())
            || !condition::is(&run.status.conditions, READY, ConditionStatus::True);
        if !is_new {
            return;
        }
        let timeout = GoDuration::from(run.timeout());
        let message =
            format!("Building manifests for revision {} with a timeout of {timeout}", artifact.revision);
        let mut conditions = run.conditions();
        conditions.set(RECONCILING, ConditionStatus::True, "Progressing", message);
        conditions.set(READY, ConditionStatus::Unknown, "Progressing", "Reconciliation in progress");
        self.write(run).await;
    }

    async fn build(&self, run: &mut Run<'_>, artifact: &Artifact) -> Result<Vec<Value>, Failure> {
        let retry = run.retry();
        let tree =
            run.worker.outside(self.ctx.fetcher.tree(artifact)).await.map_err(|error| match error {
                fetch::Error::NotFound => Failure::ArtifactGone(retry),
                error => Failure::Fetch(error.to_string()),
            })?;
        let variables = self.variables(run.object).await?;
        let (spec, strict) = (run.object.spec.clone(), self.ctx.options.strict_substitutions);
        run.status.last_attempted_revision = Some(artifact.revision.clone());
        let built = tokio::task::spawn_blocking(move || {
            let files: &dyn Files = tree.as_ref();
            flux_build::kustomization(&flux_build::Input {
                spec: &spec,
                files,
                variables: variables.as_ref(),
                strict,
            })
        });
        let built = built.await.map_err(|error| Failure::Build(error.to_string()))?;
        let built = built.map_err(|error| match error {
            error @ flux_build::Error::PathNotFound(_) => Failure::Fetch(error.to_string()),
            error => Failure::Build(error.to_string()),
        })?;
        run.digest = Some(built.digest);
        let mut objects = manifests::flatten(built.objects);
        manifests::prepare(&mut objects, &run.owner(), run.object.spec.common_metadata.as_ref());
        Ok(objects)
    }

    /// The values for `${…}`: later references win over earlier ones, inline values over all.
    async fn variables(&self, object: &Kustomization) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let Some(post_build) = &object.spec.post_build else {
            return Ok(None);
        };
        let mut variables = BTreeMap::new();
        for reference in &post_build.substitute_from {
            let found = self.config(Object::namespace(object), reference.kind, &reference.name).await;
            match found {
                Ok(values) => variables.extend(values),
                Err(kube::Error::Api(answer)) if answer.code == 404 && reference.optional => {}
                Err(error) => {
                    let (kind, name) = (reference.kind.as_str(), &reference.name);
                    return Err(Failure::Build(format!(
                        "substitute from '{kind}/{name}' error: {}",
                        short(error)
                    )));
                }
            }
        }
        variables.extend(post_build.substitute.clone());
        Ok(Some(variables))
    }

    async fn config(
        &self,
        namespace: &str,
        kind: ConfigKind,
        name: &str,
    ) -> Result<BTreeMap<String, String>, kube::Error> {
        match kind {
            ConfigKind::ConfigMap => {
                let api: Api<ConfigMap> = Api::namespaced(self.ctx.client.clone(), namespace);
                Ok(api.get(name).await?.data.unwrap_or_default())
            }
            ConfigKind::Secret => {
                let api: Api<Secret> = Api::namespaced(self.ctx.client.clone(), namespace);
                let data = api.get(name).await?.data.unwrap_or_default();
                let text = |value: k8s_openapi::ByteString| String::from_utf8_lossy(&value.0).into_owned();
                Ok(data.into_iter().map(|(key, value)| (key, text(value))).collect())
            }
        }
    }

    async fn apply(&self, run: &mut Run<'_>, objects: Vec<Value>) -> Result<(), Failure> {
        let cluster = self.cluster(run.object)?;
        let ids: Vec<ObjectId> = objects.iter().filter_map(ObjectId::of).collect();
        let (old, new) = (run.inventory(), Inventory::of(&ids));
        // Written before the first create: a crash in between must not leave objects that nobody knows of.
        let both = old.union(&new);
        if both != old {
            run.set_inventory(&both);
            self.write(run).await;
        }
        let options = flux_apply::Options {
            manager: MANAGER.to_owned(),
            force: run.object.spec.force,
            concurrent: self.ctx.options.concurrent_ssa,
            custom_stages: Vec::new(),
            override_managers: Vec::new(),
        };
        let changes = match flux_apply::apply(&cluster, objects, &options).await {
            Ok(changes) => changes,
            Err(error) => {
                let listed = list(&error.changes);
                let message =
                    if listed.is_empty() { error.to_string() } else { format!("{error}\n{listed}") };
                return Err(Failure::Apply(message));
            }
        };
        let listed = list(&changes);
        if !listed.is_empty() {
            self.tell_progress(run, listed);
        }
        self.prune(run, &cluster, &old, &new).await?;
        let skipped: Vec<&ObjectId> = changes
            .iter()
            .filter(|change| change.action == Action::Skipped)
            .map(|change| &change.id)
            .collect();
        let watched: Vec<ObjectId> = ids.into_iter().filter(|id| !skipped.contains(&id)).collect();
        self.check_health(run, &cluster, watched).await
    }

    async fn prune(
        &self,
        run: &mut Run<'_>,
        cluster: &flux_apply::Cluster,
        old: &Inventory,
        new: &Inventory,
    ) -> Result<(), Failure> {
        let gone = old.minus(new);
        if !run.object.spec.prune || gone.is_empty() {
            run.set_inventory(new);
            return Ok(());
        }
        match flux_apply::prune(cluster, gone, &run.owner()).await {
            Ok(changes) => {
                run.set_inventory(new);
                let listed = list(&changes);
                if !listed.is_empty() {
                    self.tell_progress(run, listed);
                }
                Ok(())
            }
            Err(error) => {
                // Whatever refused to go stays in the inventory, or it would be forgotten for ever.
                run.set_inventory(&new.union(&Inventory::of(&error.survivors)));
                Err(Failure::Prune(error.to_string()))
            }
        }
    }

    async fn check_health(
        &self,
        run: &mut Run<'_>,
        cluster: &flux_apply::Cluster,
        applied: Vec<ObjectId>,
    ) -> Result<(), Failure> {
        let watched = watched(run.object, applied);
        if watched.is_empty() {
            run.conditions().delete(HEALTHY);
            return Ok(());
        }
        let timeout = run.timeout();
        let was_healthy = condition::is(&run.status.conditions, HEALTHY, ConditionStatus::True);
        if !was_healthy {
            let message = format!("Running health checks with a timeout of {}", GoDuration::from(timeout));
            run.conditions().set(HEALTHY, ConditionStatus::Unknown, "Progressing", message);
        }
        let started = Instant::now();
        let waiting = tokio::time::timeout(timeout, self.wait_until_healthy(cluster, &watched));
        let result = run
            .worker
            .outside(async {
                tokio::select! {
                    result = waiting => Some(result),
                    () = run.worker.preempted() => None,
                }
            })
            .await;
        let took = GoDuration::from(Duration::from_millis(started.elapsed().as_millis() as u64));
        let problem = match result {
            None => return Err(Failure::Preempted),
            Some(Ok(Ok(()))) => {
                let message = format!("Health check passed in {took}");
                if !was_healthy {
                    self.tell_progress(run, message.clone());
                }
                run.conditions().set(HEALTHY, ConditionStatus::True, "Succeeded", message);
                return Ok(());
            }
            Some(Ok(Err(failed))) => format!("failed early due to stalled resources: [{failed}]"),
            Some(Err(_)) => {
                format!("timeout waiting for: [{}]", self.unhealthy(cluster, &watched).await.join(", "))
            }
        };
        let message = format!("health check failed after {took}: {problem}");
        run.conditions().set(HEALTHY, ConditionStatus::False, "HealthCheckFailed", message.clone());
        Err(Failure::Unhealthy(message))
    }

    /// Ends when all are current, or fails as soon as one has failed for good.
    async fn wait_until_healthy(
        &self,
        cluster: &flux_apply::Cluster,
        watched: &[ObjectId],
    ) -> Result<(), String> {
        let mut left: Vec<&ObjectId> = watched.iter().collect();
        loop {
            let mut failed = Vec::new();
            let mut still = Vec::new();
            for id in left {
                match health(cluster, id).await {
                    Health::Current => {}
                    Health::Failed => failed.push(format!("{id} status: 'Failed'")),
                    _ => still.push(id),
                }
            }
            if !failed.is_empty() {
                return Err(failed.join(", "));
            }
            if still.is_empty() {
                return Ok(());
            }
            left = still;
            tokio::time::sleep(HEALTH_POLL).await;
        }
    }

    async fn unhealthy(&self, cluster: &flux_apply::Cluster, watched: &[ObjectId]) -> Vec<String> {
        let mut lines = Vec::new();
        for id in watched {
            let status = health(cluster, id).await;
            if status != Health::Current {
                lines.push(format!("{id} status: '{}'", status.as_str()));
            }
        }
        lines
    }

    /// The cluster as the Kustomization's account sees it; the controller's own view only when nobody names one.
    fn cluster(&self, object: &Kustomization) -> Result<flux_apply::Cluster, Failure> {
        if object.spec.kube_config.is_some() {
            return Err(Failure::Apply(
                "spec.kubeConfig: remote clusters are not supported by this build".to_owned(),
            ));
        }
        let account =
            object.spec.service_account_name.clone().or(self.ctx.options.default_service_account.clone());
        let Some(account) = account else {
            return Ok(self.ctx.cluster.clone());
        };
        let client = impersonate::service_account(&self.ctx.client, Object::namespace(object), &account)
            .map_err(|_| {
                Failure::Apply(format!("spec.serviceAccountName: '{account}' is not a valid name"))
            })?;
        Ok(flux_apply::Cluster { client, mapper: self.ctx.cluster.mapper.clone() })
    }

    fn conclude(&self, run: &mut Run<'_>, result: Result<(), Failure>) -> Next {
        let spec = &run.object.spec;
        match result {
            Ok(()) => {
                let revision = run.artifact.as_ref().map(|artifact| artifact.revision.clone());
                let message = format!("Applied revision: {}", revision.as_ref().map_or("", Revision::as_str));
                let mut conditions = run.conditions();
                conditions.delete(RECONCILING);
                conditions.delete(STALLED);
                conditions.set(READY, ConditionStatus::True, "ReconciliationSucceeded", message);
                run.status.observed_generation = run.object.generation();
                self.remember(run, "ReconciliationSucceeded");
                let took = GoDuration::from(Duration::from_millis(run.started.elapsed().as_millis() as u64));
                let text = format!("Reconciliation finished in {took}, next run in {}", spec.interval);
                let metadata = Some(("commit_status", "update"));
                self.tell(run.raw, Severity::Info, "ReconciliationSucceeded", text, Some((run, metadata)));
                Next::After(jittered(spec.interval.to_std(), self.ctx.options.jitter_percent))
            }
            Err(Failure::Preempted) => Next::Now,
            Err(failure) => self.conclude_failure(run, &failure),
        }
    }

    fn conclude_failure(&self, run: &mut Run<'_>, failure: &Failure) -> Next {
        let message = failure.to_string();
        let mut conditions = run.conditions();
        conditions.set(READY, ConditionStatus::False, failure.reason(), message.clone());
        if failure.is_final() {
            conditions.set(STALLED, ConditionStatus::True, failure.reason(), message.clone());
        } else {
            let progress = condition::find(conditions.list, RECONCILING).map(|last| last.message.clone());
            let progress = progress.unwrap_or_else(|| "Reconciliation in progress".to_owned());
            conditions.set(RECONCILING, ConditionStatus::True, "ProgressingWithRetry", progress);
        }
        if failure.is_remembered() {
            self.remember(run, failure.reason());
        }
        match failure {
            Failure::SourceMissing(_) | Failure::NoArtifact(_) | Failure::ArtifactGone(_) => {
                tracing::info!(%message, "source is not there yet");
            }
            Failure::Dependency(_) => {
                let wait = GoDuration::from(self.ctx.options.requeue_dependency);
                let text = format!("Dependencies do not meet ready condition, retrying in {wait}");
                self.tell(run.raw, Severity::Info, failure.reason(), text, Some((run, None)));
            }
            _ => self.tell(run.raw, Severity::Error, failure.reason(), message, Some((run, None))),
        }
        match failure {
            failure if failure.is_final() => Next::OnChange,
            Failure::Dependency(_) => Next::RetryAfter(self.ctx.options.requeue_dependency),
            _ => Next::RetryAfter(run.retry().to_std()),
        }
    }

    fn remember(&self, run: &mut Run<'_>, status: &str) {
        let Some(digest) = run.digest.clone() else { return };
        let mut metadata = BTreeMap::new();
        if let Some(artifact) = &run.artifact {
            metadata.insert("revision".to_owned(), artifact.revision.to_string());
            if let Some(origin) = artifact.origin_revision() {
                metadata.insert("originRevision".to_owned(), origin.to_string());
            }
        }
        let took = GoDuration::from(run.started.elapsed());
        let outcome = Outcome { digest: &digest, status, took, metadata };
        history::add(&mut run.status.history, outcome, Time::new(Timestamp::now()));
    }

    fn note_request(&self, run: &mut Run<'_>) {
        if let Some(request) = run.raw.annotations().get(RECONCILE_REQUEST) {
            run.status.last_handled_reconcile_at = Some(request.clone());
        }
    }

    /// An event in the middle of a run: Ready is still in doubt, and the reason says so.
    fn tell_progress(&self, run: &Run<'_>, message: String) {
        self.tell(run.raw, Severity::Info, "Progressing", message, Some((run, None)));
    }

    fn tell(
        &self,
        raw: &DynamicObject,
        severity: Severity,
        reason: &str,
        message: String,
        about: Option<(&Run<'_>, Option<(&str, &str)>)>,
    ) {
        let mut metadata = BTreeMap::new();
        if let Some((run, extra)) = about {
            if let Some(artifact) = &run.artifact {
                metadata.insert(format!("{}/revision", KIND.group), artifact.revision.to_string());
                if let Some(origin) = artifact.origin_revision() {
                    metadata.insert(format!("{}/originRevision", KIND.group), origin.to_string());
                }
            }
            if let Some((key, value)) = extra {
                metadata.insert(format!("{}/{key}", KIND.group), value.to_owned());
            }
        }
        let happening = Happening { severity, reason: reason.to_owned(), message, metadata };
        self.ctx.events.tell(KIND, raw, happening);
    }

    async fn write(&self, run: &mut Run<'_>) {
        let key = ObjectKey::of(run.raw);
        let result =
            status::write(&self.ctx.client, KIND, &key, STATUS_MANAGER, &run.written, &run.status).await;
        match result {
            Ok(_) => run.written = run.status.clone(),
            Err(error) => tracing::warn!(%error, "status could not be written"),
        }
    }

    async fn add_finalizer(&self, raw: &DynamicObject) -> Next {
        let mut finalizers = raw.finalizers().to_vec();
        finalizers.push(FINALIZER.to_owned());
        match status::write_finalizers(&self.ctx.client, KIND, raw, STATUS_MANAGER, &finalizers).await {
            Ok(()) => Next::Now,
            Err(error) => {
                tracing::warn!(%error, "finalizer could not be added");
                Next::Backoff
            }
        }
    }

    async fn finalize(&self, raw: &DynamicObject, object: &Kustomization, worker: &Worker) -> Next {
        let written = object.status.clone().unwrap_or_default();
        let status = written.clone();
        let run = Run {
            raw,
            object,
            worker,
            written,
            status,
            started: Instant::now(),
            digest: None,
            artifact: None,
        };
        if takes_its_objects_along(object)
            && let Err(message) = self.delete_objects(&run).await
        {
            self.tell(raw, Severity::Error, "PruneFailed", message, None);
            return Next::RetryAfter(run.retry().to_std());
        }
        let finalizers: Vec<String> =
            raw.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
        match status::write_finalizers(&self.ctx.client, KIND, raw, STATUS_MANAGER, &finalizers).await {
            Ok(()) => Next::OnChange,
            Err(_) => Next::Backoff,
        }
    }

    async fn delete_objects(&self, run: &Run<'_>) -> Result<(), String> {
        let cluster = self.cluster(run.object).map_err(|failure| failure.to_string())?;
        let objects = run.inventory().objects();
        let deleted = flux_apply::prune(&cluster, objects.clone(), &run.owner()).await;
        let changes = deleted.map_err(|error| format!("pruning for deleted resource failed: {error}"))?;
        let listed = list(&changes);
        if !listed.is_empty() {
            self.tell(run.raw, Severity::Info, "ReconciliationSucceeded", listed, None);
        }
        if run.object.spec.deletion_policy == Some(DeletionPolicy::WaitForTermination) {
            let waiting = flux_apply::prune::wait_until_gone(&cluster, &objects, run.timeout());
            let left = run.worker.outside(waiting).await;
            if !left.is_empty() {
                let text = "failed to wait for resources termination".to_owned();
                self.tell(run.raw, Severity::Error, "PruneFailed", text, None);
            }
        }
        Ok(())
    }
}

fn takes_its_objects_along(object: &Kustomization) -> bool {
    if object.spec.suspend {
        return false;
    }
    match object.spec.deletion_policy.unwrap_or_default() {
        DeletionPolicy::MirrorPrune => object.spec.prune,
        DeletionPolicy::Delete | DeletionPolicy::WaitForTermination => true,
        DeletionPolicy::Orphan => false,
    }
}

/// The objects whose health counts: all that were applied with `wait`, else those named. Never itself.
fn watched(object: &Kustomization, applied: Vec<ObjectId>) -> Vec<ObjectId> {
    let is_itself = |id: &ObjectId| {
        id.kind == KIND.kind && id.name == object.name() && id.namespace == Object::namespace(object)
    };
    let watched: Vec<ObjectId> = if object.spec.wait {
        applied
    } else {
        object.spec.health_checks.iter().map(health_check_id).collect()
    };
    watched.into_iter().filter(|id| !is_itself(id)).collect()
}

fn health_check_id(reference: &flux_api::meta::ObjectReference) -> ObjectId {
    let api_version = reference.api_version.as_deref().unwrap_or("apps/v1");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ObjectId {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: reference.kind.clone(),
        namespace: reference.namespace.clone().unwrap_or_default(),
        name: reference.name.clone(),
    }
}

async fn health(cluster: &flux_apply::Cluster, id: &ObjectId) -> Health {
    match cluster.get(id).await {
        Ok(Some(object)) => judge(&object, Timestamp::now().as_second()).status,
        Ok(None) => Health::NotFound,
        Err(_) => Health::Unknown,
    }
}

/// One line for each object that changed, as in events.
fn list(changes: &[Change]) -> String {
    let lines: Vec<String> = changes
        .iter()
        .filter(|change| change.action != Action::Unchanged)
        .filter(|change| change.action != Action::Skipped)
        .map(|change| format!("{} {}", change.id, change.action.as_str()))
        .collect();
    lines.join("\n")
}

fn short(error: kube::Error) -> String {
    match error {
        kube::Error::Api(answer) => answer.message.clone(),
        error => error.to_string(),
    }
}
