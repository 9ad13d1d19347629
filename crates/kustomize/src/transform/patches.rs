//! Patches: strategic merge and JSON, applied to the resources they are for.

use crate::error::{Class, Context as _, Error, without_contents};
use crate::go_text::quote;
use crate::kustomization::Selector;
use crate::merge::{self, MergeOptions};
use crate::resource::{Memory, Resource, is_internal_annotation};
use crate::resources::{Resources, Workspace};
use crate::select::ResourceSelector;
use crate::transform::json_patch::{self, Operation};
use crate::tree::{NodeId, Text, Tree};

/// A patch that was read, and what to call it in errors.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub content: PatchContent,
    pub target: Option<Selector>,
    pub source: String,
}

#[derive(Clone, Debug)]
pub(crate) enum PatchContent {
    Strategic(Vec<Resource>),
    Json(Vec<Operation>),
}

/// Applies an entry of `patches`.
pub(crate) fn apply(space: &mut Workspace, resources: &mut Resources, patch: Patch) -> Result<(), Error> {
    let source = patch.source.clone();
    apply_unlocated(space, resources, patch).map_err(|error| match error {
        error @ Error::Located { .. } => error.located(format!("by {}", shortened(&source))),
        error => error,
    })
}

/// Enough of a patch to know it again.
fn shortened(source: &str) -> String {
    const LENGTH: usize = 120;
    match source.char_indices().nth(LENGTH) {
        Some((at, _)) => format!("{}…", &source[..at]),
        None => source.to_owned(),
    }
}

fn apply_unlocated(space: &mut Workspace, resources: &mut Resources, patch: Patch) -> Result<(), Error> {
    match (patch.content, patch.target) {
        (PatchContent::Strategic(patches), Some(target)) => {
            apply_to_selected(space, resources, patches, &target, &patch.source)
        }
        (PatchContent::Strategic(patches), None) => {
            let mut errors = Vec::new();
            for patch in patches {
                let id = patch.original_id(&space.tree, &space.schemas);
                match resources.target_of_patch(space, &id) {
                    Ok(at) => merge_into(space, resources, at, &patch)?,
                    Err(error) => errors.push(error.context(format!(
                        "no resource matches strategic merge patch {}",
                        quote(&id.to_string())
                    ))),
                }
            }
            Error::join(errors)
        }
        (PatchContent::Json(_), None) => {
            Err(Error::new(Class::Patch, format!("must specify a target for JSON patch {}", patch.source)))
        }
        (PatchContent::Json(operations), Some(target)) => {
            apply_json(space, resources, &operations, &target, History::Store)
        }
    }
}

fn apply_to_selected(
    space: &mut Workspace,
    resources: &mut Resources,
    mut patches: Vec<Resource>,
    target: &Selector,
    source: &str,
) -> Result<(), Error> {
    if patches.len() > 1 {
        let text = format!(
            "Multiple Strategic-Merge Patches in one `patches` entry is not allowed to set `patches.target` field: {source}"
        );
        return Err(Error::new(Class::Patch, text));
    }
    let Some(patch) = patches.pop() else { return Ok(()) };
    let selected =
        ResourceSelector::new(target).and_then(|selector| selector.select(space, resources)).context(
            || format!("unable to find patch target {} in `resources`", quote(&selector_text(target))),
        )?;
    merge_copies(space, resources, &selected, &patch)
}

fn selector_text(selector: &Selector) -> String {
    format!("{}:a={}:l={}", selector.id(), selector.annotation_selector, selector.label_selector)
}

/// Applies an entry of `patchesStrategicMerge`.
pub(crate) fn apply_strategic(
    space: &mut Workspace,
    resources: &mut Resources,
    patches: Vec<Resource>,
) -> Result<(), Error> {
    let mut errors = Vec::new();
    for patch in patches {
        let id = patch.original_id(&space.tree, &space.schemas);
        match resources.target_of_patch(space, &id) {
            Ok(at) => merge_copies(space, resources, &[at], &patch)?,
            Err(error) => errors.push(error),
        }
    }
    Error::join(errors)
}

/// Merges a copy of the patch into each selected resource, and checks that ids stay apart.
///
/// The metadata of the copy is written anew, as kustomize does: a label set to null in the patch comes out as
/// the text of that null, and does not remove the label.
fn merge_copies(
    space: &mut Workspace,
    resources: &mut Resources,
    selected: &[usize],
    patch: &Resource,
) -> Result<(), Error> {
    let Some(patch_root) = patch.root else { return Ok(()) };
    let may_rename = patch.memory.allow_name_change || patch.memory.allow_kind_change;
    for at in selected {
        let mut copy = patch.clone();
        copy.root = Some(space.tree.deep_copy(patch_root));
        copy.copy_metadata(&mut space.tree, patch)?;
        copy.memory = patch.memory.clone();
        let api_version = resources.list()[*at].gvk(&space.tree, &space.schemas).api_version();
        copy.set_api_version(&mut space.tree, &api_version)?;
        let kind = patch.kind(&space.tree);
        copy.set_kind(&mut space.tree, &kind)?;
        merge_into(space, resources, *at, &copy)?;
    }
    resources.drop_empty(&space.tree);
    if may_rename {
        resources.check_ids(space)?;
    }
    Ok(())
}

/// Merges the patch itself into a resource. Name and kind stay unless the patch may change them; the namespace
/// always stays.
fn merge_into(
    space: &mut Workspace,
    resources: &mut Resources,
    at: usize,
    patch: &Resource,
) -> Result<(), Error> {
    let may_rename = patch.memory.allow_name_change || patch.memory.allow_kind_change;
    let list = if may_rename { resources.list_to_change().as_mut_slice() } else { resources.list_mut() };
    let resource = &mut list[at];
    let (Some(root), Some(patch_root)) = (resource.root, patch.root) else { return Ok(()) };
    let (name, namespace, kind) =
        (resource.name(&space.tree), resource.namespace(&space.tree), resource.kind(&space.tree));
    if may_rename {
        resource.store_previous_id(&mut space.tree, &space.schemas)?;
    }
    let forgets = wipes_annotations(&space.tree, patch_root);
    let merged = merge::merge(&mut space.tree, &space.schemas, root, patch_root, MergeOptions::BUILD);
    let merged = merged.map_err(|error| {
        let error = match kind.as_str() {
            "Secret" => Error::new(error.class(), without_contents(&error.to_string())),
            _ => error,
        };
        error.located(format!("in {}", resource.id(&space.tree, &space.schemas)))
    })?;
    if merged.is_none() || space.tree.is_null_or_empty(root) {
        resource.root = None;
        resources.forget_ids();
        return Ok(());
    }
    if forgets {
        resource.memory = Memory::default();
    }
    if !patch.memory.allow_kind_change {
        resource.set_kind(&mut space.tree, &kind)?;
    }
    if !patch.memory.allow_name_change {
        resource.set_name(&mut space.tree, &name)?;
    }
    resource.set_namespace(&mut space.tree, &namespace)
}

/// Whether a patch does away with all annotations: kustomize's memory of the resource is among them.
fn wipes_annotations(tree: &Tree, patch: NodeId) -> bool {
    let Some(metadata) = tree.get(patch, "metadata") else { return false };
    let replaces =
        |map| tree.get(map, "$patch").is_some_and(|value| matches!(tree.text(value), "replace" | "delete"));
    tree.is_null(metadata)
        || replaces(metadata)
        || tree.get(metadata, "annotations").is_some_and(|node| tree.is_null(node) || replaces(node))
}

/// Whether a JSON patch remembers the id from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum History {
    Store,
    Ignore,
}

/// Applies a JSON patch to the selected resources.
pub(crate) fn apply_json(
    space: &mut Workspace,
    resources: &mut Resources,
    operations: &[Operation],
    target: &Selector,
    history: History,
) -> Result<(), Error> {
    let selected = ResourceSelector::new(target)?.select(space, resources)?;
    for at in selected {
        let resource = &mut resources.list_to_change()[at];
        if history == History::Store {
            resource.store_previous_id(&mut space.tree, &space.schemas)?;
        }
        let id = resource.id(&space.tree, &space.schemas);
        patch_json(&mut space.tree, resource, operations)
            .map_err(|error| error.located(format!("in {id}")))?;
    }
    Ok(())
}

fn patch_json(tree: &mut Tree, resource: &mut Resource, operations: &[Operation]) -> Result<(), Error> {
    let Some(root) = resource.root else { return Ok(()) };
    // The patch sees the memory as annotations: it is what makes `add /metadata/annotations/x` work on an
    // object without annotations.
    let memory: Vec<(Text, Text)> =
        resource.memory.annotations().into_iter().map(|(key, value)| (key.into(), value.into())).collect();
    let mut all = resource.annotations(tree);
    let internal: Vec<(Text, Text)> = all
        .iter()
        .filter(|(key, _)| is_internal_annotation(key))
        .cloned()
        .chain(memory.iter().cloned())
        .collect();
    if !memory.is_empty() {
        all.extend(memory);
        resource.set_string_map(tree, "annotations", all)?;
    }
    let mut json = tree.to_json(root).map_err(|error| Error::new(Class::Patch, error.to_string()))?;
    json_patch::apply(&mut json, operations)?;
    if !json.is_object() {
        let text = "json: cannot unmarshal array into Go value of type map[string]interface {}";
        return Err(Error::new(Class::Patch, text));
    }
    tree.release(root);
    let patched = tree.add_decoded_json(&json);
    resource.root = Some(patched);
    let mut annotations: Vec<(Text, Text)> = resource.annotations(tree);
    annotations.retain(|(key, _)| !internal.iter().any(|(known, _)| known == key));
    annotations.extend(internal);
    resource.set_string_map(tree, "annotations", annotations)?;
    resource.memory = Memory::default();
    resource.memory.absorb(tree, patched)?;
    if resource.memory == Memory::default() && resource.annotations(tree).is_empty() {
        resource.set_string_map(tree, "annotations", Vec::new())?;
    }
    Ok(())
}
