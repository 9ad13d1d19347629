//! Replacements: the value of one field copied to many others.

use serde_json::Value as Json;

use crate::error::{Class, Error};
use crate::go_text::quote;
use crate::id::ResId;
use crate::kustomization::{FieldOptions, Replacement, SourceSelector, TargetSelector};
use crate::resource::{Resource, plain_id};
use crate::resources::{Resources, Workspace};
use crate::select::ResourceSelector;
use crate::tree::{Kind, NodeId, PathMatch, Tree, smart_split};

/// Makes each replacement in turn; a later one sees what an earlier one did.
pub(crate) fn apply(
    space: &mut Workspace,
    resources: &mut Resources,
    replacements: &[Replacement],
) -> Result<(), Error> {
    for replacement in replacements {
        let failed = |text: String| Error::new(Class::Replacement, text);
        let has_source = replacement.source.is_some() || replacement.source_value.is_some();
        let Some(targets) = replacement.targets.as_ref().filter(|_| has_source) else {
            return Err(failed("replacements must specify a source and at least one target".to_owned()));
        };
        let value = source_value(&mut space.tree, resources, replacement).map_err(failed)?;
        for target in targets {
            write_target(space, resources, value, target)?;
        }
    }
    resources.drop_empty(&space.tree);
    resources.forget_ids();
    Ok(())
}

fn source_value(tree: &mut Tree, resources: &Resources, replacement: &Replacement) -> Result<NodeId, String> {
    let source = match (&replacement.source, &replacement.source_value) {
        (Some(_), Some(_)) => return Err("value and resource selectors are mutually exclusive".to_owned()),
        (None, value) => return Ok(tree.plain(value.as_deref().unwrap_or_default())),
        (Some(source), None) => source,
    };
    let root = source_object(tree, resources, source)?;
    let path = if source.field_path.is_empty() { "metadata.name" } else { &source.field_path };
    let found = tree
        .lookup(root, &smart_split(path, '.'))
        .map_err(|error| format!("error looking up replacement source: {error}"))?;
    let Some(node) = found.filter(|node| !tree.is_null_or_empty(*node)) else {
        return Err(format!("fieldPath `{path}` is missing for replacement source {}", source.id()));
    };
    let is_secret = tree.get(root, "kind").is_some_and(|kind| tree.text(kind) == "Secret");
    refine(tree, node, source.options.as_ref(), is_secret)
}

/// The one object that the source selects by any id it has or had.
fn source_object(tree: &Tree, resources: &Resources, source: &SourceSelector) -> Result<NodeId, String> {
    let wanted = source.id();
    let mut found = None;
    for resource in resources.list() {
        let Some(root) = resource.root else { continue };
        if all_ids(tree, resource, root).any(|id| id.selected_by(&wanted)) {
            if found.is_some() {
                return Err(format!("multiple matches for selector {}", source_text(source)));
            }
            found = Some(root);
        }
    }
    found.ok_or_else(|| format!("nothing selected by {}", source_text(source)))
}

fn all_ids<'a>(tree: &'a Tree, resource: &'a Resource, root: NodeId) -> impl Iterator<Item = ResId> + 'a {
    std::iter::once(plain_id(tree, root)).chain(resource.previous_ids(tree))
}

fn source_text(source: &SourceSelector) -> String {
    let mut text = source.id().to_string();
    if !source.field_path.is_empty() {
        text = format!("{text}:{}", source.field_path);
    }
    if let Some(options) =
        source.options.as_ref().filter(|options| !options.delimiter.is_empty() || options.create)
    {
        text = format!("{text}:{}({}), create={}", options.delimiter, options.index.0, options.create);
    }
    text
}

/// One part of the value, when a delimiter says so.
fn refine(
    tree: &mut Tree,
    node: NodeId,
    options: Option<&FieldOptions>,
    is_secret: bool,
) -> Result<NodeId, String> {
    let Some(options) = options.filter(|options| !options.delimiter.is_empty()) else { return Ok(node) };
    if tree.kind(node) != Kind::Scalar {
        return Err("delimiter option can only be used with scalar nodes".to_owned());
    }
    let text = tree.text(node).to_owned();
    let part = usize::try_from(options.index.0).ok().and_then(|at| text.split(&options.delimiter).nth(at));
    let Some(part) = part else {
        let shown = if is_secret { "***" } else { &text };
        return Err(format!("options.index {} is out of bounds for value {shown}", options.index.0));
    };
    let copy = tree.deep_copy(node);
    tree.set_text(copy, part);
    Ok(copy)
}

fn write_target(
    space: &mut Workspace,
    resources: &Resources,
    value: NodeId,
    target: &TargetSelector,
) -> Result<(), Error> {
    let failed = |text: String| Error::new(Class::Replacement, text);
    let Some(select) = &target.select else {
        return Err(failed("target must specify resources to select".to_owned()));
    };
    let bad_selector = |error: Error| error.context("error creating target selector");
    let selector = ResourceSelector::new(select).map_err(bad_selector)?;
    let mut rejects = Vec::new();
    for reject in &target.reject {
        rejects.push((reject.id().is_empty(), ResourceSelector::new(reject).map_err(bad_selector)?));
    }
    for resource in resources.list() {
        let Some(root) = resource.root else { continue };
        let tree = &space.tree;
        if !selector.accepts_annotations(tree, resource)? || !selector.accepts_labels(tree, resource)? {
            continue;
        }
        let ids: Vec<ResId> = all_ids(tree, resource, root).collect();
        if rejected(tree, resource, &ids, &rejects)? || !ids.iter().any(|id| selector.id.accepts_id(id)) {
            continue;
        }
        let is_secret = resource.kind(&space.tree) == "Secret";
        copy_value(&mut space.tree, root, value, target)
            .map_err(|text| failed(if is_secret { crate::error::without_contents(&text) } else { text }))?;
    }
    Ok(())
}

fn rejected(
    tree: &Tree,
    resource: &Resource,
    ids: &[ResId],
    rejects: &[(bool, ResourceSelector)],
) -> Result<bool, Error> {
    for (_, reject) in rejects.iter().filter(|(_, reject)| reject.has_label_selectors()) {
        if reject.accepts_annotations(tree, resource)? && reject.accepts_labels(tree, resource)? {
            return Ok(true);
        }
    }
    Ok(rejects.iter().any(|(any_id, reject)| !any_id && ids.iter().any(|id| reject.id.accepts_id(id))))
}

fn copy_value(tree: &mut Tree, root: NodeId, value: NodeId, target: &TargetSelector) -> Result<(), String> {
    let options = target.options.as_ref();
    let create = options.filter(|options| options.create).map(|_| tree.kind(value));
    let default = [String::from("metadata.name")];
    let paths = if target.field_paths.is_empty() { &default[..] } else { &target.field_paths };
    for path in paths {
        let parts = smart_split(path, '.');
        if write_structured(tree, root, value, &parts, create).is_ok() {
            continue;
        }
        let missing = match create {
            Some(_) => format!("unable to find or create field {} in replacement target", quote(path)),
            None => format!("unable to find field {} in replacement target", quote(path)),
        };
        let fields =
            PathMatch { create }.find(tree, root, &parts).map_err(|error| format!("{missing}: {error}"))?;
        if fields.is_empty() {
            return Err(missing);
        }
        for field in fields {
            set_field(tree, field, value, options)?;
        }
    }
    Ok(())
}

fn set_field(
    tree: &mut Tree,
    field: NodeId,
    value: NodeId,
    options: Option<&FieldOptions>,
) -> Result<(), String> {
    let value = tree.deep_copy(value);
    let mut text = tree.owned_text(value);
    if let Some(options) = options.filter(|options| !options.delimiter.is_empty()) {
        if tree.kind(field) != Kind::Scalar {
            return Err("delimiter option can only be used with scalar nodes".to_owned());
        }
        let part = if tree.is_null(value) { String::new() } else { tree.text(value).to_owned() };
        let mut parts: Vec<String> = tree.text(field).split(&options.delimiter).map(str::to_owned).collect();
        match usize::try_from(options.index.0) {
            Err(_) => parts.insert(0, part),
            Ok(at) if at >= parts.len() => parts.push(part),
            Ok(at) => parts[at] = part,
        }
        // Also the text of a list or map, which otherwise has none.
        text = parts.join(&options.delimiter).into();
    }
    if tree.kind(field) == Kind::Scalar {
        // Only the text changes: what the field was read as, number or string, it stays.
        tree.set_text(field, text);
    } else {
        tree.assign(field, value);
    }
    Ok(())
}

/// Writes into a text that itself holds JSON or YAML. An error means there is no such text on the way.
fn write_structured(
    tree: &mut Tree,
    root: NodeId,
    value: NodeId,
    parts: &[String],
    create: Option<Kind>,
) -> Result<(), String> {
    let not_structured = || "not a structured data path".to_owned();
    let outer = (1..parts.len())
        .find_map(|length| {
            let node = tree.lookup(root, &parts[..length]).ok()??;
            (tree.kind(node) == Kind::Scalar).then_some((node, length))
        })
        .filter(|(node, _)| !tree.text(*node).trim().is_empty());
    let (scalar, length) = outer.ok_or_else(not_structured)?;
    let original = tree.text(scalar).to_owned();
    let (inner, comments) = tree.parse_document(scalar)?;
    let fields = PathMatch { create }.find(tree, inner, &parts[length..])?;
    if fields.is_empty() {
        return Err(not_structured());
    }
    for field in fields {
        if tree.kind(field) == Kind::Scalar {
            let text = tree.owned_text(value);
            tree.set_text(field, text);
        } else {
            tree.assign(field, value);
        }
    }
    let text = structured_text(tree, inner, comments, &original)?;
    tree.set_text(scalar, text);
    Ok(())
}

/// The text again as what it was: compact or indented JSON, or YAML.
fn structured_text(
    tree: &Tree,
    inner: NodeId,
    comments: yaml::Comments,
    original: &str,
) -> Result<String, String> {
    if !original.trim_start().starts_with(['{', '[']) {
        return Ok(tree.document_text(inner, comments).trim().to_owned());
    }
    let json = tree.to_json(inner).map_err(|error| error.to_string())?;
    let compact = yaml::json_text(&json);
    if original.contains('\n') && original.contains("  ") {
        return Ok(indented(&json, 0));
    }
    Ok(compact)
}

/// JSON with two spaces a level, as Go's `MarshalIndent` writes it.
fn indented(value: &Json, depth: usize) -> String {
    let pad = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match value {
        Json::Array(items) if !items.is_empty() => {
            let lines: Vec<String> =
                items.iter().map(|item| format!("{pad}{}", indented(item, depth + 1))).collect();
            format!("[\n{}\n{end}]", lines.join(",\n"))
        }
        Json::Object(entries) if !entries.is_empty() => {
            let lines: Vec<String> = entries
                .iter()
                .map(|(key, item)| {
                    format!(
                        "{pad}{}: {}",
                        yaml::json_text(&Json::String(key.clone())),
                        indented(item, depth + 1)
                    )
                })
                .collect();
            format!("{{\n{}\n{end}}}", lines.join(",\n"))
        }
        other => yaml::json_text(other),
    }
}
