//! The actions on a release: each makes a plan of what the spec says and has it carried out.

use std::time::Duration;

use flux_api::helm::{CRDsPolicy, DeletionPropagation, HelmRelease, ServerSideApplyMode, WaitStrategyName};
use flux_apply::health_exprs::Judge;
use flux_apply::{Cluster, KnownKinds, ObjectId};
use futures::StreamExt;
use helm::plan::{
    self, Install, Kinds, Live, Object, Plan, PlanError, Propagation, ReuseValues, Rollback, Step,
    TestFilter, Uninstall, Upgrade, Waiting, current_release, objects_of, reuse_values,
};
use helm::release::{ApplyMethod, Release, Status};
use helm::{Capabilities, Dialect, Operation, Values};
use k8s_openapi::jiff::Timestamp;

use super::execute::{Executor, Outcome, Validation, id_of};
use super::fault::Fault;
use super::inventory::Listed;
use super::next::Action;
use super::policy::Policy;
use super::render::{Rendering, origin_labels};
use super::storage::{Records, Storage};
use super::wait::Waiter;
use super::{Loaded, crds, inventory, names, render};
use crate::reconcile::Worker;

/// Kinds are asked for again when the last answer is older than this: a chart may ask which there are.
const KINDS_AGE: Duration = Duration::from_secs(5);
const READS_AT_ONCE: usize = 8;
/// How long kinds that were just defined are looked for.
const DISCOVERY_TRIES: usize = 50;
const DISCOVERY_PAUSE: Duration = Duration::from_millis(200);

/// One release and everything that acting on it takes.
pub struct Actor<'a> {
    pub object: &'a HelmRelease,
    pub policy: Policy<'a>,
    pub cluster: &'a Cluster,
    pub storage: &'a Storage,
    pub worker: &'a Worker,
    pub checks: &'a Judge,
    pub kube_version: &'a helm::KubeVersion,
    /// Helm 3's defaults: the gate UseHelm3Defaults.
    pub dialect: Dialect,
    pub enable_dns: bool,
    /// Whether something newer ends a wait: the gate CancelHealthCheckOnNewRevision.
    pub cancel_health_check: bool,
    pub override_managers: &'a [String],
}

/// What an install, upgrade or rollback came to.
pub struct Released {
    pub outcome: Outcome,
    /// What the release consists of, or why that is not known. `None` when nothing was released.
    pub inventory: Option<Result<Listed, String>>,
    /// How CRDs that were left alone differ from the chart's; `None` when nobody looked.
    pub outdated_crds: Option<Vec<String>>,
}

impl Released {
    fn refused(fault: Fault) -> Self {
        Self { outcome: Outcome::refused(fault), inventory: None, outdated_crds: None }
    }
}

/// The kinds of a cluster, as plans ask for them.
pub struct ClusterKinds<'a>(pub &'a KnownKinds);

impl Kinds for ClusterKinds<'_> {
    fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        self.0.is_namespaced(api_version, kind)
    }
}

impl Actor<'_> {
    pub async fn install(&self, loaded: &Loaded, values: &Values, records: &mut Records) -> Released {
        let spec = self.object.spec.install.clone().unwrap_or_default();
        let timeout = self.policy.timeout(Action::Install);
        let server_side = spec.server_side_apply.unwrap_or(self.dialect == Dialect::Helm4);
        let validation = validation(spec.disable_open_api_validation);
        let preparing = Preparing {
            loaded,
            values: values.clone(),
            revision: 1,
            operation: Operation::Install,
            crds: spec.crds,
            server_side,
            skip_schema_validation: spec.disable_schema_validation,
            timeout,
            validation,
        };
        let prepared = match self.prepare(preparing).await {
            Ok(prepared) => prepared,
            Err(fault) => return Released::refused(fault),
        };
        let options = Install {
            create_namespace: spec.create_namespace && self.object.spec.target_namespace.is_some(),
            skip_crds: true,
            replace: spec.replace,
            take_ownership: !spec.disable_take_ownership,
            server_side,
            force_conflicts: server_side,
            force_replace: false,
            waiting: Waiting {
                wait: !spec.disable_wait,
                wait_for_jobs: !spec.disable_wait_for_jobs,
                disable_hooks: spec.disable_hooks,
            },
            description: String::new(),
            labels: Default::default(),
            max_history: 0,
        };
        // Objects that are there already are applied with force. When ownership does not matter, nobody needs to know
        // beforehand which those are.
        let blind = server_side && options.take_ownership;
        let kinds = ClusterKinds(&prepared.kinds);
        let live = match self.live(&prepared.objects, blind).await {
            Ok(live) => live,
            Err(fault) => return Released::refused(fault),
        };
        let planned = plan::install(prepared.release, &[], &records.history, &live, &kinds, &options);
        let planned = planned.map(|plan| if blind { forced(plan) } else { plan });
        let (kinds, crds) = (&prepared.kinds, &prepared.crds);
        let released = self.carry_out(planned, records, &live, kinds, crds, timeout, validation).await;
        Released { outdated_crds: Some(prepared.outdated_crds), ..released }
    }

    pub async fn upgrade(&self, loaded: &Loaded, values: &Values, records: &mut Records) -> Released {
        let spec = self.object.spec.upgrade.clone().unwrap_or_default();
        let timeout = self.policy.timeout(Action::Upgrade);
        let name = names::release_name(self.object);
        let current = match current_release(&name, &records.history) {
            Ok(current) => current.clone(),
            Err(error) => return Released::refused(Fault::new(error.to_string())),
        };
        let last = records.history.last().unwrap_or(&current);
        let server_side = server_side(spec.server_side_apply, last.is_server_side());
        let validation = validation(spec.disable_open_api_validation);
        let reuse = if spec.preserve_values { ReuseValues::Reuse } else { ReuseValues::Reset };
        let loaded = if spec.preserve_values { &loaded.with_defaults_of(&current) } else { loaded };
        let preparing = Preparing {
            loaded,
            values: reuse_values(values.clone(), &current, reuse),
            revision: last.version + 1,
            operation: Operation::Upgrade,
            crds: spec.crds,
            server_side,
            skip_schema_validation: spec.disable_schema_validation,
            timeout,
            validation,
        };
        let prepared = match self.prepare(preparing).await {
            Ok(prepared) => prepared,
            Err(fault) => return Released::refused(fault),
        };
        let options = Upgrade {
            take_ownership: !spec.disable_take_ownership,
            server_side: Some(server_side),
            force_conflicts: server_side,
            force_replace: spec.force && !server_side,
            cleanup_on_fail: spec.cleanup_on_fail,
            waiting: Waiting {
                wait: !spec.disable_wait,
                wait_for_jobs: !spec.disable_wait_for_jobs,
                disable_hooks: spec.disable_hooks,
            },
            description: String::new(),
            labels: Default::default(),
            max_history: self.policy.max_history(),
        };
        let kinds = ClusterKinds(&prepared.kinds);
        let old = objects_of(&current.manifest, &current.namespace, &kinds).unwrap_or_default();
        let blind = server_side && options.take_ownership && !options.cleanup_on_fail;
        let gone = old.iter().filter(|old| !prepared.objects.iter().any(|new| new.key == old.key));
        let wanted: Vec<Object> = if blind {
            gone.cloned().collect()
        } else {
            old.iter().chain(&prepared.objects).cloned().collect()
        };
        let live = match self.live(&wanted, false).await {
            Ok(live) => live,
            Err(fault) => return Released::refused(fault),
        };
        let planned = plan::upgrade(prepared.release, &records.history, &live, &kinds, &options);
        let (kinds, crds) = (&prepared.kinds, &prepared.crds);
        let released = self.carry_out(planned, records, &live, kinds, crds, timeout, validation).await;
        Released { outdated_crds: Some(prepared.outdated_crds), ..released }
    }

    /// The CRDs of the chart that is wanted stay in the inventory: a rollback does not touch them.
    pub async fn rollback(
        &self,
        to: i64,
        loaded: &Loaded,
        values: &Values,
        records: &mut Records,
    ) -> Released {
        let spec = self.object.spec.rollback.clone().unwrap_or_default();
        if spec.recreate {
            tracing::warn!("spec.rollback.recreate has no effect any more");
        }
        let target = records.history.get(to).is_some_and(Release::is_server_side);
        let server_side = server_side(spec.server_side_apply, target);
        let options = Rollback {
            to,
            server_side: Some(server_side),
            force_conflicts: server_side,
            force_replace: spec.force && !server_side,
            cleanup_on_fail: spec.cleanup_on_fail,
            waiting: Waiting {
                wait: !spec.disable_wait,
                wait_for_jobs: !spec.disable_wait_for_jobs,
                disable_hooks: spec.disable_hooks,
            },
            description: String::new(),
            max_history: self.policy.max_history(),
        };
        let kinds = match self.kinds(KINDS_AGE).await {
            Ok(kinds) => kinds,
            Err(fault) => return Released::refused(fault),
        };
        let known = ClusterKinds(&kinds);
        let mut objects = Vec::new();
        for record in [records.history.last(), records.history.get(to)].into_iter().flatten() {
            objects.extend(objects_of(&record.manifest, &record.namespace, &known).unwrap_or_default());
        }
        let live = match self.live(&objects, false).await {
            Ok(live) => live,
            Err(fault) => return Released::refused(fault),
        };
        let planned = plan::rollback(&records.history, &live, &known, &options, Timestamp::now());
        let timeout = self.policy.timeout(Action::Rollback { to });
        let crds = helm::crds(&loaded.chart, values, Dialect::Helm4).map_err(|error| error.to_string());
        let crds = crds.and_then(|crds| crds::objects(&crds).map_err(|fault| fault.message));
        self.carry_out(planned, records, &live, &kinds, &crds, timeout, Validation::Strict).await
    }

    pub async fn uninstall(&self, records: &mut Records) -> Outcome {
        let spec = self.object.spec.uninstall.clone().unwrap_or_default();
        let options = Uninstall {
            keep_history: spec.keep_history,
            propagation: match spec.deletion_propagation {
                None | Some(DeletionPropagation::Background) => Propagation::Background,
                Some(DeletionPropagation::Foreground) => Propagation::Foreground,
                Some(DeletionPropagation::Orphan) => Propagation::Orphan,
            },
            waiting: Waiting {
                wait: !spec.disable_wait,
                wait_for_jobs: false,
                disable_hooks: spec.disable_hooks,
            },
            description: String::new(),
        };
        let kinds = match self.kinds(KINDS_AGE).await {
            Ok(kinds) => kinds,
            Err(fault) => return Outcome::refused(fault),
        };
        let known = ClusterKinds(&kinds);
        let objects = records.history.last().map(|last| objects_of(&last.manifest, &last.namespace, &known));
        let objects = objects.and_then(Result::ok).unwrap_or_default();
        let live = match self.live(&objects, false).await {
            Ok(live) => live,
            Err(fault) => return Outcome::refused(fault),
        };
        let planned = plan::uninstall(&records.history, &live, &known, &options, Timestamp::now());
        let plan = match planned {
            Ok(uninstalling) => uninstalling.plan,
            Err(error) => return Outcome::refused(Fault::new(error.to_string())),
        };
        let executor = self.executor(&kinds, self.policy.timeout(Action::Uninstall), Validation::Strict);
        executor.run(plan, records, &live, &objects).await
    }

    pub async fn test(&self, records: &mut Records) -> Outcome {
        let spec = self.object.spec.test.clone().unwrap_or_default();
        let names = |exclude: bool| {
            spec.filters.iter().filter(|one| one.exclude == exclude).map(|one| one.name.clone()).collect()
        };
        let filter = TestFilter { only: names(false), except: names(true) };
        let kinds = match self.kinds(KINDS_AGE).await {
            Ok(kinds) => kinds,
            Err(fault) => return Outcome::refused(fault),
        };
        let plan = match plan::test(&records.history, &ClusterKinds(&kinds), &filter) {
            Ok(plan) => plan,
            Err(error) => return Outcome::refused(Fault::new(error.to_string())),
        };
        let executor = self.executor(&kinds, self.policy.timeout(Action::Test), Validation::Strict);
        executor.run(plan, records, &Live::new(), &[]).await
    }

    /// Marks an operation that nobody will end as failed.
    pub async fn unlock(&self, records: &mut Records) -> Outcome {
        let Some(mut release) = records.history.last().cloned() else {
            return Outcome { written: Vec::new(), deleted: Vec::new(), fault: None };
        };
        let description = format!("Release unlocked from stale '{}' state", release.info.status.name());
        release.set_status(Status::Failed, description);
        match self.storage.update(&release, records).await {
            Ok(()) => {
                records.put(&release);
                Outcome { written: vec![release], deleted: Vec::new(), fault: None }
            }
            Err(error) => Outcome::refused(error.into()),
        }
    }

    pub async fn kinds(&self, age: Duration) -> Result<KnownKinds, Fault> {
        self.cluster.mapper.all(kept(self.object, age)).await.map_err(|error| Fault {
            message: error.to_string(),
            transient: true,
            ..Fault::default()
        })
    }

    /// Kinds with those that were just defined: discovery can lag behind a definition that is established.
    async fn kinds_with(&self, defined: &[(String, String)]) -> Result<KnownKinds, Fault> {
        let mut kinds = self.kinds(Duration::ZERO).await?;
        for _ in 0..DISCOVERY_TRIES {
            if defined.iter().all(|(version, kind)| kinds.is_namespaced(version, kind).is_some()) {
                break;
            }
            tokio::time::sleep(DISCOVERY_PAUSE).await;
            self.cluster.mapper.invalidate().await;
            kinds = self.kinds(Duration::ZERO).await?;
        }
        Ok(kinds)
    }

    pub fn executor<'e>(
        &'e self,
        kinds: &'e KnownKinds,
        timeout: Duration,
        validation: Validation,
    ) -> Executor<'e> {
        let strategy = self.object.spec.wait_strategy.as_ref().map(|wait| wait.name);
        let strategy = strategy.unwrap_or(match self.dialect {
            Dialect::Helm4 => WaitStrategyName::Poller,
            Dialect::Helm3 => WaitStrategyName::Legacy,
        });
        Executor {
            cluster: self.cluster,
            kinds,
            storage: self.storage,
            worker: self.worker,
            waiter: Waiter { checks: self.checks, strategy },
            timeout,
            validation,
            cancel: self.cancel_health_check,
        }
    }

    /// CRDs first, then the manifest, of kinds that exist.
    async fn prepare(&self, preparing: Preparing<'_>) -> Result<Prepared, Fault> {
        let chart = preparing.loaded.chart.clone();
        let crds = helm::crds(&chart, &preparing.values, Dialect::Helm4)
            .map_err(|error| Fault::new(error.to_string()))?;
        let policy = preparing.crds.unwrap_or(CRDsPolicy::Create);
        // What is skipped need not be readable.
        let crds = match (crds::objects(&crds), policy) {
            (Err(fault), CRDsPolicy::Skip) => Err(fault.message),
            (found, _) => Ok(found?),
        };
        let mut kinds = self.kinds(KINDS_AGE).await?;
        let mut outdated_crds = Vec::new();
        if let Ok(crds) = crds.as_ref()
            && !crds.is_empty()
        {
            let executor = self.executor(&kinds, preparing.timeout, preparing.validation);
            let labels = origin_labels(self.object);
            let applied = executor.apply_crds(crds, policy, preparing.server_side, &labels).await;
            let applied =
                applied.map_err(|fault| fault.prefixed("failed to apply CustomResourceDefinitions: "))?;
            if crds::leaves_existing(policy, preparing.server_side) {
                outdated_crds = executor.outdated_crds(crds).await;
            }
            if applied {
                kinds = self.kinds_with(&crds::defined(crds)).await?;
            }
        }
        let capabilities: Capabilities = render::capabilities(&kinds, self.kube_version);
        let rendering = Rendering {
            chart,
            values: preparing.values,
            revision: preparing.revision,
            operation: preparing.operation,
            capabilities,
            cluster: Some(self.cluster.clone()),
            dialect: self.dialect,
            skip_schema_validation: preparing.skip_schema_validation,
            enable_dns: self.enable_dns,
        };
        let (_, mut release) = rendering.run(self.object).await?;
        release.apply_method =
            Some(if preparing.server_side { ApplyMethod::ServerSide } else { ApplyMethod::ClientSide });
        let objects = self.known_objects(&release, &mut kinds).await?;
        Ok(Prepared { release, crds, outdated_crds, kinds, objects })
    }

    /// The objects of a manifest. One whose kind the cluster does not serve is looked for once more, then named.
    async fn known_objects(&self, release: &Release, kinds: &mut KnownKinds) -> Result<Vec<Object>, Fault> {
        for last in [false, true] {
            let found = objects_of(&release.manifest, &release.namespace, &ClusterKinds(kinds));
            let objects = found.map_err(|cause| {
                Fault::new(PlanError::Objects { from: "release manifest", cause }.to_string())
            })?;
            let unknown = objects
                .iter()
                .find(|object| kinds.is_namespaced(&object.api_version, &object.key.kind).is_none());
            let Some(unknown) = unknown else {
                return Ok(objects);
            };
            if last {
                return Err(Fault::new(format!(
                    "unable to build kubernetes objects from release manifest: resource mapping not found for name: \"{}\" namespace: \"{}\" from \"\": no matches for kind \"{}\" in version \"{}\"\nensure CRDs are installed first",
                    unknown.key.name, unknown.key.namespace, unknown.key.kind, unknown.api_version
                )));
            }
            *kinds = self.kinds(Duration::from_secs(1)).await?;
        }
        Ok(Vec::new())
    }

    /// The objects as they are in the cluster; with `blind`, nobody needs to know.
    async fn live(&self, objects: &[Object], blind: bool) -> Result<Live, Fault> {
        if blind {
            return Ok(Live::new());
        }
        let named: Vec<&Object> = objects.iter().filter(|object| !object.key.name.is_empty()).collect();
        let ids: Vec<ObjectId> = named.iter().map(|object| id_of(object)).collect();
        let reads: Vec<_> = ids.iter().map(|id| self.cluster.get(id)).collect();
        let found: Vec<_> = futures::stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
        let mut live = Live::new();
        for (key, found) in named.iter().map(|object| object.key.clone()).zip(found) {
            match found {
                Ok(Some(object)) => {
                    live.insert(key, object);
                }
                Ok(None) => {}
                // A kind that is gone takes its objects along.
                Err(cause) if cause.to_string().starts_with("no matches for kind") => {}
                Err(cause) => {
                    let text = format!(
                        "could not get information about the resource {} \"{}\": {cause}",
                        key.kind, key.name
                    );
                    return Err(Fault::of(&cause, text));
                }
            }
        }
        Ok(live)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one caller's locals each; a struct would be built in four places"
    )]
    async fn carry_out(
        &self,
        planned: Result<Plan, PlanError>,
        records: &mut Records,
        live: &Live,
        kinds: &KnownKinds,
        crds: &Result<Vec<serde_json::Value>, String>,
        timeout: Duration,
        validation: Validation,
    ) -> Released {
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) => return Released::refused(Fault::new(error.to_string())),
        };
        // Refused here, it has cost nothing; after the objects were applied, it would be too late.
        if let Err(error) = self.storage.prepare(&plan.release) {
            return Released::refused(error.into());
        }
        let known = ClusterKinds(kinds);
        let crds = crds.as_ref().map(Vec::as_slice).map_err(String::as_str);
        let inventory = inventory::of(&plan.release.manifest, &plan.release.namespace, crds, &known);
        let old = records.history.last().map(|last| objects_of(&last.manifest, &last.namespace, &known));
        let old = old.and_then(Result::ok).unwrap_or_default();
        let outcome = self.executor(kinds, timeout, validation).run(plan, records, live, &old).await;
        let inventory = (!outcome.written.is_empty()).then_some(inventory);
        Released { outcome, inventory, outdated_crds: None }
    }
}

/// What a chart is prepared with.
struct Preparing<'a> {
    loaded: &'a Loaded,
    values: Values,
    revision: i64,
    operation: Operation,
    crds: Option<CRDsPolicy>,
    server_side: bool,
    skip_schema_validation: bool,
    timeout: Duration,
    validation: Validation,
}

struct Prepared {
    release: Release,
    /// What the crds folder holds, or why it cannot be read.
    crds: Result<Vec<serde_json::Value>, String>,
    outdated_crds: Vec<String>,
    kinds: KnownKinds,
    objects: Vec<Object>,
}

/// How old what is known of the cluster's kinds may be. A client that does not persist asks each time, since a chart may
/// bring kinds along by other ways than its crds folder.
fn kept(object: &HelmRelease, age: Duration) -> Duration {
    if object.spec.persistent_client.unwrap_or(true) { age } else { Duration::ZERO }
}

fn server_side(asked: Option<ServerSideApplyMode>, before: bool) -> bool {
    match asked {
        Some(ServerSideApplyMode::Enabled) => true,
        Some(ServerSideApplyMode::Disabled) => false,
        Some(ServerSideApplyMode::Auto) | None => before,
    }
}

/// The server is strict unless nobody wants a check: upstream is strict even then.
fn validation(disabled: bool) -> Validation {
    if disabled { Validation::Warn } else { Validation::Strict }
}

/// Applies with force what may be there already.
fn forced(mut plan: Plan) -> Plan {
    for step in &mut plan.steps {
        if let Step::Apply(plan::Applying { how: plan::How::ServerSide { force_conflicts, .. }, .. }) = step {
            *force_conflicts = true;
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::object;
    use super::*;

    #[test]
    fn kinds_are_asked_for_each_time_without_a_persistent_client() {
        let age = |spec: serde_json::Value| kept(&object(spec), KINDS_AGE);
        assert_eq!(age(serde_json::json!({})), KINDS_AGE);
        assert_eq!(age(serde_json::json!({"persistentClient": true})), KINDS_AGE);
        assert_eq!(age(serde_json::json!({"persistentClient": false})), Duration::ZERO);
    }

    #[test]
    fn auto_follows_what_was_there_before() {
        use ServerSideApplyMode::{Auto, Disabled, Enabled};
        assert!(server_side(Some(Enabled), false) && !server_side(Some(Disabled), true));
        for asked in [None, Some(Auto)] {
            assert!(server_side(asked, true) && !server_side(asked, false));
        }
    }
}
