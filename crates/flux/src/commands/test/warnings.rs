//! What works today and hurts tomorrow: two owners, cycles, dangling references, old apiVersions, unused variables.

use std::collections::{BTreeMap, BTreeSet};

use file_tree::{MemoryTree, TreePath};
use flux_api::kinds;
use flux_api::kustomize::Kustomization;
use flux_remote::local::LocalFolder;
use serde_json::Value;

use crate::fleet::{Seen, files};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands) struct Warning {
    /// `TwoOwners`, `DependencyCycle`, …
    pub(super) reason: &'static str,
    pub(in crate::commands) message: String,
}

fn warning(reason: &'static str, message: String) -> Warning {
    Warning { reason, message }
}

pub(super) fn all(objects: &[Seen], files: &LocalFolder) -> Vec<Warning> {
    let mut found = two_owners(objects);
    found.extend(cycles(objects));
    found.extend(dangling(objects));
    found.extend(unused_variables(objects, files));
    found.sort();
    found.dedup();
    found
}

/// Objects in more than one inventory: whoever reconciles last wins, and a prune by one takes it from the other.
fn two_owners(objects: &[Seen]) -> Vec<Warning> {
    let mut owners: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for object in objects {
        let entries = object.object.pointer("/status/inventory/entries").and_then(Value::as_array);
        for id in entries.into_iter().flatten().filter_map(|entry| entry["id"].as_str()) {
            owners.entry(id).or_default().push(object.id());
        }
    }
    owners
        .into_iter()
        .filter(|(_, owners)| owners.len() > 1)
        .map(|(id, owners)| {
            let name = id.parse::<flux_api::inventory::ObjectId>().map_or(id.to_owned(), |id| id.human());
            warning("TwoOwners", format!("{name} is applied by {}", owners.join(" and by ")))
        })
        .collect()
}

/// Circles in dependsOn. Each is told once, starting with its least member.
pub(in crate::commands) fn cycles(objects: &[Seen]) -> Vec<Warning> {
    let edges: BTreeMap<String, Vec<String>> =
        objects.iter().map(|object| (object.id(), object.dependencies())).collect();
    let mut found = BTreeSet::new();
    for start in edges.keys() {
        let mut path = vec![start.clone()];
        if let Some(circle) = circle_back_to(start, &edges, &mut path, &mut BTreeSet::new())
            && circle.iter().min() == Some(start)
        {
            found.insert(format!("{} → {start}", circle.join(" → ")));
        }
    }
    found.into_iter().map(|circle| warning("DependencyCycle", circle)).collect()
}

fn circle_back_to(
    start: &str,
    edges: &BTreeMap<String, Vec<String>>,
    path: &mut Vec<String>,
    visited: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    let at = path.last()?.clone();
    for next in edges.get(&at).map(Vec::as_slice).unwrap_or_default() {
        if next == start {
            return Some(path.clone());
        }
        if visited.insert(next.clone()) {
            path.push(next.clone());
            if let Some(circle) = circle_back_to(start, edges, path, visited) {
                return Some(circle);
            }
            path.pop();
        }
    }
    None
}

pub(in crate::commands) fn dangling(objects: &[Seen]) -> Vec<Warning> {
    let ids: BTreeSet<String> = objects.iter().map(Seen::id).collect();
    let mut found = Vec::new();
    for object in objects {
        let kinds_of_flux =
            |id: &String| id.split('/').next().is_some_and(|kind| kinds::by_kind(kind).is_some());
        for missing in object.dependencies().iter().filter(|id| kinds_of_flux(id) && !ids.contains(*id)) {
            let prefix = missing.rsplit_once('/').map_or("", |(prefix, _)| prefix);
            let others: Vec<&str> = ids
                .iter()
                .filter(|id| **id != object.id())
                .filter_map(|id| id.strip_prefix(prefix)?.strip_prefix('/'))
                .collect();
            let instead =
                if others.is_empty() { String::new() } else { format!("; there is {}", others.join(", ")) };
            let message = format!("{} depends on {missing}, which does not exist{instead}", object.id());
            found.push(warning("DanglingDependency", message));
        }
    }
    found
}

/// Objects of Flux whose apiVersion is served for the sake of old repositories only.
pub(super) fn old_versions(files: &LocalFolder) -> Vec<Warning> {
    let mut found = Vec::new();
    let is_yaml = |path: &TreePath| path.as_str().ends_with(".yaml") || path.as_str().ends_with(".yml");
    for file in files.files().iter().filter(|file| is_yaml(&file.path)) {
        for object in files::documents(files, &file.path) {
            let (Some(version), Some(kind)) = (object["apiVersion"].as_str(), object["kind"].as_str()) else {
                continue;
            };
            let Some((group, version)) = version.split_once('/') else { continue };
            let Some(known) = kinds::by_kind(kind).filter(|known| known.group == group) else { continue };
            if known.old_versions.contains(&version) {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let message = format!(
                    "{}: {kind} {name} uses {group}/{version}; the current version is {}",
                    file.path, known.version
                );
                found.push(warning("DeprecatedVersion", message));
            }
        }
    }
    found
}

/// Variables that a Kustomization sets itself and that nothing of its build mentions.
fn unused_variables(objects: &[Seen], files: &LocalFolder) -> Vec<Warning> {
    let mut tree: Option<MemoryTree> = None;
    let mut found = Vec::new();
    for object in objects.iter().filter(|object| object.kind == "Kustomization") {
        let Ok(kustomization) = serde_json::from_value::<Kustomization>(object.object.clone()) else {
            continue;
        };
        let Some(post_build) = &kustomization.spec.post_build else { continue };
        if post_build.substitute.is_empty() || !is_local(object) {
            continue;
        }
        let tree = tree.get_or_insert_with(|| in_memory(files));
        let input = flux_build::Input { strict: false, ..flux_build::Input::new(&kustomization.spec, tree) };
        // What does not build is reported by its own condition.
        let Ok(built) = flux_build::kustomization(&input) else { continue };
        let unused: Vec<&str> = post_build
            .substitute
            .keys()
            .map(String::as_str)
            .filter(|name| !mentions(&built.text, name))
            .collect();
        if !unused.is_empty() {
            let message = format!(
                "{} sets {} in postBuild.substitute, which nothing uses",
                object.id(),
                unused.join(", ")
            );
            found.push(warning("UnusedSubstitution", message));
        }
    }
    found
}

/// Whether the Kustomization builds from the repository under test.
fn is_local(object: &Seen) -> bool {
    let source = |key: &str| object.object.pointer(&format!("/spec/sourceRef/{key}")).and_then(Value::as_str);
    source("kind") == Some("GitRepository") && source("name") == Some(crate::fleet::cluster::NAMESPACE)
}

fn in_memory(files: &LocalFolder) -> MemoryTree {
    let mut tree = MemoryTree::new();
    for file in files.files() {
        if let Ok(bytes) = files.read(&file.path) {
            tree.insert(file.path.clone(), bytes);
        }
    }
    tree
}

/// `$name` does not count: Flux substitutes `${name…}` only.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices("${").any(|(at, _)| {
        let rest = text[at + 2..].trim_start_matches('#');
        rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Verdict;
    use serde_json::json;

    fn seen(name: &str, dependencies: &[&str], inventory: &[&str]) -> Seen {
        let depends: Vec<Value> = dependencies.iter().map(|name| json!({ "name": name })).collect();
        let entries: Vec<Value> = inventory.iter().map(|id| json!({ "id": id, "v": "v1" })).collect();
        Seen {
            kind: "Kustomization".to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            verdict: Verdict::Ready,
            reason: String::new(),
            message: String::new(),
            object: json!({ "spec": { "dependsOn": depends }, "status": { "inventory": { "entries": entries } } }),
        }
    }

    #[test]
    fn a_cycle_is_told_once_and_names_its_members() {
        let objects =
            [seen("a", &["b"], &[]), seen("b", &["c"], &[]), seen("c", &["a"], &[]), seen("d", &["a"], &[])];
        let found = cycles(&objects);
        let expected =
            "Kustomization/n/a → Kustomization/n/b → Kustomization/n/c → Kustomization/n/a".to_owned();
        assert_eq!(found, [warning("DependencyCycle", expected)]);
        assert_eq!(cycles(&[seen("a", &["a"], &[])]).len(), 1);
    }

    #[test]
    fn two_owners_and_dangling_dependencies_are_named() {
        let objects =
            [seen("a", &["nobody"], &["n_web_apps_Deployment"]), seen("b", &[], &["n_web_apps_Deployment"])];
        let owners = two_owners(&objects);
        assert_eq!(
            owners[0].message,
            "Deployment/n/web is applied by Kustomization/n/a and by Kustomization/n/b"
        );
        assert_eq!(
            dangling(&objects)[0].message,
            "Kustomization/n/a depends on Kustomization/n/nobody, which does not exist; there is b"
        );
    }

    #[test]
    fn a_variable_is_mentioned_in_braces_and_whole() {
        for text in ["${name}", "a ${name:=x} b", "${#name}", "${other} ${name/a/b}"] {
            assert!(mentions(text, "name"), "{text}");
        }
        for text in ["$name", "${names}", "name", "${NAME}"] {
            assert!(!mentions(text, "name"), "{text}");
        }
    }
}
