//! `flux test` on a fleet with one fault at a time: each turns it red, and the cause is named. And on public fleets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The files of a fleet that is fine: a source, three Kustomizations in order, a chart, variables, a workload.
const FLEET: &[(&str, &str)] = &[
    (
        "clusters/one/fleet.yaml",
        "apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: infra, namespace: flux-system}
spec:
  interval: 10m
  path: ./infra
  prune: true
  wait: true
  sourceRef: {kind: GitRepository, name: flux-system}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec:
  interval: 10m
  path: ./apps
  prune: true
  dependsOn: [{name: infra}]
  sourceRef: {kind: GitRepository, name: flux-system}
  postBuild:
    substitute: {stage: test}
    substituteFrom: [{kind: ConfigMap, name: settings}]
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: releases, namespace: flux-system}
spec:
  interval: 10m
  path: ./releases
  prune: true
  wait: true
  dependsOn: [{name: infra}]
  sourceRef: {kind: GitRepository, name: flux-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: flux-system}
data: {domain: example.com}
",
    ),
    ("infra/namespaces.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}\n"),
    (
        "infra/widgets.yaml",
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: &schema
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {size: {type: integer}}}}
    - name: v1beta1
      served: true
      storage: false
      deprecated: true
      schema: *schema
",
    ),
    ("apps/kustomization.yaml", "resources: [web.yaml, widget.yaml]\n"),
    (
        "apps/web.yaml",
        "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: apps
  labels: {domain: \"${domain}\", stage: \"${stage}\"}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web:1}]}
",
    ),
    (
        "apps/widget.yaml",
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one, namespace: apps}\nspec: {size: 1}\n",
    ),
    (
        "releases/release.yaml",
        "apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: hello, namespace: flux-system}
spec:
  interval: 10m
  chart:
    spec:
      chart: ./charts/hello
      sourceRef: {kind: GitRepository, name: flux-system}
  values: {greeting: hi}
",
    ),
    ("charts/hello/Chart.yaml", "apiVersion: v2\nname: hello\nversion: 1.0.0\n"),
    ("charts/hello/values.yaml", "greeting: hello\n"),
    ("charts/hello/values.schema.json", "{\"properties\": {\"greeting\": {\"type\": \"string\"}}}\n"),
    (
        "charts/hello/templates/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: hello\ndata:\n  greeting: {{ .Values.greeting | quote }}\n",
    ),
];

fn fleet() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FLEET {
        write(folder.path(), name, text);
    }
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn edit(folder: &Path, file: &str, from: &str, to: &str) {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}:\n{text}");
    write(folder, file, &text.replacen(from, to, 1));
}

/// Runs `flux test`, with no cache but its own, and returns its exit code and JSON report.
fn test(folder: &Path, arguments: &[&str]) -> (i32, Value) {
    let cache = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux"));
    command.arg("test").arg(folder).args(["-o", "json", "--cache"]).arg(cache.path()).args(arguments);
    let output = command.env("KUBECONFIG", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code().unwrap(), report.unwrap_or_else(|error| panic!("{error}: {said}")))
}

/// Causes and warnings, a line each.
fn told(report: &Value) -> String {
    let mut lines = Vec::new();
    for cluster in report["clusters"].as_array().unwrap() {
        for failure in cluster["failures"].as_array().unwrap() {
            if failure["why"] != "consequence" {
                lines.push(format!(
                    "{} {} {} {}",
                    failure["why"].as_str().unwrap(),
                    failure["object"].as_str().unwrap(),
                    failure["reason"].as_str().unwrap(),
                    failure["message"].as_str().unwrap()
                ));
            }
        }
    }
    let of_clusters = report["clusters"].as_array().unwrap().iter().map(|cluster| &cluster["warnings"]);
    for warnings in of_clusters.chain([&report["warnings"]]) {
        for warning in warnings.as_array().unwrap() {
            lines.push(format!(
                "{} {}",
                warning["reason"].as_str().unwrap(),
                warning["message"].as_str().unwrap()
            ));
        }
    }
    lines.join("\n")
}

struct Fault {
    name: &'static str,
    /// File, what stands there, what stands there instead.
    edit: (&'static str, &'static str, &'static str),
    /// What the report has to say, all of it.
    says: &'static [&'static str],
    code: i32,
}

const RED: i32 = 1;

const FAULTS: &[Fault] = &[
    Fault {
        name: "bad YAML",
        edit: ("apps/web.yaml", "metadata:", "metadata: ["),
        says: &["cause Kustomization/flux-system/apps", "web.yaml"],
        code: RED,
    },
    Fault {
        name: "a missing path",
        edit: ("clusters/one/fleet.yaml", "./apps", "./nowhere"),
        says: &["cause Kustomization/flux-system/apps", "nowhere"],
        code: RED,
    },
    Fault {
        name: "a file that is listed and not there",
        edit: ("apps/kustomization.yaml", "web.yaml", "wep.yaml"),
        says: &["cause Kustomization/flux-system/apps", "wep.yaml"],
        code: RED,
    },
    Fault {
        name: "a cycle",
        edit: ("clusters/one/fleet.yaml", "path: ./infra", "path: ./infra\n  dependsOn: [{name: apps}]"),
        says: &["DependencyCycle Kustomization/flux-system/apps → Kustomization/flux-system/infra"],
        code: RED,
    },
    Fault {
        name: "a dependency that is not there",
        edit: ("clusters/one/fleet.yaml", "dependsOn: [{name: infra}]", "dependsOn: [{name: infrx}]"),
        says: &[
            "DanglingDependency Kustomization/flux-system/apps depends on Kustomization/flux-system/infrx",
        ],
        code: RED,
    },
    Fault {
        name: "variables from nowhere",
        edit: ("clusters/one/fleet.yaml", "name: settings}]", "name: settinks}]"),
        says: &["cause Kustomization/flux-system/apps", "settinks"],
        code: RED,
    },
    Fault {
        name: "a source that is not there",
        edit: (
            "clusters/one/fleet.yaml",
            "sourceRef: {kind: GitRepository, name: flux-system}",
            "sourceRef: {kind: GitRepository, name: elsewhere}",
        ),
        says: &["cause Kustomization/flux-system/infra", "elsewhere"],
        code: RED,
    },
    Fault {
        name: "a chart that does not render",
        edit: ("charts/hello/templates/config.yaml", "| quote", "| quota"),
        says: &["cause HelmRelease/flux-system/hello", "quota"],
        code: RED,
    },
    Fault {
        name: "a chart that is not there",
        edit: ("releases/release.yaml", "./charts/hello", "./charts/hallo"),
        says: &["cause HelmChart/flux-system/flux-system-hello", "hallo"],
        code: RED,
    },
    Fault {
        name: "values that the schema refuses",
        edit: ("releases/release.yaml", "greeting: hi", "greeting: 7"),
        says: &["cause HelmRelease/flux-system/hello", "greeting"],
        code: RED,
    },
    Fault {
        name: "a chart whose object the API server refuses",
        edit: ("charts/hello/templates/config.yaml", "data:", "data:\n  number: 1"),
        says: &["cause HelmRelease/flux-system/hello"],
        code: RED,
    },
    Fault {
        name: "an apiVersion that does not exist",
        edit: ("apps/web.yaml", "apps/v1", "apps/v9"),
        says: &["cause Kustomization/flux-system/apps", "apps/v9"],
        code: RED,
    },
    Fault {
        name: "a kind that does not exist",
        edit: ("apps/widget.yaml", "kind: Widget", "kind: Widgit"),
        says: &["cause Kustomization/flux-system/apps", "Widgit"],
        code: RED,
    },
    Fault {
        name: "a field that a builtin kind does not have",
        edit: ("apps/web.yaml", "replicas: 1", "replicaz: 1"),
        says: &[
            "UnknownField Deployment web of Kustomization/flux-system/apps: spec.replicaz is no field of apps/v1 Deployment",
        ],
        code: 0,
    },
    Fault {
        name: "a field that a custom kind does not have",
        edit: ("apps/widget.yaml", "size: 1", "sise: 1"),
        says: &["cause Kustomization/flux-system/apps", "sise"],
        code: RED,
    },
    Fault {
        name: "a value of the wrong type",
        edit: ("apps/widget.yaml", "size: 1", "size: large"),
        says: &["cause Kustomization/flux-system/apps", "size"],
        code: RED,
    },
    Fault {
        name: "a namespace that does not exist",
        edit: ("apps/web.yaml", "namespace: apps", "namespace: nowhere"),
        says: &["cause Kustomization/flux-system/apps", "nowhere"],
        code: RED,
    },
    Fault {
        name: "the same object twice in one build",
        edit: ("apps/kustomization.yaml", "[web.yaml,", "[web.yaml, ../other/web.yaml,"),
        says: &["cause Kustomization/flux-system/apps"],
        code: RED,
    },
    Fault {
        name: "two owners",
        edit: (
            "clusters/one/fleet.yaml",
            "---\napiVersion: v1",
            "---\napiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: again, namespace: flux-system}
spec:
  interval: 10m
  path: ./apps
  prune: true
  dependsOn: [{name: infra}]
  sourceRef: {kind: GitRepository, name: flux-system}
  postBuild: {substitute: {stage: a, domain: b}}
---\napiVersion: v1",
        ),
        says: &[
            "TwoOwners Deployment/apps/web is applied by Kustomization/flux-system/again and by Kustomization/flux-system/apps",
        ],
        code: RED,
    },
    Fault {
        name: "a variable that nothing sets",
        edit: ("apps/web.yaml", "${stage}", "${staeg}"),
        says: &[
            "cause Kustomization/flux-system/apps",
            "staeg",
            "UnusedSubstitution Kustomization/flux-system/apps sets stage",
        ],
        code: RED,
    },
    Fault {
        name: "a version that is going away",
        edit: ("apps/widget.yaml", "example.com/v1", "example.com/v1beta1"),
        says: &["DeprecatedVersion widgets/one in apps", "example.com/v1beta1 Widget is deprecated"],
        code: 0,
    },
    Fault {
        name: "an old version of a kind of Flux",
        edit: ("releases/release.yaml", "helm.toolkit.fluxcd.io/v2", "helm.toolkit.fluxcd.io/v2beta2"),
        says: &[
            "DeprecatedVersion releases/release.yaml: HelmRelease hello uses helm.toolkit.fluxcd.io/v2beta2",
        ],
        code: 0,
    },
    Fault {
        name: "a chart that cannot be fetched",
        edit: (
            "releases/release.yaml",
            "apiVersion:",
            "apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: far, namespace: flux-system}
spec: {interval: 10m, url: \"oci://registry.example.com/charts/far\", ref: {semver: 1.x}}
---
apiVersion:",
        ),
        says: &[
            "missing OCIRepository/flux-system/far Offline offline: artifact oci://registry.example.com/charts/far 1.x is needed",
        ],
        code: 2,
    },
];

#[test]
fn the_fleet_without_a_fault_is_fine() {
    let folder = fleet();
    let (code, report) = test(folder.path(), &["--offline"]);
    assert_eq!((code, told(&report).as_str()), (0, ""), "{report:#}");
}

#[test]
fn every_fault_is_found_and_its_cause_is_named() {
    let mut wrong = Vec::new();
    // Most of a test is waiting for silence.
    std::thread::scope(|scope| {
        for group in FAULTS.chunks(4) {
            let runs: Vec<_> = group
                .iter()
                .map(|fault| {
                    scope.spawn(move || {
                        let folder = fleet();
                        write(folder.path(), "other/web.yaml", FLEET[4].1);
                        let (file, from, to) = fault.edit;
                        edit(folder.path(), file, from, to);
                        test(folder.path(), &["--offline"])
                    })
                })
                .collect();
            for (fault, run) in group.iter().zip(runs) {
                let (code, report) = run.join().unwrap();
                let told = told(&report);
                if code != fault.code || !fault.says.iter().all(|text| told.contains(text)) {
                    wrong.push(format!(
                        "{}: exit code {code}, expected {} and {:?}\n{told}",
                        fault.name, fault.code, fault.says
                    ));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{} of {}:\n\n{}", wrong.len(), FAULTS.len(), wrong.join("\n\n"));
}

#[test]
fn a_chart_that_is_far_away_may_be_a_folder_here() {
    let folder = fleet();
    let release = "apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: far, namespace: flux-system}
spec: {interval: 10m, url: \"oci://registry.example.com/charts/hello\", ref: {semver: 1.x}, layerSelector: {mediaType: application/vnd.cncf.helm.chart.content.v1.tar+gzip, operation: copy}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: near, namespace: flux-system}
spec: {interval: 10m, url: https://charts.example.com}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: by-ref, namespace: flux-system}
spec: {interval: 10m, chartRef: {kind: OCIRepository, name: far}, values: {greeting: a}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: by-repository, namespace: apps}
spec:
  interval: 10m
  chart: {spec: {chart: hello, version: '>=1.0.0', sourceRef: {kind: HelmRepository, name: near, namespace: flux-system}}}
";
    write(folder.path(), "releases/release.yaml", release);
    // The folder with the chart in it, and the chart itself.
    let charts = folder.path().join("charts");
    let repository = format!("https://charts.example.com={}", charts.display());
    let artifact = format!("oci://registry.example.com/charts/hello={}", charts.join("hello").display());
    let (code, report) = test(folder.path(), &["--offline", "--local", &repository, "--local", &artifact]);
    assert_eq!((code, told(&report).as_str()), (0, ""), "{report:#}");
    let objects = report["clusters"][0]["objects"].as_array().unwrap();
    let ready = |name: &str| {
        objects
            .iter()
            .any(|one| one["kind"] == "HelmRelease" && one["name"] == name && one["verdict"] == "ready")
    };
    assert!(ready("by-ref") && ready("by-repository"), "{report:#}");
}

#[test]
fn a_prune_that_would_be_held_is_told_before_it_is_merged() {
    let folder = fleet();
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: apps}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    write(folder.path(), "apps/claim.yaml", claim);
    edit(folder.path(), "apps/kustomization.yaml", "[web.yaml,", "[claim.yaml, web.yaml,");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(arguments)
            .current_dir(folder.path());
        assert!(command.output().unwrap().status.success(), "git {arguments:?}");
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "one"]);
    edit(folder.path(), "apps/kustomization.yaml", "[claim.yaml, web.yaml,", "[web.yaml,");
    git(&["commit", "-q", "-a", "-m", "without its data"]);
    let (code, report) = test(folder.path(), &["--offline", "--diff", "HEAD~1"]);
    let told = told(&report);
    assert!(code == 0 && told.contains("PruneHeld PersistentVolumeClaim/apps/data"), "{told}\n{report:#}");
}

/// The public fleets of the corpus, with the charts that it has; what is expected stands in `fleets.txt`.
#[test]
fn public_fleets_get_the_verdict_that_is_written_down() {
    let Some(corpus) = corpus() else { return println!("skipped: no corpus") };
    let charts = corpus.join("helm/charts");
    let of = |url: &str, chart: &str| format!("{url}={}", charts.join(chart).display());
    let local = [
        of("https://stefanprodan.github.io/podinfo", "podinfo"),
        of("oci://ghcr.io/stefanprodan/charts", "podinfo"),
        of("oci://quay.io/jetstack/charts/cert-manager", "cert-manager"),
        of("https://charts.jetstack.io", "cert-manager"),
        of("https://kubernetes.github.io/ingress-nginx", "ingress-nginx"),
    ];
    let mut arguments = vec!["--offline"];
    arguments.extend(local.iter().flat_map(|mapping| ["--local", mapping.as_str()]));
    let mut found = String::new();
    let mut fleets: Vec<PathBuf> =
        std::fs::read_dir(corpus.join("fleets")).unwrap().map(|entry| entry.unwrap().path()).collect();
    fleets.retain(|fleet| fleet.is_dir());
    fleets.sort();
    for fleet in fleets {
        let started = std::time::Instant::now();
        let (code, report) = test(&fleet, &arguments);
        // Debug builds of a machine with other work to do are not measured.
        if !cfg!(debug_assertions) {
            assert!(
                started.elapsed().as_secs_f64() < 5.0,
                "{} took {:?}",
                fleet.display(),
                started.elapsed()
            );
        }
        let name = fleet.file_name().unwrap().to_string_lossy();
        found.push_str(&format!("{name}: {code} {}\n", report["outcome"].as_str().unwrap()));
        for cluster in report["clusters"].as_array().unwrap() {
            found.push_str(&format!(
                "  {}: {}\n",
                cluster["path"].as_str().unwrap(),
                cluster["outcome"].as_str().unwrap()
            ));
            for failure in cluster["failures"].as_array().unwrap() {
                let (why, object) = (failure["why"].as_str().unwrap(), failure["object"].as_str().unwrap());
                found.push_str(&format!("    {why} {object}\n"));
            }
            for warning in cluster["warnings"].as_array().unwrap() {
                found.push_str(&format!("    warning {}\n", warning["reason"].as_str().unwrap()));
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleets.txt");
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(found, expected, "{} says otherwise; found:\n{found}", file.display());
}

fn corpus() -> Option<PathBuf> {
    let shared = std::env::var_os("FLUX_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    Some(shared.join("corpus")).filter(|corpus| corpus.join("fleets").is_dir())
}
