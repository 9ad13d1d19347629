//! Gitea and Forgejo.

use serde_json::json;

use crate::error::CliError;

use super::{Client, DeployKey, Repository, Wanted, github};

fn repository(client: &Client, owner: &str, name: &str) -> Repository {
    Repository {
        base: client.base.clone(),
        owner: owner.to_owned(),
        name: name.to_owned(),
        clone_url: format!("{}/{owner}/{name}.git", client.base),
        ssh_url: format!("ssh://git@{}/{owner}/{name}", client.host),
    }
}

fn path(repository: &Repository) -> String {
    format!("/repos/{}/{}", repository.owner, repository.name)
}

pub(super) async fn find(client: &Client, wanted: &Wanted<'_>) -> Result<Option<Repository>, CliError> {
    let found = client.api.get(&format!("/repos/{}/{}", wanted.owner, wanted.name)).await?;
    Ok(found.map(|_| repository(client, wanted.owner, wanted.name)))
}

pub(super) async fn create(client: &Client, wanted: &Wanted<'_>) -> Result<Repository, CliError> {
    let place =
        if wanted.personal { "/user/repos".to_owned() } else { format!("/orgs/{}/repos", wanted.owner) };
    let body = json!({"name": wanted.name, "private": !wanted.public, "default_branch": wanted.branch});
    client.api.post(&place, body).await?;
    Ok(repository(client, wanted.owner, wanted.name))
}

/// Gitea's teams bring their permissions with them.
pub(super) async fn grant(client: &Client, repository: &Repository, team: &str) -> Result<(), CliError> {
    client.api.put(&format!("{}/teams/{team}", path(repository)), None).await.map(|_| ())
}

pub(super) async fn keys(client: &Client, repository: &Repository) -> Result<Vec<DeployKey>, CliError> {
    let listed = client.api.list(&format!("{}/keys", path(repository))).await?;
    Ok(listed.iter().map(github::key).collect())
}

pub(super) async fn add_key(
    client: &Client,
    repository: &Repository,
    title: &str,
    key: &str,
    write: bool,
) -> Result<(), CliError> {
    let body = json!({"title": title, "key": key, "read_only": !write});
    client.api.post(&format!("{}/keys", path(repository)), body).await.map(|_| ())
}

pub(super) async fn remove_key(client: &Client, repository: &Repository, id: &str) -> Result<(), CliError> {
    client.api.delete(&format!("{}/keys/{id}", path(repository))).await
}
