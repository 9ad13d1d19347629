//! Carries out what `helm::plan` decided. It makes no choices of its own.

use anyhow::{Context, Result, bail};
use helm::plan::{
    Applying, Builtin, HookRun, How, Live, Object, ObjectKey, PatchType, Plan, Propagation, Record, Step,
    objects_of,
};
use helm::release::{Driver, History, Release, Status, Written, from_storage, storage_key, storage_object};
use helm::{Dialect, HookPhase};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::TypeMeta;
use kube::{Api, Resource};
use serde_json::Value as Json;
use testbed::Cluster;

/// The real helm's name for itself.
const MANAGER: &str = "helm";

/// Works on one release for one kind of helm.
pub struct Executor<'c> {
    pub cluster: &'c Cluster,
    pub namespace: &'c str,
    pub dialect: Dialect,
}

impl Executor<'_> {
    pub async fn history(&self, name: &str) -> Result<History> {
        let params = ListParams::default().labels(&format!("owner=helm,name={name}"));
        let secrets = self.secrets().list(&params).await?;
        let releases =
            secrets.items.into_iter().map(|secret| Ok(from_storage(&serde_json::to_value(secret)?)?));
        Ok(History::new(releases.collect::<Result<_>>()?))
    }

    /// What is there of the objects of some manifests.
    pub async fn live(&self, manifests: &[&str]) -> Result<Live> {
        let mut live = Live::new();
        for manifest in manifests {
            for object in objects_of(manifest, self.namespace, &Builtin)? {
                // A kind that is not served yet has no objects.
                let Ok(api) = self.api(&object.api_version, &object.key).await else { continue };
                if let Some(found) = api.get_opt(&object.key.name).await? {
                    live.insert(object.key, serde_json::to_value(found)?);
                }
            }
        }
        Ok(live)
    }

    pub async fn run(&self, mut plan: Plan) -> Result<()> {
        for at in 0..plan.steps.len() {
            let step = plan.steps[at].clone();
            let done = self.step(&mut plan, &step).await;
            if let Err(error) = done {
                for step in plan.failed(at, &format!("{error:#}")).steps {
                    self.step(&mut plan, &step).await?;
                }
                return Err(error.context(format!("step {at}: {step:?}")));
            }
        }
        Ok(())
    }

    async fn step(&self, plan: &mut Plan, step: &Step) -> Result<()> {
        match step {
            Step::CreateCrds(crds) => {
                for crd in crds {
                    self.cluster.apply_crds(std::str::from_utf8(&crd.data)?).await?;
                }
                Ok(())
            }
            Step::Record(record) => self.record(plan, record).await,
            Step::Hooks(run) => self.hooks(plan, run).await,
            Step::Apply(applying) => self.apply(applying).await,
            Step::Delete { object, propagation } => {
                let manifest = [plan.release.manifest.clone(), self.other_manifests(&plan.release).await?];
                let version = manifest.iter().find_map(|text| version_of(text, self.namespace, object));
                let version = version.with_context(|| format!("whose is {object:?}?"))?;
                self.delete(&version, object, *propagation).await
            }
            Step::CreateNamespace(_) | Step::Wait { .. } | Step::WaitForDeletion(_) => {
                bail!("nobody asked for {step:?}")
            }
        }
    }

    async fn apply(&self, Applying { object, how }: &Applying) -> Result<()> {
        let api = self.api(&object.api_version, &object.key).await?;
        let name = &object.key.name;
        let typed: DynamicObject = serde_json::from_value(object.json.clone())?;
        match how {
            How::Create => {
                api.create(&by_helm(), &typed).await?;
            }
            How::ServerSide { force_conflicts, adopt_client_side } => {
                if *adopt_client_side {
                    self.adopt(&api, name).await?;
                }
                let mut params = PatchParams::apply(MANAGER);
                params.force = *force_conflicts;
                api.patch(name, &params, &Patch::Apply(&typed)).await?;
            }
            How::Patch(patch) => {
                let params =
                    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
                match patch.kind {
                    PatchType::Strategic => api.patch(name, &params, &Patch::Strategic(&patch.body)).await?,
                    PatchType::Merge => api.patch(name, &params, &Patch::Merge(&patch.body)).await?,
                };
            }
            How::Replace => {
                api.replace(name, &by_helm(), &typed).await?;
            }
            How::Unchanged => {}
        }
        Ok(())
    }

    async fn adopt(&self, api: &Api<DynamicObject>, name: &str) -> Result<()> {
        let Some(live) = api.get_opt(name).await? else { return Ok(()) };
        let Some(patch) = helm::plan::hand_over(&serde_json::to_value(&live)?, MANAGER) else {
            return Ok(());
        };
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(name, &params, &patch).await?;
        Ok(())
    }

    async fn delete(&self, version: &str, key: &ObjectKey, propagation: Propagation) -> Result<()> {
        let policy = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Orphan => PropagationPolicy::Orphan,
        };
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        self.api(version, key).await?.delete(&key.name, &params).await?;
        Ok(())
    }

    async fn record(&self, plan: &mut Plan, record: &Record) -> Result<()> {
        let now = jiff::Timestamp::now().as_second();
        match record {
            Record::Create => self.store(&plan.release, Written::Created(now)).await,
            Record::Update => self.store(&plan.release, Written::Modified(now)).await,
            Record::Mark { status, description } => {
                plan.release.info.status = *status;
                if let Some(description) = description {
                    plan.release.info.description.clone_from(description);
                }
                Ok(())
            }
            Record::Supersede(revision) => {
                let mut old = self.stored(&plan.release.name, *revision).await?;
                old.info.status = Status::Superseded;
                self.store(&old, Written::Modified(now)).await
            }
            Record::Refresh(revision) => {
                let old = self.stored(&plan.release.name, *revision).await?;
                self.store(&old, Written::Modified(now)).await
            }
            Record::Delete(revisions) => {
                for revision in revisions {
                    let key = storage_key(&plan.release.name, *revision);
                    self.secrets().delete(&key, &DeleteParams::default()).await?;
                }
                Ok(())
            }
        }
    }

    async fn stored(&self, name: &str, revision: i64) -> Result<Release> {
        let secret = self.secrets().get(&storage_key(name, revision)).await?;
        Ok(from_storage(&serde_json::to_value(secret)?)?)
    }

    async fn store(&self, release: &Release, when: Written) -> Result<()> {
        let secret = storage_object(release, Driver::Secret, self.dialect, when)?;
        let secret: Secret = serde_json::from_value(secret)?;
        let name = secret.meta().name.clone().context("a name")?;
        match when {
            Written::Created(_) => self.secrets().create(&by_helm(), &secret).await?,
            Written::Modified(_) => self.secrets().replace(&name, &by_helm(), &secret).await?,
        };
        Ok(())
    }

    async fn hooks(&self, plan: &mut Plan, run: &HookRun) -> Result<()> {
        for hook in &run.hooks {
            for object in &hook.objects {
                if hook.delete_before {
                    self.delete_if_there(object).await?;
                }
                let server_side = How::ServerSide { force_conflicts: false, adopt_client_side: false };
                let how = if run.server_side { server_side } else { How::Create };
                self.apply(&Applying { object: object.clone(), how }).await?;
            }
            // Objects that are neither Jobs nor Pods have completed once they are there.
            let last_run = &mut plan.release.hooks[hook.hook].last_run;
            last_run.started_at = jiff::Timestamp::now().to_string();
            last_run.completed_at = last_run.started_at.clone();
            last_run.phase = HookPhase::Succeeded;
            self.record(plan, &Record::Update).await?;
        }
        for object in run.hooks.iter().filter(|hook| hook.delete_on_success).flat_map(|hook| &hook.objects) {
            self.delete_if_there(object).await?;
        }
        Ok(())
    }

    async fn delete_if_there(&self, object: &Object) -> Result<()> {
        let api = self.api(&object.api_version, &object.key).await?;
        if api.get_opt(&object.key.name).await?.is_some() {
            self.delete(&object.api_version, &object.key, Propagation::Background).await?;
            self.cluster.await_gone(&api, &object.key.name).await?;
        }
        Ok(())
    }

    async fn other_manifests(&self, release: &Release) -> Result<String> {
        let history = self.history(&release.name).await?;
        let manifests = history.revisions().iter().map(|release| release.manifest.as_str());
        Ok(manifests.collect::<Vec<_>>().join("\n"))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.cluster.client(), self.namespace)
    }

    async fn api(&self, api_version: &str, key: &ObjectKey) -> Result<Api<DynamicObject>> {
        let types = TypeMeta { api_version: api_version.to_owned(), kind: key.kind.clone() };
        let namespace = if key.namespace.is_empty() { self.namespace } else { &key.namespace };
        self.cluster.dynamic(&types, namespace).await
    }
}

fn by_helm() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// A key has no version, but a request needs one.
fn version_of(manifest: &str, namespace: &str, key: &ObjectKey) -> Option<String> {
    let objects = objects_of(manifest, namespace, &Builtin).ok()?;
    objects.into_iter().find(|object| object.key == *key).map(|object| object.api_version)
}

/// Objects as they are meant to be: without what each cluster makes up, and with the namespace's name left open.
pub fn comparable(object: &Json, namespace: &str) -> Result<Json> {
    let text = object.to_string().replace(namespace, "NAMESPACE");
    let mut object: Json = serde_json::from_str(&text)?;
    let fields = object.as_object_mut().context("an object")?;
    fields.remove("status");
    let metadata = fields.get_mut("metadata").and_then(Json::as_object_mut).context("metadata")?;
    for made_up in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        metadata.remove(made_up);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Json::as_object_mut) {
        annotations.remove("deployment.kubernetes.io/revision");
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Json::as_array_mut) {
        entries.retain(|entry| entry["manager"] == MANAGER);
        for entry in entries {
            entry.as_object_mut().map(|entry| entry.remove("time"));
        }
    }
    Ok(object)
}
