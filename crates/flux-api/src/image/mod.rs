//! Kinds of `image.toolkit.fluxcd.io`.

mod image_policy;
mod image_repository;
mod image_update_automation;

pub use image_policy::*;
pub use image_repository::*;
pub use image_update_automation::*;
