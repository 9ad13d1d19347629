//! A kind: scope, schema, and how the API names it.

use crate::schema::Schema;
use crate::tables::{KindRow, ResourceRow, SubresourceRow, Tables, Text};

/// One group, version and kind.
#[derive(Clone, Copy)]
pub struct Kind<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) row: &'a KindRow,
}

/// How the API serves a kind: `deployments`, `deploy`, verbs, subresources.
#[derive(Clone, Copy)]
pub struct Resource<'a> {
    tables: &'a Tables,
    row: &'a ResourceRow,
}

/// `status`, `scale`, `log`, … of a resource.
#[derive(Clone, Copy)]
pub struct Subresource<'a> {
    tables: &'a Tables,
    row: &'a SubresourceRow,
}

impl<'a> Kind<'a> {
    /// The group; empty for the core group.
    pub fn group(self) -> &'a str {
        self.tables.text(self.row.group)
    }

    /// `v1`, `v1beta1`, …
    pub fn version(self) -> &'a str {
        self.tables.text(self.row.version)
    }

    /// `Deployment`.
    pub fn kind(self) -> &'a str {
        self.tables.text(self.row.kind)
    }

    /// Whether objects live in a namespace; none when the document has no path to tell.
    pub fn namespaced(self) -> Option<bool> {
        match self.row.scope {
            1 => Some(false),
            2 => Some(true),
            _ => None,
        }
    }

    /// The schema; none for kinds that only appear in paths (`PodExecOptions`).
    pub fn schema(self) -> Option<Schema<'a>> {
        self.row.schema.map(|node| Schema::of_node(self.tables, node))
    }

    /// How the API serves it; only the Kubernetes tables know.
    pub fn resource(self) -> Option<Resource<'a>> {
        self.row.resource.as_deref().map(|row| Resource { tables: self.tables, row })
    }
}

impl<'a> Resource<'a> {
    /// `deployments`.
    pub fn plural(self) -> &'a str {
        self.tables.text(self.row.plural)
    }

    /// `deployment`.
    pub fn singular(self) -> &'a str {
        self.tables.text(self.row.singular)
    }

    /// `deploy`.
    pub fn short_names(self) -> impl Iterator<Item = &'a str> {
        each(self.tables, &self.row.short_names)
    }

    /// `all`, `api-extensions`.
    pub fn categories(self) -> impl Iterator<Item = &'a str> {
        each(self.tables, &self.row.categories)
    }

    /// `create`, `get`, `list`, …
    pub fn verbs(self) -> impl Iterator<Item = &'a str> {
        each(self.tables, &self.row.verbs)
    }

    /// In discovery's order.
    pub fn subresources(self) -> impl Iterator<Item = Subresource<'a>> {
        let tables = self.tables;
        self.row.subresources.iter().map(move |row| Subresource { tables, row })
    }

    /// The named subresource.
    pub fn subresource(self, name: &str) -> Option<Subresource<'a>> {
        self.subresources().find(|subresource| subresource.name() == name)
    }
}

impl<'a> Subresource<'a> {
    /// `status`.
    pub fn name(self) -> &'a str {
        self.tables.text(self.row.name)
    }

    /// (group, version, kind) of what it answers with: `autoscaling/v1 Scale` for `scale`.
    pub fn answers_with(self) -> (&'a str, &'a str, &'a str) {
        let text = |text| self.tables.text(text);
        (text(self.row.group), text(self.row.version), text(self.row.kind))
    }

    /// `get`, `patch`, `update`, …
    pub fn verbs(self) -> impl Iterator<Item = &'a str> {
        each(self.tables, &self.row.verbs)
    }
}

fn each<'a>(tables: &'a Tables, texts: &'a [Text]) -> impl Iterator<Item = &'a str> {
    texts.iter().map(move |text| tables.text(*text))
}
