//! Circles of `dependsOn`, through Kustomizations and HelmReleases alike.

use std::collections::BTreeSet;

use flux_api::kinds::{HELM_RELEASE, KUSTOMIZATION, Kind};
use serde_json::Value;

use super::{Cache, ObjectKey};

/// Circles longer than this are not looked for.
const LONGEST_PATH: usize = 1000;

/// A kind that may have dependencies of its own, and an object of it.
type Node = (&'static str, ObjectKey);

/// The way from an object through its dependencies back to itself, as people read it; `None` when there is none.
pub fn of(cache: &Cache, kind: &'static Kind, own: &ObjectKey) -> Option<String> {
    let start: Node = (kind.kind, own.clone());
    let mut visited = BTreeSet::new();
    // Depth first, with the path that led to each node.
    let mut open: Vec<Vec<Node>> = vec![vec![start.clone()]];
    while let Some(path) = open.pop() {
        let last = path.last()?.clone();
        if path.len() > LONGEST_PATH {
            continue;
        }
        for next in dependencies_of(cache, &last) {
            if next == start {
                return Some(shown(&path, &start));
            }
            if visited.insert(next.clone()) {
                let mut path = path.clone();
                path.push(next);
                open.push(path);
            }
        }
    }
    None
}

fn dependencies_of(cache: &Cache, node: &Node) -> Vec<Node> {
    let kind = if node.0 == KUSTOMIZATION.kind { &KUSTOMIZATION } else { &HELM_RELEASE };
    let Some(object) = cache.get(kind, &node.1) else { return Vec::new() };
    let list = object.data.pointer("/spec/dependsOn").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            let kind = match text("kind") {
                None => node.0,
                Some("Kustomization") => KUSTOMIZATION.kind,
                Some("HelmRelease") => HELM_RELEASE.kind,
                Some(_) => return None,
            };
            Some((kind, ObjectKey::new(text("namespace").unwrap_or(&node.1.namespace), text("name")?)))
        })
        .collect()
}

/// The kind and the namespace are told where they are others than those of the first.
fn shown(path: &[Node], start: &Node) -> String {
    let one = |(kind, key): &Node| {
        let name = if key.namespace == start.1.namespace { key.name.clone() } else { key.to_string() };
        if *kind == start.0 { name } else { format!("{kind} {name}") }
    };
    let names: Vec<String> = path.iter().chain([start]).map(one).collect();
    names.join(" → ")
}
