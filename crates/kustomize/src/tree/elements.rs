//! Elements of lists: matching and setting them by key, as kyaml's `ElementMatcher` and `ElementSetter` do.

use super::fields::WrongKind;
use super::{Body, Kind, NodeId, Tree};

/// What to do with the elements of a list whose `keys` have these `values`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementSet<'a> {
    /// What takes their place; nothing removes them.
    pub element: Option<NodeId>,
    /// A single empty key means the elements are scalars.
    pub keys: &'a [String],
    pub values: &'a [String],
}

impl Tree {
    /// The items of a list; null has none, anything else is an error.
    pub(crate) fn elements(&self, list: NodeId) -> Result<&[NodeId], WrongKind> {
        self.demand(list, Kind::Seq)?;
        Ok(match &self[list].body {
            Body::Seq { content, .. } => content,
            Body::Scalar { .. } | Body::Map { .. } => &[],
        })
    }

    /// The first element whose fields have these values, or for one empty key the first scalar of that text.
    pub(crate) fn find_element(&self, list: NodeId, keys: &[String], values: &[String]) -> Option<NodeId> {
        let items = self.elements(list).ok()?;
        let primitive = keys.first().is_none_or(String::is_empty);
        items.iter().copied().find(|item| {
            if primitive {
                return self.text(*item) == values.first().map_or("", String::as_str);
            }
            // An element that is null or no map has no field to compare.
            self.kind(*item) == Kind::Map
                && keys.len() == values.len()
                && keys
                    .iter()
                    .zip(values)
                    .all(|(key, value)| self.get(*item, key).is_some_and(|field| self.text(field) == value))
        })
    }

    /// Replaces or removes the matching elements; a new element that matches none is appended. Empty maps and
    /// nulls are dropped on the way, as kyaml does.
    pub(crate) fn set_element(&mut self, list: NodeId, set: ElementSet<'_>) -> Result<(), WrongKind> {
        self.demand(list, Kind::Seq)?;
        let mut content = Vec::with_capacity(self.content(list).len() + 1);
        let mut found = false;
        for item in self.content(list).to_vec() {
            match self.element_verdict(item, set)? {
                Verdict::Drop => {}
                Verdict::Keep => content.push(item),
                Verdict::Match => {
                    found = true;
                    content.extend(set.element);
                }
            }
        }
        if let Some(element) = set.element
            && !found
            && !self.is_null(element)
        {
            content.push(element);
        }
        if let Some(place) = self.content_mut(list) {
            *place = content;
        }
        Ok(())
    }

    fn element_verdict(&self, item: NodeId, set: ElementSet<'_>) -> Result<Verdict, WrongKind> {
        if self.is_null(item) || self.is_empty_map(item) {
            return Ok(Verdict::Drop);
        }
        let by_field = set.keys.first().is_some_and(|key| !key.is_empty())
            && set.values.first().is_some_and(|value| !value.is_empty());
        if self.kind(item) != Kind::Map && by_field {
            return Ok(Verdict::Keep);
        }
        // With fewer values than keys the last comparison stands for the rest, as in kyaml.
        let mut matches = false;
        for (at, key) in set.keys.iter().enumerate() {
            if let Some(value) = set.values.get(at) {
                matches = self.field_has(item, key, value)?;
            }
            if !matches {
                break;
            }
        }
        Ok(match (matches, set.values.is_empty()) {
            (true, _) => Verdict::Match,
            (false, false) => Verdict::Keep,
            (false, true) => Verdict::Drop,
        })
    }

    /// kyaml's `FieldMatcher` with a value: an empty one accepts any.
    fn field_has(&self, item: NodeId, key: &str, value: &str) -> Result<bool, WrongKind> {
        if key.is_empty() {
            self.demand(item, Kind::Scalar)?;
            return Ok(self.text(item) == value);
        }
        let field = self.field(item, key)?;
        Ok(field.is_some_and(|field| value.is_empty() || self.text(field) == value))
    }
}

enum Verdict {
    Drop,
    Keep,
    Match,
}
