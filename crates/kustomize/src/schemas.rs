//! What the build knows about kinds: which have no namespace, and how their lists are merged.
//!
//! kustomize reads its builtin schema late, and only if nothing forbids it: with a schema of its own in
//! `openapi.path`, builtin kinds lose their merge keys unless the builtin schema was wanted before. That order
//! of events is kept here.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;

use kube_schema::{Schema, Schemas};

use crate::error::{Class, Error};
use crate::id::Gvk;

/// The version of the builtin schema, and the only one that can be asked for.
const BUILTIN_VERSION: &str = "v1.21.2";

#[derive(Default)]
pub(crate) struct KnownSchemas {
    chosen: RefCell<Chosen>,
    /// The builtin schema was wanted while another could still be chosen, or is in use.
    builtin_wanted: Cell<bool>,
    /// What is in use, made when a merge first needs it.
    active: OnceCell<Schemas>,
}

#[derive(Default)]
enum Chosen {
    #[default]
    Nothing,
    Builtin,
    Custom(serde_json::Value),
}

impl KnownSchemas {
    /// Follows the `openapi` field of a kustomization. Only the first choice counts, unless it is that of the
    /// folder the build began with.
    pub(crate) fn choose(
        &mut self,
        openapi: &BTreeMap<String, String>,
        content: Option<&[u8]>,
        is_top: bool,
    ) -> Result<(), Error> {
        if !is_top && !matches!(self.chosen.get_mut(), Chosen::Nothing) {
            return Ok(());
        }
        let schema_error = |text: String| Error::new(Class::Schema, text);
        let version = openapi.get("version");
        if let Some(content) = content {
            if version.is_some() {
                return Err(schema_error(
                    "builtin version and custom schema provided, cannot use both".to_owned(),
                ));
            }
            let document = read_document(content)
                .map_err(|cause| schema_error(format!("invalid schema file: {cause}")))?;
            if self.active.take().is_some() {
                self.builtin_wanted.set(true);
            }
            *self.chosen.get_mut() = Chosen::Custom(document);
            return self.check_custom();
        }
        match version.map(String::as_str) {
            None | Some("") => {}
            Some(BUILTIN_VERSION) => *self.chosen.get_mut() = Chosen::Builtin,
            Some(_) => return Err(schema_error("the specified OpenAPI version is not built in".to_owned())),
        }
        Ok(())
    }

    /// Reads the custom document once, so that its mistakes come out as an error now.
    fn check_custom(&mut self) -> Result<(), Error> {
        let Chosen::Custom(document) = self.chosen.get_mut() else { return Ok(()) };
        Schemas::from_openapi(document)
            .map(|_| ())
            .map_err(|error| Error::new(Class::Schema, format!("invalid schema file: {error}")))
    }

    pub(crate) fn is_cluster_scoped(&self, gvk: &Gvk) -> bool {
        let builtin =
            Schemas::kustomize().kind(&gvk.group, &gvk.version, &gvk.kind).and_then(|kind| kind.namespaced());
        if let Some(namespaced) = builtin {
            return !namespaced;
        }
        if !matches!(*self.chosen.borrow(), Chosen::Custom(_)) {
            self.builtin_wanted.set(true);
            return false;
        }
        let kind = self.active().kind(&gvk.group, &gvk.version, &gvk.kind);
        kind.and_then(|kind| kind.namespaced()) == Some(false)
    }

    /// The schema of a kind, if it is known.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<Schema<'_>> {
        self.active().kind_of(api_version, kind)?.schema()
    }

    fn active(&self) -> &Schemas {
        self.active.get_or_init(|| match &*self.chosen.borrow() {
            Chosen::Nothing | Chosen::Builtin => {
                self.builtin_wanted.set(true);
                Schemas::kustomize().clone()
            }
            Chosen::Custom(document) => {
                let made = if self.builtin_wanted.get() {
                    Schemas::kustomize().extended(document)
                } else {
                    Schemas::from_openapi(document)
                };
                made.unwrap_or_else(|_| Schemas::kustomize().clone())
            }
        })
    }
}

fn read_document(content: &[u8]) -> Result<serde_json::Value, String> {
    let mut document = if content.first() == Some(&b'{') {
        serde_json::from_slice(content).map_err(|error| error.to_string())?
    } else {
        crate::yaml_text::to_json(content)?
    };
    // A document without definitions is as good as none.
    if let serde_json::Value::Object(fields) = &mut document
        && !fields.contains_key("components")
    {
        fields.entry("definitions").or_insert_with(|| serde_json::json!({}));
    }
    Ok(document)
}
