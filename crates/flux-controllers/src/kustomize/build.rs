//! From artifacts to objects: everything a build needs is fetched here, the build itself is `flux-build`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use file_tree::{Files, Question, TreePath};
use flux_api::Object;
use flux_api::artifact::Artifact;
use flux_api::kustomize::{Kustomization, KustomizationSpec};
use flux_api::meta::ConfigKind;
use flux_api::revision::Revision;
use flux_build::decrypt::{FileMac, Keyring};
use flux_build::mounted::Mounted;
use flux_build::remote::Remotes;
use flux_build::{Error, Input, Manifests};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sops::Mac;

use super::failure::Failure;
use super::kms::ServiceKeys;
use super::kustomization::short;
use super::observe::Sources;
use super::run::Run;
use super::{keys, kms, manifests, remote_bases, target_namespace, unchanged};
use crate::artifact::{ArtifactTree, fetch};
use crate::reconcile::Severity;

/// A build may ask for keys and remote bases this many times; each time brings all that are known to be missing.
const ROUNDS: usize = 20;
/// Digests of encrypted files that are remembered.
const MOST_MACS: usize = 100_000;

/// Everything a build works with that had to be fetched.
pub(super) struct Inputs {
    trees: Vec<(TreePath, Arc<ArtifactTree>)>,
    variables: Option<BTreeMap<String, String>>,
    keyring: Option<Keyring>,
    services: ServiceKeys,
    /// Digest of all but the files.
    pub(super) seed: [u8; 32],
}

impl Inputs {
    /// The artifact, where there is one only.
    pub(super) fn only_tree(&self) -> Option<&ArtifactTree> {
        match &self.trees[..] {
            [(at, tree)] if at.is_root() => Some(tree),
            _ => None,
        }
    }
}

pub(super) async fn inputs(run: &Run<'_>, sources: &Sources) -> Result<Inputs, Failure> {
    let trees = fetch(run, sources).await?;
    let variables = variables(run).await?;
    let (keyring, services, keys) = match keys::keys(run).await? {
        Some(found) => (Some(found.keyring), found.services, found.fingerprint),
        None => (None, ServiceKeys::default(), [0; 32]),
    };
    let spec = serde_json::to_string(&run.object.spec).unwrap_or_default();
    let variables_text = serde_json::to_string(&variables).unwrap_or_default();
    let mut seed = Sha256::new();
    for part in [env!("CARGO_PKG_VERSION"), &spec, &variables_text, &format!("{:?}", run.ctx.options)] {
        seed.update((part.len() as u64).to_le_bytes());
        seed.update(part);
    }
    seed.update(keys);
    Ok(Inputs { trees, variables, keyring, services, seed: seed.finalize().into() })
}

/// What a build gave, and what it may be remembered by.
pub(super) struct Built {
    pub(super) objects: Vec<Value>,
    /// The questions asked of the artifact and a digest of the answers; nothing where others were asked, too.
    pub(super) basis: Option<(BTreeSet<Question>, [u8; 32])>,
}

pub(super) async fn build(run: &mut Run<'_>, inputs: Inputs, revision: &Revision) -> Result<Built, Failure> {
    run.status.last_attempted_revision = Some(revision.clone());
    let services = inputs.services;
    let mut task = Task {
        spec: run.object.spec.clone(),
        trees: inputs.trees,
        variables: inputs.variables,
        strict: run.ctx.options.strict_substitutions,
        keyring: inputs.keyring,
        known_macs: known_macs(run),
        remotes: Remotes::new(),
    };
    for _ in 0..ROUNDS {
        let (back, result) = crate::reconcile::heavy(move || {
            let result = task.build();
            (task, result)
        })
        .await
        .map_err(|error| Failure::Build(error.to_string()))?;
        task = back;
        match result {
            Ok(built) => {
                check_macs(run, &built.macs)?;
                let before = task.namespaces_before(run, &built)?;
                target_namespace::check(run, &before)?;
                let basis = task.basis(&built.questions);
                return Ok(Built { objects: finish(run, built)?, basis });
            }
            Err(Error::KeysWanted(recipients)) => {
                let keyring = task.keyring.get_or_insert_with(Keyring::default);
                kms::unwrap(run, keyring, &services, &recipients).await;
            }
            Err(Error::RemotesWanted(wanted)) => {
                for name in wanted {
                    let fetched = remote_bases::fetch(run, &name).await.map_err(Failure::Build)?;
                    task.remotes.insert(name, fetched);
                }
            }
            Err(error @ Error::PathNotFound(_)) => return Err(Failure::PathNotFound(error.to_string())),
            Err(error) => return Err(Failure::Build(error.to_string())),
        }
    }
    Err(Failure::Build(format!("remote bases include one another more than {ROUNDS} times")))
}

/// Everything a build works with, to be sent to a thread and back.
struct Task {
    spec: KustomizationSpec,
    trees: Vec<(TreePath, Arc<ArtifactTree>)>,
    variables: Option<BTreeMap<String, String>>,
    strict: bool,
    keyring: Option<Keyring>,
    known_macs: BTreeSet<[u8; 32]>,
    remotes: Remotes,
}

impl Task {
    fn basis(&self, questions: &BTreeSet<Question>) -> Option<(BTreeSet<Question>, [u8; 32])> {
        match &self.trees[..] {
            [(at, tree)] if at.is_root() && self.remotes.is_empty() => {
                Some((questions.clone(), unchanged::answers(tree, questions)))
            }
            _ => None,
        }
    }

    /// The names that the Namespaces had before `targetNamespace` gave them its own; none where it did not.
    fn namespaces_before(&self, run: &Run<'_>, built: &Manifests) -> Result<Vec<String>, Failure> {
        let target = self.spec.target_namespace.as_deref().filter(|target| !target.is_empty());
        let Some(target) = target.filter(|_| !run.ctx.options.upstream_only) else { return Ok(Vec::new()) };
        if !target_namespace::names(&built.objects).iter().any(|name| name == target) {
            return Ok(Vec::new());
        }
        // Rare, so the build is simply done again without it.
        let mut spec = self.spec.clone();
        spec.target_namespace = None;
        let built = self.build_with(&spec).map_err(|error| Failure::Build(error.to_string()))?;
        Ok(target_namespace::names(&built.objects))
    }

    fn build(&self) -> Result<Manifests, Error> {
        self.build_with(&self.spec)
    }

    fn build_with(&self, spec: &KustomizationSpec) -> Result<Manifests, Error> {
        let mut all = Mounted::new();
        let files: &dyn Files = match &self.trees[..] {
            [(at, tree)] if at.is_root() => tree.as_ref(),
            trees => {
                for (at, tree) in trees {
                    all.mount(at.clone(), tree.as_ref())?;
                }
                &all
            }
        };
        flux_build::kustomization(&Input {
            spec,
            files,
            variables: self.variables.as_ref(),
            strict: self.strict,
            keys: self.keyring.as_ref(),
            known_macs: &self.known_macs,
            remotes: &self.remotes,
        })
    }
}

async fn fetch(run: &Run<'_>, sources: &Sources) -> Result<Vec<(TreePath, Arc<ArtifactTree>)>, Failure> {
    let mut trees = Vec::new();
    for (artifact, mount) in &sources.all {
        let at = TreePath::parse(mount.as_deref().unwrap_or_default()).map_err(|_| {
            Failure::Fetch(format!(
                "spec.sourceRefs: '{}' leaves the tree",
                mount.clone().unwrap_or_default()
            ))
        })?;
        trees.push((at, fetch_one(run, artifact).await?));
    }
    Ok(trees)
}

async fn fetch_one(run: &Run<'_>, artifact: &Artifact) -> Result<Arc<ArtifactTree>, Failure> {
    let requeue = run.ctx.options.requeue_dependency;
    // A download is tried for minutes; when the source has something newer, that is what is wanted.
    let fetched = run
        .worker
        .outside(async {
            tokio::select! {
                fetched = run.ctx.fetcher.tree(artifact) => Some(fetched),
                () = run.worker.preempted() => None,
            }
        })
        .await;
    fetched.ok_or(Failure::Superseded)?.map_err(|error| match error {
        fetch::Error::NotFound => Failure::ArtifactGone(requeue.into()),
        error => Failure::Fetch(error.to_string()),
    })
}

fn finish(run: &mut Run<'_>, built: Manifests) -> Result<Vec<Value>, Failure> {
    run.digest = Some(built.digest);
    let mut objects = manifests::flatten(built.objects);
    // Before anything is dropped from them: the mark of an encrypted Secret is no field of its kind.
    manifests::refuse_encrypted(&objects).map_err(Failure::Apply)?;
    manifests::prepare(&mut objects, &run.owner(), run.object.spec.common_metadata.as_ref());
    Ok(objects)
}

fn known_macs(run: &Run<'_>) -> BTreeSet<[u8; 32]> {
    if run.object.spec.decryption.is_none() {
        return BTreeSet::new();
    }
    run.ctx.memory.verified_macs.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A file that was changed without sops is warned about once, and refused where a flag asks for it. Upstream looks at
/// no authentication code at all.
fn check_macs(run: &Run<'_>, macs: &[FileMac]) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for file in macs {
        let problem = match file.mac {
            Mac::Verified => {
                remember(&run.ctx.memory.verified_macs, file.digest);
                continue;
            }
            Mac::Mismatch => "was changed after it was encrypted (MAC mismatch)",
            Mac::Missing => "has no MAC",
            Mac::Unreadable(_) => "has a MAC that cannot be decrypted",
        };
        let text = format!("{} {problem}; encrypt it again with sops if that was intended", file.path);
        if !run.ctx.options.require_sops_mac && remember(&run.ctx.memory.reported_macs, file.digest) {
            run.tell(Severity::Error, "SOPSMacMismatch", text.clone(), None);
        }
        problems.push(text);
    }
    if problems.is_empty() || !run.ctx.options.require_sops_mac {
        return Ok(());
    }
    Err(Failure::Build(problems.join("\n")))
}

/// Whether it is new.
fn remember(known: &std::sync::Mutex<BTreeSet<[u8; 32]>>, digest: [u8; 32]) -> bool {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MOST_MACS {
        known.clear();
    }
    known.insert(digest)
}

/// The values for `${…}`: later references win over earlier ones, inline values over all.
async fn variables(run: &Run<'_>) -> Result<Option<BTreeMap<String, String>>, Failure> {
    let object: &Kustomization = run.object;
    let Some(post_build) = &object.spec.post_build else {
        return Ok(None);
    };
    let mut variables = BTreeMap::new();
    for reference in &post_build.substitute_from {
        match config(run, Object::namespace(object), reference.kind, &reference.name).await {
            Ok(values) => variables.extend(values),
            Err(kube::Error::Api(answer)) if answer.code == 404 && reference.optional => {}
            Err(error) => {
                let (kind, name) = (reference.kind.as_str(), &reference.name);
                let text = format!("substitute from '{kind}/{name}' error: {}", short(&error));
                return Err(Failure::Build(text));
            }
        }
    }
    variables.extend(post_build.substitute.clone());
    Ok(Some(variables))
}

async fn config(
    run: &Run<'_>,
    namespace: &str,
    kind: ConfigKind,
    name: &str,
) -> Result<BTreeMap<String, String>, kube::Error> {
    match kind {
        ConfigKind::ConfigMap => {
            let api: Api<ConfigMap> = Api::namespaced(run.ctx.client.clone(), namespace);
            Ok(api.get(name).await?.data.unwrap_or_default())
        }
        ConfigKind::Secret => {
            let api: Api<Secret> = Api::namespaced(run.ctx.client.clone(), namespace);
            let data = api.get(name).await?.data.unwrap_or_default();
            let text = |value: k8s_openapi::ByteString| String::from_utf8_lossy(&value.0).into_owned();
            Ok(data.into_iter().map(|(key, value)| (key, text(value))).collect())
        }
    }
}
