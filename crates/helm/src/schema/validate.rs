//! Checks a value against a compiled schema and explains what fails.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Number, Value as Json};

use super::compile::{Additional, Compiled, Dependency, Id, Items, Schema};
use super::equal::{compare, equal, is_multiple, is_whole};
use super::message::{Failure, Kind, compared, counted, display, one_of, quote, quote_all};
use super::resource::Draft;

/// Schemas that refer to each other can make a check cost exponential time; no real one comes near this.
const MAX_CHECKS: u64 = 3_000_000;
const MAX_DEPTH: usize = 600;
/// What Helm's message begins with when the schema itself cannot be walked to its end.
const TOO_COSTLY: &str = "unable to validate schema: checking takes too many steps";

pub(super) fn validate(compiled: &Compiled, value: &Json) -> Result<(), String> {
    let run = Run { compiled, checks: Cell::new(0), exhausted: Cell::new(false) };
    let result = run.root(0, value);
    if run.exhausted.get() {
        return Err(TOO_COSTLY.to_owned());
    }
    let Err(causes) = result else { return Ok(()) };
    let mut text = String::new();
    for cause in &causes {
        cause.write(&mut text, 0);
    }
    Err(text)
}

struct Run<'c> {
    compiled: &'c Compiled,
    checks: Cell<u64>,
    exhausted: Cell<bool>,
}

impl<'c> Run<'c> {
    /// The failures of a value of its own, the outermost group opened up.
    fn root(&self, id: Id, value: &Json) -> Result<(), Vec<Failure>> {
        let scope = Scope { schema: id, keyword: None, instance: 0, parent: None, depth: 0 };
        let mut rest = Unevaluated::of(value, &self.compiled.schemas[id], false);
        match self.check(id, value, &mut Vec::new(), &scope, false, &mut rest) {
            Ok(()) => Ok(()),
            Err(Failure { kind: Kind::Group, causes, .. }) => Err(causes),
            Err(failure) => Err(vec![failure]),
        }
    }

    /// Checks one value against one schema. `rest` are the parts of the value that the caller wants to know evaluated.
    fn check(
        &self,
        id: Id,
        value: &Json,
        at: &mut Vec<String>,
        scope: &Scope<'_>,
        quiet: bool,
        rest: &mut Unevaluated,
    ) -> Result<(), Failure> {
        let schema = &self.compiled.schemas[id];
        let mut check = Check { run: self, schema, at, scope, quiet, rest, failures: Vec::new() };
        self.checks.set(self.checks.get() + 1);
        if self.checks.get() > MAX_CHECKS || scope.depth > MAX_DEPTH {
            self.exhausted.set(true);
            return Err(check.failure(Kind::Group));
        }
        if let Some(accepts) = schema.boolean {
            return if accepts { Ok(()) } else { Err(check.text("false schema".to_owned())) };
        }
        if let Some(other) = scope.cycle() {
            let (a, b) = (scope.location(self.compiled), other.location(self.compiled));
            let url = schema.location();
            return Err(check.text(format!("both {a} and {b} resolve to {url:?} causing reference cycle")));
        }
        check.scalars(value)?;
        if let Some(target) = schema.reference {
            let result = check.refer(target, "$ref", value);
            if schema.draft() < Draft::D2019 {
                return result;
            }
            check.add(result);
        }
        check.parts(value);
        if check.failures.is_empty() || !quiet {
            check.composed(value);
        }
        check.finish()
    }
}

/// The way from the root to the schema being applied; it finds cycles and dynamic anchors.
struct Scope<'p> {
    schema: Id,
    /// Set when a reference led here.
    keyword: Option<&'static str>,
    /// Scopes with the same number look at the same value.
    instance: usize,
    parent: Option<&'p Scope<'p>>,
    depth: usize,
}

impl<'p> Scope<'p> {
    fn child<'s>(&'s self, schema: Id, keyword: Option<&'static str>, instance: usize) -> Scope<'s> {
        Scope { schema, keyword, instance, parent: Some(self), depth: self.depth + 1 }
    }

    fn cycle(&self) -> Option<&Scope<'p>> {
        let mut scope = self.parent;
        while let Some(current) = scope {
            if current.instance != self.instance {
                return None;
            }
            if current.schema == self.schema {
                return Some(current);
            }
            scope = current.parent;
        }
        None
    }

    /// The keywords that lead here: `/properties/a/$ref`.
    fn location(&self, compiled: &Compiled) -> String {
        let mut out = String::new();
        let mut scope = self;
        while let Some(parent) = scope.parent {
            let step = match scope.keyword {
                Some(keyword) => format!("/{keyword}"),
                None => {
                    let (own, above) =
                        (&compiled.schemas[scope.schema].pointer, &compiled.schemas[parent.schema].pointer);
                    own.strip_prefix(above.as_str()).unwrap_or(own).to_owned()
                }
            };
            out.insert_str(0, &step);
            scope = parent;
        }
        out
    }
}

/// Properties and items that no keyword has looked at yet; empty unless somebody asks.
#[derive(Default)]
struct Unevaluated {
    properties: BTreeSet<String>,
    items: BTreeSet<usize>,
}

impl Unevaluated {
    fn of(value: &Json, schema: &Schema, asked: bool) -> Unevaluated {
        let mut rest = Unevaluated::default();
        match value {
            Json::Object(entries)
                if schema.additional_properties.is_none()
                    && (asked || schema.unevaluated_properties.is_some()) =>
            {
                rest.properties = entries.keys().cloned().collect();
            }
            Json::Array(items) => {
                let (all, first) = items_evaluated(schema);
                if !all && (asked || schema.unevaluated_items.is_some()) {
                    rest.items = (first..items.len()).collect();
                }
            }
            _ => {}
        }
        rest
    }

    fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.items.is_empty()
    }

    fn keep_only(&mut self, other: &Unevaluated) {
        self.properties.retain(|p| other.properties.contains(p));
        self.items.retain(|i| other.items.contains(i));
    }
}

/// Whether all items are looked at by `items`, and from which index on they are not.
fn items_evaluated(schema: &Schema) -> (bool, usize) {
    match &schema.items {
        Some(Items::Each(_)) => (true, 0),
        Some(Items::Tuple(items)) => (schema.additional_items.is_some(), items.len()),
        None => (schema.additional_items.is_some(), schema.prefix_items.len()),
    }
}

struct Check<'a, 'c, 's> {
    run: &'a Run<'c>,
    schema: &'c Schema,
    at: &'a mut Vec<String>,
    scope: &'a Scope<'s>,
    /// Only the verdict matters.
    quiet: bool,
    rest: &'a mut Unevaluated,
    failures: Vec<Failure>,
}

impl Check<'_, '_, '_> {
    fn failure(&self, kind: Kind) -> Failure {
        Failure { at: if self.quiet { Vec::new() } else { self.at.clone() }, kind, causes: Vec::new() }
    }

    fn text(&self, text: String) -> Failure {
        self.failure(Kind::Text(text))
    }

    fn fail(&mut self, text: String) {
        let failure = self.text(text);
        self.failures.push(failure);
    }

    fn fail_with(&mut self, text: &str, causes: Vec<Failure>) {
        let failure = Failure { causes, ..self.text(text.to_owned()) };
        self.failures.push(failure);
    }

    fn add(&mut self, result: Result<(), Failure>) {
        self.failures.extend(result.err());
    }

    fn finish(mut self) -> Result<(), Failure> {
        match self.failures.len() {
            0 => Ok(()),
            1 => Err(self.failures.remove(0)),
            _ => {
                let causes = std::mem::take(&mut self.failures);
                Err(Failure { causes, ..self.failure(Kind::Group) })
            }
        }
    }

    /// What stops everything else: the wrong type, constant, enumeration or format.
    fn scalars(&self, value: &Json) -> Result<(), Failure> {
        let s = self.schema;
        let kind = type_of(value);
        let accepted = |wanted: &String| {
            wanted == kind || (wanted == "integer" && matches!(value, Json::Number(n) if is_whole(n)))
        };
        if !s.types.is_empty() && !s.types.iter().any(accepted) {
            return Err(self.text(format!("got {kind}, want {}", s.types.join(" or "))));
        }
        if let Some(constant) = &s.constant
            && !equal(value, constant)
        {
            let text = match constant {
                Json::Array(_) | Json::Object(_) => "'const' failed".to_owned(),
                constant => format!("value must be {}", display(constant)),
            };
            return Err(self.text(text));
        }
        if let Some(wanted) = &s.enumeration
            && !wanted.iter().any(|w| equal(value, w))
        {
            return Err(self.text(one_of(wanted)));
        }
        if let (Some(format), Json::String(text)) = (&s.format, value)
            && let Err(why) = super::format::check(format, text)
        {
            return Err(self.text(format!("{} is not valid {format}: {why}", display(value))));
        }
        Ok(())
    }

    fn parts(&mut self, value: &Json) {
        match value {
            Json::Object(entries) => self.object(value, entries),
            Json::Array(items) => self.array(items),
            Json::String(text) => self.string(text),
            Json::Number(number) => self.number(number),
            Json::Null | Json::Bool(_) => {}
        }
    }

    fn object(&mut self, value: &Json, entries: &Map<String, Json>) {
        let s = self.schema;
        if let Some(min) = s.min_properties.filter(|min| (entries.len() as i64) < *min) {
            self.fail(counted("minProperties", entries.len(), min));
        }
        if let Some(max) = s.max_properties.filter(|max| entries.len() as i64 > *max) {
            self.fail(counted("maxProperties", entries.len(), max));
        }
        match missing(entries, &s.required).as_slice() {
            [] => {}
            [one] => self.fail(format!("missing property {}", quote(one))),
            many => self.fail(format!("missing properties {}", quote_all(many))),
        }
        if self.quiet && !self.failures.is_empty() {
            return;
        }
        for (name, dependency) in s.dependencies.iter().filter(|(name, _)| entries.contains_key(*name)) {
            match dependency {
                Dependency::Required(wanted) => self.required_with(entries, name, wanted),
                Dependency::Schema(id) => {
                    let result = self.same(*id, None, value, false);
                    self.add(result);
                }
            }
        }
        self.properties(entries);
        if s.draft() >= Draft::D6
            && let Some(names) = s.property_names
        {
            for name in entries.keys() {
                if let Err(causes) = self.run.root(names, &Json::String(name.clone())) {
                    self.fail_with(&format!("invalid propertyName {}", quote(name)), causes);
                }
            }
        }
        for (name, id) in s.dependent_schemas.iter().filter(|(name, _)| entries.contains_key(*name)) {
            let _ = name;
            let result = self.same(*id, None, value, false);
            self.add(result);
        }
        for (name, wanted) in s.dependent_required.iter().filter(|(name, _)| entries.contains_key(*name)) {
            self.required_with(entries, name, wanted);
        }
    }

    fn required_with(&mut self, entries: &Map<String, Json>, name: &str, wanted: &[String]) {
        let missing = missing(entries, wanted);
        if !missing.is_empty() {
            self.fail(format!("properties {} required, if {} exists", quote_all(&missing), quote(name)));
        }
    }

    fn properties(&mut self, entries: &Map<String, Json>) {
        let s = self.schema;
        let mut additional = Vec::new();
        for (name, value) in entries {
            if self.quiet && !self.failures.is_empty() {
                return;
            }
            let mut evaluated = false;
            if let Some(id) = s.properties.get(name) {
                evaluated = true;
                self.part(*id, value, name);
            }
            for (pattern, id) in &s.pattern_properties {
                if pattern.is_match(name) {
                    evaluated = true;
                    self.part(*id, value, name);
                }
            }
            if !evaluated && let Some(rule) = s.additional_properties {
                evaluated = true;
                match rule {
                    Additional::Allowed(true) => {}
                    Additional::Allowed(false) => additional.push(name.as_str()),
                    Additional::Schema(id) => self.part(id, value, name),
                }
            }
            if evaluated {
                self.rest.properties.remove(name);
            }
        }
        if !additional.is_empty() {
            self.fail(format!("additional properties {} not allowed", quote_all(&additional)));
        }
    }

    fn array(&mut self, items: &[Json]) {
        let s = self.schema;
        if let Some(min) = s.min_items.filter(|min| (items.len() as i64) < *min) {
            self.fail(counted("minItems", items.len(), min));
        }
        if let Some(max) = s.max_items.filter(|max| items.len() as i64 > *max) {
            self.fail(counted("maxItems", items.len(), max));
        }
        if s.unique_items
            && let Some((a, b)) = self.duplicates(items)
        {
            self.fail(format!("items at {a} and {b} are equal"));
        }
        self.items(items);
        if let Some(id) = s.contains {
            self.contains(id, items);
        }
    }

    fn duplicates(&self, items: &[Json]) -> Option<(usize, usize)> {
        for (b, item) in items.iter().enumerate() {
            self.run.checks.set(self.run.checks.get() + b as u64 / 16);
            if self.run.checks.get() > MAX_CHECKS {
                self.run.exhausted.set(true);
                return None;
            }
            if let Some(a) = items[..b].iter().position(|other| equal(item, other)) {
                return Some((a, b));
            }
        }
        None
    }

    fn items(&mut self, items: &[Json]) {
        let s = self.schema;
        let mut from = 0;
        for (index, (id, item)) in s.prefix_items.iter().zip(items).enumerate() {
            self.part(*id, item, &index.to_string());
            from = index + 1;
        }
        match &s.items {
            Some(Items::Each(id)) => {
                for (index, item) in items.iter().enumerate().skip(from) {
                    self.part(*id, item, &index.to_string());
                }
                from = items.len();
            }
            Some(Items::Tuple(ids)) => {
                for (index, (id, item)) in ids.iter().zip(items).enumerate() {
                    self.part(*id, item, &index.to_string());
                }
                from = ids.len().min(items.len());
            }
            None => {}
        }
        match s.additional_items {
            Some(Additional::Allowed(false)) if from < items.len() => {
                self.fail(format!("last {} additionalItem(s) not allowed", items.len() - from));
            }
            Some(Additional::Schema(id)) => {
                for (index, item) in items.iter().enumerate().skip(from) {
                    self.part(id, item, &index.to_string());
                }
            }
            Some(Additional::Allowed(_)) | None => {}
        }
    }

    fn contains(&mut self, id: Id, items: &[Json]) {
        let s = self.schema;
        let mut causes = Vec::new();
        let mut matched = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match self.below(id, item, &index.to_string()) {
                Ok(()) => {
                    matched.push(index);
                    if s.draft() >= Draft::D2020 {
                        self.rest.items.remove(&index);
                    }
                }
                Err(failure) => causes.push(failure),
            }
        }
        let places = matched.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let count = matched.len() as i64;
        match s.min_contains {
            Some(min) if count < min && matched.is_empty() => {
                self.fail_with(
                    &format!("min {min} items required to match contains schema, but none matched"),
                    causes,
                );
            }
            Some(min) if count < min => {
                let text = format!(
                    "min {min} items required to match contains schema, but matched {count} items at {places}"
                );
                self.fail_with(&text, causes);
            }
            None if matched.is_empty() => self.fail_with("no items match contains schema", causes),
            Some(_) | None => {}
        }
        if let Some(max) = s.max_contains.filter(|max| count > *max) {
            self.fail(format!(
                "max {max} items required to match contains schema, but matched {count} items at {places}"
            ));
        }
    }

    fn string(&mut self, text: &str) {
        let s = self.schema;
        let length = if s.min_length.is_some() || s.max_length.is_some() { text.chars().count() } else { 0 };
        if let Some(min) = s.min_length.filter(|min| (length as i64) < *min) {
            self.fail(counted("minLength", length, min));
        }
        if let Some(max) = s.max_length.filter(|max| length as i64 > *max) {
            self.fail(counted("maxLength", length, max));
        }
        if let Some(pattern) = s.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.fail(format!("{} does not match pattern {}", quote(text), quote(pattern.as_str())));
        }
    }

    fn number(&mut self, number: &Number) {
        let s = self.schema;
        let bounds = [
            ("minimum", &s.minimum, [true, false, false]),
            ("maximum", &s.maximum, [false, false, true]),
            ("exclusiveMinimum", &s.exclusive_minimum, [true, true, false]),
            ("exclusiveMaximum", &s.exclusive_maximum, [false, true, true]),
        ];
        for (keyword, bound, [less, same, greater]) in bounds {
            let Some(bound) = bound else { continue };
            let order = compare(number, bound);
            if (order.is_lt() && less) || (order.is_eq() && same) || (order.is_gt() && greater) {
                self.fail(compared(keyword, number, bound));
            }
        }
        if let Some(of) = s.multiple_of.as_ref().filter(|of| !is_multiple(number, of)) {
            self.fail(compared("multipleOf", number, of));
        }
    }

    fn composed(&mut self, value: &Json) {
        let s = self.schema;
        if s.draft() >= Draft::D2019 {
            self.dynamic_references(value);
        }
        if let Some(not) = s.not
            && self.same(not, None, value, true).is_ok()
        {
            self.fail("'not' failed".to_owned());
        }
        self.all_of(value);
        self.any_of(value);
        self.one_of(value);
        if let Some((condition, then, otherwise)) = s.condition {
            let branch = if self.same(condition, None, value, true).is_ok() { then } else { otherwise };
            if let Some(branch) = branch {
                let result = self.same(branch, None, value, false);
                self.add(result);
            }
        }
        if s.draft() >= Draft::D2019 {
            self.unevaluated(value);
        }
    }

    fn all_of(&mut self, value: &Json) {
        let mut causes = Vec::new();
        for id in &self.schema.all_of {
            causes.extend(self.same(*id, None, value, false).err());
            if self.quiet && !causes.is_empty() {
                break;
            }
        }
        if !causes.is_empty() {
            self.fail_with("'allOf' failed", causes);
        }
    }

    fn any_of(&mut self, value: &Json) {
        let mut causes = Vec::new();
        let mut matched = self.schema.any_of.is_empty();
        for id in &self.schema.any_of {
            match self.same(*id, None, value, false) {
                Err(failure) => causes.push(failure),
                Ok(()) => {
                    matched = true;
                    // Whoever asks what is left unevaluated wants every branch that matches.
                    if self.rest.is_empty() {
                        break;
                    }
                }
            }
        }
        if !matched {
            self.fail_with("'anyOf' failed", causes);
        }
    }

    fn one_of(&mut self, value: &Json) {
        let mut causes = Vec::new();
        let mut matched = None;
        for (index, id) in self.schema.one_of.iter().enumerate() {
            match (self.same(*id, None, value, matched.is_some()), matched) {
                (Err(failure), None) => causes.push(failure),
                (Err(_), Some(_)) => {}
                (Ok(()), None) => matched = Some(index),
                (Ok(()), Some(first)) => {
                    return self.fail(format!("'oneOf' failed, subschemas {first}, {index} matched"));
                }
            }
        }
        if matched.is_none() && !self.schema.one_of.is_empty() {
            self.fail_with("'oneOf' failed, none matched", causes);
        }
    }

    fn unevaluated(&mut self, value: &Json) {
        match (value, self.schema.unevaluated_properties, self.schema.unevaluated_items) {
            (Json::Object(entries), Some(id), _) => {
                for name in std::mem::take(&mut self.rest.properties) {
                    if let Some(value) = entries.get(&name) {
                        self.part(id, value, &name);
                    }
                }
            }
            (Json::Array(items), _, Some(id)) => {
                for index in std::mem::take(&mut self.rest.items) {
                    self.part(id, &items[index], &index.to_string());
                }
            }
            _ => {}
        }
    }

    fn dynamic_references(&mut self, value: &Json) {
        let schemas = &self.run.compiled.schemas;
        if let Some(target) = self.schema.recursive_ref {
            let mut target = target;
            if schemas[target].recursive_anchor {
                for scope in self.scopes() {
                    let resource = schemas[scope].resource;
                    if schemas[resource].recursive_anchor {
                        target = scope;
                    }
                }
            }
            let result = self.refer(target, "$recursiveRef", value);
            self.add(result);
        }
        if let Some((target, anchor)) = &self.schema.dynamic_ref {
            let mut target = *target;
            if let Some(anchor) = anchor.as_ref().filter(|a| **a == schemas[target].dynamic_anchor) {
                for scope in self.scopes() {
                    if let Some(found) = schemas[schemas[scope].resource].dynamic_anchors.get(anchor) {
                        target = *found;
                    }
                }
            }
            let result = self.refer(target, "$dynamicRef", value);
            self.add(result);
        }
    }

    /// The schemas on the way here, innermost first.
    fn scopes(&self) -> Vec<Id> {
        std::iter::successors(Some(self.scope), |scope| scope.parent).map(|scope| scope.schema).collect()
    }

    fn refer(&mut self, target: Id, keyword: &'static str, value: &Json) -> Result<(), Failure> {
        self.same(target, Some(keyword), value, false).map_err(|failure| {
            let causes = match failure {
                Failure { kind: Kind::Group, causes, .. } => causes,
                failure => vec![failure],
            };
            Failure { causes, ..self.failure(Kind::Reference) }
        })
    }

    /// Another schema for the same value.
    fn same(
        &mut self,
        id: Id,
        keyword: Option<&'static str>,
        value: &Json,
        quiet: bool,
    ) -> Result<(), Failure> {
        let scope = self.scope.child(id, keyword, self.scope.instance);
        let asked = !self.rest.is_empty();
        let mut rest = Unevaluated::of(value, &self.run.compiled.schemas[id], asked);
        let result = self.run.check(id, value, self.at, &scope, self.quiet || quiet, &mut rest);
        if result.is_ok() && asked {
            self.rest.keep_only(&rest);
        }
        result
    }

    /// A schema for a part of the value.
    fn below(&mut self, id: Id, value: &Json, name: &str) -> Result<(), Failure> {
        let scope = self.scope.child(id, None, self.scope.instance + 1);
        let mut rest = Unevaluated::of(value, &self.run.compiled.schemas[id], false);
        self.at.push(name.to_owned());
        let result = self.run.check(id, value, self.at, &scope, self.quiet, &mut rest);
        self.at.pop();
        result
    }

    fn part(&mut self, id: Id, value: &Json, name: &str) {
        let result = self.below(id, value, name);
        self.add(result);
    }
}

fn missing<'w>(entries: &Map<String, Json>, wanted: &'w [String]) -> Vec<&'w String> {
    wanted.iter().filter(|name| !entries.contains_key(*name)).collect()
}

fn type_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::check;

    fn errors(schema: serde_json::Value, value: serde_json::Value) -> String {
        check(schema.to_string().as_bytes(), &value).err().unwrap_or_default()
    }

    #[test]
    fn the_tree_of_causes_is_indented() {
        let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"g": {"oneOf": [
            {"type": "string", "maxLength": 2},
            {"type": "object", "required": ["x", "y"], "properties": {"q": {"type": "string"}}}]}}});
        assert_eq!(
            errors(schema, json!({"g": {"q": 1.0}})),
            "- at '/g': 'oneOf' failed, none matched\n  - at '/g': got object, want string\n  - at '/g': validation failed\n    - at '/g': missing properties 'x', 'y'\n    - at '/g/q': got number, want string\n"
        );
    }

    #[test]
    fn a_recursive_reference_follows_the_value() {
        let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"c": {"$ref": "#/$defs/n"}}, "additionalProperties": false}}});
        assert_eq!(errors(schema.clone(), json!({"c": {"c": {}}})), "");
        assert_eq!(
            errors(schema, json!({"c": {"x": 1}})),
            "- at '/c': additional properties 'x' not allowed\n"
        );
    }

    #[test]
    fn a_reference_to_itself_is_named() {
        let text = errors(json!({"$ref": "#"}), json!({}));
        assert!(text.contains("causing reference cycle"), "{text}");
    }

    #[test]
    fn files_and_servers_are_not_asked() {
        for reference in ["file:///etc/passwd", "http://localhost/x.json", "other.json"] {
            let text = errors(json!({"properties": {"a": {"$ref": reference}}}), json!({}));
            assert!(text.starts_with("failing loading"), "{text}");
        }
        assert_eq!(errors(json!({"$ref": "urn:x:y"}), json!({})), "");
    }

    #[test]
    fn exponential_schemas_end() {
        let mut definitions = serde_json::Map::new();
        for level in 0..60 {
            let next = json!({"$ref": format!("#/definitions/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d60".to_owned(), json!({"type": "object"}));
        let text = errors(
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [{"$ref": "#/definitions/d0"}], "definitions": definitions}),
            json!({}),
        );
        assert!(text.contains("too many steps"), "{text}");
    }

    #[test]
    fn unevaluated_properties_know_what_branches_looked_at() {
        let schema = json!({"allOf": [{"properties": {"a": true}}], "properties": {"b": true}, "unevaluatedProperties": false});
        assert_eq!(errors(schema.clone(), json!({"a": 1, "b": 2})), "");
        assert_eq!(errors(schema, json!({"c": 1})), "- at '/c': false schema\n");
    }
}
