//! The resources of a schema document: which part of it has which draft, base URL and anchors.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::LOCATION;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    D4,
    D6,
    D7,
    D2019,
    D2020,
}

impl Draft {
    /// The draft a `$schema` names.
    fn of(url: &str) -> Option<Draft> {
        let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
        if !fragment.is_empty() {
            return None;
        }
        let url = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or(url);
        match url {
            "json-schema.org/schema" | "json-schema.org/draft/2020-12/schema" => Some(Draft::D2020),
            "json-schema.org/draft/2019-09/schema" => Some(Draft::D2019),
            "json-schema.org/draft-07/schema" => Some(Draft::D7),
            "json-schema.org/draft-06/schema" => Some(Draft::D6),
            "json-schema.org/draft-04/schema" => Some(Draft::D4),
            _ => None,
        }
    }

    fn id_keyword(self) -> &'static str {
        if self == Draft::D4 { "id" } else { "$id" }
    }
}

pub(super) struct Resource {
    pub(super) id: String,
    pub(super) draft: Draft,
    /// Anchor to JSON pointer.
    pub(super) anchors: BTreeMap<String, String>,
    pub(super) dynamic_anchors: Vec<String>,
}

/// The resources by the JSON pointer where each begins; the document itself is at "".
pub(super) struct Resources(BTreeMap<String, Resource>);

/// How deep subschemas may nest; the JSON parser allows no more either.
const MAX_DEPTH: usize = 200;

impl Resources {
    pub(super) fn collect(document: &Json) -> Result<Resources, String> {
        let mut found = Resources(BTreeMap::new());
        found.visit(document, "", LOCATION, Draft::D2020, 0)?;
        if !found.0.contains_key("") {
            let root = Resource {
                id: LOCATION.to_owned(),
                draft: Draft::D2020,
                anchors: BTreeMap::new(),
                dynamic_anchors: Vec::new(),
            };
            found.0.insert(String::new(), root);
        }
        Ok(found)
    }

    /// The resource that the schema at a pointer belongs to, and where it begins.
    pub(super) fn of<'a>(&'a self, pointer: &'a str) -> (&'a str, &'a Resource) {
        let mut at = pointer;
        loop {
            if let Some(resource) = self.0.get(at) {
                return (at, resource);
            }
            match at.rfind('/') {
                Some(slash) => at = &at[..slash],
                None => return ("", &self.0[""]),
            }
        }
    }

    /// The pointer a reference leads to from a base URL, or why it leads nowhere we may go.
    pub(super) fn resolve(&self, base: &str, reference: &str) -> Result<Target, String> {
        let (url, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let url = join(base, url);
        let fragment = percent_decode(fragment);
        let found =
            if url == LOCATION { self.0.get_key_value("") } else { self.0.iter().find(|(_, r)| r.id == url) };
        let Some((start, resource)) = found else { return outside(&url) };
        if fragment.is_empty() || fragment.starts_with('/') {
            return Ok(Target::Pointer(format!("{start}{fragment}")));
        }
        match resource.anchors.get(&fragment) {
            Some(pointer) => Ok(Target::Pointer(pointer.clone())),
            None => {
                Err(format!("anchor in {:?} not found in schema {LOCATION:?}", format!("{url}#{fragment}"),))
            }
        }
    }

    fn visit(
        &mut self,
        schema: &Json,
        pointer: &str,
        base: &str,
        inherited: Draft,
        depth: usize,
    ) -> Result<(), String> {
        let Json::Object(fields) = schema else { return Ok(()) };
        if depth > MAX_DEPTH {
            return Err("schema is nested too deeply".to_owned());
        }
        let mut draft = match fields.get("$schema").and_then(Json::as_str) {
            None => inherited,
            Some(url) => match Draft::of(url) {
                Some(draft) => draft,
                None if pointer.is_empty() => return Err(refused(url.trim_end_matches('#'))),
                None => inherited,
            },
        };
        let mut id = id_of(fields, draft);
        if id.is_empty() && !pointer.is_empty() {
            draft = inherited;
            id = id_of(fields, draft);
        }
        let mut base = base.to_owned();
        if !id.is_empty() {
            base = join(&base, &id);
        }
        if !id.is_empty() || pointer.is_empty() {
            if let Some((other, _)) = self.0.iter().find(|(_, r)| r.id == base) {
                return Err(format!("duplicate id {base:?} in {LOCATION:?} at {pointer:?} and {other:?}"));
            }
            let resource =
                Resource { id: base.clone(), draft, anchors: BTreeMap::new(), dynamic_anchors: Vec::new() };
            self.0.insert(pointer.to_owned(), resource);
        }
        self.anchors(fields, pointer, &base, draft);
        for (keyword, value) in fields {
            self.subschemas(keyword, value, pointer, &base, draft, depth)?;
        }
        Ok(())
    }

    fn subschemas(
        &mut self,
        keyword: &str,
        value: &Json,
        pointer: &str,
        base: &str,
        draft: Draft,
        depth: usize,
    ) -> Result<(), String> {
        let at = format!("{pointer}/{}", escape(keyword));
        let shape = Shape::of(keyword, draft);
        match (shape, value) {
            (Shape::None, _) => Ok(()),
            (Shape::One | Shape::OneOrList, Json::Object(_)) => {
                self.visit(value, &at, base, draft, depth + 1)
            }
            (Shape::List | Shape::OneOrList, Json::Array(items)) => items
                .iter()
                .enumerate()
                .try_for_each(|(i, item)| self.visit(item, &format!("{at}/{i}"), base, draft, depth + 1)),
            (Shape::Map, Json::Object(entries)) => entries.iter().try_for_each(|(name, item)| {
                self.visit(item, &format!("{at}/{}", escape(name)), base, draft, depth + 1)
            }),
            _ => Ok(()),
        }
    }

    fn anchors(&mut self, fields: &serde_json::Map<String, Json>, pointer: &str, base: &str, draft: Draft) {
        let Some(resource) = self.0.values_mut().find(|r| r.id == base) else { return };
        let text = |key: &str| fields.get(key).and_then(Json::as_str);
        if draft < Draft::D2019 {
            if fields.contains_key("$ref") {
                return;
            }
            if let Some((_, fragment)) = text(draft.id_keyword()).and_then(|id| id.split_once('#'))
                && !fragment.is_empty()
                && !fragment.starts_with('/')
            {
                resource.anchors.insert(percent_decode(fragment), pointer.to_owned());
            }
            return;
        }
        if let Some(anchor) = text("$anchor") {
            resource.anchors.insert(anchor.to_owned(), pointer.to_owned());
        }
        if draft >= Draft::D2020
            && let Some(anchor) = text("$dynamicAnchor")
        {
            resource.anchors.insert(anchor.to_owned(), pointer.to_owned());
            resource.dynamic_anchors.push(anchor.to_owned());
        }
    }
}

pub(super) enum Target {
    Pointer(String),
    /// A URN nobody resolves, or a metaschema: accepts everything.
    Anything,
}

/// What lies outside the document is never fetched.
fn outside(url: &str) -> Result<Target, String> {
    let is_metaschema = Draft::of(url).is_some()
        || url.starts_with("https://json-schema.org/draft/")
        || url.starts_with("http://json-schema.org/draft");
    if url.starts_with("urn:") || is_metaschema {
        return Ok(Target::Anything);
    }
    Err(refused(url))
}

fn refused(url: &str) -> String {
    format!("failing loading {url:?}: schemas are not read from files or the network")
}

fn id_of(fields: &serde_json::Map<String, Json>, draft: Draft) -> String {
    if draft < Draft::D2019 && fields.contains_key("$ref") {
        return String::new();
    }
    let id = fields.get(draft.id_keyword()).and_then(Json::as_str).unwrap_or_default();
    id.split('#').next().unwrap_or_default().to_owned()
}

/// What a keyword holds, as far as schemas are concerned.
enum Shape {
    None,
    One,
    List,
    OneOrList,
    Map,
}

impl Shape {
    fn of(keyword: &str, draft: Draft) -> Shape {
        match keyword {
            "not" | "additionalProperties" | "additionalItems" => Shape::One,
            "items" => Shape::OneOrList,
            "allOf" | "anyOf" | "oneOf" => Shape::List,
            "definitions" | "properties" | "patternProperties" | "dependencies" => Shape::Map,
            "propertyNames" | "contains" if draft >= Draft::D6 => Shape::One,
            "if" | "then" | "else" if draft >= Draft::D7 => Shape::One,
            "$defs" | "dependentSchemas" if draft >= Draft::D2019 => Shape::Map,
            "unevaluatedProperties" | "unevaluatedItems" | "contentSchema" if draft >= Draft::D2019 => {
                Shape::One
            }
            "prefixItems" if draft >= Draft::D2020 => Shape::List,
            _ => Shape::None,
        }
    }
}

pub(super) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A URL reference against a base, as far as schemas use them.
fn join(base: &str, reference: &str) -> String {
    if reference.is_empty() {
        return base.to_owned();
    }
    let scheme = reference.split(':').next().unwrap_or_default();
    let is_absolute = reference.contains(':')
        && !scheme.is_empty()
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if is_absolute {
        return reference.to_owned();
    }
    let (prefix, path) = match base.find("://") {
        Some(at) => {
            let rest = &base[at + 3..];
            let slash = rest.find('/').unwrap_or(rest.len());
            (&base[..at + 3 + slash], &rest[slash..])
        }
        None => return base.to_owned(),
    };
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{}://{rest}", base.split("://").next().unwrap_or("file"));
    }
    let joined = if reference.starts_with('/') {
        reference.to_owned()
    } else {
        format!("{}/{reference}", path.rsplit_once('/').map_or("", |(folder, _)| folder))
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/').skip(1) {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("{prefix}/{}", parts.join("/"))
}
