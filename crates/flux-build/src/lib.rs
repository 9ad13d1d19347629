//! A Kustomization, its files, variables and keys in; manifests out.
//!
//! What a person sees in `flux build` and `flux diff` and what the controller applies come from here, so they are
//! the same. Nothing here reads a file, a clock or an environment variable.

pub mod decrypt;
pub mod generate;
pub mod mounted;
mod places;
pub mod remote;
pub mod substitute;

use std::collections::{BTreeMap, BTreeSet};

use file_tree::{Files, Kind, Question, Recorded, TreePath};
use flux_api::kustomize::{KustomizationSpec, SubstituteStrategy};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sops::Recipient;

use decrypt::{FileMac, Keyring, Unopened};
use places::Places;
use remote::Remotes;

/// Everything a build depends on.
pub struct Input<'a> {
    pub spec: &'a KustomizationSpec,
    /// The artifact, its root being the root.
    pub files: &'a dyn Files,
    /// Values for `${…}`; `None` when the Kustomization has no `postBuild`.
    pub variables: Option<&'a BTreeMap<String, String>>,
    /// Whether an unknown variable is an error.
    pub strict: bool,
    /// What encrypted files are opened with; `None` when the Kustomization has no `decryption`.
    pub keys: Option<&'a Keyring>,
    /// Digests of encrypted files whose authentication code was looked at before.
    pub known_macs: &'a BTreeSet<[u8; 32]>,
    /// Remote bases that were fetched.
    pub remotes: &'a Remotes,
}

impl<'a> Input<'a> {
    /// Without variables, keys or remote bases; unknown variables are errors.
    pub fn new(spec: &'a KustomizationSpec, files: &'a dyn Files) -> Self {
        static NO_MACS: BTreeSet<[u8; 32]> = BTreeSet::new();
        static NO_REMOTES: Remotes = Remotes::new();
        Self {
            spec,
            files,
            variables: None,
            strict: true,
            keys: None,
            known_macs: &NO_MACS,
            remotes: &NO_REMOTES,
        }
    }
}

/// What came out, in kustomize's order.
#[derive(Debug)]
pub struct Manifests {
    pub objects: Vec<Value>,
    /// `sha256:…` of the YAML text, which identifies the result in `.status.history`.
    pub digest: String,
    /// The YAML text, as `flux build` prints it.
    pub text: String,
    /// What the build asked of the artifact: the same answers mean the same manifests.
    pub questions: BTreeSet<Question>,
    /// The authentication codes of encrypted files that were read, except those known before.
    pub macs: Vec<FileMac>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kustomization path not found: stat {0}: no such file or directory")]
    PathNotFound(String),
    #[error(transparent)]
    Generate(#[from] generate::Error),
    #[error("error decrypting sources: {path}: {cause}")]
    Sources { path: TreePath, cause: sops::Error },
    #[error("kustomize build failed: {0}")]
    Build(kustomize::Error),
    #[error("{}", .0.join("\n"))]
    PostBuild(Vec<String>),
    #[error("{0}")]
    Mount(#[from] mounted::SuppliedTwice),
    /// Not an end: a key service has to be asked for these, then the build can be tried again.
    #[error("keys kept by key services are needed")]
    KeysWanted(Vec<Recipient>),
    /// Not an end: these have to be fetched, then the build can be tried again.
    #[error("remote bases are needed: {}", .0.iter().cloned().collect::<Vec<_>>().join(", "))]
    RemotesWanted(BTreeSet<String>),
}

/// Builds what the Kustomization asks for.
pub fn kustomization(input: &Input<'_>) -> Result<Manifests, Error> {
    let folder = folder(input)?;
    let recorded = Recorded::new(input.files);
    let files = remote::mounted(&recorded, input.remotes)?;
    let file = generate::kustomization(input.spec, &files, &folder)?;
    let rewritten = remote::rewrite(&files, &folder, &file, input.remotes);
    if !rewritten.wanted.is_empty() {
        return Err(Error::RemotesWanted(rewritten.wanted));
    }
    let mut replaced = rewritten.files;
    if let Some(keys) = input.keys {
        let opened = decrypt::sources(&files, &folder, &rewritten.text, keys);
        replaced.extend(opened.map_err(|closed| match closed.why {
            Unopened::Wanted(recipients) => Error::KeysWanted(recipients),
            Unopened::Failed(cause) => Error::Sources { path: closed.path, cause },
        })?);
    }
    let overlay = decrypt::Overlay { base: &files, replaced };
    let built = kustomize::build_with(&overlay, &folder, &rewritten.text, &kustomize::Options::FLUX)
        .map_err(Error::Build)?;
    drop(overlay);
    drop(files);
    finish(input, &built, recorded.into_questions())
}

/// `spec.path` in the tree. It cannot leave it: what climbs too far ends at the root, as upstream joins paths.
fn folder(input: &Input<'_>) -> Result<TreePath, Error> {
    let wanted = input.spec.path.as_deref().unwrap_or_default();
    let inside: Vec<&str> = wanted.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let mut folder = TreePath::root();
    for part in inside {
        folder = if part == ".." { folder.parent().unwrap_or_default() } else { folder.child(part) };
    }
    match input.files.kind(&folder) {
        Some(Kind::Folder) => Ok(folder),
        Some(Kind::File) | None => Err(Error::PathNotFound(folder.to_string())),
    }
}

/// Decryption and substitution, for every object before any error is told, and the digest of it all.
fn finish(
    input: &Input<'_>,
    built: &kustomize::Manifests,
    questions: BTreeSet<Question>,
) -> Result<Manifests, Error> {
    let (mut objects, mut errors) = (Vec::with_capacity(built.len()), Vec::new());
    let mut wanted = Vec::new();
    let mut text = String::new();
    let places = Places { files: input.files, questions: &questions };
    for object in built.iter() {
        match finished(input, &object, &places) {
            Ok((value, yaml)) => {
                if !text.is_empty() {
                    text.push_str("---\n");
                }
                text.push_str(&yaml);
                objects.push(value);
            }
            Err(Problem::Wanted(recipients)) => wanted.extend(recipients),
            Err(Problem::Text(error)) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(Error::PostBuild(errors));
    }
    if !wanted.is_empty() {
        return Err(Error::KeysWanted(wanted));
    }
    let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    let macs = input.keys.map(|keys| decrypt::look_at_macs(input.files, &questions, keys, input.known_macs));
    Ok(Manifests {
        objects,
        digest: format!("sha256:{digest}"),
        text,
        questions,
        macs: macs.unwrap_or_default(),
    })
}

enum Problem {
    Text(String),
    Wanted(Vec<Recipient>),
}

fn finished(
    input: &Input<'_>,
    object: &kustomize::Object<'_>,
    places: &Places<'_>,
) -> Result<(Value, String), Problem> {
    let unreadable = |error: &dyn std::fmt::Display| Problem::Text(format!("{}: {error}", shown(object)));
    let mut value = object.to_json().map_err(|error| unreadable(&error))?;
    let mut text = None;
    if let Some(keys) = input.keys {
        let opened = decrypt::object(&value, keys).map_err(|why| match why {
            Unopened::Wanted(recipients) => Problem::Wanted(recipients),
            Unopened::Failed(error) => {
                Problem::Text(format!("decryption failed for '{}': {error}", shown(object)))
            }
        })?;
        if let Some(opened) = opened {
            text = Some(yaml::to_yaml_sigs(&opened).map_err(|error| unreadable(&error))?);
            value = opened;
        }
    }
    let text = match text {
        Some(text) => text,
        None => object.to_yaml().map_err(|error| unreadable(&error))?,
    };
    let Some(variables) = input.variables.filter(|variables| input.substitutes(variables)) else {
        return Ok((value, text));
    };
    let changed = substitute::built(&text, &value, variables, input.strict).map_err(|error| {
        let mut message = format!("post build failed for '{}': {error}", shown(object));
        for place in places.offending(&text, variables, input.strict) {
            message.push_str("\n  ");
            message.push_str(&place);
        }
        Problem::Text(message)
    })?;
    match changed {
        None => Ok((value, text)),
        Some(value) => {
            let text = yaml::to_yaml_sigs(&value).map_err(|error| unreadable(&error))?;
            Ok((value, text))
        }
    }
}

/// `Kind.version.group/name`, as kustomize names an object.
fn shown(object: &kustomize::Object<'_>) -> String {
    let (group, version) = object.api_version().split_once('/').unwrap_or(("", object.api_version()));
    let group = if group.is_empty() { "[noGrp]" } else { group };
    format!("{}.{version}.{group}/{}", object.kind(), object.name())
}

impl Input<'_> {
    /// With at least one variable, or whenever the strategy says always.
    fn substitutes(&self, variables: &BTreeMap<String, String>) -> bool {
        let strategy = self.spec.post_build.as_ref().and_then(|post_build| post_build.substitute_strategy);
        !variables.is_empty() || strategy == Some(SubstituteStrategy::Always)
    }
}
