//! A page about a kind: its fields, from its definition. Pure.

use std::fmt::Write as _;

use flux_api::crds;
use flux_api::kinds::Kind;
use serde_json::Value;

/// Schemas nest no deeper than this.
const DEEPEST: usize = 32;

pub(super) fn page(kind: &Kind) -> String {
    let mut page = format!(
        "# {}\n\n{}\n\n`apiVersion: {}`, {}.",
        kind.kind,
        kind.summary,
        kind.api_version(),
        if kind.old_versions.is_empty() {
            "the only version".to_owned()
        } else {
            format!("also served as {}", kind.old_versions.join(" and "))
        }
    );
    page.push_str("\n\nWritten by `cargo xtask docs` from the definition; a test keeps it true.\n");
    let definition = crds::definition(kind);
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let current = versions.into_iter().flatten().find(|one| one["name"] == kind.version);
    let schema = current.and_then(|one| one.pointer("/schema/openAPIV3Schema/properties"));
    for part in ["spec", "status"] {
        let Some(schema) = schema.and_then(|schema| schema.get(part)) else { continue };
        let _ = writeln!(page, "\n## {part}\n\n{}\n", text(schema, "description"));
        fields("", schema, 0, &mut page);
    }
    page
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn fields(above: &str, schema: &Value, depth: usize, page: &mut String) {
    if depth > DEEPEST {
        return;
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let (inner, mark) = match field.get("items") {
            Some(items) => (items, "[]"),
            None => (field, ""),
        };
        let path = format!("{above}{name}{mark}");
        let _ = write!(page, "- `{path}` {}", shape(inner, mark));
        if required.contains(&name.as_str()) {
            page.push_str(", required");
        }
        if let Some(default) = field.get("default") {
            let _ = write!(page, ", default `{default}`");
        }
        let about = text(field, "description").split_whitespace().collect::<Vec<_>>().join(" ");
        page.push_str(&if about.is_empty() { "\n".to_owned() } else { format!(": {about}\n") });
        fields(&format!("{path}."), inner, depth + 1, page);
    }
}

fn shape(schema: &Value, mark: &str) -> String {
    let choices = schema.get("enum").and_then(Value::as_array);
    let one = match choices {
        Some(choices) => choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(" | "),
        None if schema.get("additionalProperties").is_some() => "map".to_owned(),
        None => text(schema, "type").to_owned(),
    };
    let one = if one.is_empty() { "anything".to_owned() } else { one };
    if mark.is_empty() { one } else { format!("list of {one}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_with_their_whole_path_shape_and_default() {
        let page = page(&flux_api::kinds::KUSTOMIZATION);
        for line in
            ["- `sourceRef.kind` `\"", "- `prune` boolean, required", "- `dependsOn[].name` string, required"]
        {
            assert!(page.contains(line), "no {line:?} in {page}");
        }
        assert!(page.contains("## spec") && page.contains("## status"));
    }
}
