//! GitLab. Owners may be groups inside of groups, so projects are named by their whole path; groups by their number.

use serde_json::{Value, json};

use super::host::{Addresses, Call, Host, Permission, Site, Wanted, encoded};

pub(super) struct GitLab;

impl Host for GitLab {
    fn repository(&self, owner: &str, name: &str) -> String {
        format!("/projects/{}", encoded(&format!("{owner}/{name}")))
    }

    fn addresses(&self, site: &Site, owner: &str, name: &str, _found: &Value) -> Addresses {
        Addresses {
            clone: format!("{}/{owner}/{name}.git", site.base),
            ssh: format!("ssh://git@{}/{owner}/{name}.git", site.host),
        }
    }

    fn group(&self, name: &str) -> Option<String> {
        Some(format!("/groups/{}", encoded(name)))
    }

    fn creation(&self, wanted: &Wanted<'_>, _owner: &str, group: Option<u64>) -> Call {
        let mut body = json!({"name": wanted.name, "path": wanted.name, "visibility": wanted.visibility});
        if !wanted.branch.is_empty() {
            body["default_branch"] = wanted.branch.into();
        }
        if let Some(group) = group {
            body["namespace_id"] = group.into();
        }
        Call::post("/projects".to_owned(), body)
    }

    fn access(&self, owner: &str, name: &str, _: &str, permission: Permission, group: Option<u64>) -> Call {
        let level = match permission {
            Permission::Pull => 10,
            Permission::Triage => 20,
            Permission::Push => 30,
            Permission::Maintain => 40,
            Permission::Admin => 50,
        };
        let body = json!({"group_id": group, "group_access": level});
        Call::post(format!("{}/share", self.repository(owner, name)), body)
    }

    fn keys(&self, owner: &str, name: &str) -> String {
        format!("{}/deploy_keys", self.repository(owner, name))
    }

    fn new_key(&self, title: &str, key: &str, write: bool) -> Value {
        json!({"title": title, "key": key, "can_push": write})
    }

    fn deploy_tokens(&self, owner: &str, name: &str) -> Option<String> {
        Some(format!("{}/deploy_tokens", self.repository(owner, name)))
    }
}
