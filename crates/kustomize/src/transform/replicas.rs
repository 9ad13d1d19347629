//! Counts of replicas, by the name a resource has or had.

use crate::error::{Class, Error};
use crate::field_specs::{Create, Visitor};
use crate::kustomization::{FieldSpec, Replica};
use crate::resources::{Resources, Workspace};
use crate::tree::{Kind, ScalarStyle, Tag};

/// Sets the count of the resources called `replica.name` in the fields of the specs.
pub(crate) fn set(
    space: &mut Workspace,
    resources: &mut Resources,
    replica: &Replica,
    specs: &[FieldSpec],
) -> Result<(), Error> {
    let mut found = false;
    let named: Vec<usize> = resources
        .list()
        .iter()
        .enumerate()
        .filter(|(_, resource)| {
            resource.memory.previous_names().iter().any(|name| *name == replica.name)
                || resource.name(&space.tree) == replica.name
        })
        .map(|(at, _)| at)
        .collect();
    for spec in specs {
        let visitor = Visitor::new(spec, Some(Create { kind: Kind::Scalar, tag: Tag::Int }));
        let gvk = spec.gvk();
        for at in &named {
            let resource = &resources.list()[*at];
            let current = resource.id(&space.tree, &space.schemas);
            let matches = resource
                .previous_ids(&space.tree)
                .chain([current])
                .any(|id| id.name == replica.name && id.gvk.selected_by(&gvk));
            let Some(root) = resource.root.filter(|_| matches) else { continue };
            found = true;
            visitor
                .visit(&mut space.tree, root, &mut |tree, node| {
                    let count = tree.scalar(replica.count.to_string(), Tag::Int, ScalarStyle::Plain);
                    Ok(tree.set_scalar(node, count)?)
                })
                .map_err(|error| error.into_error())?;
        }
    }
    if found {
        return Ok(());
    }
    let kinds: Vec<String> = specs.iter().map(|spec| spec.gvk().to_string()).collect();
    let text = format!(
        "resource with name {} does not match a config with the following GVK {}",
        replica.name,
        crate::go_text::list(&kinds)
    );
    Err(Error::new(Class::Config, text))
}
