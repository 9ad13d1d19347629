//! Bitbucket Server and Data Center. A project has a name people know and a key the API wants.

use serde_json::{Value, json};

use crate::kinds::text;

use super::host::{Addresses, Call, DeployKey, Host, Permission, Site, Wanted, encoded};

pub(super) struct Bitbucket;

impl Host for Bitbucket {
    fn repository(&self, owner: &str, name: &str) -> String {
        format!("/api/1.0/projects/{owner}/repos/{name}")
    }

    /// As the host says, which may be under another name or port.
    fn addresses(&self, site: &Site, owner: &str, name: &str, found: &Value) -> Addresses {
        let links = found.pointer("/links/clone").and_then(Value::as_array);
        let link = |name: &str| {
            let link = links.into_iter().flatten().find(|link| text(link, "/name") == name);
            link.map(|link| text(link, "/href").to_owned())
        };
        Addresses {
            clone: link("http").unwrap_or_else(|| format!("{}/scm/{owner}/{name}.git", site.base)),
            ssh: link("ssh").unwrap_or_else(|| format!("ssh://git@{}/{owner}/{name}.git", site.host)),
        }
    }

    fn project(&self, wanted: &Wanted<'_>) -> Option<(String, String)> {
        let (name, base) = (encoded(wanted.owner), "/api/1.0/projects");
        (!wanted.personal).then(|| (format!("{base}?name={name}"), format!("{base}/{name}")))
    }

    fn personal_owner(&self, owner: &str) -> String {
        format!("~{owner}")
    }

    fn creation(&self, wanted: &Wanted<'_>, owner: &str, _group: Option<u64>) -> Call {
        let body = json!({
            "name": wanted.name, "scmId": "git", "public": wanted.public, "defaultBranch": wanted.branch,
        });
        Call::post(format!("/api/1.0/projects/{owner}/repos"), body)
    }

    fn access(&self, owner: &str, name: &str, team: &str, permission: Permission, _: Option<u64>) -> Call {
        let level = match permission {
            Permission::Pull | Permission::Triage => "REPO_READ",
            Permission::Push | Permission::Maintain => "REPO_WRITE",
            Permission::Admin => "REPO_ADMIN",
        };
        let query = format!("name={}&permission={level}", encoded(team));
        Call::put(format!("{}/permissions/groups?{query}", self.repository(owner, name)), None)
    }

    fn keys(&self, owner: &str, name: &str) -> String {
        format!("/keys/1.0/projects/{owner}/repos/{name}/ssh")
    }

    fn new_key(&self, title: &str, key: &str, write: bool) -> Value {
        let permission = if write { "REPO_WRITE" } else { "REPO_READ" };
        json!({"key": {"text": key, "label": title}, "permission": permission})
    }

    fn listed_key(&self, listed: &Value) -> DeployKey {
        DeployKey {
            id: listed.pointer("/key/id").map(Value::to_string).unwrap_or_default(),
            title: text(listed, "/key/label").to_owned(),
            key: text(listed, "/key/text").to_owned(),
        }
    }
}
