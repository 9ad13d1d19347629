//! CustomResourceDefinitions: accepting their names, establishing them, serving their kinds, and removing their
//! instances when they go.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Registry, Resource, custom, storage_name};
use crate::object::{self, text};
use crate::rest::Call;
use crate::rest::delete::{DeleteOptions, delete};
use crate::rest::update::{Managers, change};
use crate::server::Inner;

pub const PLACE: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const MANAGER: &str = "kube-apiserver";

pub async fn run(server: Arc<Inner>) {
    loop {
        let name = server.controllers.crds.next().await;
        match server.store.get(PLACE, &name) {
            Some(stored) if stored.deleting => remove_instances(&server, &stored.value()).await,
            Some(stored) => accept(&server, &stored.value()).await,
            None => {}
        }
        load(&server);
    }
}

/// Serves the kinds of all established CRDs.
pub fn load(server: &Inner) {
    serve(server, None);
}

/// Serves the kinds of all established CRDs, and of one that is about to be.
fn serve(server: &Inner, next: Option<&str>) {
    let before = server.registry();
    let (_, crds) = server.store.list(PLACE, "");
    let mut resources: Vec<Arc<Resource>> = Vec::new();
    for stored in crds {
        let crd = stored.value();
        if condition(&crd, "Established") != Some("True") && next != Some(object::name(&crd)) {
            continue;
        }
        // Schemas and rules take a while to compile: what did not change is kept.
        let source = custom::source(&crd);
        let mut known: Vec<Arc<Resource>> = before
            .all_versions()
            .filter(|resource| resource.custom.as_ref().is_some_and(|custom| custom.source == source))
            .cloned()
            .collect();
        if known.is_empty() {
            let place = storage_name(text(&crd, "/spec/group"), text(&crd, "/spec/names/plural"));
            known = custom::resources(&crd, server.store.count(&place));
        }
        resources.extend(known);
    }
    let after = Registry::new(&resources);
    // A kind that is no longer served ends its watches, as its clients must notice.
    for resource in before.all_stored().filter(|resource| resource.custom.is_some()) {
        if after.stored(&resource.storage).is_none() {
            server.store.close_watches_of(&resource.storage);
        }
    }
    server.set_registry(after);
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|condition| text(condition, "/type") == kind);
    found.map(|condition| text(condition, "/status"))
}

fn crd_call(server: &Arc<Inner>, name: &str) -> Option<Call> {
    let registry = server.registry();
    Some(Call::internal(server, registry.stored(PLACE)?, "", name, MANAGER))
}

async fn accept(server: &Arc<Inner>, crd: &Value) {
    let Some(call) = crd_call(server, object::name(crd)) else { return };
    let call = call.on("status");
    let conflict = name_conflict(server, crd);
    if conflict.is_none() {
        // Whoever reads that it is established may use it at once.
        serve(server, Some(object::name(crd)));
    }
    let now = server.now();
    let outcome = change(&call, Managers::Update, |old| {
        let mut new = old.clone();
        set_conditions(&mut new, conflict.as_deref(), &now);
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(reason = status.reason, "CRD status not written");
    }
}

/// A name that another established CRD of the group already has.
fn name_conflict(server: &Inner, crd: &Value) -> Option<String> {
    let registry = server.registry();
    let group = registry.group(text(crd, "/spec/group"))?;
    let names = &crd["spec"]["names"];
    for version in &group.versions {
        for resource in version.resources.values() {
            let own = resource.custom.as_ref().is_none_or(|custom| custom.crd == object::name(crd));
            if own {
                continue;
            }
            if &*resource.kind == text(names, "/kind") {
                return Some(format!("{} is already in use", Value::from(text(names, "/kind"))));
            }
            let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for name in short.chain([text(names, "/singular")]) {
                if !name.is_empty()
                    && (resource.short_names.iter().any(|s| s == name) || &*resource.singular == name)
                {
                    return Some(format!("{} is already in use", Value::from(name)));
                }
            }
        }
    }
    None
}

fn set_conditions(crd: &mut Value, conflict: Option<&str>, now: &str) {
    let names = crd["spec"]["names"].clone();
    let versions: Vec<Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let status = object::child_mut(crd, "status");
    let stored = object::list_in(status, "storedVersions");
    for version in versions {
        if !stored.contains(&version) {
            stored.push(version);
        }
    }
    let established = status.get("conditions").cloned();
    let established =
        condition(&json!({ "status": { "conditions": established } }), "Established") == Some("True");
    if conflict.is_none() {
        status.insert("acceptedNames".into(), names);
    } else {
        status.entry("acceptedNames").or_insert_with(|| json!({ "kind": "", "plural": "" }));
    }
    let accepted = match conflict {
        None => {
            json!({ "type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found" })
        }
        Some(why) => {
            json!({ "type": "NamesAccepted", "status": "False", "reason": "MultipleNamesConflict", "message": why })
        }
    };
    let ready = if conflict.is_none() || established {
        json!({ "type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted" })
    } else {
        json!({ "type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted" })
    };
    set_condition(status, accepted, now);
    set_condition(status, ready, now);
}

/// Replaces the condition of this type; its time moves only when its status does.
pub fn set_condition(status: &mut serde_json::Map<String, Value>, mut wanted: Value, now: &str) {
    let list = object::list_in(status, "conditions");
    let position = list.iter().position(|condition| condition["type"] == wanted["type"]);
    match position {
        Some(at) => {
            let same = list[at]["status"] == wanted["status"];
            wanted["lastTransitionTime"] =
                if same { list[at]["lastTransitionTime"].clone() } else { now.into() };
            list[at] = wanted;
        }
        None => {
            wanted["lastTransitionTime"] = now.into();
            list.push(wanted);
        }
    }
}

/// Deletes the instances of a CRD that is going, and lets it go when none is left.
async fn remove_instances(server: &Arc<Inner>, crd: &Value) {
    let place = storage_name(text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let registry = server.registry();
    if let Some(resource) = registry.stored(&place).filter(|resource| resource.custom.is_some()) {
        for stored in server.store.list(&place, "").1 {
            if !stored.deleting {
                let call = Call::internal(server, resource, stored.namespace(), stored.name(), MANAGER);
                // What could not be deleted is still there below, and holds the CRD.
                let _ = delete(&call, &DeleteOptions::default()).await;
            }
        }
    }
    if server.store.count(&place) > 0 {
        return;
    }
    let Some(call) = crd_call(server, object::name(crd)) else { return };
    let outcome = change(&call, Managers::Update, |old| {
        let mut new = old.clone();
        let left: Vec<&str> = object::finalizers(old).into_iter().filter(|held| *held != FINALIZER).collect();
        object::set_meta(&mut new, "finalizers", (!left.is_empty()).then(|| json!(left)));
        Ok(new)
    });
    if let Err(status) = outcome.await {
        tracing::debug!(reason = status.reason, "CRD finalizer not removed");
    }
}
