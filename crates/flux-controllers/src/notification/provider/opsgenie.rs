//! Opsgenie: an alert. Its alias is the same for the same object and reason, so a repetition pages nobody again.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Error, Request, Settings};
use crate::notification::event::Event;
use crate::notification::incident::Phase;

pub(super) fn alert(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let url = settings.url("Opsgenie hook")?;
    let key = settings.required_token("empty Opsgenie apikey/token")?;
    let alias = match &settings.incident {
        Some(incident) if incident.phase == Phase::Resolved => {
            return close(event, &incident.fingerprint, url, key);
        }
        Some(incident) => incident.fingerprint.clone(),
        None => alias(event, &settings.uid),
    };
    let object = &event.involved_object;
    let mut details = event.metadata.clone();
    details.insert("severity".to_owned(), event.severity.clone());
    let body = json!({
        "message": format!("{}/{}", object.kind, object.name),
        "alias": alias,
        "description": event.message,
        "details": details,
    });
    Ok(vec![Request::post(url, &body).authorization(&format!("GenieKey {key}"))?])
}

/// The end of an incident closes its alert.
fn close(event: &Event, alias: &str, mut url: url::Url, key: &str) -> Result<Vec<Request>, Error> {
    url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend([alias, "close"]);
    url.set_query(Some("identifierType=alias"));
    Ok(vec![Request::post(url, &json!({ "note": event.message })).authorization(&format!("GenieKey {key}"))?])
}

fn alias(event: &Event, provider: &str) -> String {
    let object = &event.involved_object;
    let text = format!("{provider}/{}/{}/{}/{}", object.kind, object.namespace, object.name, event.reason);
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::tests::{failed, problem, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn an_alert_has_details_and_an_alias() {
        let mut settings = settings(ProviderType::Opsgenie, "https://api.opsgenie.com/v2/alerts");
        assert_eq!(problem(&failed(), &settings), "empty Opsgenie apikey/token");
        settings.token = "key".to_owned().into();
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("authorization")),
            ("POST https://api.opsgenie.com/v2/alerts", "GenieKey key")
        );
        let body = sent.body_json();
        assert_eq!(
            (&body["message"], &body["description"]),
            (&json!("GitRepository/webapp"), &json!("message"))
        );
        assert_eq!(body["details"], json!({ "severity": "error", "summary": "A & B", "test": "metadata" }));
        assert_eq!(body["alias"].as_str().unwrap().len(), 64);
        settings.uid = "other".to_owned();
        assert_ne!(requests(&failed(), &settings)[0].body_json()["alias"], body["alias"]);
    }

    #[test]
    fn the_end_of_an_incident_closes_its_alert() {
        use crate::notification::incident::Incident;
        let mut settings = settings(ProviderType::Opsgenie, "https://api.opsgenie.com/v2/alerts");
        settings.token = "key".to_owned().into();
        settings.incident = Some(Incident::at(Phase::Started));
        assert_eq!(requests(&failed(), &settings)[0].body_json()["alias"], "f00");
        settings.incident = Some(Incident::at(Phase::Resolved));
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(sent.line(), "POST https://api.opsgenie.com/v2/alerts/f00/close?identifierType=alias");
        assert_eq!(sent.body_json(), json!({ "note": "message" }));
    }
}
