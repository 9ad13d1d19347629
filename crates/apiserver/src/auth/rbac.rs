//! RBAC: which rules the stored roles and bindings give a user.
//!
//! Read from the store once and kept until a role or binding changes.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Attributes, User};
use crate::object::{self, text};
use crate::storage::Store;

pub const GROUP: &str = "rbac.authorization.k8s.io";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub paths: Vec<String>,
}

impl Rule {
    pub fn read(rule: &Value) -> Rule {
        let list = |key: &str| {
            let list = rule[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    pub fn read_all(role: &Value) -> Vec<Rule> {
        role["rules"].as_array().into_iter().flatten().map(Rule::read).collect()
    }

    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|entry| entry == "*" || entry == wanted);
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        if let Some(path) = asked.path {
            return self.paths.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => pattern == path,
            });
        }
        has(&self.groups, asked.group)
            && self.allows_resource(asked)
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }

    fn allows_resource(&self, asked: &Attributes<'_>) -> bool {
        self.resources.iter().any(|entry| match (entry.as_str(), asked.subresource) {
            ("*", _) => true,
            (entry, "") => entry == asked.resource,
            (entry, sub) => entry.split_once('/').is_some_and(|(resource, wanted)| {
                wanted == sub && (resource == "*" || resource == asked.resource)
            }),
        })
    }
}

#[derive(Debug)]
struct Binding {
    subjects: Vec<Subject>,
    rules: Arc<Vec<Rule>>,
}

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount(String),
}

impl Subject {
    fn read(subject: &Value, namespace: &str) -> Option<Subject> {
        let name = text(subject, "/name").to_owned();
        match text(subject, "/kind") {
            "User" => Some(Subject::User(name)),
            "Group" => Some(Subject::Group(name)),
            "ServiceAccount" => {
                let namespace = match text(subject, "/namespace") {
                    "" => namespace,
                    own => own,
                };
                Some(Subject::ServiceAccount(format!("system:serviceaccount:{namespace}:{name}")))
            }
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == &user.name,
            Subject::Group(name) => user.groups.contains(name),
            Subject::ServiceAccount(name) => name == &user.name,
        }
    }
}

/// All bindings, with the rules they give.
#[derive(Debug, Default)]
pub struct Rbac {
    cluster: Vec<Binding>,
    by_namespace: HashMap<String, Vec<Binding>>,
}

impl Rbac {
    pub fn read(store: &Store) -> Rbac {
        let place = |plural: &str| format!("{plural}.{GROUP}");
        let rules = |plural: &str| -> HashMap<String, Arc<Vec<Rule>>> {
            let (_, roles) = store.list(&place(plural), "");
            roles.iter().map(|role| (role.key.to_string(), Arc::new(Rule::read_all(&role.value())))).collect()
        };
        let (cluster_roles, roles) = (rules("clusterroles"), rules("roles"));
        let none = Arc::new(Vec::new());
        let mut rbac = Rbac::default();
        for stored in store.list(&place("clusterrolebindings"), "").1 {
            let binding = stored.value();
            let rules = cluster_roles.get(text(&binding, "/roleRef/name")).unwrap_or(&none);
            rbac.cluster.push(Binding { subjects: subjects(&binding), rules: rules.clone() });
        }
        for stored in store.list(&place("rolebindings"), "").1 {
            let binding = stored.value();
            let role = text(&binding, "/roleRef/name");
            let namespace = stored.namespace();
            let rules = match text(&binding, "/roleRef/kind") {
                "ClusterRole" => cluster_roles.get(role),
                _ => roles.get(&format!("{namespace}/{role}")),
            };
            let binding = Binding { subjects: subjects(&binding), rules: rules.unwrap_or(&none).clone() };
            rbac.by_namespace.entry(namespace.to_owned()).or_default().push(binding);
        }
        rbac
    }

    pub fn allows(&self, user: &User, asked: &Attributes<'_>) -> bool {
        user.is_master() || self.rules_for(user, asked.namespace).any(|rule| rule.allows(asked))
    }

    /// Every rule that counts for this user in this namespace ("" for the cluster).
    pub fn rules_for<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Rule> {
        let local = self.by_namespace.get(namespace).into_iter().flatten();
        let bindings = self.cluster.iter().chain(local);
        bindings
            .filter(|binding| binding.subjects.iter().any(|subject| subject.is(user)))
            .flat_map(|b| b.rules.iter())
    }

    /// Whether the user already holds everything `rule` grants: nobody may hand out more than they have.
    pub fn covers(&self, user: &User, namespace: &str, rule: &Rule) -> bool {
        if user.is_master() {
            return true;
        }
        let held: Vec<&Rule> = self.rules_for(user, namespace).collect();
        let any = |asked: &Attributes<'_>| held.iter().any(|rule| rule.allows(asked));
        rule.verbs.iter().all(|verb| {
            let paths = rule
                .paths
                .iter()
                .all(|path| any(&Attributes { verb, path: Some(path), ..Attributes::default() }));
            let names: Vec<&str> = match rule.names.is_empty() {
                true => vec![""],
                false => rule.names.iter().map(String::as_str).collect(),
            };
            paths
                && rule.groups.iter().all(|group| {
                    rule.resources.iter().all(|entry| {
                        let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
                        names.iter().all(|name| {
                            any(&Attributes {
                                verb,
                                group,
                                resource,
                                subresource,
                                name,
                                namespace,
                                path: None,
                            })
                        })
                    })
                })
        })
    }
}

fn subjects(binding: &Value) -> Vec<Subject> {
    let list = binding["subjects"].as_array().into_iter().flatten();
    list.filter_map(|subject| Subject::read(subject, object::namespace(binding))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(value: Value) -> Rule {
        Rule::read(&value)
    }

    fn asked<'a>(verb: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes { verb, resource, subresource, name, ..Attributes::default() }
    }

    #[test]
    fn rules_allow_exactly_what_they_name() {
        let pods = rule(json!({ "apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"] }));
        assert!(pods.allows(&asked("get", "pods", "", "x")));
        assert!(pods.allows(&asked("get", "pods", "log", "x")));
        assert!(!pods.allows(&asked("get", "pods", "exec", "x")));
        assert!(!pods.allows(&asked("list", "pods", "", "")));
        let named =
            rule(json!({ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "resourceNames": ["a"] }));
        assert!(named.allows(&asked("get", "pods", "status", "a")));
        assert!(!named.allows(&asked("get", "pods", "", "b")));
        let scale = rule(json!({ "apiGroups": [""], "resources": ["*/scale"], "verbs": ["get"] }));
        assert!(scale.allows(&asked("get", "pods", "scale", "a")));
        let path = rule(json!({ "nonResourceURLs": ["/healthz", "/metrics/*"], "verbs": ["get"] }));
        let at = |path| Attributes { verb: "get", path: Some(path), ..Attributes::default() };
        assert!(
            path.allows(&at("/healthz")) && path.allows(&at("/metrics/x")) && !path.allows(&at("/version"))
        );
    }
}
