//! Webex: a message in Markdown to a room.

use std::fmt::Write;

use serde_json::json;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let emoji = if event.is_error() { "💣" } else { "✅" };
    let mut text = format!("{emoji} **{}**\n{}\n", event.title(), event.message);
    for (key, value) in &event.metadata {
        let _ = writeln!(text, ">**{key}**: {value}");
    }
    let mut body = json!({ "markdown": text });
    if !settings.channel.is_empty() {
        body["roomId"] = json!(settings.channel);
    }
    let token = settings.required_token("empty Webex token")?;
    let request = Request::post(settings.url("Webex hook")?, &body).bearer(token)?;
    Ok(vec![request])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::provider::tests::{failed, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_room_gets_markdown() {
        let mut settings = settings(ProviderType::Webex, "https://webexapis.com/v1/messages");
        settings.channel = "room".to_owned();
        settings.token = "bot".to_owned().into();
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!(
            (sent.line().as_str(), sent.value("authorization")),
            ("POST https://webexapis.com/v1/messages", "Bearer bot")
        );
        let text =
            "💣 **gitrepository/webapp.gitops-system**\nmessage\n>**summary**: A & B\n>**test**: metadata\n";
        assert_eq!(sent.body_json(), json!({ "roomId": "room", "markdown": text }));
    }
}
