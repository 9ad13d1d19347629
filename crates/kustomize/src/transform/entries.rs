//! Labels and annotations: the same entry in every map that a field spec names.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::field_specs::{Create, Visitor};
use crate::kustomization::FieldSpec;
use crate::resources::{Resources, Workspace};
use crate::tree::{Kind, ScalarStyle, Tag};

/// Sets each entry in the maps of every resource.
pub(crate) fn add(
    space: &mut Workspace,
    resources: &mut Resources,
    entries: &BTreeMap<String, String>,
    specs: &[FieldSpec],
) -> Result<(), Error> {
    let visitors = Visitor::all(specs, Some(Create { kind: Kind::Map, tag: Tag::Map }));
    for resource in resources.list_mut() {
        let Some(root) = resource.root else { continue };
        let here: Vec<&Visitor<'_>> =
            visitors.iter().filter(|visitor| visitor.applies(&space.tree, root)).collect();
        for (key, value) in entries {
            // One node for all places: see `tree` for why that matters.
            let node = space.tree.scalar(value.as_str(), Tag::Str, ScalarStyle::Plain);
            for visitor in &here {
                visitor
                    .visit_unchecked(&mut space.tree, root, &mut |tree, map| {
                        tree.set_field(map, key, node)?;
                        Ok(())
                    })
                    .map_err(|error| error.into_error())?;
            }
        }
    }
    resources.drop_empty(&space.tree);
    Ok(())
}
