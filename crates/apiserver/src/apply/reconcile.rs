//! Ownership after a schema change: a place that became atomic is owned as a whole.
//!
//! The other way round needs nothing: whoever owned the whole keeps owning it.

use super::path::{Path, PathElement};
use super::schema::Type;
use super::set::Set;
use super::typed::{Treated, treat};

/// The set as the schema of today would have it; none when nothing changed.
pub(super) fn reconcile(set: &Set, type_: Type<'_>) -> Option<Set> {
    let mut atomic = Set::default();
    visit(Some(set), type_, false, &mut Vec::new(), &mut atomic);
    (!atomic.is_empty()).then(|| set.recursive_difference(&atomic).union(&atomic))
}

fn visit(set: Option<&Set>, type_: Type<'_>, owned_whole: bool, path: &mut Path, atomic: &mut Set) {
    match treat(type_.atom()) {
        Err(_) | Ok(Treated::Scalar(_)) => {}
        Ok(Treated::List(list)) => {
            if list.is_atomic() && !owned_whole {
                atomic.insert(path);
            } else if let Some(set) = set {
                descend(set, path, atomic, |_| list.items);
            }
        }
        Ok(Treated::Map(_)) if type_.is_deduced_map() => {}
        Ok(Treated::Map(map)) => {
            if map.atomic && !owned_whole {
                if set.is_some_and(|set| !set.is_empty()) {
                    atomic.insert(path);
                }
            } else if let Some(set) = set {
                descend(set, path, atomic, |element| match element {
                    PathElement::Field(name) => map.child(name),
                    PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_) => Type::Missing,
                });
            }
        }
    }
}

fn descend<'a>(set: &Set, path: &mut Path, atomic: &mut Set, below: impl Fn(&PathElement) -> Type<'a>) {
    let only_children = set.children.keys().filter(|element| !set.members.contains(element));
    for element in only_children.chain(&set.members) {
        let type_ = below(element);
        if matches!(type_, Type::Missing) {
            continue;
        }
        let children = set.children.get(element);
        path.push(element.clone());
        visit(children, type_, set.members.contains(element) && children.is_none(), path, atomic);
        path.pop();
    }
}
