//! A schema document as a table of schemas that refer to each other by position.

use std::collections::{BTreeMap, HashMap};

use regex::Regex;
use serde_json::{Number, Value as Json};

use super::LOCATION;
use super::resource::{Draft, Resources, Target, escape};

/// A schema's place in the table.
pub(super) type Id = usize;

pub(super) struct Compiled {
    pub(super) schemas: Vec<Schema>,
}

#[derive(Default)]
pub(super) struct Schema {
    pub(super) pointer: String,
    pub(super) draft: Option<Draft>,
    /// Where this schema's resource begins.
    pub(super) resource: Id,
    pub(super) dynamic_anchors: BTreeMap<String, Id>,
    pub(super) boolean: Option<bool>,
    pub(super) reference: Option<Id>,
    pub(super) recursive_ref: Option<Id>,
    pub(super) recursive_anchor: bool,
    pub(super) dynamic_ref: Option<(Id, Option<String>)>,
    pub(super) dynamic_anchor: String,
    pub(super) types: Vec<String>,
    pub(super) constant: Option<Json>,
    pub(super) enumeration: Option<Vec<Json>>,
    pub(super) format: Option<String>,
    pub(super) all_of: Vec<Id>,
    pub(super) any_of: Vec<Id>,
    pub(super) one_of: Vec<Id>,
    pub(super) not: Option<Id>,
    pub(super) condition: Option<(Id, Option<Id>, Option<Id>)>,
    pub(super) min_properties: Option<i64>,
    pub(super) max_properties: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) properties: BTreeMap<String, Id>,
    pub(super) pattern_properties: Vec<(Regex, Id)>,
    pub(super) additional_properties: Option<Additional>,
    pub(super) property_names: Option<Id>,
    pub(super) dependencies: BTreeMap<String, Dependency>,
    pub(super) dependent_required: BTreeMap<String, Vec<String>>,
    pub(super) dependent_schemas: BTreeMap<String, Id>,
    pub(super) unevaluated_properties: Option<Id>,
    pub(super) min_items: Option<i64>,
    pub(super) max_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) items: Option<Items>,
    pub(super) additional_items: Option<Additional>,
    pub(super) prefix_items: Vec<Id>,
    pub(super) contains: Option<Id>,
    pub(super) min_contains: Option<i64>,
    pub(super) max_contains: Option<i64>,
    pub(super) unevaluated_items: Option<Id>,
    pub(super) min_length: Option<i64>,
    pub(super) max_length: Option<i64>,
    pub(super) pattern: Option<Regex>,
    pub(super) minimum: Option<Number>,
    pub(super) maximum: Option<Number>,
    pub(super) exclusive_minimum: Option<Number>,
    pub(super) exclusive_maximum: Option<Number>,
    pub(super) multiple_of: Option<Number>,
}

#[derive(Clone, Copy)]
pub(super) enum Additional {
    Allowed(bool),
    Schema(Id),
}

pub(super) enum Items {
    Each(Id),
    Tuple(Vec<Id>),
}

pub(super) enum Dependency {
    Required(Vec<String>),
    Schema(Id),
}

impl Schema {
    pub(super) fn draft(&self) -> Draft {
        self.draft.unwrap_or(Draft::D2020)
    }

    pub(super) fn location(&self) -> String {
        format!("{LOCATION}#{}", self.pointer)
    }
}

/// A pattern may not compile to more than this.
const MAX_REGEX: usize = 4 << 20;

pub(super) fn compile(document: &Json) -> Result<Compiled, String> {
    let resources = Resources::collect(document)?;
    let mut compiler = Compiler { document, resources, schemas: Vec::new(), by_pointer: HashMap::new() };
    compiler.enqueue(String::new());
    let mut next = 0;
    while next < compiler.schemas.len() {
        compiler.schema(next)?;
        next += 1;
    }
    Ok(Compiled { schemas: compiler.schemas })
}

struct Compiler<'d> {
    document: &'d Json,
    resources: Resources,
    schemas: Vec<Schema>,
    by_pointer: HashMap<String, Id>,
}

impl<'d> Compiler<'d> {
    fn enqueue(&mut self, pointer: String) -> Id {
        if let Some(id) = self.by_pointer.get(&pointer) {
            return *id;
        }
        let id = self.schemas.len();
        self.schemas.push(Schema { pointer: pointer.clone(), ..Schema::default() });
        self.by_pointer.insert(pointer, id);
        id
    }

    fn schema(&mut self, id: Id) -> Result<(), String> {
        let pointer = self.schemas[id].pointer.clone();
        if pointer == ANYTHING {
            self.schemas[id].boolean = Some(true);
            return Ok(());
        }
        let document = self.document;
        let value = document
            .pointer(&pointer)
            .ok_or_else(|| format!("json-pointer in {:?} not found", format!("{LOCATION}#{pointer}")))?;
        let (start, resource) = self.resources.of(&pointer);
        let (start, draft) = (start.to_owned(), resource.draft);
        let dynamic: Vec<(String, String)> = if start == pointer {
            resource
                .dynamic_anchors
                .iter()
                .filter_map(|a| Some((a.clone(), resource.anchors.get(a)?.clone())))
                .collect()
        } else {
            Vec::new()
        };
        let resource = self.enqueue(start);
        let dynamic_anchors =
            dynamic.into_iter().map(|(anchor, pointer)| (anchor, self.enqueue(pointer))).collect();
        let mut schema = Schema {
            pointer: pointer.clone(),
            draft: Some(draft),
            resource,
            dynamic_anchors,
            ..Schema::default()
        };
        match value {
            Json::Bool(value) => schema.boolean = Some(*value),
            Json::Object(fields) if fields.is_empty() => schema.boolean = Some(true),
            Json::Object(fields) => {
                Keywords { compiler: self, fields, pointer: &pointer, draft }.read(&mut schema)?
            }
            _ => {}
        }
        self.schemas[id] = schema;
        Ok(())
    }
}

/// The pointer that stands for a schema that accepts everything.
const ANYTHING: &str = "\0anything";

struct Keywords<'c, 'd> {
    compiler: &'c mut Compiler<'d>,
    fields: &'d serde_json::Map<String, Json>,
    pointer: &'c str,
    draft: Draft,
}

impl Keywords<'_, '_> {
    fn read(&mut self, s: &mut Schema) -> Result<(), String> {
        s.reference = self.reference("$ref")?;
        if self.draft < Draft::D2019 && s.reference.is_some() {
            return Ok(());
        }
        self.applicators(s)?;
        self.assertions(s)?;
        if self.draft >= Draft::D2019 {
            self.since_2019(s)?;
        }
        Ok(())
    }

    fn applicators(&mut self, s: &mut Schema) -> Result<(), String> {
        s.all_of = self.list("allOf");
        s.any_of = self.list("anyOf");
        s.one_of = self.list("oneOf");
        s.not = self.one("not");
        s.properties = self.map("properties");
        for (pattern, id) in self.map("patternProperties") {
            s.pattern_properties.push((self.regex("patternProperties", &pattern)?, id));
        }
        s.additional_properties = self.additional("additionalProperties");
        s.dependencies = self.dependencies();
        if self.draft < Draft::D2020 {
            if self.fields.get("items").is_some_and(Json::is_array) {
                s.items = Some(Items::Tuple(self.list("items")));
                s.additional_items = self.additional("additionalItems");
            } else {
                s.items = self.one("items").map(Items::Each);
            }
        } else {
            s.prefix_items = self.list("prefixItems");
            s.items = self.one("items").map(Items::Each);
        }
        if self.draft >= Draft::D6 {
            s.contains = self.one("contains");
            s.property_names = self.one("propertyNames");
        }
        if self.draft >= Draft::D7
            && let Some(condition) = self.one("if")
        {
            s.condition = Some((condition, self.one("then"), self.one("else")));
        }
        Ok(())
    }

    fn assertions(&mut self, s: &mut Schema) -> Result<(), String> {
        s.types = self.types();
        s.enumeration = self.fields.get("enum").and_then(Json::as_array).cloned();
        if self.draft >= Draft::D6 {
            s.constant = self.fields.get("const").cloned();
        }
        s.multiple_of = self.number("multipleOf");
        (s.maximum, s.exclusive_maximum) = self.bound("maximum", "exclusiveMaximum");
        (s.minimum, s.exclusive_minimum) = self.bound("minimum", "exclusiveMinimum");
        s.min_length = self.whole("minLength");
        s.max_length = self.whole("maxLength");
        if let Some(pattern) = self.fields.get("pattern").and_then(Json::as_str) {
            s.pattern = Some(self.regex("pattern", pattern)?);
        }
        s.min_items = self.whole("minItems");
        s.max_items = self.whole("maxItems");
        s.unique_items = self.flag("uniqueItems");
        s.min_properties = self.whole("minProperties");
        s.max_properties = self.whole("maxProperties");
        s.required = strings(self.fields.get("required"));
        if self.draft < Draft::D2019 {
            s.format = self.fields.get("format").and_then(Json::as_str).map(str::to_owned);
        }
        Ok(())
    }

    fn since_2019(&mut self, s: &mut Schema) -> Result<(), String> {
        s.recursive_ref = self.reference("$recursiveRef")?;
        s.recursive_anchor = self.flag("$recursiveAnchor");
        if s.contains.is_some() {
            s.min_contains = self.whole("minContains");
            s.max_contains = self.whole("maxContains");
        }
        if let Some(Json::Object(entries)) = self.fields.get("dependentRequired") {
            s.dependent_required = entries.iter().map(|(k, v)| (k.clone(), strings(Some(v)))).collect();
        }
        s.dependent_schemas = self.map("dependentSchemas");
        s.unevaluated_items = self.one("unevaluatedItems");
        s.unevaluated_properties = self.one("unevaluatedProperties");
        if self.draft >= Draft::D2020 {
            if let Some(id) = self.reference("$dynamicRef")? {
                let text = self.fields.get("$dynamicRef").and_then(Json::as_str).unwrap_or_default();
                let anchor =
                    text.split_once('#').map(|(_, f)| f).filter(|f| !f.is_empty() && !f.starts_with('/'));
                s.dynamic_ref = Some((id, anchor.map(str::to_owned)));
            }
            s.dynamic_anchor =
                self.fields.get("$dynamicAnchor").and_then(Json::as_str).unwrap_or_default().to_owned();
        }
        Ok(())
    }

    fn reference(&mut self, keyword: &str) -> Result<Option<Id>, String> {
        let Some(text) = self.fields.get(keyword).and_then(Json::as_str) else { return Ok(None) };
        let base = self.compiler.resources.of(self.pointer).1.id.clone();
        let pointer = match self.compiler.resources.resolve(&base, text)? {
            Target::Pointer(pointer) => pointer,
            Target::Anything => ANYTHING.to_owned(),
        };
        Ok(Some(self.compiler.enqueue(pointer)))
    }

    fn at(&self, keyword: &str) -> String {
        format!("{}/{}", self.pointer, escape(keyword))
    }

    fn one(&mut self, keyword: &str) -> Option<Id> {
        self.fields.get(keyword)?;
        let pointer = self.at(keyword);
        Some(self.compiler.enqueue(pointer))
    }

    fn list(&mut self, keyword: &str) -> Vec<Id> {
        let Some(Json::Array(items)) = self.fields.get(keyword) else { return Vec::new() };
        let at = self.at(keyword);
        (0..items.len()).map(|i| self.compiler.enqueue(format!("{at}/{i}"))).collect()
    }

    fn map(&mut self, keyword: &str) -> BTreeMap<String, Id> {
        let Some(Json::Object(entries)) = self.fields.get(keyword) else { return BTreeMap::new() };
        let at = self.at(keyword);
        entries
            .keys()
            .map(|name| (name.clone(), self.compiler.enqueue(format!("{at}/{}", escape(name)))))
            .collect()
    }

    fn additional(&mut self, keyword: &str) -> Option<Additional> {
        match self.fields.get(keyword)? {
            Json::Bool(allowed) => Some(Additional::Allowed(*allowed)),
            _ => self.one(keyword).map(Additional::Schema),
        }
    }

    fn dependencies(&mut self) -> BTreeMap<String, Dependency> {
        let Some(Json::Object(entries)) = self.fields.get("dependencies") else { return BTreeMap::new() };
        let at = self.at("dependencies");
        entries
            .iter()
            .map(|(name, value)| {
                let dependency = match value {
                    Json::Array(_) => Dependency::Required(strings(Some(value))),
                    _ => Dependency::Schema(self.compiler.enqueue(format!("{at}/{}", escape(name)))),
                };
                (name.clone(), dependency)
            })
            .collect()
    }

    fn types(&self) -> Vec<String> {
        const ORDER: [&str; 7] = ["null", "boolean", "number", "integer", "string", "array", "object"];
        let named = match self.fields.get("type") {
            Some(Json::String(name)) => vec![name.clone()],
            Some(list @ Json::Array(_)) => strings(Some(list)),
            _ => Vec::new(),
        };
        ORDER.iter().filter(|t| named.iter().any(|n| n == *t)).map(|t| (*t).to_owned()).collect()
    }

    /// Draft 4's boolean `exclusiveMaximum` turns `maximum` into an exclusive bound.
    fn bound(&self, inclusive: &str, exclusive: &str) -> (Option<Number>, Option<Number>) {
        if self.flag(exclusive) {
            (None, self.number(inclusive))
        } else {
            (self.number(inclusive), self.number(exclusive))
        }
    }

    fn number(&self, keyword: &str) -> Option<Number> {
        match self.fields.get(keyword) {
            Some(Json::Number(number)) => Some(number.clone()),
            _ => None,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to be whole, and saturating is fine for a bound"
    )]
    fn whole(&self, keyword: &str) -> Option<i64> {
        let number = self.number(keyword)?;
        number.as_i64().or_else(|| number.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64))
    }

    fn flag(&self, keyword: &str) -> bool {
        self.fields.get(keyword) == Some(&Json::Bool(true))
    }

    fn regex(&self, keyword: &str, pattern: &str) -> Result<Regex, String> {
        regex::RegexBuilder::new(pattern).size_limit(MAX_REGEX).build().map_err(|error| {
            let at = format!("{LOCATION}#{}", self.at(keyword));
            let cause =
                error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            format!("invalid regex {pattern:?} at {at:?}: error parsing regexp: {cause}")
        })
    }
}

fn strings(value: Option<&Json>) -> Vec<String> {
    let items = value.and_then(Json::as_array).into_iter().flatten();
    items.filter_map(Json::as_str).map(str::to_owned).collect()
}
