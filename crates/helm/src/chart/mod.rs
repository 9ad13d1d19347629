//! A chart: its metadata, defaults, templates, other files and subcharts.
//!
//! Loading never touches a disk: an archive is bytes, an unpacked chart is a [`file_tree::Files`]. A loaded chart is never
//! changed; switching subcharts on and off for a set of values makes a [`crate::dependencies`] view of it.

mod archive;
pub(crate) mod decode;
mod error;
mod ignore;
mod load;
mod metadata;
mod package;
mod parsed;
mod tree;

use bytes::Bytes;
use file_tree::{Files, TreePath};
use serde_json::{Map, Value as Json};

pub use archive::ArchiveError;
pub(crate) use archive::clean;
pub(crate) use decode::{PREFIX, json_kind, scalar_text};
pub use error::LoadError;
pub use metadata::{ApiVersion, Dependency, Maintainer, Metadata, Type};
pub use package::PackageError;
pub(crate) use parsed::{Key, Parsed};

use crate::Dialect;

/// How much a chart may unpack to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all files together, archives within archives included. Helm allows 100 MiB.
    pub unpacked: u64,
    /// How deep subcharts may nest.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { unpacked: 100 * 1024 * 1024, depth: 32 }
    }
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub metadata: Metadata,
    /// `Chart.lock` or `requirements.lock`, as written.
    pub lock: Option<Json>,
    /// `values.yaml`. Numbers are floats, as Go reads them. `None` when there is no such file.
    pub values: Option<Map<String, Json>>,
    /// `values.yaml`, as written.
    pub values_file: Option<File>,
    /// `values.schema.json`, as written.
    pub schema: Option<Bytes>,
    /// Everything below `templates/`.
    pub templates: Vec<File>,
    /// What is none of the above: `.Files`, and the CRDs below `crds/`.
    pub files: Vec<File>,
    pub subcharts: Vec<Chart>,
    /// When `Chart.yaml` was last changed, where the archive says so.
    pub modified: Option<jiff::Timestamp>,
    pub schema_modified: Option<jiff::Timestamp>,
    /// Templates that were parsed before, for the next render.
    pub(crate) parsed: Parsed,
}

/// A file of a chart; its name is relative to the chart.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub data: Bytes,
    pub modified: Option<jiff::Timestamp>,
}

impl Chart {
    /// Loads a `.tgz`, with everything Helm refuses refused.
    pub fn from_archive(bytes: &[u8], limits: Limits, dialect: Dialect) -> Result<Chart, LoadError> {
        let mut budget = load::Budget::new(limits);
        let files = archive::unpack(bytes, &mut budget)?;
        load::root(files, &mut budget, dialect)
    }

    /// Loads the unpacked chart in the folder `at`, leaving out what its `.helmignore` names.
    pub fn from_tree(
        files: &dyn Files,
        at: &TreePath,
        limits: Limits,
        dialect: Dialect,
    ) -> Result<Chart, LoadError> {
        let mut budget = load::Budget::new(limits);
        let files = tree::read(files, at, &mut budget)?;
        load::root(files, &mut budget, dialect)
    }

    /// Loads a chart from its files, named relative to the chart.
    pub fn from_files(files: Vec<File>, limits: Limits, dialect: Dialect) -> Result<Chart, LoadError> {
        load::root(files, &mut load::Budget::new(limits), dialect)
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether this chart's own `crds/` holds the file.
    pub(crate) fn crds(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|f| f.name.starts_with("crds/") && has_manifest_extension(&f.name))
    }
}

fn has_manifest_extension(name: &str) -> bool {
    let extension = name.rsplit('/').next().and_then(|base| base.rsplit_once('.')).map_or("", |(_, e)| e);
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}
