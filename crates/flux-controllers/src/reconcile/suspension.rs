//! A suspension that ends by itself: `spec.suspend` beside the annotation `fluxcd.rs/suspend-until`.
//!
//! Ours, written by `flux suspend --for`; upstream's controllers do not look at it and leave the object suspended. When
//! the time has come the controller takes both away, so that the object says by itself that it is at work again.

use std::collections::BTreeMap;
use std::time::Duration;

use flux_api::kinds::Kind;
use flux_api::names::{SUSPEND_REASON, SUSPEND_UNTIL};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Events, Happening, Next, Severity, resource};

/// Whether an object is suspended, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Not at all, or until somebody resumes it.
    Unlimited,
    /// For this long from now on.
    For(Duration),
    /// Until a moment that has passed.
    Over(Timestamp),
}

impl Suspension {
    pub fn of(object: &DynamicObject, now: Timestamp) -> Self {
        let is_suspended = object.data.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
        let Some(text) = object.annotations().get(SUSPEND_UNTIL).filter(|_| is_suspended) else {
            return Suspension::Unlimited;
        };
        let Ok(until) = text.parse::<Timestamp>() else {
            tracing::warn!(
                text,
                "annotation {SUSPEND_UNTIL} is no time such as 2026-01-02T15:04:05Z: the object stays suspended"
            );
            return Suspension::Unlimited;
        };
        match Duration::try_from(until.duration_since(now)) {
            Ok(left) if !left.is_zero() => Suspension::For(left),
            _ => Suspension::Over(until),
        }
    }

    /// When to look again: no later than the suspension ends.
    pub fn at_the_latest(self, next: Next) -> Next {
        match (self, next) {
            (Suspension::For(left), Next::OnChange) => Next::After(left),
            (Suspension::For(left), Next::After(delay)) => Next::After(left.min(delay)),
            (Suspension::For(left), Next::RetryAfter(delay)) => Next::RetryAfter(left.min(delay)),
            // Soon anyway, or there is no end to wait for.
            (Suspension::For(_), Next::Backoff | Next::Now)
            | (Suspension::Unlimited | Suspension::Over(_), _) => next,
        }
    }
}

/// Ends suspensions, as the controller of the kind.
#[derive(Clone)]
pub struct Resumer {
    pub client: Client,
    pub events: Events,
}

impl Resumer {
    /// Takes `spec.suspend` and its annotations away. The watch brings what there is to do then.
    pub async fn resume(&self, kind: &'static Kind, object: &DynamicObject, until: Timestamp) -> Next {
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &object.namespace().unwrap_or_default(),
            &resource(kind),
        );
        let parameters = PatchParams {
            field_manager: Some(kind.controller.as_str().to_owned()),
            ..PatchParams::default()
        };
        match api.patch(&object.name_any(), &parameters, &Patch::Merge(patch(object))).await {
            Ok(_) => {
                let message = format!("resumed: the suspension until {until} is over");
                let happening = Happening {
                    severity: Severity::Info,
                    reason: "Resumed".to_owned(),
                    message,
                    metadata: BTreeMap::new(),
                };
                self.events.tell(kind, object, happening);
                Next::OnChange
            }
            // Somebody has said something else since, which the watch brings.
            Err(kube::Error::Api(answer)) if answer.code == 409 => Next::Backoff,
            Err(kube::Error::Api(answer)) if answer.code == 404 => Next::OnChange,
            Err(error) => {
                tracing::error!(%error, "the suspension is over and could not be ended");
                Next::Backoff
            }
        }
    }
}

/// Of this version only: whoever suspends it anew meanwhile is heard.
fn patch(object: &DynamicObject) -> Value {
    json!({
        "metadata": {
            "resourceVersion": object.resource_version(),
            "annotations": { SUSPEND_UNTIL: null, SUSPEND_REASON: null },
        },
        "spec": { "suspend": null },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(suspend: bool, until: Option<&str>) -> DynamicObject {
        let mut value = json!({
            "apiVersion": "v1", "kind": "Any", "metadata": { "name": "a", "resourceVersion": "7" },
            "spec": { "suspend": suspend },
        });
        if let Some(until) = until {
            value["metadata"]["annotations"] = json!({ SUSPEND_UNTIL: until });
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_a_suspension_with_a_time_ends_by_itself() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let of = |suspend, until| Suspension::of(&object(suspend, until), now);
        assert_eq!(of(true, None), Suspension::Unlimited);
        assert_eq!(of(false, Some("2026-01-01T11:00:00Z")), Suspension::Unlimited, "it is not suspended");
        assert_eq!(of(true, Some("tomorrow")), Suspension::Unlimited);
        assert_eq!(of(true, Some("2026-01-01T13:00:00Z")), Suspension::For(Duration::from_secs(3600)));
        assert_eq!(of(true, Some("2026-01-01T12:00:00Z")), Suspension::Over(now));
        assert!(matches!(of(true, Some("2025-01-01T00:00:00+02:00")), Suspension::Over(_)));
    }

    #[test]
    fn a_suspended_object_is_looked_at_when_its_time_has_come() {
        let hour = Duration::from_secs(3600);
        let suspension = Suspension::For(hour);
        assert_eq!(suspension.at_the_latest(Next::OnChange), Next::After(hour));
        assert_eq!(suspension.at_the_latest(Next::After(hour / 2)), Next::After(hour / 2));
        assert_eq!(suspension.at_the_latest(Next::RetryAfter(hour * 2)), Next::RetryAfter(hour));
        assert_eq!(suspension.at_the_latest(Next::Backoff), Next::Backoff);
        assert_eq!(Suspension::Unlimited.at_the_latest(Next::OnChange), Next::OnChange);
    }

    #[test]
    fn only_the_version_that_was_looked_at_is_resumed() {
        assert_eq!(patch(&object(true, None))["metadata"]["resourceVersion"], "7");
    }
}
