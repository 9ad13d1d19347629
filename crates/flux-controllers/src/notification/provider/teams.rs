//! Microsoft Teams: an Adaptive Card, or for the connectors that are on their way out a MessageCard.

use serde_json::{Value, json};

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let url = settings.url("MS Teams webhook")?;
    let is_connector = url.host_str().is_some_and(|host| host.ends_with(".webhook.office.com"));
    let message = if is_connector { message_card(event) } else { adaptive_card(event) };
    Ok(vec![Request::post(url, &message)])
}

fn message_card(event: &Event) -> Value {
    let facts: Vec<Value> =
        event.metadata.iter().map(|(key, value)| json!({ "name": key, "value": value })).collect();
    json!({
        "@type": "MessageCard",
        "@context": "http://schema.org/extensions",
        "themeColor": if event.is_error() { "FF0000" } else { "0076D7" },
        "summary": event.title(),
        "sections": [{ "activityTitle": event.message, "activitySubtitle": event.title(), "facts": facts }],
    })
}

/// The summary stands first, the rest by name.
fn adaptive_card(event: &Event) -> Value {
    let (summary, rest): (Vec<_>, Vec<_>) = event.metadata.iter().partition(|(key, _)| *key == "summary");
    let facts: Vec<Value> =
        summary.into_iter().chain(rest).map(|(key, value)| json!({ "title": key, "value": value })).collect();
    let heading = json!({ "type": "TextBlock", "text": event.title(), "size": "large", "weight": "bolder", "wrap": true });
    let mut text = json!({ "type": "TextBlock", "wrap": true });
    if !event.message.is_empty() {
        text["text"] = json!(event.message);
    }
    if event.is_error() {
        text["color"] = json!("attention");
    }
    let mut fact_set = json!({ "type": "FactSet" });
    if !facts.is_empty() {
        fact_set["facts"] = json!(facts);
    }
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": [{ "type": "Container", "items": [heading, text, fact_set] }],
                "msteams": { "width": "Full" },
            },
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_workflow_gets_an_adaptive_card() {
        let mut event = failed();
        event.metadata.insert("cluster".to_owned(), "one".to_owned());
        let address = "https://prod.logic.azure.com/workflows/x?sig=1";
        let sent = &requests(&event, &settings(ProviderType::Msteams, address))[0];
        assert_eq!(sent.line(), format!("POST {address}"));
        let content = &sent.body_json()["attachments"][0]["content"];
        assert_eq!((&content["version"], &content["msteams"]["width"]), (&json!("1.4"), &json!("Full")));
        let items = &content["body"][0]["items"];
        assert_eq!(items[0]["text"], "gitrepository/webapp.gitops-system");
        assert_eq!(
            items[1],
            json!({ "type": "TextBlock", "text": "message", "wrap": true, "color": "attention" })
        );
        let titles: Vec<_> =
            items[2]["facts"].as_array().unwrap().iter().map(|fact| fact["title"].clone()).collect();
        assert_eq!(titles, ["summary", "cluster", "test"]);
    }

    #[test]
    fn a_connector_gets_a_message_card() {
        let sent =
            &requests(&example(), &settings(ProviderType::Msteams, "https://x.webhook.office.com:443/y"))[0];
        let body = sent.body_json();
        assert_eq!((&body["@type"], &body["themeColor"]), (&json!("MessageCard"), &json!("0076D7")));
        assert_eq!(body["sections"][0]["activityTitle"], "message");
        assert_eq!(body["sections"][0]["facts"][1], json!({ "name": "test", "value": "metadata" }));
        let evil = "https://x.webhook.office.com.example.com/y";
        assert_eq!(
            requests(&example(), &settings(ProviderType::Msteams, evil))[0].body_json()["type"],
            "message"
        );
    }
}
