//! Values: what a chart ships, what a user sets, and how they become one tree.
//!
//! Trees a user or a file gives are JSON with Go's number rules: what was read from YAML or JSON is a float, what `--set` typed is
//! a whole number, and templates can tell the two apart. Coalescing works on the shared maps of [`gotemplate`], because Helm's
//! own coalescing shares maps between charts and templates see that.

mod coalesce;
mod documents;
mod set;
mod table;

use serde_json::{Map, Value as Json};

pub use set::SetError;

pub(crate) use coalesce::{Coalescing, coalesce_tables, coalesce_values};
pub(crate) use documents::load_values;
pub(crate) use table::{Lookup, from_json, path_value, table, table_at, to_json};

use crate::Dialect;

/// Values a user passes to a release.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Map<String, Json>);

/// How the right side of `key=value` is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// `--set`: `true`, `null` and whole numbers are what they look like.
    Typed,
    /// `--set-string`: everything is a string.
    Text,
    /// `--set-json`: the value is JSON.
    Json,
    /// `--set-literal`: everything after `=` is the value, whatever it holds.
    Literal,
}

impl Values {
    pub fn new() -> Values {
        Values::default()
    }

    /// Reads a values file. Helm 4 merges the documents of a stream, Helm 3 reads the first.
    pub fn from_yaml(data: &[u8], dialect: Dialect) -> Result<Values, String> {
        load_values(data, dialect).map(Values)
    }

    /// Values from a JSON tree, such as a HelmRelease's; its numbers become floats, as Go's decoder makes them.
    pub fn from_json(tree: Json) -> Option<Values> {
        match crate::document::with_float_numbers(tree) {
            Json::Object(entries) => Some(Values(entries)),
            Json::Null => Some(Values::default()),
            _ => None,
        }
    }

    /// Values exactly as given, whole numbers included.
    pub fn from_map(entries: Map<String, Json>) -> Values {
        Values(entries)
    }

    /// Lays `other` over these: tables are merged, everything else is replaced.
    pub fn merge(&mut self, other: Values) {
        merge_maps(&mut self.0, other.0);
    }

    /// Sets what an expression such as `a.b[0]=c,d={x,y}` says.
    pub fn set(&mut self, expression: &str, mode: SetMode) -> Result<(), SetError> {
        match mode {
            SetMode::Typed => set::parse_into(expression, &mut self.0, set::Reading::Typed),
            SetMode::Text => set::parse_into(expression, &mut self.0, set::Reading::Text),
            SetMode::Json => set::parse_into(expression, &mut self.0, set::Reading::Json),
            SetMode::Literal => set::parse_into(expression, &mut self.0, set::Reading::Literal),
        }
    }

    /// `--set-json` of Helm 4 also takes a whole object.
    pub fn set_json_object(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let entries: Map<String, Json> = serde_json::from_str(text)?;
        let Json::Object(entries) = crate::document::with_float_numbers(Json::Object(entries)) else {
            return Ok(());
        };
        merge_maps(&mut self.0, entries);
        Ok(())
    }

    /// `--set-file`: `read` turns what stands right of `=` into the text that becomes the value.
    pub fn set_file(
        &mut self,
        expression: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(), SetError> {
        set::parse_into(expression, &mut self.0, set::Reading::File(read))
    }

    /// Puts a value at a path in the syntax of `--set`, as Flux's `targetPath` does: `text` is typed as `--set` types it, unless it
    /// stands in quotes, which keep it a string.
    pub fn set_at(&mut self, path: &str, text: &str) -> Result<(), SetError> {
        let quoted = |q: char| text.len() >= 2 && text.starts_with(q) && text.ends_with(q);
        let expression = format!("{path}={text}");
        if quoted('"') || quoted('\'') {
            let inner = &text[1..text.len() - 1];
            return self.set(&format!("{path}={inner}"), SetMode::Text);
        }
        self.set(&expression, SetMode::Typed)
    }

    pub fn as_map(&self) -> &Map<String, Json> {
        &self.0
    }

    pub fn into_map(self) -> Map<String, Json> {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

pub(crate) fn merge_maps(base: &mut Map<String, Json>, over: Map<String, Json>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Json::Object(below)), Json::Object(above)) => merge_maps(below, above),
            (Some(below), value) => *below = value,
            (None, value) => {
                base.insert(key, value);
            }
        }
    }
}
