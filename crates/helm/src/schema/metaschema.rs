//! What a schema itself has to look like, for each draft: a table of keywords, made into a schema that schemas are checked against.
//!
//! Only what a check can tell is in it. The groups are those of the published metaschemas, since the tree of causes shows them.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use super::LOCATION;
use super::compile::{Compiled, compile};
use super::resource::Draft;
use super::validate::validate;

/// Why a document is no schema of its draft, in Helm's words.
pub(super) fn check(document: &Json, draft: Draft) -> Result<(), String> {
    validate(compiled(draft), document).map_err(|causes| {
        let location = format!("{LOCATION}#");
        let name = format!("{}#", url(draft));
        format!(
            "{location:?} is not valid against metaschema: jsonschema validation failed with {}\n{causes}",
            super::message::quote(&name)
        )
    })
}

fn url(draft: Draft) -> &'static str {
    match draft {
        Draft::D4 => "http://json-schema.org/draft-04/schema",
        Draft::D6 => "http://json-schema.org/draft-06/schema",
        Draft::D7 => "http://json-schema.org/draft-07/schema",
        Draft::D2019 => "https://json-schema.org/draft/2019-09/schema",
        Draft::D2020 => "https://json-schema.org/draft/2020-12/schema",
    }
}

fn compiled(draft: Draft) -> &'static Compiled {
    static D4: LazyLock<Compiled> = LazyLock::new(|| build(Draft::D4));
    static D6: LazyLock<Compiled> = LazyLock::new(|| build(Draft::D6));
    static D7: LazyLock<Compiled> = LazyLock::new(|| build(Draft::D7));
    static D2019: LazyLock<Compiled> = LazyLock::new(|| build(Draft::D2019));
    static D2020: LazyLock<Compiled> = LazyLock::new(|| build(Draft::D2020));
    match draft {
        Draft::D4 => &D4,
        Draft::D6 => &D6,
        Draft::D7 => &D7,
        Draft::D2019 => &D2019,
        Draft::D2020 => &D2020,
    }
}

fn build(draft: Draft) -> Compiled {
    let document = if draft < Draft::D2019 { in_one(draft) } else { in_vocabularies(draft) };
    compile(&document).expect("the metaschemas refer only to themselves")
}

/// What a keyword's value has to be.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Uri,
    UriReference,
    Regex,
    Anchor,
    Id,
    Flag,
    Number,
    Positive,
    Count,
    /// A count that is 0 when it is not given; written as a schema of its own.
    CountOrNone,
    Schema,
    Schemas,
    SchemaOrSchemas,
    /// Draft 4 wrote `false` and a schema as alternatives.
    FlagOrSchema,
    ByName,
    ByPattern,
    Dependencies,
    Texts,
    TextsByName,
    Enum,
    Types,
    Examples,
    Vocabulary,
}

use Shape::{
    Anchor, ByName, ByPattern, Count, CountOrNone, Dependencies, Enum, Examples, Flag, FlagOrSchema, Id,
    Number, Positive, Regex, Schema, SchemaOrSchemas, Schemas, Text, Texts, TextsByName, Types, Uri,
    UriReference, Vocabulary,
};

const APPLICATORS: &[(&str, Shape)] = &[
    ("additionalProperties", Schema),
    ("properties", ByName),
    ("patternProperties", ByPattern),
    ("contains", Schema),
    ("propertyNames", Schema),
    ("if", Schema),
    ("then", Schema),
    ("else", Schema),
    ("allOf", Schemas),
    ("anyOf", Schemas),
    ("oneOf", Schemas),
    ("not", Schema),
];

const ASSERTIONS: &[(&str, Shape)] = &[
    ("multipleOf", Positive),
    ("maximum", Number),
    ("exclusiveMaximum", Number),
    ("minimum", Number),
    ("exclusiveMinimum", Number),
    ("maxLength", Count),
    ("minLength", CountOrNone),
    ("pattern", Regex),
    ("maxItems", Count),
    ("minItems", CountOrNone),
    ("uniqueItems", Flag),
    ("maxProperties", Count),
    ("minProperties", CountOrNone),
    ("required", Texts),
    ("enum", Enum),
    ("type", Types),
];

/// Drafts 4, 6 and 7: one schema with all keywords.
fn in_one(draft: Draft) -> Json {
    let mut keywords: Vec<(&str, Shape)> = APPLICATORS.iter().chain(ASSERTIONS).copied().collect();
    keywords.extend([
        ("$schema", Uri),
        ("title", Text),
        ("description", Text),
        ("items", SchemaOrSchemas),
        ("additionalItems", Schema),
        ("definitions", ByName),
        ("dependencies", Dependencies),
        ("format", Text),
        ("$ref", UriReference),
        ("$id", UriReference),
    ]);
    if draft == Draft::D7 {
        keywords.extend([
            ("$comment", Text),
            ("readOnly", Flag),
            ("writeOnly", Flag),
            ("examples", Examples),
            ("contentMediaType", Text),
            ("contentEncoding", Text),
        ]);
    } else {
        keywords.retain(|(name, _)| !matches!(*name, "if" | "then" | "else"));
    }
    if draft == Draft::D4 {
        keywords.retain(|(name, _)| !matches!(*name, "contains" | "propertyNames" | "$id"));
        keywords.push(("id", Text));
        for (name, shape) in &mut keywords {
            *shape = match *name {
                "exclusiveMaximum" | "exclusiveMinimum" => Flag,
                "additionalItems" | "additionalProperties" => FlagOrSchema,
                "$ref" => Text,
                _ => *shape,
            };
        }
    }
    let mut schema = vocabulary(&keywords, draft);
    schema["$schema"] = json!(url(draft));
    schema["definitions"] = definitions(draft);
    if draft == Draft::D4 {
        schema["type"] = json!("object");
        schema["dependencies"] = json!({"exclusiveMaximum": ["maximum"], "exclusiveMinimum": ["minimum"]});
    }
    schema
}

/// 2019-09 and 2020-12: a schema that has to hold for each group of keywords.
fn in_vocabularies(draft: Draft) -> Json {
    let is_2020 = draft == Draft::D2020;
    let mut core = vec![
        ("$id", Id),
        ("$schema", Uri),
        ("$ref", UriReference),
        ("$anchor", Anchor),
        ("$vocabulary", Vocabulary),
        ("$comment", Text),
        ("$defs", ByName),
    ];
    let mut applicators = APPLICATORS.to_vec();
    applicators.push(("dependentSchemas", ByName));
    let unevaluated = [("unevaluatedItems", Schema), ("unevaluatedProperties", Schema)];
    let mut assertions = ASSERTIONS.to_vec();
    assertions.extend([("maxContains", Count), ("minContains", Count), ("dependentRequired", TextsByName)]);
    let meta_data = [
        ("title", Text),
        ("description", Text),
        ("deprecated", Flag),
        ("readOnly", Flag),
        ("writeOnly", Flag),
        ("examples", Examples),
    ];
    let content = [("contentMediaType", Text), ("contentEncoding", Text), ("contentSchema", Schema)];
    let mut groups = Vec::new();
    if is_2020 {
        core.extend([("$dynamicRef", UriReference), ("$dynamicAnchor", Anchor)]);
        applicators.extend([("prefixItems", Schemas), ("items", Schema)]);
        groups.extend([core, applicators, unevaluated.to_vec()]);
    } else {
        core.extend([("$recursiveRef", UriReference), ("$recursiveAnchor", Flag)]);
        applicators.extend([("items", SchemaOrSchemas), ("additionalItems", Schema)]);
        applicators.extend(unevaluated);
        groups.extend([core, applicators]);
    }
    groups.extend([assertions, meta_data.to_vec(), vec![("format", Text)], content.to_vec()]);
    let mut own = vec![("definitions", ByName), ("dependencies", Dependencies)];
    if is_2020 {
        own.extend([("$recursiveAnchor", Anchor), ("$recursiveRef", UriReference)]);
    }
    let mut schema = vocabulary(&own, draft);
    let mut definitions = definitions(draft);
    let mut all = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        definitions[format!("group{at}")] = vocabulary(group, draft);
        all.push(json!({"$ref": format!("#/definitions/group{at}")}));
    }
    schema["$schema"] = json!(url(draft));
    schema["allOf"] = Json::Array(all);
    schema["definitions"] = definitions;
    schema
}

fn vocabulary(keywords: &[(&str, Shape)], draft: Draft) -> Json {
    let properties: Map<String, Json> =
        keywords.iter().map(|(name, shape)| ((*name).to_owned(), shape.schema(draft))).collect();
    json!({"type": ["object", "boolean"], "properties": properties})
}

fn definitions(draft: Draft) -> Json {
    let count = json!({"$ref": "#/definitions/count"});
    let mut texts = json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true});
    if draft == Draft::D4 {
        texts["minItems"] = json!(1);
    }
    json!({
        "schemas": {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
        "count": {"type": "integer", "minimum": 0},
        "countOrNone": if draft < Draft::D2019 { json!({"allOf": [count, {"default": 0}]}) } else { count },
        "type": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]},
        "texts": texts,
        "uriReference": {"type": "string", "format": "uri-reference"},
        "uri": {"type": "string", "format": "uri"},
        "anchor": {"type": "string", "pattern": "^[A-Za-z_][-A-Za-z0-9._]*$"},
    })
}

impl Shape {
    fn schema(self, draft: Draft) -> Json {
        let refers = |name: &str| json!({"$ref": format!("#/definitions/{name}")});
        let is_2020 = draft == Draft::D2020;
        match self {
            Text => json!({"type": "string"}),
            Uri if is_2020 => refers("uri"),
            Uri => json!({"type": "string", "format": "uri"}),
            UriReference if is_2020 => refers("uriReference"),
            UriReference => json!({"type": "string", "format": "uri-reference"}),
            Regex => json!({"type": "string", "format": "regex"}),
            Anchor if is_2020 => refers("anchor"),
            Anchor => json!({"type": "string", "pattern": "^[A-Za-z][-A-Za-z0-9.:_]*$"}),
            Id if is_2020 => json!({"$ref": "#/definitions/uriReference", "pattern": "^[^#]*#?$"}),
            Id => json!({"type": "string", "format": "uri-reference", "pattern": "^[^#]*#?$"}),
            Flag => json!({"type": "boolean"}),
            Number => json!({"type": "number"}),
            Positive if draft == Draft::D4 => {
                json!({"type": "number", "minimum": 0, "exclusiveMinimum": true})
            }
            Positive => json!({"type": "number", "exclusiveMinimum": 0}),
            Count => refers("count"),
            CountOrNone => refers("countOrNone"),
            Schema => json!({"$ref": "#"}),
            Schemas => refers("schemas"),
            SchemaOrSchemas => json!({"anyOf": [{"$ref": "#"}, refers("schemas")]}),
            FlagOrSchema => json!({"anyOf": [{"type": "boolean"}, {"$ref": "#"}]}),
            ByPattern if draft >= Draft::D7 => json!({
                "type": "object", "additionalProperties": {"$ref": "#"}, "propertyNames": {"format": "regex"},
            }),
            ByName | ByPattern => json!({"type": "object", "additionalProperties": {"$ref": "#"}}),
            Dependencies => json!({
                "type": "object",
                "additionalProperties": {"anyOf": [{"$ref": "#"}, refers("texts")]},
            }),
            Texts => refers("texts"),
            TextsByName => json!({"type": "object", "additionalProperties": refers("texts")}),
            Enum if draft < Draft::D2019 => json!({"type": "array", "minItems": 1, "uniqueItems": true}),
            Enum | Examples => json!({"type": "array"}),
            Types => json!({"anyOf": [
                refers("type"),
                {"type": "array", "items": refers("type"), "minItems": 1, "uniqueItems": true},
            ]}),
            Vocabulary => json!({
                "type": "object",
                "propertyNames": if is_2020 { refers("uri") } else { json!({"type": "string", "format": "uri"}) },
                "additionalProperties": {"type": "boolean"},
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metaschema_accepts_itself_and_no_other_kind_of_value() {
        for draft in [Draft::D4, Draft::D6, Draft::D7, Draft::D2019, Draft::D2020] {
            let document = if draft < Draft::D2019 { in_one(draft) } else { in_vocabularies(draft) };
            assert_eq!(check(&document, draft), Ok(()), "{draft:?}");
            assert!(check(&json!([]), draft).is_err(), "{draft:?}");
            assert!(check(&json!({"minimum": "1"}), draft).is_err(), "{draft:?}");
        }
    }
}
