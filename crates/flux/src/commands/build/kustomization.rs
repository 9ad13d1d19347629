//! `flux build kustomization`: the objects a Kustomization would apply, from local files, with `flux-build`.
//!
//! The Kustomization comes from the cluster, or from a file, which then wins. With `--dry-run` no cluster is asked at all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use file_tree::TreePath;
use flux_api::kinds as api;
use flux_api::kustomize::KustomizationSpec;
use flux_controllers::kustomize::manifests;
use serde_json::{Value, json};

use crate::commands::debug::referenced;
use crate::error::{CliError, fail};
use crate::kinds::{self, text};
use crate::output;
use crate::session::{self, Session};
use crate::tree::Invocation;

use super::disk::Disk;
use super::mask::mask;

/// Kustomizations inside of Kustomizations inside of …
const DEEPEST: usize = 32;

/// What to build.
#[derive(Clone)]
pub(in crate::commands) struct Build<'a> {
    pub(in crate::commands) session: Option<&'a Session>,
    pub(in crate::commands) name: String,
    pub(in crate::commands) namespace: String,
    pub(in crate::commands) path: PathBuf,
    /// `--kustomization-file`
    pub(in crate::commands) file: Option<PathBuf>,
    /// The Kustomization itself, where another one's files hold it.
    pub(in crate::commands) given: Option<Value>,
    pub(in crate::commands) strict: bool,
    pub(in crate::commands) recursive: bool,
    /// Leaves the Kustomizations among the objects alone.
    pub(in crate::commands) single: bool,
    pub(in crate::commands) ignore_not_found: bool,
    pub(in crate::commands) ignore: Vec<String>,
    pub(in crate::commands) local_sources: BTreeMap<String, String>,
    pub(in crate::commands) depth: usize,
}

/// The Kustomization that was built, and its objects.
pub(in crate::commands) struct Built {
    pub(in crate::commands) kustomization: Value,
    pub(in crate::commands) objects: Vec<Value>,
}

pub(super) async fn run(run: &Invocation) -> Result<(), CliError> {
    let build = arguments(run)?;
    let session = if run.is("dry-run") {
        if build.file.is_none() {
            return Err(fail!("dry-run mode requires a kustomization file"));
        }
        None
    } else {
        Some(Session::open(run).await?)
    };
    let built = Build { session: session.as_ref(), ..build }.build().await?;
    let mut text = String::new();
    for object in &built.objects {
        text.push_str(&format!("{}---\n", output::yaml_text(object)?));
    }
    output::data(&text)
}

/// Name and flags that `build` and `diff` share. Their order is the order of upstream's errors.
pub(in crate::commands) fn arguments(run: &Invocation) -> Result<Build<'static>, CliError> {
    let diff = run.row.path.starts_with("diff ");
    let name = run.name().ok_or_else(|| fail!("kustomization name is required"))?;
    let bad_path = |path: &Path| {
        let error = fail!("invalid resource path {}", crate::tree::quoted(&path.to_string_lossy()));
        if diff { error.with_code(2) } else { error }
    };
    let path = run.some("path").map(PathBuf::from).ok_or_else(|| bad_path(Path::new("")))?;
    let shown = if diff { path.clone() } else { std::path::absolute(&path).unwrap_or_else(|_| path.clone()) };
    if !path.is_dir() {
        return Err(bad_path(&shown));
    }
    if run.is("dry-run") && run.some("kustomization-file").is_none() {
        return Err(fail!("dry-run mode requires a kustomization file"));
    }
    let file = run.some("kustomization-file").map(PathBuf::from);
    if let Some(file) = file.as_deref().filter(|file| !file.exists() || file.is_dir()) {
        let shown = crate::tree::quoted(&file.to_string_lossy());
        return Err(fail!("invalid kustomization file {shown}"));
    }
    Ok(Build {
        session: None,
        name: name.to_owned(),
        namespace: session::namespace(run)?,
        path,
        file,
        given: None,
        strict: run.is("strict-substitute"),
        recursive: run.is("recursive"),
        single: diff,
        ignore_not_found: diff && run.is("ignore-not-found"),
        ignore: run.list("ignore-paths"),
        local_sources: pairs(&run.list("local-sources")),
        depth: 0,
    })
}

fn pairs(list: &[String]) -> BTreeMap<String, String> {
    let pairs = list.iter().filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(in crate::commands) fn is_kustomization(object: &Value) -> bool {
    text(object, "/apiVersion").starts_with("kustomize.toolkit.fluxcd.io/")
        && text(object, "/kind") == "Kustomization"
}

impl Build<'_> {
    pub(in crate::commands) async fn build(&self) -> Result<Built, CliError> {
        if self.depth > DEEPEST {
            return Err(fail!("kustomization {} is nested more than {DEEPEST} deep", self.name));
        }
        let kustomization = self.kustomization().await?;
        let mut objects = self.objects(&kustomization).await?;
        if self.recursive && !self.single {
            let nested: Vec<Value> =
                objects.iter().filter(|object| is_kustomization(object)).cloned().collect();
            for inner in nested.iter().filter(|inner| !same(inner, &kustomization)) {
                objects.append(&mut Box::pin(self.nested(inner)?.build()).await?.objects);
            }
        }
        Ok(Built { kustomization, objects })
    }

    /// The build of a Kustomization that this one's files hold.
    pub(in crate::commands) fn nested(&self, inner: &Value) -> Result<Build<'_>, CliError> {
        Ok(Build {
            name: kinds::name(inner).to_owned(),
            namespace: kinds::namespace(inner).to_owned(),
            path: self.local_path(inner)?,
            file: None,
            given: Some(inner.clone()),
            depth: self.depth + 1,
            ..self.clone()
        })
    }

    fn local_path(&self, inner: &Value) -> Result<PathBuf, CliError> {
        let reference = inner.pointer("/spec/sourceRef").unwrap_or(&Value::Null);
        let own = Some(text(reference, "/namespace")).filter(|namespace| !namespace.is_empty());
        let namespace = own.unwrap_or(kinds::namespace(inner));
        let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
        let source = if namespace.is_empty() {
            format!("{kind}/{name}")
        } else {
            format!("{kind}/{namespace}/{name}")
        };
        let folder = self.local_sources.get(&source).ok_or_else(|| {
            fail!("cannot get local path for {source} of kustomization {}", kinds::name(inner))
        })?;
        Ok(Path::new(folder).join(text(inner, "/spec/path").trim_start_matches('/')))
    }

    /// A file wins over the cluster, but the inventory is the cluster's.
    async fn kustomization(&self) -> Result<Value, CliError> {
        let live = match self.session {
            None => self.given.clone(),
            Some(session) => {
                match session.in_namespace(&self.namespace).get(&api::KUSTOMIZATION, &self.name).await {
                    Ok(live) => Some(live),
                    Err(error) if error.is_not_found() && (self.given.is_some() || self.ignore_not_found) => {
                        self.given.clone()
                    }
                    Err(error) => return Err(fail!("failed to get kustomization object: {error}")),
                }
            }
        };
        let Some(file) = &self.file else {
            return live.ok_or_else(|| fail!("failed to get kustomization object: {} not found", self.name));
        };
        let read = self.in_file(file).map_err(|error| fail!("failed to get kustomization object: {error}"));
        let mut kustomization = read?;
        if let Some(status) = live.as_ref().and_then(|live| live.get("status"))
            && status.get("inventory").is_some()
        {
            kustomization["status"] = status.clone();
        }
        Ok(kustomization)
    }

    fn in_file(&self, file: &Path) -> Result<Value, CliError> {
        let shown = file.display();
        let bytes = std::fs::read(file).map_err(|error| {
            fail!("failed to read kustomization file {shown}: {}", crate::error::go_io(file, &error))
        })?;
        let bad = |error: yaml::Error| fail!("failed to unmarshall kustomization file {shown}: {error}");
        let documents = yaml::parse_stream(&bytes, &yaml::Options::new(yaml::Schema::V2)).map_err(bad)?;
        for document in &documents {
            let object = yaml::node_to_json(&document.root, yaml::Schema::V2).map_err(bad)?;
            let namespace = kinds::namespace(&object);
            let here = namespace == self.namespace || namespace.is_empty();
            if is_kustomization(&object) && kinds::name(&object) == self.name && here {
                return Ok(object);
            }
        }
        Err(fail!(
            "failed find kustomization with name '{}' and namespace '{}' in file '{shown}'",
            self.name,
            self.namespace
        ))
    }

    async fn objects(&self, kustomization: &Value) -> Result<Vec<Value>, CliError> {
        let folder = std::fs::canonicalize(&self.path)
            .map_err(|error| fail!("{}", crate::error::go_io(&self.path, &error)))?;
        let folder = folder.to_str().and_then(|folder| TreePath::parse(folder).ok());
        let folder = folder.ok_or_else(|| fail!("{} is no path of text", self.path.display()))?;
        let spec = spec(kustomization, &folder)?;
        let files = Disk::new(&folder, &self.ignore);
        let build = |variables: Option<&BTreeMap<String, String>>| {
            flux_build::kustomization(&flux_build::Input {
                variables,
                strict: self.strict,
                ..flux_build::Input::new(&spec, &files)
            })
        };
        let variables = match self.variables(kustomization).await {
            Ok(variables) => variables,
            Err(error) => {
                // Upstream looks them up anew for each object, so the first object's name is in the error.
                let manifests = build(None).map_err(|error| told(&error))?;
                let Some(first) = manifests.objects.first() else { return Ok(Vec::new()) };
                return Err(fail!("var substitution failed for '{}': {error}", kinds::name(first)));
            }
        };
        let manifests = build(variables.as_ref()).map_err(|error| told(&error))?;
        let (name, namespace) = (kinds::name(kustomization), kinds::namespace(kustomization));
        let mut objects = manifests.objects;
        for object in &mut objects {
            set(object, "labels", "kustomize.toolkit.fluxcd.io/name", name);
            set(object, "labels", "kustomize.toolkit.fluxcd.io/namespace", namespace);
            mask(object)
                .map_err(|error| fail!("failed to mask secret {} sops data: {error}", kinds::name(object)))?;
        }
        let mut objects = manifests::flatten(objects);
        for place in ["labels", "annotations"] {
            let common =
                kustomization.pointer(&format!("/spec/commonMetadata/{place}")).and_then(Value::as_object);
            for object in &mut objects {
                for (key, value) in common.into_iter().flatten() {
                    manifests::set(object, place, key, value.as_str().unwrap_or_default());
                }
            }
        }
        Ok(objects)
    }

    /// Without a cluster only the values in the Kustomization itself count.
    async fn variables(&self, kustomization: &Value) -> Result<Option<BTreeMap<String, String>>, CliError> {
        let Some(build) = kustomization.pointer("/spec/postBuild") else { return Ok(None) };
        let mut all = BTreeMap::new();
        if let Some(session) = self.session {
            let session = session.in_namespace(kinds::namespace(kustomization));
            for reference in build.get("substituteFrom").and_then(Value::as_array).into_iter().flatten() {
                let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
                let found = referenced(&session, reference).await;
                all.extend(found.map_err(|error| fail!("substitute from '{kind}/{name}' error: {error}"))?);
            }
        }
        for (key, value) in build.get("substitute").and_then(Value::as_object).into_iter().flatten() {
            all.insert(key.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        Ok(Some(all))
    }
}

fn same(one: &Value, other: &Value) -> bool {
    kinds::name(one) == kinds::name(other) && kinds::namespace(one) == kinds::namespace(other)
}

/// The spec with the folder on disk as its path. A file may leave out what the server would insist on.
fn spec(kustomization: &Value, folder: &TreePath) -> Result<KustomizationSpec, CliError> {
    let mut spec = kustomization.get("spec").cloned().unwrap_or_else(|| json!({}));
    for (field, value) in [("interval", json!("0s")), ("prune", json!(false))] {
        if spec.get(field).is_none() {
            spec[field] = value;
        }
    }
    spec["path"] = format!("/{folder}").into();
    serde_json::from_value(spec).map_err(|error| fail!("failed to get kustomization object: {error}"))
}

/// Errors of a build in the words of the command.
fn told(error: &flux_build::Error) -> CliError {
    match error {
        // The second half is what upstream's clean-up said: nothing.
        flux_build::Error::Generate(error) => fail!("failed to generate kustomization.yaml: {error} <nil>"),
        flux_build::Error::PostBuild(errors) => {
            let first = errors.first().map(String::as_str).unwrap_or_default();
            fail!("{}", first.replacen("post build failed for", "var substitution failed for", 1))
        }
        error => fail!("{error}"),
    }
}

fn set(object: &mut Value, place: &str, key: &str, value: &str) {
    let metadata = &mut object["metadata"];
    if !metadata.get(place).is_some_and(Value::is_object) {
        metadata[place] = json!({});
    }
    metadata[place][key] = value.into();
}
