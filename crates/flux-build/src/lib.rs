//! A Kustomization, its files, variables and keys in; manifests out.
//!
//! What a person sees in `flux build` and `flux diff` and what the controller applies come from here, so they are
//! the same. Nothing here reads a file, a clock or an environment variable.

pub mod generate;
pub mod substitute;

use std::collections::BTreeMap;

use file_tree::{Files, Kind, TreePath};
use flux_api::kustomize::{KustomizationSpec, SubstituteStrategy};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Everything a build depends on.
pub struct Input<'a> {
    pub spec: &'a KustomizationSpec,
    /// The artifact, its root being the root.
    pub files: &'a dyn Files,
    /// Values for `${…}`; `None` when the Kustomization has no `postBuild`.
    pub variables: Option<&'a BTreeMap<String, String>>,
    /// Whether an unknown variable is an error.
    pub strict: bool,
}

/// What came out, in kustomize's order.
#[derive(Debug)]
pub struct Manifests {
    pub objects: Vec<Value>,
    /// `sha256:…` of the YAML text, which identifies the result in `.status.history`.
    pub digest: String,
    /// The YAML text, as `flux build` prints it.
    pub text: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("kustomization path not found: stat {0}: no such file or directory")]
    PathNotFound(String),
    #[error(transparent)]
    Generate(#[from] generate::Error),
    #[error("kustomize build failed: {0}")]
    Build(kustomize::Error),
    #[error("{}", .0.join("\n"))]
    PostBuild(Vec<String>),
}

/// Builds what the Kustomization asks for.
pub fn kustomization(input: &Input<'_>) -> Result<Manifests, Error> {
    let folder = folder(input)?;
    let file = generate::kustomization(input.spec, input.files, &folder)?;
    let built = kustomize::build_with(input.files, &folder, &file, &kustomize::Options::FLUX)
        .map_err(Error::Build)?;
    finish(input, &built)
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

/// Substitution, for every object before any error is told, and the digest of it all.
fn finish(input: &Input<'_>, built: &kustomize::Manifests) -> Result<Manifests, Error> {
    let (mut objects, mut errors) = (Vec::with_capacity(built.len()), Vec::new());
    let mut text = String::new();
    for object in built.iter() {
        match substituted(input, &object) {
            Ok((value, yaml)) => {
                if !text.is_empty() {
                    text.push_str("---\n");
                }
                text.push_str(&yaml);
                objects.push(value);
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(Error::PostBuild(errors));
    }
    let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Manifests { objects, digest: format!("sha256:{digest}"), text })
}

fn substituted(input: &Input<'_>, object: &kustomize::Object<'_>) -> Result<(Value, String), String> {
    let name = || format!("{}/{}", object.kind(), object.name());
    let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", name());
    let text = object.to_yaml().map_err(|error| unreadable(&error))?;
    let value = object.to_json().map_err(|error| unreadable(&error))?;
    let Some(variables) = input.variables.filter(|variables| input.substitutes(variables)) else {
        return Ok((value, text));
    };
    let changed = substitute::built(&text, &value, variables, input.strict)
        .map_err(|error| format!("post build failed for '{}': {error}", object.name()))?;
    match changed {
        None => Ok((value, text)),
        Some(value) => {
            let text = yaml::to_yaml_sigs(&value).map_err(|error| unreadable(&error))?;
            Ok((value, text))
        }
    }
}

impl Input<'_> {
    /// With at least one variable, or whenever the strategy says always.
    fn substitutes(&self, variables: &BTreeMap<String, String>) -> bool {
        let strategy = self.spec.post_build.as_ref().and_then(|post_build| post_build.substitute_strategy);
        !variables.is_empty() || strategy == Some(SubstituteStrategy::Always)
    }
}
