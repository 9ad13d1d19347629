//! Which subcharts take part in a release, under which names, and which of their values a parent takes over.
//!
//! A [`Node`] is a chart as one release sees it: switched by `condition` and `tags`, renamed by `alias`, its defaults extended by
//! `import-values`. The chart itself stays as it was loaded.

use gotemplate::{Map, Str, Value};
use semver_range::{Constraint, Version};
use serde_json::Value as Json;

use crate::Dialect;
use crate::chart::{Chart, Dependency, Metadata};
use crate::values::{
    Coalescing, Lookup, coalesce_tables, coalesce_values, from_json, path_value, table, table_at,
};

/// A chart within a release.
pub(crate) struct Node<'c> {
    chart: &'c Chart,
    metadata: Metadata,
    values: Map,
    children: Vec<Node<'c>>,
}

impl<'c> Node<'c> {
    fn new(chart: &'c Chart) -> Node<'c> {
        Node {
            chart,
            metadata: chart.metadata.clone(),
            values: chart.values.as_ref().map(table).unwrap_or_default(),
            children: chart.subcharts.iter().map(Node::new).collect(),
        }
    }

    pub(crate) fn chart(&self) -> &'c Chart {
        self.chart
    }

    /// The name in this release: the alias, where there is one.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    pub(crate) fn values(&self) -> &Map {
        &self.values
    }

    pub(crate) fn children(&self) -> &[Node<'c>] {
        &self.children
    }
}

/// Names of dependencies that `Chart.yaml` lists but `charts/` does not hold.
pub fn missing_dependencies(chart: &Chart) -> Vec<&str> {
    let present = |name: &str| chart.subcharts.iter().any(|c| c.name() == name);
    chart
        .metadata
        .dependencies
        .iter()
        .flatten()
        .map(|d| d.name.as_str())
        .filter(|name| !present(name))
        .collect()
}

/// The chart as a release with these values sees it.
pub(crate) fn process<'c>(
    chart: &'c Chart,
    given: &Map,
    dialect: Dialect,
    warnings: &mut Vec<String>,
) -> Result<Node<'c>, String> {
    let mut node = Node::new(chart);
    enable(&mut node, given, "", dialect, warnings)?;
    import_all(&mut node, dialect, warnings)?;
    Ok(node)
}

fn enable(
    node: &mut Node<'_>,
    given: &Map,
    path: &str,
    dialect: Dialect,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let Some(requirements) = node.metadata.dependencies.take() else { return Ok(()) };
    let mut requirements = requirements;
    node.children = named_children(std::mem::take(&mut node.children), &requirements, node.chart);
    for requirement in &mut requirements {
        if !requirement.alias.is_empty() {
            requirement.name = requirement.alias.clone();
        }
        requirement.enabled = true;
    }
    let values = coalesce_values(node, given, Coalescing::Coalesce, dialect, warnings)?;
    by_tags(&mut requirements, &values, warnings);
    by_conditions(&mut requirements, &values, path, warnings);
    let disabled: Vec<String> = requirements.iter().filter(|r| !r.enabled).map(|r| r.name.clone()).collect();
    node.children.retain(|child| !disabled.iter().any(|name| name == child.name()));
    requirements.retain(|r| !disabled.contains(&r.name));
    for child in &mut node.children {
        let path = format!("{path}{}.", child.name());
        enable(child, &values, &path, dialect, warnings)?;
    }
    node.metadata.dependencies = (!requirements.is_empty()).then_some(requirements);
    Ok(())
}

/// Subcharts that no requirement names come first, then one for each requirement that a subchart satisfies.
fn named_children<'c>(
    children: Vec<Node<'c>>,
    requirements: &[Dependency],
    chart: &'c Chart,
) -> Vec<Node<'c>> {
    let satisfies = |child: &Chart, r: &Dependency| {
        child.name() == r.name && compatible(&r.version, &child.metadata.version)
    };
    let mut found: Vec<Node<'c>> = children
        .into_iter()
        .filter(|child| !requirements.iter().any(|r| satisfies(child.chart, r)))
        .collect();
    for requirement in requirements {
        let Some(child) = chart.subcharts.iter().find(|child| satisfies(child, requirement)) else {
            continue;
        };
        let mut node = Node::new(child);
        if !requirement.alias.is_empty() {
            node.metadata.name = requirement.alias.clone();
        }
        found.push(node);
    }
    found
}

/// Whether a version is within a range; `false` too when either does not parse.
pub(crate) fn compatible(constraint: &str, version: &str) -> bool {
    match (Constraint::parse(constraint), Version::parse(version)) {
        (Ok(constraint), Ok(version)) => constraint.check(&version),
        _ => false,
    }
}

fn by_tags(requirements: &mut [Dependency], values: &Map, warnings: &mut Vec<String>) {
    let Some(Value::Map(tags)) = values.get("tags") else { return };
    for requirement in requirements {
        let (mut on, mut off) = (false, false);
        for tag in &requirement.tags {
            match tags.get(tag) {
                Some(Value::Bool(true)) => on = true,
                Some(Value::Bool(false)) => off = true,
                Some(_) => warnings.push(format!(
                    "Warning: Tag '{tag}' for chart {} returned non-bool value",
                    requirement.name
                )),
                None => {}
            }
        }
        requirement.enabled = on || !off;
    }
}

fn by_conditions(requirements: &mut [Dependency], values: &Map, path: &str, warnings: &mut Vec<String>) {
    for requirement in requirements {
        for condition in requirement.condition.trim().split(',').filter(|c| !c.is_empty()) {
            match path_value(values, &format!("{path}{condition}")) {
                Lookup::Found(Value::Bool(enabled)) => {
                    requirement.enabled = enabled;
                    break;
                }
                Lookup::Found(_) => {
                    warnings.push(format!(
                        "Warning: Condition path '{condition}' for chart {} returned non-bool value",
                        requirement.name
                    ));
                }
                Lookup::Missing => {}
            }
        }
    }
}

/// Innermost charts first, so that what they import can be imported further.
fn import_all(node: &mut Node<'_>, dialect: Dialect, warnings: &mut Vec<String>) -> Result<(), String> {
    for child in &mut node.children {
        import_all(child, dialect, warnings)?;
    }
    import(node, dialect, warnings)
}

fn import(node: &mut Node<'_>, dialect: Dialect, warnings: &mut Vec<String>) -> Result<(), String> {
    let Some(mut requirements) = node.metadata.dependencies.take() else { return Ok(()) };
    let values = coalesce_values(node, &Map::new(), Coalescing::Merge, dialect, warnings)?;
    let imported = Map::new();
    for requirement in &mut requirements {
        let Some(imports) = requirement.import_values.take() else { continue };
        let mut normalised = Vec::new();
        for import in imports {
            let Some((child, parent)) = import_paths(&import) else { continue };
            normalised.push(serde_json::json!({"child": child, "parent": parent}));
            match table_at(&values, &format!("{}.{child}", requirement.name)) {
                Some(found) => coalesce_tables(&imported, &nest(&parent, found), Coalescing::Merge, warnings),
                None => warnings.push(format!(
                    "Warning: ImportValues missing table {child:?} from chart {}",
                    requirement.name
                )),
            }
        }
        requirement.import_values = Some(normalised);
    }
    // The parent's own values win over imported ones.
    let Value::Map(values) = Value::Map(values).deep_copy() else { return Ok(()) };
    coalesce_tables(&values, &imported, Coalescing::Merge, warnings);
    node.values = values;
    node.metadata.dependencies = Some(requirements);
    Ok(())
}

/// `name` means `exports.name` at the top; `{child, parent}` says both.
fn import_paths(import: &Json) -> Option<(String, String)> {
    match import {
        Json::String(name) => Some((format!("exports.{name}"), ".".to_owned())),
        Json::Object(paths) => {
            let path = |key: &str| paths.get(key).map_or("<nil>".to_owned(), go_text);
            Some((path("child"), path("parent")))
        }
        _ => None,
    }
}

/// Go's `%v` of a scalar.
fn go_text(value: &Json) -> String {
    match from_json(value) {
        Value::Nil => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int64(value) => value.to_string(),
        Value::Float64(value) => yaml::format_float_v(value),
        Value::String(text) => text.to_string(),
        _ => String::new(),
    }
}

fn nest(path: &str, table: Map) -> Map {
    if path == "." {
        return table;
    }
    path.split('.').rev().fold(table, |inner, name| Map::from_entries([(Str::from(name), Value::Map(inner))]))
}
