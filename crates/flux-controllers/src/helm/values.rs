//! The values of a release, composed of references and inline values in upstream's order, and which layer set what. Pure.
//!
//! References come in as data: who reads them decides with whose rights.

use std::collections::BTreeMap;
use std::fmt;

use flux_api::meta::{ConfigKind, ValuesReference};
use helm::{Dialect, SetMode, Values};
use serde_json::{Map, Value};

/// What a reference points to: the object's data, or that there is none.
#[derive(Clone, Debug, Default)]
pub struct Referenced(BTreeMap<(&'static str, String), Option<Data>>);

/// What a ConfigMap or Secret holds, by key.
pub type Data = BTreeMap<String, Vec<u8>>;

impl Referenced {
    pub fn insert(&mut self, kind: ConfigKind, name: &str, data: Option<Data>) {
        self.0.insert((kind.as_str(), name.to_owned()), data);
    }

    fn get(&self, kind: ConfigKind, name: &str) -> Option<&Data> {
        self.0.get(&(kind.as_str(), name.to_owned())).and_then(Option::as_ref)
    }

    pub fn contains(&self, kind: ConfigKind, name: &str) -> bool {
        self.0.contains_key(&(kind.as_str(), name.to_owned()))
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    Reference { at: usize, kind: ConfigKind, name: String, key: String },
    Inline,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Reference { at, kind, name, key } => {
                write!(f, "spec.valuesFrom[{at}] ({} '{name}', key '{key}')", kind.as_str())
            }
            Layer::Inline => f.write_str("spec.values"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("could not resolve{} {} chart values reference '{namespace}/{name}' with key '{key}': {cause}", if *.optional { " optional" } else { "" }, .kind.as_str())]
pub struct Error {
    pub kind: ConfigKind,
    pub namespace: String,
    pub name: String,
    pub key: String,
    pub optional: bool,
    pub cause: String,
}

/// Values and their origins.
#[derive(Clone, Debug, Default)]
pub struct Composed {
    pub values: Values,
    layers: Vec<(Layer, Map<String, Value>)>,
}

impl Composed {
    /// The layer that set what stands at a dotted path now; `None` when nothing stands there.
    pub fn origin(&self, path: &[&str]) -> Option<&Layer> {
        let wanted = at(self.values.as_map(), path)?;
        // The last layer that says the same is the one that had the last word.
        self.layers.iter().rev().find(|(_, map)| at(map, path) == Some(wanted)).map(|(layer, _)| layer)
    }
}

impl Composed {
    /// Every layer that has something at a dotted path, in the order they were laid over each other.
    pub fn layers(&self, path: &[&str]) -> Vec<&Layer> {
        self.layers.iter().filter(|(_, map)| at(map, path).is_some()).map(|(layer, _)| layer).collect()
    }
}

fn at<'a>(map: &'a Map<String, Value>, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(map.get(*first)?, |value, key| value.get(*key))
}

/// Composes the values of a HelmRelease in `namespace`.
pub fn compose(
    namespace: &str,
    inline: Option<&Value>,
    references: &[ValuesReference],
    referenced: &Referenced,
) -> Result<Composed, Error> {
    let inline = inline.cloned().and_then(Values::from_json).unwrap_or_default();
    let mut own = Inline { values: inline.clone().into_map(), shared: Vec::new() };
    let mut result = Values::new();
    let mut layers = Vec::new();
    for (index, reference) in references.iter().enumerate() {
        let key = reference.values_key.as_deref().unwrap_or("values.yaml");
        let failed = |cause: String| Error {
            kind: reference.kind,
            namespace: namespace.to_owned(),
            name: reference.name.clone(),
            key: key.to_owned(),
            optional: reference.optional,
            cause,
        };
        let Some(data) = referenced.get(reference.kind, &reference.name) else {
            if reference.optional {
                continue;
            }
            let plural = match reference.kind {
                ConfigKind::Secret => "secrets",
                ConfigKind::ConfigMap => "configmaps",
            };
            return Err(failed(format!("{plural} \"{}\" not found", reference.name)));
        };
        let Some(bytes) = data.get(key) else {
            if reference.optional {
                continue;
            }
            return Err(failed("key not found".to_owned()));
        };
        let layer = Layer::Reference {
            at: index,
            kind: reference.kind,
            name: reference.name.clone(),
            key: key.to_owned(),
        };
        if let Some(path) = &reference.target_path {
            own.lay_over(&mut result);
            let text = String::from_utf8_lossy(bytes);
            set(&mut result, path, &text, reference.literal).map_err(&failed)?;
            own.repeat(path, &text, reference.literal).map_err(&failed)?;
            let mut alone = Values::new();
            if set(&mut alone, path, &text, reference.literal).is_ok() {
                layers.push((layer, alone.into_map()));
            }
            continue;
        }
        // What a Secret holds is never quoted: the parser's words may show it.
        let values = Values::from_yaml(bytes, Dialect::Helm3).map_err(|problem| match reference.kind {
            // helm-controller reads into Helm's own type and names it.
            ConfigKind::ConfigMap => {
                failed(problem.replace("type map[string]interface {}", "type common.Values"))
            }
            ConfigKind::Secret => failed("failed to read values data: it is not a YAML mapping".to_owned()),
        })?;
        layers.push((layer, values.as_map().clone()));
        result.merge(values);
    }
    own.lay_over(&mut result);
    layers.push((Layer::Inline, inline.into_map()));
    Ok(Composed { values: result, layers })
}

/// The inline values as upstream's Go code treats them. Laying them over the result puts their very maps and lists into
/// it where the result has none of its own, so that a later `targetPath` into one of those changes the inline values, too,
/// and wins over them; elsewhere inline values win. Charts are configured by what comes of it, so it is kept.
struct Inline {
    values: Map<String, Value>,
    /// Paths of the maps and lists that the result shares.
    shared: Vec<Vec<String>>,
}

impl Inline {
    fn lay_over(&mut self, result: &mut Values) {
        self.shared.clear();
        share(&self.values, Some(result.as_map()), &mut Vec::new(), &mut self.shared);
        result.merge(Values::from_map(self.values.clone()));
    }

    /// Repeats what was set in the result where it reached what is shared.
    fn repeat(&mut self, path: &str, text: &str, literal: bool) -> Result<(), String> {
        let parts = parts(path);
        if !self.shared.iter().any(|root| reaches(&parts, root, &self.values)) {
            return Ok(());
        }
        let mut values = Values::from_map(std::mem::take(&mut self.values));
        let result = set(&mut values, path, text, literal);
        self.values = values.into_map();
        result
    }
}

fn share(
    inline: &Map<String, Value>,
    result: Option<&Map<String, Value>>,
    path: &mut Vec<String>,
    shared: &mut Vec<Vec<String>>,
) {
    for (key, value) in inline {
        path.push(key.clone());
        match (value, result.and_then(|result| result.get(key))) {
            (Value::Object(below), Some(Value::Object(own))) => share(below, Some(own), path, shared),
            (Value::Object(_) | Value::Array(_), _) => shared.push(path.clone()),
            _ => {}
        }
        path.pop();
    }
}

/// A step of a `targetPath`.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Key(String),
    Index(usize),
}

fn parts(path: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut key = String::new();
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => key.extend(characters.next()),
            '.' | '[' => {
                if !key.is_empty() {
                    parts.push(Part::Key(std::mem::take(&mut key)));
                }
                if character == '[' {
                    let digits: String = characters.by_ref().take_while(|c| *c != ']').collect();
                    parts.push(Part::Index(digits.parse().unwrap_or(usize::MAX)));
                }
            }
            other => key.push(other),
        }
    }
    if !key.is_empty() {
        parts.push(Part::Key(key));
    }
    parts
}

/// Whether setting `parts` changes what stands at `root`: something in a map, or an element that a list has.
fn reaches(parts: &[Part], root: &[String], inline: &Map<String, Value>) -> bool {
    let keys: Vec<&str> = root.iter().map(String::as_str).collect();
    let begins = parts.len() > root.len()
        && parts.iter().zip(root).all(|(part, key)| matches!(part, Part::Key(found) if found == key));
    match (begins, at(inline, &keys), parts.get(root.len())) {
        (true, Some(Value::Object(_)), Some(Part::Key(_))) => true,
        (true, Some(Value::Array(items)), Some(Part::Index(index))) => *index < items.len(),
        _ => false,
    }
}

fn set(values: &mut Values, path: &str, text: &str, literal: bool) -> Result<(), String> {
    let result = if literal {
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            if matches!(character, '\\' | ',' | '[' | ']' | '{' | '}') {
                escaped.push('\\');
            }
            escaped.push(character);
        }
        values.set(&format!("{path}={escaped}"), SetMode::Text)
    } else {
        values.set_at(path, text)
    };
    result.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reference(name: &str, extra: Value) -> ValuesReference {
        let mut all = json!({"kind": "ConfigMap", "name": name});
        all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn referenced(maps: &[(&str, &str, &str)]) -> Referenced {
        let mut all = Referenced::default();
        for (name, key, text) in maps {
            let data = BTreeMap::from([((*key).to_owned(), text.as_bytes().to_vec())]);
            all.insert(ConfigKind::ConfigMap, name, Some(data));
        }
        all
    }

    fn composed(inline: Value, references: &[ValuesReference], maps: &[(&str, &str, &str)]) -> Value {
        let composed = compose("ns", Some(&inline), references, &referenced(maps)).unwrap();
        Value::Object(composed.values.into_map())
    }

    #[test]
    fn later_references_win_and_inline_values_win_over_all() {
        let maps = [
            ("a", "values.yaml", "x: 1\nm: {a: 1, b: 1}\nl: [1]\n"),
            ("b", "other", "m: {b: 2, c: 2}\nl: [2]\n"),
        ];
        let references = [reference("a", json!({})), reference("b", json!({"valuesKey": "other"}))];
        assert_eq!(
            composed(json!({"m": {"c": 3}, "n": null}), &references, &maps),
            json!({"x": 1.0, "m": {"a": 1.0, "b": 2.0, "c": 3.0}, "l": [2.0], "n": null})
        );
    }

    #[test]
    fn a_target_path_is_read_as_helm_reads_set() {
        let maps = [("a", "k", "1,2"), ("b", "k", "true"), ("c", "k", "'007'"), ("d", "k", "{a,b}")];
        let at = |name: &str, path: &str| reference(name, json!({"valuesKey": "k", "targetPath": path}));
        assert_eq!(composed(json!({}), &[at("b", "x.y")], &maps), json!({"x": {"y": true}}));
        assert_eq!(composed(json!({}), &[at("c", "x")], &maps), json!({"x": "007"}));
        assert_eq!(composed(json!({}), &[at("d", "x")], &maps), json!({"x": ["a", "b"]}));
        assert_eq!(composed(json!({}), &[at("b", "x\\.y")], &maps), json!({"x.y": true}));
        let literal = reference("a", json!({"valuesKey": "k", "targetPath": "x", "literal": true}));
        assert_eq!(composed(json!({}), &[literal], &maps), json!({"x": "1,2"}));
    }

    #[test]
    fn who_wins_over_inline_values_depends_on_who_made_the_map() {
        let maps = [("a", "k", "ref"), ("b", "values.yaml", "m: {z: 1}\n"), ("c", "k", "again")];
        let at = |name: &str, path: &str| reference(name, json!({"valuesKey": "k", "targetPath": path}));
        // At the top level, inline wins.
        assert_eq!(composed(json!({"x": "inline"}), &[at("a", "x")], &maps), json!({"x": "inline"}));
        // In a map that only inline has, the reference wins, and a second reference does not.
        let inline = json!({"m": {"x": "inline"}});
        assert_eq!(composed(inline.clone(), &[at("a", "m.x")], &maps), json!({"m": {"x": "ref"}}));
        assert_eq!(
            composed(inline.clone(), &[at("a", "m.x"), at("c", "m.x")], &maps),
            json!({"m": {"x": "ref"}})
        );
        // In a map that an earlier reference made, inline wins.
        let both = [reference("b", json!({})), at("a", "m.x")];
        assert_eq!(composed(inline, &both, &maps), json!({"m": {"x": "inline", "z": 1.0}}));
        // An element that a list of inline has is changed; one more is not added.
        let list = json!({"l": ["inline"]});
        assert_eq!(composed(list.clone(), &[at("a", "l[0]")], &maps), json!({"l": ["ref"]}));
        assert_eq!(composed(list, &[at("a", "l[1]")], &maps), json!({"l": ["inline"]}));
    }

    #[test]
    fn optional_covers_a_missing_object_and_a_missing_key() {
        let maps = [("a", "k", "x: 1")];
        let optional = json!({"optional": true});
        let references = [reference("a", optional.clone()), reference("gone", optional)];
        assert_eq!(composed(json!({}), &references, &maps), json!({}));
        let problem = |name: &str| {
            compose("ns", None, &[reference(name, json!({}))], &referenced(&maps)).unwrap_err().to_string()
        };
        assert_eq!(
            problem("gone"),
            "could not resolve ConfigMap chart values reference 'ns/gone' with key 'values.yaml': configmaps \"gone\" not found"
        );
        assert_eq!(
            problem("a"),
            "could not resolve ConfigMap chart values reference 'ns/a' with key 'values.yaml': key not found"
        );
    }

    #[test]
    fn a_secret_is_not_quoted_in_errors() {
        let mut all = Referenced::default();
        let data = BTreeMap::from([("values.yaml".to_owned(), b"hunter2: [".to_vec())]);
        all.insert(ConfigKind::Secret, "s", Some(data));
        let reference: ValuesReference =
            serde_json::from_value(json!({"kind": "Secret", "name": "s"})).unwrap();
        let problem = compose("ns", None, &[reference], &all).unwrap_err().to_string();
        assert!(!problem.contains("hunter2") && problem.contains("'ns/s'"), "{problem}");
    }

    #[test]
    fn every_value_knows_its_layer() {
        let maps = [("a", "values.yaml", "x: 1\nm: {a: 1, b: 1}\n"), ("b", "k", "9")];
        let references =
            [reference("a", json!({})), reference("b", json!({"valuesKey": "k", "targetPath": "m.b"}))];
        let composed = compose("ns", Some(&json!({"y": 2})), &references, &referenced(&maps)).unwrap();
        let origin = |path: &[&str]| composed.origin(path).map(ToString::to_string);
        assert_eq!(origin(&["y"]).as_deref(), Some("spec.values"));
        assert_eq!(origin(&["x"]).as_deref(), Some("spec.valuesFrom[0] (ConfigMap 'a', key 'values.yaml')"));
        assert_eq!(origin(&["m", "b"]).as_deref(), Some("spec.valuesFrom[1] (ConfigMap 'b', key 'k')"));
        assert_eq!(origin(&["nothing"]), None);
    }
}
