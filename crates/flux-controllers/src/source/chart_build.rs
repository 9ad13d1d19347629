//! From a chart somewhere to the archive that is stored: version, values and subcharts put in as the HelmChart says.
//!
//! Pure decisions over bytes and trees; fetching is the business of [`super::helm_chart`].

use std::io::Read;

use file_tree::{Files, Kind, TreePath};
use flate2::read::MultiGzDecoder;
use helm::{Chart, Dependency, Dialect, Limits, Metadata, Values};
use semver_range::{Constraint, Version};

/// How much of an archive is looked at for its metadata.
const LARGEST_UNPACKED: u64 = 100 << 20;

/// Why there is no chart; each is a condition's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Reference,
    Pull,
    MetadataPatch,
    ValuesFiles,
    Dependencies,
    Package,
    Verification,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Reference => "InvalidChartReference",
            Reason::Pull => "ChartPullError",
            Reason::MetadataPatch => "MetadataPatchError",
            Reason::ValuesFiles => "ValuesFilesError",
            Reason::Dependencies => "DependencyBuildError",
            Reason::Package => "ChartPackageError",
            Reason::Verification => "ChartVerificationError",
        }
    }

    fn summary(self) -> &'static str {
        match self {
            Reason::Reference => "invalid chart reference",
            Reason::Pull => "chart pull error",
            Reason::MetadataPatch => "chart metadata patch error",
            Reason::ValuesFiles => "values files merge error",
            Reason::Dependencies => "dependency build error",
            Reason::Package => "chart package error",
            Reason::Verification => "chart verification error",
        }
    }

    /// Whether only a change of the object or its source can help.
    pub fn is_persistent(self) -> bool {
        match self {
            Reason::Reference | Reason::MetadataPatch | Reason::ValuesFiles => true,
            Reason::Pull | Reason::Dependencies | Reason::Package | Reason::Verification => false,
        }
    }

    /// Whether the chart was there and could not be made into an artifact.
    pub fn is_of_the_build(self) -> bool {
        match self {
            Reason::Reference | Reason::Pull => false,
            Reason::MetadataPatch
            | Reason::ValuesFiles
            | Reason::Dependencies
            | Reason::Package
            | Reason::Verification => true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", reason.summary())]
pub struct BuildError {
    pub reason: Reason,
    pub cause: String,
}

impl BuildError {
    pub fn new(reason: Reason, cause: impl ToString) -> Self {
        Self { reason, cause: cause.to_string() }
    }
}

/// Values put together, and the files they came from.
pub type Merged = (Values, Vec<String>);

/// What the HelmChart asks for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Goes behind the `+` of the version.
    pub version_metadata: String,
    pub values_files: Vec<String>,
    pub ignore_missing_values_files: bool,
    pub largest_file: u64,
}

impl Wishes {
    /// The files to merge; the chart's own defaults alone are no wish.
    pub fn files(&self) -> &[String] {
        match self.values_files.as_slice() {
            [only] if clean(only) == "values.yaml" => &[],
            files => files,
        }
    }

    pub fn needs_packaging(&self) -> bool {
        !self.files().is_empty() || !self.version_metadata.is_empty()
    }

    /// The version of the artifact for a chart of `version`.
    pub fn version(&self, version: &str) -> Result<String, BuildError> {
        if self.version_metadata.is_empty() {
            return Ok(version.to_owned());
        }
        let failed = |problem: &str, error: String| {
            BuildError::new(Reason::MetadataPatch, format!("{problem}: {error}"))
        };
        let parsed = Version::parse(version).map_err(|error| {
            failed("failed to parse version from chart metadata as SemVer", error.to_string())
        })?;
        let with = parsed
            .with_metadata(&self.version_metadata)
            .map_err(|error| failed("failed to set SemVer metadata on chart version", error.to_string()))?;
        Ok(with.to_string())
    }
}

/// A chart that is ready, or that was ready before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    pub name: String,
    pub version: String,
    pub packaged: bool,
    pub values_files: Vec<String>,
    pub resolved_dependencies: usize,
    /// The archive; `None` when the stored one is still it.
    pub archive: Option<Vec<u8>>,
    pub verified: bool,
}

impl Build {
    /// What was done, as conditions and events say it.
    pub fn summary(&self) -> String {
        let action = if self.packaged { "packaged" } else { "pulled" };
        self.told(action)
    }

    /// The same before it is done.
    pub fn announcement(&self) -> String {
        self.told("new")
    }

    fn told(&self, action: &str) -> String {
        let mut text = format!("{action} '{}' chart with version '{}'", self.name, self.version);
        if !self.values_files.is_empty() {
            text.push_str(&format!(" and merged values files [{}]", self.values_files.join(" ")));
        }
        text
    }

    pub fn reason(&self) -> &'static str {
        if self.packaged { "ChartPackageSucceeded" } else { "ChartPullSucceeded" }
    }
}

/// Whether `name` can be the name of a chart in a repository.
pub fn check_name(name: &str) -> Result<(), BuildError> {
    if name.is_empty() {
        return Err(BuildError::new(Reason::Reference, "no name set for remote chart reference"));
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    // One or more of: letters, then perhaps a slash, then perhaps a period.
    let mut rest = name;
    loop {
        let letters = rest.find(|c| !allowed(c)).unwrap_or(rest.len());
        if letters == 0 {
            return Err(BuildError::new(
                Reason::Reference,
                format!(
                    "invalid chart name '{name}': a valid name must be lower case letters and numbers and MAY be separated with dashes (-), slashes (/) or periods (.)"
                ),
            ));
        }
        rest = &rest[letters..];
        rest = rest.strip_prefix('/').unwrap_or(rest);
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// A downloaded archive becomes the artifact: as it is, or packed again with other values.
pub fn from_archive(bytes: Vec<u8>, version: String, wishes: &Wishes) -> Result<Build, BuildError> {
    if !wishes.needs_packaging() {
        let mut metadata = archive_metadata(&bytes, wishes.largest_file).map_err(|error| {
            BuildError::new(
                Reason::Pull,
                format!("failed to load chart metadata from written chart: {error}"),
            )
        })?;
        metadata.check().map_err(|error| {
            let cause = format!("failed to validate metadata of written chart: validation: {error}");
            BuildError::new(Reason::Pull, cause)
        })?;
        return Ok(Build { name: metadata.name, version, archive: Some(bytes), ..Build::default() });
    }
    let mut chart = Chart::from_archive(&bytes, Limits::default(), Dialect::Helm4).map_err(|error| {
        BuildError::new(Reason::Package, format!("failed to load downloaded chart: {error}"))
    })?;
    let (values, used) = chart_values(&chart, wishes).map_err(|error| {
        BuildError::new(Reason::ValuesFiles, format!("failed to merge chart values: {error}"))
    })?;
    package(&mut chart, version, Some((values, used)))
}

/// The defaults of a chart and files of its own, merged in the order that was asked for.
fn chart_values(chart: &Chart, wishes: &Wishes) -> Result<Merged, String> {
    let (mut merged, mut used) = (Values::new(), Vec::new());
    for path in wishes.files() {
        let name = clean(path);
        if name == "values.yaml" {
            merged.merge(Values::from_map(chart.values.clone().unwrap_or_default()));
            used.push(path.clone());
            continue;
        }
        let Some(file) = chart.files.iter().find(|file| file.name == name) else {
            if wishes.ignore_missing_values_files {
                continue;
            }
            return Err(format!("no values file found at path '{path}'"));
        };
        merged.merge(read_values(&file.data, path)?);
        used.push(path.clone());
    }
    Ok((merged, used))
}

fn read_values(data: &[u8], path: &str) -> Result<Values, String> {
    Values::from_yaml(data, Dialect::Helm4)
        .map_err(|error| format!("unmarshaling values from '{path}' failed: {error}"))
}

/// Where a chart lies in a source.
pub struct Local<'a> {
    pub files: &'a dyn Files,
    pub path: TreePath,
    pub is_folder: bool,
    pub metadata: Metadata,
}

impl<'a> Local<'a> {
    /// Finds the chart at `path` and reads what it says of itself.
    pub fn find(files: &'a dyn Files, path: &str, largest_file: u64) -> Result<Self, BuildError> {
        let wrong = |cause: String| BuildError::new(Reason::Reference, cause);
        if path.is_empty() {
            return Err(wrong("no path set for local chart reference".to_owned()));
        }
        if path.starts_with('/') {
            return Err(wrong("local chart reference path is expected to be relative".to_owned()));
        }
        let at = TreePath::parse(path).map_err(|error| wrong(error.to_string()))?;
        let is_folder = match files.kind(&at) {
            Some(Kind::Folder) => true,
            Some(Kind::File) => false,
            None => return Err(wrong(format!("stat {at}: no such file or directory"))),
        };
        let mut metadata = match is_folder {
            true => folder_metadata(files, &at, largest_file),
            false => files
                .read(&at)
                .map_err(|error| error.to_string())
                .and_then(|bytes| archive_metadata(&bytes, largest_file)),
        }
        .map_err(wrong)?;
        metadata.check().map_err(|error| wrong(format!("validation: {error}")))?;
        Ok(Self { files, path: at, is_folder, metadata })
    }

    /// Whether the artifact is not simply the archive that lies there.
    pub fn needs_packaging(&self, wishes: &Wishes) -> bool {
        self.is_folder || wishes.needs_packaging()
    }

    /// Loads the chart with its values put in. Subcharts are still to be added, see [`missing_dependencies`].
    pub fn load(&self, wishes: &Wishes) -> Result<(Chart, Option<Merged>), BuildError> {
        let values = match wishes.files().is_empty() {
            true => None,
            false => Some(
                source_values(self.files, wishes)
                    .map_err(|cause| BuildError::new(Reason::ValuesFiles, cause))?,
            ),
        };
        let chart = load_local(self.files, &self.path).map_err(|cause| {
            BuildError::new(Reason::Package, format!("failed to load chart from /{}: {cause}", self.path))
        })?;
        let too_large = chart
            .templates
            .iter()
            .chain(&chart.files)
            .find(|file| file.data.len() as u64 > wishes.largest_file);
        if let Some(file) = too_large {
            let cause = format!(
                "failed to load files from /{}/: cannot load file {} as file size ({}) exceeds limit ({})",
                self.path,
                file.name,
                file.data.len(),
                wishes.largest_file
            );
            return Err(BuildError::new(Reason::Package, cause));
        }
        Ok((chart, values))
    }

    /// The archive as it lies there.
    pub fn copy(&self, version: String) -> Result<Build, BuildError> {
        let bytes = self.files.read(&self.path).map_err(|error| BuildError::new(Reason::Pull, error))?;
        let name = self.metadata.name.clone();
        Ok(Build { name, version, archive: Some(bytes.into_owned()), ..Build::default() })
    }
}

/// A chart in a source, as a folder or an archive.
pub fn load_local(files: &dyn Files, at: &TreePath) -> Result<Chart, String> {
    let loaded = match files.kind(at) {
        Some(Kind::File) => {
            let bytes = files.read(at).map_err(|error| error.to_string())?;
            Chart::from_archive(&bytes, Limits::default(), Dialect::Helm4)
        }
        Some(Kind::Folder) | None => Chart::from_tree(files, at, Limits::default(), Dialect::Helm4),
    };
    loaded.map_err(|error| error.to_string())
}

/// Files of the source, merged in the order that was asked for.
fn source_values(files: &dyn Files, wishes: &Wishes) -> Result<Merged, String> {
    let (mut merged, mut used) = (Values::new(), Vec::new());
    for path in &wishes.values_files {
        let at = TreePath::parse(path.trim_start_matches('/')).map_err(|error| error.to_string())?;
        match files.kind(&at) {
            Some(Kind::File) => {}
            None if wishes.ignore_missing_values_files => continue,
            Some(Kind::Folder) | None => {
                return Err(format!("no values file found at path '/{at}' (reference '{path}')"));
            }
        }
        let bytes =
            files.read(&at).map_err(|error| format!("could not read values from file '{path}': {error}"))?;
        merged.merge(read_values(&bytes, path)?);
        used.push(path.clone());
    }
    Ok((merged, used))
}

/// Packs a chart under `version` with `values`, if any, as its defaults.
pub fn package(chart: &mut Chart, version: String, values: Option<Merged>) -> Result<Build, BuildError> {
    let mut build = Build { name: chart.metadata.name.clone(), version, packaged: true, ..Build::default() };
    chart.metadata.version = build.version.clone();
    if let Some((values, used)) = values {
        let changed =
            chart.replace_values(&values).map_err(|error| BuildError::new(Reason::ValuesFiles, error))?;
        if changed {
            build.values_files = used;
        }
    }
    let archive = chart
        .package()
        .map_err(|error| BuildError::new(Reason::Package, format!("failed to package chart: {error}")))?;
    build.archive = Some(archive);
    Ok(build)
}

/// The dependencies that the chart asks for, by its lock file where it has one, and does not come with.
pub fn missing_dependencies(chart: &Chart) -> Result<Vec<Dependency>, BuildError> {
    let locked = chart.lock.as_ref().map(locked_dependencies).transpose();
    let locked = locked.map_err(|cause| BuildError::new(Reason::Dependencies, cause))?;
    let wanted = locked.or_else(|| chart.metadata.dependencies.clone()).unwrap_or_default();
    // As upstream: as many as are wanted are taken to be the ones that are wanted.
    if chart.subcharts.len() == wanted.len() {
        return Ok(Vec::new());
    }
    let has = |name: &str| chart.subcharts.iter().any(|subchart| subchart.name() == name);
    Ok(wanted.into_iter().filter(|dependency| !has(local_name(dependency))).collect())
}

fn locked_dependencies(lock: &serde_json::Value) -> Result<Vec<Dependency>, String> {
    let fields = serde_json::Map::from_iter([(
        "dependencies".to_owned(),
        lock.get("dependencies").cloned().unwrap_or_default(),
    )]);
    Ok(Metadata::from_fields(&fields)?.dependencies.unwrap_or_default())
}

/// What a dependency is called in the chart that has it.
pub fn local_name(dependency: &Dependency) -> &str {
    if dependency.alias.is_empty() { &dependency.name } else { &dependency.alias }
}

pub fn is_local(dependency: &Dependency) -> bool {
    dependency.repository.is_empty() || dependency.repository.starts_with("file://")
}

/// A dependency that lies in the same source.
pub fn local_dependency(
    files: &dyn Files,
    chart: &TreePath,
    dependency: &Dependency,
) -> Result<Chart, String> {
    let path = match dependency.repository.strip_prefix("file://") {
        Some(path) => path.to_owned(),
        None => format!("charts/{}", dependency.name),
    };
    let at = chart.join(path.trim_start_matches('/')).map_err(|error| error.to_string())?;
    if files.kind(&at).is_none() {
        return Err(format!("no chart found at '/{at}' (reference '{}')", dependency.repository));
    }
    let range = Constraint::parse(&dependency.version)
        .map_err(|error| format!("invalid version/constraint format '{}': {error}", dependency.version))?;
    let loaded = load_local(files, &at).map_err(|error| {
        format!("failed to load chart from '/{at}' (reference '{}'): {error}", dependency.repository)
    })?;
    let version = Version::parse(&loaded.metadata.version).map_err(|error| error.to_string())?;
    if !range.check(&version) {
        return Err(format!("can't get a valid version for constraint '{}'", dependency.version));
    }
    Ok(loaded)
}

/// Puts a dependency into its chart.
pub fn add_dependency(chart: &mut Chart, mut subchart: Chart, dependency: &Dependency) {
    if !dependency.alias.is_empty() {
        subchart.metadata.name = dependency.alias.clone();
    }
    chart.subcharts.push(subchart);
}

fn folder_metadata(files: &dyn Files, at: &TreePath, largest: u64) -> Result<Metadata, String> {
    let read = |name: &str| files.read(&at.child(name));
    let chart_yaml = read("Chart.yaml").map_err(|error| error.to_string())?;
    let mut text = chart_yaml.into_owned();
    if files.kind(&at.child("requirements.yaml")) == Some(Kind::File) {
        let more = read("requirements.yaml").map_err(|error| error.to_string())?;
        text.extend_from_slice(b"\n");
        text.extend_from_slice(&more);
    }
    if text.len() as u64 > largest {
        return Err(format!("size of 'Chart.yaml' exceeds '{largest}' bytes limit"));
    }
    Metadata::from_yaml(&text).map_err(|error| format!("cannot load 'Chart.yaml': {error}"))
}

/// What the `Chart.yaml` in an archive says; nothing else of it is read.
pub fn archive_metadata(archive: &[u8], largest: u64) -> Result<Metadata, String> {
    let unpacked = MultiGzDecoder::new(archive).take(LARGEST_UNPACKED);
    let mut archive = tar::Archive::new(unpacked);
    let mut found: Option<Vec<u8>> = None;
    for entry in archive.entries().map_err(|error| error.to_string())? {
        let mut entry = entry.map_err(|error| error.to_string())?;
        if entry.header().entry_type().is_dir() {
            continue;
        }
        let full_name = String::from_utf8_lossy(&entry.path_bytes()).replace('\\', "/");
        let Some((_, name)) = full_name.split_once('/') else {
            return Err(format!("chart illegally contains content outside the base directory: {full_name}"));
        };
        if name.starts_with('/') {
            return Err("chart illegally contains absolute paths".to_owned());
        }
        if name.split('/').any(|part| part == "..") {
            return Err("chart illegally references parent directory".to_owned());
        }
        if name != "Chart.yaml" && name != "requirements.yaml" {
            continue;
        }
        if entry.size() > largest {
            return Err(format!("size of '{full_name}' exceeds '{largest}' bytes limit"));
        }
        let text = found.get_or_insert_default();
        text.extend_from_slice(b"\n");
        entry.read_to_end(text).map_err(|error| error.to_string())?;
    }
    let text = found.ok_or("no 'Chart.yaml' found")?;
    Metadata::from_yaml(&text).map_err(|error| format!("cannot load 'Chart.yaml': {error}"))
}

/// `./a//b/../c` as `a/c`.
fn clean(path: &str) -> String {
    TreePath::parse(path).map_or_else(|_| path.to_owned(), |path| path.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_tree::MemoryTree;

    const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.2.3\n";

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        MemoryTree::from_texts(files.iter().copied()).unwrap()
    }

    fn wishes(values_files: &[&str], metadata: &str) -> Wishes {
        Wishes {
            version_metadata: metadata.to_owned(),
            values_files: values_files.iter().map(|file| (*file).to_owned()).collect(),
            ignore_missing_values_files: false,
            largest_file: 1 << 20,
        }
    }

    fn build(files: &MemoryTree, path: &str, wishes: &Wishes) -> Result<Build, BuildError> {
        let local = Local::find(files, path, 1 << 20)?;
        let version = wishes.version(&local.metadata.version)?;
        let (mut chart, values) = local.load(wishes)?;
        package(&mut chart, version, values)
    }

    fn loaded(build: &Build) -> Chart {
        let archive = build.archive.as_ref().unwrap();
        Chart::from_archive(archive, Limits::default(), Dialect::Helm4).unwrap()
    }

    #[test]
    fn names_have_the_letters_upstream_allows() {
        for good in ["podinfo", "a-b", "org/app", "a.b", "org/.app"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "Podinfo", "a b", "/a", "a//b", "..", "a_b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_files_of_the_source_become_the_defaults() {
        let files = tree(&[
            ("charts/app/Chart.yaml", CHART),
            ("charts/app/values.yaml", "a: 1\nb: 1\n"),
            ("env/prod.yaml", "b: 2\nc: {d: 3}\n"),
        ]);
        let found = build(&files, "./charts/app", &wishes(&["charts/app/values.yaml", "env/prod.yaml"], "7"))
            .unwrap();
        assert_eq!(
            found.summary(),
            "packaged 'app' chart with version '1.2.3+7' and merged values files [charts/app/values.yaml env/prod.yaml]"
        );
        let chart = loaded(&found);
        assert_eq!(chart.metadata.version, "1.2.3+7");
        assert_eq!(serde_json::to_string(&chart.values).unwrap(), r#"{"a":1.0,"b":2.0,"c":{"d":3.0}}"#);
    }

    #[test]
    fn a_missing_values_file_is_an_error_unless_it_may_be_missing() {
        let files = tree(&[("app/Chart.yaml", CHART), ("app/values.yaml", "a: 1\n")]);
        let mut wishes = wishes(&["nope.yaml"], "1");
        let error = build(&files, "app", &wishes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "values files merge error: no values file found at path '/nope.yaml' (reference 'nope.yaml')"
        );
        assert!(error.reason.is_persistent());
        wishes.ignore_missing_values_files = true;
        assert_eq!(
            loaded(&build(&files, "app", &wishes).unwrap()).values.map(|values| values.len()),
            Some(0)
        );
    }

    #[test]
    fn references_that_lead_nowhere_or_out_are_refused() {
        let files = tree(&[
            ("app/Chart.yaml", CHART),
            ("bad/Chart.yaml", "name: [\n"),
            ("old/Chart.yaml", "name: x\n"),
        ]);
        for path in ["", "/app", "nope", "../app", "bad", "old", "app/Chart.yaml"] {
            let error = Local::find(&files, path, 1 << 20).err().map(|error| error.reason);
            assert_eq!(error, Some(Reason::Reference), "{path}");
        }
    }

    #[test]
    fn dependencies_come_from_the_lock_and_from_the_source() {
        let files = tree(&[
            (
                "app/Chart.yaml",
                "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n- {name: lib, version: 1.x, repository: 'file://../lib'}\n- {name: far, version: '*', repository: 'https://x'}\n",
            ),
            (
                "app/Chart.lock",
                "dependencies:\n- {name: lib, version: 1.0.5, repository: 'file://../lib', alias: l}\ndigest: x\n",
            ),
            ("lib/Chart.yaml", "apiVersion: v2\nname: lib\nversion: 1.0.5\n"),
        ]);
        let mut chart = load_local(&files, &TreePath::parse("app").unwrap()).unwrap();
        let missing = missing_dependencies(&chart).unwrap();
        assert_eq!(missing.len(), 1);
        assert!(is_local(&missing[0]));
        let at = TreePath::parse("app").unwrap();
        let mut lib = missing[0].clone();
        let found = local_dependency(&files, &at, &lib).unwrap();
        add_dependency(&mut chart, found, &lib);
        assert_eq!(chart.subcharts[0].name(), "l");
        assert!(missing_dependencies(&chart).unwrap().is_empty());
        lib.version = "2.x".to_owned();
        assert!(local_dependency(&files, &at, &lib).unwrap_err().contains("can't get a valid version"));
        lib.repository = "file://../../../etc".to_owned();
        assert!(local_dependency(&files, &at, &lib).is_err());
    }

    #[test]
    fn an_archive_is_kept_byte_for_byte_where_nothing_is_asked() {
        let files =
            tree(&[("app/Chart.yaml", CHART), ("app/values.yaml", "a: 1\n"), ("app/ci/x.yaml", "a: 2\n")]);
        let archive = load_local(&files, &TreePath::parse("app").unwrap()).unwrap().package().unwrap();
        let found = from_archive(archive.clone(), "1.2.3".to_owned(), &wishes(&["values.yaml"], "")).unwrap();
        assert_eq!(found.archive, Some(archive.clone()));
        assert_eq!(found.summary(), "pulled 'app' chart with version '1.2.3'");
        let found =
            from_archive(archive.clone(), "1.2.3+2".to_owned(), &wishes(&["ci/x.yaml"], "2")).unwrap();
        assert_eq!(serde_json::to_string(&loaded(&found).values).unwrap(), r#"{"a":2.0}"#);
        let damaged = from_archive(archive[..40].to_vec(), "1".to_owned(), &wishes(&[], ""));
        assert_eq!(damaged.unwrap_err().reason, Reason::Pull);
    }
}
