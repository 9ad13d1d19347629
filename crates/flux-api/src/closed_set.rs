//! A closed set of words in the API as a Rust enum: written, read, listed and described in one place.
//!
//! serde's derive alone would give the first two; the command line needs the list and `FromStr`, the CRD needs the
//! `enum`, and an error must name what would have been accepted.

/// A word that is not in the set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not one of {}", accepted.join(", "))]
pub struct NotInSet {
    /// What was written.
    pub given: String,
    /// What would have been accepted.
    pub accepted: &'static [&'static str],
}

/// Defines an enum whose variants are words of the API.
macro_rules! closed_set {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name { $( $(#[$variant_meta])* $variant ),+ }

        impl $name {
            /// Every word, in the order the API lists them.
            pub const ALL: &'static [$name] = &[ $( $name::$variant ),+ ];
            const TEXTS: &'static [&'static str] = &[ $( $text ),+ ];

            /// The word as it stands in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $( $name::$variant => $text ),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::closed_set::NotInSet;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $( $text => Ok($name::$variant), )+
                    _ => Err($crate::closed_set::NotInSet { given: text.to_owned(), accepted: Self::TEXTS }),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::TEXTS })
            }
        }
    };
}

pub(crate) use closed_set;
