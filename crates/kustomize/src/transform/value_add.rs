//! Adds a value to fields, whole or as a part of a path: the `ValueAddTransformer` plugin.

use crate::error::{Class, Error};
use crate::kustomization::Selector;
use crate::resources::{Resources, Workspace};
use crate::select::ResourceSelector;
use crate::transform::namespace::{self, NamespaceChange, Subjects};
use crate::tree::{Kind, NodeId, Tree, split_path};

/// One field of some resources.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub selector: Option<Selector>,
    pub field_path: String,
    pub file_path_position: i64,
}

pub(crate) fn add(
    space: &mut Workspace,
    resources: &mut Resources,
    value: &str,
    targets: &[Target],
) -> Result<(), Error> {
    for target in targets {
        let selected: Vec<usize> = match &target.selector {
            None => (0..resources.len()).collect(),
            Some(selector) => ResourceSelector::new(selector)?.select(space, resources)?,
        };
        for at in selected {
            let Some(root) = resources.list()[at].root else { continue };
            if target.field_path == "metadata/namespace" {
                let change = NamespaceChange {
                    namespace: value,
                    specs: &[],
                    unset_only: false,
                    subjects: Subjects::default(),
                };
                namespace::set_one(&mut space.tree, &space.schemas, root, &change)?;
            } else {
                add_one(&mut space.tree, root, value, target)
                    .map_err(|text| Error::new(Class::Transform, text))?;
            }
        }
    }
    resources.forget_ids();
    Ok(())
}

fn add_one(tree: &mut Tree, root: NodeId, value: &str, target: &Target) -> Result<(), String> {
    let fields = split_path(&target.field_path, '/');
    let Some(node) = tree.lookup_create(root, &fields, Kind::Scalar)? else { return Ok(()) };
    tree.demand(node, Kind::Scalar).map_err(|error| error.to_string())?;
    let text = if target.file_path_position > 0 {
        insert_path_part(tree.text(node), target.file_path_position - 1, value)
    } else {
        value.to_owned()
    };
    let value = tree.plain(text);
    tree.set_scalar(node, value).map_err(|error| error.to_string())
}

/// Puts `part` into a path at a position; beyond its end means at the end, and a leading slash stays.
fn insert_path_part(path: &str, position: i64, part: &str) -> String {
    if part.is_empty() {
        return path.to_owned();
    }
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let at = usize::try_from(position).unwrap_or(0).min(parts.len());
    parts.insert(at, part);
    format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_go_where_they_are_told() {
        assert_eq!(insert_path_part("", 0, "PEACH"), "PEACH");
        assert_eq!(insert_path_part("/", 0, "PEACH"), "/PEACH");
        assert_eq!(insert_path_part("/pie", 0, "PEACH"), "/PEACH/pie");
        assert_eq!(insert_path_part("raw", 9, "PEACH"), "raw/PEACH");
        assert_eq!(insert_path_part("/a/nice/warm/pie", 3, "PEACH"), "/a/nice/warm/PEACH/pie");
    }
}
