//! `Chart.yaml`: what it may say, how Go reads it, and what Helm refuses.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::decode::{Field, PREFIX, json_kind};
use crate::Dialect;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    pub name: String,
    pub home: String,
    pub sources: Vec<String>,
    pub version: String,
    pub description: String,
    pub keywords: Vec<String>,
    pub maintainers: Vec<Maintainer>,
    pub icon: String,
    pub api_version: String,
    pub condition: String,
    pub tags: String,
    pub app_version: String,
    pub deprecated: bool,
    pub annotations: Option<BTreeMap<String, String>>,
    pub kube_version: String,
    /// `None` when the file says nothing; Helm tells that from an empty list.
    pub dependencies: Option<Vec<Dependency>>,
    pub chart_type: String,
    /// An entry that is `null`, kept only to be refused.
    null_entry: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Maintainer {
    pub name: String,
    pub email: String,
    pub url: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dependency {
    pub name: String,
    pub version: String,
    pub repository: String,
    pub condition: String,
    pub tags: Vec<String>,
    pub enabled: bool,
    /// Each a name below `exports`, or `{child, parent}`.
    pub import_values: Option<Vec<Json>>,
    pub alias: String,
}

/// Which format a `Chart.yaml` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVersion {
    V1,
    V2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Application,
    Library,
}

impl Metadata {
    pub fn api(&self) -> ApiVersion {
        if self.api_version == "v1" { ApiVersion::V1 } else { ApiVersion::V2 }
    }

    pub fn chart_type(&self) -> Type {
        if self.chart_type.eq_ignore_ascii_case("library") { Type::Library } else { Type::Application }
    }

    /// What a document says that was read already, such as an entry of a repository's index. Not checked.
    pub fn from_fields(fields: &serde_json::Map<String, Json>) -> Result<Metadata, String> {
        let mut metadata = Metadata::default();
        fields.iter().try_for_each(|(key, value)| metadata.field(key, value))?;
        Ok(metadata)
    }

    /// What a `Chart.yaml` says, the old format if it does not say which. Not checked.
    pub fn from_yaml(data: &[u8]) -> Result<Metadata, String> {
        let mut metadata = Metadata::default();
        metadata.read(data, Dialect::Helm4)?;
        if metadata.api_version.is_empty() {
            metadata.api_version = "v1".to_owned();
        }
        Ok(metadata)
    }

    /// Helm's checks.
    pub fn check(&mut self) -> Result<(), String> {
        self.validate()
    }

    /// The `apiVersion` alone, which decides how the rest is read.
    pub(super) fn api_version(data: &[u8]) -> Result<String, String> {
        match crate::document::parse(data)? {
            Json::Null => Ok(String::new()),
            Json::Object(fields) => match folded(&fields, "apiVersion") {
                Some(value) => Field { structure: "chartBase", path: "apiVersion".to_owned() }.string(value),
                None => Ok(String::new()),
            },
            other => Err(format!(
                "{PREFIX}json: cannot unmarshal {} into Go value of type loader.chartBase",
                json_kind(&other)
            )),
        }
    }

    /// Puts what a document says over what is there already: `requirements.yaml` is read over `Chart.yaml`.
    pub(super) fn read(&mut self, data: &[u8], dialect: Dialect) -> Result<(), String> {
        match crate::document::parse(data)? {
            Json::Null => Ok(()),
            Json::Object(fields) => fields.iter().try_for_each(|(key, value)| self.field(key, value)),
            other => {
                let package = match dialect {
                    Dialect::Helm4 => "v2",
                    Dialect::Helm3 => "chart",
                };
                Err(format!(
                    "{PREFIX}json: cannot unmarshal {} into Go value of type {package}.Metadata",
                    json_kind(&other)
                ))
            }
        }
    }

    fn field(&mut self, key: &str, value: &Json) -> Result<(), String> {
        let Some(name) = known(key, &FIELDS) else { return Ok(()) };
        // Go leaves a field alone when the document says null.
        if value.is_null() && name != "dependencies" && name != "annotations" {
            return Ok(());
        }
        let at = Field { structure: "Metadata", path: name.to_owned() };
        match name {
            "name" => self.name = at.string(value)?,
            "home" => self.home = at.string(value)?,
            "sources" => self.sources = at.strings(value)?,
            "version" => self.version = at.string(value)?,
            "description" => self.description = at.string(value)?,
            "keywords" => self.keywords = at.strings(value)?,
            "maintainers" => self.maintainers = self.maintainers(&at, value)?,
            "icon" => self.icon = at.string(value)?,
            "apiVersion" => self.api_version = at.string(value)?,
            "condition" => self.condition = at.string(value)?,
            "tags" => self.tags = at.string(value)?,
            "appVersion" => self.app_version = at.string(value)?,
            "deprecated" => self.deprecated = at.boolean(value)?,
            "annotations" => self.annotations = annotations(&at, value)?,
            "kubeVersion" => self.kube_version = at.string(value)?,
            "dependencies" => self.dependencies = self.dependencies(&at, value)?,
            "type" => self.chart_type = at.string(value)?,
            _ => {}
        }
        Ok(())
    }

    fn maintainers(&mut self, at: &Field<'_>, value: &Json) -> Result<Vec<Maintainer>, String> {
        let Json::Array(items) = value else { return Err(at.mismatch(value, "[]*v2.Maintainer")) };
        let mut found = Vec::new();
        for item in items {
            let Json::Object(fields) = item else {
                if item.is_null() {
                    self.null_entry.get_or_insert("maintainers must not contain empty or null nodes");
                    continue;
                }
                return Err(at.mismatch(item, "v2.Maintainer"));
            };
            let mut maintainer = Maintainer::default();
            for (key, value) in fields {
                let Some(name) = known(key, &["name", "email", "url"]) else { continue };
                let at = Field { structure: "Maintainer", path: format!("maintainers.{name}") };
                match name {
                    "name" => maintainer.name = at.string(value)?,
                    "email" => maintainer.email = at.string(value)?,
                    _ => maintainer.url = at.string(value)?,
                }
            }
            found.push(maintainer);
        }
        Ok(found)
    }

    fn dependencies(&mut self, at: &Field<'_>, value: &Json) -> Result<Option<Vec<Dependency>>, String> {
        let items = match value {
            Json::Null => return Ok(None),
            Json::Array(items) => items,
            value => return Err(at.mismatch(value, "[]*v2.Dependency")),
        };
        let mut found = Vec::new();
        for item in items {
            match item {
                Json::Object(fields) => found.push(dependency(fields)?),
                Json::Null => {
                    self.null_entry.get_or_insert("dependencies must not contain empty or null nodes");
                }
                item => return Err(at.mismatch(item, "v2.Dependency")),
            }
        }
        Ok(Some(found))
    }

    /// Helm's checks, in Helm's order; strings are cleaned of what cannot be printed on the way.
    pub(super) fn validate(&mut self) -> Result<(), String> {
        for text in [
            &mut self.name,
            &mut self.description,
            &mut self.home,
            &mut self.icon,
            &mut self.condition,
            &mut self.tags,
            &mut self.app_version,
            &mut self.kube_version,
        ] {
            sanitize(text);
        }
        self.sources.iter_mut().chain(&mut self.keywords).for_each(sanitize);
        let quoted = crate::quote::go_quote;
        if self.api_version.is_empty() {
            return Err("chart.metadata.apiVersion is required".to_owned());
        }
        match self.name.as_str() {
            "" => return Err("chart.metadata.name is required".to_owned()),
            "." | ".." => return Err(format!("chart.metadata.name {} is not allowed", quoted(&self.name))),
            name if name.contains('/') => {
                return Err(format!("chart.metadata.name {} is invalid", quoted(name)));
            }
            _ => {}
        }
        if self.version.is_empty() {
            return Err("chart.metadata.version is required".to_owned());
        }
        if semver_range::Version::parse(&self.version).is_err() {
            return Err(format!("chart.metadata.version {} is invalid", quoted(&self.version)));
        }
        if !matches!(self.chart_type.as_str(), "" | "application" | "library") {
            return Err("chart.metadata.type must be application or library".to_owned());
        }
        if let Some(null_entry) = self.null_entry {
            return Err(null_entry.to_owned());
        }
        for maintainer in &mut self.maintainers {
            [&mut maintainer.name, &mut maintainer.email, &mut maintainer.url].into_iter().for_each(sanitize);
        }
        self.validate_dependencies()
    }

    fn validate_dependencies(&mut self) -> Result<(), String> {
        let mut seen = std::collections::BTreeSet::new();
        for dependency in self.dependencies.iter_mut().flatten() {
            for text in [
                &mut dependency.name,
                &mut dependency.version,
                &mut dependency.repository,
                &mut dependency.condition,
            ] {
                sanitize(text);
            }
            dependency.tags.iter_mut().for_each(sanitize);
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if !dependency.alias.bytes().all(allowed) {
                let name = crate::quote::go_quote(&dependency.name);
                return Err(format!("dependency {name} has disallowed characters in the alias"));
            }
            let key = if dependency.alias.is_empty() { &dependency.name } else { &dependency.alias };
            if !seen.insert(key.clone()) {
                return Err(format!(
                    "more than one dependency with name or alias {}",
                    crate::quote::go_quote(key)
                ));
            }
        }
        Ok(())
    }
}

const FIELDS: [&str; 17] = [
    "name",
    "home",
    "sources",
    "version",
    "description",
    "keywords",
    "maintainers",
    "icon",
    "apiVersion",
    "condition",
    "tags",
    "appVersion",
    "deprecated",
    "annotations",
    "kubeVersion",
    "dependencies",
    "type",
];

fn dependency(fields: &serde_json::Map<String, Json>) -> Result<Dependency, String> {
    const FIELDS: [&str; 8] =
        ["name", "version", "repository", "condition", "tags", "enabled", "import-values", "alias"];
    let mut found = Dependency::default();
    for (key, value) in fields {
        let Some(name) = known(key, &FIELDS) else { continue };
        let at = Field { structure: "Dependency", path: format!("dependencies.{name}") };
        match name {
            "name" => found.name = at.string(value)?,
            "version" => found.version = at.string(value)?,
            "repository" => found.repository = at.string(value)?,
            "condition" => found.condition = at.string(value)?,
            "tags" => found.tags = at.strings(value)?,
            "enabled" => found.enabled = at.boolean(value)?,
            "import-values" => {
                found.import_values = match value {
                    Json::Null => None,
                    Json::Array(items) => Some(items.clone()),
                    value => return Err(at.mismatch(value, "[]interface {}")),
                }
            }
            _ => found.alias = at.string(value)?,
        }
    }
    Ok(found)
}

fn annotations(at: &Field<'_>, value: &Json) -> Result<Option<BTreeMap<String, String>>, String> {
    match value {
        Json::Null => Ok(None),
        Json::Object(entries) => entries
            .iter()
            .map(|(key, value)| Ok((key.clone(), at.string(value)?)))
            .collect::<Result<_, _>>()
            .map(Some),
        value => Err(at.mismatch(value, "map[string]string")),
    }
}

/// The field a key is meant for: Go compares without case when no field matches exactly.
fn known<'a>(key: &str, fields: &[&'a str]) -> Option<&'a str> {
    let exact = fields.iter().find(|f| **f == key);
    exact.or_else(|| fields.iter().find(|f| f.eq_ignore_ascii_case(key))).copied()
}

fn folded<'a>(fields: &'a serde_json::Map<String, Json>, name: &str) -> Option<&'a Json> {
    fields
        .get(name)
        .or_else(|| fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

/// Spaces of all kinds become a plain one, and what does not print is dropped.
fn sanitize(text: &mut String) {
    let clean = |c: char| if c.is_whitespace() { Some(' ') } else { gotemplate::is_print(c).then_some(c) };
    if !text.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        *text = text.chars().filter_map(clean).collect();
    }
}
