//! Which tools there are, in which versions, and from which Go packages they are built.

/// A tool whose answers we compare with, or a server we test against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Etcd,
    Kubernetes(Kubernetes),
    Kustomize,
    Helm4,
    Helm3,
    Sops,
    Age,
    Flux,
    /// Kubernetes' own end-to-end suite, as one test binary.
    KubernetesE2e,
    Controller(Controller),
}

/// Upstream's controllers, which ours are run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    Source,
    Kustomize,
    Helm,
}

/// The Kubernetes minors that the tests run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kubernetes {
    #[default]
    V1_36,
    /// The newest patch of 1.35 that the module proxy has.
    V1_35,
}

impl Kubernetes {
    pub const fn version(self) -> &'static str {
        match self {
            Kubernetes::V1_36 => "1.36.3",
            Kubernetes::V1_35 => "1.35.4",
        }
    }
}

impl Tool {
    /// Every tool but the peers, in the order in which a cold machine needs them.
    pub const ALL: [Tool; 9] = [
        Tool::Kustomize,
        Tool::Etcd,
        Tool::Kubernetes(Kubernetes::V1_36),
        Tool::Helm4,
        Tool::Sops,
        Tool::Helm3,
        Tool::Age,
        Tool::Flux,
        Tool::Kubernetes(Kubernetes::V1_35),
    ];

    /// What `cargo xtask test --peers` needs besides.
    pub const PEERS: [Tool; 4] = [
        Tool::KubernetesE2e,
        Tool::Controller(Controller::Source),
        Tool::Controller(Controller::Kustomize),
        Tool::Controller(Controller::Helm),
    ];

    /// The tool's name with its version, as in `helm-3.22.0`: also the name of its folder in the cache.
    pub fn name(self) -> String {
        self.recipe().folder()
    }

    /// Finds `helm-3.22.0`, or the newest `helm` when no version is named.
    pub fn named(text: &str) -> Option<Tool> {
        Tool::ALL.into_iter().chain(Tool::PEERS).find(|tool| {
            let recipe = tool.recipe();
            text == recipe.folder() || text == recipe.name
        })
    }

    /// The binaries that the tool consists of.
    pub fn binaries(self) -> impl Iterator<Item = &'static str> {
        self.recipe().packages.iter().map(|(name, _)| *name)
    }

    pub(super) fn recipe(self) -> Recipe {
        match self {
            Tool::Etcd => Recipe {
                name: "etcd",
                version: "3.6.8",
                module: "go.etcd.io/etcd/server/v3",
                packages: &[("etcd", "go.etcd.io/etcd/server/v3")],
                version_variable: None,
                version_command: &["--version"],
                added_files: &[],
            },
            Tool::Kubernetes(minor) => Recipe {
                name: "kubernetes",
                version: minor.version(),
                module: "k8s.io/kubernetes",
                packages: &[
                    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
                    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
                    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
                ],
                version_variable: Some("k8s.io/component-base/version.gitVersion=v"),
                version_command: &["--version"],
                added_files: &[],
            },
            Tool::Kustomize => Recipe {
                name: "kustomize",
                version: "5.8.1",
                module: "sigs.k8s.io/kustomize/kustomize/v5",
                packages: &[("kustomize", "sigs.k8s.io/kustomize/kustomize/v5")],
                version_variable: None,
                version_command: &["version"],
                added_files: &[],
            },
            Tool::Helm4 => Recipe {
                name: "helm",
                version: "4.3.1",
                module: "helm.sh/helm/v4",
                packages: &[("helm", "helm.sh/helm/v4/cmd/helm")],
                version_variable: Some("helm.sh/helm/v4/internal/version.version=v"),
                version_command: &["version"],
                added_files: &[],
            },
            Tool::Helm3 => Recipe {
                name: "helm",
                version: "3.22.0",
                module: "helm.sh/helm/v3",
                packages: &[("helm", "helm.sh/helm/v3/cmd/helm")],
                version_variable: Some("helm.sh/helm/v3/internal/version.version=v"),
                version_command: &["version"],
                added_files: &[],
            },
            Tool::Sops => Recipe {
                name: "sops",
                version: "3.13.3",
                module: "github.com/getsops/sops/v3",
                packages: &[("sops", "github.com/getsops/sops/v3/cmd/sops")],
                version_variable: None,
                version_command: &["--version", "--disable-version-check"],
                added_files: &[],
            },
            Tool::Age => Recipe {
                name: "age",
                version: "1.3.2",
                module: "filippo.io/age",
                packages: &[
                    ("age", "filippo.io/age/cmd/age"),
                    ("age-keygen", "filippo.io/age/cmd/age-keygen"),
                ],
                version_variable: Some("main.Version=v"),
                version_command: &["--version"],
                added_files: &[],
            },
            Tool::Flux => Recipe {
                name: "flux",
                version: "2.9.4",
                module: "github.com/fluxcd/flux2/v2",
                packages: &[("flux", "github.com/fluxcd/flux2/v2/cmd/flux")],
                version_variable: Some("main.VERSION="),
                version_command: &["--version"],
                // The release process writes these manifests; the module as published has none, and without any
                // it does not compile. Commands other than `install` and `bootstrap` do not read them.
                added_files: &[("cmd/flux/manifests/none.yaml", "{}\n")],
            },
            Tool::KubernetesE2e => Recipe {
                name: "kubernetes-e2e",
                version: Kubernetes::V1_36.version(),
                module: "k8s.io/kubernetes",
                packages: &[("e2e.test", "k8s.io/kubernetes/test/e2e")],
                version_variable: Some("k8s.io/component-base/version.gitVersion=v"),
                version_command: &["--version"],
                added_files: &[],
            },
            Tool::Controller(controller) => controller.recipe(),
        }
    }
}

impl Controller {
    fn recipe(self) -> Recipe {
        let recipe = |name, version, module, packages| Recipe {
            name,
            version,
            module,
            packages,
            version_variable: None,
            // They print no version; the stamp is what says that a build is complete.
            version_command: &[],
            added_files: &[],
        };
        match self {
            Controller::Source => recipe(
                "source-controller",
                "1.9.1",
                "github.com/fluxcd/source-controller",
                &[("source-controller", "github.com/fluxcd/source-controller")],
            ),
            Controller::Kustomize => recipe(
                "kustomize-controller",
                "1.9.4",
                "github.com/fluxcd/kustomize-controller",
                &[("kustomize-controller", "github.com/fluxcd/kustomize-controller")],
            ),
            Controller::Helm => recipe(
                "helm-controller",
                "1.6.3",
                "github.com/fluxcd/helm-controller",
                &[("helm-controller", "github.com/fluxcd/helm-controller")],
            ),
        }
    }
}

/// How a tool is built from its Go module.
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) module: &'static str,
    /// Binary and Go package.
    pub(super) packages: &'static [(&'static str, &'static str)],
    /// The linker sets this variable; the version is appended.
    pub(super) version_variable: Option<&'static str>,
    /// Makes the binary print a text that holds its version.
    pub(super) version_command: &'static [&'static str],
    /// Files that the published module lacks, with their content.
    pub(super) added_files: &'static [(&'static str, &'static str)],
}

impl Recipe {
    pub(super) fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    /// The version under which modules in folders of the same repository are published.
    /// Kubernetes calls those of 1.36.3 0.36.3; elsewhere it is the tool's own.
    pub(super) fn version_of_folders(&self) -> String {
        match self.module {
            "k8s.io/kubernetes" => format!("v0.{}", self.version.trim_start_matches("1.")),
            _ => format!("v{}", self.version),
        }
    }

    pub(super) fn package(&self, binary: &str) -> Option<&'static str> {
        let mut packages = self.packages.iter();
        packages.find(|(name, _)| *name == binary).map(|(_, package)| *package)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_version_means_the_newest() {
        assert_eq!(Tool::named("helm"), Some(Tool::Helm4));
        assert_eq!(Tool::named("helm-3.22.0"), Some(Tool::Helm3));
        assert_eq!(Tool::named("kubernetes"), Some(Tool::Kubernetes(Kubernetes::V1_36)));
        assert_eq!(Tool::named("docker"), None);
    }
}
