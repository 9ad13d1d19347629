//! Clone, change, commit, push; and once more from the start when somebody else pushed meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flux_api::Object;
use flux_api::source::GitRepository;
use flux_remote::git::{self, Address, Limits, NewCommit, PushOptions, Signer, Working, check_push};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::ImageUpdateAutomations;
use super::message::{self, Message};
use super::plan::Plan;
use super::pull_request::{Api, Host, Opened};
use super::update::{Updated, update};
use crate::image::run::Failure;
use crate::image::setters::{Problem, Setters};
use crate::reconcile::{ObjectKey, heavy};
use crate::source::access::Secrets;
use crate::source::git_repository::{NoWay, Way};

/// How often a push that came too late is made again from a fresh checkout.
const TRIES: usize = 5;

/// All that one run works from.
pub(super) struct Job {
    pub(super) key: ObjectKey,
    pub(super) repository: GitRepository,
    pub(super) plan: Plan,
    pub(super) signer: Option<Arc<Signer>>,
    pub(super) setters: Arc<Setters>,
    pub(super) path: Option<String>,
    pub(super) template: Option<String>,
    pub(super) values: BTreeMap<String, String>,
    /// Who is asked to open a request for what was pushed, and the Secret with the token.
    pub(super) pull_request: Option<(Host, Option<String>)>,
    /// Whether this spec was never brought to an end: then it is checked whether pushing is possible at all.
    pub(super) is_new: bool,
}

pub(super) enum Outcome {
    /// Neither the images nor the repository changed since the last run.
    Unchanged,
    UpToDate {
        revision: String,
        /// Whether the branch to push to holds more than what was checked out.
        ahead: bool,
        problems: Vec<(String, Problem)>,
    },
    Pushed(Pushed),
}

pub(super) struct Pushed {
    /// What was checked out, as `main@sha1:…`.
    pub(super) checkout: String,
    pub(super) commit: String,
    pub(super) branch: String,
    pub(super) refspec: Option<String>,
    pub(super) message: String,
    pub(super) problems: Vec<(String, Problem)>,
}

impl ImageUpdateAutomations {
    /// `observed` is the revision at which there is nothing to do.
    pub(super) async fn bring_up_to_date(
        &self,
        job: &Job,
        observed: Option<&str>,
    ) -> Result<Outcome, Failure> {
        let mut may_push = false;
        for attempt in 1.. {
            let mut way = self.way(job).await?;
            if let Some(observed) = observed.filter(|_| attempt == 1)
                && self.revision(job, &mut way).await.is_some_and(|now| now == observed)
            {
                return Ok(Outcome::Unchanged);
            }
            let (working, checkout) = self.check_out(job, &mut way).await?;
            let (mut working, updated) = self.update(job, working).await?;
            let ahead = working.head().is_some_and(|head| !checkout.ends_with(&head.to_string()));
            let has_changes = !updated.changes.is_empty();
            let early = job.is_new && !self.options.upstream_only;
            if (early || has_changes) && !may_push {
                self.check_access(job).await?;
                may_push = true;
            }
            if !has_changes {
                return Ok(Outcome::UpToDate { revision: checkout, ahead, problems: updated.problems });
            }
            let message = self.message(job, &updated).await?;
            let commit = self.commit(job, &mut working, updated.files, &message)?;
            let Some(commit) = commit else {
                return Ok(Outcome::UpToDate { revision: checkout, ahead, problems: updated.problems });
            };
            match self.push(job, &mut way, &mut working).await {
                Ok(()) => {
                    let (branch, refspec) = (job.plan.push_branch.clone(), job.plan.refspec.clone());
                    return Ok(Outcome::Pushed(Pushed {
                        checkout,
                        commit,
                        branch,
                        refspec: refspec.map(|(text, _)| text),
                        message,
                        problems: updated.problems,
                    }));
                }
                Err(error) if attempt < TRIES && is_race(&error) => {
                    tracing::info!(%error, attempt, "somebody else pushed meanwhile; starting over");
                    // Two that started over at the same time would meet again.
                    tokio::time::sleep(Duration::from_millis(rand::random_range(50..400))).await;
                }
                Err(error) => return Err(self.not_pushed(job, &way.address, &error)),
            }
        }
        unreachable!("the last try returns")
    }

    async fn way(&self, job: &Job) -> Result<Way, Failure> {
        let deadline = Instant::now() + job.plan.timeout;
        self.connector.open(&job.repository, deadline).await.map_err(|error| match error {
            NoWay::Invalid(cause) => Failure::stalled(
                "InvalidSourceConfiguration",
                format!("{cause}: invalid source configuration"),
            ),
            NoWay::Failed(cause) => {
                let message = format!("failed configuring source manager: {cause}");
                Failure::new("SourceManagerFailed", message)
            }
        })
    }

    /// What the reference means on the remote now; nothing where that is not known for sure.
    async fn revision(&self, job: &Job, way: &mut Way) -> Option<String> {
        let reference = &job.plan.reference;
        let prefixes = reference.prefixes();
        let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let listing = git::list_refs(way.remote.as_mut(), &prefixes, Limits::DEFAULT);
        let refs = tokio::time::timeout(job.plan.timeout, listing).await.ok()?.ok()?;
        git::pick(reference, &refs).ok().map(|pick| pick.revision())
    }

    async fn check_out(&self, job: &Job, way: &mut Way) -> Result<(Working, String), Failure> {
        let failed =
            |cause: String| Failure::new("GitOperationFailed", format!("failed to checkout source: {cause}"));
        let digest = Sha256::digest(&job.repository.spec.url);
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let folder = self.cache_folder(&job.key).join(name);
        let plan = &job.plan;
        // Cloned as the branch that is checked out; a push to another one is decided on below.
        let branch = plan.checkout_branch.as_deref().unwrap_or(&plan.push_branch);
        let remote = way.remote.as_mut();
        let cloning = async {
            let mut working = match Working::clone_at(remote, &folder, &plan.reference, branch).await {
                Err(git::Error::Cache(_) | git::Error::Missing(_)) => {
                    // What is kept here can always be had again.
                    let _ = std::fs::remove_dir_all(&folder);
                    Working::clone_at(remote, &folder, &plan.reference, branch).await?
                }
                other => other?,
            };
            let checkout = working.revision().map(str::to_owned).ok_or(git::Error::Empty)?;
            match (plan.switches, self.all_branch_references) {
                (false, _) => {}
                (true, true) => working.switch(remote, &plan.push_branch).await?,
                (true, false) => working.branch_off(&plan.push_branch),
            }
            Ok::<_, git::Error>((working, checkout))
        };
        let cloned = tokio::time::timeout(plan.timeout, cloning).await;
        let cloned = cloned.map_err(|_| failed(format!("no answer within {} s", plan.timeout.as_secs())))?;
        cloned.map_err(|error| failed(error.to_string()))
    }

    async fn update(&self, job: &Job, working: Working) -> Result<(Working, Updated), Failure> {
        let failed =
            |cause: String| Failure::new("UpdateFailed", format!("failed to apply policies: {cause}"));
        let (setters, path) = (job.setters.clone(), job.path.clone());
        let updating = heavy(move || {
            let updated = update(&working, path.as_deref(), &setters);
            updated.map(|updated| (working, updated))
        });
        updating.await.map_err(|error| failed(error.to_string()))?.map_err(failed)
    }

    async fn message(&self, job: &Job, updated: &Updated) -> Result<String, Failure> {
        let (template, values, key) = (job.template.clone(), job.values.clone(), job.key.clone());
        let (changes, setters) = (updated.changes.clone(), job.setters.clone());
        let upstream_only = self.options.upstream_only;
        let rendering = heavy(move || {
            let message = Message {
                template: template.as_deref(),
                values: &values,
                namespace: &key.namespace,
                name: &key.name,
                changes: &changes,
                setters: &setters,
                upstream_only,
            };
            message.render()
        });
        let failed =
            |cause: String| Failure::new("GitOperationFailed", format!("failed to update source: {cause}"));
        match rendering.await.map_err(|error| failed(error.to_string()))? {
            Ok(message) => Ok(message),
            Err(error @ message::Error::Removed { .. }) => {
                Err(Failure::stalled("RemovedTemplateField", error.to_string()))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn commit(
        &self,
        job: &Job,
        working: &mut Working,
        files: Vec<(String, Vec<u8>)>,
        message: &str,
    ) -> Result<Option<String>, Failure> {
        let failed = |error: git::Error| {
            Failure::new("GitOperationFailed", format!("failed to update source: {error}"))
        };
        for (path, bytes) in files {
            working.write(&path, bytes).map_err(failed)?;
        }
        let commit = NewCommit {
            message: message.to_owned(),
            author: job.plan.author.clone(),
            time: SystemTime::now(),
        };
        let made = working.commit(&commit, job.signer.as_deref()).map_err(failed)?;
        Ok(made.map(|id| id.to_string()))
    }

    async fn push(&self, job: &Job, way: &mut Way, working: &mut Working) -> Result<(), git::Error> {
        let plan = &job.plan;
        let late = || git::Error::Unreachable(format!("no answer within {} s", plan.timeout.as_secs()));
        // Another branch is ours: whatever it holds is made anew.
        let options = plan.push_options(plan.switches && self.force_push_branch);
        let pushing = working.push(way.remote.as_mut(), &options);
        tokio::time::timeout(plan.timeout, pushing).await.map_err(|_| late())??;
        let Some((_, refspec)) = &plan.refspec else { return Ok(()) };
        let options = PushOptions { refspecs: vec![refspec.clone()], ..options };
        let mut again = self.way(job).await.map_err(|failure| git::Error::Login(failure.message))?;
        let pushing = working.push(again.remote.as_mut(), &options);
        tokio::time::timeout(plan.timeout, pushing).await.map_err(|_| late())?
    }

    /// Opens a request for the branch that was pushed to, where one is wanted and none is open; its address, if new.
    pub(super) async fn request_review(&self, job: &Job, message: &str) -> Result<Option<String>, Failure> {
        let Some((host, secret)) = &job.pull_request else { return Ok(None) };
        let name = host.request_name();
        let failed =
            |cause: String| Failure::new("GitOperationFailed", format!("failed to open a {name}: {cause}"));
        let address = Address::parse(&job.repository.spec.url).map_err(|error| failed(error.to_string()))?;
        let secrets = Secrets { client: &self.client, namespace: &job.key.namespace };
        let to = job.plan.checkout_branch.as_deref().unwrap_or_default();
        let branches = (job.plan.push_branch.as_str(), to);
        let api = Api::new(secrets, secret.as_deref(), *host, &job.repository, &address, branches).await;
        match api.map_err(failed)?.ensure(message).await.map_err(failed)? {
            Opened::Already(_) => Ok(None),
            Opened::Now(address) => Ok(Some(format!("opened {name} {address}"))),
        }
    }

    /// Finds out before anything is changed whether the credentials may push at all.
    async fn check_access(&self, job: &Job) -> Result<(), Failure> {
        let mut way = self.way(job).await?;
        let checking = check_push(way.remote.as_mut());
        match tokio::time::timeout(job.plan.timeout, checking).await {
            Ok(Err(error)) if cannot_push(&error).is_some() => {
                Err(self.not_pushed(job, &way.address, &error))
            }
            // Anything else shows when it is tried.
            _ => Ok(()),
        }
    }

    fn not_pushed(&self, job: &Job, address: &Address, error: &git::Error) -> Failure {
        let cause = match cannot_push(error) {
            Some(said) if !self.options.upstream_only => needs_write_access(&job.repository, address, said),
            _ => error.to_string(),
        };
        Failure::new("GitOperationFailed", format!("failed to update source: {cause}"))
    }
}

/// Whether the credentials are the reason, and what the server said.
fn cannot_push(error: &git::Error) -> Option<&str> {
    match error {
        git::Error::ReadOnly(said) => Some(said),
        git::Error::AuthenticationRequired => Some("authentication required"),
        git::Error::Forbidden => Some("authorization failed"),
        _ => None,
    }
}

/// One sentence with the fix.
fn needs_write_access(repository: &GitRepository, address: &Address, said: &str) -> String {
    let (namespace, name) = (Object::namespace(repository), Object::name(repository));
    let secret = repository.spec.secret_ref.as_ref().map(|secret| format!("{namespace}/{}", secret.name));
    let advice = match (address, secret) {
        (_, None) => format!(
            "GitRepository {namespace}/{name} has no secretRef, and image automation cannot push without logging in: \
             give it a Secret with credentials that may write to the repository"
        ),
        (Address::Ssh(_), Some(secret)) => format!(
            "the deploy key of GitRepository {namespace}/{name} is read-only, and image automation needs write access: \
             allow write access for this key at the Git host, or put a key that has it into Secret {secret}"
        ),
        (Address::Http(_), Some(secret)) => format!(
            "the credentials of GitRepository {namespace}/{name} may read but not push, and image automation needs write access: \
             give the user or token of Secret {secret} permission to write the repository's contents"
        ),
    };
    format!("{advice} (the server said: {said})")
}

/// Whether a push came too late, so that a fresh checkout can help.
fn is_race(error: &git::Error) -> bool {
    match error {
        git::Error::NotFastForward(_) => true,
        git::Error::PushRefused { reason, .. } => {
            let reason = reason.to_lowercase();
            [
                "fetch first",
                "non-fast-forward",
                "cannot lock ref",
                "failed to update ref",
                "stale info",
                "already exists",
            ]
            .iter()
            .any(|late| reason.contains(late))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn repository(url: &str, secret: bool) -> GitRepository {
        let mut spec = json!({ "url": url, "interval": "1m" });
        if secret {
            spec["secretRef"] = json!({ "name": "key" });
        }
        let object = json!({ "metadata": { "name": "fleet", "namespace": "flux" }, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    fn sentence(url: &str, secret: bool) -> String {
        needs_write_access(&repository(url, secret), &Address::parse(url).unwrap(), "read only")
    }

    #[test]
    fn a_read_only_credential_is_explained_with_its_fix() {
        let ssh = sentence("ssh://git@git.example.com/a", true);
        assert!(ssh.contains("the deploy key of GitRepository flux/fleet is read-only"), "{ssh}");
        assert!(ssh.contains("allow write access for this key") && ssh.contains("Secret flux/key"), "{ssh}");
        let https = sentence("https://git.example.com/a", true);
        assert!(https.contains("may read but not push") && https.contains("Secret flux/key"), "{https}");
        let nobody = sentence("https://git.example.com/a", false);
        assert!(nobody.contains("has no secretRef"), "{nobody}");
        for text in [ssh, https, nobody] {
            assert!(text.ends_with("(the server said: read only)"), "{text}");
        }
    }

    #[test]
    fn only_a_push_that_came_too_late_is_made_again() {
        let refused = |reason: &str| git::Error::PushRefused { reference: "x".into(), reason: reason.into() };
        assert!(is_race(&git::Error::NotFastForward("refs/heads/main".into())));
        assert!(is_race(&refused("fetch first")) && is_race(&refused("cannot lock ref 'refs/heads/main'")));
        assert!(!is_race(&refused("protected branch hook declined")));
        assert!(!is_race(&git::Error::ReadOnly(String::new())));
    }
}
