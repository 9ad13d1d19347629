//! The verbs: what creating, reading, changing and deleting an object means.
//!
//! Everything here works on decoded objects and a [`Call`]; HTTP is `service`'s business. The server's own
//! controllers (garbage collection, simulation, …) come in through the same functions.

pub mod create;
pub mod delete;
pub mod finish;
pub mod patch;
pub mod read;
pub mod scale;
pub mod update;
pub mod watch;

use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::auth::User;
use crate::kinds::Resource;
use crate::server::Inner;
use crate::status::{About, Cause, Status};
use crate::storage::Stored;

/// One request on one resource, by someone.
pub struct Call {
    pub server: Arc<Inner>,
    pub resource: Arc<Resource>,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
    pub user: User,
    pub options: Options,
    /// What the answer's `Warning` headers will say.
    pub warnings: Mutex<Vec<String>>,
}

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub dry_run: bool,
    pub field_manager: String,
    pub field_validation: FieldValidation,
    pub force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// The result of a write.
#[derive(Debug)]
pub enum Written {
    Created(Arc<Stored>),
    Updated(Arc<Stored>),
    /// A dry run's object, which is nowhere.
    Imagined {
        object: Value,
        created: bool,
    },
    /// An answer that is no object of this resource (a delete's Status).
    Answer(Value),
}

impl Written {
    pub fn created(&self) -> bool {
        matches!(self, Written::Created(_) | Written::Imagined { created: true, .. })
    }

    pub fn value(&self) -> Value {
        match self {
            Written::Created(stored) | Written::Updated(stored) => stored.value(),
            Written::Imagined { object, .. } | Written::Answer(object) => object.clone(),
        }
    }
}

impl Call {
    /// A call by the server's own parts.
    pub fn internal(
        server: &Arc<Inner>,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        manager: &str,
    ) -> Call {
        Call {
            server: server.clone(),
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            user: User::system(manager),
            options: Options { field_manager: manager.to_owned(), ..Options::default() },
            warnings: Mutex::default(),
        }
    }

    pub fn on(mut self, subresource: &str) -> Call {
        self.subresource = subresource.to_owned();
        self
    }

    pub fn key(&self) -> String {
        key(&self.resource, &self.namespace, &self.name)
    }

    pub fn prefix(&self) -> String {
        if self.resource.namespaced() && !self.namespace.is_empty() {
            format!("{}/", self.namespace)
        } else {
            String::new()
        }
    }

    /// What failures about the resource name.
    pub fn about(&self) -> About<'_> {
        self.about_name(&self.name)
    }

    pub fn about_name<'a>(&'a self, name: &'a str) -> About<'a> {
        About { group: &self.resource.group, kind: &self.resource.plural, name }
    }

    pub fn invalid(&self, name: &str, causes: &[Cause]) -> Status {
        Status::invalid(About { group: &self.resource.group, kind: &self.resource.kind, name }, causes)
    }

    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text.into());
    }

    pub fn now(&self) -> String {
        self.server.now()
    }

    pub fn stored(&self) -> Result<Arc<Stored>, Status> {
        let found = self.server.store.get(&self.resource.storage, &self.key());
        found.ok_or_else(|| Status::not_found(self.about()))
    }
}

/// Where an object is kept.
pub fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    if resource.namespaced() { format!("{namespace}/{name}") } else { name.to_owned() }
}
