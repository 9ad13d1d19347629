//! What is not deleted at once when Git drops it: what holds data, or what others still use. It is held until somebody
//! releases the plan. Some things are never deleted at all. Deleting the Kustomization itself knows no brake.

use std::collections::BTreeSet;

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus};
use flux_apply::{Cluster, Inventory, ObjectId};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::run::Run;
use super::self_management;
use crate::reconcile::Severity;

/// Names the plan that may go.
const RELEASE: &str = "fluxcd.rs/release-prune";
/// The share of the inventory, in percent, that may go at once.
const RATIO: &str = "fluxcd.rs/prune-brake";
pub(super) const CONDITION: &str = "PruneHeld";
const SYSTEM: [&str; 4] = ["kube-system", "default", "kube-public", "kube-node-lease"];
/// Objects that a message names.
const MOST_NAMED: usize = 20;
/// Kinds that tell whether somebody uses a namespace, with their plurals.
const TELLING: [(&str, &str, &str); 9] = [
    ("v1", "Pod", "pods"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("v1", "Service", "services"),
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "Secret", "secrets"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("batch/v1", "Job", "jobs"),
    ("batch/v1", "CronJob", "cronjobs"),
];

/// What becomes of objects that Git dropped.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) delete: Vec<ObjectId>,
    /// With the reason.
    pub(super) held: Vec<(ObjectId, String)>,
    /// Never deleted.
    pub(super) protected: Vec<ObjectId>,
}

impl Plan {
    /// Everything may go.
    pub(super) fn without_brake(gone: Vec<ObjectId>) -> Self {
        Self { delete: gone, ..Self::default() }
    }

    fn held(&self) -> impl Iterator<Item = &ObjectId> {
        self.held.iter().map(|(id, _)| id)
    }

    /// A short name that changes with what is held.
    fn name(&self) -> String {
        let ids: BTreeSet<String> = self.held().map(ObjectId::inventory_id).collect();
        let ids: Vec<String> = ids.into_iter().collect();
        let digest = Sha256::digest(ids.join("\n"));
        digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Sorts what is gone into what goes, what is held and what is protected.
pub(super) async fn plan(
    run: &Run<'_>,
    cluster: &Cluster,
    gone: Vec<ObjectId>,
    inventory: &Inventory,
) -> Plan {
    let mut plan = Plan::default();
    let is_system = self_management::is_in(inventory, run.object);
    for id in gone {
        if is_protected(&id, run.namespace()) {
            plan.protected.push(id);
        } else if is_system && is_needed(run, cluster, &id).await {
            plan.held.push((id, "nothing can be applied without it".to_owned()));
        } else if let Some(why) = reason(cluster, &id, inventory).await {
            plan.held.push((id, why));
        } else {
            plan.delete.push(id);
        }
    }
    hold_many(run, &mut plan, inventory);
    let released = kube::ResourceExt::annotations(run.raw).get(RELEASE);
    if !plan.held.is_empty() && released == Some(&plan.name()) {
        let held = std::mem::take(&mut plan.held);
        plan.delete.extend(held.into_iter().map(|(id, _)| id));
    }
    plan
}

/// Whether a set that no longer holds this object would be the last one that is applied.
async fn is_needed(run: &Run<'_>, cluster: &Cluster, id: &ObjectId) -> bool {
    match cluster.get(id).await {
        Ok(Some(live)) => self_management::is_needed(id, &live, run.object),
        Ok(None) | Err(_) => false,
    }
}

/// Holds everything when too much of the inventory would go at once, where somebody asked for that.
fn hold_many(run: &Run<'_>, plan: &mut Plan, inventory: &Inventory) {
    let annotation = kube::ResourceExt::annotations(run.raw).get(RATIO).map(|text| percent(text));
    let Some(most) = annotation.unwrap_or(run.ctx.options.prune_brake_percent) else { return };
    let (gone, all) = (plan.delete.len(), inventory.entries().count());
    if gone == 0 || gone * 100 <= all * usize::from(most) {
        return;
    }
    let why = format!("{gone} of {all} objects would go, and more than {most}% are held");
    plan.held.extend(std::mem::take(&mut plan.delete).into_iter().map(|id| (id, why.clone())));
}

/// `50%` or `50`; what cannot be read holds everything, since somebody wanted a brake.
fn percent(text: &str) -> Option<u8> {
    let number = text.trim().trim_end_matches('%').trim_end();
    Some(number.parse().ok().filter(|percent| *percent <= 100).unwrap_or(0))
}

pub(super) fn is_protected_namespace(name: &str) -> bool {
    SYSTEM.contains(&name)
}

fn is_protected(id: &ObjectId, own: &str) -> bool {
    match (id.group.as_str(), id.kind.as_str()) {
        ("", "Namespace") => id.name == own || SYSTEM.contains(&id.name.as_str()),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => id.name.ends_with(".toolkit.fluxcd.io"),
        _ => false,
    }
}

/// Why an object is held, if it is. What cannot be found out holds nothing up: upstream would not even look.
async fn reason(cluster: &Cluster, id: &ObjectId, inventory: &Inventory) -> Option<String> {
    match (id.group.as_str(), id.kind.as_str()) {
        ("", "PersistentVolumeClaim") => {
            cluster.get(id).await.ok()??;
            Some("it holds data".to_owned())
        }
        ("", "Namespace") => {
            let foreign = foreign_object(cluster, &id.name, inventory).await?;
            Some(format!("it holds {foreign}, which is not of this Kustomization"))
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let definition = cluster.get(id).await.ok()??;
            let instance = instance(cluster, &definition).await?;
            Some(format!("there is {instance}"))
        }
        _ => None,
    }
}

async fn foreign_object(cluster: &Cluster, namespace: &str, inventory: &Inventory) -> Option<String> {
    for (api_version, kind, plural) in TELLING {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, &resource);
        let Ok(list) = api.list_metadata(&ListParams::default().limit(500)).await else { continue };
        for object in list.items {
            let name = object.metadata.name.clone().unwrap_or_default();
            let id = ObjectId {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name,
            };
            // What belongs to another object goes with it; the certificates every namespace gets are nobody's.
            let owned = object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
            if !owned && !inventory.contains(&id) && id.name != "kube-root-ca.crt" {
                return Some(id.to_string());
            }
        }
    }
    None
}

async fn instance(cluster: &Cluster, definition: &Value) -> Option<String> {
    let text =
        |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let served = versions.iter().find(|version| version["served"] == true)?;
    let (group, version) = (text("/spec/group"), served["name"].as_str()?.to_owned());
    let resource = ApiResource {
        api_version: format!("{group}/{version}"),
        group,
        version,
        kind: text("/spec/names/kind"),
        plural: text("/spec/names/plural"),
    };
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &resource);
    let list = api.list_metadata(&ListParams::default().limit(1)).await.ok()?;
    let first = list.items.into_iter().next()?.metadata;
    let namespace = first.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
    Some(format!("{} {namespace}{}", resource.kind, first.name.unwrap_or_default()))
}

/// Tells of what is held, once for each plan; the condition goes when nothing is.
pub(super) fn report(run: &mut Run<'_>, plan: &Plan) {
    if plan.held.is_empty() {
        run.conditions().delete(CONDITION);
        return;
    }
    let mut held: Vec<String> =
        plan.held.iter().take(MOST_NAMED).map(|(id, why)| format!("{id} ({why})")).collect();
    if plan.held.len() > MOST_NAMED {
        held.push(format!("and {} more", plan.held.len() - MOST_NAMED));
    }
    let name = plan.name();
    let message = format!(
        "not deleted although Git dropped it: {}; to delete it, run `flux -n {} reconcile kustomization {} --release-prune {name}`, \
         or annotate this object with {RELEASE}: {name}, and reconcile",
        held.join(", "),
        run.namespace(),
        run.object.name(),
    );
    let known =
        condition::find(&run.status.conditions, CONDITION).is_some_and(|known| known.message == message);
    if !known {
        run.conditions().set(CONDITION, ConditionStatus::True, "Brake", message.clone());
        run.tell(Severity::Error, CONDITION, message, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(group: &str, kind: &str, name: &str) -> ObjectId {
        ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: String::new(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_ground_we_stand_on_is_never_deleted() {
        let crd = "apiextensions.k8s.io";
        assert!(is_protected(&id("", "Namespace", "flux-system"), "flux-system"));
        assert!(is_protected(&id("", "Namespace", "kube-system"), "flux-system"));
        assert!(is_protected(
            &id(crd, "CustomResourceDefinition", "kustomizations.kustomize.toolkit.fluxcd.io"),
            "x"
        ));
        assert!(!is_protected(&id("", "Namespace", "apps"), "flux-system"));
        assert!(!is_protected(&id(crd, "CustomResourceDefinition", "widgets.example.org"), "x"));
    }

    #[test]
    fn a_share_is_a_percentage_and_nonsense_holds_everything() {
        for (text, expected) in [("50%", 50), (" 20 ", 20), ("100%", 100), ("0", 0), ("101", 0), ("half", 0)]
        {
            assert_eq!(percent(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_plan_is_named_by_what_it_holds_in_any_order() {
        let held = |names: &[&str]| Plan {
            held: names.iter().map(|name| (id("", "PersistentVolumeClaim", name), String::new())).collect(),
            ..Plan::default()
        };
        assert_eq!(held(&["a", "b"]).name(), held(&["b", "a"]).name());
        assert_ne!(held(&["a"]).name(), held(&["a", "b"]).name());
    }
}
