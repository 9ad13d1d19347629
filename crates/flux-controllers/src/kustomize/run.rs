//! One run of a reconcile: the object, what it looked like, what it becomes; its status and its events.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::duration::GoDuration;
use flux_api::kinds::{self, Kind};
use flux_api::kustomize::{Kustomization, KustomizationSpec, KustomizationStatus};
use flux_api::meta::{Inventory as StatusInventory, InventoryEntry};
use flux_api::names::RECONCILE_REQUEST;
use flux_api::time::Time;
use flux_apply::health_exprs::Judge;
use flux_apply::order::apply_order;
use flux_apply::{Inventory, ObjectId, Owner};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;

use super::Context;
use super::history::{self, Outcome};
use crate::reconcile::events::Happening;
use crate::reconcile::{Conditions, ObjectKey, Severity, Worker, status};
use crate::source::cloud::Asker;

pub(super) const KIND: &Kind = &kinds::KUSTOMIZATION;
pub(super) const STATUS_MANAGER: &str = "gotk-kustomize-controller";
/// Pieces of advice that are remembered.
const MOST_ADVICE: usize = 20_000;
const LEAST_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Run<'a> {
    pub(super) ctx: &'a Context,
    pub(super) raw: &'a DynamicObject,
    pub(super) object: &'a Kustomization,
    pub(super) worker: &'a Worker,
    /// What the server has.
    written: KustomizationStatus,
    pub(super) status: KustomizationStatus,
    pub(super) started: Instant,
    /// How health is judged.
    pub(super) judge: Arc<Judge>,
    /// Digest of what was built, once it was.
    pub(super) digest: Option<String>,
    pub(super) artifact: Option<Artifact>,
    /// Something was left for the next run, which should come this soon.
    pub(super) again: Option<Duration>,
}

impl<'a> Run<'a> {
    /// Under whose name tokens are counted.
    pub(super) fn asker(&self) -> Asker<'a> {
        Asker { kind: KIND.kind, namespace: Object::namespace(self.object), name: Object::name(self.object) }
    }

    pub(super) fn new(
        ctx: &'a Context,
        raw: &'a DynamicObject,
        object: &'a Kustomization,
        worker: &'a Worker,
    ) -> Self {
        let written = object.status.clone().unwrap_or_default();
        Self {
            ctx,
            raw,
            object,
            worker,
            status: written.clone(),
            written,
            started: Instant::now(),
            judge: Arc::default(),
            digest: None,
            artifact: None,
            again: None,
        }
    }

    pub(super) fn namespace(&self) -> &'a str {
        Object::namespace(self.object)
    }

    pub(super) fn conditions(&mut self) -> Conditions<'_> {
        Conditions { generation: self.object.generation(), list: &mut self.status.conditions }
    }

    pub(super) fn retry(&self) -> GoDuration {
        retry(&self.object.spec)
    }

    pub(super) fn timeout(&self) -> Duration {
        timeout(&self.object.spec)
    }

    pub(super) fn owner(&self) -> Owner {
        Owner {
            prefix: kinds::KUSTOMIZE_GROUP,
            name: self.object.name().to_owned(),
            namespace: self.namespace().to_owned(),
        }
    }

    pub(super) fn inventory(&self) -> Inventory {
        let entries = self.status.inventory.iter().flat_map(|inventory| &inventory.entries);
        Inventory::from_entries(entries.map(|entry| (entry.id.clone(), entry.version.clone())))
    }

    pub(super) fn set_inventory(&mut self, inventory: &Inventory) {
        // In the order of the apply, as upstream writes it, so that a swap leaves it alone.
        let mut objects: Vec<(Option<ObjectId>, InventoryEntry)> = inventory
            .entries()
            .map(|(id, version)| {
                let entry = InventoryEntry { id: id.to_owned(), version: version.to_owned() };
                (ObjectId::from_inventory(id, version), entry)
            })
            .collect();
        objects.sort_by(|(a, _), (b, _)| match (a, b) {
            (Some(a), Some(b)) => apply_order(a, b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        });
        let entries = objects.into_iter().map(|(_, entry)| entry).collect();
        self.status.inventory = Some(StatusInventory { entries });
    }

    pub(super) fn remember(&mut self, status: &str) {
        let Some(digest) = self.digest.clone() else { return };
        let mut metadata = BTreeMap::new();
        if let Some(artifact) = &self.artifact {
            metadata.insert("revision".to_owned(), artifact.revision.to_string());
            if let Some(origin) = artifact.origin_revision() {
                metadata.insert("originRevision".to_owned(), origin.to_string());
            }
        }
        let took = GoDuration::from(self.started.elapsed());
        let outcome = Outcome { digest: &digest, status, took, metadata };
        history::add(&mut self.status.history, outcome, Time::new(Timestamp::now()));
    }

    /// Whether advice is given for the first time, to this Kustomization.
    pub(super) fn advise(&self, advice: &str) -> bool {
        let mut given = self.ctx.memory.advice.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= MOST_ADVICE {
            given.clear();
        }
        given.insert(format!("{} {advice}", ObjectKey::of(self.raw)))
    }

    pub(super) fn note_request(&mut self) {
        if let Some(request) = self.raw.annotations().get(RECONCILE_REQUEST) {
            self.status.last_handled_reconcile_at = Some(request.clone());
        }
    }

    /// Says how far the run is; what could not be written is written with what comes next.
    pub(super) async fn write_progress(&mut self) {
        if let Err(error) = self.write().await {
            tracing::warn!(%error, "progress could not be written");
        }
    }

    /// Brings the status to the server.
    pub(super) async fn write(&mut self) -> Result<(), kube::Error> {
        let key = ObjectKey::of(self.raw);
        status::write(&self.ctx.client, KIND, &key, STATUS_MANAGER, &self.written, &self.status).await?;
        self.written = self.status.clone();
        Ok(())
    }

    /// An event in the middle of a run: Ready is still in doubt, and the reason says so.
    pub(super) fn tell_progress(&self, message: String) {
        self.tell(Severity::Info, "Progressing", message, None);
    }

    pub(super) fn tell(
        &self,
        severity: Severity,
        reason: &str,
        message: String,
        extra: Option<(&str, &str)>,
    ) {
        let mut metadata = BTreeMap::new();
        let (revision, origin) = match &self.artifact {
            Some(artifact) => (Some(artifact.revision.clone()), artifact.origin_revision()),
            None => {
                (self.status.last_applied_revision.clone(), self.status.last_applied_origin_revision.clone())
            }
        };
        for (key, value) in [("revision", revision), ("originRevision", origin)] {
            if let Some(value) = value {
                metadata.insert(format!("{}/{key}", KIND.group), value.to_string());
            }
        }
        if let Some((key, value)) = extra {
            metadata.insert(format!("{}/{key}", KIND.group), value.to_owned());
        }
        let happening = Happening { severity, reason: reason.to_owned(), message, metadata };
        self.ctx.events.tell(KIND, self.raw, happening);
    }
}

/// How soon a failed run is tried again.
fn retry(spec: &KustomizationSpec) -> GoDuration {
    spec.retry_interval.unwrap_or(spec.interval)
}

/// How long a run may wait for health or for an end: as the spec says, else a little less than the interval, and never
/// so little that nothing could come up.
fn timeout(spec: &KustomizationSpec) -> Duration {
    let derived = || spec.interval.to_std().saturating_sub(Duration::from_secs(30));
    spec.timeout.map_or_else(derived, GoDuration::to_std).max(LEAST_TIMEOUT)
}

/// How long something took, in milliseconds: nobody reads more.
pub(super) fn since(start: Instant) -> GoDuration {
    GoDuration::from(Duration::from_millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(more: Value) -> KustomizationSpec {
        let mut spec =
            json!({ "interval": "10m", "prune": true, "sourceRef": { "kind": "Bucket", "name": "b" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn what_a_spec_leaves_out_follows_from_its_interval() {
        let seconds =
            |more: Value| (timeout(&spec(more.clone())).as_secs(), retry(&spec(more)).to_std().as_secs());
        assert_eq!(seconds(json!({})), (570, 600));
        assert_eq!(seconds(json!({ "timeout": "2m", "retryInterval": "1m" })), (120, 60));
        assert_eq!(seconds(json!({ "timeout": "1s" })), (30, 600), "nothing comes up in less");
        assert_eq!(seconds(json!({ "interval": "40s" })), (30, 40));
        assert_eq!(seconds(json!({ "interval": "10s" })), (30, 10));
    }
}
