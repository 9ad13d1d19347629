//! What is sent to whom: an event and the settings of a Provider become HTTP requests. Nothing here sends, waits or reads
//! a clock, so what a service gets can be tested without one.
//!
//! One file a family of services. Where upstream goes through a map in random order we go by name.

mod alertmanager;
mod azure_devops;
mod bitbucket;
mod datadog;
mod event_hub;
mod forward;
mod git;
mod gitea;
mod github;
mod gitlab;
mod google_chat;
mod grafana;
mod lark;
mod markdown;
mod matrix;
mod opsgenie;
mod otel;
mod pagerduty;
mod protobuf;
mod pubsub;
mod request;
mod sentry;
mod slack;
mod teams;
mod telegram;
mod webex;
mod zulip;

pub use request::{Accept, AlertName, Error, Request, Settings, Step};

use flux_api::notification::ProviderType;

use super::event::Event;

/// The requests that tell of `event`; none where the service has no use for it.
pub fn plan(event: &Event, settings: &Settings) -> Result<Vec<Step>, Error> {
    let requests = match settings.provider_type {
        ProviderType::Generic => forward::generic(event, settings)?,
        ProviderType::GenericHmac => forward::generic_hmac(event, settings)?,
        ProviderType::Slack => slack::slack(event, settings)?,
        ProviderType::Discord => slack::discord(event, settings)?,
        ProviderType::Rocket => slack::rocket(event, settings)?,
        ProviderType::Msteams => teams::message(event, settings)?,
        ProviderType::GoogleChat => google_chat::card(event, settings)?,
        ProviderType::Webex => webex::message(event, settings)?,
        ProviderType::Telegram => telegram::message(event, settings)?,
        ProviderType::Lark => lark::card(event, settings)?,
        ProviderType::Matrix => matrix::message(event, settings)?,
        ProviderType::Zulip => zulip::message(event, settings)?,
        ProviderType::AlertManager => alertmanager::alert(event, settings)?,
        ProviderType::Grafana => grafana::annotation(event, settings)?,
        ProviderType::Opsgenie => opsgenie::alert(event, settings)?,
        ProviderType::PagerDuty => pagerduty::events(event, settings)?,
        ProviderType::Datadog => datadog::event(event, settings)?,
        ProviderType::Sentry => sentry::envelope(event, settings)?,
        ProviderType::OpenTelemetry => otel::span(event, settings)?,
        ProviderType::GooglePubSub => return pubsub::message(event, settings),
        ProviderType::AzureEventHub => return event_hub::message(event, settings),
        ProviderType::GitHub => return github::commit_status(event, settings),
        ProviderType::GitHubDispatch => return github::dispatch(event, settings),
        ProviderType::GitHubPullRequestComment => return github::comment(event, settings),
        ProviderType::GitLab => return gitlab::commit_status(event, settings),
        ProviderType::GitLabMergeRequestComment => return gitlab::comment(event, settings),
        ProviderType::Gitea => return gitea::commit_status(event, settings),
        ProviderType::GiteaPullRequestComment => return gitea::comment(event, settings),
        ProviderType::Bitbucket => return bitbucket::cloud(event, settings),
        ProviderType::BitbucketServer => return bitbucket::server(event, settings),
        ProviderType::AzureDevOps => return azure_devops::commit_status(event, settings),
        // It speaks a protocol of its own: `nats.rs`.
        ProviderType::Nats => Vec::new(),
    };
    Ok(requests.into_iter().map(Step::only).collect())
}

/// Types that write the state of a commit.
pub fn writes_commit_status(provider_type: ProviderType) -> bool {
    matches!(
        provider_type,
        ProviderType::GitHub
            | ProviderType::GitLab
            | ProviderType::Gitea
            | ProviderType::BitbucketServer
            | ProviderType::Bitbucket
            | ProviderType::AzureDevOps
    )
}

/// Types that comment on a pull or merge request.
pub fn comments_on_change_request(provider_type: ProviderType) -> bool {
    matches!(
        provider_type,
        ProviderType::GitHubPullRequestComment
            | ProviderType::GitLabMergeRequestComment
            | ProviderType::GiteaPullRequestComment
    )
}

/// Types that forward an event as it is.
pub fn forwards(provider_type: ProviderType) -> bool {
    matches!(provider_type, ProviderType::Generic | ProviderType::GenericHmac)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::notification::event::example;

    /// Settings with an address on this machine, or with none.
    pub(in crate::notification) fn settings(provider_type: ProviderType, address: &str) -> Settings {
        Settings { address: address.to_owned(), ..Settings::new(provider_type) }
    }

    pub(in crate::notification) fn failed() -> Event {
        Event { severity: "error".to_owned(), ..example() }
    }

    /// The requests of a plan without steps that depend on answers.
    pub(in crate::notification) fn requests(event: &Event, settings: &Settings) -> Vec<Request> {
        plan(event, settings).unwrap().into_iter().map(|step| step.request).collect()
    }

    pub(in crate::notification) fn problem(event: &Event, settings: &Settings) -> String {
        plan(event, settings).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_address_that_is_none_is_refused_by_name_and_not_shown() {
        for provider_type in [
            ProviderType::Generic,
            ProviderType::Slack,
            ProviderType::Discord,
            ProviderType::Rocket,
            ProviderType::Msteams,
            ProviderType::GoogleChat,
            ProviderType::Webex,
            ProviderType::Lark,
            ProviderType::Matrix,
            ProviderType::AlertManager,
            ProviderType::Grafana,
            ProviderType::Opsgenie,
            ProviderType::PagerDuty,
            ProviderType::Datadog,
            ProviderType::Sentry,
            ProviderType::OpenTelemetry,
        ] {
            for address in ["", "canary", "ftp://host/canary", "https://", "/canary", "http://[canary/"] {
                let mut settings = settings(provider_type, address);
                settings.token = "t".to_owned().into();
                let problem = problem(&failed(), &settings);
                assert!(
                    problem.starts_with("invalid ") && !problem.contains("canary"),
                    "{provider_type}: {problem}"
                );
            }
        }
    }

    pub(in crate::notification) const ALL: &[ProviderType] = ProviderType::ALL;

    /// Settings with all that a type needs; what is secret in them is a canary.
    pub(in crate::notification) fn complete(provider_type: ProviderType) -> Settings {
        let address = match provider_type {
            ProviderType::Sentry => "https://canary-key@sentry.example.com/1",
            ProviderType::GooglePubSub => "project",
            ProviderType::AzureEventHub => {
                "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=canary;EntityPath=hub"
            }
            ProviderType::Telegram => "",
            ProviderType::Nats => "nats://nats.example.com",
            ProviderType::GitHub | ProviderType::GitHubDispatch | ProviderType::GitHubPullRequestComment => {
                "https://github.com/org/repo"
            }
            ProviderType::GitLab | ProviderType::GitLabMergeRequestComment => "https://gitlab.com/org/repo",
            ProviderType::Gitea | ProviderType::GiteaPullRequestComment => {
                "https://gitea.example.com/org/repo"
            }
            ProviderType::Bitbucket => "https://bitbucket.org/org/repo",
            ProviderType::BitbucketServer => "https://bitbucket.example.com/scm/org/repo.git",
            ProviderType::AzureDevOps => "https://dev.azure.com/org/project/_git/repo",
            _ => "https://service.example.com/services/canary-path",
        };
        let mut settings = settings(provider_type, address);
        settings.channel = match provider_type {
            ProviderType::Zulip => "stream/topic",
            _ => "channel",
        }
        .to_owned();
        let token = match provider_type {
            ProviderType::Bitbucket => "user:canary-token",
            // Without, the identity of the machine is asked for.
            ProviderType::GooglePubSub | ProviderType::AzureEventHub => "",
            _ => "canary-token",
        };
        settings.token = token.to_owned().into();
        settings.commit_status = "kustomization/apps/0c9c2e41".to_owned();
        settings.uid = "uid".to_owned();
        settings.identity = match provider_type {
            ProviderType::GooglePubSub => "canary-identity",
            _ => "",
        }
        .to_owned()
        .into();
        if provider_type == ProviderType::Zulip {
            (settings.username, settings.password) = ("bot".to_owned(), "canary-password".to_owned().into());
        }
        settings
    }

    /// A failure at a commit of a change request: every type has a use for it.
    pub(in crate::notification) fn event_for(_: ProviderType) -> Event {
        super::git::tests::at_commit()
    }

    #[test]
    fn every_type_makes_requests_and_none_lets_an_event_lead_them_elsewhere() {
        let hostile = |text: &str| {
            let mut event = event_for(ProviderType::Generic);
            event.message = text.repeat(20);
            let object = &mut event.involved_object;
            for field in [&mut object.kind, &mut object.name, &mut object.namespace, &mut object.uid] {
                field.push_str(text);
            }
            event.reason.push_str(text);
            event.reporting_controller = text.chars().filter(|one| !one.is_control()).collect();
            event.metadata.insert(text.to_owned(), text.to_owned());
            event.metadata.insert("summary".to_owned(), text.to_owned());
            event
        };
        let texts = [
            "../../../../x",
            "//evil.example.com/",
            "?a=b#c",
            "@evil.example.com",
            "\"},{\"a\":\"",
            "</script><b>",
            "\r\nX-Evil: 1\r\n\r\n",
            "\u{0}\u{1b}[31m",
            "\u{202e}\u{2028}",
            "%2e%2e%2f%00",
            "{{ .Values }}${IFS}`id`",
        ];
        let long = "x".repeat(64 << 10);
        for provider_type in ALL {
            let settings = complete(*provider_type);
            let usual = plan(&event_for(*provider_type), &settings).unwrap();
            assert_eq!(usual.is_empty(), *provider_type == ProviderType::Nats, "{provider_type}");
            let hosts: Vec<_> =
                usual.iter().map(|step| step.request.url.host_str().map(str::to_owned)).collect();
            for text in texts.into_iter().chain([long.as_str()]) {
                let Ok(steps) = plan(&hostile(text), &settings) else { continue };
                for step in &steps {
                    let request = &step.request;
                    let host = request.url.host_str().map(str::to_owned);
                    assert!(hosts.contains(&host), "{provider_type} {text:?}: {}", request.url);
                    assert!(!request.headers.contains_key("x-evil"), "{provider_type}");
                    if request.value("content-type") == "application/json" {
                        assert!(
                            serde_json::from_slice::<serde_json::Value>(&request.body).is_ok(),
                            "{provider_type}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_type_says_what_it_lacks() {
        for provider_type in ALL {
            let mut without_address = complete(*provider_type);
            without_address.address.clear();
            let told = problem(&event_for(*provider_type), &without_address);
            // Telegram has an address of its own; NATS is told apart in its own module.
            let has_own = matches!(provider_type, ProviderType::Telegram | ProviderType::Nats);
            assert_eq!(told.is_empty(), has_own, "{provider_type}: {told}");
            let mut without_token = complete(*provider_type);
            without_token.token = String::new().into();
            let told = problem(&event_for(*provider_type), &without_token);
            let needs_one = match provider_type {
                ProviderType::GenericHmac
                | ProviderType::Webex
                | ProviderType::Telegram
                | ProviderType::Matrix
                | ProviderType::Opsgenie
                | ProviderType::Datadog
                | ProviderType::GitHub
                | ProviderType::GitHubDispatch
                | ProviderType::GitHubPullRequestComment
                | ProviderType::GitLab
                | ProviderType::GitLabMergeRequestComment
                | ProviderType::Gitea
                | ProviderType::GiteaPullRequestComment
                | ProviderType::Bitbucket
                | ProviderType::BitbucketServer
                | ProviderType::AzureDevOps => true,
                ProviderType::Slack
                | ProviderType::Discord
                | ProviderType::Msteams
                | ProviderType::Rocket
                | ProviderType::Generic
                | ProviderType::GoogleChat
                | ProviderType::GooglePubSub
                | ProviderType::Sentry
                | ProviderType::AzureEventHub
                | ProviderType::Lark
                | ProviderType::AlertManager
                | ProviderType::Grafana
                | ProviderType::PagerDuty
                | ProviderType::Nats
                | ProviderType::Zulip
                | ProviderType::OpenTelemetry => false,
            };
            assert_eq!(!told.is_empty(), needs_one, "{provider_type}: {told}");
            assert!(!told.contains("canary"), "{provider_type}: {told}");
        }
    }

    #[test]
    fn a_header_that_would_end_the_headers_is_refused() {
        let mut settings = settings(ProviderType::Slack, "https://host/");
        settings.token = "a\r\nX-Evil: canary".to_owned().into();
        assert_eq!(
            problem(&example(), &settings),
            "the header 'authorization' has a value that cannot be sent"
        );
    }
}
