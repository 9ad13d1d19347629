//! Field specs from `crds`: OpenAPI definitions whose extensions mark labels, annotations, names and references.

use std::rc::Rc;

use serde_json::{Map, Value};

use super::{FieldSpecs, NameReference, Specs, merge_reference, merge_spec};
use crate::error::{Class, Error};
use crate::kustomization::FieldSpec;
use crate::load::Loader;

/// References may go round in circles; no real definition nests deeper.
const MAX_DEPTH: usize = 64;

/// What the files under `crds` add to the field specs.
pub(crate) fn from_crds(loader: &Loader<'_>, paths: &[String]) -> Result<FieldSpecs, Error> {
    let mut all = FieldSpecs::Empty;
    for path in paths {
        let content = loader.load(path)?;
        let definitions = read(&content).map_err(|cause| {
            Error::new(Class::Schema, cause)
                .context(format!("unable to parse open API definition from '{path}'"))
        })?;
        for (name, definition) in &definitions {
            if !is_kind(definition) {
                continue;
            }
            let kind = name.rsplit('.').next().unwrap_or(name);
            let mut reader = Reader { definitions: &definitions, kind, specs: Specs::default() };
            reader.read(name, &mut Vec::new())?;
            all = all.merge(&FieldSpecs::Own(Rc::new(reader.specs)))?;
        }
    }
    Ok(all)
}

fn read(content: &[u8]) -> Result<Map<String, Value>, String> {
    let json = match content.first() {
        None => return Err("the file is empty".to_owned()),
        Some(b'{') => serde_json::from_slice(content).map_err(|error| error.to_string())?,
        Some(_) => crate::yaml_text::to_json(content)?,
    };
    match json {
        Value::Object(definitions) => Ok(definitions),
        Value::Null => Ok(Map::new()),
        _ => Err("json: cannot unmarshal a value that is no object into a map of definitions".to_owned()),
    }
}

fn properties(definition: &Value) -> Option<&Map<String, Value>> {
    let schema = definition.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case("schema"))?.1;
    schema.get("properties")?.as_object()
}

fn is_kind(definition: &Value) -> bool {
    properties(definition).is_some_and(|properties| {
        ["kind", "apiVersion", "metadata"].iter().all(|name| properties.contains_key(*name))
    })
}

struct Reader<'a> {
    definitions: &'a Map<String, Value>,
    kind: &'a str,
    specs: Specs,
}

impl Reader<'_> {
    fn read(&mut self, definition: &str, path: &mut Vec<String>) -> Result<(), Error> {
        if path.len() > MAX_DEPTH {
            return Err(Error::new(
                Class::Limit,
                format!("definitions below {definition} nest deeper than {MAX_DEPTH} levels"),
            ));
        }
        let Some(properties) = self.definitions.get(definition).and_then(properties) else { return Ok(()) };
        for (name, property) in properties {
            path.push(name.clone());
            self.property(property, path)?;
            path.pop();
        }
        Ok(())
    }

    fn property(&mut self, property: &Value, path: &mut Vec<String>) -> Result<(), Error> {
        let mark = |name: &str| property.get(name).and_then(Value::as_str);
        let spec = |path: &[String]| FieldSpec {
            kind: self.kind.to_owned(),
            path: path.join("/"),
            ..FieldSpec::default()
        };
        if mark("x-kubernetes-annotation").is_some() {
            merge_spec(&mut self.specs.common_annotations, &spec(path))?;
        }
        if mark("x-kubernetes-label-selector").is_some() {
            merge_spec(&mut self.specs.common_labels, &spec(path))?;
        }
        if mark("x-kubernetes-identity").is_some() {
            merge_spec(&mut self.specs.name_prefix, &spec(path))?;
        }
        if let (Some(version), Some(kind)) =
            (mark("x-kubernetes-object-ref-api-version"), mark("x-kubernetes-object-ref-kind"))
        {
            let key = mark("x-kubernetes-object-ref-name-key").unwrap_or("name");
            let mut full = path.clone();
            full.push(key.to_owned());
            let reference = NameReference {
                group: String::new(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                referrers: vec![spec(&full)],
            };
            merge_reference(&mut self.specs.name_reference, &reference)?;
        }
        match mark("$ref") {
            Some(reference) => self.read(reference, path),
            None => Ok(()),
        }
    }
}
