//! Git hosts with an API: makes the repository, gives teams access to it, and gives the cluster its key or token.
//!
//! Each host is a file that knows paths and bodies (`host.rs`); what is decided and sent is decided and sent here, once for all of them. A host name may be given
//! with `http://` in front, for hosts inside of a network that have no certificate.

mod api;
mod bitbucket;
mod gitea;
mod github;
mod gitlab;
mod host;

use flux_api::secret::SecretString;
use regex::Regex;

use crate::error::{CliError, fail};
use crate::kinds::text;
use crate::output;
use crate::tree::Invocation;

use super::flow::key_name;
use api::Api;
use host::{Call, Host, Permission, Site, Wanted};

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

    fn host(self) -> &'static dyn Host {
        match self {
            Provider::GitHub => &github::GitHub,
            Provider::GitLab => &gitlab::GitLab,
            Provider::Gitea => &gitea::Gitea,
            Provider::BitbucketServer => &bitbucket::Bitbucket,
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
        Ok(Client { provider: self, api: Api::open(path, header, certificate)?, site: Site { base, host } })
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

pub(super) struct Client {
    provider: Provider,
    api: Api,
    site: Site,
}

impl Client {
    pub(super) fn host(&self) -> &str {
        self.site.host.split(':').next().unwrap_or(&self.site.host)
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
        output::action(&format!("connecting to {}", self.site.host));
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
        let shown = format!("{}/{}/{}", self.site.base, wanted.owner, wanted.name);
        let unavailable =
            |error: CliError| fail!("failed to get Git repository {shown:?}: provider error: {error}");
        let owner = self.owner(&wanted).await.map_err(unavailable)?;
        let repository = match self.find(&owner, wanted.name).await.map_err(unavailable)? {
            Some(found) => found,
            None => {
                let made = self.create(&wanted, &owner).await;
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

    /// The owner as requests name it.
    async fn owner(&self, wanted: &Wanted<'_>) -> Result<String, CliError> {
        let host = self.provider.host();
        let Some((by_name, by_key)) = host.project(wanted) else {
            let owner = wanted.owner;
            return Ok(if wanted.personal { host.personal_owner(owner) } else { owner.to_owned() });
        };
        let listed = self.api.list(&by_name).await?;
        let found = match listed.into_iter().find(|project| text(project, "/name") == wanted.owner) {
            Some(project) => Some(project),
            None => self.api.get(&by_key).await?,
        };
        let found = found.map(|project| text(&project, "/key").to_owned());
        found.ok_or_else(|| fail!("failed to get Git organization: there is no project '{}'", wanted.owner))
    }

    /// The number of a group, at hosts that want it.
    async fn group(&self, name: &str) -> Result<Option<u64>, CliError> {
        let Some(path) = self.provider.host().group(name) else { return Ok(None) };
        let found = self.api.get(&path).await?;
        let id = found.and_then(|group| group.get("id").and_then(serde_json::Value::as_u64));
        id.map(Some).ok_or_else(|| fail!("there is no group '{name}', or the token may not see it"))
    }

    async fn find(&self, owner: &str, name: &str) -> Result<Option<Repository>, CliError> {
        let found = self.api.get(&self.provider.host().repository(owner, name)).await?;
        Ok(found.map(|found| self.repository(owner, name, &found)))
    }

    async fn create(&self, wanted: &Wanted<'_>, owner: &str) -> Result<Repository, CliError> {
        let group = if wanted.personal { None } else { self.group(wanted.owner).await? };
        let made = self.api.call(self.provider.host().creation(wanted, owner, group)).await?;
        Ok(self.repository(owner, wanted.name, &made))
    }

    fn repository(&self, owner: &str, name: &str, found: &serde_json::Value) -> Repository {
        // Bitbucket's addresses have a name of their own for it.
        let name = Some(text(found, "/slug")).filter(|slug| !slug.is_empty()).unwrap_or(name);
        let addresses = self.provider.host().addresses(&self.site, owner, name, found);
        Repository {
            base: self.site.base.clone(),
            owner: owner.to_owned(),
            name: name.to_owned(),
            clone_url: addresses.clone,
            ssh_url: addresses.ssh,
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
            let Some(level) = Permission::named(permission) else {
                return Err(fail!(
                    "failed to reconcile repository team access: invalid permission {permission:?} for team {name:?}"
                ));
            };
            let granted = self.grant(repository, name, level).await;
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

    async fn grant(
        &self,
        repository: &Repository,
        team: &str,
        permission: Permission,
    ) -> Result<(), CliError> {
        let group = self.group(team).await?;
        let call = self.provider.host().access(&repository.owner, &repository.name, team, permission, group);
        self.api.call(call).await.map(|_| ())
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
        let host = self.provider.host();
        let place = host.keys(&repository.owner, &repository.name);
        let listed = self.api.list(&place).await?;
        let listed = listed.iter().map(|listed| host.listed_key(listed));
        let same = |one: &str| one.split_whitespace().take(2).eq(key.split_whitespace().take(2));
        for old in listed.filter(|old| old.title == name) {
            if same(&old.key) {
                return Ok(false);
            }
            self.api.delete(&format!("{place}/{}", old.id)).await?;
        }
        self.api.call(Call::post(place, host.new_key(name, key, write))).await?;
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
        let made = self.new_deploy_token(repository, &name).await?;
        match &made {
            Some(_) => {
                output::success(&format!("configured deploy token {name:?} for {:?}", repository.shown()))
            }
            None => output::success("reconciled deploy token for source secret"),
        }
        Ok(made)
    }

    /// `None` if one of that name exists.
    async fn new_deploy_token(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<Option<(String, String)>, CliError> {
        let place = self.provider.host().deploy_tokens(&repository.owner, &repository.name);
        let place = place.ok_or_else(|| fail!("{} has no deploy tokens", self.provider.title()))?;
        if self.api.list(&place).await?.iter().any(|token| text(token, "/name") == name) {
            return Ok(None);
        }
        let body = serde_json::json!({"name": name, "scopes": ["read_repository"]});
        let made = self.api.call(Call::post(place, body)).await?;
        Ok(Some((text(&made, "/username").to_owned(), text(&made, "/token").to_owned())))
    }
}
