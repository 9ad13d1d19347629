//! Helm as a function: charts, values, rendering, releases.
//!
//! ```text
//! let chart = Chart::from_archive(&bytes, Limits::default(), Dialect::Helm4)?;
//! let rendered = render(&chart, &values, &release, &capabilities, &host, &options)?;
//! let record = Release::installing(&chart, &rendered, …);
//! let secret = storage_secret(&record, …)?;
//! ```
//!
//! Pure: files come as bytes or through [`file_tree::Files`], the clock, chance and the cluster through traits. Not here: fetching
//! charts, and doing what a [`plan`] says.

mod capabilities;
mod chart;
mod dependencies;
mod document;
mod go_json;
mod manifest;
mod name;
mod path_match;
pub mod plan;
mod post_render;
mod provenance;
mod quote;
pub mod release;
mod render;
mod schema;
mod values;

pub use capabilities::{Capabilities, HelmVersion, KubeVersion, KubeVersionError};
pub use chart::{
    ApiVersion, ArchiveError, Chart, Dependency, File, Limits, LoadError, Maintainer, Metadata, PackageError,
    Type,
};
pub use dependencies::missing_dependencies;
pub use manifest::{
    DeletePolicy, Head, Hook, HookEvent, HookExecution, HookPhase, KindOrder, Manifest, OutputLogPolicy,
    RESOURCE_POLICY, Sorted, is_kept, sort_manifests, split_manifests,
};
pub use name::{NameError, validate_release_name};
pub use path_match::path_matches;
pub use post_render::{PostRender, PostRenderStrategy};
pub use provenance::{ProvenanceError, Verification, verify};
pub use render::{
    Crd, Lookup, NoCluster, Operation, Options, ReleaseOptions, RenderError, Rendered, api_versions, crds,
    functions, render, render_files,
};
pub use values::{SetError, SetMode, Values};

/// Whose rules to follow where the two differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Helm 4.3.
    #[default]
    Helm4,
    /// Helm 3.22.
    Helm3,
}
