//! OpenAPI documents: what `kubectl explain` and client-side validation read.
//!
//! Schemas of builtin kinds are those a real server publishes (`kube-schema` keeps them); the paths are made from the
//! registry. A document is made when it is first asked for and kept until the kinds in it change.

mod custom;
mod paths;
mod proto;
mod v2;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use http::StatusCode;
use kube_schema::Schemas;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::kinds::{Registry, Resource, Version};
use crate::respond::Answer;
use crate::server::Inner;
use crate::service::{Incoming, not_found_text};
use crate::status::Status;

const V3: &str = "application/json";
/// Documents kept: all builtin groups and a few hundred CRD groups.
const KEPT: usize = 512;

static DOCUMENTS: LazyLock<Mutex<HashMap<String, Bytes>>> = LazyLock::new(Mutex::default);

pub fn answer(server: &Arc<Inner>, incoming: &Incoming, parts: &[&str]) -> Result<Answer, Status> {
    let registry = server.registry();
    match parts[1..] {
        ["v3"] => Ok(Answer::json(StatusCode::OK, index(&registry).to_string())),
        ["v3", "api", version] => Ok(document(&registry, "", version)),
        ["v3", "apis", group, version] => Ok(document(&registry, group, version)),
        ["v2"] => {
            let hash = hash(registry.groups.iter().flat_map(|group| &group.versions));
            let etag = format!("\"{hash}\"");
            if wants_protobuf(incoming) {
                let make = || proto::document(&v2::document(&registry));
                let bytes = kept(&format!("v2 protobuf {hash}"), make);
                return Ok(Answer::json(StatusCode::OK, bytes).of_type(proto::MEDIA_TYPE).with_etag(etag));
            }
            let make = || v2::document(&registry).to_string();
            Ok(Answer::json(StatusCode::OK, kept(&format!("v2 {hash}"), make)).with_etag(etag))
        }
        _ => Ok(not_found_text()),
    }
}

fn wants_protobuf(incoming: &Incoming) -> bool {
    let accepted = incoming.headers.get(http::header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains(proto::ASKED_FOR))
}

fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in &registry.groups {
        for version in &group.versions {
            let path = match &*group.name {
                "" => format!("api/{}", version.name),
                name => format!("apis/{name}/{}", version.name),
            };
            let url = format!("/openapi/v3/{path}?hash={}", hash([version].into_iter()));
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// Changes when a document would.
fn hash<'a>(versions: impl Iterator<Item = &'a Version>) -> String {
    let mut digest = Sha256::new();
    for version in versions {
        for resource in version.resources.values() {
            digest.update(format!("{}/{}/{}\n", resource.group, resource.version, resource.plural));
            if let Some(custom) = &resource.custom {
                digest.update(format!("{} {} {}\n", custom.crd_uid, custom.status, custom.schema));
            }
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn document(registry: &Registry, group: &str, version: &str) -> Answer {
    let Some(found) = registry.version(group, version) else { return not_found_text() };
    let hash = hash([found].into_iter());
    let bytes = kept(&format!("v3 {group}/{version} {hash}"), || v3(found).to_string());
    Answer::json(StatusCode::OK, bytes).of_type(V3).with_etag(format!("\"{hash}\""))
}

fn kept<T: Into<Bytes>>(key: &str, make: impl FnOnce() -> T) -> Bytes {
    let documents = || DOCUMENTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = documents().get(key) {
        return known.clone();
    }
    // Made without the lock: it takes a while, and two makers make the same.
    let made: Bytes = make().into();
    let mut documents = documents();
    if documents.len() >= KEPT {
        documents.clear();
    }
    documents.insert(key.to_owned(), made.clone());
    made
}

/// The definition name of a resource's kind.
fn definition_name(resource: &Resource) -> String {
    match &resource.custom {
        Some(_) => custom::definition_name(resource),
        None => Schemas::kubernetes()
            .kind(&resource.group, &resource.version, &resource.kind)
            .and_then(|kind| kind.schema())
            .and_then(|schema| schema.definition_name())
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Schemas of all kinds in a version, with everything they refer to.
fn schemas<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> BTreeMap<String, Value> {
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1";
    let mut names: BTreeSet<String> =
        ["DeleteOptions", "Patch", "Status", "ObjectMeta", "ListMeta", "WatchEvent"]
            .map(|name| format!("{meta}.{name}"))
            .into();
    let mut own = BTreeMap::new();
    for resource in resources {
        if resource.custom.is_some() {
            own.extend(custom::schemas(resource));
            continue;
        }
        let name = definition_name(resource);
        names.insert(format!("{name}List"));
        names.insert(name);
        for sub in resource.subresources.iter().filter(|sub| !sub.api_version.is_empty()) {
            let kind = Schemas::kubernetes().kind_of(&sub.api_version, &sub.kind);
            names.extend(
                kind.and_then(|kind| kind.schema()).and_then(|s| s.definition_name()).map(str::to_owned),
            );
        }
    }
    let mut all = Schemas::kubernetes().openapi_v3(names);
    describe_metadata(&mut all);
    all.extend(own);
    all
}

/// The recorded schemas carry no prose. What every object has is described in our own words.
const METADATA: [(&str, &str); 15] = [
    (
        "annotations",
        "Annotations are free-form notes that tools keep on the object; nothing selects by them.",
    ),
    (
        "creationTimestamp",
        "CreationTimestamp is a timestamp of when the server created the object. Read-only.",
    ),
    (
        "deletionGracePeriodSeconds",
        "DeletionGracePeriodSeconds is how long the object may take to end. Read-only.",
    ),
    (
        "deletionTimestamp",
        "DeletionTimestamp is when the object is to be gone; set once deletion was asked for. Read-only.",
    ),
    ("finalizers", "Finalizers must all be removed by their owners before a deleted object goes."),
    (
        "generateName",
        "GenerateName is a prefix from which the server makes a unique name, when no name is given.",
    ),
    ("generation", "Generation counts the changes of the desired state. Read-only."),
    ("labels", "Labels are keys and values by which objects are selected."),
    ("managedFields", "ManagedFields says which manager owns which field; for server-side apply."),
    ("name", "Name is unique within a namespace and cannot change."),
    ("namespace", "Namespace is the space within which the name is unique; empty for kinds of the cluster."),
    (
        "ownerReferences",
        "OwnerReferences name the objects this one depends on; it is collected when all of them are gone.",
    ),
    (
        "resourceVersion",
        "ResourceVersion changes with every write; an update that names an old one is refused.",
    ),
    ("selfLink", "SelfLink is no longer filled in."),
    ("uid", "UID tells this object from any other that has or had its name. Read-only."),
];

fn describe_metadata(schemas: &mut BTreeMap<String, Value>) {
    let Some(schema) = schemas.get_mut("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta") else { return };
    for (field, text) in METADATA {
        if let Some(Value::Object(property)) = schema.pointer_mut(&format!("/properties/{field}")) {
            property.insert("description".into(), text.into());
        }
    }
}

fn v3(version: &Version) -> Value {
    let mut routes = Map::new();
    for resource in version.resources.values() {
        paths::add(&mut routes, resource, &definition_name(resource));
    }
    let schemas = schemas(version.resources.values());
    json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.3" }, "paths": routes,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "BearerToken": {
                "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey",
            } },
        },
    })
}
