//! GitHub and GitHub Enterprise. What other hosts do the same way, they do as here.

use serde_json::json;

use super::host::{Call, Host, Permission, Wanted};

pub(super) struct GitHub;

impl Host for GitHub {
    fn creation(&self, wanted: &Wanted<'_>, owner: &str, _group: Option<u64>) -> Call {
        let place = if wanted.personal { "/user/repos".to_owned() } else { format!("/orgs/{owner}/repos") };
        Call::post(place, json!({"name": wanted.name, "private": !wanted.public}))
    }

    fn access(
        &self,
        owner: &str,
        name: &str,
        team: &str,
        permission: Permission,
        _group: Option<u64>,
    ) -> Call {
        let path = format!("/orgs/{owner}/teams/{team}{}", self.repository(owner, name));
        Call::put(path, Some(json!({ "permission": permission.as_str() })))
    }
}
