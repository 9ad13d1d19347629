//! One row for each kind: how the API, the command line and the metrics call it. What a kind's fields are stands in its own file.

/// A kind of Flux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// `source.toolkit.fluxcd.io`
    pub group: &'static str,
    /// The version that is stored, and the one we write.
    pub version: &'static str,
    /// Older versions that are served too, newest first.
    pub old_versions: &'static [&'static str],
    /// `GitRepository`
    pub kind: &'static str,
    /// `gitrepositories`, as in URLs and RBAC rules.
    pub plural: &'static str,
    /// `gitrepository`
    pub singular: &'static str,
    /// What `kubectl get` takes for short.
    pub short_names: &'static [&'static str],
    /// `kubectl get` groups beside `all` and `fluxcd`.
    pub category: &'static str,
    /// As the command line says it: `source git`.
    pub human: &'static str,
    /// The controller that owns it, which is also its field manager.
    pub controller: Controller,
    /// Whether `spec.suspend` exists.
    pub can_suspend: bool,
    /// Whether the kind has a status.
    pub has_status: bool,
    /// What it is, for `kubectl explain`.
    pub summary: &'static str,
}

impl Kind {
    /// `source.toolkit.fluxcd.io/v1`
    pub fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Every served version, the stored one first.
    pub fn versions(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.version).chain(self.old_versions.iter().copied())
    }

    /// The name of its CustomResourceDefinition.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// The row of a kind by its name, as in a reference that leaves its apiVersion out.
pub fn by_kind(kind: &str) -> Option<&'static Kind> {
    ALL.iter().find(|row| row.kind == kind)
}

/// The row that serves `apiVersion` and `kind`, in the stored or an older version.
pub fn by_api_version(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.split_once('/')?;
    ALL.iter()
        .find(|row| row.kind == kind && row.group == group && row.versions().any(|served| served == version))
}

crate::closed_set::closed_set! {
    /// The controllers of Flux. Their names are also field managers, lease prefixes and the reporting controller of events.
    pub enum Controller {
        /// GitRepository, OCIRepository, Bucket, HelmRepository, HelmChart, ExternalArtifact.
        Source = "source-controller",
        /// Kustomization.
        Kustomize = "kustomize-controller",
        /// HelmRelease.
        Helm = "helm-controller",
        /// Provider, Alert, Receiver.
        Notification = "notification-controller",
        /// ImageRepository, ImagePolicy.
        ImageReflector = "image-reflector-controller",
        /// ImageUpdateAutomation.
        ImageAutomation = "image-automation-controller",
        /// ArtifactGenerator.
        SourceWatcher = "source-watcher",
    }
}

impl Controller {
    /// Who status is written as. kustomize-controller keeps its own name for what it applies.
    pub const fn status_field_manager(self) -> &'static str {
        match self {
            Controller::Kustomize => "gotk-kustomize-controller",
            Controller::Source
            | Controller::Helm
            | Controller::Notification
            | Controller::ImageReflector
            | Controller::ImageAutomation
            | Controller::SourceWatcher => self.as_str(),
        }
    }
}

/// `source.toolkit.fluxcd.io`
pub const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";
/// `kustomize.toolkit.fluxcd.io`
pub const KUSTOMIZE_GROUP: &str = "kustomize.toolkit.fluxcd.io";
/// `helm.toolkit.fluxcd.io`
pub const HELM_GROUP: &str = "helm.toolkit.fluxcd.io";
/// `notification.toolkit.fluxcd.io`
pub const NOTIFICATION_GROUP: &str = "notification.toolkit.fluxcd.io";
/// `image.toolkit.fluxcd.io`
pub const IMAGE_GROUP: &str = "image.toolkit.fluxcd.io";
/// `source.extensions.fluxcd.io`
pub const SOURCE_EXTENSIONS_GROUP: &str = "source.extensions.fluxcd.io";

const SOURCE: Kind = Kind {
    group: SOURCE_GROUP,
    version: "v1",
    old_versions: &["v1beta2"],
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    category: "fluxcd-sources",
    human: "",
    controller: Controller::Source,
    can_suspend: true,
    has_status: true,
    summary: "",
};
const NOTIFICATION: Kind = Kind {
    group: NOTIFICATION_GROUP,
    category: "fluxcd-notifications",
    controller: Controller::Notification,
    ..SOURCE
};
const IMAGE: Kind =
    Kind { group: IMAGE_GROUP, category: "fluxcd-images", controller: Controller::ImageReflector, ..SOURCE };

/// GitRepository.
pub const GIT_REPOSITORY: Kind = Kind {
    kind: "GitRepository",
    plural: "gitrepositories",
    singular: "gitrepository",
    short_names: &["gitrepo"],
    human: "source git",
    summary: "A GitRepository makes a revision of a Git repository available to the other controllers as an artifact.",
    ..SOURCE
};
/// OCIRepository.
pub const OCI_REPOSITORY: Kind = Kind {
    kind: "OCIRepository",
    plural: "ocirepositories",
    singular: "ocirepository",
    short_names: &["ocirepo"],
    human: "source oci",
    summary: "An OCIRepository makes one layer of an image in a container registry available as an artifact.",
    ..SOURCE
};
/// Bucket.
pub const BUCKET: Kind = Kind {
    kind: "Bucket",
    plural: "buckets",
    singular: "bucket",
    human: "source bucket",
    summary: "A Bucket makes the objects of an object store, S3 or alike, available as an artifact.",
    ..SOURCE
};
/// HelmRepository.
pub const HELM_REPOSITORY: Kind = Kind {
    kind: "HelmRepository",
    plural: "helmrepositories",
    singular: "helmrepository",
    short_names: &["helmrepo"],
    human: "source helm",
    summary: "A HelmRepository names a place that Helm charts come from: an index over HTTP, or a container registry.",
    ..SOURCE
};
/// HelmChart.
pub const HELM_CHART: Kind = Kind {
    kind: "HelmChart",
    plural: "helmcharts",
    singular: "helmchart",
    short_names: &["hc"],
    human: "source chart",
    summary: "A HelmChart makes one packaged chart available as an artifact. Usually a HelmRelease creates it.",
    ..SOURCE
};
/// ExternalArtifact.
pub const EXTERNAL_ARTIFACT: Kind = Kind {
    old_versions: &[],
    kind: "ExternalArtifact",
    plural: "externalartifacts",
    singular: "externalartifact",
    short_names: &["ea"],
    human: "source external",
    can_suspend: false,
    summary: "An ExternalArtifact publishes an artifact that another controller made and stores.",
    ..SOURCE
};
/// Kustomization.
pub const KUSTOMIZATION: Kind = Kind {
    group: KUSTOMIZE_GROUP,
    kind: "Kustomization",
    plural: "kustomizations",
    singular: "kustomization",
    short_names: &["ks"],
    category: "fluxcd-appliers",
    human: "kustomization",
    controller: Controller::Kustomize,
    summary: "A Kustomization builds the manifests in a folder of a source and keeps the cluster equal to them.",
    ..SOURCE
};
/// HelmRelease.
pub const HELM_RELEASE: Kind = Kind {
    group: HELM_GROUP,
    version: "v2",
    old_versions: &["v2beta2"],
    kind: "HelmRelease",
    plural: "helmreleases",
    singular: "helmrelease",
    short_names: &["hr"],
    category: "fluxcd-appliers",
    human: "helmrelease",
    controller: Controller::Helm,
    summary: "A HelmRelease installs a Helm chart with the given values and keeps it at the wanted version.",
    ..SOURCE
};
/// Provider.
pub const PROVIDER: Kind = Kind {
    version: "v1beta3",
    old_versions: &["v1beta2"],
    kind: "Provider",
    plural: "providers",
    singular: "provider",
    human: "alert provider",
    has_status: false,
    summary: "A Provider is a place that notifications are sent to: a chat, a Git host, an incident tool.",
    ..NOTIFICATION
};
/// Alert.
pub const ALERT: Kind = Kind {
    version: "v1beta3",
    old_versions: &["v1beta2"],
    kind: "Alert",
    plural: "alerts",
    singular: "alert",
    human: "alert",
    has_status: false,
    summary: "An Alert picks the events of Flux objects that are sent to a Provider.",
    ..NOTIFICATION
};
/// Receiver.
pub const RECEIVER: Kind = Kind {
    kind: "Receiver",
    plural: "receivers",
    singular: "receiver",
    human: "receiver",
    summary: "A Receiver gives other systems a webhook that makes Flux objects reconcile at once.",
    ..NOTIFICATION
};
/// ImageRepository.
pub const IMAGE_REPOSITORY: Kind = Kind {
    kind: "ImageRepository",
    plural: "imagerepositories",
    singular: "imagerepository",
    short_names: &["imgrepo", "imagerepo"],
    human: "image repository",
    summary: "An ImageRepository keeps a list of the tags that an image has in its registry.",
    ..IMAGE
};
/// ImagePolicy.
pub const IMAGE_POLICY: Kind = Kind {
    kind: "ImagePolicy",
    plural: "imagepolicies",
    singular: "imagepolicy",
    short_names: &["imgpol", "imagepol"],
    human: "image policy",
    summary: "An ImagePolicy picks the newest of an ImageRepository's tags by a rule.",
    ..IMAGE
};
/// ImageUpdateAutomation.
pub const IMAGE_UPDATE_AUTOMATION: Kind = Kind {
    kind: "ImageUpdateAutomation",
    plural: "imageupdateautomations",
    singular: "imageupdateautomation",
    short_names: &["iua", "imgupd", "imgauto"],
    human: "image update",
    controller: Controller::ImageAutomation,
    summary: "An ImageUpdateAutomation commits the images that policies picked to a Git repository.",
    ..IMAGE
};
/// ArtifactGenerator.
pub const ARTIFACT_GENERATOR: Kind = Kind {
    group: SOURCE_EXTENSIONS_GROUP,
    version: "v1beta1",
    old_versions: &[],
    kind: "ArtifactGenerator",
    plural: "artifactgenerators",
    singular: "artifactgenerator",
    short_names: &["ag"],
    human: "artifact generator",
    controller: Controller::SourceWatcher,
    can_suspend: false,
    summary: "An ArtifactGenerator composes or splits the files of sources into new artifacts.",
    ..SOURCE
};

/// Every kind, sources first.
pub const ALL: &[Kind] = &[
    GIT_REPOSITORY,
    OCI_REPOSITORY,
    BUCKET,
    HELM_REPOSITORY,
    HELM_CHART,
    EXTERNAL_ARTIFACT,
    KUSTOMIZATION,
    HELM_RELEASE,
    PROVIDER,
    ALERT,
    RECEIVER,
    IMAGE_REPOSITORY,
    IMAGE_POLICY,
    IMAGE_UPDATE_AUTOMATION,
    ARTIFACT_GENERATOR,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_any_version_it_serves() {
        assert_eq!(by_api_version("source.toolkit.fluxcd.io/v1beta2", "Bucket"), Some(&BUCKET));
        assert_eq!(by_api_version("source.toolkit.fluxcd.io/v9", "Bucket"), None);
        assert_eq!(by_api_version("kustomize.config.k8s.io/v1beta1", "Kustomization"), None);
        assert_eq!(
            by_kind("HelmRelease").map(Kind::api_version).as_deref(),
            Some("helm.toolkit.fluxcd.io/v2")
        );
    }
}
