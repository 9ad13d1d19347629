//! The kustomization.yaml a build starts from: the one in the folder, or one that takes every manifest below,
//! with what the Flux Kustomization adds.

use file_tree::{Files, Kind, TreePath};
use flux_api::kustomize::KustomizationSpec;
use serde_json::{Map, Value, json};

/// In the order they are looked for.
pub(crate) const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// What a kustomization.yaml may hold. Flux reads the file into a structure and so forgives what it does not know;
/// kustomize itself would refuse it.
const FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "openapi",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "patchesStrategicMerge",
    "patchesJson6902",
    "patches",
    "images",
    "imageTags",
    "replacements",
    "replicas",
    "vars",
    "sortOptions",
    "resources",
    "components",
    "crds",
    "bases",
    "configMapGenerator",
    "secretGenerator",
    "helmGlobals",
    "helmCharts",
    "helmChartInflationGenerator",
    "generatorOptions",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "buildMetadata",
];
const REMOTE_PREFIXES: &[&str] =
    &["git::", "gh:", "ssh://", "https://", "http://", "git@", "github.com:", "github.com/"];

const DEEPEST: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {cause}")]
    Unreadable { path: TreePath, cause: String },
    #[error("{path}: failed to unmarshal kustomization.yaml: {cause}")]
    Malformed { path: TreePath, cause: String },
    #[error("failed to decode Kubernetes YAML from {path}: {cause}")]
    Manifest { path: TreePath, cause: String },
    #[error("component path '{0}' must be local and relative")]
    RemoteComponent(String),
    #[error(
        "component path '{component}' not found in {folder}; create it, or set spec.ignoreMissingComponents"
    )]
    MissingComponent { component: String, folder: TreePath },
}

/// The text of the kustomization to build in `folder`. JSON, which is YAML too.
pub fn kustomization(
    spec: &KustomizationSpec,
    files: &dyn Files,
    folder: &TreePath,
) -> Result<Vec<u8>, Error> {
    let mut file = match existing(files, folder) {
        Some(path) => read(files, &path)?,
        None => collected(files, folder)?,
    };
    override_with(&mut file, spec, files, folder)?;
    Ok(Value::Object(file).to_string().into_bytes())
}

pub(crate) fn existing(files: &dyn Files, folder: &TreePath) -> Option<TreePath> {
    FILE_NAMES.iter().map(|name| folder.child(name)).find(|path| files.kind(path) == Some(Kind::File))
}

fn read(files: &dyn Files, path: &TreePath) -> Result<Map<String, Value>, Error> {
    let malformed = |cause: String| Error::Malformed { path: path.clone(), cause };
    let bytes = files
        .read(path)
        .map_err(|error| Error::Unreadable { path: path.clone(), cause: error.to_string() })?;
    let file = match yaml::to_json(&bytes).map_err(|error| malformed(error.to_string()))? {
        Value::Object(file) => file,
        Value::Null => Map::new(),
        _ => return Err(malformed("not a mapping".to_owned())),
    };
    let mut file: Map<String, Value> =
        file.into_iter().filter(|(key, _)| FIELDS.contains(&key.as_str())).collect();
    // A file that lists nothing would be "empty" to kustomize.
    if file.get("resources").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        file.insert("buildMetadata".to_owned(), json!(["originAnnotations"]));
    }
    Ok(file)
}

/// Every manifest below `folder`; a sub-folder with a kustomization of its own is taken as a whole.
fn collected(files: &dyn Files, folder: &TreePath) -> Result<Map<String, Value>, Error> {
    let mut resources = Vec::new();
    collect(files, folder, ".", 0, &mut resources)?;
    let mut file = Map::new();
    file.insert("apiVersion".to_owned(), json!("kustomize.config.k8s.io/v1beta1"));
    file.insert("kind".to_owned(), json!("Kustomization"));
    if resources.is_empty() {
        file.insert("namespace".to_owned(), json!("_placeholder"));
    } else {
        file.insert("resources".to_owned(), json!(resources));
    }
    Ok(file)
}

fn collect(
    files: &dyn Files,
    folder: &TreePath,
    relative: &str,
    depth: usize,
    resources: &mut Vec<String>,
) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(Error::Unreadable {
            path: folder.clone(),
            cause: format!("folders are more than {DEEPEST} deep"),
        });
    }
    let entries = files
        .list(folder)
        .map_err(|error| Error::Unreadable { path: folder.clone(), cause: error.to_string() })?;
    for entry in entries {
        let path = folder.child(&entry.name);
        let relative = format!("{relative}/{}", entry.name);
        match entry.kind {
            Kind::Folder if existing(files, &path).is_some() => resources.push(relative),
            Kind::Folder => collect(files, &path, &relative, depth + 1, resources)?,
            Kind::File if entry.name.ends_with(".yaml") || entry.name.ends_with(".yml") => {
                check_manifest(files, &path)?;
                resources.push(relative);
            }
            Kind::File => {}
        }
    }
    Ok(())
}

fn check_manifest(files: &dyn Files, path: &TreePath) -> Result<(), Error> {
    let problem = |cause: String| Error::Manifest { path: path.clone(), cause };
    let bytes = files.read(path).map_err(|error| problem(error.to_string()))?;
    yaml::parse_stream(&bytes, &yaml::Options::new(yaml::Schema::V3))
        .map_err(|error| problem(error.to_string()))?;
    Ok(())
}

fn override_with(
    file: &mut Map<String, Value>,
    spec: &KustomizationSpec,
    files: &dyn Files,
    folder: &TreePath,
) -> Result<(), Error> {
    for (field, value) in [
        ("namespace", &spec.target_namespace),
        ("namePrefix", &spec.name_prefix),
        ("nameSuffix", &spec.name_suffix),
    ] {
        if let Some(value) = value {
            file.insert(field.to_owned(), json!(value));
        }
    }
    append(file, "patches", spec.patches.iter().map(|patch| json!(patch)));
    append(file, "components", components(spec, files, folder)?.into_iter().map(Value::String));
    merge_images(file, spec);
    if !spec.build_metadata.is_empty() {
        let wanted: Vec<&str> = spec.build_metadata.iter().map(|one| one.as_str()).collect();
        file.insert("buildMetadata".to_owned(), json!(wanted));
    }
    Ok(())
}

fn append(file: &mut Map<String, Value>, field: &str, more: impl Iterator<Item = Value>) {
    let more: Vec<Value> = more.collect();
    if more.is_empty() {
        return;
    }
    match file.entry(field).or_insert_with(|| json!([])) {
        Value::Array(list) => list.extend(more),
        other => *other = Value::Array(more),
    }
}

fn components(spec: &KustomizationSpec, files: &dyn Files, folder: &TreePath) -> Result<Vec<String>, Error> {
    let mut present = Vec::new();
    for component in &spec.components {
        let remote =
            component.starts_with('/') || REMOTE_PREFIXES.iter().any(|prefix| component.starts_with(prefix));
        if remote {
            return Err(Error::RemoteComponent(component.clone()));
        }
        let there = folder.join(component).is_ok_and(|path| files.kind(&path).is_some());
        match (there, spec.ignore_missing_components) {
            (true, _) => present.push(component.clone()),
            (false, true) => {}
            (false, false) => {
                return Err(Error::MissingComponent { component: component.clone(), folder: folder.clone() });
            }
        }
    }
    Ok(present)
}

/// By name: a new name replaces the old one; tag and digest are one unit.
fn merge_images(file: &mut Map<String, Value>, spec: &KustomizationSpec) {
    if spec.images.is_empty() {
        return;
    }
    let list = file.entry("images").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    for image in &spec.images {
        let index = list.iter().position(|one| one.get("name").and_then(Value::as_str) == Some(&image.name));
        let index = index.unwrap_or_else(|| {
            list.push(json!({ "name": image.name }));
            list.len() - 1
        });
        let Some(entry) = list[index].as_object_mut() else { continue };
        if let Some(name) = &image.new_name {
            entry.insert("newName".to_owned(), json!(name));
        }
        if image.new_tag.is_some() || image.digest.is_some() {
            entry.remove("newTag");
            entry.remove("digest");
            for (field, value) in [("newTag", &image.new_tag), ("digest", &image.digest)] {
                if let Some(value) = value {
                    entry.insert(field.to_owned(), json!(value));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_tree::MemoryTree;

    fn spec(extra: Value) -> KustomizationSpec {
        let mut spec =
            json!({"interval": "1m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "fleet"}});
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn generate(files: &[(&str, &str)], extra: Value) -> Result<Value, Error> {
        let tree = MemoryTree::from_texts(files.iter().copied()).unwrap();
        let text = kustomization(&spec(extra), &tree, &TreePath::parse("app").unwrap())?;
        Ok(serde_json::from_slice(&text).unwrap())
    }

    #[test]
    fn without_a_file_every_manifest_below_is_taken() {
        let files = [
            ("app/a.yaml", "kind: A"),
            ("app/deep/b.yml", "kind: B"),
            ("app/own/kustomization.yaml", ""),
            ("app/own/c.yaml", "kind: C"),
            ("app/README.md", "text"),
        ];
        let file = generate(&files, json!({})).unwrap();
        assert_eq!(file["resources"], json!(["./a.yaml", "./deep/b.yml", "./own"]));
    }

    #[test]
    fn an_empty_folder_gets_a_placeholder() {
        let file = generate(&[("app/README.md", "x")], json!({})).unwrap();
        assert_eq!(file["namespace"], "_placeholder");
    }

    #[test]
    fn what_the_object_says_wins_or_is_added() {
        let own =
            "namespace: old\nresources: [a.yaml]\nunknownField: 1\nimages:\n- name: app\n  newTag: v1\n";
        let extra = json!({
            "targetNamespace": "new", "namePrefix": "p-",
            "images": [{"name": "app", "digest": "sha256:x"}, {"name": "other", "newName": "o"}],
            "patches": [{"patch": "- op: remove", "target": {"kind": "Deployment"}}],
        });
        let file = generate(&[("app/kustomization.yaml", own)], extra).unwrap();
        assert_eq!(
            file,
            json!({
                "namespace": "new", "namePrefix": "p-", "resources": ["a.yaml"],
                "images": [{"name": "app", "digest": "sha256:x"}, {"name": "other", "newName": "o"}],
                "patches": [{"patch": "- op: remove", "target": {"kind": "Deployment"}}],
            })
        );
    }

    #[test]
    fn components_are_local_and_exist() {
        let files = [("app/a.yaml", "kind: A"), ("parts/x/kustomization.yaml", "")];
        let file = generate(&files, json!({"components": ["../parts/x"]})).unwrap();
        assert_eq!(file["components"], json!(["../parts/x"]));
        assert!(generate(&files, json!({"components": ["https://example.org/x"]})).is_err());
        assert!(generate(&files, json!({"components": ["../parts/y"]})).is_err());
        assert!(
            generate(&files, json!({"components": ["../parts/y"], "ignoreMissingComponents": true})).is_ok()
        );
    }

    #[test]
    fn bad_yaml_names_its_file() {
        let error = generate(&[("app/a.yaml", "a: [1")], json!({})).unwrap_err().to_string();
        assert!(error.starts_with("failed to decode Kubernetes YAML from app/a.yaml:"), "{error}");
    }
}
