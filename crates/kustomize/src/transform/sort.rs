//! The order of the output: as read, or by kind.

use std::cmp::Ordering;

use crate::error::{Class, Error};
use crate::id::{Gvk, ORDER_FIRST, ORDER_LAST, ResId, kind_rank};
use crate::kustomization::SortOptions;
use crate::resources::{Resources, Workspace};

/// kustomize's classic order: namespaces first, webhooks last.
pub(crate) fn legacy(space: &Workspace, resources: &mut Resources) {
    let first: Vec<String> = ORDER_FIRST.map(str::to_owned).into();
    let last: Vec<String> = ORDER_LAST.map(str::to_owned).into();
    by_kind(space, resources, &first, &last);
}

/// Follows the `sortOptions` of the kustomization.
pub(crate) fn by_options(
    space: &Workspace,
    resources: &mut Resources,
    options: &SortOptions,
) -> Result<(), Error> {
    let config = |text: &str| Error::new(Class::Config, text);
    match options.order.as_str() {
        "fifo" if options.legacy.is_some() => Err(config(
            "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
        )),
        "fifo" => Ok(()),
        "legacy" => {
            match &options.legacy {
                None => legacy(space, resources),
                Some(legacy) => by_kind(space, resources, &legacy.order_first, &legacy.order_last),
            }
            Ok(())
        }
        _ => Err(config("the field 'sortOptions.order' must be one of [fifo, legacy]")),
    }
}

fn by_kind(space: &Workspace, resources: &mut Resources, first: &[String], last: &[String]) {
    let list = resources.list_to_change();
    let mut keyed: Vec<(Key, crate::resource::Resource)> = std::mem::take(list)
        .into_iter()
        .map(|resource| (Key::new(resource.id(&space.tree, &space.schemas), first, last), resource))
        .collect();
    keyed.sort_by(|(a, _), (b, _)| a.order(b));
    *list = keyed.into_iter().map(|(_, resource)| resource).collect();
}

/// What a resource is sorted by, worked out once.
struct Key {
    gvk: Gvk,
    rank: i64,
    gvk_text: String,
    id_text: String,
}

impl Key {
    fn new(id: ResId, first: &[String], last: &[String]) -> Self {
        let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
        Self {
            rank: kind_rank(&id.gvk.kind, first, last),
            gvk_text: id.gvk.sort_text(),
            id_text: format!("{}|{}|{}", id.gvk, or(&id.namespace, "~X"), or(&id.name, "~N")),
            gvk: id.gvk,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        if self.gvk.same(&other.gvk) {
            return self.id_text.cmp(&other.id_text);
        }
        let by_text = self.gvk_text.cmp(&other.gvk_text);
        let namespaces = self.gvk.kind == "Namespace" && other.gvk.kind == "Namespace";
        // Among namespaces the one of Kubernetes itself, which has no group, comes first.
        let reversed = namespaces && (self.gvk.group.is_empty() || other.gvk.group.is_empty());
        self.rank.cmp(&other.rank).then(if reversed { by_text.reverse() } else { by_text })
    }
}
