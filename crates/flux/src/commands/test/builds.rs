//! What the builds of a fleet show before they are applied: variables that nothing uses, fields that no kind has.

use std::collections::BTreeSet;

use file_tree::MemoryTree;
use flux_api::kustomize::Kustomization;
use flux_remote::local::LocalFolder;
use serde_json::Value;

use super::warnings::{Warning, warning};
use crate::fleet::Seen;

/// Looks at every Kustomization that builds from the repository under test.
pub(super) fn warnings(objects: &[Seen], files: &LocalFolder) -> Vec<Warning> {
    let mut tree: Option<MemoryTree> = None;
    let mut found = Vec::new();
    for object in objects.iter().filter(|object| object.kind == "Kustomization" && is_local(object)) {
        let Ok(kustomization) = serde_json::from_value::<Kustomization>(object.object.clone()) else {
            continue;
        };
        let tree = tree.get_or_insert_with(|| in_memory(files));
        let input = flux_build::Input { strict: false, ..flux_build::Input::new(&kustomization.spec, tree) };
        // What does not build is reported by its own condition.
        let Ok(built) = flux_build::kustomization(&input) else { continue };
        let uses = uses(&built.text);
        let own =
            kustomization.spec.post_build.iter().flat_map(|it| it.substitute.keys().map(String::as_str));
        let unused: Vec<&str> = own.filter(|name| !uses.contains(name)).collect();
        if !unused.is_empty() {
            let message = format!(
                "{} sets {} in postBuild.substitute, which nothing uses",
                object.id(),
                unused.join(", ")
            );
            found.push(warning("UnusedSubstitution", message));
        }
        found.extend(unknown_fields(object, &built));
    }
    found
}

/// Fields that a builtin kind does not have. The controller drops them without a word, as upstream's does.
fn unknown_fields(owner: &Seen, built: &flux_build::Manifests) -> Vec<Warning> {
    let mut found = Vec::new();
    // What is encrypted has its sops metadata in it here, where there are no keys; the controller decrypts it first.
    for mut object in built.objects.iter().filter(|object| object.get("sops").is_none()).cloned() {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        for field in flux_controllers::kustomize::drop_unknown(&mut object) {
            let message = format!(
                "{kind} {name} of {}: {field} is no field of {version} {kind} and is dropped",
                owner.id()
            );
            found.push(warning("UnknownField", message));
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

/// Every `${name…}`. `$name` does not count: Flux substitutes braces only; nor does `$${name}`, which is how a brace is
/// written that is to stay.
fn uses(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("${") {
        if text[..at].ends_with('$') {
            continue;
        }
        let rest = text[at + 2..].trim_start_matches('#');
        let name = &rest[..rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())];
        if !name.is_empty() && rest.contains('}') {
            found.insert(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_used_in_braces_and_whole() {
        for text in ["${name}", "a ${name:=x} b", "${#name}", "${other} ${name/a/b}"] {
            assert!(uses(text).contains("name"), "{text}");
        }
        for text in ["$name", "${names}", "name", "${NAME}", "$${name}", "${name"] {
            assert!(!uses(text).contains("name"), "{text}");
        }
    }
}
