//! Priority and fairness as clients see it: which FlowSchema a request belongs to.
//!
//! Requests are classified, and every answer says how in its headers. Nothing is queued or refused by it: one process
//! serves one machine, and its limits are elsewhere.

use serde_json::Value;

use super::{Attributes, User};
use crate::object::{self, text};
use crate::storage::Store;

pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
pub const SCHEMAS: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
pub const LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";

/// As many requests as the real server works on at once by default; levels share them.
const SEATS: i64 = 600;

/// Which schema a request matched, and the level that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    pub schema_uid: String,
    pub level_uid: String,
}

/// All FlowSchemas in the order they are tried. Read from the store once and kept until one changes.
#[derive(Debug, Default)]
pub struct Flows(Vec<Schema>);

#[derive(Debug)]
struct Schema {
    flow: Flow,
    precedence: i64,
    name: String,
    rules: Vec<Value>,
}

impl Flows {
    pub fn read(store: &Store) -> Flows {
        let schema = |value: Value| {
            let level = store.get(LEVELS, text(&value, "/spec/priorityLevelConfiguration/name"))?;
            Some(Schema {
                flow: Flow { schema_uid: object::uid(&value).to_owned(), level_uid: level.uid.to_string() },
                precedence: object::integer(&value, "/spec/matchingPrecedence").unwrap_or(1000),
                name: object::name(&value).to_owned(),
                rules: value["spec"]["rules"].as_array().cloned().unwrap_or_default(),
            })
        };
        let (_, stored) = store.list(SCHEMAS, "");
        let mut schemas: Vec<Schema> = stored.iter().filter_map(|stored| schema(stored.value())).collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Flows(schemas)
    }

    pub fn classify(&self, user: &User, asked: &Attributes<'_>) -> Option<&Flow> {
        let matches = |schema: &&Schema| schema.rules.iter().any(|rule| rule_matches(rule, user, asked));
        self.0.iter().find(matches).map(|schema| &schema.flow)
    }
}

fn items<'a>(rule: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    rule[key].as_array().into_iter().flatten()
}

fn has(rule: &Value, key: &str, wanted: &str) -> bool {
    items(rule, key).any(|entry| entry == "*" || entry == wanted)
}

fn rule_matches(rule: &Value, user: &User, asked: &Attributes<'_>) -> bool {
    if !items(rule, "subjects").any(|subject| subject_matches(subject, user)) {
        return false;
    }
    match asked.path {
        Some(path) => items(rule, "nonResourceRules").any(|rule| {
            let urls = items(rule, "nonResourceURLs").filter_map(Value::as_str);
            let mut matching = urls.filter(|url| match url.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => *url == path,
            });
            has(rule, "verbs", asked.verb) && matching.next().is_some()
        }),
        None => items(rule, "resourceRules").any(|rule| {
            let resource = match asked.subresource {
                "" => asked.resource.to_owned(),
                sub => format!("{}/{sub}", asked.resource),
            };
            let placed = match asked.namespace {
                "" => rule["clusterScope"] == true,
                namespace => has(rule, "namespaces", namespace),
            };
            placed
                && has(rule, "verbs", asked.verb)
                && has(rule, "apiGroups", asked.group)
                && has(rule, "resources", &resource)
        }),
    }
}

fn subject_matches(subject: &Value, user: &User) -> bool {
    match text(subject, "/kind") {
        "User" => matches!(text(subject, "/user/name"), "*") || text(subject, "/user/name") == user.name,
        "Group" => {
            let name = text(subject, "/group/name");
            name == "*" || user.groups.iter().any(|group| group == name)
        }
        "ServiceAccount" => {
            let Some(account) = user.name.strip_prefix("system:serviceaccount:") else { return false };
            let (namespace, name) = account.split_once(':').unwrap_or((account, ""));
            let wanted = text(subject, "/serviceAccount/name");
            namespace == text(subject, "/serviceAccount/namespace") && (wanted == "*" || wanted == name)
        }
        _ => false,
    }
}

/// How many requests each level may have at work, as the real server computes and publishes it.
pub fn seats(store: &Store) -> Vec<(String, i64)> {
    let (_, levels) = store.list(LEVELS, "");
    let shares: Vec<(String, i64)> = levels
        .iter()
        .map(|stored| {
            let level = stored.value();
            let shares = match text(&level, "/spec/type") {
                "Exempt" => object::integer(&level, "/spec/exempt/nominalConcurrencyShares").unwrap_or(0),
                _ => object::integer(&level, "/spec/limited/nominalConcurrencyShares").unwrap_or(30),
            };
            (stored.name().to_owned(), shares.max(0))
        })
        .collect();
    let sum = shares.iter().map(|(_, shares)| shares).sum::<i64>().max(1);
    let seats = |shares: i64| shares.saturating_mul(SEATS).saturating_add(sum - 1) / sum;
    shares.into_iter().map(|(name, shares)| (name, seats(shares))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subjects_and_places_decide() {
        let rule = json!({
            "subjects": [
                { "kind": "ServiceAccount", "serviceAccount": { "namespace": "kube-system", "name": "*" } },
                { "kind": "User", "user": { "name": "noxu" } },
            ],
            "resourceRules": [{ "verbs": ["*"], "apiGroups": [""], "resources": ["pods", "pods/status"], "namespaces": ["a"] }],
            "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/health*"] }],
        });
        let noxu = User::new("noxu", &[]);
        let pods =
            |namespace| Attributes { verb: "get", resource: "pods", namespace, ..Attributes::default() };
        assert!(rule_matches(&rule, &noxu, &pods("a")));
        assert!(!rule_matches(&rule, &noxu, &pods("b")));
        assert!(!rule_matches(&rule, &noxu, &pods("")), "not at the cluster scope");
        assert!(rule_matches(&rule, &User::new("system:serviceaccount:kube-system:x", &[]), &pods("a")));
        assert!(!rule_matches(&rule, &User::new("system:serviceaccount:default:x", &[]), &pods("a")));
        let path = |path| Attributes { verb: "get", path: Some(path), ..Attributes::default() };
        assert!(rule_matches(&rule, &noxu, &path("/healthz")));
        assert!(!rule_matches(&rule, &noxu, &path("/version")));
    }
}
