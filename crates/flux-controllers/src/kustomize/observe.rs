//! The sources of a Kustomization, as they are now.

use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::kinds::{self, Kind};
use flux_api::kustomize::{Kustomization, SourceKind};
use kube::api::DynamicObject;

use super::failure::Failure;
use super::run::Run;
use crate::reconcile::ObjectKey;

/// Where files of a Kustomization come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKey {
    pub kind: SourceKind,
    pub key: ObjectKey,
}

impl SourceKey {
    /// All of them; the first is the main one, whose revision is reported.
    pub fn all(object: &Kustomization) -> Vec<Self> {
        Self::mounted(object).into_iter().map(|(source, _)| source).collect()
    }

    /// The source whose revision is reported: `sourceRef`, or the first of `sourceRefs`.
    pub fn primary(object: &Kustomization) -> Option<Self> {
        Self::all(object).into_iter().next()
    }

    /// With the folder each is mounted at.
    fn mounted(object: &Kustomization) -> Vec<(Self, Option<String>)> {
        let own = Object::namespace(object);
        let key = |namespace: &Option<String>, name: &str| {
            ObjectKey::new(namespace.clone().unwrap_or_else(|| own.to_owned()), name)
        };
        if let Some(reference) = &object.spec.source_ref {
            let source = Self { kind: reference.kind, key: key(&reference.namespace, &reference.name) };
            return vec![(source, None)];
        }
        let entries = object.spec.source_refs.iter();
        entries
            .map(|entry| {
                (Self { kind: entry.kind, key: key(&entry.namespace, &entry.name) }, entry.mount.clone())
            })
            .collect()
    }

    pub fn kind_row(&self) -> &'static Kind {
        match self.kind {
            SourceKind::OCIRepository => &kinds::OCI_REPOSITORY,
            SourceKind::GitRepository => &kinds::GIT_REPOSITORY,
            SourceKind::Bucket => &kinds::BUCKET,
            SourceKind::ExternalArtifact => &kinds::EXTERNAL_ARTIFACT,
        }
    }
}

impl std::fmt::Display for SourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.key)
    }
}

/// The artifact of a source object, if it has one.
pub fn artifact(source: &DynamicObject) -> Option<Artifact> {
    serde_json::from_value(source.data.pointer("/status/artifact")?.clone()).ok()
}

/// The artifacts that a Kustomization is built from, each with the folder it is mounted at.
pub(super) struct Sources {
    main: Artifact,
    pub(super) all: Vec<(Artifact, Option<String>)>,
}

impl Sources {
    pub(super) fn main(&self) -> &Artifact {
        &self.main
    }
}

pub(super) fn sources(run: &Run<'_>) -> Result<Sources, Failure> {
    let mut all = Vec::new();
    for (source, mount) in SourceKey::mounted(run.object) {
        all.push((find(run, &source)?, mount));
    }
    let main = all.first().map(|(artifact, _)| artifact.clone());
    let main = main.ok_or_else(|| Failure::Fetch("no source is given".to_owned()))?;
    Ok(Sources { main, all })
}

fn find(run: &Run<'_>, source: &SourceKey) -> Result<Artifact, Failure> {
    let options = &run.ctx.options;
    if source.key.namespace != run.namespace() && options.no_cross_namespace_refs {
        return Err(Failure::AccessDenied(source.to_string()));
    }
    if source.kind == SourceKind::ExternalArtifact && !options.gates.external_artifact {
        return Err(Failure::ExternalArtifactDenied(source.to_string()));
    }
    let found = run.ctx.cache.get(source.kind_row(), &source.key);
    let found = found.ok_or_else(|| Failure::SourceMissing(source.clone()))?;
    artifact(&found).ok_or_else(|| Failure::NoArtifact(options.requeue_dependency.into()))
}
