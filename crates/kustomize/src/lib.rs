//! `kustomize build` as a function: files in, manifests out.
//!
//! The law is kustomize v5.8: what it prints for a folder, [`build`] returns, byte for byte, its oddities
//! included. Files come through [`file_tree::Files`]; this crate opens none, and starts no process. Remote
//! bases, Helm charts and plugins that are not builtin are refused.
//!
//! ```
//! use file_tree::{MemoryTree, TreePath};
//!
//! let files = MemoryTree::from_texts([
//!     ("app/kustomization.yaml", "namePrefix: my-\nresources: [pod.yaml]\n"),
//!     ("app/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"),
//! ])?;
//! let manifests = kustomize::build(&files, &TreePath::parse("app")?, &kustomize::Options::FLUX)?;
//! assert_eq!(manifests.to_yaml()?, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: my-web\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reading order: [`accumulate`] walks the folders, [`plugins`] turns fields into generators and transformers,
//! [`generate`], [`transform`] and [`merge`] do the work on the [`tree`] of nodes.

mod accumulate;
mod error;
mod field_specs;
mod generate;
mod go_text;
mod id;
mod kustomization;
mod labels;
mod load;
mod manifests;
mod merge;
mod origin;
mod plugins;
mod read;
mod remote;
mod resource;
mod resources;
mod schemas;
mod select;
mod transform;
mod tree;
mod yaml_text;

use std::collections::BTreeMap;

use file_tree::{Files, TreePath};

pub use error::{Class, Error};
pub use labels::LabelSelector;
pub use load::LoadRestrictions;
pub use manifests::{Manifests, Object};

/// Whether kustomize would fetch this reference instead of reading it.
pub fn is_remote(path: &str) -> bool {
    remote::is_repository(path) || remote::is_url(path)
}

use accumulate::{Folder, Gathered};
use field_specs::FieldSpecs;
use kustomization::FieldSpec;
use origin::Origin;
use resource::Resource;
use resources::{Resources, Workspace};
use schemas::KnownSchemas;
use transform::{entries, hash, name_references, sort, vars};
use tree::{NodeId, Text, Tree};

/// How a build is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub load_restrictions: LoadRestrictions,
    pub reorder: Reorder,
    /// Labels every object with the version of kustomize that this crate follows.
    pub add_managed_by_label: bool,
}

impl Options {
    /// As the command `kustomize build` without flags.
    pub const COMMAND: Self = Self {
        load_restrictions: LoadRestrictions::RootOnly,
        reorder: Reorder::Unspecified,
        add_managed_by_label: false,
    };

    /// As Flux builds: any file of the tree may be read, and objects stay in the order they come in.
    pub const FLUX: Self = Self {
        load_restrictions: LoadRestrictions::None,
        reorder: Reorder::None,
        add_managed_by_label: false,
    };
}

/// The order of the objects, where the kustomization has no `sortOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reorder {
    /// As they come in.
    None,
    /// By kind: namespaces first, webhooks last.
    Legacy,
    /// Nobody asked: by kind, and no warning if `sortOptions` say otherwise.
    Unspecified,
}

/// Builds the kustomization in the folder `root`.
pub fn build(files: &dyn Files, root: &TreePath, options: &Options) -> Result<Manifests, Error> {
    build_reporting(files, root, None, options, &mut Vec::new())
}

/// As [`build`], with `kustomization` in place of the folder's own kustomization file, which need not exist.
pub fn build_with(
    files: &dyn Files,
    root: &TreePath,
    kustomization: &[u8],
    options: &Options,
) -> Result<Manifests, Error> {
    build_reporting(files, root, Some(kustomization), options, &mut Vec::new())
}

/// As [`build`], or as [`build_with`] with a kustomization; what kustomize would say on stderr is added to
/// `warnings`, also when the build fails.
pub fn build_reporting(
    files: &dyn Files,
    root: &TreePath,
    kustomization: Option<&[u8]>,
    options: &Options,
    warnings: &mut Vec<String>,
) -> Result<Manifests, Error> {
    let mut space = Workspace {
        tree: Tree::default(),
        schemas: KnownSchemas::default(),
        warnings: Vec::new(),
        folders: 0,
    };
    let built = run(&mut space, files, root, kustomization, options);
    warnings.extend(space.warnings);
    Ok(Manifests::new(space.tree, built?))
}

fn run(
    space: &mut Workspace,
    files: &dyn Files,
    root: &TreePath,
    content: Option<&[u8]>,
    options: &Options,
) -> Result<Vec<NodeId>, Error> {
    let folder = Folder::top(space, files, root, content, options)?;
    let Gathered { mut resources, specs, vars } = folder.gather(space, Gathered::default())?;
    finish_names(space, &mut resources, &specs, &vars)?;
    drop_local(space, &mut resources)?;
    reorder(space, &mut resources, &folder, options)?;
    let metadata = &folder.kustomization.build_metadata;
    let wants = |option: &str| metadata.iter().any(|wanted| wanted == option);
    if options.add_managed_by_label || wants("managedByLabel") {
        label_managed_by(space, &mut resources)?;
    }
    for resource in resources.list() {
        write_annotations(
            &mut space.tree,
            resource,
            wants("originAnnotations"),
            wants("transformerAnnotations"),
        )?;
    }
    Ok(resources.list().iter().filter_map(|resource| resource.root).collect())
}

/// Hashes, references to names, variables: what can only be done once all layers are there.
fn finish_names(
    space: &mut Workspace,
    resources: &mut Resources,
    specs: &FieldSpecs,
    vars: &vars::Vars,
) -> Result<(), Error> {
    hash::add_to_names(space, resources)?;
    name_references::update(space, resources, specs)?;
    vars::resolve(space, resources, vars, &specs.var_reference)
}

/// Objects for tools only (`config.kubernetes.io/local-config`) stay out of the result.
fn drop_local(space: &mut Workspace, resources: &mut Resources) -> Result<(), Error> {
    for resource in resources.list() {
        if let Some(root) = resource.root.filter(|root| !space.tree.is_null_or_empty(*root)) {
            read::check_metadata(&space.tree, root)?;
        }
    }
    let tree = &space.tree;
    resources.list_to_change().retain(|resource| {
        !resource.is_empty(tree)
            && matches!(resource.annotation(tree, "config.kubernetes.io/local-config"), None | Some("false"))
    });
    resources.check_ids(space)
}

fn reorder(
    space: &mut Workspace,
    resources: &mut Resources,
    folder: &Folder<'_>,
    options: &Options,
) -> Result<(), Error> {
    match (&folder.kustomization.sort_options, options.reorder) {
        (Some(wanted), reorder) => {
            if reorder != Reorder::Unspecified {
                space.warnings.push(
                    "Warning: Sorting order is set both in 'kustomization.yaml' ('sortOptions') and in a CLI flag ('--reorder'). Using the kustomization file over the CLI flag."
                        .to_owned(),
                );
            }
            sort::by_options(space, resources, wanted)
        }
        (None, Reorder::Legacy | Reorder::Unspecified) => {
            sort::legacy(space, resources);
            Ok(())
        }
        (None, Reorder::None) => Ok(()),
    }
}

fn label_managed_by(space: &mut Workspace, resources: &mut Resources) -> Result<(), Error> {
    let label = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "kustomize-v5.8.1".to_owned())]);
    let spec = FieldSpec { path: "metadata/labels".to_owned(), create: true, ..FieldSpec::default() };
    entries::add(space, resources, &label, &[spec])
}

/// Annotations end up sorted and as strings, without those of the build itself.
fn write_annotations(
    tree: &mut Tree,
    resource: &Resource,
    origin: bool,
    transformations: bool,
) -> Result<(), Error> {
    const ORIGIN: &str = "config.kubernetes.io/origin";
    const TRANSFORMATIONS: &str = "alpha.config.kubernetes.io/transformations";
    let mut annotations = resource.annotations(tree);
    let had_any = !annotations.is_empty();
    annotations
        .retain(|(key, _)| !resource::is_build_annotation(key) && key != TRANSFORMATIONS && key != ORIGIN);
    if let Some(from) = resource.origin.as_ref().filter(|_| origin) {
        annotations.push((Text::new_static(ORIGIN), from.text().into()));
    }
    if transformations && !resource.transformations.is_empty() {
        let text = Origin::list_text(&resource.transformations);
        annotations.push((Text::new_static(TRANSFORMATIONS), text.into()));
    }
    if origin && transformations && !had_any && annotations.is_empty() {
        return Ok(());
    }
    resource.set_string_map(tree, "annotations", annotations)
}
