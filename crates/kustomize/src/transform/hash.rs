//! The hash of a generated object's content, which becomes the end of its name.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::error::{Class, Error};
use crate::resource::Resource;
use crate::resources::{Resources, Workspace};
use crate::tree::{Kind, Tree};

/// Renames the resources that are due for it.
pub(crate) fn add_to_names(space: &mut Workspace, resources: &mut Resources) -> Result<(), Error> {
    if !resources.list().iter().any(|resource| resource.memory.needs_hash) {
        return Ok(());
    }
    for resource in resources.list_to_change() {
        if !resource.memory.needs_hash {
            continue;
        }
        let hash = hash(&space.tree, resource)?;
        resource.store_previous_id(&mut space.tree, &space.schemas)?;
        let name = format!("{}-{hash}", resource.name(&space.tree));
        resource.set_name(&mut space.tree, &name)?;
    }
    Ok(())
}

fn hash(tree: &Tree, resource: &Resource) -> Result<String, Error> {
    let field = |name: &str| content(tree, resource, name);
    // The name is part of the form, but kustomize never finds it there.
    let value = match resource.kind(tree).as_str() {
        "ConfigMap" => {
            let mut value = json!({"kind": "ConfigMap", "name": "", "data": field("data")?});
            add_map(&mut value, "binaryData", field("binaryData")?);
            value
        }
        "Secret" => {
            let mut value =
                json!({"kind": "Secret", "type": field("type")?, "name": "", "data": field("data")?});
            add_map(&mut value, "stringData", field("stringData")?);
            value
        }
        _ => match resource.root {
            Some(root) => tree.to_json(root).map_err(unreadable)?,
            None => Value::Null,
        },
    };
    Ok(encode(&Sha256::digest(yaml::json_text(&value).as_bytes())))
}

fn add_map(value: &mut Value, name: &str, map: Value) {
    if let (Value::Object(fields), Value::Object(_)) = (value, &map) {
        fields.insert(name.to_owned(), map);
    }
}

/// A top-level field: its text if it is a scalar, its entries if it is a map.
fn content(tree: &Tree, resource: &Resource, name: &str) -> Result<Value, Error> {
    let Some(node) = resource.root.and_then(|root| tree.get(root, name)) else { return Ok(json!("")) };
    if tree.kind(node) == Kind::Scalar {
        return Ok(json!(tree.text(node)));
    }
    let value = tree.to_json(node).map_err(unreadable)?;
    Ok(if value.is_object() { value } else { Value::Object(Map::new()) })
}

fn unreadable(error: yaml::EmitError) -> Error {
    Error::new(Class::Generator, error.to_string())
}

/// Ten characters, without those that might form words.
fn encode(digest: &[u8]) -> String {
    let hex = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]).take(10);
    hex.map(|digit| match digit {
        0 => 'g',
        1 => 'h',
        3 => 'k',
        10 => 'm',
        14 => 't',
        digit => char::from_digit(u32::from(digit), 16).unwrap_or('x'),
    })
    .collect()
}
