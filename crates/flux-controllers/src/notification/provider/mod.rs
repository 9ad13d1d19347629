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
