//! The files of an artifact from the files of sources: copy operations, one after another. Pure.
//!
//! They work as `cp -r` does, with upstream's turns: a folder is copied as itself below the destination, `folder/**`
//! copies what is in it, any other pattern keeps the whole path.

use std::collections::{BTreeMap, BTreeSet};

use file_tree::TreePath;
use flux_api::extensions::{CopyOperation, CopyStrategy};
use flux_remote::archive;
use serde_json::{Map, Value};

use super::glob::{self, BadPattern};

/// An artifact is put together in memory.
const LARGEST: usize = 1 << 30;
/// What a tarball may unpack to.
const EXTRACTED: archive::Limits = archive::Limits { bytes: 100 << 20, files: 100_000 };

/// The files of a source.
pub trait Source {
    /// Every file and whether it is executable, in lexical order.
    fn files(&self) -> Vec<(TreePath, bool)>;
    fn read(&self, path: &TreePath) -> Result<Vec<u8>, String>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    pub executable: bool,
    pub bytes: Vec<u8>,
}

/// The files of an artifact in the making.
pub type Staged = BTreeMap<TreePath, StagedFile>;

#[derive(Debug, thiserror::Error)]
#[error("failed to apply copy operations: failed to apply copy operation from '{from}' to '{to}': {cause}")]
pub struct Error {
    from: String,
    to: String,
    cause: Box<Cause>,
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("invalid copy source '{0}': source format must be '@alias/pattern'")]
    From(String),
    #[error("invalid copy destination '{0}': destination must start with '@artifact/'")]
    To(String),
    #[error("source alias '{0}' not found")]
    NoSuchAlias(String),
    #[error("invalid exclude pattern '{0}'")]
    Exclude(String),
    #[error("invalid glob pattern '{pattern}': {cause}")]
    Pattern { pattern: String, cause: BadPattern },
    #[error("source '{0}' does not exist")]
    Missing(String),
    #[error("no files match pattern '{pattern}' in source '{alias}'")]
    NoMatch { pattern: String, alias: String },
    #[error("all files matching pattern '{pattern}' in source '{alias}' were excluded")]
    AllExcluded { pattern: String, alias: String },
    #[error("extract strategy is not supported for directories, got '{0}'")]
    ExtractFolder(String),
    #[error("extract strategy requires tarball file (.tar.gz or .tgz), got '{0}'")]
    NotATarball(String),
    #[error("failed to extract tarball '{path}' to '{to}': {cause}")]
    Extract { path: String, to: String, cause: String },
    #[error("'{0}' leaves the artifact")]
    Escapes(String),
    #[error("failed to copy file '{path}' to '{to}': {cause}")]
    Copy { path: String, to: String, cause: String },
    #[error("the artifact is larger than {LARGEST} bytes")]
    TooLarge,
}

/// Runs the operations in order, each upon what the ones before have left.
pub fn compose(
    operations: &[CopyOperation],
    sources: &BTreeMap<String, &dyn Source>,
) -> Result<Staged, Error> {
    let mut staged = Staged::new();
    for operation in operations {
        let failed =
            |cause| Error { from: operation.from.clone(), to: operation.to.clone(), cause: Box::new(cause) };
        Copy::new(operation, sources).and_then(|copy| copy.run(&mut staged)).map_err(failed)?;
    }
    Ok(staged)
}

struct Copy<'a> {
    strategy: CopyStrategy,
    source: &'a dyn Source,
    alias: &'a str,
    pattern: &'a str,
    to: TreePath,
    /// `to` was written with a slash at its end.
    into_folder: bool,
    exclude: &'a [String],
    files: BTreeMap<TreePath, bool>,
    folders: BTreeSet<TreePath>,
}

impl<'a> Copy<'a> {
    fn new(operation: &'a CopyOperation, sources: &BTreeMap<String, &'a dyn Source>) -> Result<Self, Cause> {
        let from = operation.from.strip_prefix('@').and_then(|from| from.split_once('/'));
        let (alias, pattern) = from.ok_or_else(|| Cause::From(operation.from.clone()))?;
        let to = operation.to.strip_prefix("@artifact/").ok_or_else(|| Cause::To(operation.to.clone()))?;
        let source = *sources.get(alias).ok_or_else(|| Cause::NoSuchAlias(alias.to_owned()))?;
        for exclude in &operation.exclude {
            glob::matches_doublestar(exclude, ".").map_err(|_| Cause::Exclude(exclude.clone()))?;
        }
        let files: BTreeMap<TreePath, bool> = source.files().into_iter().collect();
        let mut folders = BTreeSet::from([TreePath::root()]);
        for file in files.keys() {
            let mut parent = file.parent();
            while let Some(folder) = parent.filter(|folder| !folders.contains(folder)) {
                parent = folder.parent();
                folders.insert(folder);
            }
        }
        Ok(Self {
            strategy: operation.strategy.unwrap_or(CopyStrategy::Overwrite),
            source,
            alias,
            pattern,
            to: TreePath::parse(to).map_err(|_| Cause::Escapes(operation.to.clone()))?,
            into_folder: operation.to.ends_with('/'),
            exclude: &operation.exclude,
            files,
            folders,
        })
    }

    fn run(&self, staged: &mut Staged) -> Result<(), Cause> {
        if self.pattern.contains(['*', '?', '[', ']']) {
            return self.matching(staged);
        }
        let path = TreePath::parse(self.pattern).map_err(|_| Cause::Missing(self.pattern.to_owned()))?;
        if self.folders.contains(&path) {
            if self.strategy == CopyStrategy::Extract {
                return Err(Cause::ExtractFolder(path.to_string()));
            }
            let to = path.file_name().map_or(self.to.clone(), |name| self.to.child(name));
            return self.folder(&path, &to, &path, staged);
        }
        if !self.files.contains_key(&path) {
            return Err(Cause::Missing(path.to_string()));
        }
        if self.excludes(&path, &TreePath::root()) {
            return Ok(());
        }
        if self.strategy == CopyStrategy::Extract {
            if !is_tarball(&path) {
                return Err(Cause::NotATarball(path.to_string()));
            }
            return self.extract(&path, staged);
        }
        let is_folder = self.into_folder || self.to.is_root() || is_staged_folder(staged, &self.to);
        let name = path.file_name().unwrap_or_default();
        let to = if is_folder { self.to.child(name) } else { self.to.clone() };
        self.file(&path, &to, staged)
    }

    fn matching(&self, staged: &mut Staged) -> Result<(), Cause> {
        let about = || (self.pattern.to_owned(), self.alias.to_owned());
        let mut matches = BTreeSet::new();
        for path in self.files.keys().chain(&self.folders).filter(|path| !path.is_root()) {
            let matched = match self.strategy {
                CopyStrategy::Extract => glob::matches_doublestar(self.pattern, path.as_str()),
                CopyStrategy::Overwrite | CopyStrategy::Merge => {
                    glob::matches_parts(self.pattern, path.as_str())
                }
            };
            if matched.map_err(|cause| Cause::Pattern { pattern: self.pattern.to_owned(), cause })? {
                matches.insert(path);
            }
        }
        if matches.is_empty() {
            let (pattern, alias) = about();
            return Err(Cause::NoMatch { pattern, alias });
        }
        let base = literal_prefix(self.pattern);
        matches.retain(|path| !self.excludes(path, &base));
        if matches.is_empty() {
            let (pattern, alias) = about();
            return Err(Cause::AllExcluded { pattern, alias });
        }
        for path in matches {
            if self.strategy == CopyStrategy::Extract {
                // Whatever else the pattern finds is none of its business.
                if self.files.contains_key(path) && is_tarball(path) {
                    self.extract(path, staged)?;
                }
                continue;
            }
            let to = self.destination(path);
            if self.folders.contains(path) {
                self.folder(path, &to, &base, staged)?;
            } else {
                self.file(path, &to, staged)?;
            }
        }
        Ok(())
    }

    /// `folder/**` drops the folder; any other pattern keeps the path.
    fn destination(&self, path: &TreePath) -> TreePath {
        let within = self
            .pattern
            .strip_suffix("/**")
            .and_then(|folder| TreePath::parse(folder).ok())
            .and_then(|folder| path.below(&folder))
            .unwrap_or_else(|| path.clone());
        joined(&self.to, &within)
    }

    /// Copies what is below `path`. Under `Merge` too, files of a folder replace what is there.
    fn folder(
        &self,
        path: &TreePath,
        to: &TreePath,
        base: &TreePath,
        staged: &mut Staged,
    ) -> Result<(), Cause> {
        let below = self.files.keys().filter(|file| file.is_within(path));
        for file in below {
            let mut between = Some(file.clone());
            let mut skipped = false;
            while let Some(at) = between.filter(|at| at != path && at.is_within(path)) {
                skipped = skipped || self.excludes(&at, base);
                between = at.parent();
            }
            if !skipped && let Some(inside) = file.below(path) {
                self.replace(file, &joined(to, &inside), staged)?;
            }
        }
        Ok(())
    }

    fn file(&self, path: &TreePath, to: &TreePath, staged: &mut Staged) -> Result<(), Cause> {
        let Some(below) = staged.get(to).filter(|_| self.strategy == CopyStrategy::Merge) else {
            return self.replace(path, to, staged);
        };
        let failed = |cause| Cause::Copy { path: path.to_string(), to: to.to_string(), cause };
        let above = load(&self.source.read(path).map_err(failed)?).map_err(failed)?;
        let merged = merge(load(&below.bytes).map_err(failed)?, above);
        let text = yaml::to_yaml_sigs(&Value::Object(merged)).map_err(|error| failed(error.to_string()))?;
        let executable = below.executable;
        staged.insert(to.clone(), StagedFile { executable, bytes: text.into_bytes() });
        Ok(())
    }

    fn replace(&self, path: &TreePath, to: &TreePath, staged: &mut Staged) -> Result<(), Cause> {
        let failed = |cause| Cause::Copy { path: path.to_string(), to: to.to_string(), cause };
        let bytes = self.source.read(path).map_err(failed)?;
        let executable = self.files.get(path).copied().unwrap_or_default();
        put(staged, to, StagedFile { executable, bytes }).map_err(failed)?;
        within_limit(staged)
    }

    fn extract(&self, path: &TreePath, staged: &mut Staged) -> Result<(), Cause> {
        let failed =
            |cause: String| Cause::Extract { path: path.to_string(), to: self.to.to_string(), cause };
        let tarball = self.source.read(path).map_err(failed)?;
        let mut entries = Vec::new();
        archive::unpack(tarball.as_slice(), EXTRACTED, |entry| entries.push(entry))
            .map_err(|error| failed(error.to_string()))?;
        for entry in entries {
            let file = StagedFile { executable: entry.executable, bytes: entry.bytes };
            put(staged, &joined(&self.to, &entry.path), file).map_err(failed)?;
        }
        within_limit(staged)
    }

    /// Patterns are tried on the path in the source and on the path in what was selected; those without a slash on
    /// the name too.
    fn excludes(&self, path: &TreePath, base: &TreePath) -> bool {
        let inside = path.below(base).filter(|inside| !inside.is_root());
        let name = path.file_name().unwrap_or_default();
        self.exclude.iter().any(|pattern| {
            let matches = |path: &str| glob::matches_doublestar(pattern, path) == Ok(true);
            matches(path.as_str())
                || inside.as_ref().is_some_and(|inside| matches(inside.as_str()))
                || (!pattern.contains('/') && matches(name))
        })
    }
}

fn joined(folder: &TreePath, inside: &TreePath) -> TreePath {
    inside.parts().fold(folder.clone(), |path, part| path.child(part))
}

fn is_staged_folder(staged: &Staged, path: &TreePath) -> bool {
    staged.keys().any(|file| file != path && file.is_within(path))
}

fn put(staged: &mut Staged, to: &TreePath, file: StagedFile) -> Result<(), String> {
    if to.is_root() || is_staged_folder(staged, to) {
        return Err("is a directory".to_owned());
    }
    let mut parent = to.parent();
    while let Some(folder) = parent {
        if staged.contains_key(&folder) {
            return Err(format!("{folder}: not a directory"));
        }
        parent = folder.parent();
    }
    staged.insert(to.clone(), file);
    Ok(())
}

fn within_limit(staged: &Staged) -> Result<(), Cause> {
    let total: usize = staged.values().map(|file| file.bytes.len()).sum();
    if total > LARGEST { Err(Cause::TooLarge) } else { Ok(()) }
}

/// The folders before the first part that is a pattern.
fn literal_prefix(pattern: &str) -> TreePath {
    let parts = pattern.split('/').filter(|part| !matches!(*part, "" | "."));
    let literal = parts.take_while(|part| !part.contains(['*', '?', '[', ']']) && *part != "..");
    literal.fold(TreePath::root(), |path, part| path.child(part))
}

fn is_tarball(path: &TreePath) -> bool {
    let name = path.as_str().to_lowercase();
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

/// All documents of a file as one map, later ones over earlier ones.
fn load(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let options = yaml::Options::new(yaml::Schema::V2);
    let documents = yaml::parse_stream(bytes, &options)
        .map_err(|error| format!("cannot unmarshal YAML document: {error}"))?;
    let mut whole = Map::new();
    for document in documents {
        let value = yaml::node_to_json(&document.root, yaml::Schema::V2)
            .map_err(|error| format!("cannot unmarshal YAML document: {error}"))?;
        match value {
            Value::Object(map) => whole = merge(whole, map),
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err("cannot unmarshal YAML document: not a map".to_owned());
            }
        }
    }
    Ok(whole)
}

/// Maps are merged, everything else is replaced.
fn merge(mut base: Map<String, Value>, overlay: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in overlay {
        let merged = match (base.remove(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => Value::Object(merge(below, above)),
            (_, value) => value,
        };
        base.insert(key, merged);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Texts(&'static [(&'static str, &'static str)]);

    impl Source for Texts {
        fn files(&self) -> Vec<(TreePath, bool)> {
            self.0.iter().map(|(path, _)| (TreePath::parse(path).unwrap(), path.ends_with(".sh"))).collect()
        }

        fn read(&self, path: &TreePath) -> Result<Vec<u8>, String> {
            let found = self.0.iter().find(|(known, _)| *known == path.as_str());
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| "missing".to_owned())
        }
    }

    const SOURCE: Texts = Texts(&[
        ("README.md", "r"),
        ("apps/base/a.yaml", "a: 1\nb: {c: 1, d: [1, 2]}\n"),
        ("apps/base/run.sh", "x"),
        ("apps/prod/a.yaml", "b: {d: [3]}\n---\ne: 2\n"),
        ("apps/prod/docs/x.md", "m"),
        ("top.yaml", "t"),
    ]);

    fn operation(from: &str, to: &str, strategy: Option<CopyStrategy>, exclude: &[&str]) -> CopyOperation {
        let exclude = exclude.iter().map(|pattern| (*pattern).to_owned()).collect();
        CopyOperation { from: from.to_owned(), to: to.to_owned(), exclude, strategy }
    }

    fn run(operations: &[CopyOperation]) -> Result<Staged, String> {
        let sources: BTreeMap<String, &dyn Source> =
            BTreeMap::from([("s".to_owned(), &SOURCE as &dyn Source)]);
        compose(operations, &sources).map_err(|error| error.to_string())
    }

    fn paths(from: &str, to: &str, exclude: &[&str]) -> Vec<String> {
        let staged = run(&[operation(from, to, None, exclude)]).unwrap();
        staged.keys().map(TreePath::to_string).collect()
    }

    #[test]
    fn copies_go_where_cp_would_put_them() {
        assert_eq!(paths("@s/apps/base", "@artifact/", &[]), ["base/a.yaml", "base/run.sh"]);
        assert_eq!(paths("@s/apps/base/", "@artifact/x", &[]), ["x/base/a.yaml", "x/base/run.sh"]);
        assert_eq!(paths("@s/apps/base/**", "@artifact/", &[]), ["a.yaml", "run.sh"]);
        assert_eq!(
            paths("@s/apps/*/a.yaml", "@artifact/y/", &[]),
            ["y/apps/base/a.yaml", "y/apps/prod/a.yaml"]
        );
        assert_eq!(paths("@s/*.yaml", "@artifact/", &[]), ["top.yaml"]);
        assert_eq!(paths("@s/top.yaml", "@artifact/renamed.yaml", &[]), ["renamed.yaml"]);
        assert_eq!(paths("@s/top.yaml", "@artifact/folder/", &[]), ["folder/top.yaml"]);
        assert_eq!(paths("@s/apps/**", "@artifact/", &["*.md", "base/*.sh"]), ["base/a.yaml", "prod/a.yaml"]);
        assert_eq!(paths("@s/apps/prod", "@artifact/", &["docs"]), ["prod/a.yaml"]);
    }

    #[test]
    fn a_file_joins_a_folder_that_is_there() {
        let staged = run(&[
            operation("@s/apps/base/**", "@artifact/x/", None, &[]),
            operation("@s/top.yaml", "@artifact/x", None, &[]),
        ]);
        assert!(staged.unwrap().contains_key(&TreePath::parse("x/top.yaml").unwrap()));
    }

    #[test]
    fn files_are_merged_as_values_are() {
        let staged = run(&[
            operation("@s/apps/base/a.yaml", "@artifact/values.yaml", None, &[]),
            operation("@s/apps/prod/a.yaml", "@artifact/values.yaml", Some(CopyStrategy::Merge), &[]),
        ])
        .unwrap();
        let text = String::from_utf8(staged[&TreePath::parse("values.yaml").unwrap()].bytes.clone()).unwrap();
        assert_eq!(text, "a: 1\nb:\n  c: 1\n  d:\n  - 3\ne: 2\n");
    }

    #[test]
    fn a_tarball_is_unpacked_and_nothing_else() {
        let error =
            run(&[operation("@s/top.yaml", "@artifact/", Some(CopyStrategy::Extract), &[])]).unwrap_err();
        assert!(error.contains("requires tarball file"), "{error}");
        let error = run(&[operation("@s/apps", "@artifact/", Some(CopyStrategy::Extract), &[])]).unwrap_err();
        assert!(error.contains("not supported for directories"), "{error}");
    }

    #[test]
    fn what_cannot_be_copied_is_named() {
        for (from, to, exclude, words) in [
            ("@s/nowhere", "@artifact/", "", "source 'nowhere' does not exist"),
            ("@s/*.nope", "@artifact/", "", "no files match pattern '*.nope' in source 's'"),
            ("@s/*.yaml", "@artifact/", "*.yaml", "were excluded"),
            ("@x/a", "@artifact/", "", "source alias 'x' not found"),
            ("@s/top.yaml", "@artifact/../x", "", "leaves the artifact"),
            ("@s/../top.yaml", "@artifact/", "", "does not exist"),
            ("@s/[", "@artifact/", "", "invalid glob pattern"),
            ("@s/top.yaml", "@artifact/", "[", "invalid exclude pattern"),
        ] {
            let exclude: Vec<&str> = Some(exclude).filter(|text| !text.is_empty()).into_iter().collect();
            let error = run(&[operation(from, to, None, &exclude)]).unwrap_err();
            assert!(error.contains(words), "{from} {to}: {error}");
        }
    }
}
