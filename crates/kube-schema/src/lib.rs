//! What Kubernetes knows about its builtin kinds: scope, merge keys, list types; strategic merge.
//!
//! Two data sets share one shape:
//!
//! * [`Schemas::kustomize`]: the Kubernetes 1.21.2 document that kustomize 5.8 builds with, and its
//!   own kinds. It decides what a kustomize patch does, so it must stay as old as theirs.
//! * [`Schemas::kubernetes`]: Kubernetes 1.36.3 as its API server publishes it, with discovery
//!   (names, verbs, subresources). The embedded API server answers from it.
//!
//! ```
//! use kube_schema::{ListType, Schemas};
//!
//! let deployment = Schemas::kubernetes().kind("apps", "v1", "Deployment").expect("builtin");
//! assert_eq!(deployment.namespaced(), Some(true));
//! assert_eq!(deployment.resource().expect("served").plural(), "deployments");
//!
//! let pod = deployment.schema().and_then(|schema| schema.at(&["spec", "template", "spec"])).expect("a field");
//! let ports = pod.at(&["containers", "[]", "ports"]).expect("a field");
//! assert_eq!(ports.list_type(), Some(ListType::Map));
//! assert_eq!(ports.list_map_keys().collect::<Vec<_>>(), ["containerPort", "protocol"]);
//! assert_eq!(ports.merge_key(), Some("containerPort"));
//! ```
//!
//! Foreign documents join through [`Schemas::from_openapi`] and [`Schemas::extended`] (kustomize's
//! `openapi.path`), a CRD version's schema through [`Schemas::from_schema`].
//!
//! The tables are generated (`examples/generate.rs`), committed as `data/*.bin` (under 300 KiB each),
//! decoded once on first use and then shared. Handles ([`Kind`], [`Schema`]) are small and `Copy`.
//!
//! Deliberately absent: validation of values, defaults that Kubernetes sets in code, conversion between versions.

mod blob;
mod from_openapi;
mod kind;
mod openapi;
mod schema;
pub mod strategic_merge;
mod tables;

use std::sync::{Arc, LazyLock};

use serde_json::Value;

pub use blob::Damaged;
pub use from_openapi::DocumentError;
pub use kind::{Kind, Resource, Subresource};
pub use schema::{GoField, GoValue, ListType, MapType, Schema};
pub use tables::Type;

use from_openapi::Builder;
use tables::Tables;

/// A set of kinds and their schemas. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schemas(Arc<Tables>);

impl Schemas {
    /// What kustomize 5.8 knows (Kubernetes 1.21.2).
    pub fn kustomize() -> &'static Schemas {
        static TABLES: LazyLock<Schemas> = LazyLock::new(|| builtin(include_bytes!("../data/kustomize.bin")));
        &TABLES
    }

    /// What the API server of Kubernetes 1.36 knows.
    pub fn kubernetes() -> &'static Schemas {
        static TABLES: LazyLock<Schemas> =
            LazyLock::new(|| builtin(include_bytes!("../data/kubernetes.bin")));
        &TABLES
    }

    /// Only what an OpenAPI document (v2 or v3) defines.
    pub fn from_openapi(document: &Value) -> Result<Schemas, DocumentError> {
        let mut builder = Builder::new(false);
        builder.add_document(document)?;
        Ok(Schemas(Arc::new(builder.finish())))
    }

    /// What `self` knows and an OpenAPI document adds or replaces. References in the document may
    /// point at definitions of `self`.
    pub fn extended(&self, document: &Value) -> Result<Schemas, DocumentError> {
        let mut builder = Builder::on_top_of(&self.0);
        builder.add_document(document)?;
        Ok(Schemas(Arc::new(builder.finish())))
    }

    /// One schema without kinds, as a CRD version holds it under `schema.openAPIV3Schema`:
    /// read it with [`Schemas::root`].
    pub fn from_schema(schema: &Value) -> Result<Schemas, DocumentError> {
        let mut builder = Builder::new(false);
        builder.set_root(schema)?;
        Ok(Schemas(Arc::new(builder.finish())))
    }

    /// For the generator: every document at once; prose only for tables that someone explains.
    #[doc(hidden)]
    pub fn generate(
        discovery: &[Value],
        documents: &[Value],
        go_fields: &[Value],
        prose: bool,
    ) -> Result<Schemas, DocumentError> {
        let mut builder = Builder::new(prose);
        for list in discovery {
            builder.add_discovery(list)?;
        }
        for document in documents {
            builder.add_document(document)?;
        }
        for structures in go_fields {
            builder.add_go_fields(structures);
        }
        Ok(Schemas(Arc::new(builder.finish())))
    }

    /// For the generator: the committed form.
    #[doc(hidden)]
    pub fn pack(&self) -> std::io::Result<Vec<u8>> {
        blob::pack(&self.0)
    }

    /// The kind, if known.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Kind<'_>> {
        let row = self.0.find_kind(group, version, kind)?;
        Some(Kind { tables: &self.0, row: &self.0.kinds[row as usize] })
    }

    /// The kind of an object, by its `apiVersion` and `kind`.
    pub fn kind_of(&self, api_version: &str, kind: &str) -> Option<Kind<'_>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kind(group, version, kind)
    }

    /// Every kind: first those served, in discovery's order, then those only defined.
    pub fn kinds(&self) -> impl Iterator<Item = Kind<'_>> {
        self.0.kinds.iter().map(|row| Kind { tables: &self.0, row })
    }

    /// The definition of this name.
    pub fn definition(&self, name: &str) -> Option<Schema<'_>> {
        let definitions = &self.0.definitions;
        let found = definitions.binary_search_by(|(text, _)| self.0.text(*text).cmp(name)).ok()?;
        Some(Schema::of_node(&self.0, definitions[found].1))
    }

    /// Names of all definitions, sorted.
    pub fn definitions(&self) -> impl Iterator<Item = &str> {
        self.0.definitions.iter().map(|(text, _)| self.0.text(*text))
    }

    /// The schema given to [`Schemas::from_schema`]; anything goes for other sets.
    pub fn root(&self) -> Schema<'_> {
        Schema::of_edge(&self.0, &self.0.root)
    }
}

impl<'a> Schema<'a> {
    /// Follows a path of field names; `[]` steps into a list's items.
    pub fn at(self, path: &[&str]) -> Option<Schema<'a>> {
        path.iter().try_fold(self, |schema, step| match *step {
            "[]" => schema.items(),
            name => schema.child(name),
        })
    }
}

fn builtin(blob: &'static [u8]) -> Schemas {
    Schemas(Arc::new(blob::unpack(blob).expect("the committed tables decode: a test does it")))
}

#[cfg(test)]
mod tests;
