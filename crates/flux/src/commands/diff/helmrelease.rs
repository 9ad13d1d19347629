//! `flux diff helmrelease`: what the next revision of a release would change.
//!
//! Three states meet: what the HelmRelease asks for now (desired), what the last revision recorded (stored), and what is in the
//! cluster (live). An object whose desired state is the stored one has drifted if the cluster differs; otherwise the release
//! changes it. Nothing is written: objects go through a dry-run as helm-controller. Secrets are masked.

use std::collections::BTreeMap;

use flux_api::helm::{DriftDetectionMode, HelmRelease};
use flux_api::names::{DISABLED, HELM_DRIFT_DETECTION};
use flux_apply::apply::Cluster;
use flux_apply::ignore::without;
use flux_apply::{IgnoreRules, KnownKinds, ObjectId};
use flux_controllers::helm::actions::ClusterKinds;
use flux_controllers::helm::execute::{id_of, placed};
use helm::plan::{Object, ObjectKey, objects_of, own};
use helm::release::Release;
use serde_json::Value;

use super::dry_run::{dry_run, is_immutable, marked, mask, normalized, plain, refusal};
use super::dyff;
use super::told::Told;
use crate::commands::build::{Asked, Made};
use crate::error::{CliError, fail};
use crate::session::Session;
use crate::tree::Invocation;

const MANAGER: &str = "helm-controller";

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let told = diff(run).await.map_err(|error| error.with_code(2))?;
    told.end()
}

async fn diff(run: &Invocation) -> Result<Told, CliError> {
    let asked = Asked::of(run)?;
    let session = Session::open(run).await?;
    let made = asked.make(Some(&session)).await?;
    let cluster = made.cluster.as_ref().ok_or_else(|| fail!("there is no cluster to compare with"))?;
    let kinds = cluster.mapper.all(std::time::Duration::from_secs(60)).await;
    let kinds = kinds.map_err(|error| fail!("{error}"))?;
    let stored = made.records.history.last();
    let comparison = Comparison { made: &made, cluster, kinds: &kinds, stored, rules: rules(&made.object)? };
    let mut told = Told::default();
    comparison.crds(&mut told).await;
    comparison.objects(&mut told).await?;
    comparison.hooks(&mut told)?;
    if told.changed {
        told.text.insert_str(0, &format!("{}\n", headline(&made, stored)));
    }
    Ok(told)
}

/// Which revision is compared with what.
fn headline(made: &Made, stored: Option<&Release>) -> String {
    let next = &made.preview.release;
    let chart = |release: &Release| format!("{} {}", release.chart_name(), release.chart_version());
    let name = format!("{}/{}", next.namespace, next.name);
    match stored {
        None => format!("► release {name} is not installed; it would be {}", chart(next)),
        Some(stored) => {
            let status = stored.info.status.name();
            let mut text =
                format!("► release {name}: revision {} ({status}) of {}", stored.version, chart(stored));
            if chart(stored) != chart(next) {
                text.push_str(&format!(" → {}", chart(next)));
            }
            if stored.config.clone().unwrap_or_default() != next.config.clone().unwrap_or_default() {
                text.push_str(", with other values");
            }
            text
        }
    }
}

/// `driftDetection.ignore`: fields whose drift does not count.
fn rules(object: &HelmRelease) -> Result<IgnoreRules, CliError> {
    let rules = object.spec.drift_detection.as_ref().map(|drift| drift.ignore.clone()).unwrap_or_default();
    IgnoreRules::new(&rules).map_err(|error| fail!("spec.driftDetection.ignore: {error}"))
}

struct Comparison<'a> {
    made: &'a Made,
    cluster: &'a Cluster,
    kinds: &'a KnownKinds,
    stored: Option<&'a Release>,
    rules: IgnoreRules,
}

impl Comparison<'_> {
    async fn objects(&self, told: &mut Told) -> Result<(), CliError> {
        let release = &self.made.preview.release;
        let desired = self.of_manifest(&release.manifest, release)?;
        let stored = match self.stored {
            // A record that cannot be read is compared as if it was not there.
            Some(stored) => self.of_manifest(&stored.manifest, stored).unwrap_or_default(),
            None => Vec::new(),
        };
        let by_key: BTreeMap<&ObjectKey, &Object> =
            stored.iter().map(|object| (&object.key, object)).collect();
        for object in &desired {
            let before = by_key.get(&object.key).copied();
            if let Err(error) = self.object(object, before, told).await {
                told.errors.push(error);
            }
        }
        for object in stored.iter().filter(|old| !desired.iter().any(|new| new.key == old.key)) {
            self.gone(object, told).await;
        }
        Ok(())
    }

    fn of_manifest(&self, manifest: &str, release: &Release) -> Result<Vec<Object>, CliError> {
        let found = objects_of(manifest, &release.namespace, &ClusterKinds(self.kinds));
        let mut objects = found.map_err(|error| fail!("revision {}: {error}", release.version))?;
        for object in &mut objects {
            own(&mut object.json, &release.name, &release.namespace);
        }
        Ok(objects)
    }

    /// One object of the next revision.
    async fn object(&self, object: &Object, stored: Option<&Object>, told: &mut Told) -> Result<(), String> {
        let (id, desired) = (id_of(object), normalized(placed(object)));
        let is_same = stored.is_some_and(|stored| normalized(placed(stored)) == desired);
        let live = self.cluster.get(&id).await.map_err(|cause| format!("{id}: {cause}"))?;
        let Some(mut live) = live else {
            let note = match stored {
                Some(_) => "created: the last revision has it, the cluster has not",
                None => "created",
            };
            told.line("►", &id, note);
            told.changed = true;
            return Ok(());
        };
        let is_excluded = |object: &Value| marked(object, HELM_DRIFT_DETECTION, DISABLED);
        if is_same && (is_excluded(&desired) || is_excluded(&live)) {
            return Ok(());
        }
        let mut wanted = match dry_run(self.cluster, MANAGER, &id, &desired).await {
            Ok(wanted) => wanted,
            Err(cause) if is_immutable(&cause) && self.forces() => {
                told.line(
                    "►",
                    &id,
                    "replaced, since a field of it cannot change and spec.upgrade.force is set",
                );
                told.changed = true;
                return Ok(());
            }
            Err(cause) => return Err(refusal(&id, &cause)),
        };
        plain(&mut live);
        plain(&mut wanted);
        if is_same {
            let ignored = self.rules.of(&wanted);
            (live, wanted) = (without(&live, &ignored), without(&wanted, &ignored));
        }
        let differs = flux_apply::drift::has_drifted(&live, &wanted);
        let note = match (is_same, differs) {
            (true, false) => return Ok(()),
            (false, false) => "changes in the release, and is so in the cluster already".to_owned(),
            (true, true) => self.drifted(),
            (false, true) => match stored {
                Some(_) => "changed".to_owned(),
                None => "changed: it exists already, and the release takes it over".to_owned(),
            },
        };
        told.line("►", &id, &note);
        told.changed = true;
        if differs {
            if is_secret(&id) {
                mask(&mut live, &mut wanted);
            }
            told.text.push_str(&dyff::report(&live, &wanted));
        }
        Ok(())
    }

    fn forces(&self) -> bool {
        self.made.object.spec.upgrade.as_ref().is_some_and(|upgrade| upgrade.force)
    }

    /// Whether drift is put right depends on the spec.
    fn drifted(&self) -> String {
        let revision = self.stored.map_or(0, |stored| stored.version);
        let mode = self.made.object.spec.drift_detection.as_ref().and_then(|drift| drift.mode);
        let what = match mode {
            Some(DriftDetectionMode::Enabled) => "",
            Some(DriftDetectionMode::Warn) => ", and stays so: spec.driftDetection.mode is warn",
            Some(DriftDetectionMode::Disabled) | None => {
                ", and stays so: spec.driftDetection.mode is not enabled"
            }
        };
        format!("drifted since revision {revision}{what}")
    }

    /// What the last revision has and the next has not.
    async fn gone(&self, object: &Object, told: &mut Told) {
        let id = id_of(object);
        let Ok(Some(live)) = self.cluster.get(&id).await else { return };
        let keep = |object: &Value| marked(object, helm::RESOURCE_POLICY, "keep");
        if keep(&object.json) || keep(&live) {
            told.line("►", &id, "left alone: helm.sh/resource-policy is keep");
        } else {
            told.line("►", &id, "deleted");
        }
        told.changed = true;
    }

    /// CRDs are created, replaced only where the policy says so, and never deleted.
    async fn crds(&self, told: &mut Told) {
        for object in &self.made.preview.crds {
            let Some(id) = ObjectId::of(object) else { continue };
            let outcome = match self.cluster.get(&id).await {
                Ok(None) => Ok(Some("created".to_owned())),
                Ok(Some(_)) if !self.made.preview.replaces_crds => Ok(None),
                Ok(Some(live)) => self.crd(&id, live, object).await,
                Err(cause) => Err(format!("{id}: {cause}")),
            };
            match outcome {
                Ok(None) => {}
                Ok(Some(note)) => {
                    told.text.push_str(&format!("► {id} {note}\n"));
                    told.changed = true;
                }
                Err(error) => told.errors.push(error),
            }
        }
    }

    async fn crd(&self, id: &ObjectId, mut live: Value, object: &Value) -> Result<Option<String>, String> {
        let wanted = dry_run(self.cluster, MANAGER, id, object).await;
        let mut wanted = wanted.map_err(|cause| refusal(id, &cause))?;
        plain(&mut live);
        plain(&mut wanted);
        let differs = flux_apply::drift::has_drifted(&live, &wanted);
        Ok(differs.then(|| format!("changed\n{}", dyff::report(&live, &wanted)).trim_end().to_owned()))
    }

    /// Hooks are not compared with the cluster: they run and are gone.
    fn hooks(&self, told: &mut Told) -> Result<(), CliError> {
        let next = &self.made.preview.release;
        let desired = self.of_hooks(next)?;
        let stored = match self.stored {
            Some(stored) => self.of_hooks(stored).unwrap_or_default(),
            None => BTreeMap::new(),
        };
        for (key, new) in &desired {
            match stored.get(key) {
                Some(old) if old == new => {}
                Some(old) => {
                    told.line("►", &format_args!("hook {}", id_of(new)), "changed");
                    let (mut old, mut new) = (normalized(placed(old)), normalized(placed(new)));
                    if key.kind == "Secret" && key.group.is_empty() {
                        mask(&mut old, &mut new);
                    }
                    told.text.push_str(&dyff::report(&old, &new));
                    told.changed = true;
                }
                None => {
                    told.line("►", &format_args!("hook {}", id_of(new)), "added");
                    told.changed = true;
                }
            }
        }
        for (_, old) in stored.iter().filter(|(key, _)| !desired.contains_key(*key)) {
            told.line("►", &format_args!("hook {}", id_of(old)), "removed");
            told.changed = true;
        }
        Ok(())
    }

    fn of_hooks(&self, release: &Release) -> Result<BTreeMap<ObjectKey, Object>, CliError> {
        let mut found = BTreeMap::new();
        for hook in &release.hooks {
            for object in self.of_manifest(&hook.manifest, release)? {
                found.insert(object.key.clone(), object);
            }
        }
        Ok(found)
    }
}

fn is_secret(id: &ObjectId) -> bool {
    id.kind == "Secret" && id.group.is_empty()
}
