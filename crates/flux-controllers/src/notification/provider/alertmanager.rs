//! Prometheus Alertmanager: an alert whose labels are the metadata.

use flux_api::time::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Error, Request, Settings};
use crate::notification::event::Event;
use crate::notification::incident::{Incident, Phase};

pub(super) fn alert(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let alert = match &settings.incident {
        Some(incident) => of_incident(event, incident),
        None => of_event(event),
    };
    let request = Request::post(settings.url("Alertmanager")?, &json!([alert]));
    let (username, password) = (&settings.username, settings.password.expose());
    Ok(vec![match (settings.token.expose().as_str(), username.is_empty() || password.is_empty()) {
        (_, false) => request.basic(username, password)?,
        ("", true) => request,
        (token, true) => request.bearer(token)?,
    }])
}

/// Labels are what Alertmanager knows an alert by, so here they are the same from start to end; the rest is annotations.
fn of_incident(event: &Event, incident: &Incident) -> Value {
    let object = &event.involved_object;
    let mut annotations = json!(event.metadata);
    annotations["message"] = json!(event.message);
    annotations["reason"] = json!(event.reason);
    let since =
        Timestamp::from_second(incident.since).map(|since| Time::new(since).to_string()).unwrap_or_default();
    let (status, ends) = match incident.phase {
        Phase::Started => ("firing", "0001-01-01T00:00:00Z".to_owned()),
        Phase::Resolved => ("resolved", event.time()),
    };
    json!({
        "status": status,
        "labels": {
            "alertname": "FluxIncident", "severity": "error", "fingerprint": incident.fingerprint,
            "kind": object.kind, "name": object.name, "namespace": object.namespace,
            "reportingcontroller": event.reporting_controller,
        },
        "annotations": annotations,
        "startsAt": since,
        "endsAt": ends,
    })
}

fn of_event(event: &Event) -> Value {
    let mut labels = event.metadata.clone();
    let mut annotations = json!({ "message": event.message });
    if let Some(summary) = labels.remove("summary") {
        annotations["summary"] = json!(summary);
    }
    let object = &event.involved_object;
    for (label, value) in [
        ("alertname", format!("Flux{}{}", object.kind, title_case(&event.reason))),
        ("severity", event.severity.clone()),
        ("reason", event.reason.clone()),
        ("kind", object.kind.clone()),
        ("name", object.name.clone()),
        ("namespace", object.namespace.clone()),
        ("reportingcontroller", event.reporting_controller.clone()),
    ] {
        labels.insert(label.to_owned(), value);
    }
    // Without an end Alertmanager's own resolve_timeout ends it; upstream writes Go's zero time, which means the same.
    json!({
        "status": "firing",
        "labels": labels,
        "annotations": annotations,
        "startsAt": event.time(),
        "endsAt": "0001-01-01T00:00:00Z",
    })
}

/// The first letter large and all others small.
fn title_case(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn metadata_becomes_labels_and_the_summary_an_annotation() {
        let mut settings = settings(ProviderType::AlertManager, "https://am.example.com/api/v2/alerts/");
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("authorization")),
            ("POST https://am.example.com/api/v2/alerts/", "")
        );
        assert_eq!(
            sent.body_json(),
            json!([{
                "status": "firing",
                "labels": {
                    "alertname": "FluxGitRepositoryArtifactfailed", "severity": "error", "reason": "ArtifactFailed",
                    "kind": "GitRepository", "name": "webapp", "namespace": "gitops-system",
                    "reportingcontroller": "source-controller", "test": "metadata",
                },
                "annotations": { "message": "message", "summary": "A & B" },
                "startsAt": "2026-01-02T03:04:05Z", "endsAt": "0001-01-01T00:00:00Z",
            }])
        );
        settings.token = "t".to_owned().into();
        assert_eq!(requests(&failed(), &settings)[0].value("authorization"), "Bearer t");
        (settings.username, settings.password) = ("u".to_owned(), "p".to_owned().into());
        assert_eq!(requests(&failed(), &settings)[0].value("authorization"), "Basic dTpw");
    }

    #[test]
    fn an_incident_keeps_its_labels_until_it_is_over() {
        let mut settings = settings(ProviderType::AlertManager, "https://am.example.com/");
        settings.incident = Some(Incident::at(Phase::Started));
        let start = requests(&failed(), &settings)[0].body_json()[0].clone();
        settings.incident = Some(Incident::at(Phase::Resolved));
        let end = requests(&crate::notification::event::example(), &settings)[0].body_json()[0].clone();
        assert_eq!(start["labels"], end["labels"]);
        assert_eq!(
            (&start["status"], &start["startsAt"]),
            (&json!("firing"), &json!("1970-01-01T00:00:00Z"))
        );
        assert_eq!((&end["status"], &end["endsAt"]), (&json!("resolved"), &json!("2026-01-02T03:04:05Z")));
    }
}
