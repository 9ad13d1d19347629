//! Prefixes and suffixes of names.

use crate::error::Error;
use crate::field_specs::{Create, Visitor};
use crate::id::ResId;
use crate::kustomization::FieldSpec;
use crate::resources::{Resources, Workspace};
use crate::tree::{Kind, Tag};

/// Which end of the name changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affix {
    Prefix,
    Suffix,
}

/// Adds `text` to the fields of `specs`. An empty text still counts as having been here.
pub(crate) fn affix(
    space: &mut Workspace,
    resources: &mut Resources,
    affix: Affix,
    text: &str,
    specs: &[FieldSpec],
) -> Result<(), Error> {
    let visitors = Visitor::all(specs, Some(Create { kind: Kind::Scalar, tag: Tag::Str }));
    for resource in resources.list_to_change() {
        let id = resource.original_id(&space.tree, &space.schemas);
        if keeps_its_name(&id) {
            continue;
        }
        for (spec, visitor) in specs.iter().zip(&visitors) {
            if !id.gvk.selected_by(&spec.gvk()) {
                continue;
            }
            if spec.path == "metadata/name" && !text.is_empty() {
                let places = match affix {
                    Affix::Prefix => &mut resource.memory.prefixes,
                    Affix::Suffix => &mut resource.memory.suffixes,
                };
                // Kept as a comma-separated list by kustomize, so that a comma in it counts as two.
                places.extend(text.split(',').map(Into::into));
                resource.store_previous_id(&mut space.tree, &space.schemas)?;
            }
            let Some(root) = resource.root else { continue };
            visitor
                .visit(&mut space.tree, root, &mut |tree, node| {
                    let old = tree.text(node);
                    let new = match affix {
                        Affix::Prefix => format!("{text}{old}"),
                        Affix::Suffix => format!("{old}{text}"),
                    };
                    let value = tree.plain(new);
                    Ok(tree.set_scalar(node, value)?)
                })
                .map_err(|error| error.into_error())?;
        }
    }
    Ok(())
}

/// Kinds whose name means something to others.
fn keeps_its_name(id: &ResId) -> bool {
    match id.gvk.kind.as_str() {
        "CustomResourceDefinition" | "Namespace" => true,
        "APIService" => id.gvk.group == "apiregistration.k8s.io",
        _ => false,
    }
}
