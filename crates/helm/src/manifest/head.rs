//! The head of a manifest: the few fields Helm reads to sort it.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::Dialect;
use crate::chart::{PREFIX, json_kind, scalar_text};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// `None` when there are none, or no metadata.
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Head {
    /// Reads a document. It must be YAML and a mapping; unknown fields do not matter, wrong types do.
    pub fn parse(document: &str, dialect: Dialect) -> Result<Head, String> {
        match crate::document::parse(document.as_bytes())? {
            Json::Null => Ok(Head::default()),
            Json::Object(fields) => Head::from_fields(&fields),
            other => {
                let package = match dialect {
                    Dialect::Helm4 => "util",
                    Dialect::Helm3 => "releaseutil",
                };
                Err(format!(
                    "{PREFIX}json: cannot unmarshal {} into Go value of type {package}.SimpleHead",
                    json_kind(&other)
                ))
            }
        }
    }

    pub(crate) fn from_fields(fields: &serde_json::Map<String, Json>) -> Result<Head, String> {
        let mut head = Head::default();
        for (key, value) in fields {
            match field(key, &["apiVersion", "kind", "metadata"]) {
                Some("apiVersion") => head.api_version = string(value, "SimpleHead.apiVersion")?,
                Some("kind") => head.kind = string(value, "SimpleHead.kind")?,
                Some(_) => head.metadata(value)?,
                None => {}
            }
        }
        Ok(head)
    }

    fn metadata(&mut self, value: &Json) -> Result<(), String> {
        let fields = match value {
            Json::Null => return Ok(()),
            Json::Object(fields) => fields,
            other => return Err(mismatch(other, "SimpleHead.metadata", METADATA_TYPE)),
        };
        for (key, value) in fields {
            match field(key, &["name", "annotations"]) {
                Some("name") => self.name = string(value, ".metadata.name")?,
                Some(_) => self.annotations = annotations(value)?,
                None => {}
            }
        }
        Ok(())
    }
}

/// How Go prints the anonymous struct that holds the metadata.
const METADATA_TYPE: &str = "struct { Name string \"json:\\\"name\\\"\"; Annotations map[string]string \"json:\\\"annotations\\\"\" }";

fn annotations(value: &Json) -> Result<Option<BTreeMap<String, String>>, String> {
    match value {
        Json::Null => Ok(None),
        Json::Object(entries) => {
            let read =
                |(key, value): (&String, &Json)| Ok((key.clone(), string(value, ".metadata.annotations")?));
            entries.iter().map(read).collect::<Result<_, _>>().map(Some)
        }
        other => Err(mismatch(other, ".metadata.annotations", "map[string]string")),
    }
}

fn field<'a>(key: &str, names: &[&'a str]) -> Option<&'a str> {
    names.iter().find(|n| **n == key).or_else(|| names.iter().find(|n| n.eq_ignore_ascii_case(key))).copied()
}

fn string(value: &Json, at: &str) -> Result<String, String> {
    scalar_text(value).ok_or_else(|| mismatch(value, at, "string"))
}

fn mismatch(value: &Json, at: &str, wanted: &str) -> String {
    format!("{PREFIX}json: cannot unmarshal {} into Go struct field {at} of type {wanted}", json_kind(value))
}
