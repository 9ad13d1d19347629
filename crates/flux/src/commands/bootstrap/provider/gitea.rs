//! Gitea and Forgejo: GitHub's requests with another way to give teams access.

use serde_json::json;

use super::host::{Call, Host, Permission, Wanted};

pub(super) struct Gitea;

impl Host for Gitea {
    fn creation(&self, wanted: &Wanted<'_>, owner: &str, _group: Option<u64>) -> Call {
        let place = if wanted.personal { "/user/repos".to_owned() } else { format!("/orgs/{owner}/repos") };
        let body = json!({"name": wanted.name, "private": !wanted.public, "default_branch": wanted.branch});
        Call::post(place, body)
    }

    /// Gitea's teams bring their permissions with them.
    fn access(&self, owner: &str, name: &str, team: &str, _: Permission, _group: Option<u64>) -> Call {
        Call::put(format!("{}/teams/{team}", self.repository(owner, name)), None)
    }
}
