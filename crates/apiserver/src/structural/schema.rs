//! A CRD's schema, read once: what pruning, defaulting and validation walk along.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

/// Schemas nested deeper than this are refused.
const MAX_DEPTH: usize = 200;

/// One level of a schema. Parts of `allOf` and its like have the same shape.
#[derive(Debug, Default)]
pub struct Structural {
    /// Empty when not stated.
    pub(super) type_: String,
    pub(super) format: String,
    pub(super) nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) properties: BTreeMap<String, Structural>,
    pub(super) items: Option<Box<Structural>>,
    pub(super) additional: Option<Additional>,
    pub(super) int_or_string: bool,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) list_type: Option<String>,
    pub(super) list_map_keys: Vec<String>,
    pub(super) map_type: Option<String>,
    pub(super) limits: Limits,
    pub(super) rules: Vec<Rule>,
    /// Words that nested schemas must not use: title, description.
    pub(super) has_title: bool,
    /// Words of JSON schema that a CRD must not use.
    pub(super) unsupported: Vec<&'static str>,
    pub(super) has_description: bool,
}

/// `additionalProperties`.
#[derive(Debug)]
pub(super) enum Additional {
    Allowed(bool),
    Schema(Box<Structural>),
}

/// What values must satisfy.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_maximum: bool,
    pub(super) minimum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) pattern: Option<Pattern>,
    pub(super) allowed: Vec<Value>,
    pub(super) required: Vec<String>,
    pub(super) all_of: Vec<Structural>,
    pub(super) any_of: Vec<Structural>,
    pub(super) one_of: Vec<Structural>,
    pub(super) not: Option<Box<Structural>>,
}

#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    /// None if it does not compile: then nothing matches it.
    pub(super) regex: Option<Regex>,
}

/// One of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) rule: String,
    pub(super) message: String,
    pub(super) message_expression: String,
    pub(super) reason: String,
    pub(super) field_path: String,
    pub(super) optional_old_self: Option<bool>,
}

/// The schema cannot be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the schema is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl Structural {
    /// Reads `schema.openAPIV3Schema`. Whether it is structural is [`Structural::check`]'s question.
    pub fn parse(schema: &Value) -> Result<Structural, Unreadable> {
        parse(schema, MAX_DEPTH)
    }

    /// What stands under a name.
    pub(super) fn child(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            Some(Additional::Allowed(_)) | None => None,
        })
    }
}

fn parse(schema: &Value, depth: usize) -> Result<Structural, Unreadable> {
    let depth = depth.checked_sub(1).ok_or(Unreadable::TooDeep)?;
    let none = Map::new();
    let fields = schema.as_object().unwrap_or(&none);
    let mut unsupported: Vec<&'static str> =
        ["id", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"]
            .into_iter()
            .filter(|word| fields.get(*word).is_some_and(|value| !value.is_null()))
            .collect();
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let yes = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let mut properties = BTreeMap::new();
    for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
        properties.insert(name.clone(), parse(property, depth)?);
    }
    let items = match fields.get("items") {
        Some(Value::Array(_)) => {
            unsupported.push("items");
            None
        }
        Some(items @ Value::Object(_)) => Some(Box::new(parse(items, depth)?)),
        _ => None,
    };
    let additional = match fields.get("additionalProperties") {
        Some(Value::Bool(allowed)) => Some(Additional::Allowed(*allowed)),
        Some(schema @ Value::Object(_)) => Some(Additional::Schema(Box::new(parse(schema, depth)?))),
        _ => None,
    };
    Ok(Structural {
        type_: text("type"),
        format: text("format"),
        nullable: yes("nullable"),
        default: fields.get("default").filter(|default| !default.is_null()).cloned(),
        properties,
        items,
        additional,
        int_or_string: yes("x-kubernetes-int-or-string"),
        preserve_unknown: yes("x-kubernetes-preserve-unknown-fields"),
        embedded: yes("x-kubernetes-embedded-resource"),
        list_type: fields.get("x-kubernetes-list-type").and_then(Value::as_str).map(str::to_owned),
        list_map_keys: strings(fields.get("x-kubernetes-list-map-keys")),
        map_type: fields.get("x-kubernetes-map-type").and_then(Value::as_str).map(str::to_owned),
        limits: limits(fields, depth)?,
        rules: rules(fields.get("x-kubernetes-validations")),
        unsupported,
        has_title: !text("title").is_empty(),
        has_description: !text("description").is_empty(),
    })
}

fn limits(fields: &Map<String, Value>, depth: usize) -> Result<Limits, Unreadable> {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let count = |name: &str| fields.get(name).and_then(Value::as_u64);
    let yes = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let all = |name: &str| -> Result<Vec<Structural>, Unreadable> {
        let parts = fields.get(name).and_then(Value::as_array).into_iter().flatten();
        parts.map(|part| parse(part, depth)).collect()
    };
    let pattern = fields.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty());
    Ok(Limits {
        maximum: number("maximum"),
        exclusive_maximum: yes("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: yes("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        unique_items: yes("uniqueItems"),
        pattern: pattern.map(|text| Pattern { text: text.to_owned(), regex: compile(text) }),
        allowed: fields.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        required: strings(fields.get("required")),
        all_of: all("allOf")?,
        any_of: all("anyOf")?,
        one_of: all("oneOf")?,
        not: match fields.get("not") {
            Some(not @ Value::Object(_)) => Some(Box::new(parse(not, depth)?)),
            _ => None,
        },
    })
}

fn compile(text: &str) -> Option<Regex> {
    regex::RegexBuilder::new(text).size_limit(1 << 22).build().ok()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn rules(value: Option<&Value>) -> Vec<Rule> {
    let rules = value.and_then(Value::as_array).into_iter().flatten();
    rules
        .map(|rule| {
            let text = |name: &str| rule[name].as_str().unwrap_or("").to_owned();
            Rule {
                rule: text("rule"),
                message: text("message"),
                message_expression: text("messageExpression"),
                reason: text("reason"),
                field_path: text("fieldPath"),
                optional_old_self: rule["optionalOldSelf"].as_bool(),
            }
        })
        .collect()
}
