//! `values.schema.json`: JSON Schema drafts 4, 6, 7, 2019-09 and 2020-12, with the verdicts and texts users know from Helm.
//!
//! A validator of our own for three reasons: Helm shows the tree of causes in one particular shape; patterns must run in linear
//! time; and nothing may be fetched: a `$ref` to a file or a server is an error here, where Helm would go and read it.
//! `format` is checked up to draft 7 and an annotation from 2019-09 on, as in Helm.

mod compile;
mod equal;
mod format;
mod message;
mod metaschema;
mod resource;
mod validate;

use serde_json::{Map, Value as Json};

/// Where Helm pretends the schema to be.
const LOCATION: &str = "file:///values.schema.json";

/// The text Helm shows for values that break the schema, or for a schema that cannot be used.
pub(crate) fn check(schema: &[u8], values: &Json) -> Result<(), String> {
    let document = crate::go_json::parse_exact(&String::from_utf8_lossy(schema))?;
    metaschema::check(&document, resource::Resources::collect(&document)?.of("").1.draft)?;
    let compiled = compile::compile(&document)?;
    validate::validate(&compiled, values)
}

/// Checks the values of a chart and of every subchart that has a schema. `values` are those of the chart itself.
pub(crate) fn check_tree(
    chart: &crate::dependencies::Node<'_>,
    values: &Map<String, Json>,
) -> Result<(), String> {
    let mut report = String::new();
    collect(chart, values, &mut report);
    if report.is_empty() { Ok(()) } else { Err(report) }
}

fn collect(chart: &crate::dependencies::Node<'_>, values: &Map<String, Json>, report: &mut String) {
    if let Some(schema) = &chart.chart().schema
        && let Err(error) = check(schema, &Json::Object(values.clone()))
    {
        report.push_str(&format!("{}:\n{error}", chart.name()));
    }
    for child in chart.children() {
        match values.get(child.name()) {
            None | Some(Json::Null) => {}
            Some(Json::Object(values)) => collect(child, values, report),
            Some(other) => {
                let found = go_type(other);
                report.push_str(&format!(
                    "{}:\ninvalid type for values: expected object (map), got {found}\n",
                    child.name()
                ));
            }
        }
    }
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_f64() => "float64",
        Json::Number(_) => "int64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
