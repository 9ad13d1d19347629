//! A values file: one or more YAML documents that hold tables.

use serde_json::{Map, Value as Json};

use super::merge_maps;
use crate::Dialect;
use crate::chart::{PREFIX, json_kind};
use crate::document;

pub(crate) fn load_values(data: &[u8], dialect: Dialect) -> Result<Map<String, Json>, String> {
    // Of all documents together, since they are merged.
    if data.len() > document::MAX_DOCUMENT {
        return Err(format!("values are larger than the maximum size {}", document::MAX_DOCUMENT));
    }
    match dialect {
        Dialect::Helm3 => table(data),
        Dialect::Helm4 => {
            let mut values = Map::new();
            for document in documents(data)? {
                merge_maps(
                    &mut values,
                    table(document).map_err(|cause| format!("cannot unmarshal yaml document: {cause}"))?,
                );
            }
            Ok(values)
        }
    }
}

fn table(data: &[u8]) -> Result<Map<String, Json>, String> {
    match document::parse(data)? {
        Json::Null => Ok(Map::new()),
        tree @ Json::Object(_) => match document::with_float_numbers(tree) {
            Json::Object(entries) => Ok(entries),
            _ => Ok(Map::new()),
        },
        other => Err(format!(
            "{PREFIX}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(&other)
        )),
    }
}

/// The documents of a stream, split by lines as Kubernetes' YAML reader does: a line that begins with `---` ends a document unless
/// nothing came before it, and may hold nothing else but a comment.
fn documents(data: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut at = 0;
    for line in data.split_inclusive(|b| *b == b'\n') {
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = String::from_utf8_lossy(rest);
            let rest = rest.trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err(format!("error reading yaml document: invalid Yaml document separator: {rest}"));
            }
            if at > start {
                found.push(&data[start..at]);
                start = at + line.len();
            }
        }
        at += line.len();
    }
    if at > start {
        found.push(&data[start..at]);
    }
    Ok(found)
}
