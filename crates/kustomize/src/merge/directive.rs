//! `$patch: delete`, `replace` or `merge` in a map or in an element of a list.

use super::failed;
use crate::error::Error;
use crate::tree::{ElementSet, Kind, NodeId, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    Merge,
    Replace,
    Delete,
}

const KEY: &str = "$patch";

/// What a patch says is to be done, and removes the saying from it.
pub(super) fn take(tree: &mut Tree, patch: NodeId) -> Result<Directive, Error> {
    match tree.kind(patch) {
        Kind::Map => take_from_map(tree, patch),
        Kind::Seq => take_from_list(tree, patch),
        Kind::Scalar => Err(failed(format!(
            "no implemented strategic merge patch strategy for '{}' ('{}')",
            tree[patch].tag.short().unwrap_or("!!str"),
            tree.kyaml_text(patch)
        ))),
    }
}

fn take_from_map(tree: &mut Tree, patch: NodeId) -> Result<Directive, Error> {
    let Some(value) = tree.get(patch, KEY) else { return Ok(Directive::Merge) };
    let directive = parse(tree.text(value))?;
    tree.clear(patch, KEY).map_err(failed)?;
    Ok(directive)
}

fn take_from_list(tree: &mut Tree, patch: NodeId) -> Result<Directive, Error> {
    let marked = tree.content(patch).iter().copied().find(|item| tree.get(*item, KEY).is_some());
    // An element with a key besides the directive is about that element only.
    let Some(marked) = marked.filter(|item| tree.content(*item).len() <= 2) else {
        return Ok(Directive::Merge);
    };
    let Some(value) = tree.get(marked, KEY) else { return Ok(Directive::Merge) };
    let text = tree.text(value).to_owned();
    let directive = parse(&text)?;
    let set = ElementSet { element: None, keys: &[KEY.to_owned()], values: &[text] };
    tree.set_element(patch, set).map_err(failed)?;
    Ok(directive)
}

fn parse(text: &str) -> Result<Directive, Error> {
    match text {
        "delete" => Ok(Directive::Delete),
        "replace" => Ok(Directive::Replace),
        "merge" => Ok(Directive::Merge),
        other => Err(failed(format!("unknown patch strategy '{other}'"))),
    }
}
