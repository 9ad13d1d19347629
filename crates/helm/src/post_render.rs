//! The point where somebody else may change what was rendered: one stream of all documents out, one stream back in.
//!
//! Helm 3 hands over the manifest as it would store it, without hooks, and stores what comes back. Helm 4 marks each document with the file it came from, so that hooks stay hooks and `# Source` lines stay right; documents that
//! come back without a mark get a made-up file name.

use std::collections::BTreeMap;

use yaml::{Node, Options, Schema};

use crate::Dialect;
use crate::manifest::{Head, Manifest, split_manifests};

const FILE: &str = "postrenderer.helm.sh/postrender-filename";

/// Changes a stream of documents.
pub trait PostRender {
    fn run(&self, documents: String) -> Result<String, String>;
}

/// Which documents a post-renderer gets to see, and together with which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostRenderStrategy {
    /// Hooks and manifests in one stream: Helm 4's own way.
    #[default]
    Combined,
    /// First the hooks, then the manifests, for charts that have an object in both.
    Separate,
    /// Hooks stay as they are: Helm 3's way.
    NoHooks,
}

/// Hooks and manifests apart, each group through `post_render` if it is meant to go there.
pub(crate) fn run_apart(
    hooks: BTreeMap<String, String>,
    manifests: BTreeMap<String, String>,
    with_hooks: bool,
    post_render: &dyn PostRender,
) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (group, files, changed) in [("hooks", hooks, with_hooks), ("manifests", manifests, true)] {
        if files.is_empty() {
            continue;
        }
        let files = if changed { run_group(files, post_render, group)? } else { files };
        for (path, text) in files {
            let whole = all.entry(path).or_default();
            if !whole.is_empty() {
                whole.push_str("\n---\n");
            }
            whole.push_str(&text);
        }
    }
    Ok(all)
}

fn run_group(
    files: BTreeMap<String, String>,
    post_render: &dyn PostRender,
    group: &str,
) -> Result<BTreeMap<String, String>, String> {
    let merged = merge(&files).map_err(|error| format!("error merging {group}: {error}"))?;
    let changed = post_render
        .run(merged)
        .map_err(|error| format!("error while running post render on {group}: {error}"))?;
    split(&changed).map_err(|error| format!("error while parsing post rendered output for {group}: {error}"))
}

pub(crate) fn run(
    files: BTreeMap<String, String>,
    post_render: &dyn PostRender,
) -> Result<BTreeMap<String, String>, String> {
    let merged = merge(&files).map_err(|error| format!("error merging manifests: {error}"))?;
    let changed = post_render
        .run(merged)
        .map_err(|error| format!("error while running post render on files: {error}"))?;
    split(&changed).map_err(|error| format!("error while parsing post rendered output: {error}"))
}

/// Helm 3's way. A document that comes back without its `# Source` line has no path.
pub(crate) fn run_on_manifest(
    manifest: String,
    post_render: &dyn PostRender,
) -> Result<Vec<Manifest>, String> {
    let changed = post_render
        .run(manifest)
        .map_err(|error| format!("error while running post render on files: {error}"))?;
    let document = |text: &str| {
        let (path, content) = match text.strip_prefix("# Source: ") {
            Some(rest) => rest.split_once('\n').unwrap_or((rest, "")),
            None => ("", text),
        };
        let head = Head::parse(content, Dialect::Helm3)
            .map_err(|cause| format!("error while parsing post rendered output: {cause}"))?;
        Ok(Manifest { path: path.to_owned(), content: content.to_owned(), head })
    };
    split_manifests(&changed, Dialect::Helm3).into_iter().map(document).collect()
}

fn merge(files: &BTreeMap<String, String>) -> Result<String, String> {
    let mut documents = Vec::new();
    for (path, text) in files {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') || text.trim().is_empty() {
            continue;
        }
        for document in split_manifests(text, Dialect::Helm4) {
            for mut root in parse(document).map_err(|error| format!("parsing {path}: {error}"))? {
                annotate(&mut root, path).map_err(|error| format!("annotating {path}: {error}"))?;
                documents.push(root);
            }
        }
    }
    write(&documents).map_err(|error| format!("writing merged docs: {error}"))
}

fn split(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut by_file: BTreeMap<String, Vec<Node>> = BTreeMap::new();
    let documents = parse(text).map_err(|error| format!("error parsing YAML: {error}"))?;
    for (at, mut root) in documents.into_iter().enumerate() {
        let file = take_annotation(&mut root).unwrap_or_else(|| format!("generated-by-postrender-{at}.yaml"));
        by_file.entry(file).or_default().push(root);
    }
    let mut files = BTreeMap::new();
    for (file, roots) in by_file {
        let text = write(&roots).map_err(|error| format!("re-writing {file}: {error}"))?;
        files.insert(file, text);
    }
    Ok(files)
}

/// The documents that are mappings or sequences; empty ones are dropped, as kyaml's reader does.
fn parse(text: &str) -> Result<Vec<Node>, String> {
    let options = Options::new(Schema::V3).with_comments();
    let documents = yaml::parse_stream(text.as_bytes(), &options).map_err(|error| error.to_string())?;
    Ok(documents.into_iter().map(|document| document.root).filter(|root| !root.is_null()).collect())
}

fn write(roots: &[Node]) -> Result<String, String> {
    let mut out = String::new();
    for (at, root) in roots.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { "---\n" });
        out.push_str(&yaml::format_node(root).map_err(|error| error.to_string())?);
    }
    Ok(out)
}

fn annotate(root: &mut Node, path: &str) -> Result<(), String> {
    let annotations = child(child(root, "metadata")?, "annotations")?;
    match annotations.get_mut(FILE) {
        Some(value) => *value = Node::string(path),
        None => annotations
            .as_mapping_mut()
            .ok_or("annotations are no mapping")?
            .entries
            .push((Node::string(FILE), Node::quoted(path, yaml::ScalarStyle::SingleQuoted))),
    }
    Ok(())
}

/// The mapping at a key, made when it is not there.
fn child<'n>(parent: &'n mut Node, key: &str) -> Result<&'n mut Node, String> {
    if parent.get(key).is_none_or(Node::is_null) {
        let mapping = parent.as_mapping_mut().ok_or_else(|| format!("{key} has no mapping to stand in"))?;
        mapping.entries.retain(|(name, _)| name.as_str() != Some(key));
        mapping.entries.push((Node::string(key), Node::mapping(Vec::new())));
    }
    parent.get_mut(key).ok_or_else(|| format!("{key} is missing"))
}

fn take_annotation(root: &mut Node) -> Option<String> {
    let metadata = root.get_mut("metadata")?;
    let annotations = metadata.get_mut("annotations")?.as_mapping_mut()?;
    let at = annotations.entries.iter().position(|(name, _)| name.as_str() == Some(FILE))?;
    let (_, value) = annotations.entries.remove(at);
    let empty = annotations.entries.is_empty();
    if empty {
        metadata.as_mapping_mut()?.entries.retain(|(name, _)| name.as_str() != Some("annotations"));
    }
    value.text().map(str::to_owned).filter(|file| !file.is_empty())
}
