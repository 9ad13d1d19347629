//! Slack's message with one attachment, which Discord and Rocket.Chat understand too.

use serde_json::{Value, json};

use super::{Accept, Error, Request, Settings};
use crate::notification::event::Event;

const SLACK_API: &str = "https://slack.com/api/chat.postMessage";

pub(super) fn slack(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let color = if event.is_error() { "danger" } else { "good" };
    let first_line = event.message.split('\n').next().unwrap_or_default();
    let fallback = format!("{}: {first_line}", event.title());
    let message = message(event, settings, color, &fallback, &settings.channel, &event.reporting_controller);
    let mut request = Request::post(settings.url("Slack hook")?, &message);
    if !settings.token.expose().is_empty() {
        request = request.bearer(settings.token.expose())?;
    }
    if settings.address == SLACK_API {
        request.accept = Accept::SlackOk;
    }
    Ok(vec![request])
}

/// Discord takes Slack's format below `/slack`; the channel is part of its address.
pub(super) fn discord(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let mut url = settings.url("Discord hook")?;
    if !settings.address.ends_with("/slack") {
        let path = format!("{}/slack", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    let color = if event.is_error() { "danger" } else { "good" };
    let message = message(event, settings, color, "", "", &event.reporting_controller);
    Ok(vec![Request::post(url, &message)])
}

pub(super) fn rocket(event: &Event, settings: &Settings) -> Result<Vec<Request>, Error> {
    let color = if event.is_error() { "#FF0000" } else { "#0076D7" };
    let message = message(event, settings, color, "", &settings.channel, "");
    Ok(vec![Request::post(settings.url("Rocket hook")?, &message)])
}

fn message(
    event: &Event,
    settings: &Settings,
    color: &str,
    fallback: &str,
    channel: &str,
    default_username: &str,
) -> Value {
    let username = if settings.username.is_empty() { default_username } else { &settings.username };
    let fields: Vec<Value> = event
        .metadata
        .iter()
        .map(|(key, value)| json!({ "title": key, "value": value, "short": false }))
        .collect();
    json!({
        "channel": channel,
        "username": username,
        "icon_url": "",
        "icon_emoji": "",
        "attachments": [{
            "fallback": fallback,
            "color": color,
            "author_name": event.title(),
            "text": event.message,
            "mrkdwn_in": ["text"],
            "fields": fields,
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
    fn slack_gets_an_attachment() {
        let mut settings = settings(ProviderType::Slack, "https://hooks.slack.com/services/T/B/x");
        settings.channel = "general".to_owned();
        let sent = &requests(&Event { message: "one\ntwo".to_owned(), ..example() }, &settings)[0];
        assert_eq!(sent.line(), "POST https://hooks.slack.com/services/T/B/x");
        assert_eq!((sent.value("authorization"), sent.accept), ("", Accept::Success));
        assert_eq!(
            sent.body_json(),
            json!({
                "channel": "general", "username": "source-controller", "icon_url": "", "icon_emoji": "",
                "attachments": [{
                    "fallback": "gitrepository/webapp.gitops-system: one", "color": "good",
                    "author_name": "gitrepository/webapp.gitops-system", "text": "one\ntwo", "mrkdwn_in": ["text"],
                    "fields": [
                        { "title": "summary", "value": "A & B", "short": false },
                        { "title": "test", "value": "metadata", "short": false },
                    ],
                }],
            })
        );
    }

    #[test]
    fn slacks_api_gets_the_token_and_is_asked_whether_all_is_well() {
        let mut settings = settings(ProviderType::Slack, SLACK_API);
        settings.token = "xoxb".to_owned().into();
        settings.username = "flux".to_owned();
        let sent = &requests(&failed(), &settings)[0];
        assert_eq!((sent.value("authorization"), sent.accept), ("Bearer xoxb", Accept::SlackOk));
        let body = sent.body_json();
        assert_eq!((&body["username"], &body["attachments"][0]["color"]), (&json!("flux"), &json!("danger")));
    }

    #[test]
    fn discord_gets_slacks_format_below_its_address() {
        for (address, line) in [
            ("https://discord.com/api/webhooks/1/x", "POST https://discord.com/api/webhooks/1/x/slack"),
            ("https://discord.com/api/webhooks/1/x/slack", "POST https://discord.com/api/webhooks/1/x/slack"),
            (
                "https://discord.com/api/webhooks/1/x/?wait=true",
                "POST https://discord.com/api/webhooks/1/x/slack?wait=true",
            ),
        ] {
            let mut settings = settings(ProviderType::Discord, address);
            settings.channel = "ignored".to_owned();
            let sent = &requests(&failed(), &settings)[0];
            assert_eq!(sent.line(), line);
            let body = sent.body_json();
            assert_eq!((&body["channel"], &body["attachments"][0]["fallback"]), (&json!(""), &json!("")));
            assert_eq!(body["attachments"][0]["color"], "danger");
        }
    }

    #[test]
    fn rocket_has_its_own_colors() {
        let sent =
            &requests(&example(), &settings(ProviderType::Rocket, "https://rocket.example.com/hooks/1"))[0];
        assert_eq!(
            (sent.line().as_str(), &sent.body_json()["username"]),
            ("POST https://rocket.example.com/hooks/1", &json!(""))
        );
        assert_eq!(sent.body_json()["attachments"][0]["color"], "#0076D7");
        let sent =
            &requests(&failed(), &settings(ProviderType::Rocket, "https://rocket.example.com/hooks/1"))[0];
        assert_eq!(sent.body_json()["attachments"][0]["color"], "#FF0000");
    }
}
