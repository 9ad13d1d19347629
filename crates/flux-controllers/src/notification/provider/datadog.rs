//! Datadog: an event of its Events API.

use serde_json::json;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn event(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let mut url = settings.origin("Datadog")?;
    url.set_path("/api/v1/events");
    let key = settings.required_token("token cannot be empty")?;
    let object = &event.involved_object;
    let mut tags = vec![
        format!("flux_reporting_controller:{}", event.reporting_controller),
        format!("flux_reason:{}", event.reason),
        format!("kube_kind:{}", object.kind),
        format!("kube_name:{}", object.name),
        format!("kube_namespace:{}", object.namespace),
    ];
    tags.extend(event.metadata.iter().map(|(key, value)| format!("{key}:{value}")));
    let tags: Vec<String> = tags.iter().map(|tag| tag.to_lowercase()).collect();
    let body = json!({
        "title": format!("Events from the {} {}/{}", object.kind, object.name, object.namespace),
        "text": event.message,
        "tags": tags,
        "source_type_name": "fluxcd",
        "date_happened": event.unix_time(),
        "alert_type": if event.is_error() { "error" } else { "info" },
    });
    Ok(vec![Request::post(url, &body).header("DD-API-KEY", key)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::tests::{failed, problem, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn tags_are_written_small() {
        let mut settings = settings(ProviderType::Datadog, "https://api.datadoghq.eu/any?x=1");
        assert_eq!(problem(&failed(), &settings), "token cannot be empty");
        settings.token = "key".to_owned().into();
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("dd-api-key")),
            ("POST https://api.datadoghq.eu/api/v1/events", "key")
        );
        let body = sent.body_json();
        assert_eq!((&body["alert_type"], &body["date_happened"]), (&json!("error"), &json!(1767323045)));
        let tags = [
            "flux_reporting_controller:source-controller",
            "flux_reason:artifactfailed",
            "kube_kind:gitrepository",
            "kube_name:webapp",
            "kube_namespace:gitops-system",
            "summary:a & b",
            "test:metadata",
        ];
        assert_eq!(body["tags"], json!(tags));
    }
}
