//! Grafana: an annotation on its graphs.

use serde_json::json;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn annotation(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    // A colon divides a tag's name from its value.
    let plain = |text: &str| text.replace(':', "|");
    let mut tags = vec!["flux".to_owned(), event.reporting_controller.clone()];
    tags.extend(event.metadata.iter().map(|(key, value)| format!("{}: {}", plain(key), plain(value))));
    let object = &event.involved_object;
    for (name, value) in [("kind", &object.kind), ("name", &object.name), ("namespace", &object.namespace)] {
        tags.push(format!("{name}: {value}"));
    }
    let body = json!({ "when": event.unix_time(), "text": event.title(), "tags": tags });
    let request = Request::post(settings.url("Grafana")?, &body);
    let (username, password) = (&settings.username, settings.password.expose());
    Ok(vec![match (settings.token.expose().as_str(), username.is_empty() || password.is_empty()) {
        ("", true) => request,
        ("", false) => request.basic(username, password)?,
        (token, _) => request.bearer(token)?,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn an_annotation_has_tags() {
        let mut event = example();
        event.metadata = [("revision".to_owned(), "main@sha1:1".to_owned())].into();
        let mut settings = settings(ProviderType::Grafana, "https://grafana.example.com/api/annotations");
        (settings.username, settings.password) = ("u".to_owned(), "p".to_owned().into());
        let sent = &requests(&event, &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("authorization")),
            ("POST https://grafana.example.com/api/annotations", "Basic dTpw")
        );
        let tags = [
            "flux",
            "source-controller",
            "revision: main@sha1|1",
            "kind: GitRepository",
            "name: webapp",
            "namespace: gitops-system",
        ];
        assert_eq!(
            sent.body_json(),
            json!({ "when": 1767323045, "text": "gitrepository/webapp.gitops-system", "tags": tags })
        );
        settings.token = "t".to_owned().into();
        assert_eq!(requests(&event, &settings)[0].value("authorization"), "Bearer t");
    }
}
