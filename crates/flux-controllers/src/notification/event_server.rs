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
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};

use super::dispatch::Delivery;
use super::event::Event;
use super::incident::{self, Incident, Meaning, Source, Verdict};
use super::known::Object;
use super::matching::{Interest, has_labels, interest, judge, severity_fits};
use super::message;
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
            let is_new = self.0.duplicates.is_new(event.identity(), Instant::now());
            // The success that was told before the trouble began may be the one that ends it.
            if !is_new && !self.0.incidents.concerns(&event.object()) {
                return StatusCode::TOO_MANY_REQUESTS;
            }
            event.forget_token();
            // An event that arrives while we start has its Alerts too.
            let _ = tokio::time::timeout(LOOK_UP_WITHIN, self.0.cache.synced()).await;
            self.0.route(&event, is_new).await;
            if is_new { StatusCode::ACCEPTED } else { StatusCode::TOO_MANY_REQUESTS }
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
    async fn route(self: &Arc<Self>, event: &Event, is_new: bool) {
        let mut labels = Labels::Unknown;
        for alert in self.alerts.list() {
            let mode = incident::mode(alert.raw.annotations());
            if (mode.is_none() && !is_new) || !self.wants(&alert, event, mode.is_some(), &mut labels).await {
                continue;
            }
            match mode {
                None => self.dispatch_or_tell(&alert, event, None),
                Some(wait) => self.follow(&alert, event, wait).await,
            }
        }
    }

    fn dispatch_or_tell(
        self: &Arc<Self>,
        alert: &Arc<Object<Alert>>,
        event: &Event,
        incident: Option<Incident>,
    ) {
        if let Err(problem) = self.dispatch(alert, event, incident) {
            let message = format!("failed to dispatch notification for {}: {problem}", event.object());
            self.tell_alert(alert, "NotificationDispatchFailed", message);
        }
    }

    /// In incident mode: tells only when a problem starts and when it is over.
    async fn follow(
        self: &Arc<Self>,
        alert: &Arc<Object<Alert>>,
        event: &Event,
        wait: Result<Duration, String>,
    ) {
        let wait = wait.unwrap_or_else(|problem| {
            self.tell_alert(alert, "InvalidConfig", problem);
            Duration::ZERO
        });
        let key = ObjectKey::of(&alert.raw);
        let uid = alert.object.metadata.uid.clone().unwrap_or_default();
        let parents = match incident::meaning(event) {
            Meaning::Trouble if self.incidents.any(&key) => self.parents(event).await,
            Meaning::Trouble | Meaning::Recovery | Meaning::Neither => Vec::new(),
        };
        let now = Timestamp::now().as_second();
        let source = Source { key: &key, uid: &uid };
        match self.incidents.observe(&source, event, &parents, wait, now) {
            Verdict::Quiet => {}
            Verdict::Tell(incident) => self.dispatch_or_tell(alert, event, Some(incident)),
            Verdict::Wait(wait) => {
                let (ctx, alert, event) = (self.clone(), alert.clone(), event.clone());
                // As many wait as there are incidents, which are limited.
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let source = Source { key: &key, uid: &uid };
                    if let Some(incident) = ctx.incidents.due(&source, &event.object(), now) {
                        ctx.dispatch_or_tell(&alert, &event, Some(incident));
                    }
                });
            }
        }
    }

    /// What the object of an event is made from and waits for.
    async fn parents(&self, event: &Event) -> Vec<String> {
        let object = &event.involved_object;
        let Some(kind) = kinds::by_kind(&object.kind) else { return Vec::new() };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &object.namespace, &resource(kind));
        match tokio::time::timeout(LOOK_UP_WITHIN, api.get(&object.name)).await {
            Ok(Ok(found)) => incident::parents(&object.kind, &object.namespace, &object.name, &found.data),
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    async fn wants(
        &self,
        alert: &Object<Alert>,
        event: &Event,
        incidents: bool,
        labels: &mut Labels,
    ) -> bool {
        // The end of an incident is news whatever its severity and words.
        let ends = incidents && !event.is_error();
        if !ends && !severity_fits(&alert.object.spec, event) {
            return false;
        }
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
        if ends {
            return true;
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
    fn dispatch(
        self: &Arc<Self>,
        alert: &Arc<Object<Alert>>,
        event: &Event,
        incident: Option<Incident>,
    ) -> Result<(), String> {
        let spec = &alert.object.spec;
        let namespace = flux_api::Object::namespace(&alert.object);
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
        let mut event = Event { metadata: combined.metadata, ..event.clone() };
        if let Some(incident) = &incident {
            message::tell(&mut event, incident, Timestamp::now().as_second());
        }
        if let Some(expression) = alert.raw.annotations().get(message::MESSAGE) {
            let raw = serde_json::to_value(&*alert.raw).unwrap_or_default();
            match message::evaluate(expression, &event, &raw, incident.as_ref()) {
                Ok(message) => event.message = message,
                Err(problem) => self.tell_alert(alert, "InvalidConfig", problem),
            }
        }
        self.dispatcher.add(self, key, Delivery { alert: alert.clone(), event, incident });
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
