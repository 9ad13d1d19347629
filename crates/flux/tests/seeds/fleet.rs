//! What surrounds the manifests: the repository and the charts they name, and the objects they refer to.

use std::path::Path;
use std::process::Command;

use testbed::reference::{self, Tool};

/// Objects of the documents that become ready.
pub const READY: &[(&str, &str, &str)] = &[
    ("GitRepository", "flux-system", "fleet-infra"),
    ("HelmRepository", "flux-system", "prometheus-community"),
    ("HelmRepository", "flux-system", "cert-manager"),
    ("Kustomization", "flux-system", "payments-api"),
    ("Kustomization", "flux-system", "apps"),
    ("Kustomization", "flux-system", "payments-team"),
    ("Kustomization", "team-alpha", "team-alpha-apps"),
    ("HelmRelease", "monitoring", "kube-prometheus-stack"),
    ("HelmRelease", "cert-manager", "cert-manager"),
    ("HelmRelease", "my-api", "my-api"),
];

// Not in the list: HelmRepository karpenter is of type oci, which has no status; image.yaml names a registry of AWS and
// notification.yaml Slack and Jaeger: these are accepted and kept whole.

/// What the documents take for granted.
pub const SURROUNDINGS: &[&str] = &["kubectl apply -f surroundings.yaml"];

pub fn recipient(folder: &Path) -> String {
    let text = std::fs::read_to_string(folder.join("age.agekey")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap().to_owned()
}

pub fn write(folder: &Path) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let made = Command::new(reference::binary(Tool::Age, "age-keygen").unwrap())
        .args(["-o", folder.join("age.agekey").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    write(
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: default}\nstringData: {a: b}\n",
    );
    write("values.yaml", "replicas: 2\n");
    let settings =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n");
    write("fleet/apps/payments-api/deployment.yaml", PAYMENTS);
    write(
        "fleet/apps/production/app.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app, namespace: default}\ndata: {a: b}\n",
    );
    write("fleet/tenants/payments/settings.yaml", &settings("payments"));
    write(
        "fleet/infrastructure/settings.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: infrastructure}\n",
    );
    write("fleet/dns/settings.yaml", &settings("external-dns"));
    write(
        "alpha/apps/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: alpha, namespace: team-alpha}\ndata: {a: b}\n",
    );
    for (name, version) in [
        ("kube-prometheus-stack", "65.1.0"),
        ("cert-manager", "1.14.2"),
        ("my-api", "0.1.0"),
        ("ingress-nginx", "4.0.0"),
    ] {
        write(
            &format!("charts/{name}/Chart.yaml"),
            &format!("apiVersion: v2\nname: {name}\nversion: {version}\n"),
        );
        let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  values: {{ .Values | toJson | quote }}\n";
        write(&format!("charts/{name}/templates/settings.yaml"), template);
    }
    write("surroundings.yaml", SURROUNDING_OBJECTS);
}

const PAYMENTS: &str = r"apiVersion: apps/v1
kind: Deployment
metadata:
  name: payments-api
spec:
  selector: {matchLabels: {app: payments-api}}
  template:
    metadata: {labels: {app: payments-api}}
    spec:
      containers:
        - name: api
          image: 123456789.dkr.ecr.us-east-1.amazonaws.com/payments-api:1.4.2
          env: [{name: REGION, value: '${AWS_REGION}'}]
";

const SURROUNDING_OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: production}
---
apiVersion: v1
kind: Namespace
metadata: {name: payments-production}
---
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: Namespace
metadata: {name: cert-manager}
---
apiVersion: v1
kind: Namespace
metadata: {name: ingress-nginx}
---
apiVersion: v1
kind: Namespace
metadata: {name: my-api}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-alpha}
---
apiVersion: v1
kind: Secret
metadata: {name: flux-system, namespace: flux-system}
stringData: {username: git, password: x}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-config, namespace: flux-system}
data: {AWS_REGION: us-east-1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus-values-override, namespace: monitoring}
data: {values.yaml: "replicas: 2\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: alertmanager-slack-webhook, namespace: monitoring}
stringData: {slack_webhook_url: "https://hooks.example.com/x"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1h, url: "https://github.com/my-org/fleet-infra", ref: {branch: main}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: team-alpha-repo, namespace: team-alpha}
spec:
  interval: 1h
  url: https://github.com/team-alpha/apps
  ref: {branch: main}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: my-api-charts, namespace: flux-system}
spec: {interval: 1h, url: "https://charts.example.com/my-api"}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: ingress-nginx, namespace: ingress-nginx}
spec:
  interval: 1h
  chart:
    spec:
      chart: ingress-nginx
      sourceRef: {kind: HelmRepository, name: my-api-charts, namespace: flux-system}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: cert-manager, namespace: flux-system}
spec: {interval: 1h, path: ./infrastructure, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: external-dns, namespace: flux-system}
spec: {interval: 1h, path: ./dns, targetNamespace: default, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: flux-reconciler, namespace: team-alpha}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: flux-reconciler, namespace: team-alpha}
subjects: [{kind: ServiceAccount, name: flux-reconciler, namespace: team-alpha}]
roleRef: {kind: ClusterRole, name: edit, apiGroup: rbac.authorization.k8s.io}
"#;
