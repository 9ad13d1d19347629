//! Kubernetes' own end-to-end suite against the embedded server: the specs that need no nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use testbed::Cluster;
use testbed::reference::{self, Tool};

/// Specs of the list that fail here, with the reason; COMPATIBILITY.md has them too.
const KNOWN_TO_FAIL: [(&str, &str); 0] = [];

/// The list of specs, one a line.
fn specs() -> Option<Vec<String>> {
    let shared = std::env::var_os("FLUX_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let text = std::fs::read_to_string(shared.join("corpus/kubernetes-e2e.txt")).ok()?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    Some(lines.map(|line| line.trim().to_owned()).collect())
}

/// How each spec that ran ended, and why.
fn run(kubeconfig: &Path, specs: &[String], folder: &Path) -> Result<BTreeMap<String, (String, String)>> {
    let binary = reference::binary(Tool::KubernetesE2e, "e2e.test")?;
    let focus: Vec<String> = specs.iter().map(|spec| regex::escape(spec)).collect();
    let report = folder.join("report.json");
    let output = Command::new(binary)
        .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=0", "--num-nodes=0"])
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--ginkgo.focus={}", focus.join("|")))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .args(["--ginkgo.timeout=15m", "--ginkgo.no-color"])
        .current_dir(folder)
        .output()?;
    let Ok(text) = std::fs::read_to_string(&report) else {
        bail!("the suite left no report: {}", String::from_utf8_lossy(&output.stdout));
    };
    let suites: Value = serde_json::from_str(&text)?;
    let mut ended = BTreeMap::new();
    for spec in suites[0]["SpecReports"].as_array().into_iter().flatten() {
        let state = spec["State"].as_str().unwrap_or_default();
        if spec["LeafNodeType"] != "It" || state == "skipped" || state == "pending" {
            continue;
        }
        let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
        let names: Vec<&str> = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str).collect();
        let why = spec["Failure"]["Message"].as_str().unwrap_or_default();
        ended.insert(names.join(" "), (state.to_owned(), why.to_owned()));
    }
    Ok(ended)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "peers: builds and runs Kubernetes' end-to-end suite"]
async fn kubernetes_own_specs_pass() -> Result<()> {
    let Some(specs) = specs() else {
        println!("skipped: no corpus");
        return Ok(());
    };
    let cluster = Cluster::start_embedded().await?;
    let folder = tempfile::tempdir()?;
    let (kubeconfig, wanted, at) =
        (cluster.kubeconfig_path().to_owned(), specs.clone(), folder.path().to_owned());
    let ended = tokio::task::spawn_blocking(move || run(&kubeconfig, &wanted, &at)).await??;
    let mut failures = Vec::new();
    for spec in &specs {
        let (state, why) = ended.get(spec).with_context(|| format!("{spec} did not run"))?;
        let known = KNOWN_TO_FAIL.iter().any(|(name, _)| name == spec);
        match (state == "passed", known) {
            (true, false) | (false, true) => {}
            (true, true) => failures.push(format!("{spec} passes: take it off the list")),
            (false, false) => failures.push(format!("{spec}: {state}: {why}")),
        }
    }
    let passed = specs.len() - KNOWN_TO_FAIL.len() - failures.len();
    println!("kubernetes e2e: {passed} of {} specs pass", specs.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
