//! What a CRD's schema says of itself: types, list types, defaults and rules that make no sense, in Kubernetes' words.

use serde_json::Value;

use super::field_error::{ErrorKind, FieldError, Shown, go_quote};
use super::schema::{Additional, Structural};

/// Complaints about one level and everything beneath it.
pub(super) fn check(schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let types = ["array", "boolean", "integer", "number", "object", "string"];
    if !schema.type_.is_empty() && !types.contains(&schema.type_.as_str()) {
        out.push(not_supported(at("type"), &schema.type_, &types));
    }
    for word in &schema.unsupported {
        let detail = match *word {
            "items" => "items must be a schema object and not an array".to_owned(),
            word => format!("{word} is not supported"),
        };
        out.push(FieldError::forbidden(at(word), detail));
    }
    if schema.limits.unique_items {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        out.push(FieldError::forbidden(at("uniqueItems"), detail));
    }
    if schema.additional.is_some() && !schema.properties.is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        out.push(FieldError::forbidden(at("additionalProperties"), detail));
    }
    check_map_type(schema, path, out);
    check_list_type(schema, path, out);
    check_rules(schema, path, out);
    check_default(schema, path, out);
    for (name, property) in &schema.properties {
        check(property, &format!("{path}.properties[{name}]"), out);
    }
    if let Some(items) = &schema.items {
        check(items, &at("items"), out);
    }
    if let Some(Additional::Schema(of)) = &schema.additional {
        check(of, &at("additionalProperties"), out);
    }
}

fn not_supported(field: String, value: &str, supported: &[&str]) -> FieldError {
    let names: Vec<String> = supported.iter().map(|name| go_quote(name)).collect();
    let detail = format!("supported values: {}", names.join(", "));
    FieldError::new(ErrorKind::NotSupported, field, Shown::Value(value.into()), detail)
}

fn must_have_type(schema: &Structural, path: &str, wanted: &str, word: &str, out: &mut Vec<FieldError>) {
    let detail = format!("must be {wanted} if {word} is specified");
    let field = format!("{path}.type");
    match schema.type_.as_str() {
        type_ if type_ == wanted => {}
        "" => out.push(FieldError::required(field, detail)),
        other => out.push(FieldError::invalid(field, other, detail)),
    }
}

fn check_map_type(schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    let Some(map_type) = &schema.map_type else { return };
    must_have_type(schema, path, "object", "x-kubernetes-map-type", out);
    if map_type != "atomic" && map_type != "granular" {
        out.push(not_supported(format!("{path}.x-kubernetes-map-type"), map_type, &["atomic", "granular"]));
    }
}

fn check_list_type(schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let list_type = schema.list_type.as_deref();
    if list_type.is_some() && schema.type_ != "array" {
        must_have_type(schema, path, "array", "x-kubernetes-list-type", out);
    } else if let (Some("set"), Some(items)) = (list_type, &schema.items) {
        let atomic = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let shown = items.list_type.as_deref().map_or(Value::Null, Value::from);
        if items.type_ == "array" && items.list_type.as_deref().is_some_and(|list_type| list_type != "atomic")
        {
            out.push(FieldError::invalid(at("items.x-kubernetes-list-type"), shown, atomic));
        } else if items.type_ == "object" && items.map_type.as_deref() != Some("atomic") {
            out.push(FieldError::invalid(at("items.x-kubernetes-map-type"), shown, atomic));
        }
    }
    if let Some(other) = list_type.filter(|list_type| !["atomic", "set", "map"].contains(list_type)) {
        out.push(not_supported(at("x-kubernetes-list-type"), other, &["atomic", "set", "map"]));
    }
    if !schema.list_map_keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        let field = at("x-kubernetes-list-type");
        out.push(match list_type {
            None => FieldError::required(field, detail),
            Some(other) => FieldError::invalid(field, other, detail),
        });
    }
    if list_type == Some("map") {
        check_keys(schema, path, out);
    }
    if let (Some(kind @ ("set" | "map")), Some(items)) = (list_type, &schema.items)
        && items.nullable
    {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        out.push(FieldError::forbidden(at("items.nullable"), detail));
    }
}

fn check_keys(schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let keys = &schema.list_map_keys;
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        out.push(FieldError::required(at("x-kubernetes-list-map-keys"), detail));
    }
    let Some(items) = &schema.items else {
        out.push(FieldError::required(at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if items.type_ != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        out.push(FieldError::invalid(at("items.type"), items.type_.as_str(), detail));
        return;
    }
    let all = || Value::from(keys.clone());
    for (index, key) in keys.iter().enumerate() {
        let place = format!("{path}.items.properties[{key}]");
        match items.properties.get(key) {
            None => {
                let detail = "entries must all be names of item properties";
                out.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), all(), detail));
            }
            Some(property) => {
                if property.type_ == "array" || property.type_ == "object" {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    out.push(FieldError::invalid(format!("{place}.type"), items.type_.as_str(), detail));
                }
                if !items.limits.required.contains(key) && property.default.is_none() {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    out.push(FieldError::required(format!("{place}.default"), detail));
                }
                if property.nullable {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    out.push(FieldError::forbidden(format!("{place}.nullable"), detail));
                }
            }
        }
        if keys[..index].contains(key) {
            out.push(FieldError::invalid(
                at("x-kubernetes-list-map-keys"),
                all(),
                "must not contain duplicate entries",
            ));
        }
    }
}

fn check_rules(schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    const REASONS: [&str; 4] =
        ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    for (index, rule) in schema.rules.iter().enumerate() {
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        let (text, message) = (rule.rule.trim(), rule.message.trim());
        if text.is_empty() {
            out.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !rule.message.is_empty() && message.is_empty() {
            out.push(FieldError::invalid(
                at("message"),
                rule.message.as_str(),
                "must be non-empty if specified",
            ));
        } else if message.contains('\n') {
            out.push(FieldError::invalid(
                at("message"),
                rule.message.as_str(),
                "must not contain line breaks",
            ));
        } else if text.contains('\n') && message.is_empty() {
            out.push(FieldError::required(
                at("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            out.push(FieldError::required(at("messageExpression"), detail));
        }
        if !rule.reason.is_empty() && !REASONS.contains(&rule.reason.as_str()) {
            out.push(not_supported(at("reason"), &rule.reason, &REASONS));
        }
        if rule.field_path.contains('\n') {
            out.push(FieldError::invalid(
                at("fieldPath"),
                rule.field_path.as_str(),
                "must not contain line breaks",
            ));
        }
        if !rule.field_path.is_empty() && !leads_somewhere(&rule.field_path, schema) {
            out.push(FieldError::invalid(at("fieldPath"), rule.field_path.as_str(), "must be a valid path"));
        }
    }
}

/// Whether `.a.b['c']` names a field of the schema.
fn leads_somewhere(path: &str, schema: &Structural) -> bool {
    let mut here = schema;
    let mut rest = path.trim();
    while !rest.is_empty() {
        let name;
        (name, rest) = if let Some(after) = rest.strip_prefix("['") {
            let Some((name, after)) = after.split_once("']") else { return false };
            (name, after)
        } else if let Some(after) = rest.strip_prefix('.') {
            after.split_at(after.find(['.', '[']).unwrap_or(after.len()))
        } else {
            return false;
        };
        match here.child(name) {
            Some(below) => here = below,
            None => return false,
        }
    }
    true
}

/// A default must fit its own schema and name no unknown field.
fn check_default(schema: &Structural, path: &str, out: &mut Vec<FieldError>) {
    let Some(default) = &schema.default else { return };
    let field = format!("{path}.default");
    let mut pruned = default.clone();
    if !schema.prune_part(&mut pruned).is_empty() {
        out.push(FieldError::invalid(field, default.clone(), "must not have unknown fields"));
        return;
    }
    for mut error in schema.validate(default, None) {
        error.field = match error.field.as_str() {
            "<nil>" => field.clone(),
            below => format!("{field}.{below}"),
        };
        out.push(error);
    }
}
