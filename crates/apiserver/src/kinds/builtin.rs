//! The builtin kinds, from a table recorded off a real kube-apiserver 1.36 (`examples/record-kinds.rs`).
//!
//! Only the default set: alpha and beta groups that a real server leaves off are off here too.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::{Group, Resource, Scope, Subresource, Verb, Version, split_api_version, storage_name};

static GROUPS: LazyLock<Vec<Group>> = LazyLock::new(|| read(include_str!("builtin.tsv")));

/// The builtin groups in discovery's order.
pub fn builtin() -> &'static [Group] {
    &GROUPS
}

/// Columns: api version, resource, singular, api version of the answer, kind, N|C, verbs, short names, categories, hash.
fn read(table: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    for row in rows.iter().filter(|row| row.len() >= 10 && !row[1].contains('/')) {
        let resource = resource(row, &rows);
        let group = match groups.iter().position(|group| group.name == resource.group) {
            Some(at) => &mut groups[at],
            None => {
                groups.push(Group { name: resource.group.clone(), versions: Vec::new() });
                groups.last_mut().expect("pushed above")
            }
        };
        let version = match group.versions.iter().position(|version| version.name == resource.version) {
            Some(at) => &mut group.versions[at],
            None => {
                group.versions.push(Version { name: resource.version.clone(), resources: BTreeMap::new() });
                group.versions.last_mut().expect("pushed above")
            }
        };
        version.resources.insert(resource.plural.clone(), Arc::new(resource));
    }
    groups
}

fn resource(row: &[&str], rows: &[Vec<&str>]) -> Resource {
    let (group, version) = split_api_version(row[0]);
    let prefix = format!("{}/", row[1]);
    let subresources = rows
        .iter()
        .filter(|other| other.len() >= 10 && other[0] == row[0] && other[1].starts_with(&prefix))
        .map(|other| Subresource {
            name: other[1][prefix.len()..].to_owned(),
            api_version: other[3].to_owned(),
            kind: other[4].to_owned(),
            verbs: words(other[6]).iter().filter_map(|verb| Verb::parse(verb)).collect(),
        })
        .collect();
    Resource {
        group: group.into(),
        version: version.into(),
        plural: row[1].into(),
        singular: row[2].into(),
        kind: row[4].into(),
        list_kind: format!("{}List", row[4]).into(),
        scope: if row[5] == "N" { Scope::Namespaced } else { Scope::Cluster },
        verbs: words(row[6]).iter().filter_map(|verb| Verb::parse(verb)).collect(),
        short_names: words(row[7]),
        categories: words(row[8]),
        storage_version_hash: row[9].to_owned(),
        subresources,
        // Events live once and are served in two groups.
        storage: if row[1] == "events" { "events".into() } else { storage_name(group, row[1]) },
        custom: None,
    }
}

fn words(list: &str) -> Vec<String> {
    list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_the_kinds_users_know() {
        let find = |group: &str, plural: &str| {
            let group = builtin().iter().find(|g| &*g.name == group).unwrap();
            group.versions[0].resources[plural].clone()
        };
        let deployments = find("apps", "deployments");
        assert_eq!(deployments.short_names, ["deploy"]);
        assert_eq!(deployments.categories, ["all"]);
        assert_eq!(deployments.subresource("scale").unwrap().api_version, "autoscaling/v1");
        assert!(!find("", "namespaces").allows(Verb::DeleteCollection));
        assert_eq!(find("", "namespaces").scope, Scope::Cluster);
        assert_eq!(find("autoscaling", "horizontalpodautoscalers").version.as_ref(), "v2");
    }
}
