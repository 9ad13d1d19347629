//! ImagePolicy: picks the newest of the tags that an ImageRepository found and, where asked, its digest.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_api::Object;
use flux_api::condition;
use flux_api::duration::GoDuration;
use flux_api::image::{ImagePolicy, ImagePolicyStatus, ImageReference, ImageRepository, ReflectionPolicy};
use flux_api::kinds;
use flux_api::meta::AccessFrom;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::Reflector;
use super::choose::{self, Policy};
use super::image_repository::{GATE, may_use_account, timeout};
use super::registry::connect;
use super::run::{Done, Failure, ImageKind, Run};
use super::scan;
use crate::reconcile::{Cache, Cause, Events, Next, ObjectKey, Queue, decode};
use crate::source::cloud::Asker;

pub struct ImagePolicies {
    pub ctx: Arc<Reflector>,
}

impl ImageKind for ImagePolicies {
    type Object = ImagePolicy;
    type Status = ImagePolicyStatus;
    const MANAGER: &'static str = "image-reflector-controller";

    fn client(&self) -> &Client {
        &self.ctx.client
    }

    fn events(&self) -> &Events {
        &self.ctx.events
    }

    fn status(object: &ImagePolicy) -> Option<&ImagePolicyStatus> {
        object.status.as_ref()
    }

    async fn work(&self, run: &mut Run<'_, Self>) -> Result<Done, Failure> {
        let spec = &run.object.spec;
        let always = spec.digest_reflection_policy() == ReflectionPolicy::Always;
        if always && spec.interval.is_none() {
            let message = "spec.interval must be set when spec.digestReflectionPolicy is set to 'Always'";
            return Err(Failure::stalled("IntervalNotConfigured", message));
        }
        let repository = self.repository(run.object).await?;
        scan::image(&repository.spec.image, repository.spec.insecure)
            .map_err(|error| Failure::stalled("ImageURLInvalid", error))?;
        if !may_use_account(&self.ctx, &repository) {
            let message = format!(
                "to use spec.serviceAccountName in the ImageRepository for provider authentication please enable the {GATE} feature gate in the controller"
            );
            return Err(Failure::stalled("FeatureGateDisabled", message));
        }
        let tag = self.choose(run.object, &repository).await?;
        let mut latest = ImageReference { name: repository.spec.image.clone(), tag, digest: None };
        latest.digest = self.digest(run, &repository, &latest).await?;
        observe(&mut run.status, latest);
        let message = ready_message(&run.status);
        let next = spec.interval.filter(|_| always).map_or(Next::OnChange, |wait| Next::After(wait.to_std()));
        Ok(Done { message: message.clone(), news: None, trace: message, next })
    }
}

impl ImagePolicies {
    /// The ImageRepository, if the policy may use it.
    async fn repository(&self, policy: &ImagePolicy) -> Result<ImageRepository, Failure> {
        let reference = &policy.spec.image_repository_ref;
        let own = Object::namespace(policy);
        let key = ObjectKey::new(reference.namespace.as_deref().unwrap_or(own), &reference.name);
        let failed = |reason, cause: String| {
            Failure::new(reason, format!("failed to get the referred ImageRepository: {cause}"))
        };
        if self.ctx.options.no_cross_namespace_refs && key.namespace != own {
            let cause = format!(
                "cannot access 'ImageRepository/{key}', cross-namespace references have been blocked"
            );
            return Err(failed("AccessDenied", cause));
        }
        let kind = &kinds::IMAGE_REPOSITORY;
        let found = match self.ctx.cache.get(kind, &key) {
            Some(found) => found,
            // A controller that watches one namespace has no copy of what is in another.
            None => Arc::new(
                self.foreign(&key, own).await.map_err(|cause| failed("Failure", cause))?.ok_or_else(
                    || {
                        let name = format!("{}.{} \"{}\"", kind.plural, kind.group, key.name);
                        failed(
                            "DependencyNotReady",
                            format!("referenced ImageRepository does not exist: {name} not found"),
                        )
                    },
                )?,
            ),
        };
        let repository: ImageRepository = decode(&found).map_err(|cause| failed("Failure", cause))?;
        if key.namespace != own {
            let labels = self.namespace_labels(own).await.map_err(|cause| failed("Failure", cause))?;
            may_access(&key, own, repository.spec.access_from.as_ref(), &labels)
                .map_err(|cause| failed("AccessDenied", format!("access denied: {cause}")))?;
        }
        Ok(repository)
    }

    async fn foreign(&self, key: &ObjectKey, own: &str) -> Result<Option<DynamicObject>, String> {
        if key.namespace == own {
            return Ok(None);
        }
        let resource = crate::reconcile::resource(&kinds::IMAGE_REPOSITORY);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.ctx.client.clone(), &key.namespace, &resource);
        api.get_opt(&key.name).await.map_err(|error| error.to_string())
    }

    async fn namespace_labels(&self, name: &str) -> Result<BTreeMap<String, String>, String> {
        let api: Api<Namespace> = Api::all(self.ctx.client.clone());
        let namespace = api.get(name).await.map_err(|error| error.to_string())?;
        Ok(namespace.labels().clone())
    }

    async fn choose(&self, object: &ImagePolicy, repository: &ImageRepository) -> Result<String, Failure> {
        let spec = &object.spec;
        let policy = Policy::new(&spec.policy, spec.filter_tags.as_ref())
            .map_err(|error| Failure::stalled("InvalidPolicy", error.to_string()))?;
        let key = ObjectKey::new(Object::namespace(repository), Object::name(repository));
        // Tags of the image that the repository named before are no tags of this one.
        let is_scanned = scan::image(&repository.spec.image, repository.spec.insecure)
            .ok()
            .zip(repository.status.as_ref().and_then(|status| status.canonical_image_name.clone()))
            .is_some_and(|(image, scanned)| image.to_string() == scanned);
        let ctx = self.ctx.clone();
        let chosen = tokio::task::spawn_blocking(move || {
            let tags = if is_scanned { ctx.tags.get(&key) } else { Ok(Vec::new()) };
            let tags = tags.map_err(|error| format!("failed to read tags from database: {error}"))?;
            Ok::<_, String>((!tags.is_empty()).then(|| policy.latest(&tags)))
        });
        let chosen = chosen.await.map_err(|error| Failure::new("Failure", error.to_string()))?;
        match chosen.map_err(|error| Failure::new("Failure", error))? {
            Some(Ok(tag)) => Ok(tag),
            Some(Err(error @ choose::Error::Invalid(_))) => {
                Err(Failure::stalled("InvalidPolicy", error.to_string()))
            }
            Some(Err(error)) => Err(Failure::new("Failure", error.to_string())),
            None => {
                let wait = self.ctx.options.requeue_dependency;
                let shown = GoDuration::from(wait).round(GoDuration::from_secs(1));
                let message = format!("retrying in {shown} error: no tags in database");
                Err(Failure::new("DependencyNotReady", message).after(wait))
            }
        }
    }

    /// The digest behind the tag, as far as the policy wants to know it.
    async fn digest(
        &self,
        run: &Run<'_, Self>,
        repository: &ImageRepository,
        latest: &ImageReference,
    ) -> Result<Option<String>, Failure> {
        let known = run.status.latest_ref.as_ref();
        match run.object.spec.digest_reflection_policy() {
            ReflectionPolicy::Never => return Ok(None),
            ReflectionPolicy::IfNotPresent => {
                let same = known.filter(|known| known.name == latest.name && known.tag == latest.tag);
                if let Some(digest) = same.and_then(|known| known.digest.clone()) {
                    return Ok(Some(digest));
                }
            }
            ReflectionPolicy::Always => {}
        }
        let failed =
            |cause: String| Failure::new("Failed", format!("failed fetching digest of {latest}: {cause}"));
        let limit = timeout(repository);
        let looking = self.look(repository, &latest.tag);
        let looked = run.worker.outside(tokio::time::timeout(limit, looking)).await;
        let looked = looked.map_err(|_| failed("context deadline exceeded".to_owned()))?;
        looked.map(Some).map_err(failed)
    }

    async fn look(&self, repository: &ImageRepository, tag: &str) -> Result<String, String> {
        let spec = &repository.spec;
        let image = scan::image(&spec.image, spec.insecure)?;
        let (namespace, name) = (Object::namespace(repository), Object::name(repository));
        let asker = Asker { kind: "ImageRepository", namespace, name };
        let registry = connect(&self.ctx.identity, asker, spec, image)
            .await
            .map_err(|error| format!("failed to configure authentication options: {error}"))?;
        let turn = self.ctx.hosts.turn(registry.repository().registry()).await;
        let digest = registry.resolve(tag).await;
        turn.learn(&digest);
        let place = format!("{}:{tag}", spec.image);
        let digest =
            digest.map_err(|error| format!("failed fetching descriptor for \"{place}\": {error}"))?;
        Ok(digest.to_string())
    }
}

/// Remembers what was picked, and what before that.
fn observe(status: &mut ImagePolicyStatus, latest: ImageReference) {
    if status.latest_ref.as_ref() != Some(&latest) {
        status.observed_previous_ref = status.latest_ref.replace(latest);
    }
}

fn ready_message(status: &ImagePolicyStatus) -> String {
    let Some(latest) = &status.latest_ref else { return String::new() };
    let mut message = format!("Latest image tag for {} resolved to {}", latest.name, latest.tag);
    if let Some(digest) = &latest.digest {
        message.push_str(&format!(" with digest {digest}"));
    }
    if let Some(previous) = status.observed_previous_ref.as_ref().filter(|previous| *previous != latest) {
        message.push_str(&format!(" (previously {previous})"));
    }
    message
}

/// Whether a policy in `own` may use a repository that lies elsewhere.
fn may_access(
    repository: &ObjectKey,
    own: &str,
    access: Option<&AccessFrom>,
    labels: &BTreeMap<String, String>,
) -> Result<(), String> {
    let Some(access) = access else {
        return Err(format!("'{repository}' can't be accessed due to missing ACL labels on 'accessFrom'"));
    };
    let matches = access
        .namespace_selectors
        .iter()
        .any(|selector| selector.match_labels.iter().all(|(label, value)| labels.get(label) == Some(value)));
    if matches {
        return Ok(());
    }
    Err(format!("'{repository}' can't be accessed due to ACL labels mismatch on namespace '{own}'"))
}

/// Wakes policies when their repository found other tags, or any at all while they wait for some.
pub fn listen(cache: &Arc<Cache>, queue: &Arc<Queue>) {
    let index = cache.index(&kinds::IMAGE_POLICY, |policy| {
        let reference = policy.data.pointer("/spec/imageRepositoryRef");
        let text = |name: &str| reference.and_then(|it| it.get(name)).and_then(Value::as_str);
        let own = policy.namespace().unwrap_or_default();
        let namespace = text("namespace").unwrap_or(&own).to_owned();
        text("name").map(|name| ObjectKey::new(namespace, name).to_string()).into_iter().collect()
    });
    let (queue, policies) = (queue.clone(), cache.clone());
    cache.listen(&kinds::IMAGE_REPOSITORY, move |change| {
        let scanned = |object: Option<&Arc<DynamicObject>>, field: &str| {
            object.and_then(|object| object.data.pointer(field).cloned())
        };
        let differs =
            |field: &str| scanned(change.new.as_ref(), field) != scanned(change.old.as_ref(), field);
        if scanned(change.new.as_ref(), "/status/lastScanResult").is_none() {
            return;
        }
        let new_tags = differs("/status/lastScanResult/revision") || differs("/status/canonicalImageName");
        if !new_tags && !differs("/status/lastScanResult/scanTime") {
            return;
        }
        for key in index.find(&change.key.to_string()) {
            let waits =
                || policies.get(&kinds::IMAGE_POLICY, &key).is_some_and(|policy| waits_for_tags(&policy));
            if new_tags || waits() {
                queue.add(key, Cause::Change);
            }
        }
    });
}

fn waits_for_tags(policy: &DynamicObject) -> bool {
    let conditions = policy.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == condition::READY && one["reason"] == "DependencyNotReady")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(tag: &str, digest: Option<&str>) -> ImageReference {
        ImageReference { name: "ghcr.io/a/b".into(), tag: tag.into(), digest: digest.map(str::to_owned) }
    }

    #[test]
    fn the_message_tells_what_is_new_and_what_was_before() {
        let mut status = ImagePolicyStatus::default();
        observe(&mut status, reference("1.0.0", None));
        assert_eq!(ready_message(&status), "Latest image tag for ghcr.io/a/b resolved to 1.0.0");
        observe(&mut status, reference("1.1.0", Some("sha256:ab")));
        let message = "Latest image tag for ghcr.io/a/b resolved to 1.1.0 with digest sha256:ab (previously ghcr.io/a/b:1.0.0)";
        assert_eq!(ready_message(&status), message);
        observe(&mut status, reference("1.1.0", Some("sha256:ab")));
        assert_eq!(ready_message(&status), message, "nothing new keeps what was before");
        observe(&mut status, reference("1.2.0", None));
        assert!(ready_message(&status).ends_with("(previously ghcr.io/a/b:1.1.0@sha256:ab)"));
    }

    #[test]
    fn another_namespace_needs_labels_that_match() {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let key = ObjectKey::new("images", "app");
        let access = |text: &str| -> AccessFrom { serde_json::from_str(text).unwrap() };
        let denied = |access: Option<&AccessFrom>| may_access(&key, "apps", access, &labels).unwrap_err();
        assert_eq!(denied(None), "'images/app' can't be accessed due to missing ACL labels on 'accessFrom'");
        let other = access(r#"{"namespaceSelectors":[{"matchLabels":{"team":"b"}}]}"#);
        assert_eq!(
            denied(Some(&other)),
            "'images/app' can't be accessed due to ACL labels mismatch on namespace 'apps'"
        );
        let right =
            access(r#"{"namespaceSelectors":[{"matchLabels":{"team":"b"}},{"matchLabels":{"team":"a"}}]}"#);
        assert_eq!(may_access(&key, "apps", Some(&right), &labels), Ok(()));
        let all = access(r#"{"namespaceSelectors":[{"matchLabels":{}}]}"#);
        assert_eq!(may_access(&key, "apps", Some(&all), &labels), Ok(()));
    }
}
