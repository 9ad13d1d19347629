//! GitLab. Owners may be groups inside of groups, so projects are named by their whole path.

use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::text;

use super::{Client, DeployKey, Repository, Wanted, encoded, github};

fn repository(client: &Client, owner: &str, name: &str) -> Repository {
    Repository {
        base: client.base.clone(),
        owner: owner.to_owned(),
        name: name.to_owned(),
        clone_url: format!("{}/{owner}/{name}.git", client.base),
        ssh_url: format!("ssh://git@{}/{owner}/{name}.git", client.host),
    }
}

fn path(repository: &Repository) -> String {
    format!("/projects/{}", encoded(&format!("{}/{}", repository.owner, repository.name)))
}

pub(super) async fn find(client: &Client, wanted: &Wanted<'_>) -> Result<Option<Repository>, CliError> {
    let project = encoded(&format!("{}/{}", wanted.owner, wanted.name));
    let found = client.api.get(&format!("/projects/{project}")).await?;
    Ok(found.map(|_| repository(client, wanted.owner, wanted.name)))
}

pub(super) async fn create(client: &Client, wanted: &Wanted<'_>) -> Result<Repository, CliError> {
    let mut body = json!({"name": wanted.name, "path": wanted.name, "visibility": wanted.visibility});
    if !wanted.branch.is_empty() {
        body["default_branch"] = wanted.branch.into();
    }
    if !wanted.personal {
        body["namespace_id"] = group(client, wanted.owner).await?;
    }
    client.api.post("/projects", body).await?;
    Ok(repository(client, wanted.owner, wanted.name))
}

async fn group(client: &Client, name: &str) -> Result<Value, CliError> {
    let found = client.api.get(&format!("/groups/{}", encoded(name))).await?;
    let id = found.and_then(|group| group.get("id").cloned());
    id.ok_or_else(|| fail!("there is no group '{name}', or the token may not see it"))
}

pub(super) async fn grant(
    client: &Client,
    repository: &Repository,
    team: &str,
    permission: &str,
) -> Result<(), CliError> {
    let level = match permission {
        "pull" => 10,
        "triage" => 20,
        "push" => 30,
        "maintain" => 40,
        _ => 50,
    };
    let body = json!({"group_id": group(client, team).await?, "group_access": level});
    client.api.post(&format!("{}/share", path(repository)), body).await.map(|_| ())
}

pub(super) async fn keys(client: &Client, repository: &Repository) -> Result<Vec<DeployKey>, CliError> {
    let listed = client.api.list(&format!("{}/deploy_keys", path(repository))).await?;
    Ok(listed.iter().map(github::key).collect())
}

pub(super) async fn add_key(
    client: &Client,
    repository: &Repository,
    title: &str,
    key: &str,
    write: bool,
) -> Result<(), CliError> {
    let body = json!({"title": title, "key": key, "can_push": write});
    client.api.post(&format!("{}/deploy_keys", path(repository)), body).await.map(|_| ())
}

pub(super) async fn remove_key(client: &Client, repository: &Repository, id: &str) -> Result<(), CliError> {
    client.api.delete(&format!("{}/deploy_keys/{id}", path(repository))).await
}

/// User and token of a new deploy token; `None` if one of that name exists.
pub(super) async fn deploy_token(
    client: &Client,
    repository: &Repository,
    name: &str,
) -> Result<Option<(String, String)>, CliError> {
    let place = format!("{}/deploy_tokens", path(repository));
    if client.api.list(&place).await?.iter().any(|token| text(token, "/name") == name) {
        return Ok(None);
    }
    let made = client.api.post(&place, json!({"name": name, "scopes": ["read_repository"]})).await?;
    Ok(Some((text(&made, "/username").to_owned(), text(&made, "/token").to_owned())))
}
