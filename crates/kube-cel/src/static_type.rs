//! Types of expressions and values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Not known before it runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// An object whose fields are declared; any other field is an error.
    Object(Arc<ObjectType>),
    Optional(Arc<Type>),
    /// A type as a value: `type(1)`.
    Type,
    Quantity,
    Ip,
    Cidr,
    Url,
    Semver,
    NamedFormat,
    /// Stands for whatever the arguments are, in a signature.
    Param(char),
}

/// The fields of an object.
#[derive(Debug, PartialEq)]
pub struct ObjectType {
    pub name: String,
    pub fields: BTreeMap<String, Type>,
}

impl Type {
    pub fn list(of: Type) -> Type {
        Type::List(Arc::new(of))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(of: Type) -> Type {
        Type::Optional(Arc::new(of))
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => out.write_str("dyn"),
            Type::Null => out.write_str("null"),
            Type::Bool => out.write_str("bool"),
            Type::Int => out.write_str("int"),
            Type::Uint => out.write_str("uint"),
            Type::Double => out.write_str("double"),
            Type::String => out.write_str("string"),
            Type::Bytes => out.write_str("bytes"),
            Type::Timestamp => out.write_str("timestamp"),
            Type::Duration => out.write_str("duration"),
            Type::List(of) => write!(out, "list({of})"),
            Type::Map(key, value) => write!(out, "map({key}, {value})"),
            Type::Object(object) => out.write_str(&object.name),
            Type::Optional(of) => write!(out, "optional_type({of})"),
            Type::Type => out.write_str("type"),
            Type::Quantity => out.write_str("kubernetes.Quantity"),
            Type::Ip => out.write_str("net.IP"),
            Type::Cidr => out.write_str("net.CIDR"),
            Type::Url => out.write_str("kubernetes.URL"),
            Type::Semver => out.write_str("kubernetes.Semver"),
            Type::NamedFormat => out.write_str("kubernetes.NamedFormat"),
            Type::Param(name) => write!(out, "{name}"),
        }
    }
}
