//! Coalescing: the values of a user laid over those of a chart and its subcharts.
//!
//! The rules about null are the subtle part. *Merging* keeps a null, *coalescing* lets it delete the default it stands on; Helm 4
//! also drops a chart's own nulls, Helm 3 keeps them. Maps are changed in place and shared between a chart's `global` and its
//! subcharts' as in Helm, so that a subchart's defaults can show up in the parent's globals below the second level.

use gotemplate::{Map, Str, Value};

use crate::Dialect;
use crate::dependencies::Node;

const GLOBAL: &str = "global";

/// What happens to nulls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coalescing {
    /// A null deletes.
    Coalesce,
    /// A null stays, for a later pass to act on.
    Merge,
}

/// One pass: its mode, whose rules it follows, and what it has to remark.
pub(crate) struct Pass<'a> {
    mode: Coalescing,
    dialect: Dialect,
    warnings: &'a mut Vec<String>,
}

/// The values of a chart and all its subcharts under those given, which are not changed.
pub(crate) fn coalesce_values(
    chart: &Node<'_>,
    given: &Map,
    mode: Coalescing,
    dialect: Dialect,
    warnings: &mut Vec<String>,
) -> Result<Map, String> {
    let Value::Map(values) = Value::Map(given.clone()).deep_copy() else { return Ok(Map::new()) };
    Pass { mode, dialect, warnings }.chart(chart, &values, "")?;
    Ok(values)
}

/// Lays `over` on `under` table by table; `over` is changed and wins.
pub(crate) fn coalesce_tables(over: &Map, under: &Map, mode: Coalescing, warnings: &mut Vec<String>) {
    Pass { mode, dialect: Dialect::Helm4, warnings }.tables(over, under, "", mode);
}

impl Pass<'_> {
    fn chart(&mut self, chart: &Node<'_>, values: &Map, prefix: &str) -> Result<(), String> {
        self.own_values(chart, values, prefix);
        self.subcharts(chart, values, prefix)
    }

    /// Puts the chart's defaults under `values`.
    fn own_values(&mut self, chart: &Node<'_>, values: &Map, prefix: &str) {
        let prefix = join(prefix, chart.name());
        let Value::Map(defaults) = Value::Map(chart.values().clone()).deep_copy() else { return };
        for (key, default) in defaults.snapshot() {
            let name = key.to_lossy();
            match values.get(&name) {
                Some(Value::Nil) if self.mode == Coalescing::Coalesce => {
                    values.unset(&name);
                }
                Some(Value::Map(given)) => match default {
                    Value::Map(default) => self.default_table(chart, &given, &default, &name, &prefix),
                    Value::Nil => {}
                    _ => self
                        .warnings
                        .push(format!("warning: skipped value for {prefix}.{name}: Not a table.")),
                },
                Some(_) => {}
                None => self.missing(values, key.clone(), default),
            }
        }
    }

    fn default_table(&mut self, chart: &Node<'_>, given: &Map, default: &Map, name: &str, prefix: &str) {
        // Nulls meant for a subchart act when that subchart's own defaults are laid under.
        let mode = if chart.children().iter().any(|child| child.name() == name) {
            Coalescing::Merge
        } else {
            self.mode
        };
        if mode == Coalescing::Coalesce && self.dialect == Dialect::Helm4 {
            drop_nulls(default);
        }
        self.tables(given, default, &join(prefix, name), mode);
    }

    /// A default nobody set.
    fn missing(&mut self, values: &Map, key: Str, default: Value) {
        if self.mode == Coalescing::Coalesce && self.dialect == Dialect::Helm4 {
            match &default {
                Value::Nil => return,
                Value::Map(table) => drop_nulls(table),
                _ => {}
            }
        }
        values.set(key, default);
    }

    fn subcharts(&mut self, chart: &Node<'_>, values: &Map, prefix: &str) -> Result<(), String> {
        for child in chart.children() {
            let table = match values.get(child.name()) {
                None => {
                    let table = Map::new();
                    values.set(child.name(), Value::Map(table.clone()));
                    table
                }
                Some(Value::Map(table)) => table,
                Some(other) => return Err(format!("type mismatch on {}: {}", child.name(), as_bool(&other))),
            };
            let prefix = join(prefix, chart.name());
            self.globals(&table, values, &prefix);
            self.chart(child, &table, &prefix)?;
        }
        Ok(())
    }

    /// Hands a parent's globals down. They win over the subchart's own.
    fn globals(&mut self, child: &Map, parent: &Map, prefix: &str) {
        let own = match child.get(GLOBAL) {
            None => Map::new(),
            Some(Value::Map(table)) => table,
            Some(_) => {
                return self
                    .warnings
                    .push("warning: skipping globals because destination global is not a table.".to_owned());
            }
        };
        let handed = match parent.get(GLOBAL) {
            None => Map::new(),
            Some(Value::Map(table)) => table,
            Some(_) => {
                return self
                    .warnings
                    .push("warning: skipping globals because source global is not a table.".to_owned());
            }
        };
        for (key, value) in handed.snapshot() {
            let name = key.to_lossy();
            match (value, own.get(&name)) {
                (Value::Map(table), None) => own.set(key, Value::Map(table.shallow_copy())),
                (Value::Map(table), Some(Value::Map(below))) => {
                    let copy = table.shallow_copy();
                    // Always a merge: the nulls that are left act in the pass over the subchart.
                    self.tables(&copy, &below, &join(prefix, &name), Coalescing::Merge);
                    own.set(key.clone(), Value::Map(copy));
                }
                (Value::Map(_), Some(_)) => {
                    self.warnings.push(format!(
                        "Conflict: cannot merge map onto non-map for {}. Skipping.",
                        crate::quote::go_quote(&name)
                    ));
                }
                (_, Some(Value::Map(_))) => self.warnings.push(format!("key {name} is table. Skipping")),
                (value, _) => own.set(key.clone(), value),
            }
        }
        child.set(GLOBAL, Value::Map(own));
    }

    /// Lays `over` on `under`. A null over something deletes when coalescing; a null over nothing, or over null, stays.
    fn tables(&mut self, over: &Map, under: &Map, prefix: &str, mode: Coalescing) {
        for (key, below) in under.snapshot() {
            let name = key.to_lossy();
            let path = join(prefix, &name);
            match (over.get(&name), below) {
                (None, below) => over.set(key.clone(), below),
                (Some(Value::Nil), below) if mode == Coalescing::Coalesce && !below.is_nil() => {
                    over.unset(&name);
                }
                (Some(Value::Nil), _) => {}
                (Some(Value::Map(above)), Value::Map(below)) => self.tables(&above, &below, &path, mode),
                (Some(_), Value::Map(_)) => {
                    self.warnings.push(format!("warning: cannot overwrite table with non table for {path}"));
                }
                (Some(Value::Map(_)), below) if !below.is_nil() => {
                    self.warnings.push(format!(
                        "warning: destination for {path} is a table. Ignoring non-table value"
                    ));
                }
                _ => {}
            }
        }
    }
}

fn drop_nulls(table: &Map) {
    for (key, value) in table.snapshot() {
        match value {
            Value::Nil => {
                table.unset_bytes(key.as_bytes());
            }
            Value::Map(inner) => drop_nulls(&inner),
            _ => {}
        }
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Go's `%t` of something that need not be a boolean; Helm's message about a subchart's values uses it.
fn as_bool(value: &Value) -> String {
    match value {
        Value::Nil | Value::NoValue => "%!t(<nil>)".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int64(value) => format!("%!t(int64={value})"),
        Value::Float64(value) => format!("%!t(float64={})", yaml::format_float_v(*value)),
        Value::String(text) => format!("%!t(string={text})"),
        Value::List(items) => format!("[{}]", items.iter().map(as_bool).collect::<Vec<_>>().join(" ")),
        Value::Map(entries) => {
            let entries = entries
                .entries()
                .iter()
                .map(|(k, v)| format!("%!t(string={k}):{}", as_bool(v)))
                .collect::<Vec<_>>();
            format!("map[{}]", entries.join(" "))
        }
        other => format!("%!t({})", other.type_of()),
    }
}
