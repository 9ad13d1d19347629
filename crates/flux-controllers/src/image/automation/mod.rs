//! image-automation-controller: commits picked images to the repository that declares them.
//!
//! `policies` says which images, `plan` from where to where, `update` what changes, `message` how the commit reads,
//! `repository` clones, commits and pushes; this file goes round and keeps the books.

pub mod message;
mod plan;
mod policies;
mod pull_request;
mod repository;
mod update;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use flux_api::Object;
use flux_api::image::{
    ImageReference, ImageUpdateAutomation, ImageUpdateAutomationSpec, ImageUpdateAutomationStatus,
    UpdateStrategyName,
};
use flux_api::kinds;
use flux_api::source::GitRepository;
use flux_api::time::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use self::plan::Plan;
use self::pull_request::Host;
use self::repository::{Job, Outcome, Pushed};
use super::run::{Done, Failure, ImageKind, Run};
use super::setters::{Problem, Setters};
use crate::reconcile::{Cache, Cause, Events, Next, ObjectKey, Queue, Severity, decode, resource};
use crate::source::access::Secrets;
use crate::source::git_repository::Connector;

const READY: &str = "repository up-to-date";
/// Policies that change together end up in one commit: this long is waited for the others.
const BATCH: Duration = Duration::from_millis(500);
/// Problems with markers that one event tells of.
const TOLD_AT_ONCE: usize = 10;

/// image-automation-controller's own flags and gates.
#[derive(Clone, Debug)]
pub struct AutomationOptions {
    pub no_cross_namespace_refs: bool,
    pub ssh_kex_algos: Vec<String>,
    pub ssh_hostkey_algos: Vec<String>,
    pub default_service_account: Option<String>,
    pub token_cache_max_size: usize,
    pub token_cache_max_duration: Duration,
    /// Whatever differs from upstream on purpose is off.
    pub upstream_only: bool,
}

impl AutomationOptions {
    /// As upstream ships them.
    pub fn upstream() -> Self {
        Self {
            no_cross_namespace_refs: false,
            ssh_kex_algos: Vec::new(),
            ssh_hostkey_algos: Vec::new(),
            default_service_account: None,
            token_cache_max_size: 100,
            token_cache_max_duration: Duration::from_secs(3600),
            upstream_only: false,
        }
    }
}

pub struct ImageUpdateAutomations {
    pub client: Client,
    pub cache: Arc<Cache>,
    pub events: Events,
    pub connector: Connector,
    /// Where objects of remote repositories are kept between runs.
    pub folder: PathBuf,
    /// Gate `GitForcePushBranch`.
    pub force_push_branch: bool,
    /// Gate `GitAllBranchReferences`.
    pub all_branch_references: bool,
    pub options: AutomationOptions,
    pub turns: Turns,
    /// Problems with markers that were told already, by object.
    pub told: Mutex<HashMap<ObjectKey, String>>,
}

/// One at a time for each repository: two that push to it would only get into each other's way.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    async fn take(&self, url: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, turn| turn.strong_count() > 0);
            let turn = known.get(url).and_then(Weak::upgrade).unwrap_or_default();
            known.insert(url.to_owned(), Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }
}

impl ImageKind for ImageUpdateAutomations {
    type Object = ImageUpdateAutomation;
    type Status = ImageUpdateAutomationStatus;
    const MANAGER: &'static str = "image-automation-controller";
    const HEARS_WHILE_SUSPENDED: bool = false;

    fn client(&self) -> &Client {
        &self.client
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn status(object: &ImageUpdateAutomation) -> Option<&ImageUpdateAutomationStatus> {
        object.status.as_ref()
    }

    async fn work(&self, run: &mut Run<'_, Self>) -> Result<Done, Failure> {
        run.status.last_automation_run_time = Some(Time::new(Timestamp::now()));
        if run.worker.cause == Cause::Change && !self.options.upstream_only {
            run.worker.outside(tokio::time::sleep(BATCH)).await;
        }
        let images = self.images(run.object)?;
        let known = run.status.observed_policies.clone().unwrap_or_default();
        let job = self.job(run, &images).await?;
        let must_look = known != images || job.plan.switches || job.plan.refspec.is_some();
        let observed = run.status.observed_source_revision.clone().filter(|_| !must_look);
        let url = job.repository.spec.url.clone();
        let _turn = run.worker.outside(self.turns.take(&url)).await;
        run.progress("reconciliation in progress", false).await;
        let outcome = self.bring_up_to_date(&job, observed.as_deref()).await?;
        let interval = run.object.spec.interval.to_std();
        let mut done = Done {
            message: READY.to_owned(),
            news: None,
            trace: READY.to_owned(),
            next: Next::After(interval),
        };
        match outcome {
            Outcome::Unchanged => done.trace = "no change since last reconciliation".to_owned(),
            Outcome::UpToDate { revision, ahead, problems } => {
                self.tell_problems(run, &problems);
                if ahead {
                    done.news = self.request_review(&job, message::DEFAULT).await?;
                }
                self.observe(run, revision, images);
            }
            Outcome::Pushed(pushed) => {
                self.tell_problems(run, &pushed.problems);
                let revision = match job.plan.switches {
                    // So that the next run looks at the branch again.
                    true => pushed.checkout.clone(),
                    false => format!("{}@sha1:{}", pushed.branch, pushed.commit),
                };
                run.status.last_push_commit = Some(pushed.commit.clone());
                run.status.last_push_time = Some(Time::new(Timestamp::now()));
                let opened = self.request_review(&job, &pushed.message).await;
                let summary = pushed.summary();
                done.news = match &opened {
                    Ok(Some(opened)) => Some(format!("{summary}\n{opened}")),
                    Ok(None) | Err(_) => Some(summary),
                };
                if let Err(failure) = opened {
                    // The commit is there all the same, and is told of.
                    run.tell(Severity::Info, "Succeeded", done.news.take().unwrap_or_default());
                    return Err(failure);
                }
                self.observe(run, revision, images);
            }
        }
        Ok(done)
    }

    fn clean_up(&self, key: &ObjectKey) {
        // Losing it costs a fetch; leaving it costs space for ever.
        let _ = std::fs::remove_dir_all(self.cache_folder(key));
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl ImageUpdateAutomations {
    fn images(&self, object: &ImageUpdateAutomation) -> Result<BTreeMap<String, ImageReference>, Failure> {
        let all = self.cache.list(&kinds::IMAGE_POLICY);
        policies::select(&all, Object::namespace(object), object.spec.policy_selector.as_ref())
            .map_err(|error| Failure::stalled("InvalidPolicySelector", error))
    }

    /// Everything that a run needs to know, read before anything is done.
    async fn job(
        &self,
        run: &Run<'_, Self>,
        images: &BTreeMap<String, ImageReference>,
    ) -> Result<Job, Failure> {
        let spec: &ImageUpdateAutomationSpec = &run.object.spec;
        let namespace = Object::namespace(run.object);
        let misconfigured = |cause: String| {
            Failure::new("SourceManagerFailed", format!("failed configuring source manager: {cause}"))
        };
        let Some(git) = &spec.git else {
            let message =
                "source kind 'GitRepository' necessitates field .spec.git: invalid source configuration";
            return Err(Failure::stalled("InvalidSourceConfiguration", message));
        };
        let repository = self.repository(run.object).await?;
        let plan = Plan::new(git, &repository).map_err(misconfigured)?;
        let signer = match &git.commit.signing_key {
            Some(key) => {
                let secrets = Secrets { client: &self.client, namespace };
                Some(Arc::new(plan::signer(secrets, key).await.map_err(misconfigured)?))
            }
            None => None,
        };
        let pull_request = self.pull_request(run.raw, &plan)?;
        let strategy = spec.update.as_ref().and_then(|update| update.strategy).unwrap_or_default();
        let UpdateStrategyName::Setters = strategy;
        let setters = Setters::new(namespace, images)
            .map_err(|error| Failure::new("UpdateFailed", format!("failed to apply policies: {error}")))?;
        Ok(Job {
            key: run.key(),
            repository,
            plan,
            signer,
            setters: Arc::new(setters),
            path: spec.update.as_ref().and_then(|update| update.path.clone()),
            template: git.commit.message_template.clone(),
            values: git.commit.message_template_values.clone(),
            pull_request,
            is_new: run.object.generation() != run.object.observed_generation().unwrap_or(-1),
        })
    }

    fn pull_request(
        &self,
        raw: &DynamicObject,
        plan: &Plan,
    ) -> Result<Option<(Host, Option<String>)>, Failure> {
        let asked = raw.annotations().get(pull_request::ANNOTATION);
        let Some(asked) = asked.filter(|_| !self.options.upstream_only) else { return Ok(None) };
        let invalid = |problem: String| Failure::stalled("InvalidSourceConfiguration", problem);
        let host = Host::parse(asked).map_err(invalid)?;
        if !plan.switches || plan.checkout_branch.is_none() {
            return Err(invalid(format!(
                "annotation {} needs a branch to be checked out and spec.git.push.branch to be another one",
                pull_request::ANNOTATION
            )));
        }
        Ok(Some((host, raw.annotations().get(pull_request::SECRET_ANNOTATION).cloned())))
    }

    async fn repository(&self, object: &ImageUpdateAutomation) -> Result<GitRepository, Failure> {
        let (reference, own) = (&object.spec.source_ref, Object::namespace(object));
        let key = ObjectKey::new(reference.namespace.as_deref().unwrap_or(own), &reference.name);
        if self.options.no_cross_namespace_refs && key.namespace != own {
            let message =
                format!("can't access 'GitRepository/{key}', cross-namespace references have been blocked");
            return Err(Failure::stalled("AccessDenied", message));
        }
        let failed = |cause: String| {
            Failure::new("SourceManagerFailed", format!("failed configuring source manager: {cause}"))
        };
        let kind = &kinds::GIT_REPOSITORY;
        let found = match self.cache.get(kind, &key) {
            // A controller that watches one namespace has no copy of what is in another.
            None if key.namespace != own => {
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &key.namespace, &resource(kind));
                let found = api.get_opt(&key.name).await;
                found
                    .map_err(|error| failed(format!("failed to get referenced git repository: {error}")))?
                    .map(Arc::new)
            }
            found => found,
        };
        let found = found.ok_or_else(|| {
            let name = format!("{}.{} \"{}\" not found", kind.plural, kind.group, key.name);
            failed(format!("referenced git repository does not exist: {name}"))
        })?;
        decode(&found).map_err(failed)
    }

    fn observe(&self, run: &mut Run<'_, Self>, revision: String, images: BTreeMap<String, ImageReference>) {
        run.status.observed_source_revision = Some(revision);
        run.status.observed_policies = Some(images);
    }

    fn cache_folder(&self, key: &ObjectKey) -> PathBuf {
        self.folder.join(&key.namespace).join(&key.name)
    }

    /// Says once what is wrong with which marker.
    fn tell_problems(&self, run: &Run<'_, Self>, problems: &[(String, Problem)]) {
        let shown = problems.iter().take(TOLD_AT_ONCE);
        let lines: Vec<String> = shown.map(|(file, one)| one.at(file)).collect();
        let text = lines.join("\n");
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let before = told.insert(run.key(), text.clone());
            if text.is_empty() || before.as_deref() == Some(&text) {
                return;
            }
        }
        let more = problems.len().saturating_sub(TOLD_AT_ONCE);
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        let message = format!("image policy markers that are not followed:\n{text}{more}");
        // Helm templates often have markers and are no YAML: nobody needs to be alarmed.
        run.tell(Severity::Trace, "InvalidMarker", message);
    }
}

/// Wakes automations when a policy of their namespace picked another image, and when their repository is another.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    let (woken, automations) = (queue.clone(), cache.clone());
    cache.listen(&kinds::IMAGE_POLICY, move |change| {
        let latest = |object: Option<&Arc<DynamicObject>>| {
            object.and_then(|object| object.data.pointer("/status/latestRef").cloned())
        };
        let new = latest(change.new.as_ref());
        if new.is_none() || new == latest(change.old.as_ref()) {
            return;
        }
        for automation in automations.list(&kinds::IMAGE_UPDATE_AUTOMATION) {
            if automation.namespace().as_deref() == Some(&change.key.namespace) {
                woken.add(ObjectKey::of(&automation), Cause::Change);
            }
        }
    });
    let (woken, automations) = (queue.clone(), cache.clone());
    cache.listen(&kinds::GIT_REPOSITORY, move |change| {
        let generation =
            |object: Option<&Arc<DynamicObject>>| object.and_then(|object| object.metadata.generation);
        let new = generation(change.new.as_ref());
        if new.is_none() || new == generation(change.old.as_ref()) {
            return;
        }
        for automation in automations.list(&kinds::IMAGE_UPDATE_AUTOMATION) {
            if refers_to(&automation, &change.key) {
                woken.add(ObjectKey::of(&automation), Cause::Change);
            }
        }
    });
}

fn refers_to(automation: &DynamicObject, repository: &ObjectKey) -> bool {
    let text = |path: &str| automation.data.pointer(path).and_then(Value::as_str);
    let own = automation.namespace().unwrap_or_default();
    text("/spec/sourceRef/name") == Some(&repository.name)
        && text("/spec/sourceRef/namespace").unwrap_or(&own) == repository.namespace
}

impl Pushed {
    /// What people are told, as upstream words it.
    fn summary(&self) -> String {
        let short = self.commit.get(..7).unwrap_or(&self.commit);
        let mut text = format!("pushed commit '{short}' to branch '{}'", self.branch);
        if let Some(refspec) = &self.refspec {
            text.push_str(&format!(" and refspecs '{refspec}'"));
        }
        if !self.message.is_empty() {
            text.push_str(&format!("\n{}", self.message));
        }
        text
    }
}
