//! Our CustomResourceDefinitions against upstream's, path by path, and against the files in `manifests/crds/`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads files, and fails by panicking"
)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use flux_api::{crds, kinds};
use serde_json::Value;

/// Where we differ from upstream on purpose. A path that is a prefix covers what is below it. Each entry has a line in COMPATIBILITY.md.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "*",
        "metadata.annotations.kustomize.toolkit.fluxcd.io/substitute",
        "upstream's main branch has it on most CRDs, the release not on source and image ones; harmless and right on all",
    ),
    ("imagepolicies", "spec.names.categories", "upstream's main branch has them"),
    ("imagerepositories", "spec.names.categories", "upstream's main branch has them"),
    (
        "kustomizations",
        "spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.sourceRefs",
        "our addition: several sources as one tree",
    ),
    (
        "kustomizations",
        "spec.versions[v1].schema.openAPIV3Schema.properties.spec.x-kubernetes-validations",
        "sourceRef or sourceRefs",
    ),
    (
        "kustomizations",
        "spec.versions[v1].schema.openAPIV3Schema.properties.spec.required",
        "sourceRef is required unless sourceRefs is set, which a rule checks",
    ),
    (
        "kustomizations",
        "spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.dependsOn.items.properties.apiVersion",
        "our addition: dependencies of other kinds",
    ),
    (
        "kustomizations",
        "spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.dependsOn.items.properties.kind",
        "our addition: dependencies of other kinds",
    ),
    (
        "helmreleases",
        "spec.versions[v2].schema.openAPIV3Schema.properties.spec.properties.dependsOn.items.properties.apiVersion",
        "our addition: dependencies of other kinds",
    ),
    (
        "helmreleases",
        "spec.versions[v2].schema.openAPIV3Schema.properties.spec.properties.dependsOn.items.properties.kind",
        "our addition: dependencies of other kinds",
    ),
];

fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    folder.is_dir().then_some(folder)
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            // A property may be called "description"; then it is a schema and not a text.
            if entries.get("description").is_some_and(Value::is_string) {
                entries.remove("description");
            }
            entries.values_mut().for_each(without_descriptions);
        }
        Value::Array(entries) => entries.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}

fn differences(path: &str, theirs: &Value, ours: &Value, found: &mut Vec<(String, String)>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let keys: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (theirs.get(key), ours.get(key)) {
                    (Some(theirs), Some(ours)) => differences(&path, theirs, ours, found),
                    (Some(theirs), None) => found.push((path, format!("missing: {theirs}"))),
                    (None, Some(ours)) => found.push((path, format!("added: {ours}"))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) if path == "spec.versions" => {
            for theirs in theirs {
                let same = |version: &&Value| version["name"] == theirs["name"];
                let path = format!("{path}[{}]", theirs["name"].as_str().unwrap());
                match ours.iter().find(same) {
                    Some(ours) => differences(&path, theirs, ours, found),
                    None => found.push((path, "missing".into())),
                }
            }
        }
        _ if theirs == ours => {}
        _ => found.push((path.to_owned(), format!("theirs {theirs}, ours {ours}"))),
    }
}

/// The entry that covers a difference, if one does.
fn allowance(plural: &str, path: &str) -> Option<usize> {
    let covers = |allowed: &str| {
        path == allowed || path.strip_prefix(allowed).is_some_and(|rest| rest.starts_with('.'))
    };
    ALLOWED.iter().position(|(kind, allowed, _)| (*kind == "*" || *kind == plural) && covers(allowed))
}

#[test]
fn every_path_of_upstreams_crds_is_the_same_in_ours() {
    let Some(shared) = shared() else {
        eprintln!("skipped: no corpus");
        return;
    };
    let (mut compared, mut allowed, mut failures) = (0, 0, Vec::new());
    let mut unused: BTreeSet<usize> = (0..ALLOWED.len()).collect();
    for (file, text) in crds::yaml() {
        let upstream = std::fs::read_to_string(shared.join("crds").join(&file)).unwrap();
        let (mut theirs, mut ours) = (yaml(&upstream), yaml(&text));
        without_descriptions(&mut theirs);
        without_descriptions(&mut ours);
        let plural = ours["spec"]["names"]["plural"].as_str().unwrap().to_owned();
        let mut found = Vec::new();
        differences("", &theirs, &ours, &mut found);
        compared += 1;
        for (path, what) in found {
            match allowance(&plural, &path) {
                Some(entry) => {
                    allowed += 1;
                    unused.remove(&entry);
                }
                None => failures.push(format!("{plural}: {path}: {what}")),
            }
        }
    }
    println!("{compared} CRDs compared, {allowed} differences on purpose, {} others", failures.len());
    assert_eq!(compared, std::fs::read_dir(shared.join("crds")).unwrap().count());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        unused.is_empty(),
        "no longer differs: {:?}",
        unused.iter().map(|entry| ALLOWED[*entry]).collect::<Vec<_>>()
    );
}

#[test]
fn the_files_in_manifests_are_what_the_types_say() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/crds"));
    let files: BTreeSet<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let written = crds::yaml();
    assert_eq!(files, written.iter().map(|(file, _)| file.clone()).collect());
    for (file, text) in written {
        let found = std::fs::read_to_string(folder.join(&file)).unwrap();
        assert!(found == text, "manifests/crds/{file} is out of date: run cargo xtask crds");
    }
}

#[test]
fn the_yaml_reads_back_as_the_definition_it_was_written_from() {
    for (definition, (file, text)) in crds::all().into_iter().zip(crds::yaml()) {
        assert_eq!(yaml(&text), definition, "{file}");
    }
}

/// Calls `visit` with each schema below `schema` and its path.
fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, visit);
    }
    for key in ["items", "additionalProperties"] {
        if schema.get(key).is_some_and(Value::is_object) {
            walk(&format!("{path}[]"), &schema[key], visit);
        }
    }
}

#[test]
fn every_field_is_explained() {
    for kind in kinds::ALL {
        let schema = crds::object_schema(kind);
        for part in ["spec", "status"].iter().filter(|part| schema["properties"].get(**part).is_some()) {
            walk(part, &schema["properties"][part], &mut |path, schema| {
                let explained =
                    schema["description"].as_str().is_some_and(|text| text.len() > 3 && text.ends_with('.'));
                assert!(explained || path.ends_with("[]"), "{} {path}", kind.kind);
            });
        }
    }
}

#[test]
fn a_field_an_old_version_had_is_refused_by_name() {
    let expected = [
        ("kustomizations", vec!["patchesStrategicMerge", "patchesJson6902", "validation"]),
        ("helmreleases", vec!["valuesFile", "patchesStrategicMerge", "patchesJson6902"]),
        ("gitrepositories", vec!["gitImplementation", "accessFrom"]),
        ("buckets", vec!["accessFrom"]),
        ("helmcharts", vec!["valuesFile", "accessFrom"]),
    ];
    for (plural, mut fields) in expected {
        let kind = kinds::ALL.iter().find(|kind| kind.plural == plural).unwrap();
        let definition = crds::definition(kind);
        let old = &definition["spec"]["versions"][1];
        assert_eq!(old["deprecated"], true);
        walk("", &old["schema"]["openAPIV3Schema"], &mut |_, schema| {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let rule = rule["rule"].as_str().unwrap();
                fields.retain(|field| {
                    !(rule == format!("!has(self.{field})") && schema["properties"].get(*field).is_some())
                });
            }
        });
        assert!(fields.is_empty(), "{plural}: {fields:?}");
    }
}
