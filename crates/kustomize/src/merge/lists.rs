//! Lists merged element by element: elements with the same keys are one.

use super::{Direction, Known, Merged, Merger, Pair, directive, failed};
use crate::error::{Class, Error};
use crate::merge::directive::Directive;
use crate::tree::{ElementSet, Kind, NodeId, Tree};

/// Merging compares elements with one another; beyond this many comparisons an input is refused.
const MAX_COMPARISONS: usize = 200_000_000;

/// The key by which the elements of a list can be told apart when no schema says so: all must have it.
pub(super) fn guessed_key(tree: &Tree, list: NodeId) -> Option<&'static str> {
    tree.content(list).iter().all(|item| tree.get(*item, "name").is_some()).then_some("name")
}

impl<'a> Merger<'a> {
    pub(super) fn walk_list(
        &mut self,
        mut pair: Pair,
        schema: Option<Known<'a>>,
    ) -> Result<Option<Merged>, Error> {
        let Some(dest) = self.visit_list(pair)? else { return Ok(None) };
        pair.dest = Some(dest);
        let mut keys: Vec<String> = Vec::new();
        let mut strategy = None;
        let schema = schema.and_then(Known::schema);
        if let Some(schema) = schema {
            strategy = schema.patch_strategy();
            keys = schema.merge_keys().into_iter().map(str::to_owned).collect();
        }
        if strategy.is_none() && keys.is_empty() {
            keys.push(self.guess_key(pair)?);
        }
        let items = schema.and_then(|schema| schema.items()).map(Known::Schema);
        let merged = if keys.is_empty() {
            let values = self.primitive_values(pair);
            self.merge_elements(pair, dest, &[String::new()], values, items)?
        } else {
            let values = self.key_values(pair, &keys);
            self.merge_elements(pair, dest, &keys, values, items)?
        };
        Ok(Some(merged).filter(|list| !self.tree.is_null(*list)).map(Merged::from))
    }

    fn visit_list(&mut self, pair: Pair) -> Result<Option<NodeId>, Error> {
        self.take_flow(pair);
        let Some(dest) = pair.dest.filter(|dest| !self.tree.is_null(*dest)) else { return Ok(pair.patch) };
        let Some(patch) = pair.patch else { return Ok(Some(dest)) };
        if self.tree.is_null(patch) {
            return Ok(None);
        }
        Ok(match directive::take(self.tree, patch)? {
            Directive::Delete => None,
            Directive::Replace => Some(patch),
            Directive::Merge => Some(dest),
        })
    }

    fn guess_key(&self, pair: Pair) -> Result<String, Error> {
        let mut key: Option<&str> = None;
        for list in [pair.dest, pair.patch].into_iter().flatten() {
            if self.tree.content(list).is_empty() {
                continue;
            }
            let guessed = guessed_key(self.tree, list);
            if let (Some(known), None) = (key, guessed) {
                return Err(failed(format!("conflicting merge keys [{known},] for field ")));
            }
            key = guessed;
        }
        key.map(str::to_owned).ok_or_else(|| failed("no merge key found for field "))
    }

    /// The lists in the order in which their elements come out.
    fn in_order(&self, pair: Pair) -> impl Iterator<Item = NodeId> + use<> {
        let order = match self.options.direction {
            Direction::Prepend => [pair.patch, pair.dest],
            Direction::Append => [pair.dest, pair.patch],
        };
        order.into_iter().flatten()
    }

    /// The values of the keys of every element, each combination once.
    fn key_values(&self, pair: Pair, keys: &[String]) -> Vec<Vec<String>> {
        let mut seen = std::collections::HashSet::new();
        let mut all = Vec::new();
        for list in self.in_order(pair) {
            for item in self.tree.content(list) {
                let values: Vec<String> = keys
                    .iter()
                    .map(|key| {
                        let field =
                            self.tree.get(*item, key).filter(|node| !self.tree.is_null_or_empty(*node));
                        field.map(|node| self.tree.text(node).to_owned()).unwrap_or_default()
                    })
                    .collect();
                if seen.insert(values.clone()) {
                    all.push(values);
                }
            }
        }
        all
    }

    fn primitive_values(&self, pair: Pair) -> Vec<Vec<String>> {
        let mut seen = std::collections::HashSet::new();
        let mut all = Vec::new();
        for list in self.in_order(pair) {
            for item in self.tree.content(list) {
                let text = self.tree.text(*item).to_owned();
                if seen.insert(text.clone()) {
                    all.push(vec![text]);
                }
            }
        }
        all
    }

    fn merge_elements(
        &mut self,
        pair: Pair,
        dest: NodeId,
        keys: &[String],
        mut all: Vec<Vec<String>>,
        schema: Option<Known<'a>>,
    ) -> Result<NodeId, Error> {
        let lengths: usize =
            [Some(dest), pair.patch].into_iter().flatten().map(|list| self.tree.content(list).len()).sum();
        if all.len().saturating_mul(lengths) > MAX_COMPARISONS {
            let text = format!("a list of {lengths} elements is too long to be merged by its keys");
            return Err(Error::new(Class::Limit, text));
        }
        if keys.len() > 1 {
            fill_blanks(&mut all);
        }
        let used = used_keys(&all, keys);
        let added = self.tree.empty(Kind::Seq);
        for values in &all {
            let (keys, values) = (select(keys, &used), select(values, &used));
            self.merge_element(pair, dest, added, &keys, &values, schema)?;
        }
        if all.is_empty() {
            return Ok(dest);
        }
        let keys = select(keys, &used);
        match self.options.direction {
            Direction::Prepend => self.append_elements(added, dest, &keys),
            Direction::Append => self.append_elements(dest, added, &keys),
        }
    }

    fn merge_element(
        &mut self,
        pair: Pair,
        dest: NodeId,
        added: NodeId,
        keys: &[String],
        values: &[String],
        schema: Option<Known<'a>>,
    ) -> Result<(), Error> {
        let elements = self.elements_with(pair, keys, values);
        let merged = self.walk(elements, schema)?.map(|merged| merged.node);
        let Some(element) = merged.filter(|node| !self.tree.is_null(*node) && !self.tree.is_empty_map(*node))
        else {
            let set = ElementSet { element: None, keys, values };
            return self.tree.set_element(dest, set).map_err(failed);
        };
        for (key, value) in keys.iter().zip(values) {
            if self.tree.get(element, key).is_none() && !value.is_empty() {
                let value = self.tree.plain(value.as_str());
                if key.is_empty() {
                    self.tree.set_scalar(element, value).map_err(failed)?;
                } else {
                    self.tree.set_field(element, key, value).map_err(failed)?;
                }
            }
        }
        let set = ElementSet { element: Some(element), keys, values };
        self.tree.set_element(added, set).map_err(failed)
    }

    /// The elements of both lists with these values; keys without a value do not count.
    fn elements_with(&self, pair: Pair, keys: &[String], values: &[String]) -> Pair {
        let used = used_keys(std::slice::from_ref(&values.to_vec()), keys);
        let (keys, values) = (select(keys, &used), select(values, &used));
        let find = |list: Option<NodeId>| list.and_then(|list| self.tree.find_element(list, &keys, &values));
        Pair { dest: find(pair.dest), patch: find(pair.patch) }
    }

    /// Puts the elements of `source` behind those of `list`; one with the keys of another takes its place.
    fn append_elements(&mut self, list: NodeId, source: NodeId, keys: &[String]) -> Result<NodeId, Error> {
        for element in self.tree.content(source).to_vec() {
            if keys.first().is_none_or(String::is_empty) {
                let values = [self.tree.text(element).to_owned()];
                let set = ElementSet { element: Some(element), keys: &[String::new()], values: &values };
                self.tree.set_element(list, set).map_err(failed)?;
                continue;
            }
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                match self.tree.field(element, key).map_err(failed)? {
                    Some(value) => values.push(self.tree.text(value).to_owned()),
                    // kyaml adds the element for each key that it lacks, and sorts that out below.
                    None => {
                        if let Some(content) = self.tree.content_mut(list) {
                            content.push(element);
                        }
                    }
                }
            }
            if keys.len() > 1 {
                self.tree
                    .set_element(list, ElementSet { element: None, keys, values: &values })
                    .map_err(failed)?;
            }
            let set = ElementSet { element: Some(element), keys, values: &values };
            self.tree.set_element(list, set).map_err(failed)?;
        }
        Ok(list)
    }
}

/// Which keys have a value in any element; all of them if none has.
fn used_keys(all: &[Vec<String>], keys: &[String]) -> Vec<bool> {
    let used: Vec<bool> = (0..keys.len())
        .map(|at| all.iter().any(|values| values.get(at).is_some_and(|value| !value.is_empty())))
        .collect();
    if used.iter().any(|used| *used) { used } else { vec![true; keys.len()] }
}

fn select(texts: &[String], used: &[bool]) -> Vec<String> {
    texts.iter().zip(used).filter(|(_, used)| **used).map(|(text, _)| text.clone()).collect()
}

/// With several keys, an element that lacks one is the same as one that agrees in the others.
fn fill_blanks(all: &mut [Vec<String>]) {
    if !all.iter().flatten().any(String::is_empty) {
        return;
    }
    for i in 0..all.len() {
        let own = all[i].clone();
        for j in 0..all.len() {
            if let Some(values) = agreement(&own, &all[j]) {
                all[i].clone_from(&values);
                all[j] = values;
            }
        }
    }
}

fn agreement(a: &[String], b: &[String]) -> Option<Vec<String>> {
    let mut common = false;
    let mut values = Vec::with_capacity(a.len());
    for (a, b) in a.iter().zip(b) {
        if a == b {
            common = true;
        } else if !a.is_empty() && !b.is_empty() {
            return None;
        }
        values.push(if a.is_empty() { b.clone() } else { a.clone() });
    }
    common.then_some(values)
}
