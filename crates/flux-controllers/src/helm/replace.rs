//! A release that is to stand somewhere else, or to be of another chart, is uninstalled first. Where that would take data
//! along, it is held until somebody says that it may go.

use flux_api::Object;
use flux_api::condition::{self, ConditionStatus, READY, RECONCILING, REPLACE_HELD, STALLED};
use flux_apply::ObjectId;
use helm::plan::{Builtin, objects_of};
use helm::release::Release;
use kube::ResourceExt;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::execute::id_of;
use super::helm_release::{End, HelmReleases};
use super::identity::Target;
use super::report::{Run, tell};
use super::snapshot;
use super::storage::Storage;
use crate::reconcile::Severity;

/// Names the plan that may go.
const RELEASE: &str = "fluxcd.rs/release-replace";
/// Objects that a message names.
const MOST_NAMED: usize = 10;

impl HelmReleases {
    /// Why the release is not uninstalled yet. `moved` is what changed about where it stands.
    pub(super) async fn held(&self, run: &mut Run<'_>, target: &Target, moved: &str) -> Option<End> {
        let latest = snapshot::latest(&run.status.history).cloned()?;
        let namespace = run.status.storage_namespace.clone()?;
        if self.ctx.options.upstream_only {
            return None;
        }
        let storage = Storage::new(target.cluster.client.clone(), &namespace, helm::Dialect::Helm4);
        let records = storage.read(&latest.name).await;
        let precious = match &records {
            Ok(records) => records.history.last().map(precious).unwrap_or_default(),
            // The uninstallation will say why they cannot be read.
            Err(_) => Vec::new(),
        };
        let plan = plan(moved, &precious);
        let released = run.raw.annotations().get(RELEASE) == Some(&plan);
        if precious.is_empty() || released {
            condition::delete(&mut run.status.conditions, REPLACE_HELD);
            return None;
        }
        self.hold(run, &snapshot::full_name(&latest), moved, &precious, &plan);
        Some(End::Stalled)
    }

    /// Told once for each plan.
    fn hold(&self, run: &mut Run<'_>, release: &str, moved: &str, precious: &[ObjectId], plan: &str) {
        let mut named: Vec<String> = precious.iter().take(MOST_NAMED).map(ToString::to_string).collect();
        if precious.len() > MOST_NAMED {
            named.push(format!("and {} more", precious.len() - MOST_NAMED));
        }
        let in_place = match moved {
            "chart name" => "set spec.upgrade.chartNameChangeStrategy to InPlaceUpdate, ",
            _ => "",
        };
        let message = format!(
            "release {release} is not uninstalled although its {moved} changed, since that would delete {}; undo the change, {in_place}or \
             let it go: annotate this object with {RELEASE}: {plan}, and run `flux -n {} reconcile helmrelease {}`",
            named.join(", "),
            Object::namespace(run.object),
            run.object.name(),
        );
        let known = condition::find(&run.status.conditions, REPLACE_HELD)
            .is_some_and(|known| known.message == message);
        condition::delete(&mut run.status.conditions, RECONCILING);
        run.set(REPLACE_HELD, ConditionStatus::True, REPLACE_HELD, message.clone());
        run.set(STALLED, ConditionStatus::True, REPLACE_HELD, message.clone());
        run.set(READY, ConditionStatus::False, REPLACE_HELD, message.clone());
        if !known {
            tell(&self.ctx.events, run.raw, Severity::Error, REPLACE_HELD, message, None);
        }
    }
}

/// The objects of a release that hold data, or that objects of others depend on, and that its removal would delete.
fn precious(release: &Release) -> Vec<ObjectId> {
    // Only kinds of Kubernetes itself are looked for, so it need not know any others.
    let objects = objects_of(&release.manifest, &release.namespace, &Builtin).unwrap_or_default();
    let is_kept = |object: &Value| {
        let policy =
            object.pointer("/metadata/annotations").and_then(|marks| marks.get("helm.sh/resource-policy"));
        policy.and_then(Value::as_str).is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
    };
    let is_precious = |id: &ObjectId| {
        matches!(
            (id.group.as_str(), id.kind.as_str()),
            ("", "PersistentVolumeClaim")
                | ("apps", "StatefulSet")
                | ("apiextensions.k8s.io", "CustomResourceDefinition")
        )
    };
    objects.iter().filter(|object| !is_kept(&object.json)).map(id_of).filter(is_precious).collect()
}

/// A short name that changes with what is held, and why.
fn plan(moved: &str, precious: &[ObjectId]) -> String {
    let mut hash = Sha256::new();
    hash.update(moved);
    for id in precious {
        hash.update(format!("\n{}", id.inventory_id()));
    }
    hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use helm::release::Status;

    use super::super::state::tests::release;
    use super::*;

    #[test]
    fn what_holds_data_is_precious_unless_it_is_kept_anyway() {
        let mut release = release(1, Status::Deployed);
        release.manifest = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: stays, annotations: {helm.sh/resource-policy: keep}}\n---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n".to_owned();
        let named: Vec<String> = precious(&release).iter().map(ToString::to_string).collect();
        assert_eq!(named, ["PersistentVolumeClaim/apps/data", "StatefulSet/apps/db"]);
    }

    #[test]
    fn a_plan_is_known_by_what_it_takes_along_and_why() {
        let mut release = release(1, Status::Deployed);
        release.manifest = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n".to_owned();
        let all = precious(&release);
        assert_eq!(plan("chart name", &all), plan("chart name", &all));
        assert_ne!(plan("chart name", &all), plan("release name", &all));
        assert_ne!(plan("chart name", &all), plan("chart name", &[]));
    }
}
