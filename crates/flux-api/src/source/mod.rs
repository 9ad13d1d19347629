//! Kinds of `source.toolkit.fluxcd.io`.

mod bucket;
mod external_artifact;
mod git_repository;
mod helm_chart;
mod helm_repository;
mod oci_repository;

pub use bucket::*;
pub use external_artifact::*;
pub use git_repository::*;
pub use helm_chart::*;
pub use helm_repository::*;
pub use oci_repository::*;
