//! Chart, values and release to manifests: the heart of Helm.

mod duration;
mod errors;
mod from_toml;
mod functions;
mod glob;
mod objects;
mod to_toml;
mod to_yaml_pretty;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use gotemplate::{Host, Map, MissingKey, Session, Set, Value};
use serde_json::Value as Json;

use crate::capabilities::Capabilities;
use crate::chart::{Chart, Key, Metadata, Type};
use crate::dependencies::{self, Node};
use crate::manifest::{Hook, KindOrder, Manifest, sort_manifests};
use crate::post_render::{PostRender, PostRenderStrategy};
use crate::values::{Coalescing, Values, coalesce_values, table, to_json};
use crate::{Dialect, schema};

pub use functions::{Lookup, NoCluster, functions};
pub use objects::api_versions;

/// What is being rendered for.
#[derive(Clone, Debug)]
pub struct ReleaseOptions {
    pub name: String,
    pub namespace: String,
    pub revision: i64,
    pub operation: Operation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Install,
    Upgrade,
}

/// How to render.
pub struct Options<'o> {
    pub dialect: Dialect,
    pub skip_schema_validation: bool,
    /// Whether the notes of subcharts are shown, too.
    pub subchart_notes: bool,
    /// Whether `getHostByName` asks the host.
    pub enable_dns: bool,
    pub post_render: Option<&'o dyn PostRender>,
    pub post_render_strategy: PostRenderStrategy,
    pub limits: gotemplate::Limits,
    /// What answers `lookup`.
    pub lookup: Arc<dyn Lookup>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            dialect: Dialect::Helm4,
            skip_schema_validation: false,
            subchart_notes: false,
            enable_dns: false,
            post_render: None,
            post_render_strategy: PostRenderStrategy::Combined,
            // Public charts generate dozens of certificates, each of which counts half a million steps.
            limits: gotemplate::Limits { steps: 40_000_000, ..gotemplate::Limits::default() },
            lookup: Arc::new(NoCluster),
        }
    }
}

/// A rendered chart.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// In install order.
    pub manifests: Vec<Manifest>,
    /// In kind order; a run sorts those of its event by weight.
    pub hooks: Vec<Hook>,
    pub notes: String,
    pub crds: Vec<Crd>,
    /// The chart's metadata as the release sees it: only enabled dependencies, under their aliases.
    pub metadata: Metadata,
    /// The chart's defaults as the release sees them, imported values included.
    pub chart_values: serde_json::Map<String, Json>,
    /// What Helm would have logged.
    pub warnings: Vec<String>,
}

/// A file below `crds/` of the chart or a subchart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crd {
    /// `chart/charts/sub/crds/x.yaml`.
    pub path: String,
    pub data: Bytes,
}

impl Rendered {
    /// The release's manifest as Helm stores and prints it.
    pub fn manifest(&self, include_crds: bool) -> String {
        manifest_of(self.documents(include_crds))
    }

    /// Path and content of each document of the manifest, CRDs first.
    pub fn documents(&self, include_crds: bool) -> impl Iterator<Item = (&str, &[u8])> {
        let crds =
            self.crds.iter().filter(move |_| include_crds).map(|crd| (crd.path.as_str(), &crd.data[..]));
        crds.chain(self.manifests.iter().map(|m| (m.path.as_str(), m.content.as_bytes())))
    }
}

/// Documents as one text, each with the path of its template unless it came from elsewhere.
fn manifest_of<'d>(documents: impl Iterator<Item = (&'d str, &'d [u8])>) -> String {
    let documents: Vec<_> = documents.collect();
    let size = documents.iter().map(|(path, content)| path.len() + content.len() + 32).sum();
    let mut out = String::with_capacity(size);
    for (path, content) in documents {
        out.push_str("---\n");
        if !path.is_empty() {
            out.extend(["# Source: ", path, "\n"]);
        }
        out.push_str(&text_of(content));
        out.push('\n');
    }
    out
}

/// Checking first is much faster than the lossy conversion, which is hardly ever needed.
fn text_of(data: &[u8]) -> std::borrow::Cow<'_, str> {
    match std::str::from_utf8(data) {
        Ok(text) => text.into(),
        Err(_) => String::from_utf8_lossy(data),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// Subcharts whose values are no tables. Helm 4 says first what failed, Helm 3 does not.
    #[error("{}{cause}", if *.dialect == Dialect::Helm4 { "chart dependencies processing failed: " } else { "" })]
    Dependencies { cause: String, dialect: Dialect },
    #[error("{0}")]
    Values(String),
    #[error("values don't meet the specifications of the schema(s) in the following chart(s):\n{0}")]
    Schema(String),
    #[error("chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {found}")]
    KubeVersion { wanted: String, found: String },
    /// A template that does not parse or fails; the text is Helm's.
    #[error("{0}")]
    Template(String),
    /// A template that costs too much.
    #[error("{text}")]
    Limit { text: String, limit: gotemplate::Limit },
    /// Output that is no YAML.
    #[error("{0}")]
    Manifest(String),
    #[error("{0}")]
    PostRender(String),
}

impl RenderError {
    /// Whether Helm fails before it has a release to show; `helm template` words its advice by that.
    pub fn is_before_rendering(&self) -> bool {
        matches!(self, RenderError::Dependencies { .. } | RenderError::Values(_) | RenderError::Schema(_))
    }
}

/// Renders a chart. Charts of any depth and templates that call themselves are handled within the limits of `options`, on a stack
/// of their own.
pub fn render(
    chart: &Chart,
    values: &Values,
    release: &ReleaseOptions,
    capabilities: &Capabilities,
    host: &(dyn Host + Sync),
    options: &Options<'_>,
) -> Result<Rendered, RenderError> {
    run(chart, values, release, capabilities, host, options)
}

/// The CRDs of a chart and of the subcharts that the values enable. They are applied before anything is rendered, since
/// templates may ask whether the cluster knows their kinds.
pub fn crds(chart: &Chart, values: &Values, dialect: Dialect) -> Result<Vec<Crd>, RenderError> {
    let given = table(values.as_map());
    let node = dependencies::process(chart, &given, dialect, &mut Vec::new())
        .map_err(|cause| RenderError::Dependencies { cause, dialect })?;
    let mut found = Vec::new();
    collect_crds(&node, &Place::root(), dialect, &mut found);
    Ok(found)
}

/// The text of every template, NOTES included, before it is split into manifests. For tools that show templates one by one.
pub fn render_files(
    chart: &Chart,
    values: &Values,
    release: &ReleaseOptions,
    capabilities: &Capabilities,
    host: &(dyn Host + Sync),
    options: &Options<'_>,
) -> Result<BTreeMap<String, String>, RenderError> {
    texts(chart, values, release, capabilities, host, options, &mut Vec::new()).map(|(_, files)| files)
}

fn run(
    chart: &Chart,
    values: &Values,
    release: &ReleaseOptions,
    capabilities: &Capabilities,
    host: &dyn Host,
    options: &Options<'_>,
) -> Result<Rendered, RenderError> {
    let dialect = options.dialect;
    let mut warnings = Vec::new();
    let (node, mut files) = texts(chart, values, release, capabilities, host, options, &mut warnings)?;
    let notes = take_notes(&mut files, node.name(), options.subchart_notes);
    if let Some(post_render) = options.post_render.filter(|_| dialect == Dialect::Helm4) {
        files = post_rendered(files, post_render, options.post_render_strategy, &mut warnings)?;
    }
    let texts = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    let mut sorted =
        sort_manifests(texts, KindOrder::Install, dialect, &mut warnings).map_err(RenderError::Manifest)?;
    if let Some(post_render) = options.post_render.filter(|_| dialect == Dialect::Helm3) {
        let documents = sorted.manifests.iter().map(|m| (m.path.as_str(), m.content.as_bytes()));
        sorted.manifests = crate::post_render::run_on_manifest(manifest_of(documents), post_render)
            .map_err(RenderError::PostRender)?;
    }
    let mut crds = Vec::new();
    collect_crds(&node, &Place::root(), dialect, &mut crds);
    let Json::Object(chart_values) = to_json(&Value::Map(node.values().clone())) else {
        unreachable!("a table is a JSON object")
    };
    Ok(Rendered {
        manifests: sorted.manifests,
        hooks: sorted.hooks,
        notes,
        crds,
        metadata: node.metadata().clone(),
        chart_values,
        warnings,
    })
}

fn post_rendered(
    files: BTreeMap<String, String>,
    post_render: &dyn PostRender,
    strategy: PostRenderStrategy,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, RenderError> {
    let with_hooks = match strategy {
        PostRenderStrategy::Combined => {
            return crate::post_render::run(files, post_render).map_err(RenderError::PostRender);
        }
        PostRenderStrategy::Separate => true,
        PostRenderStrategy::NoHooks => false,
    };
    let texts = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    let sorted =
        sort_manifests(texts, KindOrder::Install, Dialect::Helm4, warnings).map_err(RenderError::Manifest)?;
    let mut apart: [BTreeMap<String, String>; 2] = Default::default();
    let documents = sorted
        .hooks
        .iter()
        .map(|hook| (0, &hook.path, &hook.manifest))
        .chain(sorted.manifests.iter().map(|manifest| (1, &manifest.path, &manifest.content)));
    for (group, path, text) in documents {
        let whole = apart[group].entry(path.clone()).or_default();
        if !whole.is_empty() {
            whole.push_str("\n---\n");
        }
        whole.push_str(text);
    }
    let [hooks, manifests] = apart;
    crate::post_render::run_apart(hooks, manifests, with_hooks, post_render).map_err(RenderError::PostRender)
}

fn texts<'c>(
    chart: &'c Chart,
    values: &Values,
    release: &ReleaseOptions,
    capabilities: &Capabilities,
    host: &dyn Host,
    options: &Options<'_>,
    warnings: &mut Vec<String>,
) -> Result<(Node<'c>, BTreeMap<String, String>), RenderError> {
    let dialect = options.dialect;
    let given = table(values.as_map());
    let node = dependencies::process(chart, &given, dialect, warnings)
        .map_err(|cause| RenderError::Dependencies { cause, dialect })?;
    let coalesced = coalesce_values(&node, &given, Coalescing::Coalesce, dialect, warnings)
        .map_err(RenderError::Values)?;
    if !options.skip_schema_validation && has_schema(&node) {
        let Json::Object(tree) = to_json(&Value::Map(coalesced.clone())) else {
            unreachable!("a table is a JSON object")
        };
        schema::check_tree(&node, &tree).map_err(RenderError::Schema)?;
    }
    check_kube_version(&node, capabilities)?;
    let files = templates(&node, coalesced, release, capabilities, host, options)?;
    Ok((node, files))
}

fn has_schema(node: &Node<'_>) -> bool {
    node.chart().schema.is_some() || node.children().iter().any(has_schema)
}

fn check_kube_version(node: &Node<'_>, capabilities: &Capabilities) -> Result<(), RenderError> {
    let wanted = &node.metadata().kube_version;
    if wanted.is_empty() || dependencies::compatible(wanted, capabilities.kube_version.normalized()) {
        return Ok(());
    }
    Err(RenderError::KubeVersion { wanted: wanted.clone(), found: capabilities.kube_version.version.clone() })
}

/// A template file and what it is executed with.
struct Renderable<'c> {
    data: &'c Bytes,
    scope: Map,
    base_path: String,
}

fn templates(
    node: &Node<'_>,
    values: Map,
    release: &ReleaseOptions,
    capabilities: &Capabilities,
    host: &dyn Host,
    options: &Options<'_>,
) -> Result<BTreeMap<String, String>, RenderError> {
    let mut found = BTreeMap::new();
    let shared = Shared {
        release: objects::release(release),
        capabilities: objects::capabilities(capabilities, options.dialect),
        dialect: options.dialect,
    };
    collect_templates(node, &Place::root(), objects::values(values, options.dialect), &shared, &mut found);
    let order = render_order(&found);
    let set = parse_all(node.chart(), &found, &order, options)?;
    let extension = functions::Extension::new(options.lookup.clone());
    let session = Session::new(host, options.limits.clone()).with_extension(Rc::new(extension));
    let mut rendered = BTreeMap::new();
    for name in order {
        let base = name.rsplit('/').next().unwrap_or(name);
        if base.starts_with('_') {
            continue;
        }
        let renderable = &found[name];
        renderable.scope.set("Template", objects::template(name, &renderable.base_path, options.dialect));
        let data = Value::Map(renderable.scope.clone());
        let output = set
            .execute(&session, name, &data)
            .map_err(|error| errors::execution(&error, name, options.dialect))?;
        rendered.insert(name.clone(), without_no_value(output));
    }
    Ok(rendered)
}

fn parse_all(
    chart: &Chart,
    found: &BTreeMap<String, Renderable<'_>>,
    order: &[&String],
    options: &Options<'_>,
) -> Result<Arc<Set>, RenderError> {
    let table = functions::table(options.dialect, options.enable_dns);
    let templates = order.iter().map(|name| (*name, found[*name].data));
    let key = Key::new(templates.clone(), Arc::as_ptr(&table).cast::<()>() as usize);
    if let Some(set) = chart.parsed.get(&key) {
        return Ok(set);
    }
    let mut set = Set::new(table).missing_key(MissingKey::Zero);
    let texts: Vec<_> = order.iter().map(|name| (name.as_str(), text_of(found[*name].data))).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
    set.parse_all(&texts).map_err(|(at, error)| errors::parsing(&error, order[at]))?;
    let set = Arc::new(set);
    chart.parsed.keep(key, &set, templates.map(|(_, data)| data.clone()).collect());
    Ok(set)
}

struct Shared {
    release: Value,
    capabilities: Value,
    dialect: Dialect,
}

/// Where a chart stands below the outermost one.
struct Place {
    /// `parent/charts/child`, empty above the outermost chart.
    path: String,
}

impl Place {
    fn root() -> Place {
        Place { path: String::new() }
    }

    fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    fn of(&self, name: &str) -> String {
        if self.is_root() { name.to_owned() } else { format!("{}/charts/{name}", self.path) }
    }

    /// The place of a chart's subcharts. In Helm 3 their paths go through the chart's own name even where it has an alias, unless
    /// the chart lists them as dependencies.
    fn below(&self, node: &Node<'_>, dialect: Dialect) -> Place {
        let name = match dialect {
            Dialect::Helm3 if node.chart().metadata.dependencies.is_none() => node.chart().name(),
            Dialect::Helm4 | Dialect::Helm3 => node.name(),
        };
        Place { path: self.of(name) }
    }
}

fn collect_templates<'c>(
    node: &Node<'c>,
    place: &Place,
    values: Value,
    shared: &Shared,
    found: &mut BTreeMap<String, Renderable<'c>>,
) -> Map {
    let path = place.of(node.name());
    let below = place.below(node, shared.dialect);
    let subcharts = Map::new();
    let scope = objects::typed(
        Map::from_entries([
            ("Chart", objects::chart(node.metadata(), place.is_root(), shared.dialect)),
            ("Files", objects::files(&node.chart().files)),
            ("Release", shared.release.clone()),
            ("Capabilities", shared.capabilities.clone()),
            ("Values", values.clone()),
            ("Subcharts", Value::Map(subcharts.clone())),
        ]),
        shared.dialect,
    );
    for child in node.children() {
        let own = match values.lookup(child.name()) {
            Some(own @ Value::Map(_)) => own,
            _ => Value::Map(Map::new()),
        };
        let child_scope = collect_templates(child, &below, own, shared, found);
        subcharts.set(child.name(), Value::Map(child_scope));
    }
    let library = node.metadata().chart_type() == Type::Library;
    for file in &node.chart().templates {
        let base = file.name.rsplit('/').next().unwrap_or(&file.name);
        if library && !base.starts_with('_') {
            continue;
        }
        let name = crate::chart::clean(&format!("{path}/{}", file.name));
        let renderable =
            Renderable { data: &file.data, scope: scope.clone(), base_path: format!("{path}/templates") };
        found.insert(name, renderable);
    }
    scope
}

/// Deeper files first, and within a depth in reverse: so a parent's definitions replace those of its subcharts, and the first file
/// by name wins.
fn render_order<'f>(found: &'f BTreeMap<String, Renderable<'_>>) -> Vec<&'f String> {
    let mut names: Vec<&String> = found.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse((name.matches('/').count(), *name)));
    names
}

/// Helm's `missingkey=zero` still leaves `<no value>` behind for interfaces, so Helm takes the words out.
fn without_no_value(output: Vec<u8>) -> String {
    let text = match String::from_utf8(output) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    if text.contains("<no value>") { text.replace("<no value>", "") } else { text }
}

fn take_notes(files: &mut BTreeMap<String, String>, chart: &str, subcharts: bool) -> String {
    const SUFFIX: &str = "NOTES.txt";
    let own = format!("{chart}/templates/{SUFFIX}");
    let mut notes = String::new();
    files.retain(|path, text| {
        if !path.ends_with(SUFFIX) {
            return true;
        }
        if subcharts || *path == own {
            if !notes.is_empty() {
                notes.push('\n');
            }
            notes.push_str(text);
        }
        false
    });
    notes
}

fn collect_crds(node: &Node<'_>, place: &Place, dialect: Dialect, found: &mut Vec<Crd>) {
    let path = place.of(node.name());
    found.extend(
        node.chart()
            .crds()
            .map(|file| Crd { path: format!("{path}/{}", file.name), data: file.data.clone() }),
    );
    let below = place.below(node, dialect);
    for child in node.children() {
        collect_crds(child, &below, dialect, found);
    }
}
