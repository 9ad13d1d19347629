//! Rendered text to manifests: splitting documents, reading their heads, telling hooks from the rest, and kind order.

mod head;
mod kind_order;
mod sort;
mod split;

pub use head::Head;
pub use kind_order::KindOrder;
pub use sort::{
    DeletePolicy, Hook, HookEvent, HookExecution, HookPhase, Manifest, OutputLogPolicy, Sorted,
    sort_manifests,
};
pub use split::split_manifests;

/// `helm.sh/resource-policy`.
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// Whether the annotation asks to leave the object alone when its release goes.
pub fn is_kept(annotations: Option<&std::collections::BTreeMap<String, String>>) -> bool {
    annotations
        .and_then(|a| a.get(RESOURCE_POLICY))
        .is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}
