//! Lives of releases, planned here and carried out on a cluster that is a map.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use helm::plan::{
    self, Builtin, HookRun, How, Install, Live, ObjectKey, Operation, PatchType, Plan, PlanError,
    Propagation, Record, ReuseValues, Rollback, Step, TestFilter, Uninstall, Upgrade, Waiting,
};
use helm::release::{ApplyMethod, Driver, History, Release, Status, Written, from_storage, storage_object};
use helm::{Capabilities, Chart, Dialect, File, HookPhase, Limits, Options, ReleaseOptions, Values};
use serde_json::{Value as Json, json};

struct StoppedClock;

impl gotemplate::Host for StoppedClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self, buffer: &mut [u8]) {
        buffer.fill(7);
    }
}

/// Stored records and live objects.
#[derive(Default)]
struct Cluster {
    live: Live,
    records: BTreeMap<i64, Json>,
    log: Vec<String>,
    /// The kind whose objects fail to apply.
    broken: Option<&'static str>,
}

const WAITING: Waiting = Waiting { wait: true, wait_for_jobs: false, disable_hooks: false };

impl Cluster {
    fn history(&self) -> History {
        History::new(self.records.values().map(|secret| from_storage(secret).unwrap()).collect())
    }

    fn store(&mut self, release: &Release, when: Written) {
        let secret = storage_object(release, Driver::Secret, Dialect::Helm4, when).unwrap();
        assert_eq!(secret["metadata"]["labels"]["status"], release.info.status.name());
        self.records.insert(release.version, secret);
    }

    fn run(&mut self, mut plan: Plan) -> Result<(), String> {
        for at in 0..plan.steps.len() {
            let step = plan.steps[at].clone();
            if let Err(error) = self.step(&mut plan, &step) {
                let failure = plan.failed(at, &error);
                for step in failure.steps {
                    self.step(&mut plan, &step).unwrap();
                }
                return Err(failure.description);
            }
        }
        Ok(())
    }

    fn step(&mut self, plan: &mut Plan, step: &Step) -> Result<(), String> {
        match step {
            Step::CreateNamespace(name) => self.log.push(format!("namespace {name}")),
            Step::CreateCrds(crds) => self.log.push(format!("crds {}", crds.len())),
            Step::Record(record) => self.record(plan, record),
            Step::Hooks(run) => self.hooks(plan, run),
            Step::Apply(applying) => {
                let key = &applying.object.key;
                if self.broken == Some(key.kind.as_str()) {
                    return Err(format!("{} is broken", key.kind));
                }
                self.log.push(format!("{} {}/{}", how(&applying.how), key.kind, key.name));
                if !matches!(applying.how, How::Patch(_) | How::Unchanged) {
                    self.live.insert(key.clone(), applying.object.json.clone());
                }
            }
            Step::Delete { object, propagation } => {
                assert_eq!(*propagation, Propagation::Background);
                self.log.push(format!("delete {}/{}", object.kind, object.name));
                self.live.remove(object);
            }
            Step::Wait { objects, .. } => self.log.push(format!("wait {}", objects.len())),
            Step::WaitForDeletion(objects) => self.log.push(format!("gone {}", objects.len())),
        }
        Ok(())
    }

    fn record(&mut self, plan: &mut Plan, record: &Record) {
        match record {
            Record::Create => {
                assert!(!self.records.contains_key(&plan.release.version));
                self.store(&plan.release, Written::Created(0));
            }
            Record::Update => self.store(&plan.release, Written::Modified(1)),
            Record::Mark { status, description } => {
                plan.release.info.status = *status;
                if let Some(description) = description {
                    plan.release.info.description.clone_from(description);
                }
            }
            Record::Supersede(revision) => {
                let mut old = from_storage(&self.records[revision]).unwrap();
                old.info.status = Status::Superseded;
                self.store(&old, Written::Modified(1));
            }
            Record::Refresh(revision) => {
                let old = from_storage(&self.records[revision]).unwrap();
                self.store(&old, Written::Modified(1));
            }
            Record::Delete(revisions) => revisions.iter().for_each(|revision| {
                self.records.remove(revision);
            }),
        }
    }

    fn hooks(&mut self, plan: &mut Plan, run: &HookRun) {
        for hook in &run.hooks {
            let record = &mut plan.release.hooks[hook.hook];
            record.last_run.phase = HookPhase::Succeeded;
            let flags = format!(
                "{}{}",
                if hook.delete_before { "b" } else { "" },
                if hook.delete_on_success { "s" } else { "" }
            );
            self.log.push(format!("hook {} {} {flags}", run.event.name(), record.name));
        }
    }

    fn statuses(&self) -> Vec<(i64, &'static str, String)> {
        self.history()
            .revisions()
            .iter()
            .map(|r| (r.version, r.info.status.name(), r.info.description.clone()))
            .collect()
    }
}

fn how(how: &How) -> &'static str {
    match how {
        How::Create => "create",
        How::ServerSide { .. } => "apply",
        How::Patch(patch) => match patch.kind {
            PatchType::Strategic => "patch",
            PatchType::Merge => "merge",
        },
        How::Replace => "replace",
        How::Unchanged => "same",
    }
}

fn chart(service_port: u16, extra: &str) -> Chart {
    let hook = |name: &str, event: &str, weight: &str, policy: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    helm.sh/hook: {event}\n    helm.sh/hook-weight: \"{weight}\"\n{policy}"
        )
    };
    let files = [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\nappVersion: v7\n".to_owned()),
        ("values.yaml", "port: 1\n".to_owned()),
        ("crds/x.yaml", "kind: CustomResourceDefinition\n".to_owned()),
        ("templates/service.yaml", format!("apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {{ports: [{{port: {service_port}}}]}}\n")),
        ("templates/keep.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}\n".to_owned()),
        ("templates/extra.yaml", extra.to_owned()),
        ("templates/h1.yaml", hook("second", "pre-install,pre-upgrade", "5", "    helm.sh/hook-delete-policy: hook-succeeded\n")),
        ("templates/h2.yaml", hook("first", "pre-install", "-5", "")),
        ("templates/h3.yaml", hook("probe", "test", "0", "")),
        ("templates/NOTES.txt", "port {{ .Values.port }}".to_owned()),
    ];
    let files = files
        .into_iter()
        .map(|(name, text)| File { name: name.to_owned(), data: text.into(), modified: None })
        .collect();
    Chart::from_files(files, Limits::default(), Dialect::Helm4).unwrap()
}

const EXTRA: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n";

fn release(chart: &Chart, method: ApplyMethod) -> (Release, Vec<helm::Crd>) {
    let options = ReleaseOptions {
        name: "rel".to_owned(),
        namespace: "ns".to_owned(),
        revision: 1,
        operation: helm::Operation::Install,
    };
    let values = Values::from_json(json!({"port": 8080})).unwrap();
    let rendered = helm::render(
        chart,
        &values,
        &options,
        &Capabilities::offline(Dialect::Helm4),
        &StoppedClock,
        &Options::default(),
    )
    .unwrap();
    (Release::new("rel", "ns", chart, &rendered, &values, method, jiff::Timestamp::UNIX_EPOCH), rendered.crds)
}

fn install(cluster: &mut Cluster, chart: &Chart, server_side: bool, replace: bool) -> Result<(), String> {
    let options = Install {
        create_namespace: true,
        skip_crds: false,
        replace,
        take_ownership: false,
        server_side,
        force_conflicts: false,
        force_replace: false,
        waiting: WAITING,
        description: String::new(),
        labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
        max_history: 0,
    };
    let (release, crds) =
        release(chart, if server_side { ApplyMethod::ServerSide } else { ApplyMethod::ClientSide });
    let plan = plan::install(release, &crds, &cluster.history(), &cluster.live, &Builtin, &options)
        .map_err(|e| e.to_string())?;
    assert_eq!(plan.operation, Operation::Install);
    cluster.run(plan)
}

fn upgrade(
    cluster: &mut Cluster,
    chart: &Chart,
    server_side: Option<bool>,
    max_history: usize,
) -> Result<(), String> {
    let options = Upgrade {
        take_ownership: false,
        server_side,
        force_conflicts: false,
        force_replace: false,
        cleanup_on_fail: true,
        waiting: WAITING,
        description: String::new(),
        labels: BTreeMap::from([("team".to_owned(), "null".to_owned()), ("new".to_owned(), "1".to_owned())]),
        max_history,
    };
    let (release, _) = release(chart, ApplyMethod::ClientSide);
    let plan = plan::upgrade(release, &cluster.history(), &cluster.live, &Builtin, &options)
        .map_err(|e| e.to_string())?;
    cluster.run(plan)
}

fn rollback(cluster: &mut Cluster, to: i64) -> Result<(), String> {
    let options = Rollback {
        to,
        server_side: None,
        force_conflicts: false,
        force_replace: false,
        cleanup_on_fail: false,
        waiting: WAITING,
        description: String::new(),
        max_history: 0,
    };
    let plan =
        plan::rollback(&cluster.history(), &cluster.live, &Builtin, &options, jiff::Timestamp::UNIX_EPOCH)
            .map_err(|e| e.to_string())?;
    cluster.run(plan)
}

#[test]
fn an_installation_runs_crds_hooks_objects_and_marks_the_record() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, EXTRA), true, false).unwrap();
    assert_eq!(
        cluster.log,
        [
            "crds 1",
            "namespace ns",
            "hook pre-install first b",
            "hook pre-install second s",
            "apply ConfigMap/extra",
            "apply ConfigMap/kept",
            "apply Service/s",
            "wait 3"
        ]
    );
    assert_eq!(cluster.statuses(), [(1, "deployed", "Install complete".to_owned())]);
    let record = cluster.history().last().unwrap().clone();
    assert_eq!((record.chart_name(), record.chart_version(), record.app_version()), ("c", "1.0.0", "v7"));
    assert_eq!(
        (record.info.notes.as_str(), record.labels.get("team").map(String::as_str)),
        ("port 8080", Some("a"))
    );
    let service = &cluster.live[&key("Service", "s")];
    assert_eq!(service["metadata"]["annotations"]["meta.helm.sh/release-name"], "rel");
    assert_eq!(service["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
}

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey {
        group: String::new(),
        kind: kind.to_owned(),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
    }
}

#[test]
fn an_upgrade_changes_creates_and_deletes() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, EXTRA), false, false).unwrap();
    cluster.log.clear();
    upgrade(&mut cluster, &chart(81, "apiVersion: v1\nkind: Secret\nmetadata: {name: added}\n"), None, 0)
        .unwrap();
    assert_eq!(
        cluster.log,
        [
            "hook pre-upgrade second s",
            "create Secret/added",
            "same ConfigMap/kept",
            "patch Service/s",
            "delete ConfigMap/extra",
            "wait 3"
        ]
    );
    assert_eq!(
        cluster.statuses(),
        [(1, "superseded", "Install complete".to_owned()), (2, "deployed", "Upgrade complete".to_owned())]
    );
    let labels = cluster.history().last().unwrap().labels.clone();
    assert_eq!(labels.get("team"), None);
    assert_eq!(labels.get("new").map(String::as_str), Some("1"));
}

#[test]
fn a_failed_upgrade_is_recorded_cleaned_up_and_can_be_rolled_back() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, ""), true, false).unwrap();
    cluster.broken = Some("Service");
    let error =
        upgrade(&mut cluster, &chart(81, "apiVersion: v1\nkind: Secret\nmetadata: {name: added}\n"), None, 0)
            .unwrap_err();
    assert_eq!(error, "Upgrade \"rel\" failed: Service is broken");
    assert!(!cluster.live.contains_key(&key("Secret", "added")));
    assert_eq!(cluster.statuses()[1], (2, "failed", error));
    assert_eq!(cluster.statuses()[0].1, "deployed");
    // What never worked does not look as if it had, after a rollback that fails, too.
    rollback(&mut cluster, 1).unwrap_err();
    let statuses: Vec<&str> = cluster.statuses().iter().map(|status| status.1).collect();
    assert_eq!(statuses, ["deployed", "failed", "failed"]);
    cluster.broken = None;
    cluster.log.clear();
    rollback(&mut cluster, 1).unwrap();
    assert_eq!(cluster.log, ["apply ConfigMap/kept", "apply Service/s", "wait 2"]);
    let statuses = cluster.statuses();
    assert_eq!(statuses[3], (4, "deployed", "Rollback to 1".to_owned()));
    assert_eq!(statuses[0].1, "superseded");
    assert_eq!(cluster.history().last().unwrap().info.rollback_revision, 1);
}

#[test]
fn an_object_of_somebody_else_stops_an_installation() {
    let mut cluster = Cluster::default();
    cluster.live.insert(key("Service", "s"), json!({"metadata": {"name": "s"}}));
    let error = install(&mut cluster, &chart(80, ""), true, false).unwrap_err();
    assert!(error.starts_with("unable to continue with install: Service \"s\" in namespace \"ns\" exists and cannot be imported into the current release: invalid ownership metadata; "), "{error}");
    assert!(cluster.records.is_empty());
}

#[test]
fn names_are_used_again_only_when_asked_and_when_free() {
    let mut cluster = Cluster::default();
    let chart = chart(80, "");
    install(&mut cluster, &chart, true, false).unwrap();
    assert_eq!(install(&mut cluster, &chart, true, true).unwrap_err(), PlanError::NameInUse.to_string());
    uninstall(&mut cluster, true).unwrap();
    assert_eq!(install(&mut cluster, &chart, true, false).unwrap_err(), PlanError::NameInUse.to_string());
    install(&mut cluster, &chart, true, true).unwrap();
    assert_eq!(cluster.statuses().iter().map(|s| s.1).collect::<Vec<_>>(), ["superseded", "deployed"]);
}

fn uninstall(cluster: &mut Cluster, keep_history: bool) -> Result<String, String> {
    let options = Uninstall {
        keep_history,
        propagation: Propagation::Background,
        waiting: WAITING,
        description: String::new(),
    };
    let uninstalling =
        plan::uninstall(&cluster.history(), &cluster.live, &Builtin, &options, jiff::Timestamp::UNIX_EPOCH)
            .map_err(|e| e.to_string())?;
    cluster.run(uninstalling.plan)?;
    Ok(uninstalling.kept)
}

#[test]
fn an_uninstallation_spares_what_asks_for_it_and_what_is_not_ours() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, EXTRA), true, false).unwrap();
    cluster.live.get_mut(&key("ConfigMap", "extra")).unwrap()["metadata"]["labels"] = json!({});
    cluster.log.clear();
    let kept = uninstall(&mut cluster, false).unwrap();
    assert_eq!(cluster.log, ["delete Service/s", "gone 1"]);
    assert_eq!(
        kept,
        "These resources were kept due to the resource policy:\n[ConfigMap] kept\n\n1 resource(s) were not deleted because they are not owned by this release:\n[ConfigMap] extra\n"
    );
    assert!(cluster.records.is_empty());
    assert_eq!(uninstall(&mut cluster, false).unwrap_err(), "no release provided");
}

#[test]
fn old_revisions_are_pruned_but_the_deployed_one() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, ""), true, false).unwrap();
    for port in 81..85 {
        upgrade(&mut cluster, &chart(port, ""), None, 3).unwrap();
    }
    assert_eq!(cluster.records.keys().copied().collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn a_pending_release_is_left_alone() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, ""), true, false).unwrap();
    let mut pending = cluster.history().last().unwrap().clone();
    pending.version = 2;
    pending.set_status(Status::PendingUpgrade, "Preparing upgrade");
    cluster.store(&pending, Written::Created(0));
    assert_eq!(upgrade(&mut cluster, &chart(81, ""), None, 0).unwrap_err(), PlanError::Pending.to_string());
}

#[test]
fn tests_run_by_name_and_leave_the_status() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, ""), true, false).unwrap();
    cluster.log.clear();
    let filter = TestFilter { only: Vec::new(), except: vec!["other".to_owned()] };
    let plan = plan::test(&cluster.history(), &Builtin, &filter).unwrap();
    cluster.run(plan).unwrap();
    assert_eq!(cluster.log, ["hook test probe b"]);
    let history = cluster.history();
    let hook = history.last().unwrap().hooks.iter().find(|h| h.name == "probe").unwrap();
    assert_eq!(hook.last_run.phase, HookPhase::Succeeded);
    assert_eq!(history.last().unwrap().info.status, Status::Deployed);
}

#[test]
fn client_side_releases_hand_their_fields_over_when_they_turn_server_side() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, ""), false, false).unwrap();
    let (release, _) = release(&chart(81, ""), ApplyMethod::ClientSide);
    let options = Upgrade {
        take_ownership: false,
        server_side: Some(true),
        force_conflicts: true,
        force_replace: false,
        cleanup_on_fail: false,
        waiting: WAITING,
        description: String::new(),
        labels: BTreeMap::new(),
        max_history: 0,
    };
    let plan = plan::upgrade(release, &cluster.history(), &cluster.live, &Builtin, &options).unwrap();
    let hows: Vec<&How> =
        plan.steps.iter().filter_map(|s| if let Step::Apply(a) = s { Some(&a.how) } else { None }).collect();
    assert!(
        hows.iter().all(|how| **how == How::ServerSide { force_conflicts: true, adopt_client_side: true })
    );
    assert_eq!(plan.release.apply_method, Some(ApplyMethod::ServerSide));
}

#[test]
fn values_of_an_upgrade_start_where_the_user_says() {
    let mut cluster = Cluster::default();
    install(&mut cluster, &chart(80, ""), true, false).unwrap();
    let history = cluster.history();
    let current = plan::current_release("rel", &history).unwrap();
    let given = || Values::from_json(json!({"new": "x"})).unwrap();
    let values = |given, reuse| json!(plan::reuse_values(given, current, reuse).as_map());
    assert_eq!(values(Values::new(), ReuseValues::IfNoneGiven), json!({"port": 8080.0}));
    assert_eq!(values(given(), ReuseValues::IfNoneGiven), json!({"new": "x"}));
    assert_eq!(values(given(), ReuseValues::Reset), json!({"new": "x"}));
    assert_eq!(values(given(), ReuseValues::ResetThenReuse), json!({"new": "x", "port": 8080}));
}
