//! Inputs for `kustomize build`: the smallest overlay people have, megabytes of definitions, and an overlay with
//! everything at once over a thousand workloads.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::Input;

pub fn inputs(folder: &Path) -> Result<Vec<Input>> {
    small(&folder.join("small"))?;
    crds(&folder.join("crds"), 10 << 20)?;
    deployments(&folder.join("deployments"), 1_000)?;
    let input = |name: &str, what: &str| Input {
        name: format!("kustomize build, {what}"),
        folder: folder.join(name),
        arguments: vec!["build", "overlay"],
    };
    Ok(vec![
        input("small", "small overlay"),
        input("crds", "10 MB of CRDs"),
        input("deployments", "overlay of 1,000 Deployments"),
    ])
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, text)?)
}

/// A base of three objects and an overlay that changes each a little.
fn small(folder: &Path) -> Result<()> {
    write(
        &folder.join("base/kustomization.yaml"),
        "resources: [deployment.yaml, service.yaml, account.yaml]\n",
    )?;
    write(&folder.join("base/deployment.yaml"), &deployment(0))?;
    write(
        &folder.join("base/service.yaml"),
        "apiVersion: v1\nkind: Service\nmetadata: {name: app-0}\nspec:\n  selector: {app: app-0}\n  ports: [{port: 80, targetPort: http}]\n",
    )?;
    write(
        &folder.join("base/account.yaml"),
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: app}\n",
    )?;
    write(&folder.join("overlay/kustomization.yaml"), OVERLAY)?;
    write(&folder.join("overlay/patch.yaml"), &patch(0))
}

const OVERLAY: &str = "\
namespace: production
namePrefix: prod-
resources: [../base]
labels:
- pairs: {team: web}
  includeSelectors: true
images:
- name: example.org/app
  newTag: 1.2.3
configMapGenerator:
- name: settings
  literals: [MODE=production, LEVEL=info]
patches:
- path: patch.yaml
";

/// Definitions with deep schemas, many megabytes of them.
fn crds(folder: &Path, bytes: usize) -> Result<()> {
    let mut bundle = String::with_capacity(bytes + (1 << 16));
    let mut number = 0;
    while bundle.len() < bytes {
        let _ = write!(
            bundle,
            "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: things{number}.example.org\nspec:\n  group: example.org\n  names: {{kind: Thing{number}, listKind: Thing{number}List, plural: things{number}, singular: thing{number}}}\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n            type: object\n            properties:\n"
        );
        for field in 0..60 {
            let _ = write!(
                bundle,
                "              field{field}:\n                description: |-\n                  Field {field} says how the thing behaves when it is asked to; see the documentation\n                  for what happens when it is not set: the default depends on the cluster.\n                type: object\n                properties:\n                  enabled: {{type: boolean, default: false}}\n                  count:\n                    description: 'How many of them: at least one.'\n                    format: int32\n                    minimum: 1\n                    type: integer\n                  names:\n                    items:\n                      type: string\n                    type: array\n                    x-kubernetes-list-type: atomic\n"
            );
        }
        number += 1;
    }
    write(&folder.join("overlay/crds.yaml"), &bundle)?;
    write(&folder.join("overlay/kustomization.yaml"), "resources: [crds.yaml]\n")
}

/// An overlay with everything at once over many workloads.
fn deployments(folder: &Path, count: usize) -> Result<()> {
    let mut resources = String::new();
    let mut patches = String::new();
    for number in 0..count {
        write(&folder.join(format!("base/deployment-{number}.yaml")), &deployment(number))?;
        let _ = writeln!(resources, "- deployment-{number}.yaml");
        if number % 10 == 0 {
            write(&folder.join(format!("overlay/patch-{number}.yaml")), &patch(number))?;
            let _ = writeln!(patches, "- path: patch-{number}.yaml");
        }
    }
    write(&folder.join("base/kustomization.yaml"), &format!("resources:\n{resources}"))?;
    let overlay = OVERLAY.replace("- path: patch.yaml\n", &patches);
    let all = "- target: {kind: Deployment}\n  patch: |-\n    - op: add\n      path: /spec/revisionHistoryLimit\n      value: 3\n";
    write(&folder.join("overlay/kustomization.yaml"), &format!("{overlay}{all}"))
}

fn deployment(number: usize) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-{number}\n  labels: {{app: app-{number}}}\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {{app: app-{number}}}\n  template:\n    metadata:\n      labels: {{app: app-{number}}}\n    spec:\n      serviceAccountName: app\n      containers:\n      - name: app\n        image: example.org/app:1.0.0\n        args: [--level, info]\n        env:\n        - name: MODE\n          valueFrom: {{configMapKeyRef: {{name: settings, key: MODE}}}}\n        - name: NUMBER\n          value: \"{number}\"\n        ports:\n        - name: http\n          containerPort: 8080\n        resources:\n          limits: {{cpu: 100m, memory: 64Mi}}\n        volumeMounts:\n        - name: settings\n          mountPath: /etc/settings\n      volumes:\n      - name: settings\n        configMap: {{name: settings}}\n"
    )
}

fn patch(number: usize) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app-{number}\nspec:\n  template:\n    spec:\n      containers:\n      - name: app\n        env:\n        - name: EXTRA\n          value: more\n"
    )
}
