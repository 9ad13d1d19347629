//! Zulip: a message to a topic of a stream.

use super::{Error, Request, Settings, markdown};
use crate::notification::event::Event;

/// `channel` is `stream/topic`.
pub(super) fn message(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let mut url = settings.url("Zulip endpoint")?;
    url.set_path("/api/v1/messages");
    let wrong = || Error::Field { field: "Zulip channel", problem: "expected <channel>/<topic>".to_owned() };
    let (stream, topic) = settings.channel.split_once('/').ok_or_else(wrong)?;
    if stream.is_empty() || topic.is_empty() {
        return Err(wrong());
    }
    let content = markdown::text(event);
    let body = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("content", content.as_str()), ("to", stream), ("topic", topic), ("type", "stream")])
        .finish();
    let request =
        Request::new(http::Method::POST, url, "application/x-www-form-urlencoded", body.into_bytes());
    if settings.username.is_empty() && settings.password.expose().is_empty() {
        return Ok(vec![request]);
    }
    Ok(vec![request.basic(&settings.username, settings.password.expose())?])
}

#[cfg(test)]
mod tests {
    use crate::notification::event::example;
    use crate::notification::provider::tests::{problem, requests, settings};
    use flux_api::notification::ProviderType;

    #[test]
    fn a_topic_gets_a_form() {
        let mut settings = settings(ProviderType::Zulip, "https://chat.example.com/any");
        for channel in ["", "stream", "/topic", "stream/"] {
            settings.channel = channel.to_owned();
            assert_eq!(problem(&example(), &settings), "invalid Zulip channel: expected <channel>/<topic>");
        }
        settings.channel = "flux/a/b".to_owned();
        settings.username = "bot@example.com".to_owned();
        settings.password = "p".to_owned().into();
        let sent = &requests(&example(), &settings)[0];
        assert_eq!(sent.line(), "POST https://chat.example.com/api/v1/messages");
        assert_eq!(sent.value("content-type"), "application/x-www-form-urlencoded");
        assert_eq!(sent.value("authorization"), "Basic Ym90QGV4YW1wbGUuY29tOnA=");
        let fields: Vec<(String, String)> =
            url::form_urlencoded::parse(&sent.body).map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
        assert_eq!(
            fields[1..],
            [("to", "flux"), ("topic", "a/b"), ("type", "stream")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert!(fields[0].1.starts_with("## Flux Status\n\nℹ️ GitRepository/gitops-system/webapp\n"));
    }
}
