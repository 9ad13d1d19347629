//! What works today and hurts tomorrow: two owners, cycles, dangling references, old apiVersions, unused variables.

use std::collections::{BTreeMap, BTreeSet};

use file_tree::TreePath;
use flux_api::kinds;
use flux_remote::local::LocalFolder;
use serde_json::Value;

use super::builds;
use super::diff::Objects;
use crate::fleet::{Seen, files};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::commands) struct Warning {
    /// `TwoOwners`, `DependencyCycle`, …
    pub(super) reason: &'static str,
    pub(in crate::commands) message: String,
}

impl Warning {
    /// Whether the fleet cannot work, whatever its objects say today.
    pub(super) fn is_wrong(&self) -> bool {
        matches!(self.reason, "DependencyCycle" | "TwoOwners")
    }
}

pub(super) fn warning(reason: &'static str, message: String) -> Warning {
    Warning { reason, message }
}

pub(super) fn all(objects: &[Seen], files: &LocalFolder) -> Vec<Warning> {
    let mut found = two_owners(objects);
    found.extend(cycles(objects));
    found.extend(dangling(objects));
    found.extend(builds::warnings(objects, files));
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
            // A Namespace that everybody who uses it declares is customary, and stays as long as one of them does.
            let reason = if name.starts_with("Namespace/") { "SharedNamespace" } else { "TwoOwners" };
            warning(reason, format!("{name} is applied by {}", owners.join(" and by ")))
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

/// What the API server warned of while the fleet was applied: unknown fields, versions that will go.
pub(super) fn overheard(said: &crate::fleet::Said) -> Vec<Warning> {
    let said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut found = Vec::new();
    for (object, text) in said.iter() {
        let reason = match () {
            () if text.contains("unknown field") => "UnknownField",
            // Of Flux's own kinds, the file is named already.
            () if text.contains("deprecated") && text.contains("toolkit.fluxcd.io") => continue,
            () if text.contains("deprecated") => "DeprecatedVersion",
            () => "ServerWarning",
        };
        found.push(warning(reason, format!("{object}: {text}")));
    }
    found
}

/// What would be pruned on the way from `before` to `after`, and is held until somebody releases it.
pub(super) fn held(before: &Objects, after: &Objects) -> Vec<Warning> {
    let in_namespace = |objects: &Objects, name: &str| {
        objects.keys().find(|id| id.split('/').nth(1) == Some(name) && id.split('/').count() == 3).cloned()
    };
    let mut found = Vec::new();
    for (id, text) in before.iter().filter(|(id, _)| !after.contains_key(*id)) {
        let name = id.rsplit('/').next().unwrap_or_default();
        let why = match id.split('/').next() {
            Some("PersistentVolumeClaim") => Some("it holds data".to_owned()),
            Some("Namespace") => in_namespace(after, name).map(|other| format!("it holds {other}")),
            Some("CustomResourceDefinition") => {
                let kind = text.lines().find_map(|line| line.strip_prefix("    kind: ")).unwrap_or_default();
                let instance = before.keys().find(|id| id.split('/').next() == Some(kind));
                instance.map(|instance| format!("there is {instance}"))
            }
            _ => None,
        };
        if let Some(why) = why {
            found.push(warning("PruneHeld", format!("{id} would be pruned and is held back: {why}")));
        }
    }
    found
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
    fn a_prune_that_would_be_held_is_told_with_its_reason() {
        let objects = |ids: &[&str]| -> Objects {
            let text = "spec:\n  names:\n    kind: Widget\n";
            ids.iter().map(|id| ((*id).to_owned(), text.to_owned())).collect()
        };
        let before = objects(&[
            "PersistentVolumeClaim/apps/data",
            "Namespace/apps",
            "Namespace/empty",
            "CustomResourceDefinition/widgets.example.com",
            "Widget/apps/a",
            "Deployment/apps/web",
        ]);
        let found = held(&before, &objects(&["Deployment/apps/web"]));
        let messages: Vec<&str> = found.iter().map(|warning| warning.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "CustomResourceDefinition/widgets.example.com would be pruned and is held back: there is Widget/apps/a",
                "Namespace/apps would be pruned and is held back: it holds Deployment/apps/web",
                "PersistentVolumeClaim/apps/data would be pruned and is held back: it holds data",
            ]
        );
        assert!(held(&before, &before).is_empty());
    }
}
