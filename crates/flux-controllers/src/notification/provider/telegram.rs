//! Telegram: a message of a bot in MarkdownV2.

use std::fmt::Write;

use serde_json::json;
use url::Url;

use super::{Error, Request, Settings};
use crate::notification::event::Event;

/// `channel` is a chat, or `chat:thread`.
pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    if settings.channel.is_empty() {
        return Err(Error::Missing("empty Telegram channel"));
    }
    let token = settings.required_token("empty Telegram token")?;
    let mut url = Url::parse("https://api.telegram.org/").expect("it is a URL");
    url.path_segments_mut()
        .expect("an https address has a path")
        .clear()
        .extend([&format!("bot{token}"), "sendMessage"]);
    let emoji = if event.is_error() { "🚨" } else { "💫" };
    let object = &event.involved_object;
    let heading = format!("{emoji} {}/{}/{}", object.kind.to_lowercase(), object.name, object.namespace);
    let mut text = format!("*{}*\n{}\n", escaped(&heading), escaped(&event.message));
    for (key, value) in &event.metadata {
        let _ = writeln!(text, "\\- *{}*: {}", escaped(key), escaped(value));
    }
    let mut body = json!({ "text": text, "parse_mode": "MarkdownV2" });
    let (chat, thread) = settings.channel.split_once(':').unwrap_or((&settings.channel, ""));
    body["chat_id"] = json!(chat);
    if !thread.is_empty() {
        body["message_thread_id"] = json!(thread);
    }
    Ok(vec![Request::post(url, &body)])
}

/// What MarkdownV2 would take for its own is told not to be.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if "\\.-_[]()~>`#+=|{}!*".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::event::example;
    use crate::notification::provider::tests::{problem, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_chat_gets_markdown() {
        let mut settings = settings(ProviderType::Telegram, "");
        assert_eq!(problem(&example(), &settings), "empty Telegram channel");
        settings.channel = "@flux".to_owned();
        assert_eq!(problem(&example(), &settings), "empty Telegram token");
        settings.token = "1:a/b".to_owned().into();
        let event = Event { message: "v1.0 (new)".to_owned(), ..example() };
        let sent = &requests(&event, &settings)[0];
        assert_eq!(sent.line(), "POST https://api.telegram.org/bot1:a%2Fb/sendMessage");
        let text = "*💫 gitrepository/webapp/gitops\\-system*\nv1\\.0 \\(new\\)\n\\- *summary*: A & B\n\\- *test*: metadata\n";
        assert_eq!(sent.body_json(), json!({ "chat_id": "@flux", "text": text, "parse_mode": "MarkdownV2" }));
        settings.channel = "-100:42".to_owned();
        let body = requests(&event, &settings)[0].body_json();
        assert_eq!((&body["chat_id"], &body["message_thread_id"]), (&json!("-100"), &json!("42")));
    }
}
