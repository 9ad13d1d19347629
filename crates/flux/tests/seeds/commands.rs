//! The commands, each as the documents have it, and a shell that runs them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testbed::reference::{self, Kubernetes, Tool};

/// One line of the documents.
pub struct Seed {
    pub line: &'static str,
    how: How,
}

enum How {
    /// It succeeds and says all of this.
    Says(&'static [&'static str]),
    /// It goes on until somebody ends it, and says this first.
    Follows(&'static str),
    /// A line with a gap for the reader to fill, and what to type instead.
    Filled(&'static str, &'static [&'static str]),
    /// Cannot be run here, for this reason; what shows it instead.
    Elsewhere(&'static str),
}

const fn says(line: &'static str, wanted: &'static [&'static str]) -> Seed {
    Seed { line, how: How::Says(wanted) }
}

/// Before anything of Flux is on the cluster.
pub const BEFORE: &[Seed] = &[
    Seed {
        line: "flux bootstrap github --owner=my-org --repository=fleet-infra --branch=main --path=clusters/production --personal",
        how: How::Elsewhere("needs github.com; tests/bootstrap runs it with --hostname added"),
    },
    Seed {
        line: "flux bootstrap git --url=https://git-codecommit.us-east-1.amazonaws.com/v1/repos/fleet-infra --branch=main --path=clusters/production",
        how: How::Elsewhere("needs AWS; the golden scenario bootstrap-01 runs it with a local address"),
    },
    says("kubectl create secret generic sops-age-key --from-file=age.agekey -n flux-system", &["created"]),
    Seed {
        line: "sops --age=… --encrypt --encrypted-regex '^(data|stringData)$' secret.yaml > secret.sops.yaml",
        how: How::Filled(
            "sops --age=$(cat age.agekey | grep \"public key\" | awk '{print $4}') --encrypt --encrypted-regex \
             '^(data|stringData)$' secret.yaml > secret.sops.yaml && cp secret.sops.yaml fleet/apps/production/",
            &[],
        ),
    },
    says("sops -e --input-type=yaml --output-type=yaml values.yaml > my-values.enc.yaml", &[]),
];

/// Once the manifests are applied.
pub const AFTER: &[Seed] = &[
    says("flux check", &["✔ all checks passed"]),
    says("flux get all -A", &["gitrepository/fleet-infra", "kustomization/apps", "helmrelease/my-api"]),
    Seed { line: "flux get all -A --watch", how: How::Follows("gitrepository/") },
    Seed {
        line: "flux get kustomization <name>",
        how: How::Filled("flux get kustomization apps", &["Applied revision: main@sha1:"]),
    },
    says("flux get source git flux-system", &["stored artifact for revision 'main@sha1:"]),
    says("flux get helmrelease kube-prometheus-stack -n monitoring", &["Helm install succeeded"]),
    Seed {
        line: "flux logs --all-namespaces --level=error --follow",
        how: How::Elsewhere("needs containers that have logs; tests/up.rs runs it"),
    },
    Seed {
        line: "flux logs --kind=Kustomization --name=apps --level=error",
        how: How::Elsewhere("needs containers that have logs; tests/up.rs runs it"),
    },
    says("flux reconcile source git fleet-infra", &["✔ fetched revision main@sha1:"]),
    says("flux reconcile source git flux-system --with-source", &["✔ fetched revision main@sha1:"]),
    says("flux reconcile kustomization apps", &["✔ applied revision main@sha1:"]),
    says("flux reconcile kustomization apps --with-source", &["✔ fetched revision", "✔ applied revision"]),
    says("flux reconcile helmrelease my-api -n my-api", &["✔ applied revision"]),
    says("flux suspend kustomization apps", &["✔ kustomization suspended"]),
    says("flux suspend helmrelease my-api -n my-api", &["✔ helmrelease suspended"]),
    says("flux resume kustomization apps", &["✔ applied revision main@sha1:"]),
    says("flux diff kustomization apps --path ./apps/production", &[]),
    says("kubectl describe helmrelease my-api -n my-api", &["HelmRelease", "my-api"]),
    says(
        "kubectl get kustomization apps -n flux-system -o jsonpath='{.status.history}'",
        &["lastReconciledStatus"],
    ),
    says("helm history kube-prometheus-stack -n monitoring", &["deployed", "kube-prometheus-stack-65.1.0"]),
];

/// Runs lines as a person's shell does, with our `flux` and the real other tools.
pub struct Shell {
    folder: PathBuf,
    kubeconfig: PathBuf,
    path: String,
}

impl Shell {
    pub fn new(folder: PathBuf, kubeconfig: PathBuf) -> Shell {
        let tools = [
            (Tool::Kubernetes(Kubernetes::V1_36), "kubectl"),
            (Tool::Helm4, "helm"),
            (Tool::Sops, "sops"),
            (Tool::Age, "age-keygen"),
        ];
        let mut folders = vec![Path::new(env!("CARGO_BIN_EXE_flux")).parent().unwrap().display().to_string()];
        for (tool, name) in tools {
            let program = reference::binary(tool, name).unwrap();
            folders.push(program.parent().unwrap().display().to_string());
        }
        folders.push("/usr/local/bin:/usr/bin:/bin".to_owned());
        Shell { folder, kubeconfig, path: folders.join(":") }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        // Those that look at files are typed in the repository.
        let inside = line.contains("--path ./");
        let folder = if inside { self.folder.join("fleet") } else { self.folder.clone() };
        // So that an interrupt reaches the command itself.
        let line = if line.contains(['>', '|', '&']) { line.to_owned() } else { format!("exec {line}") };
        command
            .args(["-c", &line])
            .current_dir(folder)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.folder)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("SOPS_AGE_RECIPIENTS", super::fleet::recipient(&self.folder))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        tokio::task::block_in_place(|| self.command(line).output().unwrap())
    }

    /// Runs the line; it succeeds, and what it says holds all of this.
    pub fn types(&self, line: &str, wanted: &[&str]) {
        let output = self.run(line);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {said}");
        for text in wanted {
            assert!(said.contains(text), "{line}: no {text:?} in {said}");
        }
    }

    /// Runs a line of the documents and says what became of it; whether it ran at all.
    pub fn seed(&self, seed: &Seed) -> bool {
        match seed.how {
            How::Says(wanted) => self.types(seed.line, wanted),
            How::Filled(line, wanted) => self.types(line, wanted),
            How::Follows(first) => tokio::task::block_in_place(|| self.follows(seed.line, first)),
            How::Elsewhere(reason) => {
                println!("skipped: {} ({reason})", seed.line);
                return false;
            }
        }
        println!("passed:  {}", seed.line);
        true
    }

    /// It says this and is then interrupted.
    fn follows(&self, line: &str, first: &str) {
        let mut child = self.command(line).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (mut said, mut buffer) = (String::new(), [0; 4096]);
        while !said.contains(first) {
            let read = out.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "{line}: it ended after {said}");
            said.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        child.wait().unwrap();
    }
}
