//! How server-side apply sees a schema: every place is a scalar, a list, a map, or may be several of them.
//!
//! The rules follow Kubernetes' conversion of OpenAPI into structured-merge-diff types. No type at all means
//! "whatever comes": maps are merged by key, lists are replaced whole.

use kube_schema::{ListType, MapType, Schema, Schemas};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The type of one place in an object.
#[derive(Clone, Copy, Debug)]
pub enum Type<'a> {
    /// Described by a schema; unknown fields are kept if `preserve`.
    Known { schema: Schema<'a>, preserve: bool },
    /// The root of a custom resource: its schema does not describe `metadata`.
    CustomResource(Schema<'a>),
    /// Anything, merged as deep as maps go.
    Deduced,
    /// Anything, replaced whole.
    Untyped,
    /// Nothing may be here.
    Missing,
}

/// What may stand at a place. More than one may be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atom<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List<'a>>,
    pub(super) map: Option<MapOf<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    pub(super) items: Type<'a>,
    pub(super) kind: ListKind<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ListKind<'a> {
    Atomic,
    Set,
    /// The schema of the list, which names the keys.
    Map(Schema<'a>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MapOf<'a> {
    type_: Type<'a>,
    pub(super) atomic: bool,
    /// What an entry that is no named field holds.
    pub(super) values: Values<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    None,
    Deduced,
    Untyped,
    Of(Schema<'a>, bool),
}

impl<'a> Type<'a> {
    /// The root of a builtin kind.
    pub fn builtin(schema: Schema<'a>) -> Self {
        Type::Known { schema, preserve: false }
    }

    pub(super) fn atom(self) -> Atom<'a> {
        match self {
            Type::Missing => Atom { scalar: None, list: None, map: None },
            Type::Untyped => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(List { items: Type::Untyped, kind: ListKind::Atomic }),
                map: Some(MapOf { type_: self, atomic: true, values: Values::Untyped }),
            },
            Type::Deduced => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(List { items: Type::Untyped, kind: ListKind::Atomic }),
                map: Some(MapOf { type_: self, atomic: false, values: Values::Deduced }),
            },
            Type::CustomResource(schema) => {
                let preserve = schema.preserves_unknown_fields();
                Atom { scalar: None, list: None, map: Some(map_of(self, schema, preserve)) }
            }
            Type::Known { schema, preserve } => atom_of(self, schema, preserve),
        }
    }

    pub(super) fn map(self) -> Option<MapOf<'a>> {
        self.atom().map
    }

    pub(super) fn list(self) -> Option<List<'a>> {
        self.atom().list
    }

    /// Whether this is the map of anything: its ownership is never reconciled with a changed schema.
    pub(super) fn is_deduced_map(self) -> bool {
        match self {
            Type::Deduced | Type::Untyped => true,
            Type::Known { schema, .. } | Type::CustomResource(schema) => {
                let values = self.map().map(|map| map.values);
                schema.fields().len() == 0 && matches!(values, Some(Values::Deduced))
            }
            Type::Missing => false,
        }
    }
}

fn atom_of<'a>(type_: Type<'a>, schema: Schema<'a>, preserve: bool) -> Atom<'a> {
    match schema.definition_name() {
        Some(QUANTITY) => return Atom { scalar: Some(Scalar::Untyped), list: None, map: None },
        Some(RAW_EXTENSION) => return Type::Untyped.atom(),
        _ => {}
    }
    // A definition starts afresh; only types written in place inherit from what surrounds them.
    let preserve = (preserve && schema.definition_name().is_none()) || schema.preserves_unknown_fields();
    let only = |scalar| Atom { scalar: Some(scalar), list: None, map: None };
    match schema.type_() {
        kube_schema::Type::Any => Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(list_of(schema, preserve)),
            map: Some(map_of(type_, schema, preserve)),
        },
        kube_schema::Type::Object => {
            Atom { scalar: None, list: None, map: Some(map_of(type_, schema, preserve)) }
        }
        kube_schema::Type::Array => Atom { scalar: None, list: Some(list_of(schema, preserve)), map: None },
        kube_schema::Type::Integer | kube_schema::Type::Number => only(Scalar::Numeric),
        kube_schema::Type::Boolean => only(Scalar::Boolean),
        kube_schema::Type::String => match schema.format() {
            None | Some("byte") => only(Scalar::String),
            Some(_) => only(Scalar::Untyped),
        },
    }
}

fn list_of(schema: Schema<'_>, preserve: bool) -> List<'_> {
    let items = schema.items().map_or(Type::Untyped, |schema| Type::Known { schema, preserve });
    let kind = match schema.list_type() {
        Some(ListType::Atomic) => ListKind::Atomic,
        Some(ListType::Set) => ListKind::Set,
        Some(ListType::Map) => ListKind::Map(schema),
        None => match (schema.patch_strategy(), schema.merge_key()) {
            (Some("merge" | "merge,retainKeys"), Some(_)) => ListKind::Map(schema),
            (Some("merge" | "merge,retainKeys"), None) => ListKind::Set,
            _ => ListKind::Atomic,
        },
    };
    List { items, kind }
}

fn map_of<'a>(type_: Type<'a>, schema: Schema<'a>, preserve: bool) -> MapOf<'a> {
    let values = match (schema.map_values(), schema.additional_properties()) {
        (Some(values), _) => Values::Of(values, preserve),
        (None, Some(true)) => Values::Deduced,
        (None, Some(false)) => Values::None,
        (None, None) if preserve || schema.fields().len() == 0 => Values::Deduced,
        (None, None) => Values::None,
    };
    MapOf { type_, atomic: schema.map_type() == Some(MapType::Atomic), values }
}

impl<'a> MapOf<'a> {
    /// The named field's type.
    pub(super) fn field(self, name: &str) -> Option<Type<'a>> {
        let (schema, preserve, is_root) = match self.type_ {
            Type::Known { schema, preserve } => (schema, preserve, false),
            Type::CustomResource(schema) => (schema, false, true),
            Type::Deduced | Type::Untyped | Type::Missing => return None,
        };
        let preserve = (preserve && schema.definition_name().is_none()) || schema.preserves_unknown_fields();
        // The API server gives these to custom resources and embedded ones; their schemas leave them out.
        if is_root || schema.is_embedded_resource() {
            match name {
                "metadata" => return Schemas::kubernetes().definition(OBJECT_META).map(Type::builtin),
                "apiVersion" | "kind" => {
                    let meta = Schemas::kubernetes().definition(OBJECT_META)?;
                    return meta.field("name").map(Type::builtin);
                }
                _ => {}
            }
        }
        schema.field(name).map(|schema| Type::Known { schema, preserve })
    }

    /// What stands under `name`: the field, else an entry of the map.
    pub(super) fn child(self, name: &str) -> Type<'a> {
        self.field(name).unwrap_or(match self.values {
            Values::None => Type::Missing,
            Values::Deduced => Type::Deduced,
            Values::Untyped => Type::Untyped,
            Values::Of(schema, preserve) => Type::Known { schema, preserve },
        })
    }
}

impl<'a> List<'a> {
    pub(super) fn is_atomic(self) -> bool {
        matches!(self.kind, ListKind::Atomic)
    }
}

/// The keys of a list of type map.
pub(super) fn keys_of(list: Schema<'_>) -> Vec<&str> {
    let keys: Vec<&str> = list.list_map_keys().collect();
    if keys.is_empty() { list.merge_key().into_iter().collect() } else { keys }
}
