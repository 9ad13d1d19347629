//! Kinds of `helm.toolkit.fluxcd.io`.

mod actions;
mod helm_release;
mod status;

pub use actions::*;
pub use helm_release::*;
pub use status::*;
