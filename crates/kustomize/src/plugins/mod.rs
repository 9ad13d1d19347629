//! Generators and transformers as kustomize configures them: from the fields of a kustomization, or from
//! objects of `apiVersion: builtin` under `generators`, `transformers` and `validators`.
//!
//! Deliberately absent: plugins that are not builtin. Executables and containers are refused.

mod from_fields;
mod from_objects;
mod patch_config;

use std::collections::BTreeMap;

pub(crate) use from_fields::{Place, generators_of_fields, transformers_of_fields};
pub(crate) use from_objects::{generators_of_objects, transformers_of_objects};

use crate::error::Error;
use crate::generate::{self, ServiceAccountArgs};
use crate::kustomization::{ConfigMapArgs, FieldSpec, Image, Replacement, Replica, SecretArgs, Selector};
use crate::load::Loader;
use crate::origin::Origin;
use crate::resource::Resource;
use crate::resources::{Resources, Workspace};
use crate::transform::json_patch::Operation;
use crate::transform::names::Affix;
use crate::transform::namespace::{NamespaceChange, Subjects};
use crate::transform::patches::{History, Patch};
use crate::transform::{entries, hash, images, names, namespace, patches, replacements, replicas, value_add};
use crate::tree::Tree;

/// Something that makes resources, and where it was configured.
#[derive(Debug)]
pub(crate) struct Configured<T> {
    pub plugin: T,
    pub origin: Option<Origin>,
}

#[derive(Debug)]
pub(crate) enum Generator {
    ConfigMap(ConfigMapArgs),
    Secret(SecretArgs),
    GkeServiceAccount { cloud: String, name: String, namespace: String, account: String, project: String },
}

impl Generator {
    pub(crate) fn generate(&self, tree: &mut Tree, loader: &Loader<'_>) -> Result<Vec<Resource>, Error> {
        let resource = match self {
            Self::ConfigMap(args) => generate::config_map(tree, loader, args)?,
            Self::Secret(args) => generate::secret(tree, loader, args)?,
            Self::GkeServiceAccount { cloud, name, namespace, account, project } => {
                generate::gke_service_account(
                    tree,
                    &ServiceAccountArgs { cloud, name, namespace, account, project },
                )?
            }
        };
        Ok(vec![resource])
    }
}

#[derive(Debug)]
pub(crate) enum Transformer {
    Entries {
        entries: BTreeMap<String, String>,
        specs: Vec<FieldSpec>,
    },
    Hash,
    Image {
        image: Image,
        specs: Vec<FieldSpec>,
    },
    Namespace {
        namespace: String,
        specs: Vec<FieldSpec>,
        unset_only: bool,
        subjects: Subjects,
    },
    JsonPatch {
        operations: Vec<Operation>,
        target: Selector,
    },
    StrategicPatches(Vec<Resource>),
    Patch(Patch),
    Affix {
        affix: Affix,
        text: String,
        specs: Vec<FieldSpec>,
    },
    /// The prefix and the suffix of one configuration.
    Both(Box<Transformer>, Box<Transformer>),
    Replacements(Vec<Replacement>),
    Replica {
        replica: Replica,
        specs: Vec<FieldSpec>,
    },
    ValueAdd {
        value: String,
        targets: Vec<value_add::Target>,
    },
}

impl Transformer {
    pub(crate) fn transform(self, space: &mut Workspace, resources: &mut Resources) -> Result<(), Error> {
        match self {
            Self::Entries { entries, specs } => {
                if entries.is_empty() {
                    return Ok(());
                }
                entries::add(space, resources, &entries, &specs)
            }
            Self::Hash => hash::add_to_names(space, resources),
            Self::Image { image, specs } => images::set(space, resources, &image, &specs),
            Self::Namespace { namespace, specs, unset_only, subjects } => {
                if namespace.is_empty() {
                    return Ok(());
                }
                let change = NamespaceChange { namespace: &namespace, specs: &specs, unset_only, subjects };
                namespace::set(space, resources, &change)
            }
            Self::JsonPatch { operations, target } => {
                patches::apply_json(space, resources, &operations, &target, History::Ignore)
            }
            Self::StrategicPatches(list) => patches::apply_strategic(space, resources, list),
            Self::Patch(patch) => patches::apply(space, resources, patch),
            Self::Affix { affix, text, specs } => names::affix(space, resources, affix, &text, &specs),
            Self::Both(first, second) => {
                first.transform(space, resources)?;
                second.transform(space, resources)
            }
            Self::Replacements(list) => replacements::apply(space, resources, &list),
            Self::Replica { replica, specs } => replicas::set(space, resources, &replica, &specs),
            Self::ValueAdd { value, targets } => value_add::add(space, resources, &value, &targets),
        }
    }
}
