//! ImageRepository: lists an image's tags now and then and keeps the list for the policies.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flux_api::Object;
use flux_api::condition;
use flux_api::duration::GoDuration;
use flux_api::image::{ImageRepository, ImageRepositoryStatus, ScanResult};
use flux_api::kinds;
use flux_api::source::CloudProvider;
use flux_api::time::Time;
use flux_remote::oci::{Registry, Repository};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;

use super::Reflector;
use super::registry::connect;
use super::run::{Done, Failure, ImageKind, Run};
use super::scan::{self, Due, Reason, Seen};
use crate::reconcile::{Events, Next, ObjectKey, Severity};
use crate::source::cloud::Asker;

const LEAST_TIMEOUT: Duration = Duration::from_secs(1);
const SCAN_FAILED: &str = "ReadOperationFailed";
pub(super) const GATE: &str = "ObjectLevelWorkloadIdentity";

pub struct ImageRepositories {
    pub ctx: Arc<Reflector>,
}

impl ImageKind for ImageRepositories {
    type Object = ImageRepository;
    type Status = ImageRepositoryStatus;
    const MANAGER: &'static str = "image-reflector-controller";

    fn client(&self) -> &Client {
        &self.ctx.client
    }

    fn events(&self) -> &Events {
        &self.ctx.events
    }

    fn status(object: &ImageRepository) -> Option<&ImageRepositoryStatus> {
        object.status.as_ref()
    }

    async fn work(&self, run: &mut Run<'_, Self>) -> Result<Done, Failure> {
        let spec = &run.object.spec;
        if !may_use_account(&self.ctx, run.object) {
            let message = format!(
                "to use spec.serviceAccountName for provider authentication please enable the {GATE} feature gate in the controller"
            );
            return Err(Failure::stalled("FeatureGateDisabled", message));
        }
        let repository = scan::image(&spec.image, spec.insecure)
            .map_err(|error| Failure::stalled("ImageURLInvalid", error))?;
        let deadline = Instant::now() + timeout(run.object);
        let canonical = repository.to_string();
        let registry = self.login(run.object, repository, deadline).await?;
        let due = self.due(run, &canonical);
        let (wait, outcome) = match due {
            Due::In(wait) => (wait, "no change in repository configuration since last scan"),
            Due::Now(reason) => {
                run.progress(&format!("scanning: {}", reason.as_str()), reason == Reason::NoTags).await;
                let before = revision(&run.status).map(str::to_owned);
                self.scan(run, &registry, deadline).await?;
                let same = before.is_some() && before.as_deref() == revision(&run.status);
                (spec.interval.to_std(), if same { "tags did not change" } else { "successful scan" })
            }
        };
        run.status.canonical_image_name = Some(canonical);
        run.status.observed_exclusion_list = spec.exclusion_list();
        self.sweep();
        let count = run.status.last_scan_result.as_ref().map_or(0, |result| result.tag_count);
        let checksum = revision(&run.status).unwrap_or_default();
        Ok(Done {
            message: format!("successful scan: found {count} tags with checksum {checksum}"),
            news: None,
            trace: format!("{outcome}, next scan in {}", GoDuration::from(wait)),
            next: Next::After(wait),
        })
    }

    fn clean_up(&self, key: &ObjectKey) {
        if let Err(error) = self.ctx.tags.remove(key) {
            tracing::error!(%error, "tags could not be removed");
        }
    }
}

impl ImageRepositories {
    async fn login(
        &self,
        object: &ImageRepository,
        repository: Repository,
        deadline: Instant,
    ) -> Result<Registry, Failure> {
        let (namespace, name) = (Object::namespace(object), Object::name(object));
        let asker = Asker { kind: "ImageRepository", namespace, name };
        let login = connect(&self.ctx.identity, asker, &object.spec, repository);
        let login = tokio::time::timeout_at(deadline, login).await;
        let login = login.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        login.map_err(|error| {
            let message = format!("failed to configure authentication options: {error}");
            Failure::new("AuthenticationFailed", message)
        })
    }

    fn due(&self, run: &Run<'_, Self>, canonical: &str) -> Due {
        let has_tags = self.ctx.tags.has(&run.key());
        let ready = condition::find(run.object.conditions(), condition::READY);
        let failed = ready.is_some_and(|ready| ready.reason == SCAN_FAILED);
        let seen = Seen { canonical, request: run.request(), has_tags, failed, now: Timestamp::now() };
        scan::due(&run.object.spec, &run.status, &seen)
    }

    async fn scan(
        &self,
        run: &mut Run<'_, Self>,
        registry: &Registry,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let failed = |error: String| Failure::new(SCAN_FAILED, format!("scan failed: {error}"));
        let listing = async {
            let turn = self.ctx.hosts.turn(registry.repository().registry()).await;
            let tags = registry.tags().await;
            turn.learn(&tags);
            tags.map_err(|error| error.to_string())
        };
        let listed = run.worker.outside(tokio::time::timeout_at(deadline, listing)).await;
        let tags = listed.map_err(|_| failed("context deadline exceeded".to_owned()))?.map_err(failed)?;
        let (ctx, key, exclusions) = (self.ctx.clone(), run.key(), run.object.spec.exclusion_list());
        let stored = tokio::task::spawn_blocking(move || {
            let kept = scan::keep(tags, &exclusions)?;
            let stored = ctx.tags.set(&key, &kept.tags).map_err(|error| error.to_string());
            stored.map(|revision| (kept, revision))
        });
        let stored = stored.await.map_err(|error| failed(error.to_string()))?;
        let (kept, revision) = stored.map_err(failed)?;
        if kept.malformed > 0 {
            let message = format!(
                "left out {} names that are no tags by the OCI distribution specification",
                kept.malformed
            );
            run.tell(Severity::Trace, SCAN_FAILED, message);
        }
        run.status.last_scan_result = Some(ScanResult {
            revision: Some(revision),
            tag_count: i64::try_from(kept.tags.len()).unwrap_or(i64::MAX),
            scan_time: Some(Time::new(Timestamp::now())),
            latest_tags: kept.latest(),
        });
        Ok(())
    }

    fn sweep(&self) {
        let cache = &self.ctx.cache;
        self.ctx.tags.sweep(self.ctx.options.gc_interval, || {
            let all = cache.list(&kinds::IMAGE_REPOSITORY);
            all.iter().map(|object| ObjectKey::of(object)).collect::<BTreeSet<_>>()
        });
    }
}

fn revision(status: &ImageRepositoryStatus) -> Option<&str> {
    status.last_scan_result.as_ref()?.revision.as_deref()
}

pub(super) fn may_use_account(ctx: &Reflector, repository: &ImageRepository) -> bool {
    let spec = &repository.spec;
    spec.provider() == CloudProvider::Generic
        || spec.service_account_name.is_none()
        || ctx.identity.object_level
}

/// How long a scan, or the look at a digest, may take.
pub(super) fn timeout(repository: &ImageRepository) -> Duration {
    repository.spec.timeout().to_std().max(LEAST_TIMEOUT)
}
