//! Git hosts with an API: makes the repository, gives teams access to it, and gives the cluster its key or token.
//!
//! Each host is a file that knows paths and bodies; what is decided is decided here, once for all of them. A host name may be given
//! with `http://` in front, for hosts inside of a network that have no certificate.

mod api;
mod bitbucket;
mod gitea;
mod github;
mod gitlab;

use flux_api::secret::SecretString;
use regex::Regex;

use crate::error::{CliError, fail};
use crate::output;
use crate::tree::Invocation;

use super::flow::key_name;
use api::Api;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    GitHub,
    GitLab,
    Gitea,
    BitbucketServer,
}

impl Provider {
    pub(super) fn named(word: &str) -> Option<Provider> {
        match word {
            "github" => Some(Provider::GitHub),
            "gitlab" => Some(Provider::GitLab),
            "gitea" => Some(Provider::Gitea),
            "bitbucket-server" => Some(Provider::BitbucketServer),
            _ => None,
        }
    }

    pub(super) fn token_variable(self) -> &'static str {
        match self {
            Provider::GitHub => "GITHUB_TOKEN",
            Provider::GitLab => "GITLAB_TOKEN",
            Provider::Gitea => "GITEA_TOKEN",
            Provider::BitbucketServer => "BITBUCKET_TOKEN",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Provider::GitHub => "GitHub",
            Provider::GitLab => "GitLab",
            Provider::Gitea => "Gitea",
            Provider::BitbucketServer => "Bitbucket",
        }
    }

    /// What only this host minds.
    pub(super) fn check(self, run: &Invocation) -> Result<(), CliError> {
        if self == Provider::BitbucketServer && run.some("hostname").is_none() {
            return Err(fail!("invalid hostname \"\""));
        }
        if self != Provider::GitLab {
            return Ok(());
        }
        let name = run.text("repository");
        let pattern = r"\A[[:alnum:]\x{00A9}-\x{1f9ff}_][[:alnum:]\p{Pd}\x{00A9}-\x{1f9ff}_\.]*\z";
        if !Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(name)) {
            return Err(fail!(
                "{name} is an invalid project name for gitlab.\nIt can contain only letters, digits, emojis, '_', '.', dash, space. \
                 It must start with letter, digit, emoji or '_'."
            ));
        }
        if run.is("token-auth") && run.is("deploy-token-auth") {
            return Err(fail!("--token-auth and --deploy-token-auth cannot be set both."));
        }
        Ok(())
    }

    pub(super) fn open(
        self,
        run: &Invocation,
        token: &SecretString,
        certificate: Option<&str>,
    ) -> Result<Client, CliError> {
        let given = run.text("hostname");
        let (scheme, host) = given.split_once("://").unwrap_or(("https", given));
        let host = host.trim_end_matches('/').to_owned();
        let base = format!("{scheme}://{host}");
        let (path, header) = match self {
            Provider::GitHub if host == "github.com" => {
                ("https://api.github.com".to_owned(), ("Authorization", format!("Bearer {}", token.expose())))
            }
            Provider::GitHub => {
                (format!("{base}/api/v3"), ("Authorization", format!("Bearer {}", token.expose())))
            }
            Provider::GitLab => (format!("{base}/api/v4"), ("PRIVATE-TOKEN", token.expose().clone())),
            Provider::Gitea => {
                (format!("{base}/api/v1"), ("Authorization", format!("token {}", token.expose())))
            }
            Provider::BitbucketServer => {
                (format!("{base}/rest"), ("Authorization", format!("Bearer {}", token.expose())))
            }
        };
        Ok(Client { provider: self, api: Api::open(path, header, certificate)?, base, host })
    }
}

/// A repository at a host.
pub(super) struct Repository {
    base: String,
    owner: String,
    name: String,
    pub(super) clone_url: String,
    ssh_url: String,
}

impl Repository {
    /// `https://github.com/org/repo`
    pub(super) fn shown(&self) -> String {
        format!("{}/{}/{}", self.base, self.owner, self.name)
    }

    /// Who clones, where a token is the password.
    pub(super) fn user<'a>(&'a self, run: &'a Invocation) -> &'a str {
        if run.row.name() == "bitbucket-server" && !run.is("personal") {
            run.text("username")
        } else {
            &self.owner
        }
    }

    pub(super) fn ssh_url(&self, run: &Invocation) -> String {
        let Some(name) = run.some("ssh-hostname") else { return self.ssh_url.clone() };
        let (before, rest) = self.ssh_url.split_once('@').unwrap_or(("ssh://git", &self.ssh_url));
        let path = rest.split_once('/').map_or("", |(_, path)| path);
        format!("{before}@{name}/{path}")
    }
}

/// Wishes for a repository that is not there yet.
struct Wanted<'a> {
    owner: &'a str,
    name: &'a str,
    personal: bool,
    public: bool,
    visibility: &'a str,
    branch: &'a str,
}

/// A deploy key as the host lists it.
struct DeployKey {
    id: String,
    title: String,
    key: String,
}

pub(super) struct Client {
    provider: Provider,
    api: Api,
    base: String,
    host: String,
}

impl Client {
    pub(super) fn host(&self) -> &str {
        self.host.split(':').next().unwrap_or(&self.host)
    }

    pub(super) fn uses_deploy_token(&self, run: &Invocation) -> bool {
        self.provider == Provider::GitLab && run.is("deploy-token-auth")
    }

    /// The user that goes with a token in the source's Secret.
    pub(super) fn token_user(&self, run: &Invocation) -> String {
        match self.provider {
            Provider::BitbucketServer if run.is("personal") => run.text("owner").to_owned(),
            Provider::BitbucketServer => run.text("username").to_owned(),
            Provider::GitHub | Provider::GitLab | Provider::Gitea => "git".to_owned(),
        }
    }

    /// The repository, made if it is missing; teams get their access, as far as that goes.
    pub(super) async fn reconcile_repository(&self, run: &Invocation) -> Result<Repository, CliError> {
        output::action(&format!("connecting to {}", self.host));
        let private = self.provider == Provider::GitLab || run.is("private");
        let visibility = match self.provider {
            Provider::GitLab if !run.is("private") => "public",
            Provider::GitLab => run.text("visibility"),
            _ => "private",
        };
        let wanted = Wanted {
            owner: run.text("owner"),
            name: run.text("repository"),
            personal: run.is("personal"),
            public: !private,
            visibility,
            branch: run.text("branch"),
        };
        let shown = format!("{}/{}/{}", self.base, wanted.owner, wanted.name);
        let found = self.find(&wanted).await;
        let found = found
            .map_err(|error| fail!("failed to get Git repository {shown:?}: provider error: {error}"))?;
        let repository = match found {
            Some(found) => found,
            None => {
                let made = self.create(&wanted).await;
                let made =
                    made.map_err(|error| fail!("failed to create new Git repository {shown:?}: {error}"))?;
                output::success(&format!("repository {shown:?} created"));
                made
            }
        };
        if !wanted.personal {
            self.teams(run, &repository).await?;
        }
        Ok(repository)
    }

    async fn find(&self, wanted: &Wanted<'_>) -> Result<Option<Repository>, CliError> {
        match self.provider {
            Provider::GitHub => github::find(self, wanted).await,
            Provider::GitLab => gitlab::find(self, wanted).await,
            Provider::Gitea => gitea::find(self, wanted).await,
            Provider::BitbucketServer => bitbucket::find(self, wanted).await,
        }
    }

    async fn create(&self, wanted: &Wanted<'_>) -> Result<Repository, CliError> {
        match self.provider {
            Provider::GitHub => github::create(self, wanted).await,
            Provider::GitLab => gitlab::create(self, wanted).await,
            Provider::Gitea => gitea::create(self, wanted).await,
            Provider::BitbucketServer => bitbucket::create(self, wanted).await,
        }
    }

    /// A team that cannot be given access is told and does not stop the bootstrap.
    async fn teams(&self, run: &Invocation, repository: &Repository) -> Result<(), CliError> {
        let flag = if self.provider == Provider::BitbucketServer { "group" } else { "team" };
        let teams = run.list(flag);
        if teams.is_empty() {
            return Ok(());
        }
        output::action("reconciling repository permissions");
        for team in &teams {
            let (name, permission) = team.split_once(':').unwrap_or((team, "maintain"));
            if !["pull", "triage", "push", "maintain", "admin"].contains(&permission) {
                return Err(fail!(
                    "failed to reconcile repository team access: invalid permission {permission:?} for team {name:?}"
                ));
            }
            let granted = match self.provider {
                Provider::GitHub => github::grant(self, repository, name, permission).await,
                Provider::GitLab => gitlab::grant(self, repository, name, permission).await,
                Provider::Gitea => gitea::grant(self, repository, name).await,
                Provider::BitbucketServer => bitbucket::grant(self, repository, name, permission).await,
            };
            match granted {
                Ok(()) => output::success(&format!("granted {permission:?} permissions to {name:?}")),
                Err(error) => {
                    output::failure(&format!(
                        "failed to grant {permission:?} permissions to {name:?}: {error}"
                    ));
                }
            }
        }
        output::success("reconciled repository permissions");
        Ok(())
    }

    /// Puts the key in place; one of the same name that is another goes. Says whether anything changed.
    pub(super) async fn deploy_key(
        &self,
        run: &Invocation,
        repository: &Repository,
        name: &str,
        key: &str,
    ) -> Result<bool, CliError> {
        let write = run.is("read-write-key");
        let listed = match self.provider {
            Provider::GitHub => github::keys(self, repository).await?,
            Provider::GitLab => gitlab::keys(self, repository).await?,
            Provider::Gitea => gitea::keys(self, repository).await?,
            Provider::BitbucketServer => bitbucket::keys(self, repository).await?,
        };
        let same = |one: &str| one.split_whitespace().take(2).eq(key.split_whitespace().take(2));
        for old in listed.iter().filter(|old| old.title == name) {
            if same(&old.key) {
                return Ok(false);
            }
            match self.provider {
                Provider::GitHub => github::remove_key(self, repository, &old.id).await?,
                Provider::GitLab => gitlab::remove_key(self, repository, &old.id).await?,
                Provider::Gitea => gitea::remove_key(self, repository, &old.id).await?,
                Provider::BitbucketServer => bitbucket::remove_key(self, repository, &old.id).await?,
            }
        }
        match self.provider {
            Provider::GitHub => github::add_key(self, repository, name, key, write).await?,
            Provider::GitLab => gitlab::add_key(self, repository, name, key, write).await?,
            Provider::Gitea => gitea::add_key(self, repository, name, key, write).await?,
            Provider::BitbucketServer => bitbucket::add_key(self, repository, name, key, write).await?,
        }
        Ok(true)
    }

    /// User and token for the source; `None` if there is one already, which nobody can read again.
    pub(super) async fn deploy_token(
        &self,
        run: &Invocation,
        repository: &Repository,
    ) -> Result<Option<(String, String)>, CliError> {
        output::action("checking to reconcile deploy token for source secret");
        let name = key_name(run, &crate::session::namespace(run)?);
        let made = gitlab::deploy_token(self, repository, &name).await?;
        match &made {
            Some(_) => {
                output::success(&format!("configured deploy token {name:?} for {:?}", repository.shown()))
            }
            None => output::success("reconciled deploy token for source secret"),
        }
        Ok(made)
    }
}

/// A name as one part of a path.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
