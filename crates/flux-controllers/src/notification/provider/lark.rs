//! Lark: an interactive card.

use std::fmt::Write;

use serde_json::json;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn card(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let (emoji, color) = if event.is_error() { ("🚨", "red") } else { ("💫", "turquoise") };
    let mut text = format!("**{}**\n\n", event.message);
    for (key, value) in &event.metadata {
        let _ = writeln!(text, "{key}: {value}");
    }
    let title = format!("{emoji} {}", event.title());
    let body = json!({
        "msg_type": "interactive",
        "card": {
            "config": { "wide_screen_mode": true },
            "header": { "title": { "tag": "plain_text", "content": title }, "template": color },
            "elements": [{ "tag": "div", "text": { "tag": "lark_md", "content": text } }],
        },
    });
    Ok(vec![Request::post(settings.url("Lark hook")?, &body)])
}

#[cfg(test)]
mod tests {
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_bot_gets_a_card() {
        let address = "https://open.larksuite.com/open-apis/bot/v2/hook/x";
        let sent = &requests(&failed(), &settings(ProviderType::Lark, address))[0];
        assert_eq!(sent.line(), format!("POST {address}"));
        let card = &sent.body_json()["card"];
        assert_eq!(card["header"]["title"]["content"], "🚨 gitrepository/webapp.gitops-system");
        assert_eq!(card["header"]["template"], "red");
        assert_eq!(card["elements"][0]["text"]["content"], "**message**\n\nsummary: A & B\ntest: metadata\n");
    }
}
