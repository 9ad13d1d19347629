//! The components of an installation, one Deployment each.

use flux_api::kinds::{self, Kind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Component {
    Source,
    Kustomize,
    Helm,
    Notification,
    ImageReflector,
    ImageAutomation,
    Watcher,
}

impl Component {
    pub(super) const ALL: [Component; 7] = [
        Component::Source,
        Component::Kustomize,
        Component::Helm,
        Component::Notification,
        Component::ImageReflector,
        Component::ImageAutomation,
        Component::Watcher,
    ];

    pub(super) fn by_name(name: &str) -> Option<Component> {
        Component::ALL.into_iter().find(|component| component.name() == name)
    }

    pub(in crate::commands) fn name(self) -> &'static str {
        match self {
            Component::Source => "source-controller",
            Component::Kustomize => "kustomize-controller",
            Component::Helm => "helm-controller",
            Component::Notification => "notification-controller",
            Component::ImageReflector => "image-reflector-controller",
            Component::ImageAutomation => "image-automation-controller",
            Component::Watcher => "source-watcher",
        }
    }

    /// The tag of its image: the version of upstream's controller whose place it takes.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Component::Source | Component::Kustomize => "v1.9.4",
            Component::Helm => "v1.6.3",
            Component::Notification => "v1.9.3",
            Component::ImageReflector | Component::ImageAutomation => "v1.2.4",
            Component::Watcher => "v2.2.3",
        }
    }

    /// The kinds it reconciles, whose definitions are installed with it.
    pub(super) fn kinds(self) -> &'static [&'static Kind] {
        match self {
            Component::Source => &[
                &kinds::BUCKET,
                &kinds::EXTERNAL_ARTIFACT,
                &kinds::GIT_REPOSITORY,
                &kinds::HELM_CHART,
                &kinds::HELM_REPOSITORY,
                &kinds::OCI_REPOSITORY,
            ],
            Component::Kustomize => &[&kinds::KUSTOMIZATION],
            Component::Helm => &[&kinds::HELM_RELEASE],
            Component::Notification => &[&kinds::ALERT, &kinds::PROVIDER, &kinds::RECEIVER],
            Component::ImageReflector => &[&kinds::IMAGE_POLICY, &kinds::IMAGE_REPOSITORY],
            Component::ImageAutomation => &[&kinds::IMAGE_UPDATE_AUTOMATION],
            Component::Watcher => &[&kinds::ARTIFACT_GENERATOR],
        }
    }

    /// Those that keep artifacts and serve them.
    pub(super) fn serves_artifacts(self) -> bool {
        matches!(self, Component::Source | Component::Watcher)
    }

    /// Those the others cannot do without.
    pub(super) fn is_critical(self) -> bool {
        matches!(self, Component::Source | Component::Kustomize | Component::Helm | Component::Watcher)
    }

    /// How long it may finish what it is at.
    pub(super) fn grace_seconds(self) -> u32 {
        match self {
            Component::Kustomize => 60,
            Component::Helm => 600,
            _ => 10,
        }
    }
}
