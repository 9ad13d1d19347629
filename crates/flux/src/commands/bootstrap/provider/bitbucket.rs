//! Bitbucket Server and Data Center. A project has a name people know and a key the API wants.

use serde_json::{Value, json};

use crate::error::{CliError, fail};
use crate::kinds::text;

use super::{Client, DeployKey, Repository, Wanted, encoded};

/// The project's key: `~user`, or the key of the project with that name or key.
async fn key_of(client: &Client, wanted: &Wanted<'_>) -> Result<String, CliError> {
    if wanted.personal {
        return Ok(format!("~{}", wanted.owner));
    }
    let listed = client.api.list(&format!("/api/1.0/projects?name={}", encoded(wanted.owner))).await?;
    let named = listed.iter().find(|project| text(project, "/name") == wanted.owner);
    let found = match named {
        Some(project) => Some(text(project, "/key").to_owned()),
        None => {
            let project = client.api.get(&format!("/api/1.0/projects/{}", encoded(wanted.owner))).await?;
            project.map(|project| text(&project, "/key").to_owned())
        }
    };
    found.ok_or_else(|| fail!("failed to get Git organization: there is no project '{}'", wanted.owner))
}

fn repository(client: &Client, key: &str, found: &Value) -> Repository {
    let slug = text(found, "/slug").to_owned();
    let links = found.pointer("/links/clone").and_then(Value::as_array).cloned().unwrap_or_default();
    let link = |name: &str| {
        let link = links.iter().find(|link| text(link, "/name") == name);
        link.map(|link| text(link, "/href").to_owned())
    };
    Repository {
        clone_url: link("http").unwrap_or_else(|| format!("{}/scm/{key}/{slug}.git", client.base)),
        ssh_url: link("ssh").unwrap_or_else(|| format!("ssh://git@{}/{key}/{slug}.git", client.host)),
        base: client.base.clone(),
        owner: key.to_owned(),
        name: slug,
    }
}

pub(super) async fn find(client: &Client, wanted: &Wanted<'_>) -> Result<Option<Repository>, CliError> {
    let key = key_of(client, wanted).await?;
    let found = client.api.get(&format!("/api/1.0/projects/{key}/repos/{}", wanted.name)).await?;
    Ok(found.map(|found| repository(client, &key, &found)))
}

pub(super) async fn create(client: &Client, wanted: &Wanted<'_>) -> Result<Repository, CliError> {
    let key = key_of(client, wanted).await?;
    let body =
        json!({"name": wanted.name, "scmId": "git", "public": wanted.public, "defaultBranch": wanted.branch});
    let made = client.api.post(&format!("/api/1.0/projects/{key}/repos"), body).await?;
    Ok(repository(client, &key, &made))
}

pub(super) async fn grant(
    client: &Client,
    repository: &Repository,
    group: &str,
    permission: &str,
) -> Result<(), CliError> {
    let level = match permission {
        "pull" | "triage" => "REPO_READ",
        "push" | "maintain" => "REPO_WRITE",
        _ => "REPO_ADMIN",
    };
    let path = format!(
        "/api/1.0/projects/{}/repos/{}/permissions/groups?name={}&permission={level}",
        repository.owner,
        repository.name,
        encoded(group)
    );
    client.api.put(&path, None).await.map(|_| ())
}

fn keys_path(repository: &Repository) -> String {
    format!("/keys/1.0/projects/{}/repos/{}/ssh", repository.owner, repository.name)
}

pub(super) async fn keys(client: &Client, repository: &Repository) -> Result<Vec<DeployKey>, CliError> {
    let listed = client.api.list(&keys_path(repository)).await?;
    let key = |listed: &Value| DeployKey {
        id: listed.pointer("/key/id").map(Value::to_string).unwrap_or_default(),
        title: text(listed, "/key/label").to_owned(),
        key: text(listed, "/key/text").to_owned(),
    };
    Ok(listed.iter().map(key).collect())
}

pub(super) async fn add_key(
    client: &Client,
    repository: &Repository,
    title: &str,
    key: &str,
    write: bool,
) -> Result<(), CliError> {
    let permission = if write { "REPO_WRITE" } else { "REPO_READ" };
    let body = json!({"key": {"text": key, "label": title}, "permission": permission});
    client.api.post(&keys_path(repository), body).await.map(|_| ())
}

pub(super) async fn remove_key(client: &Client, repository: &Repository, id: &str) -> Result<(), CliError> {
    client.api.delete(&format!("{}/{id}", keys_path(repository))).await
}
