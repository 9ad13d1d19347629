//! Strategic merge as kyaml does it: maps field by field, lists by key where the schema names one.
//!
//! ```text
//! merge(dest, patch) ── map ── each field, sorted ── merge(field, field)
//!                    ├─ list with merge keys ── lists::Merge ── merge(element, element)
//!                    ├─ other list ── the patch's
//!                    └─ scalar ── the patch's
//! ```
//!
//! A part that only the patch has is merged with itself, which strips directives and nulls from it. kyaml does
//! not know `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList`: they end up as fields.

mod directive;
mod lists;

use kube_schema::Schema;

use crate::error::{Class, Error};
use crate::schemas::KnownSchemas;
use crate::tree::{Body, Kind, NodeId, ScalarStyle, Tag, Tree};
use directive::Directive;

/// How lists grow, and whether merge keys are guessed where there is no schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergeOptions {
    pub direction: Direction,
    pub infer_keys: bool,
}

/// Where new elements of a list go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "kyaml's default, which its own cases use; a build prepends")
    )]
    Append,
    Prepend,
}

impl MergeOptions {
    /// As in a build.
    pub(crate) const BUILD: Self = Self { direction: Direction::Prepend, infer_keys: false };
}

/// Merges `patch` into `dest` and returns the result, which is `dest` changed, or nothing if it was deleted.
/// The patch is used up: its nodes become part of the result.
pub(crate) fn merge(
    tree: &mut Tree,
    schemas: &KnownSchemas,
    dest: NodeId,
    patch: NodeId,
    options: MergeOptions,
) -> Result<Option<NodeId>, Error> {
    let mut merger = Merger { tree, schemas, options };
    let merged = merger.walk(Pair { dest: Some(dest), patch: Some(patch) }, None)?;
    Ok(merged.map(|merged| merged.node))
}

struct Merger<'a> {
    tree: &'a mut Tree,
    schemas: &'a KnownSchemas,
    options: MergeOptions,
}

/// What stands in one place of both sides.
#[derive(Clone, Copy, Debug)]
struct Pair {
    dest: Option<NodeId>,
    patch: Option<NodeId>,
}

/// What is known about the schema of a place.
#[derive(Clone, Copy)]
enum Known<'a> {
    Schema(Schema<'a>),
    /// A comment claims to be the schema, and says nothing that matters here.
    Comment,
}

impl<'a> Known<'a> {
    fn schema(self) -> Option<Schema<'a>> {
        match self {
            Self::Schema(schema) => Some(schema),
            Self::Comment => None,
        }
    }
}

/// The outcome for one place.
#[derive(Clone, Copy, Debug)]
struct Merged {
    node: NodeId,
    /// A null that was written out in the destination stays.
    keep_null: bool,
}

impl From<NodeId> for Merged {
    fn from(node: NodeId) -> Self {
        Self { node, keep_null: false }
    }
}

fn failed(text: impl ToString) -> Error {
    Error::new(Class::Patch, text.to_string())
}

impl<'a> Merger<'a> {
    fn walk(&mut self, pair: Pair, schema: Option<Known<'a>>) -> Result<Option<Merged>, Error> {
        let has_comment = [pair.dest, pair.patch]
            .into_iter()
            .flatten()
            .any(|node| !self.tree.is_null(node) && self.tree.schema_comment(node));
        let schema = if has_comment { Some(Known::Comment) } else { schema.or_else(|| self.schema_of(pair)) };
        match self.kind(pair) {
            None => self.walk_map(pair, schema),
            Some(kind) => {
                for node in [pair.dest, pair.patch].into_iter().flatten() {
                    self.tree.demand(node, kind).map_err(failed)?;
                }
                match kind {
                    Kind::Map => self.walk_map(pair, schema),
                    Kind::Seq if self.is_associative(pair, schema) => self.walk_list(pair, schema),
                    Kind::Seq => {
                        self.take_flow(pair);
                        Ok(pair.patch.or(pair.dest).map(Merged::from))
                    }
                    Kind::Scalar => Ok(pair.patch.or(pair.dest).map(Merged::from)),
                }
            }
        }
    }

    /// The kind of the first side that is not null.
    fn kind(&self, pair: Pair) -> Option<Kind> {
        [pair.dest, pair.patch]
            .into_iter()
            .flatten()
            .find(|node| !self.tree.is_null(*node))
            .map(|node| self.tree.kind(node))
    }

    /// An object inside a place without a schema brings its own.
    fn schema_of(&self, pair: Pair) -> Option<Known<'a>> {
        [pair.dest, pair.patch].into_iter().flatten().find_map(|node| {
            let field = |name| {
                let value = self.tree.get(node, name).filter(|value| !self.tree.is_null_or_empty(*value))?;
                Some(self.tree.text(value)).filter(|text| !text.is_empty())
            };
            self.schemas.of_kind(field("apiVersion")?, field("kind")?).map(Known::Schema)
        })
    }

    fn is_associative(&self, pair: Pair, schema: Option<Known<'_>>) -> bool {
        match schema {
            Some(Known::Schema(schema)) => schema.has_patch_strategy("merge"),
            Some(Known::Comment) => false,
            None => {
                self.options.infer_keys
                    && [pair.dest, pair.patch]
                        .into_iter()
                        .flatten()
                        .any(|node| !self.tree.is_null(node) && lists::guessed_key(self.tree, node).is_some())
            }
        }
    }

    fn walk_map(&mut self, mut pair: Pair, schema: Option<Known<'a>>) -> Result<Option<Merged>, Error> {
        let Some(result) = self.visit_map(pair)? else { return Ok(None) };
        let dest = result.node;
        pair.dest = Some(dest);
        for key in self.field_names(pair) {
            let dest_field = self.tree.entry(dest, &key);
            let patch_field = pair.patch.and_then(|patch| self.tree.entry(patch, &key));
            let fields =
                Pair { dest: dest_field.map(|(_, value)| value), patch: patch_field.map(|(_, value)| value) };
            let field_schema = self.field_schema(schema, &key, [dest_field, patch_field]);
            match self.walk(fields, field_schema)? {
                None if key.is_empty() => self.tree.demand(dest, Kind::Scalar).map_err(failed)?,
                None => self.tree.clear(dest, &key).map_err(failed)?,
                Some(Merged { node, keep_null }) => {
                    let style = key_style(self.tree, node, patch_field.or(dest_field));
                    self.tree.set_field_styled(dest, &key, node, style, keep_null).map_err(failed)?;
                }
            }
        }
        Ok(Some(result))
    }

    /// The schema of a field, unless a comment beside its key or value claims to be one.
    fn field_schema(
        &self,
        schema: Option<Known<'a>>,
        key: &str,
        fields: [Option<(NodeId, NodeId)>; 2],
    ) -> Option<Known<'a>> {
        let claimed =
            |(key, value): (NodeId, NodeId)| self.tree.schema_comment(value) || self.tree.schema_comment(key);
        if fields.into_iter().flatten().any(claimed) {
            return Some(Known::Comment);
        }
        schema.and_then(Known::schema).and_then(|schema| schema.child(key)).map(Known::Schema)
    }

    fn visit_map(&mut self, pair: Pair) -> Result<Option<Merged>, Error> {
        self.take_flow(pair);
        let Some(dest) = pair.dest.filter(|dest| !self.tree.is_null(*dest)) else {
            if let Some(patch) = pair.patch
                && matches!(directive::take(self.tree, patch), Ok(Directive::Delete))
            {
                return Ok(None);
            }
            if let (Some(null), None) = (pair.dest, pair.patch)
                && !self.tree.text(null).is_empty()
            {
                let text = self.tree.owned_text(null);
                let node = self.tree.scalar(text, Tag::Null, ScalarStyle::Plain);
                return Ok(Some(Merged { node, keep_null: true }));
            }
            return Ok(pair.patch.map(Merged::from));
        };
        let Some(patch) = pair.patch else { return Ok(Some(dest.into())) };
        if self.tree.is_null(patch) {
            return Ok(None);
        }
        Ok(match directive::take(self.tree, patch)? {
            Directive::Delete => None,
            Directive::Replace => Some(patch.into()),
            Directive::Merge => Some(dest.into()),
        })
    }

    /// Fields of both sides, sorted.
    fn field_names(&self, pair: Pair) -> Vec<String> {
        let mut names: Vec<String> = [pair.dest, pair.patch]
            .into_iter()
            .flatten()
            .flat_map(|node| {
                self.tree.entries(node).map(|(key, _)| self.tree.text(key).to_owned()).collect::<Vec<_>>()
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// An empty collection takes the brackets of the patch.
    fn take_flow(&mut self, pair: Pair) {
        let (Some(dest), Some(patch)) = (pair.dest, pair.patch) else { return };
        let from_patch = match &self.tree[patch].body {
            Body::Map { flow, .. } | Body::Seq { flow, .. } => *flow,
            Body::Scalar { .. } => false,
        };
        if let Body::Map { content, flow } | Body::Seq { content, flow } = &mut self.tree[dest].body
            && content.is_empty()
        {
            *flow = from_patch;
        }
    }
}

/// A key that has to be added is quoted as in the side its value came from.
fn key_style(tree: &Tree, value: NodeId, entry: Option<(NodeId, NodeId)>) -> ScalarStyle {
    match entry {
        Some((key, from)) if from == value => match &tree[key].body {
            Body::Scalar { style, .. } => *style,
            Body::Map { .. } | Body::Seq { .. } => ScalarStyle::Plain,
        },
        _ => ScalarStyle::Plain,
    }
}

#[cfg(test)]
mod tests;
