//! Why a chart does not load, in Helm's words.

use super::ArchiveError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("unable to load chart archive: {0}")]
    Archive(#[from] ArchiveError),
    #[error("Chart.yaml file is missing")]
    MissingChartYaml,
    #[error("unable to detect chart version, no Chart.yaml found")]
    NoChartYamlInArchive,
    #[error("unsupported chart version")]
    UnsupportedApiVersion,
    /// Helm 4 knows charts of `apiVersion: v3`, but installs none.
    #[error("invalid chart apiVersion")]
    ApiVersionV3,
    #[error("cannot load {file}: {cause}")]
    Unreadable { file: &'static str, cause: String },
    #[error("validation: {0}")]
    Invalid(String),
    #[error("error unpacking subchart {name} in {chart}: {cause}")]
    Subchart { name: String, chart: String, cause: Box<LoadError> },
    #[error("error unpacking subchart tar in {chart}: expected {expected}, got {got}")]
    SubchartArchive { chart: String, expected: String, got: String },
    #[error("subcharts are nested more than {0} deep")]
    TooDeep(usize),
    #[error("chart exceeds maximum decompressed size of {0} bytes")]
    TooLarge(u64),
    #[error("folders are nested more than {0} deep")]
    FoldersTooDeep(usize),
    #[error(".helmignore: {0}")]
    Ignore(String),
    #[error("{0}")]
    Tree(#[from] file_tree::Error),
}
