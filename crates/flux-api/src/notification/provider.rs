//! Provider: where notifications are sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::absent;
use crate::closed_set::closed_set;
use crate::duration::{self, GoDuration};
use crate::kinds;
use crate::meta::LocalReference;
use crate::object::stateless_object;

stateless_object!(Provider, kinds::PROVIDER, ProviderSpec);

/// What to send to, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": r"self.type == 'github' || self.type == 'gitlab' || self.type == 'gitea' || self.type == 'bitbucketserver' || self.type == 'bitbucket' || self.type == 'azuredevops' || !has(self.commitStatusExpr)", "message": "spec.commitStatusExpr is only supported for the 'github', 'gitlab', 'gitea', 'bitbucketserver', 'bitbucket', 'azuredevops' provider types" },
    ]))]
pub struct ProviderSpec {
    /// Which service it is.
    #[serde(rename = "type")]
    pub provider_type: ProviderType,
    /// No longer looked at; kept so that old manifests apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,
    /// Channel, room, topic or queue to post to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,
    /// Name to post as.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,
    /// Address of the service; for Git hosts that of the repository. The address key of the Secret wins.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,
    /// How long sending one notification may take; 15s if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = duration::PATTERN_WITHOUT_HOURS))]
    pub timeout: Option<GoDuration>,
    /// Address of an HTTP proxy. Deprecated: use proxySecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    #[schemars(length(max = 2048), regex(pattern = r"^(http|https)://.*$"))]
    pub proxy: Option<String>,
    /// Secret with the address of a proxy and, if it wants them, username and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalReference>,
    /// Secret with what the service wants: address, token, username, password, headers or a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// ServiceAccount in the same namespace whose cloud identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub service_account_name: Option<String>,
    /// Secret with ca.crt and, for mutual TLS, tls.crt and tls.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalReference>,
    /// Stops sending.
    #[serde(default, skip_serializing_if = "absent::no")]
    pub suspend: bool,
    /// The id of the commit status, in CEL over event, alert and provider. Only for Git hosts.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "absent::empty")]
    pub commit_status_expr: Option<String>,
}

closed_set! {
    /// Services that notifications can be sent to.
    pub enum ProviderType {
        /// Slack.
        Slack = "slack",
        /// Discord.
        Discord = "discord",
        /// Microsoft Teams.
        Msteams = "msteams",
        /// Rocket.Chat.
        Rocket = "rocket",
        /// Any webhook that takes the event as JSON.
        Generic = "generic",
        /// As generic, signed with a shared key.
        GenericHmac = "generic-hmac",
        /// GitHub commit status.
        GitHub = "github",
        /// GitLab commit status.
        GitLab = "gitlab",
        /// Gitea commit status.
        Gitea = "gitea",
        /// Gitea pull request comment.
        GiteaPullRequestComment = "giteapullrequestcomment",
        /// Bitbucket Server commit status.
        BitbucketServer = "bitbucketserver",
        /// Bitbucket commit status.
        Bitbucket = "bitbucket",
        /// Azure DevOps commit status.
        AzureDevOps = "azuredevops",
        /// Google Chat.
        GoogleChat = "googlechat",
        /// Google Pub/Sub.
        GooglePubSub = "googlepubsub",
        /// Webex.
        Webex = "webex",
        /// Sentry.
        Sentry = "sentry",
        /// Azure Event Hub.
        AzureEventHub = "azureeventhub",
        /// Telegram.
        Telegram = "telegram",
        /// Lark.
        Lark = "lark",
        /// Matrix.
        Matrix = "matrix",
        /// Opsgenie.
        Opsgenie = "opsgenie",
        /// Prometheus Alertmanager.
        AlertManager = "alertmanager",
        /// Grafana annotations.
        Grafana = "grafana",
        /// GitHub repository dispatch.
        GitHubDispatch = "githubdispatch",
        /// GitHub pull request comment.
        GitHubPullRequestComment = "githubpullrequestcomment",
        /// GitLab merge request comment.
        GitLabMergeRequestComment = "gitlabmergerequestcomment",
        /// PagerDuty.
        PagerDuty = "pagerduty",
        /// Datadog.
        Datadog = "datadog",
        /// NATS.
        Nats = "nats",
        /// Zulip.
        Zulip = "zulip",
        /// OpenTelemetry traces.
        OpenTelemetry = "otel",
    }
}

impl ProviderSpec {
    /// What every Provider says; the rest is left out.
    pub fn new(provider_type: ProviderType) -> Self {
        ProviderSpec {
            provider_type,
            interval: None,
            channel: None,
            username: None,
            address: None,
            timeout: None,
            proxy: None,
            proxy_secret_ref: None,
            secret_ref: None,
            service_account_name: None,
            cert_secret_ref: None,
            suspend: false,
            commit_status_expr: None,
        }
    }
}
