//! Whether a CRD's schema is structural, in Kubernetes' words.

use super::field_error::FieldError;
use super::schema::{Additional, Limits, Structural};

impl Structural {
    /// What keeps the schema from being structural; `path` is where it stands in the CRD.
    pub fn check(&self, path: &str) -> Vec<FieldError> {
        let mut out = Vec::new();
        super::declared::check(self, path, &mut out);
        // Whoever cannot say what a field is is not asked for its structure too.
        if !out.is_empty() {
            return out;
        }
        invariants(self, Level::Root, path, &mut out);
        complete_limits(&self.limits, Some(self), path, path, &mut out);
        out.sort_by_key(FieldError::to_string);
        out
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

fn invariants(schema: &Structural, level: Level, path: &str, out: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    if schema.type_ == "array" && schema.items.is_none() {
        out.push(FieldError::required(at("items"), "must be specified"));
    }
    if let Some(items) = &schema.items {
        invariants(items, Level::Item, &at("items"), out);
    }
    for (name, property) in &schema.properties {
        invariants(property, Level::Field, &format!("{path}.properties[{name}]"), out);
    }
    if let Some(additional) = &schema.additional {
        if level == Level::Root {
            out.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if let Additional::Schema(schema) = additional {
            invariants(schema, Level::Field, &at("additionalProperties"), out);
        }
    }
    if schema.int_or_string && schema.preserve_unknown {
        let field = at("x-kubernetes-preserve-unknown-fields");
        out.push(FieldError::invalid(field, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if schema.int_or_string && schema.embedded {
        let field = at("x-kubernetes-embedded-resource");
        out.push(FieldError::invalid(field, true, "must be false if x-kubernetes-int-or-string is true"));
    }
    let skip_any = is_int_or_string(&schema.limits.any_of);
    let skip_first = schema.limits.all_of.first().is_some_and(|first| is_int_or_string(&first.limits.any_of));
    check_limits(&schema.limits, skip_any, skip_first, path, out);
    check_type(schema, level, path, out);
    check_resource(schema, level, path, out);
}

fn check_type(schema: &Structural, level: Level, path: &str, out: &mut Vec<FieldError>) {
    let field = format!("{path}.type");
    let must_be = "must be object if x-kubernetes-embedded-resource is true";
    if schema.embedded && schema.type_ != "object" {
        out.push(match schema.type_.as_str() {
            "" => FieldError::required(field, must_be),
            other => FieldError::invalid(field, other, must_be),
        });
    } else if schema.type_.is_empty() && !schema.int_or_string && !schema.preserve_unknown {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        out.push(FieldError::required(field, detail));
    } else if level == Level::Root && !schema.type_.is_empty() && schema.type_ != "object" {
        out.push(FieldError::invalid(field, schema.type_.as_str(), "must be object at the root"));
    }
}

fn check_resource(schema: &Structural, level: Level, path: &str, out: &mut Vec<FieldError>) {
    let is_resource = level == Level::Root || schema.embedded;
    if schema.embedded && schema.additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        out.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
    for name in ["kind", "apiVersion"] {
        if let Some(property) =
            schema.properties.get(name).filter(|property| is_resource && property.type_ != "string")
        {
            let field = format!("{path}.properties[{name}].type");
            out.push(FieldError::invalid(field, property.type_.as_str(), "must be string"));
        }
    }
    if let Some(metadata) = schema.properties.get("metadata") {
        let field = format!("{path}.properties[metadata]");
        if is_resource && metadata.type_ != "object" {
            out.push(FieldError::invalid(format!("{field}.type"), metadata.type_.as_str(), "must be object"));
        }
        let only_names = metadata.properties.keys().all(|name| name == "name" || name == "generateName");
        if level == Level::Root && (!only_names || says_more_than_names(metadata)) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            out.push(FieldError::forbidden(field, detail));
        }
    }
    if schema.embedded && !schema.preserve_unknown && schema.properties.is_empty() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        out.push(FieldError::required(format!("{path}.properties"), detail));
    }
}

fn says_more_than_names(metadata: &Structural) -> bool {
    metadata.additional.is_some()
        || metadata.nullable
        || metadata.preserve_unknown
        || metadata.embedded
        || metadata.has_title
        || metadata.has_description
        || metadata.items.is_some()
        || !metadata.limits.required.is_empty()
}

fn is_int_or_string(any_of: &[Structural]) -> bool {
    matches!(any_of, [first, second] if first.type_ == "integer" && second.type_ == "string")
}

fn check_limits(limits: &Limits, skip_any: bool, skip_first: bool, path: &str, out: &mut Vec<FieldError>) {
    if !skip_any {
        for (index, part) in limits.any_of.iter().enumerate() {
            nested(part, false, &format!("{path}.anyOf[{index}]"), out);
        }
    }
    for (index, part) in limits.all_of.iter().enumerate() {
        nested(part, skip_first && index == 0, &format!("{path}.allOf[{index}]"), out);
    }
    for (index, part) in limits.one_of.iter().enumerate() {
        nested(part, false, &format!("{path}.oneOf[{index}]"), out);
    }
    if let Some(not) = &limits.not {
        nested(not, false, &format!("{path}.not"), out);
    }
    if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| pattern.regex.is_none()) {
        let detail = format!("must be a valid regular expression, but isn't: {}", regex_error(&pattern.text));
        out.push(FieldError::invalid(format!("{path}.pattern"), pattern.text.as_str(), detail));
    }
}

/// Go's words for the commonest mistakes.
fn regex_error(text: &str) -> String {
    let count = |wanted: char| text.chars().filter(|character| *character == wanted).count();
    let what = match () {
        () if count('(') > count(')') => "missing closing )",
        () if count(')') > count('(') => "unexpected )",
        () if count('[') > count(']') => "missing closing ]",
        () => "invalid syntax",
    };
    format!("error parsing regexp: {what}: `{text}`")
}

/// Parts of `allOf` and its like may limit values, not describe structure.
fn nested(part: &Structural, skip_any: bool, path: &str, out: &mut Vec<FieldError>) {
    check_limits(&part.limits, skip_any, false, path, out);
    if let Some(items) = &part.items {
        nested(items, false, &format!("{path}.items"), out);
    }
    for (name, property) in &part.properties {
        nested(property, false, &format!("{path}.properties[{name}]"), out);
    }
    let forbidden = [
        (!part.type_.is_empty(), "type", "must be empty to be structural"),
        (part.additional.is_some(), "additionalProperties", "must be undefined to be structural"),
        (part.default.is_some(), "default", "must be undefined to be structural"),
        (part.has_title, "title", "must be empty to be structural"),
        (part.has_description, "description", "must be empty to be structural"),
        (part.nullable, "nullable", "must be false to be structural"),
        (part.preserve_unknown, "x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        (part.embedded, "x-kubernetes-embedded-resource", "must be false to be structural"),
        (part.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!part.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (part.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (part.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!part.rules.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (is, name, detail) in forbidden {
        if is {
            out.push(FieldError::forbidden(format!("{path}.{name}"), detail));
        }
    }
    if part.properties.contains_key("metadata") {
        let field = format!("{path}.properties[metadata]");
        out.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// What a nested part limits must be described outside of it.
fn complete_limits(
    limits: &Limits,
    schema: Option<&Structural>,
    path: &str,
    nested: &str,
    out: &mut Vec<FieldError>,
) {
    if let Some(not) = &limits.not {
        complete(not, schema, path, &format!("{nested}.not"), out);
    }
    for (word, parts) in [("allOf", &limits.all_of), ("anyOf", &limits.any_of), ("oneOf", &limits.one_of)] {
        for (index, part) in parts.iter().enumerate() {
            complete(part, schema, path, &format!("{nested}.{word}[{index}]"), out);
        }
    }
}

fn complete(
    part: &Structural,
    schema: Option<&Structural>,
    path: &str,
    nested: &str,
    out: &mut Vec<FieldError>,
) {
    let Some(schema) = schema else {
        out.push(FieldError::required(path, format!("because it is defined in {nested}")));
        return;
    };
    complete_limits(&part.limits, Some(schema), path, nested, out);
    if let Some(items) = &part.items {
        complete(items, schema.items.as_deref(), &format!("{path}.items"), &format!("{nested}.items"), out);
    }
    for (name, property) in &part.properties {
        let (at, from) = (format!("{path}.properties[{name}]"), format!("{nested}.properties[{name}]"));
        complete(property, schema.properties.get(name), &at, &from, out);
    }
}
