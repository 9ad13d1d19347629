//! Kustomization: whatever breaks, and wherever, the cluster ends as Git says.

use flux_api::kinds::{GIT_REPOSITORY, KUSTOMIZATION};
use serde_json::json;
use testbed::Cluster;
use testbed::git_server::Change;
use testbed::trouble::{Breaker, Cut, troubled};

use crate::flux::{Flux, ready};
use crate::kustomization::{applied, config_map, config_maps, spec, start, value};

crate::stories!(random_refusals_delay_nothing_for_ever);

/// The embedded server is enough: what is tried is the order of our own writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_or_refusal_at_any_write_of_an_install_upgrade_or_prune_heals() {
    let cluster = Cluster::embedded().await.unwrap();
    let mut flux = start(&cluster, &[("README.md", "x")]).await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    for step in [Step::Install, Step::Upgrade, Step::Prune] {
        let mut cuts = Vec::new();
        for number in 1.. {
            let before = cuts.len();
            for cut in [Cut::Before(number), Cut::After(number), Cut::Refused(number)] {
                cuts.extend(
                    run(&cluster, &mut flux, step, cut).await.map(|write| format!("{cut:?}: {write}")),
                );
            }
            // No write has this number any more. How many there are is not the same each time: what a restart checks
            // and the change that follows are one run when the change is quick.
            if cuts.len() == before {
                break;
            }
        }
        println!("{step:?}: {} points covered: {cuts:#?}", cuts.len());
        for write in step.writes() {
            assert!(
                cuts.iter().any(|point| point.contains(write)),
                "{step:?}: {write} is not covered: {cuts:#?}"
            );
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Install,
    Upgrade,
    Prune,
}

impl Step {
    /// What must be among the writes that were cut.
    fn writes(self) -> [&'static str; 2] {
        match self {
            Self::Install | Self::Upgrade => ["PATCH /api/v1/namespaces/", "/status"],
            Self::Prune => ["DELETE /api/v1/namespaces/", "/status"],
        }
    }
}

/// What the source-controller writes, and events, are not part of what is tried.
fn counts(path: &str) -> bool {
    !path.contains("/events") && !path.contains("gitrepositories")
}

/// Brings a Kustomization of its own to before `step`, does the step with the cut, restarts, and looks. Tells which write
/// was cut; none when the step was done before so many had come.
async fn run(cluster: &Cluster, flux: &mut Flux, step: Step, cut: Cut) -> Option<String> {
    let name = format!("{step:?}-{cut:?}").to_lowercase().replace('(', "-").replace(')', "");
    let file = |file: &str| format!("{name}/{file}.yaml");
    let (a, b) = (format!("{name}-a"), format!("{name}-b"));
    let first = [
        Change::Write(&file("a").leak()[..], config_map(&a, "one").leak()),
        Change::Write(&file("b").leak()[..], config_map(&b, "one").leak()),
    ];
    flux.fleet.commit_to("main", "first", &first).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    if step != Step::Install {
        flux.apply(&KUSTOMIZATION, &name, spec(flux, &name, soon())).await;
        let commit = flux.fleet.resolve("main").unwrap();
        applied(flux, &name, &commit).await;
    } else {
        let commit = flux.fleet.resolve("main").unwrap();
        let revision = format!("main@sha1:{commit}");
        flux.until(&GIT_REPOSITORY, "fleet", "has the commit", |object| {
            object["status"]["artifact"]["revision"] == revision.as_str()
        })
        .await;
    }
    let uid = config_maps(cluster, flux).get_opt(&a).await.unwrap().and_then(|map| map.metadata.uid);
    flux.stop().await;
    let breaker = Breaker::at(cut, counts);
    flux.through(breaker.client(&cluster.client()));
    flux.resume().await;
    flux.through(cluster.client());
    change(flux, step, &name, &a).await;
    let commit = flux.fleet.resolve("main").unwrap();
    let reached = tokio::select! {
        () = breaker.reached() => true,
        _ = applied(flux, &name, &commit) => false,
    };
    // Also when nothing was reached: that the step is done can be seen before the answer to its last write is lost.
    if !matches!(cut, Cut::Refused(_)) {
        restart(flux).await;
    }
    let object = applied(flux, &name, &commit).await;
    look(cluster, flux, step, (&a, &b), uid, &object).await;
    suspend(flux, &name).await;
    let (Cut::Before(number) | Cut::After(number) | Cut::Refused(number)) = cut;
    reached.then(|| breaker.writes()[number - 1].clone())
}

/// Of what is refused the next try must come soon.
fn soon() -> serde_json::Value {
    json!({ "retryInterval": "100ms" })
}

async fn restart(flux: &mut Flux) {
    flux.stop().await;
    flux.resume().await;
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
}

async fn change(flux: &Flux, step: Step, name: &str, a: &str) {
    match step {
        Step::Install => flux.apply(&KUSTOMIZATION, name, spec(flux, name, soon())).await,
        Step::Upgrade => {
            let files = [
                (format!("{name}/a.yaml"), config_map(a, "two")),
                (format!("{name}/c.yaml"), config_map(&format!("{name}-c"), "new")),
            ];
            let files: Vec<(&str, &str)> =
                files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            flux.fleet.commit("upgrade", &files).unwrap();
            flux.reconcile(&GIT_REPOSITORY, "fleet").await;
        }
        Step::Prune => {
            flux.fleet.commit_to("main", "prune", &[Change::Remove(&format!("{name}/b.yaml"))]).unwrap();
            flux.reconcile(&GIT_REPOSITORY, "fleet").await;
        }
    }
}

async fn look(
    cluster: &Cluster,
    flux: &Flux,
    step: Step,
    (a, b): (&str, &str),
    uid: Option<String>,
    object: &serde_json::Value,
) {
    let maps = config_maps(cluster, flux);
    let live = maps.get(a).await.unwrap();
    assert_eq!(value(&live), if step == Step::Upgrade { "two" } else { "one" });
    if uid.is_some() {
        assert_eq!(live.metadata.uid, uid, "{a}: what Git holds was deleted and made again");
    }
    assert_eq!(maps.get_opt(b).await.unwrap().is_some(), step != Step::Prune, "{b}");
    let expected = match step {
        Step::Install => 2,
        Step::Upgrade => 3,
        Step::Prune => 1,
    };
    assert_eq!(object["status"]["inventory"]["entries"].as_array().unwrap().len(), expected);
    assert_eq!(ready(object).0, "True");
}

/// Later runs write nothing for it.
async fn suspend(flux: &Flux, name: &str) {
    flux.apply(&KUSTOMIZATION, name, spec(flux, name, json!({ "suspend": true }))).await;
}

async fn random_refusals_delay_nothing_for_ever(cluster: &Cluster) {
    let files = [("apps/a.yaml", config_map("a", "one")), ("apps/b.yaml", config_map("b", "one"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let mut flux = start(cluster, &files).await;
    flux.ready(&GIT_REPOSITORY, "fleet").await;
    flux.stop().await;
    // One request in five goes wrong, in one of five ways.
    flux.through(troubled(&cluster.client(), 7, 20));
    flux.resume().await;
    flux.through(cluster.client());
    flux.apply(&KUSTOMIZATION, "apps", spec(&flux, "apps", soon())).await;
    let first = flux.fleet.resolve("main").unwrap();
    applied(&flux, "apps", &first).await;
    let changes = [Change::Write("apps/a.yaml", &config_map("a", "two")), Change::Remove("apps/b.yaml")];
    let second = flux.fleet.commit_to("main", "second", &changes).unwrap();
    flux.reconcile(&GIT_REPOSITORY, "fleet").await;
    applied(&flux, "apps", &second).await;
    let maps = config_maps(cluster, &flux);
    assert_eq!(value(&maps.get("a").await.unwrap()), "two");
    assert!(maps.get_opt("b").await.unwrap().is_none());
}
