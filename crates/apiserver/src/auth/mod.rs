//! Who asks, and may they: authentication, RBAC, impersonation.

pub mod authenticate;
pub mod flow;
pub mod impersonate;
pub mod rbac;
pub mod tokens;

use std::collections::BTreeMap;

use crate::request::RequestInfo;
use crate::status::{About, Status};

pub use authenticate::Authenticator;
pub use rbac::Rbac;

/// Members may do anything.
pub const MASTERS: &str = "system:masters";

/// Someone who sends requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn new(name: impl Into<String>, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    /// The one whose kubeconfig the server hands out.
    pub fn admin() -> User {
        User::new("kubernetes-admin", &[MASTERS, "system:authenticated"])
    }

    /// A part of the server itself.
    pub fn system(component: &str) -> User {
        User::new(format!("system:{component}"), &[MASTERS])
    }

    pub fn anonymous() -> User {
        User::new("system:anonymous", &["system:unauthenticated"])
    }

    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// What is asked of the authorizer.
#[derive(Debug, Clone, Default)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Set for paths that are no resources.
    pub path: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    pub fn of(info: &'a RequestInfo) -> Attributes<'a> {
        Attributes {
            verb: &info.verb,
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
            path: (!info.is_resource).then_some(info.path.as_str()),
        }
    }

    /// The refusal, in the real server's words.
    pub fn forbidden(&self, user: &User) -> Status {
        let who = &user.name;
        if let Some(path) = self.path {
            return Status::forbidden_path(&format!("User \"{who}\" cannot {} path \"{path}\"", self.verb));
        }
        let resource = match self.subresource {
            "" => self.resource.to_owned(),
            sub => format!("{}/{sub}", self.resource),
        };
        let place = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let why = format!(
            "User \"{who}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
            self.verb, self.group
        );
        Status::forbidden(About { group: self.group, kind: self.resource, name: self.name }, &why)
    }
}
