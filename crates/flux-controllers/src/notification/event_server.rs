//! Takes events in and hands each to the Alerts that want it. Whatever becomes of an event that could be read, the answer
//! is 202: the controller that sent it can do nothing about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flux_api::Object as _;
use flux_api::kinds;
use flux_api::notification::Alert;
use futures::future::BoxFuture;
use http::StatusCode;
use http::request::Parts;
use kube::api::{Api, DynamicObject};

use super::dispatch::Delivery;
use super::event::Event;
use super::known::Object;
use super::matching::{Interest, has_labels, interest, judge};
use super::metadata::combine;
use super::provider::{comments_on_change_request, forwards, writes_commit_status};
use super::server::Answer;
use super::{Context, Severity};
use crate::reconcile::events::Happening;
use crate::reconcile::{ObjectKey, resource};
use flux_api::names::EventMetadata;
use flux_api::notification::ProviderType;

const LOOK_UP_WITHIN: Duration = Duration::from_secs(15);
const CONFLICTS: &str = "metadata key conflicts detected (please refer to the Alert API docs and Flux RFC 0008 for more information)";

pub struct EventServer(pub Arc<Context>);

impl Answer for EventServer {
    fn answer(self: Arc<Self>, _: Parts, body: Bytes) -> BoxFuture<'static, StatusCode> {
        Box::pin(async move {
            let mut event = match Event::parse(&body) {
                Ok(event) => event,
                Err(error) => {
                    tracing::error!(%error, "decoding the request body failed");
                    return StatusCode::BAD_REQUEST;
                }
            };
            event.clean();
            if !self.0.duplicates.is_new(event.identity(), Instant::now()) {
                return StatusCode::TOO_MANY_REQUESTS;
            }
            event.forget_token();
            // An event that arrives while we start has its Alerts too.
            let _ = tokio::time::timeout(LOOK_UP_WITHIN, self.0.cache.synced()).await;
            self.0.route(&event).await;
            StatusCode::ACCEPTED
        })
    }
}

/// The labels of an event's object, looked up once.
enum Labels {
    Unknown,
    Missing,
    Are(BTreeMap<String, String>),
}

impl Context {
    async fn route(self: &Arc<Self>, event: &Event) {
        let mut labels = Labels::Unknown;
        for alert in self.alerts.list() {
            if !self.wants(&alert, event, &mut labels).await {
                continue;
            }
            if let Err(problem) = self.dispatch(&alert, event) {
                let message = format!("failed to dispatch notification for {}: {problem}", event.object());
                self.tell_alert(&alert, "NotificationDispatchFailed", message);
            }
        }
    }

    async fn wants(&self, alert: &Object<Alert>, event: &Event, labels: &mut Labels) -> bool {
        match interest(&alert.object, event) {
            Interest::No => return false,
            Interest::Yes => {}
            Interest::IfLabelled(sources) => {
                if matches!(labels, Labels::Unknown) {
                    *labels = self.labels(event).await.map_or(Labels::Missing, Labels::Are);
                }
                let Labels::Are(labels) = labels else {
                    let message = format!("error getting source object {}", event.object());
                    self.tell_alert(alert, "SourceFetchFailed", message);
                    return false;
                };
                if !sources.iter().any(|source| has_labels(&source.match_labels, labels)) {
                    return false;
                }
            }
        }
        let verdict = judge(&alert.object.spec, &event.message, &self.expressions);
        for problem in verdict.problems {
            self.tell_alert(alert, "InvalidConfig", problem);
        }
        verdict.passes
    }

    /// As the object has them now; the event does not carry them.
    async fn labels(&self, event: &Event) -> Option<BTreeMap<String, String>> {
        let object = &event.involved_object;
        let kind = kinds::by_kind(&object.kind)?;
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &object.namespace, &resource(kind));
        let found = tokio::time::timeout(LOOK_UP_WITHIN, api.get_metadata(&object.name)).await;
        let found =
            found.ok()?.inspect_err(|error| tracing::error!(%error, "error getting the involved object"));
        Some(found.ok()?.metadata.labels.unwrap_or_default())
    }

    /// Puts a notification in the queue of its Provider, unless the Provider has no use for the event.
    fn dispatch(self: &Arc<Self>, alert: &Arc<Object<Alert>>, event: &Event) -> Result<(), String> {
        let spec = &alert.object.spec;
        let namespace = alert.object.namespace();
        if self.options.no_cross_namespace_refs && event.involved_object.namespace != namespace {
            return Err(format!(
                "discarding event, access denied to cross-namespace sources: alert '{namespace}/{}' can't process event from '{}', cross-namespace references have been blocked",
                alert.object.name(),
                event.object()
            ));
        }
        let key = ObjectKey::new(namespace, &spec.provider_ref.name);
        let provider = self.providers.get(&key).ok_or_else(|| {
            let name = &spec.provider_ref.name;
            format!("failed to read provider: providers.{} \"{name}\" not found", kinds::PROVIDER.group)
        })?;
        let of = &provider.object.spec;
        if of.suspend || !is_for(of.provider_type, event) {
            return Ok(());
        }
        if of.service_account_name.is_some() && !self.options.object_level_workload_identity {
            return Err("to use spec.serviceAccountName for provider authentication please enable the ObjectLevelWorkloadIdentity feature gate in the controller".to_owned());
        }
        let combined = combine(event, spec);
        if !combined.conflicts.is_empty() {
            let metadata =
                combined.conflicts.into_iter().map(|(key, places)| (key, places.join(", "))).collect();
            let (severity, reason) = (Severity::Error, "MetadataAppendFailed".to_owned());
            let happening = Happening { severity, reason, message: CONFLICTS.to_owned(), metadata };
            self.events.tell(&kinds::ALERT, &alert.raw, happening);
        }
        let event = Event { metadata: combined.metadata, ..event.clone() };
        self.dispatcher.add(self, key, Delivery { alert: alert.clone(), event });
        Ok(())
    }

    pub(super) fn tell_alert(&self, alert: &Object<Alert>, reason: &str, message: String) {
        self.tell(&kinds::ALERT, &alert.raw, Severity::Error, reason, message);
    }
}

/// Statuses of commits go to those who write them, and to whoever forwards everything.
fn is_for(provider_type: ProviderType, event: &Event) -> bool {
    let writes_status = writes_commit_status(provider_type);
    if event.is_commit_status_update() && !writes_status && !forwards(provider_type) {
        return false;
    }
    // Controllers do not mark failures as updates, and a failure belongs on the commit too.
    let concerns_a_commit = event.annotated(EventMetadata::Commit).is_some()
        || event.is_commit_status_update()
        || event.is_error();
    if writes_status && !concerns_a_commit {
        tracing::info!(
            object = event.object(),
            "event dropped for commit status providers due to missing commit metadata key"
        );
        return false;
    }
    if comments_on_change_request(provider_type) && event.annotated(EventMetadata::ChangeRequest).is_none() {
        tracing::info!(
            object = event.object(),
            "event dropped for change request providers due to missing change request metadata key"
        );
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::failed;

    fn with(key: &str, value: &str) -> Event {
        Event { metadata: [(key.to_owned(), value.to_owned())].into(), ..example() }
    }

    #[test]
    fn commit_statuses_go_to_git_hosts_and_to_forwarders() {
        let update = with("source.toolkit.fluxcd.io/commit_status", "update");
        assert!(is_for(ProviderType::GitHub, &update) && is_for(ProviderType::GenericHmac, &update));
        assert!(
            !is_for(ProviderType::Slack, &update) && !is_for(ProviderType::GitHubPullRequestComment, &update)
        );
        assert!(is_for(ProviderType::Slack, &with("source.toolkit.fluxcd.io/commit_status", "other")));
    }

    #[test]
    fn git_hosts_get_what_concerns_a_commit() {
        assert!(!is_for(ProviderType::GitLab, &example()));
        assert!(is_for(ProviderType::GitLab, &failed()));
        assert!(is_for(ProviderType::GitLab, &with("event.toolkit.fluxcd.io/commit", "sha1:1")));
        assert!(!is_for(ProviderType::GitLab, &with("event.toolkit.fluxcd.io/commit", "")));
        assert!(!is_for(ProviderType::GitLab, &with("source.toolkit.fluxcd.io/commit", "sha1:1")));
    }

    #[test]
    fn comments_need_a_change_request() {
        assert!(!is_for(ProviderType::GiteaPullRequestComment, &failed()));
        assert!(is_for(
            ProviderType::GiteaPullRequestComment,
            &with("event.toolkit.fluxcd.io/change_request", "7")
        ));
    }
}
