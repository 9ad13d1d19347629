//! How a Git host spells the requests that all of them know. Pure: paths and bodies, nothing is sent here.
//!
//! What is not said otherwise is as GitHub has it, which Gitea took over.

use serde_json::{Value, json};

use crate::kinds::text;

/// A request that changes something.
pub(super) struct Call {
    pub(super) method: reqwest::Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

impl Call {
    pub(super) fn post(path: String, body: Value) -> Call {
        Call { method: reqwest::Method::POST, path, body: Some(body) }
    }

    pub(super) fn put(path: String, body: Option<Value>) -> Call {
        Call { method: reqwest::Method::PUT, path, body }
    }
}

/// Where a host is.
pub(super) struct Site {
    /// `https://github.com`
    pub(super) base: String,
    /// `github.com`, with a port where there is one.
    pub(super) host: String,
}

/// Where a repository is cloned from.
pub(super) struct Addresses {
    pub(super) clone: String,
    pub(super) ssh: String,
}

/// Wishes for a repository that is not there yet.
pub(super) struct Wanted<'a> {
    pub(super) owner: &'a str,
    pub(super) name: &'a str,
    pub(super) personal: bool,
    pub(super) public: bool,
    pub(super) visibility: &'a str,
    pub(super) branch: &'a str,
}

/// A deploy key as the host lists it.
pub(super) struct DeployKey {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) key: String,
}

/// What a team may do, in GitHub's words, which `--team` takes for all hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Pull,
    Triage,
    Push,
    Maintain,
    Admin,
}

impl Permission {
    pub(super) fn named(word: &str) -> Option<Permission> {
        [Permission::Pull, Permission::Triage, Permission::Push, Permission::Maintain, Permission::Admin]
            .into_iter()
            .find(|permission| permission.as_str() == word)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Permission::Pull => "pull",
            Permission::Triage => "triage",
            Permission::Push => "push",
            Permission::Maintain => "maintain",
            Permission::Admin => "admin",
        }
    }
}

pub(super) trait Host: Sync {
    /// The repository, below the address of the API.
    fn repository(&self, owner: &str, name: &str) -> String {
        format!("/repos/{owner}/{name}")
    }

    fn addresses(&self, site: &Site, owner: &str, name: &str, _found: &Value) -> Addresses {
        Addresses {
            clone: format!("{}/{owner}/{name}.git", site.base),
            ssh: format!("ssh://git@{}/{owner}/{name}", site.host),
        }
    }

    /// Where the owner's key is found, by name and by key, at hosts whose requests want a key.
    fn project(&self, _wanted: &Wanted<'_>) -> Option<(String, String)> {
        None
    }

    /// How requests name a person.
    fn personal_owner(&self, owner: &str) -> String {
        owner.to_owned()
    }

    /// Where a group's number is found, at hosts whose requests want it.
    fn group(&self, _name: &str) -> Option<String> {
        None
    }

    /// `group` is the number of the owner, where there is one.
    fn creation(&self, wanted: &Wanted<'_>, owner: &str, group: Option<u64>) -> Call;

    /// `group` is the number of the team, where there is one.
    fn access(&self, owner: &str, name: &str, team: &str, permission: Permission, group: Option<u64>)
    -> Call;

    fn keys(&self, owner: &str, name: &str) -> String {
        format!("{}/keys", self.repository(owner, name))
    }

    fn new_key(&self, title: &str, key: &str, write: bool) -> Value {
        json!({"title": title, "key": key, "read_only": !write})
    }

    fn listed_key(&self, listed: &Value) -> DeployKey {
        DeployKey {
            id: listed.get("id").map(Value::to_string).unwrap_or_default(),
            title: text(listed, "/title").to_owned(),
            key: text(listed, "/key").to_owned(),
        }
    }

    /// Where tokens for reading one repository are made, at hosts that have such.
    fn deploy_tokens(&self, _owner: &str, _name: &str) -> Option<String> {
        None
    }
}

/// A name as one part of a path.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
