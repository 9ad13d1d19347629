//! Runs the hooks of an event one after the other, and notes in the record how each went.

use flux_apply::ObjectId;
use helm::HookPhase;
use helm::plan::{HookRun, HookStep, How, Object, Propagation};
use helm::release::Release;
use k8s_openapi::jiff::Timestamp;

use super::execute::{Executor, id_of, placed, refused};
use super::fault::Fault;
use super::storage::Records;
use super::wait::Subject;

impl Executor<'_> {
    pub(super) async fn hooks(
        &self,
        run: &HookRun,
        release: &mut Release,
        records: &mut Records,
    ) -> Result<(), Fault> {
        for (at, step) in run.hooks.iter().enumerate() {
            if let Err(fault) = self.hook(run, step, release, records).await {
                if step.delete_on_failure {
                    self.delete_hook(&step.objects).await.unwrap_or_else(|second| {
                        tracing::warn!(
                            problem = second.message,
                            "the objects of a failed hook could not be deleted"
                        );
                    });
                }
                for done in run.hooks[..at].iter().filter(|done| done.delete_on_success) {
                    self.delete_hook(&done.objects).await?;
                }
                return Err(fault);
            }
        }
        for step in run.hooks.iter().rev().filter(|step| step.delete_on_success) {
            self.delete_hook(&step.objects).await?;
        }
        Ok(())
    }

    async fn hook(
        &self,
        run: &HookRun,
        step: &HookStep,
        release: &mut Release,
        records: &mut Records,
    ) -> Result<(), Fault> {
        if step.delete_before {
            self.delete_hook(&step.objects).await?;
        }
        let path = release.hooks[step.hook].path.clone();
        let last_run = &mut release.hooks[step.hook].last_run;
        last_run.started_at = Timestamp::now().to_string();
        last_run.completed_at = String::new();
        last_run.phase = HookPhase::Running;
        if self.storage.update(release, records).await.is_err() {
            // Helm only logs this: the run itself is what counts, and the end is stored again.
            tracing::debug!("the start of a hook could not be noted");
        }
        let result = self.create_and_watch(run, step, &path).await;
        let last_run = &mut release.hooks[step.hook].last_run;
        last_run.completed_at = Timestamp::now().to_string();
        last_run.phase = if result.is_ok() { HookPhase::Succeeded } else { HookPhase::Failed };
        result
    }

    async fn create_and_watch(&self, run: &HookRun, step: &HookStep, path: &str) -> Result<(), Fault> {
        let mut subjects = Vec::new();
        for object in &step.objects {
            let (id, json) = (id_of(object), placed(object));
            let (created, how) = if run.server_side {
                let how = How::ServerSide { force_conflicts: false, adopt_client_side: false };
                (self.apply_server_side(&id, &json, false).await, how)
            } else {
                (self.create(&id, &json).await, How::Create)
            };
            let answer = created.map_err(|cause| {
                refused(&id, &how, &cause)
                    .prefixed(&format!("warning: Hook {} {path} failed: ", run.event.name()))
            })?;
            // What the server made of it: a name it chose, and for most hooks that they are done.
            let id = ObjectId::of(&answer).unwrap_or(id);
            subjects.push(Subject::new(id, Some(&object.json)).seen(Some(answer)));
        }
        self.worker.outside(self.waiter.until_completed(self.cluster, subjects, self.timeout)).await
    }

    async fn delete_hook(&self, objects: &[Object]) -> Result<(), Fault> {
        let ids: Vec<ObjectId> = objects.iter().map(id_of).filter(|id| !id.name.is_empty()).collect();
        let mut gone = Vec::new();
        for id in ids {
            let found = self.cluster.get(&id).await;
            if matches!(found, Ok(None)) {
                continue;
            }
            self.delete(&id, Propagation::Background).await?;
            gone.push(id);
        }
        if gone.is_empty() {
            return Ok(());
        }
        self.worker.outside(self.waiter.until_gone(self.cluster, &gone, self.timeout)).await
    }
}
