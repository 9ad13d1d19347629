//! A HelmRelease on its way out: its release is uninstalled, its HelmChart deleted, unless it was suspended.

use flux_api::condition::{ConditionStatus, READY, RELEASED};
use flux_api::helm::HelmRelease;
use flux_api::names::FINALIZER;
use flux_apply::health_exprs::Judge;
use kube::ResourceExt;
use kube::api::DynamicObject;

use super::actions::Actor;
use super::fault::Fault;
use super::helm_release::{End, HelmReleases};
use super::identity::Target;
use super::report::{About, Run, release_with_chart, tell};
use super::snapshot::Made;
use super::storage::Storage;
use super::{chart_object, outcomes, policy, snapshot};
use crate::identity::NoIdentity;
use crate::reconcile::{Next, Severity, Worker};

impl HelmReleases {
    pub(super) async fn finalize(&self, raw: &DynamicObject, object: &HelmRelease, worker: &Worker) -> Next {
        if !raw.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Next::OnChange;
        }
        let written = object.status.clone().unwrap_or_default();
        let mut run = Run {
            raw,
            object,
            status: written.clone(),
            written,
            algorithm: self.ctx.options.snapshot_digest_algo,
        };
        if !object.spec.suspend {
            let left = self.leave(&mut run, worker).await;
            if let Err(problem) = left {
                tracing::warn!(problem, "deletion is held up");
                self.note_request(&mut run);
                return Next::Backoff.if_told(self.write(&mut run).await);
            }
        }
        if let Err(error) = self.write(&mut run).await {
            return Next::Backoff.if_told(Err(error));
        }
        let finalizers: Vec<String> =
            raw.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
        match self.patch_finalizers(raw, &finalizers, None).await {
            Ok(_) => Next::OnChange,
            Err(kube::Error::Api(answer)) if answer.code == 404 => Next::OnChange,
            Err(error) => {
                tracing::warn!(%error, "finalizer could not be removed");
                Next::Backoff
            }
        }
    }

    async fn leave(&self, run: &mut Run<'_>, worker: &Worker) -> Result<(), String> {
        if run.status.storage_namespace.is_some() {
            self.uninstall_for_good(run, worker).await?;
        }
        let no_cross = self.ctx.options.no_cross_namespace_refs;
        let deleted = chart_object::delete(&self.ctx.client, run.object, &mut run.status, no_cross).await;
        if let Some(happened) = deleted.map_err(|error| error.to_string())? {
            self.trace(run.raw, &happened);
        }
        Ok(())
    }

    async fn uninstall_for_good(&self, run: &mut Run<'_>, worker: &Worker) -> Result<(), String> {
        let target = match self.ctx.target(run.object).await {
            Ok(target) => target,
            // Nobody is left who could uninstall it, or who knows where it is; upstream lets the object go as well.
            Err(NoIdentity::Missing(why)) => {
                tracing::error!(why, "skipping Helm release uninstallation");
                return Ok(());
            }
            Err(NoIdentity::Refused(why)) => {
                let text = format!("failed to build REST client getter to uninstall release: {why}");
                run.set(READY, ConditionStatus::False, "UninstallFailed", text.clone());
                return Err(text);
            }
        };
        self.uninstall(run, &target, worker).await.map_err(|fault| fault.message)?;
        run.status.history.clear();
        run.status.storage_namespace = None;
        Ok(())
    }

    /// The release is to stand somewhere else: it goes from where it was.
    pub(super) async fn leave_old_target(&self, run: &mut Run<'_>, target: &Target, worker: &Worker) -> End {
        if self.uninstall(run, target, worker).await.is_err() {
            return End::Backoff;
        }
        run.status.history.clear();
        policy::clear_failures(&mut run.status);
        run.status.storage_namespace = None;
        End::Again
    }

    /// Uninstalls what the status knows of. What was never released needs nothing.
    async fn uninstall(&self, run: &mut Run<'_>, target: &Target, worker: &Worker) -> Result<(), Fault> {
        let policy = self.policy(run.object);
        let (Some(latest), Some(namespace)) =
            (snapshot::latest(&run.status.history).cloned(), run.status.storage_namespace.clone())
        else {
            return Ok(());
        };
        let storage = Storage::new(target.cluster.client.clone(), &namespace, helm::Dialect::Helm4);
        let result = self.uninstall_records(run, target, worker, &storage, &latest.name).await;
        let latest = snapshot::latest(&run.status.history).cloned().unwrap_or(latest);
        let about = About::snapshot(&latest);
        match result {
            Ok(Removal::Done) => {
                let text = format!("Helm uninstall succeeded for release {}", release_with_chart(&latest));
                run.status.inventory = None;
                run.set(RELEASED, ConditionStatus::False, "UninstallSucceeded", text.clone());
                tell(&self.ctx.events, run.raw, Severity::Info, "UninstallSucceeded", text, Some(&about));
                run.summarize(policy);
                Ok(())
            }
            Ok(Removal::WasGone(text)) => {
                run.set(RELEASED, ConditionStatus::False, "UninstallSucceeded", text);
                run.summarize(policy);
                Ok(())
            }
            Err(fault) => {
                let text = format!(
                    "Helm uninstall failed for release {}: {}",
                    release_with_chart(&latest),
                    fault.message.trim()
                );
                run.status.failures += 1;
                run.set(RELEASED, ConditionStatus::False, "UninstallFailed", text.clone());
                tell(&self.ctx.events, run.raw, Severity::Error, "UninstallFailed", text, Some(&about));
                run.summarize(policy);
                Err(fault)
            }
        }
    }

    async fn uninstall_records(
        &self,
        run: &mut Run<'_>,
        target: &Target,
        worker: &Worker,
        storage: &Storage,
        name: &str,
    ) -> Result<Removal, Fault> {
        let mut records = storage.read(name).await?;
        let latest = snapshot::latest(&run.status.history).map(snapshot::full_name).unwrap_or_default();
        if records.history.is_empty() {
            return Ok(Removal::WasGone(format!(
                "Release {latest} was not found, assuming it is uninstalled"
            )));
        }
        let kube_version = target.kube_version().await.map_err(Fault::new)?;
        let checks = Judge::default();
        let actor = Actor {
            object: run.object,
            policy: self.policy(run.object),
            cluster: &target.cluster,
            storage,
            worker,
            checks: &checks,
            kube_version,
            dialect: helm::Dialect::Helm4,
            enable_dns: false,
            cancel_health_check: false,
            override_managers: &[],
        };
        let outcome = actor.uninstall(&mut records).await;
        outcomes::note_uninstalled(run, &outcome, Made::Uninstall);
        let keeps = run.object.spec.uninstall.as_ref().is_some_and(|uninstall| uninstall.keep_history);
        match outcome.fault {
            None => Ok(Removal::Done),
            Some(fault) if keeps && fault.message.contains("is already deleted") => {
                Ok(Removal::WasGone(format!("Release {latest} was already uninstalled")))
            }
            Some(fault) => Err(fault),
        }
    }
}

enum Removal {
    Done,
    WasGone(String),
}
