//! What changed between two objects, as sets of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::merge::same;
use super::path::{Path, PathElement, equal};
use super::schema::{Atom, List, Type};
use super::set::Set;
use super::typed::{Mismatches, Treated, check_scalar, deduce, element_of, treat};

#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    /// Leaves out fields that the server resets anyway.
    pub(super) fn without(self, reset: &Set) -> Comparison {
        Comparison {
            removed: self.removed.recursive_difference(reset),
            modified: self.modified.recursive_difference(reset),
            added: self.added.recursive_difference(reset),
        }
    }
}

pub(super) fn compare(before: &Value, after: &Value, type_: Type<'_>) -> Result<Comparison, Mismatches> {
    let mut walker = Walker { path: Vec::new(), out: Comparison::default() };
    walker.compare(Some(before), Some(after), type_)?;
    Ok(walker.out)
}

struct Walker {
    path: Path,
    out: Comparison,
}

impl Walker {
    fn compare(
        &mut self,
        before: Option<&Value>,
        after: Option<&Value>,
        type_: Type<'_>,
    ) -> Result<(), Mismatches> {
        let atom = type_.atom();
        let (of_before, of_after) = (deduce(atom, before), deduce(atom, after));
        let was_leaf = match (before, after) {
            (_, None) => self.walk(of_before, before, after)?,
            (None, _) => self.walk(of_after, before, after)?,
            _ if same(of_before, of_after) => self.walk(of_after, before, after)?,
            _ => {
                self.walk(of_before, before, after)?;
                self.walk(of_after, before, after)?
            }
        };
        if !was_leaf {
            match (before, after) {
                (None, _) => self.out.added.insert(&self.path),
                (_, None) => self.out.removed.insert(&self.path),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares as the atom says; answers whether the place was compared as a whole.
    fn walk(
        &mut self,
        atom: Atom<'_>,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<bool, Mismatches> {
        match treat(atom)? {
            Treated::Scalar(scalar) => {
                let check =
                    |value: Option<&Value>, side| value.map(|value| check_scalar(scalar, value, side));
                if let (Some(mut left), Some(right)) = (check(before, "lhs: "), check(after, "rhs: "))
                    && !left.is_empty()
                    && !right.is_empty()
                {
                    left.add(right, &"");
                    return Err(left);
                }
                self.leaf(before, after);
                Ok(true)
            }
            Treated::List(list) => {
                let items = |value: Option<&Value>| value.and_then(Value::as_array).map_or(0, Vec::len);
                if list.is_atomic() || items(before) == 0 && items(after) == 0 {
                    self.leaf(before, after);
                    return Ok(true);
                }
                self.items(before, after, list)?;
                Ok(false)
            }
            Treated::Map(map) => {
                let none = Map::new();
                let left = before.and_then(Value::as_object).unwrap_or(&none);
                let right = after.and_then(Value::as_object).unwrap_or(&none);
                if map.atomic || left.is_empty() && right.is_empty() {
                    self.leaf(before, after);
                    return Ok(true);
                }
                let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
                for name in names {
                    self.under(PathElement::field(name), left.get(name), right.get(name), map.child(name))?;
                }
                Ok(false)
            }
        }
    }

    fn leaf(&mut self, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (None, _) => self.out.added.insert(&self.path),
            (_, None) => self.out.removed.insert(&self.path),
            (Some(before), Some(after)) if !equal(before, after) => self.out.modified.insert(&self.path),
            _ => {}
        }
    }

    fn under(
        &mut self,
        element: PathElement,
        before: Option<&Value>,
        after: Option<&Value>,
        type_: Type<'_>,
    ) -> Result<(), Mismatches> {
        self.path.push(element);
        let result = self.compare(before, after, type_);
        let element = self.path.pop();
        result.map_err(|mismatches| {
            let mut out = Mismatches::default();
            if let Some(element) = element {
                out.add(mismatches, &element);
            }
            out
        })
    }

    fn items(
        &mut self,
        before: Option<&Value>,
        after: Option<&Value>,
        list: List<'_>,
    ) -> Result<(), Mismatches> {
        let left = by_element(before, list)?;
        let right = by_element(after, list)?;
        let elements: BTreeSet<&PathElement> = left.keys().chain(right.keys()).collect();
        for element in elements {
            let left = left.get(element).map_or(&[][..], Vec::as_slice);
            let right = right.get(element).map_or(&[][..], Vec::as_slice);
            let place: Path = self.path.iter().chain([element]).cloned().collect();
            match (left.len(), right.len()) {
                (0 | 1, 0 | 1) => {
                    self.under(element.clone(), left.first().copied(), right.first().copied(), list.items)?;
                }
                // Items that are there twice are compared as a whole, and owned only as a whole.
                (2.., 2..) => {
                    let same = left.len() == right.len()
                        && left.iter().zip(right).all(|(left, right)| equal(left, right));
                    if !same {
                        self.out.modified.insert(&place);
                    }
                }
                (2.., _) => {
                    if let Some(item) = right.first() {
                        self.under(element.clone(), None, Some(item), list.items)?;
                    }
                    self.out.removed.insert(&place);
                }
                (_, 2..) => {
                    if let Some(item) = left.first() {
                        self.under(element.clone(), Some(item), None, list.items)?;
                    }
                    self.out.added.insert(&place);
                }
            }
        }
        Ok(())
    }
}

fn by_element<'a>(
    value: Option<&'a Value>,
    list: List<'_>,
) -> Result<BTreeMap<PathElement, Vec<&'a Value>>, Mismatches> {
    let (mut out, mut wrong) = (BTreeMap::<_, Vec<_>>::new(), Mismatches::default());
    for (index, item) in value.and_then(Value::as_array).into_iter().flatten().enumerate() {
        match element_of(item, list) {
            Ok(element) => out.entry(element).or_default().push(item),
            Err(error) => wrong.add(Mismatches::one(format!("element {index}: {error}")), &""),
        }
    }
    wrong.result(out)
}
