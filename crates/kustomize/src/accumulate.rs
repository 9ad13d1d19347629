//! One kustomization folder and all it includes, gathered layer by layer.
//!
//! ```text
//! resources ─▶ configurations, crds ─▶ generators ─▶ components ─▶ transformers ─▶ validators ─▶ vars
//!  (files, or folders gathered the same way)
//! ```

use std::borrow::Cow;

use file_tree::{Files, TreePath};

use crate::Options;
use crate::error::{Class, Context as _, Error};
use crate::field_specs::{self, FieldSpecs};
use crate::kustomization::{FILE_NAMES, Kustomization};
use crate::load::Loader;
use crate::origin::Origin;
use crate::plugins::{self, Configured, Place, Transformer};
use crate::read;
use crate::resource::Resource;
use crate::resources::{Resources, Workspace};
use crate::transform::vars::{self, Vars};
use crate::tree::{Body, NodeId, Tree};

/// A tree can unfold without end when folders include others twice; none that is meant well comes near this.
const MAX_FOLDERS: usize = 10_000;

/// Resources, and what is known about how to treat them, so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gathered {
    pub resources: Resources,
    pub specs: FieldSpecs,
    pub vars: Vars,
}

impl Gathered {
    fn merge(&mut self, space: &Workspace, other: Self) -> Result<(), Error> {
        self.resources.append_all(space, other.resources)?;
        self.specs = self.specs.merge(&other.specs)?;
        self.vars.merge_all(other.vars)
    }
}

/// A kustomization folder whose file was read.
pub(crate) struct Folder<'a> {
    loader: Loader<'a>,
    pub kustomization: Kustomization,
    json: serde_json::Value,
    file_name: &'static str,
    origin: Option<Origin>,
}

impl<'a> Folder<'a> {
    /// The folder a build begins with; `content` stands for its kustomization file, if given.
    pub(crate) fn top(
        space: &mut Workspace,
        files: &'a dyn Files,
        root: &TreePath,
        content: Option<&[u8]>,
        options: &Options,
    ) -> Result<Self, Error> {
        let loader = Loader::new(files, root, options.load_restrictions)?;
        let mut folder = Self::read(space, loader, content)?;
        if !folder.kustomization.build_metadata.is_empty() {
            folder.origin = Some(Origin::default());
        }
        folder.choose_schema(space, true)?;
        Ok(folder)
    }

    fn read(space: &mut Workspace, loader: Loader<'a>, content: Option<&[u8]>) -> Result<Self, Error> {
        let (file_name, content) = match content {
            Some(content) => (FILE_NAMES[0], Cow::Borrowed(content)),
            None => kustomization_file(&loader)?,
        };
        let read = Kustomization::read(&content, &loader.root())?;
        space.warnings.extend(read.warnings.iter().map(|text| (*text).to_owned()));
        Ok(Self { loader, kustomization: read.kustomization, json: read.json, file_name, origin: None })
    }

    fn choose_schema(&self, space: &mut Workspace, is_top: bool) -> Result<(), Error> {
        let openapi = &self.kustomization.openapi;
        let content = openapi.get("path").map(|path| self.loader.load(path)).transpose()?;
        space.schemas.choose(openapi, content.as_deref(), is_top)
    }

    /// Gathers everything, on top of what the including kustomization has if this is a component.
    pub(crate) fn gather(&self, space: &mut Workspace, mut gathered: Gathered) -> Result<Gathered, Error> {
        let kustomization = &self.kustomization;
        self.resources(space, &mut gathered, &kustomization.resources)
            .context(|| "accumulating resources".to_owned())?;
        let specs = FieldSpecs::load(&self.loader, &kustomization.configurations)?;
        gathered.specs = gathered.specs.merge(&specs).context(|| "merging config".to_owned())?;
        let shown = || crate::go_text::list(&kustomization.crds);
        let specs = field_specs::from_crds(&self.loader, &kustomization.crds)
            .context(|| format!("loading CRDs {}", shown()))?;
        gathered.specs = gathered.specs.merge(&specs).context(|| format!("merging CRDs {}", shown()))?;
        self.generate(space, &mut gathered)?;
        gathered = self.components(space, gathered).context(|| "accumulating components".to_owned())?;
        self.transform(space, &mut gathered)?;
        self.validate(space, &mut gathered)?;
        self.add_vars(space, &mut gathered)?;
        Ok(gathered)
    }

    fn place(&self) -> Place<'_> {
        Place { origin: self.origin.as_ref(), file_name: self.file_name, json: &self.json }
    }

    /// Each path is a file of resources or a folder to build. What is wrong with one does not hide what is
    /// wrong with the next.
    fn resources(
        &self,
        space: &mut Workspace,
        gathered: &mut Gathered,
        paths: &[String],
    ) -> Result<(), Error> {
        let mut errors = Vec::new();
        for path in paths {
            let Err(as_file) = self.file(space, gathered, path) else { continue };
            if matches!(as_file.class(), Class::Limit)
                || (as_file.class() == Class::Remote && crate::remote::is_url(path))
            {
                errors.push(as_file);
                continue;
            }
            let entered = self.loader.enter(path);
            if entered.is_err() && read::is_malformed(&as_file) {
                // It is clearly a file: that it is no folder would only confuse.
                errors.push(as_file);
                continue;
            }
            if let Err(as_folder) = entered.and_then(|loader| self.folder(space, gathered, loader, path)) {
                errors.push(neither(&as_file, as_folder));
            }
        }
        Error::join(errors)
    }

    fn file(&self, space: &mut Workspace, gathered: &mut Gathered, path: &str) -> Result<(), Error> {
        let place = || format!("accumulating resources from '{path}'");
        let content = self.loader.load(path).context(place)?;
        let list = read::resources(&mut space.tree, &content)
            .and_then(|list| Resources::from_list(space, list))
            .map_err(|error| read::in_file(error, path))
            .context(place)?;
        let mut list = list.into_list();
        if let Some(origin) = &self.origin {
            for resource in &mut list {
                resource.origin = Some(Box::new(origin.append(path)));
            }
        }
        for resource in list {
            gathered
                .resources
                .append(space, resource)
                .context(|| format!("merging resources from '{path}'"))?;
        }
        Ok(())
    }

    fn folder(
        &self,
        space: &mut Workspace,
        gathered: &mut Gathered,
        loader: Loader<'a>,
        path: &str,
    ) -> Result<(), Error> {
        let root = loader.root();
        let folder = self.include(space, loader, path)?;
        if folder.kustomization.is_component() {
            return Err(Error::new(Class::Config, format!("expected kind != 'Component' for path '{root}'")));
        }
        let inner = folder
            .gather(space, Gathered::default())
            .context(|| format!("recursed accumulation of path '{root}'"))?;
        gathered.merge(space, inner).context(|| format!("recursed merging from path '{root}'"))
    }

    /// Reads the kustomization of a folder that this one includes.
    fn include(&self, space: &mut Workspace, loader: Loader<'a>, path: &str) -> Result<Self, Error> {
        space.folders += 1;
        if space.folders > MAX_FOLDERS {
            return Err(Error::new(
                Class::Limit,
                format!("the build includes more than {MAX_FOLDERS} folders"),
            ));
        }
        let root = loader.root();
        let mut folder =
            Self::read(space, loader, None).context(|| format!("couldn't make target for path '{root}'"))?;
        folder.kustomization.build_metadata.clone_from(&self.kustomization.build_metadata);
        folder.origin = self.origin.as_ref().map(|origin| origin.append(path));
        folder.choose_schema(space, false)?;
        Ok(folder)
    }

    fn components(&self, space: &mut Workspace, mut gathered: Gathered) -> Result<Gathered, Error> {
        for path in &self.kustomization.components {
            let quoted = |what: &str, error: Error| {
                let class = error.class();
                Error::new(class, format!("{what} {}", crate::go_text::quote(&error.to_string())))
            };
            let loader = self.loader.enter(path).map_err(|error| quoted("loader.New", error))?;
            gathered = self
                .component(space, gathered, loader, path)
                .map_err(|error| quoted("accumulateDirectory:", error))?;
        }
        Ok(gathered)
    }

    fn component(
        &self,
        space: &mut Workspace,
        gathered: Gathered,
        loader: Loader<'a>,
        path: &str,
    ) -> Result<Gathered, Error> {
        let root = loader.root();
        let folder = self.include(space, loader, path)?;
        if !folder.kustomization.is_component() {
            let kind = &folder.kustomization.kind;
            let text = format!("expected kind 'Component' for path '{root}' but got '{kind}'");
            return Err(Error::new(Class::Config, text));
        }
        let inner =
            folder.gather(space, gathered).context(|| format!("recursed accumulation of path '{root}'"))?;
        let mut merged = Gathered::default();
        merged.merge(space, inner).context(|| format!("recursed merging from path '{root}'"))?;
        Ok(merged)
    }

    fn generate(&self, space: &mut Workspace, gathered: &mut Gathered) -> Result<(), Error> {
        let mut generators = plugins::generators_of_fields(&self.kustomization, self.place())?;
        let objects = self
            .plugin_objects(space, &self.kustomization.generators, "configuring external generator")
            .and_then(|objects| plugins::generators_of_objects(space, &self.loader, &objects))
            .context(|| "loading generator plugins".to_owned())?;
        generators.extend(objects);
        let mut errors = Vec::new();
        for Configured { plugin, origin } in generators {
            match plugin.generate(&mut space.tree, &self.loader) {
                Ok(mut made) => {
                    for resource in &mut made {
                        resource.origin = resource.origin.take().or_else(|| origin.clone().map(Box::new));
                    }
                    let shown = if origin.is_some() { "&{0x0 0x0}" } else { "&{0x0 <nil>}" };
                    let absorbed = gathered.resources.absorb(space, made);
                    errors.extend(absorbed.context(|| format!("merging from generator {shown}")).err());
                }
                Err(error) => errors.push(error),
            }
        }
        Error::join(errors)
    }

    /// The configuration objects under `generators`, `transformers` or `validators`: each entry is YAML, a
    /// file, or a folder to build.
    fn plugin_objects(
        &self,
        space: &mut Workspace,
        entries: &[String],
        what: &str,
    ) -> Result<Vec<Resource>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut gathered = Gathered::default();
        let mut paths = Vec::new();
        for entry in entries {
            let inline = read::resources(&mut space.tree, entry.as_bytes())
                .and_then(|list| Resources::from_list(space, list));
            let Ok(inline) = inline else {
                paths.push(entry.clone());
                continue;
            };
            for mut resource in inline.into_list() {
                resource.origin = self.origin.as_ref().map(|origin| Box::new(origin.append(self.file_name)));
                gathered.resources.append(space, resource).context(|| what.to_owned())?;
            }
        }
        self.resources(space, &mut gathered, &paths)?;
        Ok(gathered.resources.into_list())
    }

    fn transform(&self, space: &mut Workspace, gathered: &mut Gathered) -> Result<(), Error> {
        let mut transformers = plugins::transformers_of_fields(
            &mut space.tree,
            &self.loader,
            &self.kustomization,
            &gathered.specs,
            self.place(),
        )?;
        transformers.extend(self.plugin_transformers(space, &self.kustomization.transformers)?);
        let mut missing = Vec::new();
        for Configured { plugin, origin } in transformers {
            let is_patch = matches!(plugin, Transformer::Patch(_));
            match plugin.transform(space, &mut gathered.resources) {
                Ok(()) => {}
                // Patches without a target are independent of one another: all are named.
                Err(error) if is_patch && error.class() == Class::PatchTarget => missing.push(error),
                Err(error) => {
                    missing.push(error);
                    break;
                }
            }
            if !is_patch && !missing.is_empty() {
                break;
            }
            if let Some(origin) = origin {
                add_transformation(&mut gathered.resources, &origin);
            }
            gathered.resources.drop_empty(&space.tree);
        }
        Error::join(missing)
    }

    fn plugin_transformers(
        &self,
        space: &mut Workspace,
        entries: &[String],
    ) -> Result<Vec<Configured<Transformer>>, Error> {
        let objects = self.plugin_objects(space, entries, "configuring external transformer")?;
        plugins::transformers_of_objects(space, &self.loader, &objects)
    }

    /// Validators are transformers that may not change anything but a label that says they were here.
    fn validate(&self, space: &mut Workspace, gathered: &mut Gathered) -> Result<(), Error> {
        for Configured { plugin, .. } in self.plugin_transformers(space, &self.kustomization.validators)? {
            let before: Vec<Option<NodeId>> = gathered
                .resources
                .list()
                .iter()
                .map(|resource| resource.root.map(|root| space.tree.deep_copy(root)))
                .collect();
            let mut shown = gathered.resources.clone();
            plugin.transform(space, &mut shown)?;
            let changed = shown.len() != before.len()
                || shown
                    .list()
                    .iter()
                    .zip(&before)
                    .any(|(after, before)| !same_but_for_label(&mut space.tree, after, *before));
            if changed {
                return Err(Error::new(
                    Class::Config,
                    "validator shouldn't modify the resource map: nodes unequal",
                ));
            }
        }
        Ok(())
    }

    fn add_vars(&self, space: &mut Workspace, gathered: &mut Gathered) -> Result<(), Error> {
        let vars = &self.kustomization.vars;
        let shown = || {
            let texts: Vec<String> = vars.iter().map(|var| var.raw_go_text()).collect();
            format!("merging vars {}", crate::go_text::list(&texts))
        };
        vars::mark_sources(space, &mut gathered.resources, vars).context(shown)?;
        gathered.vars.merge(vars.iter().cloned()).context(shown)
    }
}

/// Both tries at a path in one error; each failure inside the folder by itself.
fn neither(as_file: &Error, as_folder: Error) -> Error {
    let one = |as_folder: Error| Error::NeitherFileNorFolder {
        as_file: Box::new(as_file.clone()),
        as_folder: Box::new(as_folder),
    };
    match as_folder {
        Error::Several(errors) => Error::Several(errors.into_iter().map(one).collect()),
        error => one(error),
    }
}

fn kustomization_file<'a>(loader: &Loader<'a>) -> Result<(&'static str, Cow<'a, [u8]>), Error> {
    let mut found =
        FILE_NAMES.iter().filter_map(|name| loader.load_own(name).map(|content| (*name, content)));
    match (found.next(), found.next()) {
        (None, _) => Err(Error::MissingKustomization { folder: loader.root() }),
        (Some(file), None) => Ok(file),
        (Some(_), Some(_)) => Err(Error::MultipleKustomizations { folder: loader.root() }),
    }
}

/// Notes in every resource that a transformer went over it; one without an origin was made by it.
fn add_transformation(resources: &mut Resources, origin: &Origin) {
    for resource in resources.list_mut() {
        match resource.origin {
            None => resource.origin = Some(Box::new(origin.clone())),
            Some(_) => resource.transformations.push(origin.clone()),
        }
    }
}

fn same_but_for_label(tree: &mut Tree, after: &Resource, before: Option<NodeId>) -> bool {
    let (Some(root), Some(before)) = (after.root, before) else {
        return after.root.is_none() && before.is_none();
    };
    let mut copy = after.clone();
    copy.root = Some(tree.deep_copy(root));
    let mut labels = copy.labels(tree);
    if labels.iter().any(|(key, _)| key == "validated-by") {
        labels.retain(|(key, _)| key != "validated-by");
        if copy.set_string_map(tree, "labels", labels).is_err() {
            return false;
        }
    }
    copy.root.is_some_and(|root| same(tree, root, before))
}

fn same(tree: &Tree, a: NodeId, b: NodeId) -> bool {
    let (first, second) = (&tree[a], &tree[b]);
    first.tag == second.tag
        && match (&first.body, &second.body) {
            (Body::Scalar { text: a, style }, Body::Scalar { text: b, style: other }) => {
                a == b && style == other
            }
            (Body::Map { content: a, .. }, Body::Map { content: b, .. })
            | (Body::Seq { content: a, .. }, Body::Seq { content: b, .. }) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(tree, *a, *b))
            }
            (Body::Scalar { .. } | Body::Map { .. } | Body::Seq { .. }, _) => false,
        }
}
