//! PagerDuty: an incident when something failed, its end when it did not, and a change event for news.

use serde_json::json;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn events(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let mut url = settings.origin("PagerDuty endpoint")?;
    // Neither good nor bad yet.
    if event.reason == "Progressing" {
        return Ok(Vec::new());
    }
    let (name, description) = event.name_and_description();
    let summary = format!("{description}: {name}");
    let source = format!("Flux {}", event.reporting_controller);
    let details = json!({ "message": event.message, "metadata": event.metadata });
    let key = settings.incident.as_ref().map_or(&event.involved_object.uid, |incident| &incident.fingerprint);
    let mut alert = json!({
        "routing_key": settings.channel,
        "event_action": if event.is_error() { "trigger" } else { "resolve" },
        "dedup_key": key,
    });
    if event.is_error() {
        alert["payload"] = json!({
            "summary": summary,
            "source": source,
            "severity": "error",
            "timestamp": event.time(),
            "component": event.involved_object.name,
            "group": event.involved_object.kind,
            "custom_details": details,
        });
    }
    url.set_path("/v2/enqueue");
    let mut requests = vec![Request::post(url.clone(), &alert)];
    if event.severity == "info" {
        let payload = json!({ "summary": summary, "source": source, "timestamp": event.time(), "custom_details": details });
        url.set_path("/v2/change/enqueue");
        requests.push(Request::post(
            url,
            &json!({ "routing_key": settings.channel, "payload": payload, "links": null }),
        ));
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_failure_triggers_and_news_resolve() {
        let mut settings = settings(ProviderType::PagerDuty, "https://events.pagerduty.com/ignored?x=1");
        settings.channel = "key".to_owned();
        let sent = requests(&failed(), &settings);
        assert_eq!(
            (sent.len(), sent[0].line().as_str()),
            (1, "POST https://events.pagerduty.com/v2/enqueue")
        );
        assert_eq!(
            sent[0].body_json(),
            json!({
                "routing_key": "key", "event_action": "trigger", "dedup_key": "1a2b-3c4d",
                "payload": {
                    "summary": "artifact failed: gitrepository/webapp", "source": "Flux source-controller",
                    "severity": "error", "timestamp": "2026-01-02T03:04:05Z", "component": "webapp",
                    "group": "GitRepository",
                    "custom_details": { "message": "message", "metadata": { "summary": "A & B", "test": "metadata" } },
                },
            })
        );
        let sent = requests(&example(), &settings);
        assert_eq!(
            sent[0].body_json(),
            json!({ "routing_key": "key", "event_action": "resolve", "dedup_key": "1a2b-3c4d" })
        );
        assert_eq!(sent[1].line(), "POST https://events.pagerduty.com/v2/change/enqueue");
        assert_eq!(sent[1].body_json()["payload"]["summary"], "artifact failed: gitrepository/webapp");
        let progressing = Event { reason: "Progressing".to_owned(), ..example() };
        assert!(requests(&progressing, &settings).is_empty());
    }

    #[test]
    fn an_incident_has_one_key_from_its_start_to_its_end() {
        use crate::notification::incident::{Incident, Phase};
        let mut settings = settings(ProviderType::PagerDuty, "https://events.pagerduty.com");
        settings.channel = "key".to_owned();
        settings.incident = Some(Incident::at(Phase::Started));
        let start = requests(&failed(), &settings)[0].body_json();
        settings.incident = Some(Incident::at(Phase::Resolved));
        let end = requests(&example(), &settings)[0].body_json();
        assert_eq!((&start["event_action"], &end["event_action"]), (&json!("trigger"), &json!("resolve")));
        assert_eq!((&start["dedup_key"], &end["dedup_key"]), (&json!("f00"), &json!("f00")));
    }
}
