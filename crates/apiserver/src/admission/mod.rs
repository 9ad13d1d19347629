//! What a write must pass beyond its own validity: is its namespace open, may this be deleted, may this user hand out
//! these rights; and what the cluster fills in (addresses, finalizers, service accounts).

mod policies;
pub mod type_check;

use policies::Operation;
use serde_json::{Value, json};

use crate::auth::rbac::{self, Rule};
use crate::cluster::{addresses, crds};
use crate::object::{self, text};
use crate::rest::Call;
use crate::status::{About, Status};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// A namespaced object needs a namespace that exists and is not going away.
pub fn namespace_is_open(call: &Call, object: &Value) -> Result<(), Status> {
    if !call.resource.namespaced() {
        return Ok(());
    }
    let Some(stored) = call.server.store.get("namespaces", &call.namespace) else {
        return Err(Status::not_found(About { group: "", kind: "namespaces", name: &call.namespace }));
    };
    if stored.deleting {
        return Err(Status::namespace_terminating(call.about_name(object::name(object)), &call.namespace));
    }
    Ok(())
}

/// Changes the cluster makes to an object on its way in.
pub fn mutate(call: &Call, old: Option<&Value>, new: &mut Value) -> Result<(), Status> {
    policies::mutate(call, old, new)?;
    match (&*call.resource.storage, call.subresource.as_str()) {
        ("namespaces", "") => namespace(old, new),
        ("namespaces", "finalize") => {}
        ("nodes", "") if old.is_none() => not_ready(new),
        ("services", "") => return addresses::assign(call, old, new),
        ("pods", "") if old.is_none() => pod(new),
        (crds::PLACE, "") if old.is_none() => stored_versions(new),
        ("jobs.batch", "") if old.is_none() => crate::defaults::job_selector(new),
        ("persistentvolumeclaims", "") if old.is_none() => protect(new, "kubernetes.io/pvc-protection"),
        ("persistentvolumes", "") if old.is_none() => {
            protect(new, "kubernetes.io/pv-protection");
            object::child_mut(new, "status").insert("lastPhaseTransitionTime".into(), call.now().into());
        }
        _ => {}
    }
    Ok(())
}

/// Checks that need to see more than the object.
pub fn validate(call: &Call, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    if &*call.resource.group == rbac::GROUP {
        no_escalation(call, old, new)?;
    }
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    policies::check(call, operation, old, Some(new))
}

pub fn delete(call: &Call, object: &Value) -> Result<(), Status> {
    let name = object::name(object);
    if &*call.resource.storage == "namespaces" && IMMORTAL.contains(&name) {
        return Err(Status::forbidden(call.about(), "this namespace may not be deleted"));
    }
    policies::check(call, Operation::Delete, Some(object), None)
}

/// What a deletion adds to an object before it begins.
pub fn mark_deleted(call: &Call, object: &mut Value) {
    if &*call.resource.storage == crds::PLACE && !object::finalizers(object).contains(&crds::FINALIZER) {
        protect(object, crds::FINALIZER);
    }
}

/// A new CRD has objects in its storage version only.
fn stored_versions(crd: &mut Value) {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> = versions
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    if !stored.is_empty() {
        object::child_mut(crd, "status").insert("storedVersions".into(), stored.into());
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let list = object::list_in(object::meta_mut(object), "finalizers");
    if !list.iter().any(|held| held == finalizer) {
        list.push(finalizer.into());
    }
}

/// A namespace carries the finalizer that empties it, and its phase.
fn namespace(old: Option<&Value>, new: &mut Value) {
    match old {
        None => {
            let spec = object::child_mut(new, "spec");
            spec.entry("finalizers").or_insert_with(|| json!(["kubernetes"]));
            object::child_mut(new, "status").insert("phase".into(), "Active".into());
        }
        Some(old) => {
            // Only the finalize subresource may change them.
            let finalizers = old.pointer("/spec/finalizers").cloned();
            let spec = object::child_mut(new, "spec");
            match finalizers {
                Some(finalizers) => drop(spec.insert("finalizers".into(), finalizers)),
                None => drop(spec.remove("finalizers")),
            }
        }
    }
}

/// A new node takes no pods until someone says that it is ready.
fn not_ready(node: &mut Value) {
    let taints = object::list_in(object::child_mut(node, "spec"), "taints");
    if !taints.iter().any(|taint| text(taint, "/key") == "node.kubernetes.io/not-ready") {
        taints.push(json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }));
    }
}

/// What the admission plugins of a cluster give every pod.
fn pod(pod: &mut Value) {
    let spec = object::child_mut(pod, "spec");
    if spec.get("serviceAccountName").is_none_or(|name| name == "") {
        spec.insert("serviceAccountName".into(), "default".into());
        spec.insert("serviceAccount".into(), "default".into());
    }
    let class = quality(spec);
    if spec.get("automountServiceAccountToken") != Some(&json!(false)) {
        mount_token(spec);
    }
    spec.entry("priority").or_insert(json!(0));
    spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
    let tolerations = object::list_in(spec, "tolerations");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let own = text(toleration, "/key");
            (own == key || own.is_empty()) && matches!(text(toleration, "/effect"), "" | "NoExecute")
        });
        if !tolerated {
            tolerations.push(
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }),
            );
        }
    }
    object::child_mut(pod, "status").insert("qosClass".into(), class.into());
}

/// How well a pod is treated when its node runs short.
fn quality(spec: &serde_json::Map<String, Value>) -> &'static str {
    let containers = ["initContainers", "containers"];
    let containers: Vec<&Value> =
        containers.iter().filter_map(|list| spec.get(*list)?.as_array()).flatten().collect();
    let amount = |container: &Value, kind: &str, name: &str| {
        text(container, &format!("/resources/{kind}/{name}")).to_owned()
    };
    let says = |container: &&Value| {
        !container["resources"]["requests"].is_null() || !container["resources"]["limits"].is_null()
    };
    if !containers.iter().any(says) {
        return "BestEffort";
    }
    let pinned = containers.iter().all(|container| {
        ["cpu", "memory"].iter().all(|name| {
            let (limit, request) = (amount(container, "limits", name), amount(container, "requests", name));
            !limit.is_empty() && (request.is_empty() || request == limit)
        })
    });
    if pinned { "Guaranteed" } else { "Burstable" }
}

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Every container finds its account's token where clients look for it.
fn mount_token(spec: &mut serde_json::Map<String, Value>) {
    let name = crate::rest::create::generate_name("kube-api-access-");
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = object::list_in(container, "volumeMounts");
            if !mounts.iter().any(|mount| text(mount, "/mountPath") == TOKEN_PATH) {
                mounts.push(json!({ "name": name, "readOnly": true, "mountPath": TOKEN_PATH }));
                mounted = true;
            }
        }
    }
    if !mounted {
        return;
    }
    object::list_in(spec, "volumes").push(json!({
        "name": name,
        "projected": { "defaultMode": 0o644, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
            { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
        ] },
    }));
}

/// Nobody may give more rights than they have, unless they may escalate (roles) or bind (bindings).
fn no_escalation(call: &Call, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    if call.user.is_master() {
        return Ok(());
    }
    let namespace = object::namespace(new);
    let binding = call.resource.plural.ends_with("bindings");
    let (unchanged, verb, resource, name) = if binding {
        let role = text(new, "/roleRef/name");
        let plural = if text(new, "/roleRef/kind") == "ClusterRole" { "clusterroles" } else { "roles" };
        let same =
            old.is_some_and(|old| old["roleRef"] == new["roleRef"] && old["subjects"] == new["subjects"]);
        (same, "bind", plural, role)
    } else {
        (
            old.is_some_and(|old| old["rules"] == new["rules"]),
            "escalate",
            &*call.resource.plural,
            object::name(new),
        )
    };
    let server_rbac = call.server.rbac();
    let asked =
        crate::auth::Attributes { verb, group: rbac::GROUP, resource, namespace, name, ..Default::default() };
    if unchanged || server_rbac.allows(&call.user, &asked) {
        return Ok(());
    }
    let rules = match binding {
        false => Rule::read_all(new),
        true => {
            let key =
                if resource == "clusterroles" { name.to_owned() } else { format!("{namespace}/{name}") };
            let role = call.server.store.get(&format!("{resource}.{}", rbac::GROUP), &key);
            let Some(role) = role else {
                return Err(Status::not_found(About { group: rbac::GROUP, kind: resource, name }));
            };
            Rule::read_all(&role.value())
        }
    };
    let missing: Vec<String> =
        rules.iter().filter(|rule| !server_rbac.covers(&call.user, namespace, rule)).map(shown).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = call.user.groups.iter().map(|group| format!("{group:?}")).collect();
    let why = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        call.user.name,
        groups.join(" "),
        missing.join("\n")
    );
    Err(Status::forbidden(call.about_name(object::name(new)), &why))
}

/// A rule as the real server's refusal writes it.
fn shown(rule: &Rule) -> String {
    let list = |items: &[String]| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(" ");
    let mut parts = Vec::new();
    for (name, items) in [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.names),
        ("NonResourceURLs", &rule.paths),
        ("Verbs", &rule.verbs),
    ] {
        if !items.is_empty() {
            parts.push(format!("{name}:[{}]", list(items)));
        }
    }
    format!("{{{}}}", parts.join(", "))
}
