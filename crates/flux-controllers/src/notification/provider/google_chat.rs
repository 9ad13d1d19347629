//! Google Chat: a card.

use serde_json::{Value, json};

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn card(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let text = match event.is_error() {
        true => format!("<font color=\"#ff0000\">{}</font>", event.message),
        false => event.message.clone(),
    };
    let mut sections = vec![section(vec![json!({ "textParagraph": { "text": text }, "keyValue": null })])];
    if !event.metadata.is_empty() {
        sections.push(section(event.metadata.iter().map(|(key, value)| pair(key, value)).collect()));
    }
    let card = json!({
        "header": {
            "title": event.title(),
            "subtitle": event.reporting_controller,
            "imageUrl": null,
            "imageStyle": null,
        },
        "sections": sections,
    });
    Ok(vec![Request::post(settings.url("Google Chat hook")?, &json!({ "cards": [card] }))])
}

fn section(widgets: Vec<Value>) -> Value {
    json!({ "header": "", "widgets": widgets })
}

fn pair(key: &str, value: &str) -> Value {
    json!({
        "textParagraph": null,
        "keyValue": { "topLabel": key, "content": value, "contentMultiline": false, "bottomLabel": null, "icon": null },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_card_tells_of_an_event() {
        let settings =
            settings(ProviderType::GoogleChat, "https://chat.googleapis.com/v1/spaces/x/messages?key=1");
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(sent.line(), "POST https://chat.googleapis.com/v1/spaces/x/messages?key=1");
        let card = &sent.body_json()["cards"][0];
        assert_eq!(card["header"]["title"], "gitrepository/webapp.gitops-system");
        assert_eq!(card["header"]["subtitle"], "source-controller");
        let text = &card["sections"][0]["widgets"][0]["textParagraph"]["text"];
        assert_eq!(text, "<font color=\"#ff0000\">message</font>");
        assert_eq!(card["sections"][1]["widgets"][1]["keyValue"]["content"], "metadata");
        let bare = Event { metadata: Default::default(), ..example() };
        let card = requests(&bare, &settings)[0].body_json();
        assert_eq!(card["cards"][0]["sections"].as_array().unwrap().len(), 1);
        assert_eq!(card["cards"][0]["sections"][0]["widgets"][0]["textParagraph"]["text"], "message");
    }
}
