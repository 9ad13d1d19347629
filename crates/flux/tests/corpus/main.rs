//! What the real `flux` printed, against what ours prints.
//!
//! The cases lie outside the repository. Those that need a cluster run against the embedded API server with Flux's CRDs and no
//! controllers, as the recorded ones did against a real server; a webhook, a log API and a registry are played too. What this
//! runner cannot play is counted as skipped and named. Every other case has to pass, except those listed in `DIFFERS`.
//! `FLUX_CASES=regex` runs only the cases whose id matches.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;
mod flag_values;
mod folder;
mod judge;
#[path = "../at_work/log_api.rs"]
mod log_api;
mod objects;
mod peers;
mod play;
mod scenario;
mod values;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Mutex;

use regex::Regex;
use serde_json::Value;

use folder::Corpus;
use play::Player;

/// Cases that ours answers otherwise on purpose; COMPATIBILITY.md says why.
const DIFFERS: &[(&str, &str)] = &[
    ("obs_cluster_read/delete_prompt_no_tty", "questions stand on stderr, without control characters"),
    ("obs_local/migrate_prompt_declined", "questions stand on stderr, without control characters"),
    ("obs_cluster_read/export_git_all_credentials", "shows the credentials of all, not only of the first"),
    ("obs_scenario_install/step_24_get_after_uninstall", "kinds whose definitions are gone are left out"),
];

/// How many cases run at once; each worker has a cluster of its own.
const WORKERS: usize = 3;

#[test]
fn golden_cases() {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    if !shared.join("cli/cases").is_dir() {
        println!("corpus cli: skipped: no corpus at {}", shared.display());
        return;
    }
    let corpus = Corpus::unpack(&shared.join("cli"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let groups = Mutex::new(groups(&corpus));
    let results: Mutex<BTreeMap<String, Score>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut player = Player::new(&corpus, runtime.handle().clone());
                loop {
                    let group = groups.lock().unwrap().pop_front();
                    let Some(group) = group else { return };
                    let answers = player.play(&group);
                    let mut results = results.lock().unwrap();
                    for (case, answer) in group.iter().zip(answers) {
                        results.entry(set(case)).or_default().add(id(case), answer);
                    }
                }
            });
        }
    });
    let mut broken = Vec::new();
    for (set, score) in results.into_inner().unwrap() {
        println!("{}", score.line(&set));
        broken.extend(score.failed.into_iter().map(|(id, _)| id));
    }
    assert!(broken.is_empty(), "cases that differ: {broken:#?}");
}

/// What became of a case.
pub enum Answer {
    /// What is wrong with it; nothing when it passed.
    Played(Vec<String>),
    Skipped(&'static str),
}

#[derive(Default)]
struct Score {
    passed: usize,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, &'static str)>,
}

impl Score {
    fn add(&mut self, id: &str, answer: Answer) {
        match answer {
            Answer::Played(problems) => {
                match (problems.is_empty(), DIFFERS.iter().find(|(known, _)| *known == id)) {
                    (true, None) => self.passed += 1,
                    (false, Some((_, why))) => self.skipped.push((id.to_owned(), why)),
                    (false, None) => self.failed.push((id.to_owned(), problems.join("; "))),
                    (true, Some(_)) => {
                        self.failed.push((id.to_owned(), "does not differ any more".to_owned()))
                    }
                }
            }
            Answer::Skipped(why) => self.skipped.push((id.to_owned(), why)),
        }
    }

    fn line(&self, set: &str) -> String {
        let (passed, failed, skipped) = (self.passed, self.failed.len(), self.skipped.len());
        let mut text = format!("corpus {set}: {passed} passed, {failed} failed, {skipped} skipped");
        for (id, why) in &self.skipped {
            text.push_str(&format!("\n  skipped {id}: {why}"));
        }
        for (id, why) in &self.failed {
            text.push_str(&format!("\n  failed {id}: {why}"));
        }
        text
    }
}

fn id(case: &Value) -> &str {
    case["id"].as_str().unwrap_or_default()
}

fn set(case: &Value) -> String {
    let from = if case["build_tag"] == "observed" { "observed" } else { "upstream" };
    let place = match (case["level"] == "cli", case["needs_cluster"] == true) {
        (false, _) => "function",
        (true, true) => "cluster",
        (true, false) => "local",
    };
    format!("cli-{from}-{place}")
}

/// Cases in the order they run: the steps of a scenario together, any other case by itself.
fn groups(corpus: &Corpus) -> VecDeque<Vec<Value>> {
    let only = std::env::var("FLUX_CASES").ok().map(|only| Regex::new(&only).unwrap());
    let mut groups: VecDeque<Vec<Value>> = VecDeque::new();
    for case in corpus.cases() {
        if only.as_ref().is_some_and(|only| !only.is_match(id(&case)) && case["scenario"].is_null()) {
            continue;
        }
        let continues = groups
            .back()
            .and_then(|group| group.last())
            .is_some_and(|last: &Value| !case["scenario"].is_null() && last["scenario"] == case["scenario"]);
        match groups.back_mut().filter(|_| continues) {
            Some(group) => group.push(case),
            None => groups.push_back(vec![case]),
        }
    }
    if let Some(only) = only {
        groups.retain(|group| group.iter().any(|case| only.is_match(id(case))));
    }
    groups
}
